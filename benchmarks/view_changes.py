"""How long view changes take, in virtual time, and how many datagrams they cost. Run: python benchmarks/view_changes.py

The simulator runs the real members; time is that of its clock, so the figures do not depend on the machine. Each cell
is the median and the worst of some runs in which the fault strikes at another moment of the members' timers.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from statistics import median
from unittest.mock import patch

from motet.protocol.core.effects import Frame
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND
from motet.protocol.member import Member, MemberConfig
from motet.protocol.membership import MembershipConfig
from motet.protocol.membership.engine import FRAMES as ENGINE_FRAMES
from motet.sim.scenarios.group_plan import GroupFault, GroupFaultKind, GroupPlan, endpoint_of
from motet.sim.scenarios.membership import MembershipWorld
from motet.sim.world.history import EnteredView
from motet.sim.world.network import NetworkProfile

ROUNDS = 7  # of the small groups; large ones take the simulator minutes
SETTLED_NS = {"local": 5 * SECOND, "lan": 8 * SECOND, "wan": 60 * SECOND}  # a group that started together is quiet
BOOTSTRAPPED_NS = {"local": 2 * SECOND, "lan": 4 * SECOND, "wan": 16 * SECOND}  # it has started, and is primary
LONG_NS = {"local": 10 * SECOND, "lan": 15 * SECOND, "wan": 120 * SECOND}  # a partition that every side has noticed


@dataclass(frozen=True, slots=True)
class ViewChangePreset:
    name: str
    membership: MembershipConfig
    delay_ns: int  # one way

    def world(self, members: int, faults: tuple[GroupFault, ...], duration_ns: int, seed: int) -> MembershipWorld:
        seeds = tuple(endpoint_of(index) for index in range(min(3, members)))
        plan = GroupPlan(
            seed,
            names=tuple(f"m{index}" for index in range(members)),
            seeds=seeds,
            starts=(0,) * members,
            config=MemberConfig(membership=self.membership.with_seeds(*seeds)),
            windows=(64,) * members,
            network=NetworkProfile(delay_ns=self.delay_ns, jitter="uniform", jitter_ns=self.delay_ns // 4),
            duration_ns=duration_ns,
            faults=faults,
            bursts=(),
        )
        return MembershipWorld(plan, None)


PRESETS = (
    ViewChangePreset("local", MembershipConfig.local(), 50 * MICROSECOND),
    ViewChangePreset("lan", MembershipConfig.lan(), 250 * MICROSECOND),
    ViewChangePreset("wan", MembershipConfig.wan(), 50 * MILLISECOND),
)


def entered(world: MembershipWorld) -> Iterator[EnteredView]:
    return (event for event in world.history.events if isinstance(event, EnteredView))


def all_in(world: MembershipWorld, since: int, members: set[str], *, is_primary: bool | None = None) -> int:
    """When the last of `members` entered the first view after `since` that is theirs and nobody else's."""
    last: dict[str, int] = {}
    for event in entered(world):
        names = {member.name for member in event.view.members}
        if event.at >= since and names == members and (is_primary is None or event.view.is_primary is is_primary):
            last.setdefault(event.member.name, event.at)
    assert last.keys() == members, f"only {sorted(last)} of {sorted(members)} got there"
    return max(last.values()) - since


def cold_start(preset: ViewChangePreset, members: int, seed: int) -> int:
    """To one view of all."""
    return all_in(started(preset, members, seed), 0, {f"m{index}" for index in range(members)})


def bootstrapped(preset: ViewChangePreset, members: int, seed: int) -> int:
    """To a primary view of all."""
    return all_in(started(preset, members, seed), 0, {f"m{index}" for index in range(members)}, is_primary=True)


@cache
def started(preset: ViewChangePreset, members: int, seed: int) -> MembershipWorld:
    """A hundred members exchange forty thousand heartbeats a second: no longer than it takes."""
    world = preset.world(members, (), BOOTSTRAPPED_NS[preset.name], seed)
    assert not world.run()
    return world


def crash(preset: ViewChangePreset, members: int, seed: int) -> int:
    at = SETTLED_NS[preset.name] + Random(seed).randrange(SECOND)
    fault = GroupFault(at, GroupFaultKind.CRASH, seed % members)  # the coordinator is among them
    world = preset.world(members, (fault,), at + LONG_NS[preset.name], seed)
    assert not world.run()
    return all_in(world, at, set(world.plan.names) - {f"m{fault.who}"})


def heal(preset: ViewChangePreset, members: int, seed: int) -> int:
    at = SETTLED_NS[preset.name] + Random(seed).randrange(SECOND)
    sides = tuple(index % 2 for index in range(members))
    lasts_ns = LONG_NS[preset.name] + Random(seed + 1000).randrange(5 * SECOND)  # probes come at fixed times after it
    fault = GroupFault(at, GroupFaultKind.PARTITION, 0, lasts_ns=lasts_ns, sides=sides)
    healed = at + fault.lasts_ns
    world = preset.world(members, (fault,), healed + LONG_NS[preset.name], seed)
    assert not world.run()
    return all_in(world, healed, set(world.plan.names))


