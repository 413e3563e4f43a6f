"""A coordinator's part in a merge: it prepares its part for the leader in a round of its own, and follows the plan.

The round itself is the coordinator's; what is here is what binds it to one merge and one leader.

Invariant: a part is bound to a merge exactly while its coordinator's round is for that merge.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import ClassVar

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_BALLOT, Ballot
from motet.protocol.membership.context import Roles, ViewContext
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.membership.round import Round
from motet.protocol.membership.transitions import Rows, StateMachine, Table, Transition, in_states, repeated
from motet.protocol.wire.frames import (
    Decision,
    Installed,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeRequest,
    MergeResponse,
    MergeView,
)

MOST_LEADERS = 64  # whose last merge is remembered


class PartState(Enum):
    FREE = "FREE"
    PREPARING = "PREPARING"  # the round is for a merge, and PREPARED of somebody is missing
    ANSWERED = "ANSWERED"  # MERGE_RSP is out; waits for the plan
    CUTTING = "CUTTING"  # the plan is known, and READY of somebody is missing
    READY = "READY"  # MERGE_READY is out; waits for the commit, and is in doubt


class PartInput(Enum):
    REQUEST = "MERGE_REQ for the current view, of a merge that it has not prepared for yet"
    REQUEST_AGAIN = "MERGE_REQ of the merge that it is preparing for"
    REQUEST_STALE = "MERGE_REQ for another view, or of a merge that is over for this part"
    REQUEST_UNSUITABLE = (
        "MERGE_REQ while changing, frozen or leading a merge; to one that is not the coordinator; by a quarantined one"
    )
    ALL_ANSWERED = "PREPARED of all members"
    PLAN = "MERGE_VIEW for its view and its round, with a number above its view's"
    PLAN_NOT_ABOVE = "MERGE_VIEW for its view and its round, with a number that is not above its view's"
    PLAN_STALE = "MERGE_VIEW for another view or round"
    ALL_READY = "READY of all members"
    COMMIT = "MERGE_COMMIT of the plan"
    COMMIT_AGAIN = "MERGE_COMMIT of the view that was installed"
    COMMIT_STALE = "MERGE_COMMIT of another merge or view"
    CANCEL = "MERGE_CANCEL; the merge is off, or READY was not said, or it is we who lead it"
    CANCEL_IN_DOUBT = "MERGE_CANCEL by a leader that does not know any more, after READY"
    CANCEL_STALE = "MERGE_CANCEL of another merge"
    ROUND_LOST = "a member silent, suspected, or leaving meanwhile, or another coordinator acts"
    ROUND_OVER = "the round is committed or called off"
    RETRY = "the retry interval is over"


State, Input = PartState, PartInput
BOUND = (State.PREPARING, State.ANSWERED, State.CUTTING, State.READY)


class MergePart(StateMachine[PartState, PartInput]):
    def __init__(self, context: ViewContext, roles: Roles) -> None:
        super().__init__(State.FREE, context.counters)
        self._context = context
        self._roles = roles
        self._merge = NO_BALLOT
        self._leader = context.local
        self._joined: dict[int, Ballot] = {}  # of each leader, by incarnation: the last merge that we prepared for

    @property
    def is_bound(self) -> bool:
        return self.state is not State.FREE

    @property
    def is_in_doubt(self) -> bool:
        """We told the leader that our part is ready: it may have asked the others to install."""
        is_ours = self._leader == self._context.local and self._roles.leader.is_open
        return self.state is State.READY and not is_ours

    def _is_of(self, leader: Address, merge: Ballot) -> bool:
        return self.is_bound and (self._leader, self._merge) == (leader, merge)

    # Inputs: MERGE_REQ

    def on_request(self, source: Address, frame: MergeRequest, now: int) -> list[Effect]:
        if self.is_bound and self._merge == frame.merge:
            return self.fire(Input.REQUEST_AGAIN)
        if (reason := self._why_stale(frame)) is not None:
            return self.fire(Input.REQUEST_STALE, source, frame, reason)
        if (reason := self._why_unsuitable(source)) is not None:
            return self.fire(Input.REQUEST_UNSUITABLE, source, frame, reason)
        return self.fire(Input.REQUEST, source, frame, now)

    def _why_stale(self, frame: MergeRequest) -> str | None:
        """A request that was delayed is refused: our answer would be about a view or a round that is over."""
        if frame.part != self._context.view.id:
            return "that view is over"
        is_over = frame.merge <= self._joined.get(frame.merge.proposer, NO_BALLOT)
        return "that merge is over for this part" if is_over else None

    def _why_unsuitable(self, leader: Address) -> str | None:
        context, roles = self._context, self._roles
        if leader != context.local and leader in context.view:
            return "we are in one view already"
        if context.acting_coordinator != context.local:
            return "not the coordinator of this part"
        if context.callbacks.is_backed_off(leader):
            return "somebody in this part could not receive from you; later"
        is_leading = not roles.leader.is_idle and leader != context.local
        is_free = roles.coordinator.is_idle and not roles.participant.is_frozen and not is_leading
        return None if is_free else "busy"

    def _prepare(self, source: Address, frame: MergeRequest, now: int) -> list[Effect]:
        """a round of its own, bound to the merge"""
        self._merge, self._leader = frame.merge, source
        self._remember(frame.merge)
        effects = self._roles.coordinator.begin_round(now)
        if (current := self._roles.coordinator.round) is not None:
            # The parts know less of the leader's network than it does, and wait as long as it says.
            current.answer_ns = max(current.answer_ns, min(frame.answer_ns, self._context.config.answer_max_ns))
        return effects

    def _remember(self, merge: Ballot) -> None:
        self._joined.pop(merge.proposer, None)
        self._joined[merge.proposer] = merge
        if len(self._joined) > MOST_LEADERS:
            del self._joined[next(iter(self._joined))]

    def _refuse(self, source: Address, frame: MergeRequest | MergeView, reason: str) -> list[Effect]:
        """a refusal, at once"""
        return self._context.send(source, MergeRefusal(frame.merge, reason))

    def _refuse_stale(self, source: Address, frame: MergeRequest | MergeView, reason: str) -> list[Effect]:
        """a refusal, counted as `frame_misplaced`: it was delayed on its way"""
        self._context.counters[Count.FRAME_MISPLACED] += 1
        return self._refuse(source, frame, reason)

    # Inputs: of the round

    def all_answered(self, current: Round) -> list[Effect]:
        return self.fire(Input.ALL_ANSWERED, current)

    def all_ready(self, current: Round) -> list[Effect]:
        return self.fire(Input.ALL_READY, current)

    def round_lost(self, reason: str) -> list[Effect]:
        """Our part cannot continue; the leader is notified at once, not left to wait."""
        return self.fire(Input.ROUND_LOST, reason)

    def round_over(self) -> list[Effect]:
        return self.fire(Input.ROUND_OVER)

    def retry(self, current: Round) -> list[Effect]:
        return self.fire(Input.RETRY, current)

    def _answer(self, current: Round) -> list[Effect]:
        """MERGE_RSP: who stays, every stream as the members hold it, primary records, needs of state"""
        return self._context.send(self._leader, self._response(current))

    def _response(self, current: Round) -> MergeResponse:
        return MergeResponse(
            self._merge,
            self._context.view,
            current.ballot,
            current.report(self._context.epoch),
            current.staying,
            current.leavers,
            current.wanting,
            current.lacking(current.staying),
            tuple(member.incarnation for member in current.bootstrapping),
        )

    def _tell_ready(self, current: Round) -> list[Effect]:
        """MERGE_READY"""
        return self._context.send(self._leader, MergeReady(self._merge, current.ballot, *current.log))

    def _give_up(self, reason: str) -> list[Effect]:
        """a refusal to the leader: the next attempt has the member's digest or has it out of the view"""
        return self._context.send(self._leader, MergeRefusal(self._merge, reason))

    def _not_ours(self, reason: str) -> list[Effect]:
        """nothing: the round was not for a merge"""
        return []

    def _release(self) -> list[Effect]:
        """nothing to send"""
        return []

    # Inputs: MERGE_VIEW, MERGE_COMMIT, MERGE_CANCEL

    def on_plan(self, source: Address, frame: MergeView, now: int) -> list[Effect]:
        current = self._roles.coordinator.round
        is_ours = self._is_of(source, frame.merge) and current is not None
        if current is None or not is_ours or (frame.part, frame.ballot) != (self._context.view.id, current.ballot):
            return self.fire(Input.PLAN_STALE, source, frame, "that round is over")
        if not self._context.is_above_ours(frame.following):
            return self.fire(Input.PLAN_NOT_ABOVE)
        return self.fire(Input.PLAN, current, frame, now)

    def _follow(self, current: Round, frame: MergeView, now: int) -> list[Effect]:
        """CUT to its members, with the part's own cut"""
        merged = (frame.following, frame.digest, frame.subviews, frame.lacking, frame.epoch)
        decision = Decision(current.cut, *merged, agreed=current.agreed)
        return self._roles.coordinator.plan(decision, PrimaryRecord(frame.last, frame.attempts), now)

    def on_commit(self, source: Address, frame: MergeCommit, now: int) -> list[Effect]:
        current, ended = self._roles.coordinator.round, self._context.ended
        plan = current.plan if current is not None and self._is_of(source, frame.merge) else None
        if plan is not None and plan.decision.following.id == frame.view:
            return self.fire(Input.COMMIT, source, frame, plan.decision, now)
        if ended is not None and ended.decision.following.id == frame.view:
            return self.fire(Input.COMMIT_AGAIN, source, frame)
        return self.fire(Input.COMMIT_STALE)

    def _commit(self, source: Address, frame: MergeCommit, planned: Decision, now: int) -> list[Effect]:
        """COMMIT to its members; INSTALLED to the leader, because we install at once"""
        decision = replace(planned, position=frame.position, producers=frame.producers)
        return self._roles.coordinator.commit(decision, now) + self._confirm(source, frame)

    def _confirm(self, source: Address, frame: MergeCommit) -> list[Effect]:
        """INSTALLED again"""
        return self._context.send(source, Installed(frame.view))

    def on_cancel(self, source: Address, frame: MergeCancel, now: int) -> list[Effect]:
        if not self._is_of(source, frame.merge):
            return self.fire(Input.CANCEL_STALE)
        is_off = frame.is_off or not self.is_in_doubt
        return self.fire(Input.CANCEL if is_off else Input.CANCEL_IN_DOUBT, now)

    def _call_off(self, now: int) -> list[Effect]:
        """ABORT to its members, the attempt is off"""
        return self._roles.coordinator.cancel(now, is_off=True)

    def _call_off_in_doubt(self, now: int) -> list[Effect]:
        """ABORT, but the attempt stays recorded: the other parts may have been asked to install"""
        return self._roles.coordinator.cancel(now, is_off=False)

    # Transitions

    _IN_ANY_STATE: ClassVar[Rows] = {
        Input.REQUEST_STALE: Transition(_refuse_stale),
        Input.REQUEST_UNSUITABLE: Transition(_refuse),
        Input.PLAN_STALE: Transition(_refuse_stale),
        Input.COMMIT_AGAIN: Transition(_confirm),
        Input.COMMIT_STALE: Transition(repeated),
        Input.CANCEL_STALE: Transition(repeated),
        Input.ROUND_OVER: Transition(_release, State.FREE),
    }
    _WHILE_BOUND: ClassVar[Rows] = {
        Input.REQUEST_AGAIN: Transition(repeated),
        Input.CANCEL: Transition(_call_off, State.FREE),
        Input.ROUND_LOST: Transition(_give_up, State.FREE),
    }
    TABLE: ClassVar[Table] = {
        **in_states(State, _IN_ANY_STATE),
        **in_states(BOUND, _WHILE_BOUND),
        **in_states((State.PREPARING, State.CUTTING), {Input.RETRY: Transition(repeated)}),
        **in_states((State.PREPARING, State.CUTTING, State.READY), {Input.PLAN: Transition(repeated)}),
        (State.FREE, Input.REQUEST): Transition(_prepare, State.PREPARING),
        (State.FREE, Input.ROUND_LOST): Transition(_not_ours),
        (State.FREE, Input.RETRY): Transition(repeated),
        (State.PREPARING, Input.ALL_ANSWERED): Transition(_answer, State.ANSWERED),
        (State.ANSWERED, Input.RETRY): Transition(_answer),
        (State.ANSWERED, Input.PLAN): Transition(_follow, State.CUTTING),
        (State.CUTTING, Input.ALL_READY): Transition(_tell_ready, State.READY),
        (State.CUTTING, Input.COMMIT): Transition(repeated),
        (State.READY, Input.RETRY): Transition(_tell_ready),
        (State.READY, Input.COMMIT): Transition(_commit, State.FREE),
        (State.READY, Input.CANCEL_IN_DOUBT): Transition(_call_off_in_doubt, State.FREE),
    }
