"""The merge leader: brings several views, each with its own coordinator, into one (JGroups design note MERGE).

    GATHERING   MERGE_REQ to every coordinator; each prepares its own part and answers with its aggregated digests
    AGREEING    MERGE_VIEW to every coordinator; each brings its part to its cut and says when all are ready
    COMMITTED   all parts are ready: MERGE_COMMIT, repeated until each has installed

A coordinator that is silent ends the attempt; one that refuses is left out, and the rest goes on while two parts
remain. No part is asked to install before all are ready, so whoever installs knows that every member of the merged
view has recorded the attempt: the primary component rests on that.

Invariant: there is an attempt exactly while the state is not IDLE, and its name carries our incarnation.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.view import Ballot, ViewSummary
from motet.protocol.membership.context import IN_DOUBT_ANSWERS, Roles, ViewContext
from motet.protocol.membership.interface import MergeFailed, MergeUnanswered
from motet.protocol.membership.merge import MergeAttempt, Part, Sends
from motet.protocol.membership.transitions import Rows, StateMachine, Table, Transition, in_states, repeated
from motet.protocol.wire.frames import (
    Installed,
    LogCheckpoint,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeResponse,
)

LEADER_ANSWERS = 3  # answer times that a merge leader waits: each part may have to wait for a silent member, twice


class LeaderState(Enum):
    IDLE = "IDLE"
    GATHERING = "GATHERING"  # MERGE_REQ is out, and MERGE_RSP of somebody is missing
    AGREEING = "AGREEING"  # MERGE_VIEW is out, and MERGE_READY of somebody is missing
    COMMITTED = "COMMITTED"  # MERGE_COMMIT is out, and INSTALLED of somebody is missing


class LeaderInput(Enum):
    LEAD = "views that we should lead into one"
    RESPONSE = "MERGE_RSP of a part, the first one or a later one"
    RESPONSE_AGAIN = "MERGE_RSP again, or an earlier one"
    RESPONSE_OF_STRANGER = "MERGE_RSP of a part that refused before, and is left out"
    ALL_RESPONDED = "MERGE_RSP of all, with a digest of every member"
    DIGEST_MISSING = "MERGE_RSP of all, and a digest is missing"
    REFUSAL = "refusal, and two parts remain"
    REFUSAL_FATAL = "refusal of our own part, or of the last but one"
    REFUSAL_STALE = "refusal of another merge"
    READY = "MERGE_READY, others are missing"
    READY_OF_ALL = "MERGE_READY of the last one"
    READY_STALE = "MERGE_READY of another round, or again"
    OLD_MERGE = "MERGE_RSP or MERGE_READY of a merge that is over"
    INSTALLED = "INSTALLED, others are missing"
    INSTALLED_BY_ALL = "INSTALLED of the last one"
    INSTALLED_STALE = "INSTALLED of another view, or by a stranger"
    RETRY = "the retry interval is over"
    TIMEOUT = "a coordinator silent for 3 `answer` (4 when committed)"
    OWN_PART_LOST = "the view of our own part has ended"


State, Input = LeaderState, LeaderInput
OPEN = (State.GATHERING, State.AGREEING)


class MergeLeader(StateMachine[LeaderState, LeaderInput]):
    def __init__(self, context: ViewContext, roles: Roles) -> None:
        super().__init__(State.IDLE, context.counters)
        self._context = context
        self._roles = roles
        self.attempt: MergeAttempt | None = None
        self._until = 0
        self._merges = 0  # that we began to lead
        self._committed: MergeCommit | None = None  # of the last merge that we committed
        self._committed_parts: tuple[Address, ...] = ()  # and for whom

    @property
    def is_idle(self) -> bool:
        return self.state is State.IDLE

    @property
    def is_open(self) -> bool:
        """We lead a merge, and no part was asked to install it."""
        return self.state in OPEN

    @property
    def silent(self) -> list[Address]:
        """Whom we wait for in this state."""
        return [] if self.attempt is None else [c for c, part in self.attempt.parts.items() if not self._is_done(part)]

    def _is_done(self, part: Part) -> bool:
        match self.state:
            case State.GATHERING:
                return part.response is not None
            case State.AGREEING:
                return part.is_ready
        return part.is_installed

    def _unanswered(self) -> Sends:
        """What every coordinator that we wait for is to get, at first and again."""
        return [(coordinator, self._question(self._attempt.parts[coordinator])) for coordinator in self.silent]

    def _question(self, part: Part) -> Frame:
        match self.state:
            case State.GATHERING:
                return self._attempt.request(part)
            case State.AGREEING:
                return self._attempt.plan_for(part)
        return self._attempt.commit()

    # Inputs

    def lead(self, parts: Sequence[ViewSummary], now: int) -> list[Effect]:
        return self.fire(Input.LEAD, parts, now)

    def on_response(self, source: Address, frame: MergeResponse, now: int) -> list[Effect]:
        attempt = self.attempt
        if attempt is None or attempt.merge != frame.merge:
            return self.fire(Input.OLD_MERGE, source, frame.merge)
        if source not in attempt.parts:
            return self.fire(Input.RESPONSE_OF_STRANGER, source, frame)
        if not attempt.is_later(source, frame):
            return self.fire(Input.RESPONSE_AGAIN)
        return self.fire(Input.RESPONSE, source, frame, now)

    def on_refusal(self, source: Address, frame: MergeRefusal, now: int) -> list[Effect]:
        attempt = self.attempt
        if attempt is None or attempt.merge != frame.merge:
            return self.fire(Input.REFUSAL_STALE)
        is_fatal = source == self._context.local or len(attempt.parts.keys() - {source}) < 2
        return self.fire(Input.REFUSAL_FATAL if is_fatal else Input.REFUSAL, source, now)

    def on_ready(self, source: Address, frame: MergeReady, now: int) -> list[Effect]:
        attempt = self.attempt
        if attempt is None or attempt.merge != frame.merge:
            return self.fire(Input.OLD_MERGE, source, frame.merge)
        if not attempt.is_for_the_plan(source, frame.ballot):
            return self.fire(Input.READY_STALE)
        is_last = self.silent == [source]
        return self.fire(Input.READY_OF_ALL if is_last else Input.READY, source, frame, now)

    def on_installed(self, source: Address, frame: Installed) -> list[Effect]:
        attempt = self.attempt
        plan = attempt.plan if attempt is not None else None
        if attempt is None or plan is None or plan.following.id != frame.view or source not in attempt.parts:
            return self.fire(Input.INSTALLED_STALE)
        is_last = not set(self.silent) - {source}
        return self.fire(Input.INSTALLED_BY_ALL if is_last else Input.INSTALLED, source)

    def own_part_lost(self) -> list[Effect]:
        return self.fire(Input.OWN_PART_LOST)

    def time_out(self, now: int) -> list[Effect]:
        return self.fire(Input.TIMEOUT, self.silent) if not self.is_idle and now >= self._until else []

    def retry(self) -> list[Effect]:
        return self.fire(Input.RETRY)

    def excuse_pause(self, late_ns: int) -> None:
        self._until += late_ns

    # Actions

    def _begin(self, parts: Sequence[ViewSummary], now: int) -> list[Effect]:
        """MERGE_REQ to every coordinator, ourselves included"""
        context = self._context
        self._merges += 1
        merge = Ballot(self._merges, context.local.incarnation)
        views = {context.local: context.view.id} | {part.coordinator: part.id for part in parts}
        has_one_log = context.config.partitions != "all"
        named = (merge, context.local, context.view.id, views)
        self.attempt = MergeAttempt(*named, context.answer_ns, has_one_log=has_one_log)
        self._until = now + LEADER_ANSWERS * context.answer_ns
        return context.send_each(self._unanswered())

    def _note_response(self, source: Address, frame: MergeResponse, now: int) -> list[Effect]:
        """keep it; of several answers of one part the latest counts"""
        self._attempt.parts[source].response = frame
        return self._look_whether_all_responded(now)

    def _look_whether_all_responded(self, now: int) -> list[Effect]:
        if self.silent:
            return []
        return (
            self.fire(Input.ALL_RESPONDED, now) if self._attempt.has_all_digests() else self.fire(Input.DIGEST_MISSING)
        )

    def _leave_out(self, source: Address, frame: MergeResponse) -> list[Effect]:
        """MERGE_CANCEL to it"""
        return self._context.send(source, MergeCancel(frame.merge, is_off=True))

    def _agree(self, now: int) -> list[Effect]:
        """number the view, decide whether it is primary; MERGE_VIEW"""
        attempt, context = self._attempt, self._context
        counted = (attempt.members, attempt.record, attempt.leavers, attempt.bootstrappers, attempt.chains)
        is_primary = self._roles.coordinator.is_primary_with(*counted, lacking=attempt.lacking)
        attempt.agree(context.next_id(attempt.highest_number), is_primary, context.counters)
        self._until = now + LEADER_ANSWERS * context.answer_ns
        return [*attempt.overlaps, *context.send_each(self._unanswered())]

    def _cancel_incomplete(self) -> list[Effect]:
        """MERGE_CANCEL; all coordinators are backed off for a while"""
        return self._cancel(self._attempt.coordinators)

    def _cancel_outdated(self, source: Address, frame: MergeResponse, now: int) -> list[Effect]:
        """MERGE_CANCEL: the plan was made from an earlier answer; that part has begun anew and cannot follow"""
        return self._cancel([])

    def _go_on_without(self, source: Address, now: int) -> list[Effect]:
        """continue without that part, which is backed off for a while"""
        self._context.counters[Count.MERGE_REFUSED] += 1
        self._attempt.parts.pop(source, None)
        return [MergeFailed((source,)), *self._look_whether_all_responded(now)]

    def _cancel_refused(self, source: Address, now: int) -> list[Effect]:
        """MERGE_CANCEL; whoever refused is backed off for a while"""
        self._context.counters[Count.MERGE_REFUSED] += 1
        return self._cancel([source])

    def _cancel_without(self, source: Address, now: int) -> list[Effect]:
        """MERGE_CANCEL to the others; whoever refused is backed off for a while"""
        if source != self._context.local:
            self._attempt.parts.pop(source, None)
        return self._cancel_refused(source, now)

    def _cancel(self, guilty: list[Address]) -> list[Effect]:
        attempt, self.attempt = self._attempt, None
        self._context.counters[Count.MERGE_CANCELLED] += 1
        others = tuple(coordinator for coordinator in guilty if coordinator != self._context.local)
        return [*self._context.send_each(attempt.cancels()), MergeFailed(others)]

    def _cancel_own(self) -> list[Effect]:
        """MERGE_CANCEL"""
        return self._cancel([])

    def _cancel_silent(self, silent: list[Address]) -> list[Effect]:
        """MERGE_CANCEL; the silent ones are backed off for a while; counted as `merge_unanswered`"""
        others = tuple(coordinator for coordinator in silent if coordinator != self._context.local)
        self._context.counters[Count.MERGE_UNANSWERED] += bool(others)
        return [*([MergeUnanswered(others)] if others else []), *self._cancel(silent)]

    def _note_ready(self, source: Address, frame: MergeReady, now: int) -> list[Effect]:
        """wait for the others"""
        self._attempt.note_ready(source, LogCheckpoint(frame.position, frame.producers))
        return []

    def _commit(self, source: Address, frame: MergeReady, now: int) -> list[Effect]:
        """MERGE_COMMIT, repeated until INSTALLED"""
        attempt = self._attempt
        effects = self._note_ready(source, frame, now)
        self._committed, self._committed_parts = attempt.commit(), tuple(attempt.coordinators)
        self._until = now + IN_DOUBT_ANSWERS * self._context.answer_ns
        return effects + self._context.send_each(self._unanswered())

    def _settle_old_merge(self, source: Address, merge: Ballot) -> list[Effect]:
        """MERGE_COMMIT if it was the last that we committed, else MERGE_CANCEL"""
        committed = self._committed
        if committed is not None and committed.merge == merge:
            is_part = source in self._committed_parts
            return self._context.send(source, committed if is_part else MergeCancel(merge, is_off=True))
        is_ours = merge.proposer == self._context.local.incarnation
        is_off = is_ours and (committed is None or merge > committed.merge)
        return self._context.send(source, MergeCancel(merge, is_off))

    def _note_installed(self, source: Address) -> list[Effect]:
        """wait for the others"""
        self._attempt.parts[source].is_installed = True
        return []

    def _end(self, *arguments: object) -> list[Effect]:
        """done; whoever missed it asks; if we are leaving, we are gone now"""
        self.attempt = None
        return self._roles.participant.leave_when_free()

    def _repeat(self) -> list[Effect]:
        """the question of this state again, to those who did not answer"""
        return self._context.send_each(self._unanswered())

    @property
    def _attempt(self) -> MergeAttempt:
        assert self.attempt is not None, f"{self.state} without an attempt"
        return self.attempt

    # Transitions

    _WHILE_LEADING: ClassVar[Rows] = {
        Input.RESPONSE_OF_STRANGER: Transition(_leave_out),
        Input.RESPONSE_AGAIN: Transition(repeated),
        Input.RETRY: Transition(_repeat),
        Input.READY_STALE: Transition(repeated),
    }
    _WHILE_OPEN: ClassVar[Rows] = {
        Input.TIMEOUT: Transition(_cancel_silent, State.IDLE),
        Input.OWN_PART_LOST: Transition(_cancel_own, State.IDLE),
    }
    TABLE: ClassVar[Table] = {
        **in_states(State, {Input.OLD_MERGE: Transition(_settle_old_merge)}),
        **in_states(State, {Input.REFUSAL_STALE: Transition(repeated), Input.INSTALLED_STALE: Transition(repeated)}),
        **in_states((*OPEN, State.COMMITTED), _WHILE_LEADING),
        **in_states(OPEN, _WHILE_OPEN),
        (State.IDLE, Input.LEAD): Transition(_begin, State.GATHERING),
        (State.IDLE, Input.OWN_PART_LOST): Transition(repeated),
        (State.GATHERING, Input.RESPONSE): Transition(_note_response),
        (State.GATHERING, Input.ALL_RESPONDED): Transition(_agree, State.AGREEING),
        (State.GATHERING, Input.DIGEST_MISSING): Transition(_cancel_incomplete, State.IDLE),
        (State.GATHERING, Input.REFUSAL): Transition(_go_on_without),
        (State.GATHERING, Input.REFUSAL_FATAL): Transition(_cancel_without, State.IDLE),
        (State.AGREEING, Input.RESPONSE): Transition(_cancel_outdated, State.IDLE),
        (State.AGREEING, Input.REFUSAL): Transition(_cancel_refused, State.IDLE),
        (State.AGREEING, Input.REFUSAL_FATAL): Transition(_cancel_refused, State.IDLE),
        (State.AGREEING, Input.READY): Transition(_note_ready),
        (State.AGREEING, Input.READY_OF_ALL): Transition(_commit, State.COMMITTED),
        (State.COMMITTED, Input.RESPONSE): Transition(repeated),
        (State.COMMITTED, Input.REFUSAL): Transition(repeated),
        (State.COMMITTED, Input.REFUSAL_FATAL): Transition(repeated),
        (State.COMMITTED, Input.INSTALLED): Transition(_note_installed),
        (State.COMMITTED, Input.INSTALLED_BY_ALL): Transition(_end, State.IDLE),
        (State.COMMITTED, Input.TIMEOUT): Transition(_end, State.IDLE),
        (State.COMMITTED, Input.OWN_PART_LOST): Transition(repeated),
    }
