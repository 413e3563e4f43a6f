"""A participant in the change of its view: it promises a ballot, stops, reports, fetches, installs what is decided.

Every member is one. Its states, inputs and transitions stand in the enums and the `TABLE` below; the ballots and the
argument why survivors agree are in docs/design/membership.md.

A part of a merge that has said READY cannot know whether the others went on to the merged view. So it never goes back
to the view that it was in: it ends that view in another way, and whether the next one may be primary is decided in the
knowledge of the attempt.

Invariants: `promised` never falls within a view; nothing is promised to two ballots at once; a COMMIT is accepted only
under the promised ballot and with its cut held; views are installed in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_BALLOT, NO_VIEW, View, ViewId
from motet.protocol.membership.context import IN_DOUBT_ANSWERS, Roles, ViewContext
from motet.protocol.membership.interface import Cuts, Left, ViewInstalled
from motet.protocol.membership.primary import PrimaryRecord, named_chain
from motet.protocol.membership.round import quads
from motet.protocol.membership.transitions import Rows, StateMachine, Table, Transition, in_states, repeated
from motet.protocol.window.digest import DigestEntry
from motet.protocol.wire.frames import (
    Abort,
    AgreedNumbers,
    Commit,
    CutTo,
    Decision,
    Installed,
    LogCheckpoint,
    MemberReport,
    Nack,
    Prepare,
    Prepared,
    Ready,
    StateNeed,
)


class ParticipantState(Enum):
    STEADY = "STEADY"  # messages flow
    FROZEN = "FROZEN"  # a ballot is promised, and nothing is delivered beyond what was reported
    FETCHING = "FETCHING"  # the cut is known, and we do not hold all of it yet
    READY = "READY"  # the cut is held and the attempt is recorded
    LEFT = "LEFT"  # our graceful leave is decided; the others may still need answers


class ParticipantInput(Enum):
    PREPARE = "PREPARE(b), b > promised"
    PREPARE_AGAIN = "PREPARE(b), b = promised"
    PREPARE_LOWER = "PREPARE(b), b < promised"
    PREPARE_ENDED = "PREPARE for the view before"
    PREPARE_AHEAD = "PREPARE of a later view, from a member of ours"
    PREPARE_MISPLACED = "PREPARE of another view, or of a stranger"
    CUT = "CUT(b), b = promised"
    CUT_LOWER = "CUT(b), b < promised"
    CUT_MISPLACED = "CUT of another view or ballot, or to a view whose number is not above ours"
    CUT_HELD = "the cut is held"
    COMMIT = "COMMIT(b), b >= promised, READY was said to its view, nothing was delivered or sent beyond its cut"
    COMMIT_LEAVE = "COMMIT(b), b >= promised, of a view that we leave, and its cut is held"
    COMMIT_LEFT_BEHIND = "COMMIT(b), b >= promised, of a view that we leave, and its cut is not held"
    COMMIT_FOREIGN = "COMMIT(b), b >= promised, and we cannot follow: not READY since we stopped, further, or not in it"
    COMMIT_AGAIN = "COMMIT of the view that we have installed"
    COMMIT_LOWER = "COMMIT(b), b < promised"
    COMMIT_MISPLACED = "COMMIT of another view, or to a view whose number is not above ours"
    ABORT = "ABORT(b), b = promised"
    ABORT_IN_DOUBT = "ABORT(b), b = promised, READY was said to a merged view, and nobody says that it is off"
    ABORT_MISPLACED = "ABORT of another view or ballot"
    ANSWER_OVERDUE = "nothing for one `answer`, and no round of our own"
    PROPOSER_SILENT = "nothing for 4 `answer`, and no round of our own"
    SEPARATE = "we have the state that nobody else in the view has, and do not coordinate"
    LAST_LEAVES = "we leave, and are alone in the view"


State, Input = ParticipantState, ParticipantInput
FLUSHING = (State.FROZEN, State.FETCHING, State.READY)


class Participant(StateMachine[ParticipantState, ParticipantInput]):
    def __init__(self, context: ViewContext, roles: Roles) -> None:
        super().__init__(State.STEADY, context.counters)
        self._context = context
        self._roles = roles
        self.promised = NO_BALLOT
        self.waits_since = 0  # while frozen: when the flush last made progress here
        self.plan: CutTo | None = None  # what we are fetching
        self.readied: set[ViewId] = set()  # the views that we said READY to since we stopped
        self.doubts: set[ViewId] = set()  # the merged ones of them that other parts may have installed without us
        self.covered: int | None = None  # how much of the one log our application had when the last view ended

    @property
    def has_left(self) -> bool:
        return self.state is State.LEFT

    @property
    def is_frozen(self) -> bool:
        return self.state in FLUSHING

    # Inputs: PREPARE

    def on_prepare(self, source: Address, frame: Prepare, now: int) -> list[Effect]:
        return self.fire(self._prepare_input(source, frame), source, frame, now)

    def _prepare_input(self, source: Address, frame: Prepare) -> ParticipantInput:
        context = self._context
        if context.ended is not None and frame.view == context.ended.view:
            return Input.PREPARE_ENDED
        if frame.view.number > context.view.id.number and source in context.view:
            return Input.PREPARE_AHEAD
        if frame.view != context.view.id or source not in context.view:
            return Input.PREPARE_MISPLACED
        if frame.ballot < self.promised:
            return Input.PREPARE_LOWER
        return Input.PREPARE_AGAIN if frame.ballot == self.promised else Input.PREPARE

    def _answer_with_commit(self, source: Address, frame: Prepare, now: int) -> list[Effect]:
        """PREPARED with the COMMIT that ended it"""
        return self._context.send(source, self._answer(frame, {}, (), self._context.ended))

    def _say_what_we_missed(self, source: Address, frame: Prepare, now: int) -> list[Effect]:
        """NACK that names our view: we missed how it ended"""
        context = self._context
        return context.send(source, Nack(context.view.id, self.promised, self.promised))

    def _refuse_ballot(self, source: Address, frame: Prepare | CutTo | Commit, now: int) -> list[Effect]:
        """NACK(promised): a later coordinator may have decided otherwise"""
        return self._context.send(source, Nack(frame.view, frame.ballot, self.promised))

    def _promise(self, source: Address, frame: Prepare, now: int) -> list[Effect]:
        """promised = b; `freeze()`; PREPARED with every stream as it holds it ([below](#what-prepared-carries))"""
        plan, ballot = self.plan, frame.ballot
        if plan is not None and plan.ballot.proposer == ballot.proposer and frame.voids:
            self._call_off_plan(plan)  # a proposer that begins again will not commit what it planned
        self.promised = ballot
        self._context.highest_round = max(self._context.highest_round, ballot.round)
        self.plan = None
        superseded = self._roles.coordinator.superseded(ballot)
        return superseded + self._report(source, frame, now)

    def _report(self, source: Address, frame: Prepare, now: int) -> list[Effect]:
        """PREPARED again; reports no more than the first time"""
        self.waits_since = now
        return self._context.send(source, self._answer(frame, *self._context.channel.freeze(), None))

    def _answer(
        self, frame: Prepare, digest: Mapping[Address, DigestEntry], agreed: AgreedNumbers, ended: Commit | None
    ) -> Prepared:
        context = self._context
        record, need = context.record, context.callbacks.state_need
        report = MemberReport(
            quads(digest),
            record.last,
            record.attempts,
            context.epoch,
            context.channel.position,
            named_chain(context.chain, record),
            is_complete=context.channel.is_caught_up and need not in (StateNeed.LACKING, StateNeed.DISPENSABLE),
        )
        bootstraps = context.callbacks.counts_for_bootstrap
        decided = ended.decision if ended else None
        return Prepared(frame.view, frame.ballot, report, need, bootstraps, decided, agreed)

    # Inputs: CUT

    def on_cut(self, source: Address, frame: CutTo, now: int) -> list[Effect]:
        effects = self.fire(self._cut_input(frame), source, frame, now)
        return effects + self.progressed(now)

    def _cut_input(self, frame: CutTo) -> ParticipantInput:
        context = self._context
        if frame.view == context.view.id and frame.ballot < self.promised:
            return Input.CUT_LOWER
        is_ours = frame.view == context.view.id and frame.ballot == self.promised
        return Input.CUT if is_ours and context.is_above_ours(frame.decision.following) else Input.CUT_MISPLACED

    def _fetch(self, source: Address, frame: CutTo, now: int) -> list[Effect]:
        """`fetch(cut)` from those who hold what we miss"""
        self.waits_since = now
        if self.plan == frame:
            return []
        self.plan = frame
        return self._context.channel.fetch(self._context.cut(frame.decision.cut), now)

    def _say_ready_again(self, source: Address, frame: CutTo, now: int) -> list[Effect]:
        """READY again"""
        self.waits_since = now
        return self._context.send(source, self._readiness(frame))

    def progressed(self, now: int) -> list[Effect]:
        """The channel may have got what it was fetching."""
        plan = self.plan if self.state is State.FETCHING else None
        if plan is None or not self._context.channel.is_complete(self._context.cut(plan.decision.cut)):
            return []
        return self.fire(Input.CUT_HELD, plan, now)

    def _say_ready(self, plan: CutTo, now: int) -> list[Effect]:
        """record the attempt and what it counted, then READY: so it is recorded before anybody can install it"""
        context, following = self._context, plan.decision.following
        self.readied.add(following.id)
        if plan.decision.subviews:
            self.doubts.add(following.id)
        self.waits_since = now
        context.record = context.record.attempted(following, PrimaryRecord(plan.last, plan.attempts))
        return context.send(context.member(plan.ballot.proposer), self._readiness(plan))

    def _readiness(self, plan: CutTo) -> Ready:
        decision, context = plan.decision, self._context
        log_continues = self._is_continued(decision)
        log = context.channel.log_after(context.cut(decision.cut), decision.agreed, log_continues=log_continues)
        return Ready(plan.view, plan.ballot, *log)

    def _is_continued(self, decision: Decision) -> bool:
        """Our log continues in the view that follows, and those who join from other parts take it over."""
        is_first = not decision.subviews or decision.subviews[0].id == self._context.view.id
        return is_first and decision.following.is_primary

    # Inputs: COMMIT

    def on_commit(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        return self.fire(self._commit_input(frame), source, frame, now)

    def _commit_input(self, frame: Commit) -> ParticipantInput:
        context, following = self._context, frame.decision.following
        if context.ended is not None and following == context.ended.decision.following:
            return Input.COMMIT_AGAIN
        if frame.view == context.view.id and frame.ballot < self.promised:
            return Input.COMMIT_LOWER
        if frame.view != context.view.id or not context.is_above_ours(following):
            return Input.COMMIT_MISPLACED
        is_leaving = context.local in context.leavers or context.wants_to_leave
        if context.local not in following and not is_leaving:
            return Input.COMMIT_FOREIGN
        cut = context.cut(frame.decision.cut)
        if context.local in following and not self._is_where_we_stand(following, cut):
            return Input.COMMIT_FOREIGN
        if not context.channel.is_complete(cut):
            return Input.COMMIT_LEFT_BEHIND
        return Input.COMMIT if context.local in following else Input.COMMIT_LEAVE

    def _is_where_we_stand(self, following: View, cut: Cuts) -> bool:
        """Whether we have delivered what all who go there have delivered: no less, and no more.

        We said READY to it. A coordinator that did not know of that may have taken us further since, or thawed us;
        then the others went there without us.
        """
        return following.id in self.readied and self._context.channel.is_within(cut)

    def _confirm(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        """INSTALLED again"""
        return self._context.send(source, Installed(frame.decision.following.id))

    def _install(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        """keep the COMMIT; `end_view()`; `begin_view()`; INSTALLED"""
        effects = self._end_view(frame) + self._enter(frame.decision, now)
        return effects + self._context.send(source, Installed(frame.decision.following.id))

    def _leave(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        """keep the COMMIT; `end_view()`; record the view that follows; INSTALLED"""
        effects = self._end_view(frame) + self._remember_leaving(frame.decision.following)
        return effects + self._context.send(source, Installed(frame.decision.following.id))

    def _leave_behind(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        """the same without delivering anything: the others did not wait for us, and nobody keeps what we lack"""
        self._context.ended = frame
        effects = self._context.channel.end_view({}, (), log_continues=False)
        return effects + self._remember_leaving(frame.decision.following)

    def _end_view(self, frame: Commit) -> list[Effect]:
        context, decision = self._context, frame.decision
        log_continues = self._is_continued(decision)
        effects = context.channel.end_view(context.cut(decision.cut), decision.agreed, log_continues=log_continues)
        context.ended = frame
        return effects

    def _remember_leaving(self, following: View) -> list[Effect]:
        """Our durable state names the view without us: it came after all that we were in."""
        self._context.record = self._context.record.installed(following)
        return self.leave_when_free()

    def leave_when_free(self) -> list[Effect]:
        """A coordinator that leaves is free once the others have the view without it, and the merge that it led."""
        is_free = self._roles.announcer.is_idle and self._roles.leader.is_idle
        return [Left()] if self.has_left and is_free else []

    def leave_as_the_last(self) -> list[Effect]:
        return self.fire(Input.LAST_LEAVES)

    def _leave_alone(self) -> list[Effect]:
        """end whatever round or merge is in flight"""
        effects = self._roles.coordinator.drop("the last member of this part has left")
        return effects + self._roles.leader.own_part_lost() + self.leave_when_free()

    def separate(self, now: int) -> list[Effect]:
        return self.fire(Input.SEPARATE, now)

    def _follow_alone(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        """go on alone, not primary, until a merge"""
        return self._begin_alone(now)

    def _begin_alone(self, now: int) -> list[Effect]:
        """end the view without delivering anything, and begin one of our own, not primary, until a merge"""
        context = self._context
        alone = View(context.next_id(0), (context.local,), is_primary=context.config.partitions == "all")
        is_lacking = context.callbacks.state_need is StateNeed.LACKING
        decision = Decision((), alone, (), (), (context.local.incarnation,) if is_lacking else ())
        return context.channel.end_view({}, (), log_continues=False) + self._enter(decision, now)

    def _enter(self, decision: Decision, now: int) -> list[Effect]:
        context = self._context
        before, view = context.view.id, decision.following
        context.view = view
        context.record = context.record.installed(view)
        context.highest_number = max(context.highest_number, view.id.number)
        context.counters[Count.VIEW_CHANGED] += 1
        effects = self._roles.coordinator.view_ended()
        self._forget_the_old_view()
        known = {member.incarnation: member for member in view.members}
        digest = {known[incarnation]: seqno for incarnation, seqno in decision.digest if incarnation in known}
        has_log = context.epoch != NO_VIEW and context.config.partitions != "all"
        self.covered = (context.channel.position or None) if has_log else None
        taken_over = self._take_over(decision, before)
        position = context.channel.position if taken_over is None else taken_over.position
        rolled_back = context.channel.take_over(taken_over) if taken_over is not None else []
        begun = context.channel.begin_view(view, digest, now)
        installed = ViewInstalled(view, decision.subviews, decision.lacking, position)
        return [*rolled_back, installed, *effects, *begun, *self._roles.coordinator.view_begun(now)]

    def _take_over(self, decision: Decision, before: ViewId) -> LogCheckpoint | None:
        """Whose log and state we share from now on; the result is where that log stands, if it was not ours."""
        is_joining = bool(decision.subviews) and decision.subviews[0].id != before
        has_state = any(member.incarnation not in decision.lacking for member in decision.following.members)
        if decision.following.is_primary and has_state:
            self._context.epoch = decision.following.id
        elif is_joining:
            self._context.epoch = decision.epoch
        return LogCheckpoint(decision.position, decision.producers) if is_joining else None

    def _forget_the_old_view(self) -> None:
        context = self._context
        self.promised, context.highest_round = NO_BALLOT, 0
        self._resume()
        context.timed_out.clear()
        context.leavers = {member for member in context.leavers if member in context.view}
        context.suspects = {member for member in context.suspects if member in context.view}

    def _resume(self) -> None:
        self.plan = None
        self.readied.clear()
        self.doubts.clear()

    # Inputs: ABORT

    def on_abort(self, frame: Abort, now: int) -> list[Effect]:
        if frame.view != self._context.view.id or frame.ballot != self.promised:
            return self.fire(Input.ABORT_MISPLACED, frame, now)
        planned = {self.plan.decision.following.id} if self.plan is not None and frame.is_off else set()
        return self.fire(Input.ABORT_IN_DOUBT if self.doubts - planned else Input.ABORT, frame, now)

    def _thaw(self, frame: Abort, now: int) -> list[Effect]:
        """`thaw()`; what READY was said to is not ours to enter any more; the attempt is forgotten only if nobody can
        have installed it (`is_off`)"""
        if self.plan is not None and frame.is_off:
            self._call_off_plan(self.plan)
        self._resume()
        return self._context.channel.thaw(now)

    def _stay_frozen(self, frame: Abort, now: int) -> list[Effect]:
        """stays frozen; the coordinator begins another round ([why](#why-there-is-one-primary))"""
        if self.plan is not None and frame.is_off:
            self._call_off_plan(self.plan)
        self.plan, self.waits_since = None, now
        return []

    def _call_off_plan(self, plan: CutTo) -> None:
        """Nobody has installed what this planned, and nobody will."""
        self._context.record = self._context.record.called_off(plan.decision.following)
        self.doubts.discard(plan.decision.following.id)

    # Inputs: time

    def check_proposer(self, now: int) -> list[Effect]:
        """Whoever froze us repeats itself while it is at it, so a long silence means that it is gone."""
        is_silent = self.is_frozen and now - self.waits_since >= IN_DOUBT_ANSWERS * self._context.answer_ns
        return self.fire(Input.PROPOSER_SILENT, now) if is_silent else []

    def check_answer(self, now: int) -> list[Effect]:
        is_overdue = self.is_frozen and now - self.waits_since >= self._context.answer_ns
        return self.fire(Input.ANSWER_OVERDUE) if is_overdue else []

    def _give_up_proposer(self, now: int) -> list[Effect]:
        """time out the proposer, then whoever should have taken over"""
        context = self._context
        proposer = context.member(self.promised.proposer)
        awaited = proposer if proposer not in context.distrusted else context.acting_coordinator or context.local
        return self._roles.coordinator.time_out([awaited], now)

    def _ask_around(self) -> list[Effect]:
        """ask all who are trusted how the view ended (a NACK that names our view and ballot)"""
        context = self._context
        others = [member for member in context.trusted if member != context.local]
        return context.send_to_all(others, Nack(context.view.id, self.promised, self.promised))

    def excuse_pause(self, late_ns: int) -> None:
        self.waits_since += late_ns

    # Transitions

    _IN_ANY_VIEW: ClassVar[Rows] = {
        Input.PREPARE_LOWER: Transition(_refuse_ballot),
        Input.PREPARE_ENDED: Transition(_answer_with_commit),
        Input.PREPARE_AHEAD: Transition(_say_what_we_missed),
        Input.CUT_LOWER: Transition(_refuse_ballot),
        Input.COMMIT: Transition(_install, State.STEADY),
        Input.COMMIT_LEAVE: Transition(_leave, State.LEFT),
        Input.COMMIT_LEFT_BEHIND: Transition(_leave_behind, State.LEFT),
        Input.COMMIT_FOREIGN: Transition(_follow_alone, State.STEADY),
        Input.COMMIT_AGAIN: Transition(_confirm),
        Input.COMMIT_LOWER: Transition(_refuse_ballot),
        Input.ABORT_MISPLACED: Transition(repeated),
        Input.LAST_LEAVES: Transition(_leave_alone, State.LEFT),
    }
    _WHILE_FLUSHING: ClassVar[Rows] = {
        Input.PREPARE: Transition(_promise, State.FROZEN),
        Input.PREPARE_AGAIN: Transition(_report),
        Input.ABORT: Transition(_thaw, State.STEADY),
        Input.ABORT_IN_DOUBT: Transition(_stay_frozen, State.FROZEN),
        Input.ANSWER_OVERDUE: Transition(_ask_around),
        Input.PROPOSER_SILENT: Transition(_give_up_proposer),
    }
    TABLE: ClassVar[Table] = {
        **in_states((State.STEADY, *FLUSHING), _IN_ANY_VIEW),
        **in_states(FLUSHING, _WHILE_FLUSHING),
        (State.STEADY, Input.PREPARE): Transition(_promise, State.FROZEN),
        (State.STEADY, Input.PREPARE_AGAIN): Transition(repeated),
        (State.STEADY, Input.ABORT): Transition(repeated),
        (State.STEADY, Input.SEPARATE): Transition(_begin_alone),
        (State.FROZEN, Input.CUT): Transition(_fetch, State.FETCHING),
        (State.FETCHING, Input.CUT): Transition(_fetch),
        (State.FETCHING, Input.CUT_HELD): Transition(_say_ready, State.READY),
        (State.READY, Input.CUT): Transition(_say_ready_again),
        (State.LEFT, Input.PREPARE_ENDED): Transition(_answer_with_commit),
        (State.LEFT, Input.PREPARE_AHEAD): Transition(_say_what_we_missed),
        (State.LEFT, Input.COMMIT_AGAIN): Transition(_confirm),
        (State.LEFT, Input.COMMIT_LOWER): Transition(_refuse_ballot),
    }
