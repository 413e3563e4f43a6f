"""The plan of one seed of the scenario `membership`: when processes start, which faults occur, and the workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

from motet.protocol.core.identity import Endpoint
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND, format_ns
from motet.protocol.member import MemberConfig
from motet.protocol.membership import DetectorConfig, MembershipConfig
from motet.protocol.multicast import MulticastConfig
from motet.protocol.unicast import UnicastConfig
from motet.sim.world.network import NetworkProfile, draw_profile, with_late_control
from motet.sim.world.plan import Burst

HOST = "127.0.0.1"
FIRST_PORT = 7800
CLUSTER_NS = 50 * MILLISECOND  # faults within this time hit the same view change
MID_CHANGE = 5  # one seed in this many has faults that strike during view changes
KEEPING_STATE = (7, (2, 6))  # (modulus, remainders): in these seeds restarts may keep the durable state
LARGE_GROUP = 100


class GroupFaultKind(Enum):
    CRASH = "crash"
    RESTART = "restart"  # crashes and restarts at the same port as a new incarnation
    LEAVE = "leave"  # leaves gracefully
    REJOIN = "rejoin"  # leaves gracefully and is started again
    PAUSE = "pause"
    CUT = "cut"  # one direction between two processes
    ISOLATE = "isolate"  # both directions between one process and all others
    MUTE = "mute"  # can receive, cannot send
    DEAF = "deaf"  # can send, cannot receive
    PARTITION = "partition"  # two or three sides without a link between them
    SLOW = "slow"  # the application pauses deliveries for a while
    LOSS = "loss"  # most datagrams are lost for a while
    BUSY = "busy"  # is blocked, and its liveness process reports it


# Faults that split views or end processes are drawn more often than the others.
_ANY = [kind for kind in GroupFaultKind if kind is not GroupFaultKind.BUSY]  # drawn by the scenario `busy` only
_DRAWN = [*_ANY, GroupFaultKind.CRASH, GroupFaultKind.RESTART, *[GroupFaultKind.PARTITION] * 3]
ENDS_A_PROCESS = (GroupFaultKind.CRASH, GroupFaultKind.RESTART, GroupFaultKind.LEAVE, GroupFaultKind.REJOIN)
_CHANGES_THE_VIEW = (
    GroupFaultKind.RESTART,
    GroupFaultKind.RESTART,
    GroupFaultKind.REJOIN,
    GroupFaultKind.ISOLATE,
    GroupFaultKind.PARTITION,
)
_HITS_ONE = (
    GroupFaultKind.RESTART,
    GroupFaultKind.RESTART,
    GroupFaultKind.CRASH,
    GroupFaultKind.PAUSE,
    GroupFaultKind.ISOLATE,
    GroupFaultKind.MUTE,
    GroupFaultKind.DEAF,
    GroupFaultKind.CUT,
    GroupFaultKind.REJOIN,
)
_COMES_BACK = (GroupFaultKind.RESTART, GroupFaultKind.REJOIN)
_COMES_BACK_AS = {GroupFaultKind.CRASH: GroupFaultKind.RESTART, GroupFaultKind.LEAVE: GroupFaultKind.REJOIN}
_LASTS = {
    GroupFaultKind.RESTART: (0, 3 * SECOND),
    GroupFaultKind.REJOIN: (0, 3 * SECOND),
    GroupFaultKind.PAUSE: (10 * MILLISECOND, 5 * SECOND),
    GroupFaultKind.PARTITION: (300 * MILLISECOND, 6 * SECOND),
    GroupFaultKind.LOSS: (100 * MILLISECOND, 2 * SECOND),
}


@dataclass(frozen=True, slots=True)
class GroupFault:
    at: int
    kind: GroupFaultKind
    who: int  # index of the process
    other: int = 0
    lasts_ns: int = 0
    sides: tuple[int, ...] = ()  # of a partition: the side of each process
    loss: float = 0.0
    after_change_ns: int | None = (
        None  # waits, from `at` on, for a view change to begin, and strikes so long after that
    )
    hits_first: bool = False  # strikes the first process that starts the view change, normally the coordinator
    keeps_durable_state: bool = False  # a restarted process recovers its durable state, as from a journal
    awaits: str = ""  # the trigger: from `at` on, strikes before the network takes a frame of this kind
    nth: int = 1  # the trigger fires at the n-th such frame
    replaces: bool = False  # heals all earlier cuts when it strikes
    by_rank: bool = False  # `who` and `other` are ranks in the view, 0 being the most senior

    def __str__(self) -> str:
        sides = f", sides {''.join(map(str, self.sides))}" if self.sides else ""
        loss = f", loss {self.loss:.0%}" if self.loss else ""
        who = "the first" if self.hits_first else f"{self.who}{' by rank' if self.by_rank else ''}"
        condition = (
            f"{format_ns(self.after_change_ns)} into a view change, " if self.after_change_ns is not None else ""
        )
        condition += f"before {self.awaits} {self.nth}, " if self.awaits else ""
        condition += "all cuts are healed and " if self.replaces else ""
        lasts = f"for {format_ns(self.lasts_ns)}{', with its durable state' if self.keeps_durable_state else ''}"
        return f"{format_ns(self.at)}: {condition}{self.kind.value} {who} (other {self.other}, {lasts}{sides}{loss})"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    seed: int
    names: tuple[str, ...]
    seeds: tuple[Endpoint, ...]  # where discovery looks
    starts: tuple[int, ...]  # when each process is first started
    config: MemberConfig
    windows: tuple[int, ...]  # of each process, in frames
    network: NetworkProfile
    duration_ns: int
    faults: tuple[GroupFault, ...]
    bursts: tuple[Burst, ...] = field(repr=False)

    @property
    def membership(self) -> MembershipConfig:
        assert self.config.membership is not None
        return self.config.membership

    def config_of(self, index: int, *, may_bootstrap: bool) -> MemberConfig:
        """A process that once lost its durable state must not bootstrap a second group."""
        capacity = self.windows[index]
        return replace(
            self.config,
            unicast=replace(self.config.unicast, capacity=capacity),
            multicast=replace(self.config.multicast, capacity=capacity),
            membership=replace(self.membership, may_bootstrap=may_bootstrap),
        )

    @property
    def is_one_primary(self) -> bool:
        return self.membership.engine.partitions == "primary"

    @property
    def is_durable_state_lost(self) -> bool:
        """Whether a process that may know of a primary view loses its durable state."""
        return any(fault.kind in ENDS_A_PROCESS and not fault.keeps_durable_state for fault in self.faults)

    def describe(self) -> list[str]:
        detector, engine = self.membership.detector, self.membership.engine
        return [
            f"seed {self.seed}: {len(self.names)} members, {format_ns(self.duration_ns)}, {len(self.bursts)} bursts",
            f"network: {self.network}",
            f"windows: {', '.join(map(str, self.windows))} frames of {self.config.frame_bytes} bytes; "
            f"interval {format_ns(self.config.multicast.xmit_interval_ns)}",
            f"membership: seeds {', '.join(map(str, self.seeds))}; partitions {engine.partitions}, static quorum "
            f"{engine.static_quorum}; suspected after {format_ns(detector.suspect_ns)}, answers within "
            f"{format_ns(engine.answer_ns)}; wants state: {self.membership.transfer.wants_state}",
            f"starts at {', '.join(map(format_ns, self.starts))}",
            *(f"fault at {fault}" for fault in self.faults),
        ]


def endpoint_of(index: int) -> Endpoint:
    return Endpoint(HOST, FIRST_PORT + index)


def draw_group_plan(seed: int) -> GroupPlan:
    rng = Random(f"group plan {seed}")
    members = rng.choice([1, 2, 3, 3, 3, 4, 4, 5, 5, 5, 6, 7, 7, rng.randrange(8, 16)])
    seeds = _draw_seeds(rng, members)
    duration_ns = rng.randrange(4 * SECOND, 15 * SECOND)
    faults = _draw_faults(rng, members, duration_ns)
    if seed % MID_CHANGE == MID_CHANGE - 1:
        faults += _draw_mid_change_faults(Random(f"ambushes {seed}"), members, duration_ns)
    if seed % KEEPING_STATE[0] in KEEPING_STATE[1]:
        faults = _with_durable_state(Random(f"memory {seed}"), faults, members, duration_ns)
    duration_ns = max([duration_ns, *(fault.at for fault in faults)])
    config = replace(_draw_channels(rng), membership=_draw_membership(rng, members, seeds))
    return GroupPlan(
        seed,
        names=tuple("abcdefghijklmno"[:members]),
        seeds=seeds,
        starts=_draw_starts(rng, members),
        config=config,
        windows=_draw_windows(rng, members, config.multicast.capacity),
        network=with_late_control(Random(f"late {seed}"), _draw_network(rng)),
        duration_ns=duration_ns,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        bursts=_draw_bursts(rng, members, duration_ns, config.frame_bytes),
    )


def draw_large_plan(seed: int) -> GroupPlan:
    """A large group on a mild network: it starts together, is partitioned once, and loses one member."""
    rng = Random(f"large plan {seed}")
    members = range(LARGE_GROUP)
    seeds = tuple(endpoint_of(index) for index in sorted(rng.sample(members, 3)))
    partition = _draw_fault(rng, GroupFaultKind.PARTITION, LARGE_GROUP, rng.randrange(3 * SECOND, 5 * SECOND))
    crash = GroupFault(rng.randrange(3 * SECOND, 7 * SECOND), GroupFaultKind.CRASH, rng.choice(members))
    return GroupPlan(
        seed,
        names=tuple(f"m{index:02}" for index in members),
        seeds=seeds,
        starts=(0,) * LARGE_GROUP,
        config=MemberConfig(frame_bytes=1_400, membership=MembershipConfig.lan().with_seeds(*seeds)),
        windows=(64,) * LARGE_GROUP,
        network=NetworkProfile(
            loss=0.005,
            delay_ns=200 * MICROSECOND,
            jitter="exponential",
            jitter_ns=100_000,
            late_copies=0.005,
            late_ns=10 * SECOND,
        ),
        duration_ns=8 * SECOND,
        faults=tuple(sorted([partition, crash], key=lambda fault: fault.at)),
        bursts=tuple(Burst(at, rng.choice(members), None, (100,)) for at in range(SECOND, 8 * SECOND, SECOND // 4)),
    )


# Members and settings


def _draw_seeds(rng: Random, members: int) -> tuple[Endpoint, ...]:
    chosen = rng.sample(range(members), min(members, rng.choice([1, 3, 3])))
    return tuple(endpoint_of(index) for index in sorted(chosen))


def _draw_starts(rng: Random, members: int) -> tuple[int, ...]:
    spread_ns = rng.choice([1, 1, 100 * MILLISECOND, 2 * SECOND])
    return tuple(rng.randrange(spread_ns) for _ in range(members))


def _draw_channels(rng: Random) -> MemberConfig:
    capacity = rng.choice([1, 2, 4, 16, 64])
    xmit_interval_ns = rng.choice([50, 100, 200, 500]) * MILLISECOND
    backlog_bytes = rng.choice([2_000, 1 << 20])
    unicast = UnicastConfig(
        capacity=capacity,
        backlog_bytes=backlog_bytes,
        xmit_interval_ns=xmit_interval_ns,
        conn_expiry_ns=rng.choice([0, 2 * SECOND]),
    )
    multicast = MulticastConfig(
        capacity=capacity,
        backlog_bytes=backlog_bytes,
        xmit_interval_ns=xmit_interval_ns,
        early_frames=rng.choice([0, 4, 512]),
    )
    return MemberConfig(frame_bytes=rng.choice([256, 512, 1_400, 8_000]), unicast=unicast, multicast=multicast)


def _draw_windows(rng: Random, members: int, capacity: int) -> tuple[int, ...]:
    """Some members have a smaller window than those that send to them."""
    return tuple(max(1, capacity // rng.choice([1, 1, 1, 1, 2, 4])) for _ in range(members))


def _draw_membership(rng: Random, members: int, seeds: tuple[Endpoint, ...]) -> MembershipConfig:
    base = MembershipConfig.lan().with_seeds(*seeds)
    policy = rng.randrange(6)
    engine = replace(
        base.engine,
        partitions="all" if policy == 0 else "primary",
        static_quorum=members // 2 + 1 if policy == 1 else 0,
    )
    transfer = replace(base.transfer, wants_state=rng.random() < 0.4, chunk_bytes=rng.choice([100, 1_000, 32_000]))
    base = replace(base, engine=engine, transfer=transfer)
    return _with_short_timeouts(base) if rng.random() < 0.3 else base


def _with_short_timeouts(base: MembershipConfig) -> MembershipConfig:
    """Short timeouts: suspicions come early and are often wrong, and answers have little time."""
    detector = DetectorConfig(
        heartbeat_ns=100 * MILLISECOND, suspect_ns=400 * MILLISECOND, verify_ns=150 * MILLISECOND, verify_attempts=3
    )
    engine = replace(base.engine, retry_ns=30 * MILLISECOND, answer_ns=250 * MILLISECOND)
    return replace(base, detector=detector, engine=engine)


def _draw_network(rng: Random) -> NetworkProfile:
    """A network on which a failure detector can work."""
    profile = draw_profile(rng)
    return replace(profile, loss=min(profile.loss, rng.choice([0.2, 0.2, 0.2, 0.35])))


# Faults


def _draw_faults(rng: Random, members: int, duration_ns: int) -> tuple[GroupFault, ...]:
    faults: list[GroupFault] = []
    wanted = rng.choice([0, 1, 2, 2, 3, 4, 6, 8])
    while len(faults) < wanted:
        at = rng.randrange(duration_ns)
        for _ in range(min(rng.choice([1, 1, 2, 3]), wanted - len(faults))):
            faults.append(_draw_fault(rng, rng.choice(_DRAWN), members, at + rng.randrange(CLUSTER_NS)))
    if rng.random() < 0.08:
        faults += _rolling_restart(rng, members, rng.randrange(duration_ns))
    return tuple(faults)


def _draw_mid_change_faults(rng: Random, members: int, duration_ns: int) -> tuple[GroupFault, ...]:
    """Pairs of a fault that changes the view, and a fault that strikes during this change."""
    faults = []
    for _ in range(rng.choice([2, 4, 6])):
        at = rng.randrange(duration_ns)
        faults.append(_draw_fault(rng, rng.choice(_CHANGES_THE_VIEW), members, at))
        after_change_ns = rng.randrange(rng.choice([5, 50, 200, 1_000]) * MILLISECOND)
        fault = _draw_fault(rng, rng.choice(_HITS_ONE), members, at)
        faults.append(replace(fault, after_change_ns=after_change_ns, hits_first=rng.random() < 0.6))
    return tuple(faults)


def _with_durable_state(
    rng: Random, faults: tuple[GroupFault, ...], members: int, duration_ns: int
) -> tuple[GroupFault, ...]:
    """Let restarts keep their durable state: some of them; or all, and then the group must become primary again."""
    if rng.random() < 0.4:
        kept = tuple(
            replace(fault, keeps_durable_state=fault.kind in _COMES_BACK and rng.random() < 0.6) for fault in faults
        )
    else:
        kept = tuple(_keeping_state(fault) for fault in faults)
    for _ in range(rng.choice([0, 1, 1, 2])):
        kept += tuple(_blackout(rng, members, rng.randrange(duration_ns)))
    return kept


def _keeping_state(fault: GroupFault) -> GroupFault:
    kind = _COMES_BACK_AS.get(fault.kind, fault.kind)
    return replace(fault, kind=kind, keeps_durable_state=kind in _COMES_BACK)


def _blackout(rng: Random, members: int, at: int) -> Iterator[GroupFault]:
    """All processes crash at one moment and restart one by one."""
    spread_ns = rng.choice([1, 300 * MILLISECOND, 4 * SECOND])
    for who in range(members):
        yield GroupFault(at, GroupFaultKind.RESTART, who, lasts_ns=rng.randrange(spread_ns), keeps_durable_state=True)


def _draw_fault(rng: Random, kind: GroupFaultKind, members: int, at: int) -> GroupFault:
    who = rng.randrange(members)
    shortest_ns, longest_ns = _LASTS.get(kind, (50 * MILLISECOND, 4 * SECOND))
    sides = rng.choice([2, 2, 3])
    return GroupFault(
        at,
        kind,
        who,
        other=(who + rng.randrange(1, members)) % members if members > 1 else who,
        lasts_ns=rng.randrange(shortest_ns, longest_ns),
        sides=tuple(rng.randrange(sides) for _ in range(members)) if kind is GroupFaultKind.PARTITION else (),
        loss=rng.uniform(0.6, 0.95) if kind is GroupFaultKind.LOSS else 0.0,
    )


def _rolling_restart(rng: Random, members: int, at: int) -> Iterator[GroupFault]:
    """An upgrade: all processes restart one after the other."""
    for who in rng.sample(range(members), members):
        yield GroupFault(at, GroupFaultKind.RESTART, who, lasts_ns=rng.randrange(800 * MILLISECOND))
        at += rng.randrange(700 * MILLISECOND, 1_500 * MILLISECOND)


# Workload


def _draw_bursts(rng: Random, members: int, duration_ns: int, frame_bytes: int) -> tuple[Burst, ...]:
    """Multicasts throughout, some unicasts, and occasionally a message that needs fragments."""
    bursts = []
    for _ in range(rng.choice([10, 40, 120])):
        who = rng.randrange(members)
        to = rng.randrange(members) if rng.random() < 0.2 else None
        sizes = tuple(rng.randrange(1, 200) for _ in range(rng.choice([1, 1, 5, 20])))
        if rng.random() < 0.05:
            sizes = (rng.randrange(frame_bytes, 6 * frame_bytes),)
        bursts.append(Burst(rng.randrange(duration_ns), who, to, sizes))
    return tuple(sorted(bursts, key=lambda burst: burst.at))
