"""One attempt to merge several views into one (JGroups design note MERGE): its parts, and what they say together.

The merge leader (merge_leader.py) asks and decides. Here is what it has received from the coordinators, and
what follows from that for the merged view: its members in their order, where each stream begins, who lacks the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.membership.overlap import DigestsOverlapped, overlaps
from motet.protocol.membership.primary import PrimaryRecord, combined
from motet.protocol.wire.frames import (
    LogCheckpoint,
    MergeCancel,
    MergeCommit,
    MergeRequest,
    MergeResponse,
    MergeView,
    Pairs,
    StateNeed,
)

Sends = list[tuple[Address, Frame]]


@dataclass(slots=True)
class Part:
    view: ViewId  # that its coordinator was asked for
    response: MergeResponse | None = None  # the latest one
    is_ready: bool = False
    is_installed: bool = False


class MergeAttempt:
    def __init__(
        self,
        merge: Ballot,
        local: Address,
        view: ViewId,
        parts: Mapping[Address, ViewId],
        answer_ns: int = 0,
        *,
        has_one_log: bool = True,
    ) -> None:
        """`parts`: the coordinators, ourselves included, and the view that each of them speaks for."""
        self.merge = merge
        self.plan: MergeView | None = None
        self.log = LogCheckpoint()  # when the merged view begins
        self.parts = {coordinator: Part(part) for coordinator, part in parts.items()}
        self._local = local
        self._view = view
        self._answer_ns = answer_ns
        self._has_one_log = has_one_log

    @property
    def coordinators(self) -> list[Address]:
        return list(self.parts)

    # Questions to the coordinators

    def request(self, part: Part) -> Frame:
        return MergeRequest(self.merge, self._view, part.view, self._answer_ns)

    def plan_for(self, part: Part) -> Frame:
        assert self.plan is not None
        assert part.response is not None
        return replace(self.plan, part=part.response.view.id, ballot=part.response.ballot)

    def commit(self) -> MergeCommit:
        assert self.plan is not None
        return MergeCommit(self.merge, self.plan.following.id, *self.log)

    def cancels(self) -> Sends:
        return [(coordinator, MergeCancel(self.merge, is_off=True)) for coordinator in self.parts]

    # Answers of the coordinators

    def is_later(self, source: Address, frame: MergeResponse) -> bool:
        """A repeated answer says nothing new, and a copy that was delayed for seconds is about a round that is over."""
        part = self.parts.get(source)
        if part is None:
            return False
        known = part.response
        return known is None or (frame.view.id, frame.ballot) > (known.view.id, known.ballot)

    def is_for_the_plan(self, source: Address, ballot: Ballot) -> bool:
        """Whether a part that is ready is so in the round that the plan was made for."""
        part = self.parts.get(source)
        return part is not None and part.response is not None and part.response.ballot == ballot and not part.is_ready

    def note_ready(self, source: Address, log: LogCheckpoint) -> None:
        """The log of the merged view begins where the part says whose log the others follow."""
        part = self.parts[source]
        part.is_ready = True
        if part.response is self._responses()[0]:
            self.log = log

    def has_all_digests(self) -> bool:
        """The rule of MERGE: there is a digest of every member of all parts, each at first hand."""
        return all(
            member.incarnation in {quad[0] for quad in response.report.digest}
            for response in self._responses()
            for member in response.staying
        )

    def agree(self, view_id: ViewId, is_primary: bool, counters: Counters) -> None:
        responses = self._responses()
        following = View(view_id, self.members, is_primary)
        record = self.record
        self.plan = MergeView(
            self.merge,
            responses[0].view.id,
            responses[0].ballot,
            following,
            merged_digest(responses, following.members, counters),
            tuple(response.view for response in responses),
            self.lacking,
            responses[0].report.epoch,
            record.last,
            record.attempts,
        )

    # What the parts say together

    @property
    def overlaps(self) -> list[DigestsOverlapped]:
        return overlaps(self._responses())

    def _responses(self) -> list[MergeResponse]:
        """The part with the latest log first, then ours, then by age: seniority in the merged view follows it.

        A part that only knows how long that log was is no match for one that has it: what is stable, all have who were
        in the primary view.
        """
        answered = [(c, part.response) for c, part in self.parts.items() if part.response is not None]
        return [response for _, response in sorted(answered, key=lambda item: self._seniority(*item))]

    def _seniority(self, coordinator: Address, response: MergeResponse) -> tuple[bool, int, bool, int, bool, ViewId]:
        """Where every side has a log of its own, no later log makes up for a state that nobody there has."""
        is_stateless = not self._has_one_log and lacks_everywhere(response.staying, response.lacking)
        report = response.report
        log = (is_stateless, -report.epoch.number, not report.is_complete, -report.position)
        return (*log, coordinator != self._local, response.view.id)

    @property
    def lacking(self) -> tuple[int, ...]:
        return lacking_in_merge(self._responses(), self.members)

    @property
    def members(self) -> tuple[Address, ...]:
        return tuple(dict.fromkeys(member for response in self._responses() for member in response.staying))

    @property
    def bootstrappers(self) -> tuple[Address, ...]:
        named = {incarnation for response in self._responses() for incarnation in response.bootstrapping}
        return tuple(member for member in self.members if member.incarnation in named)

    @property
    def leavers(self) -> tuple[Address, ...]:
        return tuple(member for response in self._responses() for member in response.leaving)

    @property
    def record(self) -> PrimaryRecord:
        reports = [response.report for response in self._responses()]
        return combined(PrimaryRecord(report.last, report.attempts) for report in reports)

    @property
    def chains(self) -> tuple[int, ...]:
        """The earlier incarnations that the members of all parts stand for."""
        return tuple(incarnation for response in self._responses() for incarnation in response.report.chain)

    @property
    def highest_number(self) -> int:
        return max([self.record.highest_number, *(response.view.id.number for response in self._responses())])


def merged_digest(responses: Sequence[MergeResponse], members: Collection[Address], counters: Counters) -> Pairs:
    """Where each stream begins in the merged view. Of overlapping entries the maximum stands, and that is counted."""
    highest: dict[int, int] = {}
    for response in responses:
        for sender, _, _, received in response.report.digest:
            if sender in highest:
                counters[Count.DIGEST_OVERLAP] += 1
            highest[sender] = max(highest.get(sender, 0), received)
    return tuple((member.incarnation, highest[member.incarnation]) for member in members)


def lacking_in_merge(responses: Sequence[MergeResponse], members: Sequence[Address]) -> tuple[int, ...]:
    """Who needs the application's state: whoever joined from another part than the first, and wants it.

    Where the first part has nobody with the state, nobody has it in the merged view: what a holder of another part has
    is older than the log that all follow, and is neither handed on nor replaced until somebody with the state is back.
    """
    first, *others = responses
    lacking = set(first.lacking).union(*(response.wanting for response in others))
    return tuple(member.incarnation for member in members if member.incarnation in lacking)


def lacking_of(needs: Mapping[int, StateNeed]) -> tuple[int, ...]:
    """Who of one part lacks the state; `needs` has its members by incarnation, the most senior first.

    Where nobody holds it, whoever has all of the log does as well. If there is none, and nobody waits for the state,
    it begins anew with the most senior member.
    """
    lacking = tuple(member for member, need in needs.items() if need not in (StateNeed.UNWANTED, StateNeed.HELD))
    if len(lacking) < len(needs):
        return lacking
    if StateNeed.SPARE in needs.values():
        return tuple(member for member in lacking if needs[member] is not StateNeed.SPARE)
    return lacking if StateNeed.LACKING in needs.values() else lacking[1:]


def lacks_everywhere(members: Collection[Address], lacking: Collection[int]) -> bool:
    return all(member.incarnation in lacking for member in members)
