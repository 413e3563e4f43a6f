"""Whether those who were blamed had earned it. For worlds whose network loses nothing but what is cut.

verified    nobody is suspected who ran, and could hear the other and be heard by it, since it was last asked
accused     a coordinator accuses nobody of being late in a view change, if all whom it asked ran, and could hear one
            another, from the question on; and were, all that time, in the view that ends or in the one that followed
answered    no coordinator is silent to the leader of a merge, if both ran, and heard one another, from its beginning on

Why they hold. A process answers the question whether it lives within a round trip, and it was asked once more a
verify_attempts-th part of verify_ns before it is suspected. Whoever is asked to end a view answers at once with its
state, with a later ballot, after which the coordinator stands back, or with how the view ended, after which that is
adopted; and what it then has to fetch, one of those who answered holds. A coordinator that is asked to merge prepares
its part or refuses; it refuses as well when its part cannot go on, and it knows that before the leader's time is up.

Not every reproach is judged: who waits for a coordinator in vain accuses one that is senior to it, which may well have
gone on without it; and somebody that has gone through two views since does not know any more how the first ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, format_ns
from motet.protocol.core.view import View
from motet.protocol.membership import DetectorConfig
from motet.sim.checkers.channels import Violation
from motet.sim.world.history import Accusation, AccusationKind, BeganChange, BeganMerge, EnteredView, History
from motet.sim.world.network import Link

MARGIN_NS = MILLISECOND  # what a late wake-up and a drifting clock add to the time since the last question
_RULES = {
    AccusationKind.SUSPECTED: "verified",
    AccusationKind.FLUSH_TIMEOUT: "accused",
    AccusationKind.MERGE_UNANSWERED: "answered",
}


def check_accusations(history: History, detector: DetectorConfig) -> list[Violation]:
    return list(_AccusationChecker(history, detector).run())


@dataclass(slots=True)
class _AccusationChecker:
    history: History
    detector: DetectorConfig
    _stays: dict[Address, list[EnteredView]] = field(default_factory=dict)  # of each, so far
    _changes: dict[Address, BeganChange] = field(default_factory=dict)  # the last that each began
    _merges: dict[Address, BeganMerge] = field(default_factory=dict)

    def run(self) -> Iterator[Violation]:
        for event in self.history.events:
            match event:
                case EnteredView():
                    self._stays.setdefault(event.member, []).append(event)
                case BeganChange():
                    self._changes[event.member] = event
                case BeganMerge():
                    self._merges[event.member] = event
                case Accusation() if self._is_unfounded(event):
                    what = f"{event.by} {event.what.value} {event.whom}, which ran, and could hear and be heard"
                    yield Violation(_RULES[event.what], f"{format_ns(event.at)}: {what}")

    def _is_unfounded(self, accusation: Accusation) -> bool:
        match accusation.what:
            case AccusationKind.SUSPECTED:
                timeout_ns = self.detector.verify_ns // self.detector.verify_attempts
                since = accusation.at - timeout_ns - timeout_ns // 500 - MARGIN_NS
                return self._reached_one_another((accusation.by, accusation.whom), since, accusation.at)
            case AccusationKind.FLUSH_TIMEOUT:
                return self._is_unfounded_flush_timeout(accusation)
            case AccusationKind.MERGE_UNANSWERED:
                merge = self._merges.get(accusation.by)
                return merge is not None and self._reached_one_another(
                    (accusation.by, accusation.whom), merge.at, accusation.at
                )

    def _is_unfounded_flush_timeout(self, accusation: Accusation) -> bool:
        change, view = self._changes.get(accusation.by), self._stays[accusation.by][-1].view
        if change is None or change.view != view.id or not _is_junior(view, accusation.whom, accusation.by):
            return False
        were_there = all(self._was_there(member, change) for member in change.asked)
        return were_there and self._reached_one_another(change.asked, change.at, accusation.at)

    def _was_there(self, member: Address, change: BeganChange) -> bool:
        """All the time since in the view that ends, or in the one that followed; who goes on alone is nowhere."""
        stays = self._stays.get(member, [])
        if not stays or stays[-1].at > change.at:
            return False
        is_one_further = len(stays) > 1 and stays[-2].view.id == change.view and len(stays[-1].view.members) > 1
        return stays[-1].view.id == change.view or is_one_further

    def _reached_one_another(self, members: tuple[Address, ...], since: int, until: int) -> bool:
        keys: list[Address | Link] = [*members, *((one.name, other.name) for one, other in permutations(members, 2))]
        is_started = all(member in self._stays and self._stays[member][0].at <= since for member in members)
        return is_started and not any(self._was_out(key, since, until) for key in keys)

    def _was_out(self, key: Address | Link, since: int, until: int) -> bool:
        outages = self.history.outages.get(key, ())
        return any(outage.begin <= until and (outage.end is None or outage.end >= since) for outage in outages)


def _is_junior(view: View, one: Address, other: Address) -> bool:
    return one in view and view.members.index(one) > view.members.index(other)
