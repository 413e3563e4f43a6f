"""The merge leader: brings several views, each with its own coordinator, into one (seed `merge.txt`).

    GATHERING   MERGE_REQ to every coordinator; each prepares its own part and answers with its aggregated digests
    AGREEING    MERGE_VIEW to every coordinator; each brings its part to its cut and says when all are ready
    COMMITTED   all parts are ready: MERGE_COMMIT, repeated until each has installed

A coordinator that is silent ends the attempt; one that refuses is left out, and the rest goes on while two parts
remain. No part is told to install before all are ready, so whoever installs knows that every member of the merged
view has recorded the attempt: the primary component rests on that. One object is one attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

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


class Phase(Enum):
    GATHERING = "gathering"
    AGREEING = "agreeing"
    COMMITTED = "committed"


@dataclass(slots=True)
class _Part:
    view: ViewId  # that its coordinator was asked for
    response: MergeResponse | None = None  # the latest one
    is_ready: bool = False
    is_installed: bool = False


class MergeLeader:
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
        self.phase = Phase.GATHERING
        self.plan: MergeView | None = None
        self.log = LogCheckpoint()  # when the merged view begins
        self._local = local
        self._view = view
        self._answer_ns = answer_ns
        self._has_one_log = has_one_log
        self._parts = {coordinator: _Part(part) for coordinator, part in parts.items()}

    @property
    def coordinators(self) -> list[Address]:
        return list(self._parts)

    @property
    def silent(self) -> list[Address]:
        """Whom we wait for in this phase."""
        return [coordinator for coordinator, part in self._parts.items() if not self._is_done(part)]

    def _is_done(self, part: _Part) -> bool:
        match self.phase:
            case Phase.GATHERING:
                return part.response is not None
            case Phase.AGREEING:
                return part.is_ready
        return part.is_installed

    def unanswered(self) -> Sends:
        """What every coordinator that we wait for is to get, at first and again."""
        return [(coordinator, self._question(self._parts[coordinator])) for coordinator in self.silent]

    def _question(self, part: _Part) -> Frame:
        if self.plan is None or part.response is None:
            return MergeRequest(self.merge, self._view, part.view, self._answer_ns)
        if self.phase is Phase.COMMITTED:
            return MergeCommit(self.merge, self.plan.following.id, *self.log)
        return replace(self.plan, part=part.response.view.id, ballot=part.response.ballot)

    def respond(self, source: Address, frame: MergeResponse) -> bool:
        """Keep a part's latest answer; True when it was the last one that was missing."""
        part = self._parts.get(source)
        if part is None or self.phase is not Phase.GATHERING or not _is_later(frame, part.response):
            return False
        part.response = frame
        return not self.silent

    def is_outdated_by(self, source: Address, frame: MergeResponse) -> bool:
        """Whether this part has begun anew since the answer that the plan was made from: it cannot follow the plan."""
        part = self._parts.get(source)
        return part is not None and self.phase is Phase.AGREEING and _is_later(frame, part.response)

    def drop(self, source: Address) -> bool:
        """A part refused. True if the others can go on."""
        if self.phase is not Phase.GATHERING or source == self._local:
            return False
        self._parts.pop(source, None)
        return len(self._parts) > 1

    def is_caught_up(self) -> bool:
        """The seed's rule: there is a digest of every member of all parts, each at first hand."""
        return all(
            member.incarnation in {quad[0] for quad in response.digest}
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
            responses[0].epoch,
            record.last,
            record.attempts,
        )
        self.phase = Phase.AGREEING

    def ready(self, source: Address, ballot: Ballot, log: LogCheckpoint) -> bool:
        """True when this makes all parts ready. The log stands where the part says that the others follow."""
        part = self._parts.get(source)
        if part is None or part.response is None or self.phase is not Phase.AGREEING or part.is_ready:
            return False
        if part.response.ballot != ballot:
            return False  # of a round that the plan was not made for
        part.is_ready = True
        if part.response is self._responses()[0]:
            self.log = log
        if self.silent:
            return False
        self.phase = Phase.COMMITTED
        return True

    def installed(self, source: Address) -> bool:
        """True when this was the last part."""
        part = self._parts.get(source)
        if part is None or self.phase is not Phase.COMMITTED:
            return False
        part.is_installed = True
        return not self.silent

    def cancels(self) -> Sends:
        is_off = self.phase is not Phase.COMMITTED
        return [(coordinator, MergeCancel(self.merge, is_off)) for coordinator in self._parts]

    # What the parts say together

    @property
    def overlaps(self) -> list[DigestsOverlapped]:
        return overlaps(self._responses())

    def _responses(self) -> list[MergeResponse]:
        """The part with the latest log first, then ours, then by age: seniority in the merged view follows it.

        A part that only knows how long that log was is no match for one that has it: what is stable, all have who were
        in the primary view.
        """
        answered = [(c, part.response) for c, part in self._parts.items() if part.response is not None]
        return [response for _, response in sorted(answered, key=lambda item: self._seniority(*item))]

    def _seniority(self, coordinator: Address, response: MergeResponse) -> tuple[bool, int, bool, int, bool, ViewId]:
        """Where every side has a log of its own, no later log makes up for a state that nobody there has."""
        is_stateless = not self._has_one_log and lacks_everywhere(response.staying, response.lacking)
        log = (is_stateless, -response.epoch.number, not response.is_caught_up, -response.position)
        return (*log, coordinator != self._local, response.view.id)

    @property
    def lacking(self) -> tuple[int, ...]:
        return lacking_in_merge(self._responses(), self.members)

    @property
    def members(self) -> tuple[Address, ...]:
        return tuple(dict.fromkeys(member for response in self._responses() for member in response.staying))

    @property
    def bootstrap_voters(self) -> tuple[Address, ...]:
        named = {incarnation for response in self._responses() for incarnation in response.bootstrap_voters}
        return tuple(member for member in self.members if member.incarnation in named)

    @property
    def leavers(self) -> tuple[Address, ...]:
        return tuple(member for response in self._responses() for member in response.leaving)

    @property
    def record(self) -> PrimaryRecord:
        return combined(PrimaryRecord(response.last, response.attempts) for response in self._responses())

    @property
    def heirs(self) -> tuple[int, ...]:
        """The earlier incarnations that the members of all parts stand for."""
        return tuple(incarnation for response in self._responses() for incarnation in response.earlier_incarnations)

    @property
    def highest_number(self) -> int:
        return max([self.record.highest_number, *(response.view.id.number for response in self._responses())])


def _is_later(frame: MergeResponse, known: MergeResponse | None) -> bool:
    """A repeated answer is no news, and a copy that was delayed for seconds is about a round that is over."""
    return known is None or (frame.view.id, frame.ballot) > (known.view.id, known.ballot)


def merged_digest(responses: Sequence[MergeResponse], members: Collection[Address], counters: Counters) -> Pairs:
    """Where each stream begins in the merged view. Of overlapping entries the maximum stands, and that is counted."""
    highest: dict[int, int] = {}
    for response in responses:
        for sender, _, _, received in response.digest:
            if sender in highest:
                counters[Count.DIGEST_OVERLAP] += 1
            highest[sender] = max(highest.get(sender, 0), received)
    return tuple((member.incarnation, highest[member.incarnation]) for member in members)


def lacking_in_merge(responses: Sequence[MergeResponse], members: Sequence[Address]) -> tuple[int, ...]:
    """Who needs the application's state: whoever came in from another part than the first, and wants it.

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
