"""The scenario `busy`: one member is blocked for longer than the suspicion time, and its liveness process reports it.

There are five variants. Each has a property of its own, in addition to those of every membership world:

    alone    nothing else                         -> no view changes
    dies     it is killed while it is busy        -> it is removed as fast as any other crashed member
    hangs    it is busy for longer than busy_max  -> it is removed after busy_max, and merges when it runs again
    crash    another member crashes meanwhile     -> that one is removed in time, with or without the busy one
    churn    others leave, restart and join       -> no further property: the group is complete at the end

The coordinator is the busy member as often as any other member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from motet.config import Config
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND, format_ns
from motet.protocol.membership.detector import MOST_PAUSE
from motet.sim.checkers.channels import Violation
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import GroupFault, GroupFaultKind, GroupPlan, endpoint_of
from motet.sim.scenarios.membership import MembershipWorld, run_world
from motet.sim.world.history import EnteredView
from motet.sim.world.network import NetworkProfile
from motet.sim.world.plan import Burst
from motet.sim.world.transcript import Transcript

STORIES = ("alone", "dies", "hangs", "crash", "churn")
GATHERED_NS = 10 * SECOND  # on a good network the group is complete by then
BUSY_MAX_NS = 8 * SECOND
MOST_LOSS = 0.02  # small, so that the variants with a bound know how long a suspicion takes
_SHIPPED: dict[str, Callable[..., Config]] = {"local": Config.local, "lan": Config.lan}
_CHURN = (GroupFaultKind.RESTART, GroupFaultKind.REJOIN, GroupFaultKind.LEAVE, GroupFaultKind.CRASH)


@dataclass(frozen=True, slots=True)
class BusyPlan(GroupPlan):
    preset: str = "local"
    story: str = "alone"

    @property
    def busy(self) -> GroupFault:
        return next(fault for fault in self.faults if fault.kind is GroupFaultKind.BUSY)

    @property
    def bound_ns(self) -> int:
        """From a crash to a view without the member: the suspicion, a round that times out, one that does not, and the
        same again for a coordinator that is bypassed."""
        detector, engine = self.membership.detector, self.membership.engine
        return MOST_PAUSE * detector.suspect_ns + 2 * detector.verify_ns + 16 * engine.answer_ns

    def describe(self) -> list[str]:
        return [
            *GroupPlan.describe(self),
            f"preset {self.preset}, variant {self.story}, bound {format_ns(self.bound_ns)}",
        ]


def draw_busy_plan(seed: int) -> BusyPlan:
    rng = Random(f"busy {seed}")
    story, preset = STORIES[seed % len(STORIES)], rng.choice(sorted(_SHIPPED))
    members = rng.choice([3, 3, 4, 5])
    config = _SHIPPED[preset](**({"busy_max": f"{BUSY_MAX_NS}ns"} if story == "hangs" else {}))
    faults = _draw_faults(rng, story, members, config)
    seeds = tuple(endpoint_of(index) for index in range(min(3, members)))
    duration_ns = max(fault.at + fault.lasts_ns for fault in faults) + 2 * SECOND
    delay_ns = rng.randrange(20 * MICROSECOND, MILLISECOND)
    return BusyPlan(
        seed,
        names=tuple("abcde"[:members]),
        seeds=seeds,
        starts=tuple(rng.randrange(300 * MILLISECOND) for _ in range(members)),
        config=replace(config.member_config(seeds, wants_state=True), ordering=None),
        windows=(64,) * members,
        network=NetworkProfile(
            loss=rng.choice([0.0, MOST_LOSS]), delay_ns=delay_ns, jitter="uniform", jitter_ns=10_000
        ),
        duration_ns=duration_ns,
        faults=faults,
        bursts=tuple(
            Burst(at, rng.randrange(members), None, (100,)) for at in range(GATHERED_NS, duration_ns, SECOND // 2)
        ),
        preset=preset,
        story=story,
    )


def _draw_faults(rng: Random, story: str, members: int, config: Config) -> tuple[GroupFault, ...]:
    who = rng.randrange(members)
    other = (who + rng.randrange(1, members)) % members
    lasts_ns = rng.randrange(3 * (config.suspect_ns + config.verify_ns), BUSY_MAX_NS - SECOND)
    if story == "hangs":
        lasts_ns = rng.randrange(BUSY_MAX_NS + 20 * SECOND, BUSY_MAX_NS + 30 * SECOND)
    busy = GroupFault(GATHERED_NS, GroupFaultKind.BUSY, who, lasts_ns=lasts_ns)
    at = GATHERED_NS + rng.randrange(config.suspect_ns, lasts_ns)
    if story == "dies":
        return (busy, GroupFault(at, GroupFaultKind.CRASH, who))
    if story == "crash":  # it stays busy until after the deadline of all others
        at = GATHERED_NS + rng.randrange(config.suspect_ns, 3 * SECOND)
        return (replace(busy, lasts_ns=30 * SECOND), GroupFault(at, GroupFaultKind.CRASH, other))
    if story == "churn":
        return (busy, *(_draw_churn(rng, members, who, lasts_ns) for _ in range(rng.choice([1, 2, 3]))))
    return (busy,)


def _draw_churn(rng: Random, members: int, busy: int, lasts_ns: int) -> GroupFault:
    who = (busy + rng.randrange(1, members)) % members
    at = GATHERED_NS + rng.randrange(lasts_ns)
    return GroupFault(at, rng.choice(_CHURN), who, lasts_ns=rng.randrange(3 * SECOND))


class BusyWorld(MembershipWorld):
    plan: BusyPlan

    def __init__(self, plan: BusyPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        super().__init__(plan, transcript, trace)
        self._broken: list[Violation] = []

    def _plan_events(self, begin: int = 0) -> None:
        """Also check at its deadline that each member that has to be removed was removed."""
        super()._plan_events(begin)
        self.scheduler.at(begin + GATHERED_NS - 1, self._check_complete)
        for fault in self.plan.faults:
            is_hang = self.plan.story == "hangs" and fault.kind is GroupFaultKind.BUSY
            if self.plan.story in ("dies", "crash") and fault.kind is GroupFaultKind.CRASH:
                self.scheduler.at(begin + fault.at + self.plan.bound_ns, partial(self._check_removed, fault.who))
            elif is_hang:
                due = begin + fault.at + BUSY_MAX_NS + self.plan.bound_ns
                self.scheduler.at(due, partial(self._check_removed, fault.who))

    def _check_complete(self) -> None:
        sizes = [len(host.member.view.members) for host in self._alive]
        if sizes != [len(self.plan.names)] * len(self.plan.names):
            self._broken.append(Violation("gathers", f"the group is not complete when a member becomes busy: {sizes}"))

    def _check_removed(self, who: int) -> None:
        """Check all other members. The busy one is exempt, for it has to find the group again first."""
        for host in self._alive:
            is_busy_one = host.address.endpoint == endpoint_of(self.plan.busy.who)
            if not is_busy_one and endpoint_of(who) in {member.endpoint for member in host.member.view.members}:
                text = f"{host.address} still has {self.plan.names[who]} in {host.member.view}"
                self._broken.append(Violation("removed in time", text))

    def _heal(self) -> None:
        """In the variant `alone`, no view may have changed before this point."""
        if self.plan.story == "alone":
            self._broken += [self._changed(event) for event in self.history.events if self._is_change(event)]
        super()._heal()

    def _is_change(self, event: object) -> bool:
        return isinstance(event, EnteredView) and event.at >= self.plan.busy.at

    def _changed(self, event: object) -> Violation:
        return Violation("a busy member stays", f"a view was installed although no member had left: {event}")

    def _check(self, unmet: list[str]) -> list[Violation]:
        return self._broken + super()._check(unmet)


def run_busy(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(BusyWorld, draw_busy_plan(seed), with_transcript, trace)
