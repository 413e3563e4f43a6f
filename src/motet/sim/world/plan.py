"""The plan of one seed of the scenario `channels`. It is drawn before the run, so that it can be printed and read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from motet.protocol.core.units import MILLISECOND, SECOND, format_ns
from motet.protocol.member import MemberConfig
from motet.protocol.multicast import MulticastConfig
from motet.protocol.unicast import UnicastConfig
from motet.sim.world.network import NetworkProfile, draw_profile

FORGETS = 2  # how often one fault of the kind FORGET drops the window


class PlannedFaultKind(Enum):
    CRASH = "crash"  # the process dies; the others get a view without it
    RESTART = "restart"  # the process dies and comes back as a new incarnation
    EXPEL = "expel"  # the others install a view without it while it keeps running and sending for a while
    PAUSE = "pause"
    CUT = "cut"  # one direction between two processes
    ISOLATE = "isolate"  # both directions between one process and all others
    SLOW = "slow"  # the application pauses deliveries for a while
    CLOSE = "close"  # one process closes its connections with another, which notices nothing
    FORGET = "forget"  # one process drops its receive window for another (asymmetric split), again and again
    SYNC = "sync"  # an operator asks for a SYNC


@dataclass(frozen=True, slots=True)
class PlannedFault:
    at: int
    kind: PlannedFaultKind
    who: int  # index of the process
    other: int
    lasts_ns: int

    def __str__(self) -> str:
        return (
            f"{format_ns(self.at)}: {self.kind.value} {self.who} (other {self.other}, for {format_ns(self.lasts_ns)})"
        )


@dataclass(frozen=True, slots=True)
class Burst:
    """Messages that the application sends at one moment; `to` is None for a multicast."""

    at: int
    who: int
    to: int | None
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChannelsPlan:
    seed: int
    names: tuple[str, ...]
    configs: tuple[MemberConfig, ...]
    network: NetworkProfile
    duration_ns: int
    faults: tuple[PlannedFault, ...]
    bursts: tuple[Burst, ...]
    remembers: bool

    def describe(self) -> list[str]:
        first = self.configs[0]
        windows = ", ".join(str(config.multicast.capacity) for config in self.configs)
        return [
            f"seed {self.seed}: {len(self.names)} members, {format_ns(self.duration_ns)}, {len(self.bursts)} bursts",
            f"network: {self.network}",
            f"windows: {windows} frames of {first.frame_bytes} bytes; "
            f"interval {format_ns(first.multicast.xmit_interval_ns)}; dropped windows are "
            f"{'remembered' if self.remembers else 'forgotten'}",
            *(f"fault at {fault}" for fault in self.faults),
        ]


def draw_plan(seed: int) -> ChannelsPlan:
    rng = Random(f"plan {seed}")
    names = tuple("abcdef"[: rng.choice([2, 2, 3, 3, 4, 5, 6])])
    duration_ns = rng.randrange(1 * SECOND, 5 * SECOND)
    remembers = rng.random() < 0.7
    base = _draw_config(rng)
    network = draw_profile(rng)
    if not remembers:
        base, network = _made_for_resync(rng, base), _made_for_late_acks(rng, network)
    configs = tuple(_vary(rng, base) for _ in names)
    faults = tuple(sorted(_draw_faults(rng, len(names), duration_ns, remembers), key=lambda fault: fault.at))
    drawn = _draw_bursts(rng, len(names), duration_ns, base) + _bursts_for_forgetful(rng, faults)
    bursts = tuple(sorted(drawn, key=lambda burst: burst.at))
    return ChannelsPlan(seed, names, configs, network, duration_ns, faults, bursts, remembers)


def _draw_config(rng: Random) -> MemberConfig:
    capacity = rng.choice([1, 2, 3, 4, 8, 16, 64])
    xmit_interval_ns = rng.choice([50, 100, 200, 500]) * MILLISECOND
    initial_rtt_ns = rng.choice([1, 5, 20]) * MILLISECOND
    backlog_bytes = rng.choice([2_000, 1 << 20])
    is_reaping = rng.random() < 0.5
    unicast = UnicastConfig(
        capacity=capacity,
        backlog_bytes=backlog_bytes,
        ack_min_ns=rng.choice([0, 2, 20]) * MILLISECOND,
        ack_max_ns=rng.choice([20, 50]) * MILLISECOND,
        xmit_interval_ns=xmit_interval_ns,
        initial_rtt_ns=initial_rtt_ns,
        request_limit=rng.choice([1, 4, 64]),
        repair_burst=rng.choice([1, 8, 128]),
        conn_expiry_ns=rng.randrange(100, 1_500) * MILLISECOND if is_reaping else 0,
        conn_close_ns=rng.randrange(50, 800) * MILLISECOND,
        give_up_ns=rng.choice([2, 30, 30]) * SECOND,
        sync_timeout_ns=rng.choice([300, 5_000]) * MILLISECOND,
        remembered_peers=64,
    )
    multicast = MulticastConfig(
        capacity=capacity,
        backlog_bytes=backlog_bytes,
        xmit_interval_ns=xmit_interval_ns,
        initial_rtt_ns=initial_rtt_ns,
        request_limit=unicast.request_limit,
        repair_burst=unicast.repair_burst,
        early_frames=rng.choice([0, 4, 512]),
    )
    return MemberConfig(frame_bytes=rng.choice([256, 512, 1_400, 8_000]), unicast=unicast, multicast=multicast)


def _made_for_late_acks(rng: Random, network: NetworkProfile) -> NetworkProfile:
    """Data arrives soon and acks arrive late, so that a late ack refers to a connection that no longer exists."""
    late_ns = rng.choice([20, 60, 200]) * MILLISECOND
    return replace(
        network,
        loss=rng.choice([0.0, network.loss]),
        delay_ns=min(network.delay_ns, 2 * MILLISECOND),
        jitter_ns=min(network.jitter_ns, MILLISECOND),
        stragglers=rng.uniform(0.5, 0.9),
        straggler_ns=late_ns,
        straggler_bytes=60,
    )


def _made_for_resync(rng: Random, base: MemberConfig) -> MemberConfig:
    """Many frames in flight and slow repair: a late ack then covers frames that the resynchronised window still
    lacks.
    """
    unicast = replace(base.unicast, capacity=rng.choice([16, 64]), repair_burst=1, request_limit=1)
    return replace(base, frame_bytes=256, unicast=unicast)


def _vary(rng: Random, base: MemberConfig) -> MemberConfig:
    """Some members have a smaller window than those who send to them."""
    if rng.random() < 0.8:
        return base
    share = rng.choice([2, 4])
    return replace(
        base,
        unicast=replace(base.unicast, capacity=max(1, base.unicast.capacity // share)),
        multicast=replace(base.multicast, capacity=max(1, base.multicast.capacity // share)),
    )


def _draw_faults(rng: Random, members: int, duration_ns: int, remembers: bool) -> list[PlannedFault]:
    # A world that does not remember dropped windows tests the resynchronisation, so it drops many of them.
    kinds = list(PlannedFaultKind) + [PlannedFaultKind.FORGET] * (0 if remembers else 16)
    faults = []
    for _ in range(rng.choice([0, 1, 2, 4, 8] if remembers else [4, 8])):
        who = rng.randrange(members)
        kind = rng.choice(kinds)
        faults.append(
            PlannedFault(
                at=rng.randrange(duration_ns),
                kind=kind,
                who=who,
                other=rng.choice([other for other in range(members) if other != who]),
                lasts_ns=rng.randrange(10 * MILLISECOND, 1_500 * MILLISECOND),
            )
        )
    return faults


def _bursts_for_forgetful(rng: Random, faults: tuple[PlannedFault, ...]) -> list[Burst]:
    """Send just before each drop of a window and once after the last: a drop matters only while messages arrive."""
    bursts = []
    for fault in faults:
        if fault.kind is PlannedFaultKind.FORGET:
            for repeat in range(FORGETS + 1):
                before_ns = rng.randrange(30 * MILLISECOND)
                at = max(0, fault.at + repeat * fault.lasts_ns // FORGETS - before_ns)
                bursts.append(Burst(at, fault.other, fault.who, (150,) * rng.choice([1, 10, 20])))
    return bursts


def _draw_bursts(rng: Random, members: int, duration_ns: int, config: MemberConfig) -> list[Burst]:
    """Bursts of small messages, occasionally a message that needs fragments; about half of the sends are multicasts."""
    bursts = []
    for _ in range(rng.choice([5, 20, 60])):
        who = rng.randrange(members)
        to = rng.choice([None, rng.randrange(members)])
        if rng.random() < 0.05:
            sizes: tuple[int, ...] = (rng.randrange(config.frame_bytes, 6 * config.frame_bytes),)
        else:
            sizes = tuple(rng.randrange(1, 200) for _ in range(rng.choice([1, 1, 5, 20])))
        bursts.append(Burst(rng.randrange(duration_ns), who, to, sizes))
    return bursts
