"""Checks that accusations are justified, in worlds whose network loses only what is cut.

verified    no process is suspected that ran, and could exchange datagrams with the accuser, since the last probe
answered    no participant times out in a flush if all participants ran and could exchange datagrams since PREPARE, and
            were all that time in the view that ends or in the one that follows
merged      no coordinator fails to answer the leader of a merge if both ran and could exchange datagrams since it began

Why the rules hold. A process answers a probe within a round trip, and the last probe is sent verify_ns /
verify_attempts before the suspicion. A participant answers PREPARE at once: with its state; or with a later ballot, so
that the coordinator gives up its attempt; or with the result of the view change, which the coordinator adopts. Every
message that a participant then has to fetch is held by another one that answered. A coordinator that is asked to merge
prepares its part or refuses; if its part cannot survive, it knows so before the leader times out, and refuses as well.

Two kinds of accusations are not checked. A participant that waits for its coordinator may suspect a senior
member that rightly continued without it. And a process that has installed two views since then no longer knows how the
first one ended.
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

MARGIN_NS = MILLISECOND  # added for late wake-ups and drifting clocks
_RULES = {
    AccusationKind.SUSPECTED: "verified",
    AccusationKind.FLUSH_TIMEOUT: "answered",
    AccusationKind.MERGE_UNANSWERED: "merged",
}


def check_accusations(history: History, detector: DetectorConfig) -> list[Violation]:
    return list(_AccusationChecker(history, detector).run())


@dataclass(slots=True)
class _AccusationChecker:
    history: History
    detector: DetectorConfig
    # The views that each process has installed so far.
    _stays: dict[Address, list[EnteredView]] = field(default_factory=dict)
    # The last view change that each coordinator began.
    _changes: dict[Address, BeganChange] = field(default_factory=dict)
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
                    what = f"{event.by} {event.what.value} {event.whom}, which ran and was reachable in both directions"
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
        """Whether the member stayed in the view that ends or in its successor. A singleton view counts as neither."""
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