def blackout(preset: ViewChangePreset, members: int, seed: int) -> int:
    """All die at once and restart at once, with their durable state. Returns the time until they are one primary
    view again.
    """
    at = SETTLED_NS[preset.name] + Random(seed).randrange(SECOND)
    faults = tuple(GroupFault(at, GroupFaultKind.RESTART, who, keeps_durable_state=True) for who in range(members))
    world = preset.world(members, faults, at + LONG_NS[preset.name], seed)
    assert not world.run()
    return all_in(world, at + 1, set(world.plan.names), is_primary=True)


def join(preset: ViewChangePreset, members: int, seed: int) -> int:
    """One member joins the group of the others. Returns the time until all are in one view."""
    at = SETTLED_NS[preset.name]
    fault = GroupFault(at, GroupFaultKind.RESTART, members - 1, lasts_ns=LONG_NS[preset.name] // 2)
    world = preset.world(members, (fault,), at + LONG_NS[preset.name], seed)
    assert not world.run()
    return all_in(world, at + fault.lasts_ns, set(world.plan.names))


def frames_of(change: Callable[[ViewChangePreset, int, int], int], preset: ViewChangePreset, members: int) -> int:
    """How many datagrams of the view change travel, while members crash, join, or are partitioned and merged."""
    with counting() as counted:
        change(preset, members, members - 1)
        with_change = sum(counted[kind] for kind in ENGINE_FRAMES)
        counted.clear()
        at = SETTLED_NS[preset.name]
        assert not preset.world(members, (), at, members - 1).run()
        assert counted, "every datagram passes through here, or nothing is counted"
        return with_change - sum(counted[kind] for kind in ENGINE_FRAMES)


@contextmanager
def counting() -> Iterator[Counter[type[Frame]]]:
    """Every frame that any member makes a datagram of."""
    counted: Counter[type[Frame]] = Counter()
    original = Member._parts

    def parts(self: Member, destination: int, frame: Frame) -> tuple[bytes, bytes]:
        counted[type(frame)] += 1
        return original(self, destination, frame)

    with patch.object(Member, "_parts", parts):
        yield counted


def main() -> None:
    times: dict[str, dict[str, tuple[float, float]]] = {}
    for name, rounds, measure in ROWS:
        for preset in PRESETS:
            figures = [measure(preset, seed) / SECOND for seed in range(rounds)]
            times.setdefault(name, {})[preset.name] = (median(figures), max(figures))
            line = f"{name:36} {preset.name:6} median {median(figures):6.2f} s  worst {max(figures):6.2f} s"
            print(line, file=sys.stderr, flush=True)
    costs: dict[str, dict[str, dict[int, int]]] = {}
    for name, change in (("crash", crash), ("join", join), ("partition and its merge", heal)):
        for preset in PRESETS:
            sizes = (3, 5, 10, 20, 50) if preset.name == "lan" else (3, 5, 10)  # the others differ little
            found = costs.setdefault(name, {})[preset.name] = {n: frames_of(change, preset, n) for n in sizes}
            print(f"datagrams of a {name}, {preset.name}: {found}", file=sys.stderr, flush=True)
    print(json.dumps({"seconds": times, "datagrams": costs}, indent=2))


ROWS: list[tuple[str, int, Callable[[ViewChangePreset, int], int]]] = [
    ("crash to new view, 5 members", ROUNDS, lambda preset, seed: crash(preset, 5, seed)),
    ("one comes in, 5 members with it", ROUNDS, lambda preset, seed: join(preset, 5, seed)),
    ("heal to one view, 2 + 2 members", ROUNDS, lambda preset, seed: heal(preset, 4, seed)),
    ("heal to one view, 10 + 10 members", 3, lambda preset, seed: heal(preset, 20, seed)),
    ("cold start of 5 to one view", ROUNDS, lambda preset, seed: cold_start(preset, 5, seed)),
    ("cold start of 20 to one view", 3, lambda preset, seed: cold_start(preset, 20, seed)),
    ("cold start of 20, primary", 3, lambda preset, seed: bootstrapped(preset, 20, seed)),
    ("cold start of 100 to one view", 1, lambda preset, seed: cold_start(preset, 100, seed)),
    ("cold start of 100, primary", 1, lambda preset, seed: bootstrapped(preset, 100, seed)),
    ("a whole group of 5 restarts", ROUNDS, lambda preset, seed: blackout(preset, 5, seed)),
]


if __name__ == "__main__":
    main()
