"""The world of one seed for the scenario `presets`: members as they are shipped, on a network as bad as promised.

The network loses up to half of all datagrams, delays up to half of them by up to two seconds, does both or neither, and
brings control frames again seconds later. Nothing is healed before the end, so there is a bound on how long a group
may take on such a network, counted in virtual time from the last send and the end of the last fault:

    bound = base of the preset * (1/2 + share that is lost + share that is late)

With a base of 60 s (local), 120 s (lan) and 300 s (wan) that is the base where half of all datagrams are lost, or half
are late; half of it on a good network; and one and a half times the base where both come together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from motet.config import Config
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND, format_ns
from motet.sim.scenarios.group_plan import GroupFault, GroupFaultKind, GroupPlan, endpoint_of
from motet.sim.scenarios.interrupted_plan import MERGE_FRAMES
from motet.sim.world.network import NetworkProfile, with_late_control
from motet.sim.world.plan import Burst

_SHIPPED: dict[str, Callable[..., Config]] = {"local": Config.local, "lan": Config.lan, "wan": Config.wan}
PRESETS = tuple(_SHIPPED)
BASE_NS = {"local": 60 * SECOND, "lan": 120 * SECOND, "wan": 300 * SECOND}
FEWEST_PARTITIONS = 5  # of a world in which the group is parted again and again
LEADERS_FRAMES = ("MergeRequest", "MergeView")  # of a merge
MOST_LOSS = 0.5
MOST_LATE = 0.5
MOST_LATE_NS = 2 * SECOND
_DELAYS_NS = {  # one way, from and to
    "local": (20 * MICROSECOND, 200 * MICROSECOND),
    "lan": (100 * MICROSECOND, 2 * MILLISECOND),
    "wan": (10 * MILLISECOND, 120 * MILLISECOND),
}
_SILENCE_NS = {"local": 2 * SECOND, "lan": 4 * SECOND, "wan": 15 * SECOND}  # after it everybody has noticed a fault
FAULTS = (
    GroupFaultKind.RESTART,
    GroupFaultKind.RESTART,
    GroupFaultKind.CRASH,
    GroupFaultKind.LEAVE,
    GroupFaultKind.PARTITION,
    GroupFaultKind.PARTITION,
    GroupFaultKind.ISOLATE,
    GroupFaultKind.PAUSE,
)


@dataclass(frozen=True, slots=True)
class MessageChain:
    """Ordered messages that a process sends one by one: the next when it has delivered the one before."""

    at: int
    who: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PresetsPlan(GroupPlan):
    preset: str = ""
    gathers_first: bool = True  # the group forms while the network is still good, as that of `motet run` does
    good_network: NetworkProfile = field(default_factory=NetworkProfile)
    churn_network: NetworkProfile | None = None  # until the last fault is over: merges take seconds on it
    ordered: frozenset[int] = frozenset()  # the numbers of the bursts that are ordered
    chains: tuple[MessageChain, ...] = ()

    @property
    def bound_ns(self) -> int:
        return int(BASE_NS[self.preset] * (0.5 + self.network.loss + self.network.stragglers))

    @property
    def longest_fault_ns(self) -> int:
        return max((fault.lasts_ns for fault in self.faults), default=0)

    def describe(self) -> list[str]:
        ordering = self.config.ordering
        assert ordering is not None
        first = "gathers on a good network" if self.gathers_first else "gathers on this network"
        return [
            *GroupPlan.describe(self),
            f"preset {self.preset}: strategy {ordering.strategy}, fast path up to {ordering.fast_path_members} members,"
            f" waits for disks: {ordering.waits_for_disk}; {first}; bound {format_ns(self.bound_ns)}",
            *(f"from {format_ns(chain.at)} {chain.who} sends {len(chain.sizes)} one by one" for chain in self.chains),
        ]


def draw_presets_plan(seed: int, **overrides: object) -> PresetsPlan:
    """`overrides` are settings of `Config` on top of the preset: a benchmark compares the same worlds with them."""
    rng = Random(f"presets {seed}")
    preset, members = PRESETS[seed % len(PRESETS)], rng.choice([3, 3, 4, 5])
    network = _draw_network(rng, preset)
    faults = _draw_faults(Random(f"presets faults {seed}"), preset, members)
    work = Random(f"presets work {seed}")
    bursts, chains = _draw_work(work, members, network, max((fault.at for fault in faults), default=0))
    has_journal = any(fault.keeps_durable_state for fault in faults) or rng.random() < 0.2
    config = _SHIPPED[preset](**{"strategy": rng.choice(["window", "continuous"]), **overrides})
    seeds = tuple(endpoint_of(index) for index in range(min(3, members)))
    good_network = NetworkProfile(delay_ns=network.delay_ns)
    is_churned = len(faults) >= FEWEST_PARTITIONS
    return PresetsPlan(
        seed,
        names=tuple("abcde"[:members]),
        seeds=seeds,
        starts=tuple(rng.randrange(rng.choice([1, 300 * MILLISECOND])) for _ in range(members)),
        config=config.member_config(seeds, wants_state=True, waits_for_disk=has_journal),
        windows=(config.window_frames,) * members,
        network=with_late_control(Random(f"presets late {seed}"), network),
        duration_ns=max([0, *(fault.at + fault.lasts_ns for fault in faults), *(burst.at for burst, _ in bursts)]),
        faults=faults,
        bursts=tuple(burst for burst, _ in bursts),
        preset=preset,
        gathers_first=rng.random() < 0.5,
        good_network=good_network,
        churn_network=_with_late_merges(work, preset, rng.choice([good_network, good_network, network]))
        if is_churned
        else None,
        ordered=frozenset(number for number, (_, is_ordered) in enumerate(bursts) if is_ordered),
        chains=chains,
    )


def _draw_network(rng: Random, preset: str) -> NetworkProfile:
    """Loss alone, delays alone, both, or neither; half of them as bad as promised."""
    loses, delays = rng.choice([(False, False), (True, False), (False, True), (True, True)])
    delay_ns = rng.randrange(*_DELAYS_NS[preset])
    late_ns = rng.choice([MOST_LATE_NS, rng.randrange(100 * MILLISECOND, MOST_LATE_NS)])
    return NetworkProfile(
        loss=rng.choice([MOST_LOSS, rng.uniform(0.02, MOST_LOSS)]) if loses else 0.0,
        duplication=rng.choice([0.0, 0.0, rng.uniform(0, 0.2)]),
        delay_ns=delay_ns,
        jitter=rng.choice(["none", "uniform", "exponential"]),
        jitter_ns=rng.randrange(delay_ns),
        stragglers=rng.choice([MOST_LATE, rng.uniform(0.02, MOST_LATE)]) if delays else 0.0,
        straggler_ns=late_ns,
        straggler_least_ns=rng.choice([0, late_ns]),  # as `--delay 2000ms:0.5` does it, or spread
    )


def _with_late_merges(rng: Random, preset: str, network: NetworkProfile) -> NetworkProfile:
    """Most frames of merges arrive as late as a partition lasts, or once more then: the parts have changed their views.

    Where only the leader's frames are late, answers come at once, and a question for a view that is over gets as far as
    a plan.
    """
    late_only = rng.choice([0.0, 0.5, 0.8])
    late_ns = rng.choice([1, 2]) * _SILENCE_NS[preset]
    kinds = rng.choice([MERGE_FRAMES, *[LEADERS_FRAMES] * 3])
    return replace(network, late_only=late_only, late_copies=1 - late_only, late_ns=late_ns, late_kinds=kinds)


# What breaks


def _draw_faults(rng: Random, preset: str, members: int) -> tuple[GroupFault, ...]:
    """None in most worlds; one or two; or the group is parted and merged again and again."""
    style = rng.random()
    if style < 0.6:
        return ()
    if style < (0.9 if preset == "wan" else 0.8):
        faults = [_draw_fault(rng, preset, members) for _ in range(rng.choice([1, 1, 2]))]
    else:
        faults = list(_draw_partitions(rng, preset, members))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _draw_fault(rng: Random, preset: str, members: int) -> GroupFault:
    kind, who = rng.choice(FAULTS), rng.randrange(members)
    return GroupFault(
        rng.randrange(_SILENCE_NS[preset]),
        kind,
        who,
        lasts_ns=rng.randrange(100 * MILLISECOND, _SILENCE_NS[preset]),
        sides=_draw_sides(rng, members) if kind is GroupFaultKind.PARTITION else (),
        keeps_durable_state=kind is GroupFaultKind.RESTART,
    )


def _draw_partitions(rng: Random, preset: str, members: int) -> Iterator[GroupFault]:
    """Each lasts until it was noticed, as a rule, and there is hardly time to merge before the next one."""
    at, silence_ns = 0, _SILENCE_NS[preset]
    for _ in range(rng.choice([FEWEST_PARTITIONS, 8, 8])):
        lasts_ns = rng.randrange(silence_ns // 2, silence_ns)
        yield GroupFault(at, GroupFaultKind.PARTITION, 0, lasts_ns=lasts_ns, sides=_draw_sides(rng, members))
        at += lasts_ns + rng.randrange(silence_ns // 2)


def _draw_sides(rng: Random, members: int) -> tuple[int, ...]:
    """Never all on one side."""
    sides = [0, 1, *(rng.randrange(rng.choice([2, 3])) for _ in range(members - 2))]
    rng.shuffle(sides)
    return tuple(sides)


# What is said

_Work = list[tuple[Burst, bool]]  # the bursts, and which of them are ordered


def _draw_work(
    rng: Random, members: int, network: NetworkProfile, until: int
) -> tuple[_Work, tuple[MessageChain, ...]]:
    """One to all send: in a few bursts, at a steady pace, or one by one; some of it is only FIFO."""
    senders = rng.sample(range(members), rng.choice([1, members, rng.randint(1, members)]))
    total = rng.choice([30, 90, 300])
    style = rng.choice(["bursts", "paced", "one by one"])
    if style == "one by one":
        length = 5 if network.loss or network.stragglers else 40
        chains = tuple(MessageChain(rng.randrange(SECOND), who, _sizes(rng, length)) for who in senders)
        return _spread(rng, senders, 10, until), chains
    pace = 1 if style == "paced" else 20
    return _spread(rng, senders, total, until, pace), ()


def _spread(rng: Random, senders: list[int], total: int, until: int, pace: int = 5) -> _Work:
    """So many messages, `pace` at a time, over some time; where there are faults, until the last of them strikes."""
    span_ns = max(until, rng.choice([20 * MILLISECOND, 500 * MILLISECOND, 3 * SECOND]))
    bursts: _Work = []
    for number in range(0, total, pace):
        at = rng.randrange(span_ns)
        is_ordered = rng.random() < 0.8
        sizes = _sizes(rng, min(pace, total - number))
        bursts.append((Burst(at, senders[number // pace % len(senders)], None, sizes), is_ordered))
    return sorted(bursts, key=lambda burst: burst[0].at)


def _sizes(rng: Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(20, 100) for _ in range(count))
