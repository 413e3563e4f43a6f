"""The plan of one seed of the scenario `interrupted`: short, on a network that loses nothing, with triggered faults.

A phase begins with a fault that ends a view, while messages have reached some members and not others. Faults with
triggers follow: each waits for the n-th frame of a kind and strikes before it is sent; then the next one is armed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND
from motet.protocol.member import MemberConfig
from motet.protocol.membership import MembershipConfig
from motet.sim.scenarios.group_plan import GroupFault, GroupFaultKind, GroupPlan, endpoint_of
from motet.sim.world.network import NetworkProfile, with_late_control
from motet.sim.world.plan import Burst

GATHERED_NS = 2 * SECOND  # the group has bootstrapped by then
CHANGE_FRAMES = ("Prepare", "Prepared", "CutTo", "Ready", "Commit", "Installed")
MERGE_FRAMES = ("MergeRequest", "MergeResponse", "MergeView", "MergeReady", "MergeCommit")
_OPENINGS = (
    *[GroupFaultKind.PARTITION] * 4,
    GroupFaultKind.CRASH,
    GroupFaultKind.ISOLATE,
    *[GroupFaultKind.MUTE] * 2,
    GroupFaultKind.DEAF,
    GroupFaultKind.CUT,
    GroupFaultKind.PAUSE,
)
_TRIGGERS = (
    *[GroupFaultKind.PARTITION] * 5,
    *[GroupFaultKind.CRASH] * 2,
    *[GroupFaultKind.ISOLATE] * 2,
    *[GroupFaultKind.MUTE] * 2,
    *[GroupFaultKind.DEAF] * 2,
    GroupFaultKind.CUT,
    GroupFaultKind.PAUSE,
)


def draw_interrupted_plan(seed: int) -> GroupPlan:
    rng = Random(f"torn plan {seed}")
    members = rng.choice([4, 5, 5, 5, 6, 7])
    membership = rng.choice([MembershipConfig.lan(), MembershipConfig.local()])
    seeds = tuple(endpoint_of(index) for index in sorted(rng.sample(range(members), 3)))
    phases = [GATHERED_NS]
    if rng.random() < 0.5:
        phases.append(GATHERED_NS + rng.randrange(SECOND, 4 * SECOND))
    suspect_ns = membership.detector.suspect_ns
    return GroupPlan(
        seed,
        names=tuple("abcdefg"[:members]),
        seeds=seeds,
        starts=tuple(rng.randrange(MILLISECOND) for _ in range(members)),
        config=MemberConfig(frame_bytes=1_400, membership=membership.with_seeds(*seeds)),
        windows=(64,) * members,
        network=with_late_control(Random(f"late {seed}"), _draw_network(rng), loses_none=True),
        duration_ns=phases[-1] + rng.randrange(4 * suspect_ns, 7 * suspect_ns),
        faults=tuple(fault for at in phases for fault in _draw_phase(rng, members, at, suspect_ns)),
        bursts=tuple(burst for at in phases for burst in _draw_bursts(rng, members, at, suspect_ns)),
    )


def _draw_network(rng: Random) -> NetworkProfile:
    """Round trips are short compared with every timeout."""
    delay_ns = rng.randrange(50 * MICROSECOND, MILLISECOND)
    return NetworkProfile(
        duplication=rng.choice([0.0, 0.0, 0.1]),
        delay_ns=delay_ns,
        jitter=rng.choice(["none", "uniform", "exponential"]),
        jitter_ns=rng.randrange(delay_ns),
        reordering=rng.choice([0.0, 0.0, 0.1]),
        reorder_ns=rng.randrange(1, 5 * delay_ns),
    )


def _draw_phase(rng: Random, members: int, at: int, suspect_ns: int) -> Iterator[GroupFault]:
    style = rng.random()
    if style < 0.25:
        yield from _rivals(rng, members, at, suspect_ns)
    elif style < 0.5:
        yield from _halves(rng, members, at, suspect_ns)
        return
    else:
        yield from _opening(rng, members, at, suspect_ns)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        fault = _draw_fault(rng, rng.choice(_TRIGGERS), members, at + 1, suspect_ns)
        frames = CHANGE_FRAMES if rng.random() < 0.8 else MERGE_FRAMES
        yield _set_trigger(rng, fault, frames, members)


def _opening(rng: Random, members: int, at: int, suspect_ns: int) -> Iterator[GroupFault]:
    """Any fault, perhaps in the middle of a multicast; sometimes two faults."""
    fault = _draw_fault(rng, rng.choice(_OPENINGS), members, at, suspect_ns)
    yield _set_trigger(rng, fault, ("MulticastData",), 3 * members) if rng.random() < 0.4 else fault
    if rng.random() < 0.3:
        yield _draw_fault(rng, rng.choice(_OPENINGS), members, at + rng.randrange(suspect_ns), suspect_ns)


def _rivals(rng: Random, members: int, at: int, suspect_ns: int) -> Iterator[GroupFault]:
    """Two members that cannot reach each other, but can reach all others, begin to end the view at the same moment.

    The moment is that at which both suspect a third member that has become unreachable.
    """
    first, second, third = rng.choice([(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 0)])
    lasts_ns = rng.randrange(2 * suspect_ns, 6 * suspect_ns)
    for who, other in ((first, second), (second, first)):
        yield GroupFault(at, GroupFaultKind.CUT, who, other, lasts_ns, by_rank=True)
    kind = rng.choice([GroupFaultKind.CRASH, GroupFaultKind.ISOLATE])
    yield GroupFault(at, kind, third, lasts_ns=lasts_ns, by_rank=True)


def _halves(rng: Random, members: int, at: int, suspect_ns: int) -> Iterator[GroupFault]:
    """A partition, and as soon as the larger side is about to install its view, another partition."""
    for awaits in (None, rng.choice(["CutTo", "Ready", "Ready", "Commit", "Commit"])):
        sides = [0] * (members // 2 + 1) + [1] * (members - members // 2 - 1)
        rng.shuffle(sides)
        lasts_ns = rng.randrange(5 * suspect_ns, 8 * suspect_ns)
        fault = GroupFault(at, GroupFaultKind.PARTITION, 0, lasts_ns=lasts_ns, sides=tuple(sides))
        nth = rng.randrange(1, members // 2 + 2)
        yield replace(fault, at=at + 1, awaits=awaits, nth=nth, replaces=True) if awaits else fault


def _set_trigger(rng: Random, fault: GroupFault, frames: tuple[str, ...], most: int) -> GroupFault:
    is_partition = fault.kind is GroupFaultKind.PARTITION
    return replace(
        fault,
        awaits=rng.choice(frames),
        nth=rng.randrange(1, most + 1),
        hits_first=rng.random() < 0.5,
        replaces=is_partition or rng.random() < 0.5,
    )


def _draw_fault(rng: Random, kind: GroupFaultKind, members: int, at: int, suspect_ns: int) -> GroupFault:
    """A fault that lasts about the suspicion time, or long enough for all members to remove each other."""
    who = rng.randrange(members)
    shortest_ns, longest_ns = rng.choice([(suspect_ns // 2, suspect_ns), (2 * suspect_ns, 6 * suspect_ns)])
    sides = rng.choice([1, 2, 2, 2, 3])
    return GroupFault(
        at,
        kind,
        who,
        other=(who + rng.randrange(1, members)) % members,
        lasts_ns=rng.randrange(shortest_ns, longest_ns),
        sides=tuple(rng.randrange(sides) for _ in range(members)) if kind is GroupFaultKind.PARTITION else (),
    )


def _draw_bursts(rng: Random, members: int, at: int, suspect_ns: int) -> Iterator[Burst]:
    """Bursts from several members when a phase begins, and some during view changes."""
    for _ in range(rng.choice([2, 4, 8])):
        yield Burst(at + rng.randrange(3 * MILLISECOND), rng.randrange(members), None, (20,) * rng.choice([1, 3]))
    for _ in range(rng.choice([0, 5, 10])):
        yield Burst(at + rng.randrange(3 * suspect_ns), rng.randrange(members), None, (20,))
