"""The acting coordinator: the most senior member that is not suspected ends the view, and says what follows.

One round is one ballot: PREPARE to all survivors, their answers, the cut and the next view, READY of all, COMMIT. Who
is silent is timed out and the round begins again without it; who has promised a later ballot makes us stand back.

Invariant: at most one round is in flight, its ballot is ours, and there is one exactly in COLLECT and CUTTING.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import ClassVar

from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.membership.announcer import CommitAnnouncer
from motet.protocol.membership.context import IN_DOUBT_ANSWERS, Roles, ViewContext
from motet.protocol.membership.interface import FlushTimedOut
from motet.protocol.membership.merge import lacks_everywhere
from motet.protocol.membership.primary import PrimaryRecord, is_primary
from motet.protocol.membership.round import Round
from motet.protocol.membership.transitions import Rows, StateMachine, Table, Transition, in_states, repeated
from motet.protocol.wire.frames import (
    Abort,
    Commit,
    CutTo,
    Decision,
    LeaveRequest,
    LogCheckpoint,
    Nack,
    Prepare,
    Prepared,
    Ready,
)

__all__ = ["MOST_EXTENSIONS", "CommitAnnouncer", "Coordinator", "CoordinatorInput", "CoordinatorState"]

MOST_EXTENSIONS = 3  # answer times that slow members get in addition


class CoordinatorState(Enum):
    IDLE = "IDLE"
    COLLECT = "COLLECT"  # PREPARE is out, and PREPARED of somebody is missing; or the merge leader has not planned yet
    CUTTING = "CUTTING"  # CUT is out, and READY of somebody is missing; or the merge is not committed yet
    STANDING_BACK = "STANDING_BACK"  # a later ballot is in flight; if nothing comes of it, we try again


class CoordinatorInput(Enum):
    CHANGE_NEEDED = "a suspect, a leaver, a merge, a new primary view is possible, or who takes part has changed"
    CHANGE_NOT_NEEDED = "all are trusted again and nobody leaves"
    PREPARED = "PREPARED, others are missing"
    PREPARED_BY_ALL = "PREPARED of the last one, in a round of our own"
    PREPARED_FOR_MERGE = "PREPARED of the last one, in a round for a merge"
    PREPARED_ENDED = "PREPARED with a COMMIT that its sender has seen"
    PREPARED_STALE = "PREPARED of another ballot, of a stranger, or again"
    MERGE_PLANNED = "the merge leader's plan for this round"
    READY = "READY, others are missing"
    READY_OF_ALL = "READY of the last one, in a round of our own"
    READY_FOR_MERGE = "READY of the last one, in a round for a merge"
    READY_STALE = "READY of another ballot, or again"
    MERGE_COMMITTED = "the merge leader says that all parts are ready"
    MERGE_CANCELLED = "the merge is off, or may be committed without us"
    NACK_HIGHER = "NACK(higher ballot)"
    NACK_QUESTION = "NACK by somebody who is frozen by this ballot"
    NACK_OLD_BALLOT = "NACK by somebody who is frozen by an earlier ballot of ours"
    NACK_ENDED = "NACK that names the view before, of a member or of one that was removed"
    NACK_STALE = "NACK of another view, or of a ballot that is not above ours"
    LEAVE_REQUEST = "LEAVE_REQUEST of a member of this view"
    LEAVE_STALE = "LEAVE_REQUEST of another view"
    SUPERSEDED = "a later ballot was promised here"
    VIEW_ENDED = "the view has ended here"
    SILENCE = "somebody silent for one `answer` and its extensions"
    PART_TIMEOUT = "no answer of the merge leader for 4 `answer`; or only a busy member is late, in a merge"
    STILL_LATE = "who was silent is timed out, and nothing follows from it"
    STAND_BACK_OVER = "one `answer` is over since we stood back"


State, Input = CoordinatorState, CoordinatorInput
IN_ROUND = (State.COLLECT, State.CUTTING)
NO_ROUND = (State.IDLE, State.STANDING_BACK)


class Coordinator(StateMachine[CoordinatorState, CoordinatorInput]):
    def __init__(self, context: ViewContext, roles: Roles) -> None:
        super().__init__(State.IDLE, context.counters)
        self._context = context
        self._roles = roles
        self.round: Round | None = None
        self._stands_back_until = 0

    @property
    def is_idle(self) -> bool:
        return self.state is State.IDLE

    # Inputs: why a round begins or ends

    def on_suspects(self, suspects: Collection[Address], now: int) -> list[Effect]:
        """These, and only these, are suspected now."""
        self._context.suspects = set(suspects)
        return self.reconsider(now)

    def reconsider(self, now: int) -> list[Effect]:
        """Begin, or begin again, if we are the one to act and there is something to do."""
        context, current = self._context, self.round
        if self._roles.participant.has_left or context.acting_coordinator != context.local:
            return []
        participants = context.trusted
        leavers = () if self.is_any_busy(participants, now) else context.leaving  # they ask again until they have left
        if current and current.participants == participants and set(leavers) <= set(current.leavers):
            return []
        if leavers or self._roles.participant.doubts or len(participants) < len(context.view.members):
            return self.fire(Input.CHANGE_NEEDED, participants, leavers, now)
        return self.fire(Input.CHANGE_NOT_NEEDED) if current else []

    def begin_round(self, now: int) -> list[Effect]:
        """For a merge, or because the view may be primary now, though its members stay the same."""
        return self.fire(Input.CHANGE_NEEDED, self._context.trusted, self._context.leaving, now)

    def is_any_busy(self, members: Sequence[Address], now: int) -> bool:
        """Whether one of them is alive and cannot answer. Leaving and merging wait for it; a view change that removes
        somebody waits for it as for a slow member, and continues without it then."""
        return any(self._context.callbacks.is_busy(member, now) for member in members)

    def superseded(self, ballot: Ballot) -> list[Effect]:
        is_later = self.round is not None and self.round.ballot < ballot
        return self.fire(Input.SUPERSEDED, "another coordinator is changing this part") if is_later else []

    def drop(self, reason: str) -> list[Effect]:
        return self.fire(Input.VIEW_ENDED, reason)

    def view_ended(self) -> list[Effect]:
        return self.drop("the view ended otherwise") + self._roles.leader.own_part_lost()

    def view_begun(self, now: int) -> list[Effect]:
        return self.reconsider(now) + self.ask_to_leave(now)

    def on_leave_request(self, source: Address, frame: LeaveRequest, now: int) -> list[Effect]:
        is_ours = frame.view == self._context.view.id and source in self._context.view
        return self.fire(Input.LEAVE_REQUEST if is_ours else Input.LEAVE_STALE, source, now)

    def ask_to_leave(self, now: int) -> list[Effect]:
        context = self._context
        if not context.wants_to_leave or self._roles.participant.has_left:
            return []
        coordinator = context.acting_coordinator
        if context.view.members == (context.local,):
            return self._roles.participant.leave_as_the_last()
        return context.send(coordinator, LeaveRequest(context.view.id)) if coordinator else []

    # Actions: why a round begins or ends

    def _begin(self, participants: tuple[Address, ...], leavers: tuple[Address, ...], now: int) -> list[Effect]:
        """ballot = (highest seen + 1, self); PREPARE to all survivors"""
        context, part = self._context, self._roles.part
        voids = self.round is not None and not part.is_in_doubt
        lost = part.round_lost("a member of this part is gone, or wants to go") if self.round is not None else []
        context.highest_round += 1
        ballot = Ballot(context.highest_round, context.local.incarnation)
        answer_ns = context.answer_ns
        self.round = Round(context, ballot, participants, leavers, now + answer_ns, answer_ns, voids=voids)
        return lost + context.send_to_all(participants, self._question(self.round))

    def _wait_for_the_other(self, participants: tuple[Address, ...], leavers: object, now: int) -> list[Effect]:
        """nothing: the other ballot may change the view"""
        return []

    def _question(self, current: Round) -> Frame:
        return current.plan or Prepare(self._context.view.id, current.ballot, current.participants, current.voids)

    def _no_longer_needed(self) -> list[Effect]:
        """ABORT: whom we had given up is trusted again"""
        return self._call_off(is_off=True)

    def _call_off(self, *, is_off: bool) -> list[Effect]:
        """`is_off`: nobody has installed what the round planned, and nobody will."""
        current, self.round = self.round, None
        assert current is not None
        effects = self._roles.part.round_over()
        if is_off and current.plan is not None:
            self._roles.participant.doubts.discard(current.plan.decision.following.id)
        frame = Abort(self._context.view.id, current.ballot, is_off)
        return effects + self._context.send_to_all(current.participants, frame)

    def _lose_round(self, reason: str) -> list[Effect]:
        """the round is dropped; the leader of a merge gets a refusal"""
        self.round = None
        return self._roles.part.round_lost(reason)

    def _end_without_round(self, reason: str) -> list[Effect]:
        """nothing to drop"""
        return []

    def _note_leaver(self, source: Address, now: int) -> list[Effect]:
        """note it, and look whether a change is needed"""
        self._context.leavers.add(source)
        return self.reconsider(now)

    # Inputs: answers

    def current(self, view: ViewId, ballot: Ballot) -> Round | None:
        is_ours = self.round is not None and view == self._context.view.id and ballot == self.round.ballot
        return self.round if is_ours else None

    def on_prepared(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        return self.fire(self._prepared_input(source, frame), source, frame, now)

    def _prepared_input(self, source: Address, frame: Prepared) -> CoordinatorInput:
        current = self.current(frame.view, frame.ballot)
        if current is None or current.plan is not None or source not in current.participants:
            return Input.PREPARED_STALE
        if frame.decided is not None:
            return Input.PREPARED_ENDED
        if source in current.answers:
            return Input.PREPARED_STALE  # sent again because it was asked again; it gives nobody more time
        if current.late != [source]:
            return Input.PREPARED
        return Input.PREPARED_FOR_MERGE if self._roles.part.is_bound else Input.PREPARED_BY_ALL

    def on_ready(self, source: Address, frame: Ready, now: int) -> list[Effect]:
        return self.fire(self._ready_input(source, frame), source, frame, now)

    def _ready_input(self, source: Address, frame: Ready) -> CoordinatorInput:
        current = self.current(frame.view, frame.ballot)
        if current is None or current.plan is None or source in current.ready:
            return Input.READY_STALE
        if not {*current.ready, source}.issuperset(current.participants):
            return Input.READY
        return Input.READY_FOR_MERGE if self._roles.part.is_bound else Input.READY_OF_ALL

    def on_nack(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        return self.fire(self._nack_input(frame), source, frame, now)

    def _nack_input(self, frame: Nack) -> CoordinatorInput:
        context = self._context
        is_question = frame.ballot == frame.promised
        if context.ended is not None and frame.view == context.ended.view:
            return Input.NACK_ENDED if is_question else Input.NACK_STALE
        if frame.view != context.view.id:
            return Input.NACK_STALE
        if frame.promised.proposer == context.local.incarnation:
            is_current = self.current(frame.view, frame.promised) is not None
            return Input.NACK_QUESTION if is_current else Input.NACK_OLD_BALLOT
        current = self.current(frame.view, frame.ballot)
        is_later = current is not None and frame.promised > current.ballot
        return Input.NACK_HIGHER if is_later else Input.NACK_STALE

    def plan(self, decision: Decision, record: PrimaryRecord, now: int) -> list[Effect]:
        """The merge leader's plan, completed by the cut of our part."""
        return self.fire(Input.MERGE_PLANNED, decision, record, now)

    def commit(self, decision: Decision, now: int) -> list[Effect]:
        return self.fire(Input.MERGE_COMMITTED, decision, now)

    def cancel(self, now: int, *, is_off: bool) -> list[Effect]:
        return self.fire(Input.MERGE_CANCELLED, is_off, now)

    # Actions: answers

    def _note_answer(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        """wait for the others"""
        self._round.answers[source] = frame
        return []

    def _decide_and_cut(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        """compute the cut of every stream and the next view; CUT"""
        self._round.answers[source] = frame
        return self._cut(self._decide(self._round), self._round.record, now)

    def _answer_leader(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        """MERGE_RSP, and wait for the leader's plan"""
        current = self._round
        current.answers[source] = frame
        current.until = now + IN_DOUBT_ANSWERS * current.answer_ns
        return self._roles.part.all_answered(current)

    def _cut(self, decision: Decision, record: PrimaryRecord, now: int) -> list[Effect]:
        """CUT with the leader's view, and the cut of our part"""
        current = self._round
        current.plan = CutTo(self._context.view.id, current.ballot, decision, record.last, record.attempts)
        current.until, current.extensions = now + current.answer_ns, 0
        return self._context.send_to_all(current.participants, current.plan)

    def _adopt(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        """that COMMIT is adopted, for everybody who can still be notified; the leader of a merge gets a refusal"""
        assert frame.decided is not None
        return self._roles.part.round_lost("the view ended otherwise") + self._commit(frame.decided, now)

    def _note_ready(self, source: Address, frame: Ready, now: int) -> list[Effect]:
        """wait for the others"""
        current = self._round
        current.ready.add(source)
        if source == self._context.local:
            current.log = LogCheckpoint(frame.position, frame.producers)
        return []

    def _commit_own(self, source: Address, frame: Ready, now: int) -> list[Effect]:
        """COMMIT to all, repeated by the commit announcer"""
        current = self._round
        effects = self._note_ready(source, frame, now)
        assert current.plan is not None
        return effects + self._commit(replace(current.plan.decision, **current.log._asdict()), now)

    def _tell_leader_ready(self, source: Address, frame: Ready, now: int) -> list[Effect]:
        """MERGE_READY, and wait for the leader's commit"""
        current = self._round
        effects = self._note_ready(source, frame, now)
        current.until = now + IN_DOUBT_ANSWERS * current.answer_ns
        return effects + self._roles.part.all_ready(current)

    def _commit(self, decision: Decision, now: int) -> list[Effect]:
        """COMMIT to all, repeated by the commit announcer"""
        context, current = self._context, self._round
        frame = Commit(context.view.id, current.ballot, decision)
        self.round = None
        effects = self._roles.part.round_over()
        others = [member for member in current.participants if member != context.local]
        effects += self._roles.announcer.announce(frame, others, now + current.answer_ns)
        return effects + context.send(context.local, frame)

    def _cancel(self, is_off: bool, now: int) -> list[Effect]:
        """ABORT, with what is known of the merge"""
        return self._call_off(is_off=is_off) + self.reconsider(now)

    def _stand_back(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        """ABORT: ours will never be committed; the leader of a merge gets a refusal"""
        context, part = self._context, self._roles.part
        is_off = not part.is_in_doubt
        context.highest_round = max(context.highest_round, frame.promised.round)
        self._stands_back_until = now + context.answer_ns
        refusal = part.round_lost("another coordinator is changing this part")
        return refusal + self._call_off(is_off=is_off)

    def _ask_again(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        """PREPARE or CUT again"""
        return self._context.send(source, self._question(self._round))

    def _abort_old(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        """ABORT for that ballot: no plan of ours was committed in this view, only that of a merge may be, by others"""
        is_off = not self._roles.participant.doubts
        return self._context.send(source, Abort(self._context.view.id, frame.promised, is_off))

    def _send_commit(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        """the COMMIT that ended it"""
        assert self._context.ended is not None
        return self._context.send(source, self._context.ended)

    # What follows from the answers

    def _decide(self, current: Round) -> Decision:
        context = self._context
        members = current.staying or (context.local,)  # where all leave, the coordinator is the last to go
        record = current.record
        view_id = context.next_id(max(record.highest_number, context.view.id.number))
        bootstrappers = [member for member in members if member in current.bootstrapping]
        lacking = current.lacking(members)
        counted = (members, record, current.leavers, bootstrappers, current.chains)
        following = View(view_id, members, self.is_primary_with(*counted, lacking=lacking))
        cut = current.cut
        ends = {sender: seqno for sender, seqno, _, _ in cut}
        digest = tuple((member.incarnation, ends[member.incarnation]) for member in members)
        return Decision(cut, following, digest, (), lacking, context.epoch, agreed=current.agreed)

    def is_primary_with(
        self,
        members: Sequence[Address],
        record: PrimaryRecord,
        leavers: Collection[Address],
        bootstrappers: Sequence[Address],
        chains: Collection[int],
        lacking: Collection[int],
    ) -> bool:
        """Where nobody knows of a view that was installed as primary, the group is still to be bootstrapped.

        Where nobody has the application's state, the log waits: whoever comes back with the state has then missed
        nothing of the log.
        """
        config = self._context.config
        if config.partitions == "all":
            return True
        if lacks_everywhere(members, lacking):
            return False
        is_new = record.last is None and not config.static_quorum
        if is_new and not self._context.callbacks.may_bootstrap(bootstrappers):
            return False
        return is_primary(members, [record], leavers, config.static_quorum, set(chains))

    # Inputs and actions: time

    def time_out_rounds(self, now: int) -> list[Effect]:
        effects = self._roles.announcer.time_out(now)
        if self.state is State.STANDING_BACK and now >= self._stands_back_until:
            effects += self.fire(Input.STAND_BACK_OVER, now)
        if self.round is not None and now >= self.round.until:
            effects += self._round_due(self.round, now)
        elif self.round is None:
            effects += self._roles.participant.check_proposer(now)
        return effects

    def _round_due(self, current: Round, now: int) -> list[Effect]:
        """Somebody in our part is late, or the leader of a merge is."""
        if not current.late:
            return self.fire(Input.PART_TIMEOUT, now)
        if self._prolong(current, now):
            return []
        if self._roles.part.is_bound and self.is_any_busy(current.late, now):
            return self._roles.part.round_lost("a member of this part is busy; later") + self.fire(
                Input.PART_TIMEOUT, now
            )
        return self.fire(Input.SILENCE, now)

    def _prolong(self, current: Round, now: int) -> bool:
        """Whoever is late and still received from is alive and slow, on a processor or a network that is overloaded.

        It gets some more time, because to remove it costs two view changes. In a merge others wait for our part.
        """
        late = [member for member in current.late if member != self._context.local]
        was_alive = self._context.callbacks.was_alive
        is_slow = late and all(was_alive(member, now - current.answer_ns) for member in late)
        if not is_slow or current.extensions >= (1 if self._roles.part.is_bound else MOST_EXTENSIONS):
            return False
        current.extensions += 1
        current.until = now + current.answer_ns
        return True

    def _go_without(self, now: int) -> list[Effect]:
        """time it out, and look again: ballot + 1, PREPARE without it; the leader of a merge gets a refusal"""
        late = self._round.late
        return self._roles.part.round_lost("a member of this part is silent") + self.time_out(late, now)

    def time_out(self, members: list[Address], now: int) -> list[Effect]:
        """Continue without them. Where that is not ours to do any more, nobody stays frozen by our ballot.

        Where we are the only one who is late, there is nobody to exclude: the next ballot tries again.
        """
        others = [member for member in members if member != self._context.local]
        self._context.timed_out.update(others)
        self._roles.participant.waits_since = now
        current = self.round
        effects = [FlushTimedOut(member) for member in others] + self.reconsider(now)
        if current is None or self.round is not current:
            return effects
        return effects + self.fire(Input.STILL_LATE, now)

    def _give_up_round(self, now: int) -> list[Effect]:
        """ABORT, off unless we are in doubt; then look again"""
        return self._call_off(is_off=not self._roles.part.is_in_doubt) + self.reconsider(now)

    def _try_again(self, now: int) -> list[Effect]:
        """look again whether a change is needed"""
        return self.reconsider(now)

    def repeat(self, in_flight: Round | None, now: int) -> list[Effect]:
        """What was not answered is sent again; a round that has only just begun has asked everybody already."""
        effects = self._roles.announcer.retry()
        current = self.round
        if current is not None and current is in_flight:
            effects += self._context.send_to_all(current.late, self._question(current))
            effects += self._roles.part.retry(current)
        if current is None:
            effects += self._roles.participant.check_answer(now)
        return effects + self.ask_to_leave(now)

    def excuse_pause(self, late_ns: int) -> None:
        if self.round is not None:
            self.round.until += late_ns

    @property
    def _round(self) -> Round:
        assert self.round is not None, f"{self.state} without a round"
        return self.round

    # Transitions

    _IN_ANY_STATE: ClassVar[Rows] = {
        Input.PREPARED_STALE: Transition(repeated),
        Input.READY_STALE: Transition(repeated),
        Input.NACK_ENDED: Transition(_send_commit),
        Input.NACK_OLD_BALLOT: Transition(_abort_old),
        Input.NACK_STALE: Transition(repeated),
        Input.LEAVE_REQUEST: Transition(_note_leaver),
        Input.LEAVE_STALE: Transition(repeated),
    }
    _DURING_A_ROUND: ClassVar[Rows] = {
        Input.CHANGE_NEEDED: Transition(_begin, State.COLLECT),
        Input.CHANGE_NOT_NEEDED: Transition(_no_longer_needed, State.IDLE),
        Input.MERGE_CANCELLED: Transition(_cancel, State.IDLE),
        Input.NACK_HIGHER: Transition(_stand_back, State.STANDING_BACK),
        Input.NACK_QUESTION: Transition(_ask_again),
        Input.SUPERSEDED: Transition(_lose_round, State.IDLE),
        Input.VIEW_ENDED: Transition(_lose_round, State.IDLE),
        Input.SILENCE: Transition(_go_without),
        Input.PART_TIMEOUT: Transition(_give_up_round, State.IDLE),
        Input.STILL_LATE: Transition(_give_up_round, State.IDLE),
    }
    TABLE: ClassVar[Table] = {
        **in_states(State, _IN_ANY_STATE),
        **in_states(IN_ROUND, _DURING_A_ROUND),
        **in_states(NO_ROUND, {Input.VIEW_ENDED: Transition(_end_without_round, State.IDLE)}),
        (State.IDLE, Input.CHANGE_NEEDED): Transition(_begin, State.COLLECT),
        (State.STANDING_BACK, Input.CHANGE_NEEDED): Transition(_wait_for_the_other),
        (State.STANDING_BACK, Input.STAND_BACK_OVER): Transition(_try_again, State.IDLE),
        (State.COLLECT, Input.PREPARED): Transition(_note_answer),
        (State.COLLECT, Input.PREPARED_BY_ALL): Transition(_decide_and_cut, State.CUTTING),
        (State.COLLECT, Input.PREPARED_FOR_MERGE): Transition(_answer_leader),
        (State.COLLECT, Input.PREPARED_ENDED): Transition(_adopt, State.IDLE),
        (State.COLLECT, Input.MERGE_PLANNED): Transition(_cut, State.CUTTING),
        (State.CUTTING, Input.READY): Transition(_note_ready),
        (State.CUTTING, Input.READY_OF_ALL): Transition(_commit_own, State.IDLE),
        (State.CUTTING, Input.READY_FOR_MERGE): Transition(_tell_leader_ready),
        (State.CUTTING, Input.MERGE_COMMITTED): Transition(_commit, State.IDLE),
    }
