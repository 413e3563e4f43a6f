"""The view-change engine: how all survivors end one view together and begin the next. One engine per member.

It is composed of five roles, each a state machine with one table (transitions.py):

    Participant      every member: promises a ballot, stops, reports, fetches, installs      participant.py
    Coordinator      the most senior member that is not suspected: ends the view             coordinator.py
    CommitAnnouncer  repeats the COMMIT of a coordinator                                     announcer.py
    MergePart        a coordinator, for the leader of a merge                                merge_part.py
    MergeLeader      the coordinator that brings several views into one                      merge_leader.py

The engine connects them, hands each frame to the role that it is for, and keeps the one timer. What a member sends to
itself takes the same path as what it sends to others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from motet.errors import MisuseError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.settling import steps
from motet.protocol.core.view import NO_VIEW, View, ViewId, ViewSummary
from motet.protocol.membership.announcer import CommitAnnouncer
from motet.protocol.membership.context import Roles, ViewContext
from motet.protocol.membership.coordinator import NO_ROUND, Coordinator
from motet.protocol.membership.interface import (
    EngineConfig,
    FlushTarget,
    FlushTimedOut,
    Left,
    MembershipCallbacks,
    MergeFailed,
    MergeUnanswered,
    ViewInstalled,
)
from motet.protocol.membership.merge_leader import MergeLeader
from motet.protocol.membership.merge_part import MergePart
from motet.protocol.membership.participant import Participant, ParticipantState
from motet.protocol.membership.plausible import Known, is_entered, is_plausible
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.wire.frames import (
    Abort,
    Commit,
    CutTo,
    Installed,
    LeaveRequest,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeRequest,
    MergeResponse,
    MergeView,
    Nack,
    Prepare,
    Prepared,
    Ready,
)

__all__ = [
    "FRAMES",
    "EngineConfig",
    "FlushTarget",
    "FlushTimedOut",
    "Left",
    "MembershipCallbacks",
    "MergeFailed",
    "MergeUnanswered",
    "ViewEngine",
    "ViewInstalled",
]

MERGE_FRAMES = (MergeRequest, MergeRefusal, MergeResponse, MergeView, MergeReady, MergeCommit, MergeCancel)
FRAMES = (Prepare, Prepared, CutTo, Ready, Commit, Installed, Abort, Nack, LeaveRequest, *MERGE_FRAMES)
AFTER_LEAVING = (Prepare, Commit, Installed, MergeReady, MergeCommit)  # what one who is gone still owes the others
WITH_A_PLAN = (ParticipantState.FETCHING, ParticipantState.READY)


class ViewEngine:
    def __init__(
        self,
        local: Address,
        view: View,
        channel: FlushTarget,
        config: EngineConfig,
        counters: Counters,
        record: PrimaryRecord | None = None,
        callbacks: MembershipCallbacks | None = None,
        *,
        epoch: ViewId = NO_VIEW,
        chain: tuple[int, ...] = (),
    ) -> None:
        self._context = ViewContext(local, view, channel, config, counters, record, callbacks, epoch, chain)
        self._roles = Roles()
        self._roles.participant = self.participant = Participant(self._context, self._roles)
        self._roles.coordinator = self.coordinator = Coordinator(self._context, self._roles)
        self._roles.announcer = self.announcer = CommitAnnouncer(self._context, self._roles)
        self._roles.part = self.part = MergePart(self._context, self._roles)
        self._roles.leader = self.leader = MergeLeader(self._context, self._roles)
        self._retry_at: int | None = None

    # What others may look at

    @property
    def view(self) -> View:
        return self._context.view

    @property
    def record(self) -> PrimaryRecord:
        return self._context.record

    @property
    def epoch(self) -> ViewId:
        """The last primary view whose log and state we share."""
        return self._context.epoch

    @property
    def chain(self) -> tuple[int, ...]:
        """Our earlier incarnations, whose durable state we have."""
        return self._context.chain

    @property
    def covered(self) -> int | None:
        """How much of the one log our application had when the last view ended."""
        return self.participant.covered

    @property
    def has_left(self) -> bool:
        return self.participant.has_left

    @property
    def is_frozen(self) -> bool:
        return self.participant.is_frozen

    @property
    def acting_coordinator(self) -> Address | None:
        return self._context.acting_coordinator

    @property
    def is_idle(self) -> bool:
        """Nothing is being changed, as far as we know."""
        is_changing = not self.coordinator.is_idle or not self.leader.is_idle or self.is_frozen
        return not (is_changing or self.has_left)

    # What the failure detector and the application say

    def suspect(self, suspects: Collection[Address], now: int) -> list[Effect]:
        """These, and only these, are suspected now."""
        return self._settle(self.coordinator.on_suspects(suspects, now), now)

    def leave(self, now: int) -> list[Effect]:
        self._context.wants_to_leave = True
        return self._settle(self.coordinator.ask_to_leave(now), now)

    def form_again(self, now: int) -> list[Effect]:
        """The same members in a new view, because it may be primary now."""
        return self._settle(self.coordinator.begin_round(now), now) if self._may_act else []

    def separate(self, now: int) -> list[Effect]:
        """Be a view of our own until the next merge: so the others learn how we stand to the state now."""
        return self._settle(self.participant.separate(now), now) if self.is_idle else []

    def lead_merge(self, parts: Sequence[ViewSummary], now: int) -> list[Effect]:
        """Merge our view with these."""
        return self._settle(self.leader.lead(parts, now), now) if self._may_act else []

    @property
    def _may_act(self) -> bool:
        return self.is_idle and self.acting_coordinator == self._context.local

    def noticed(self, source: Address, view: ViewId, now: int) -> list[Effect]:
        """`source` says that it is in another view than ours: one of us missed how the one before ended."""
        context = self._context
        if context.ended is not None and view == context.ended.view:
            return self._settle(context.send(source, context.ended), now)
        if view > self.view.id and source in self.view:
            promised = self.participant.promised
            return self._settle(context.send(source, Nack(self.view.id, promised, promised)), now)
        return []

    # What the network and the clock bring

    def receive(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        if source != self._context.local and not self._is_sensible(frame):
            self._context.counters[Count.FRAME_MISPLACED] += 1
            return []
        return self._settle(self._handle(source, frame, now), now)

    def _is_sensible(self, frame: Frame) -> bool:
        context = self._context
        alone, record = (context.local,), context.record
        views = [view for view in (context.view, record.last, *record.attempts) if view is not None]
        known = Known(context.highest_number, context.highest_round, context.channel.position)
        is_new = all(view.members == alone for view in views)
        return is_plausible(frame, known, is_new=is_new) and is_entered(frame, context.view.members)

    def progressed(self, now: int) -> list[Effect]:
        """The channel may have got what it was fetching."""
        return self._settle(self.participant.progressed(now), now)

    def tick(self, now: int) -> list[Effect]:
        if self._retry_at is None or now < self._retry_at:
            return []
        if now - self._retry_at > self._context.config.retry_ns:
            self._excuse_pause(now - self._retry_at)
        self._retry_at, in_flight = None, self.coordinator.round
        effects = self.leader.time_out(now) + self.coordinator.time_out_rounds(now)
        if not self.leader.is_idle:
            effects += self.leader.retry()
        return self._settle(effects + self.coordinator.repeat(in_flight, now), now)

    def _excuse_pause(self, late_ns: int) -> None:
        """We did not run for so long: what others sent meanwhile was not read yet, and they are not late by that."""
        for role in (self.participant, self.coordinator, self.announcer, self.leader):
            role.excuse_pause(late_ns)

    def next_deadline(self) -> int | None:
        return self._retry_at

    # Frames

    def _settle(self, effects: list[Effect], now: int) -> list[Effect]:
        """Handle what we sent to ourselves, until nothing is left; then say when we want to be called again."""
        context = self._context
        for _ in steps("the view-change engine"):
            if not context.to_self:
                break
            effects += self._handle(context.local, context.to_self.pop(0), now)
        is_changing = not self.coordinator.is_idle or self.is_frozen or context.wants_to_leave
        is_done = self.has_left or not is_changing
        if self.announcer.is_idle and self.leader.is_idle and is_done:
            self._retry_at = None
        elif self._retry_at is None:
            self._retry_at = now + context.config.retry_ns
        return effects

    def _handle(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        if self.has_left and not isinstance(frame, AFTER_LEAVING):
            return []
        if isinstance(frame, MERGE_FRAMES):
            return self._handle_merge(source, frame, now)
        match frame:
            case Prepare():
                return self.participant.on_prepare(source, frame, now)
            case Prepared():
                return self.coordinator.on_prepared(source, frame, now)
            case CutTo():
                return self.participant.on_cut(source, frame, now)
            case Ready():
                return self.coordinator.on_ready(source, frame, now)
            case Commit():
                return self.participant.on_commit(source, frame, now)
            case Installed():
                return self.announcer.on_installed(source, frame) + self.leader.on_installed(source, frame)
            case Abort():
                return self.participant.on_abort(frame, now)
            case Nack():
                return self.coordinator.on_nack(source, frame, now)
            case LeaveRequest():
                return self.coordinator.on_leave_request(source, frame, now)
        raise MisuseError(f"{type(frame).__name__} is not a frame of the view-change engine")

    def _handle_merge(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        match frame:
            case MergeRequest():
                return self.part.on_request(source, frame, now)
            case MergeView():
                return self.part.on_plan(source, frame, now)
            case MergeCommit():
                return self.part.on_commit(source, frame, now)
            case MergeCancel():
                return self.part.on_cancel(source, frame, now)
            case MergeResponse():
                return self.leader.on_response(source, frame, now)
            case MergeRefusal():
                return self.leader.on_refusal(source, frame, now)
            case MergeReady():
                return self.leader.on_ready(source, frame, now)
        raise AssertionError(f"{type(frame).__name__} is in MERGE_FRAMES and nobody handles it")

    def _check(self) -> None:
        local, leader, current = self._context.local, self.leader, self.coordinator.round
        assert local in self.view or self.has_left
        assert (leader.attempt is None) == leader.is_idle
        assert leader.attempt is None or leader.attempt.merge.proposer == local.incarnation
        assert (current is None) == (self.coordinator.state in NO_ROUND)
        assert current is None or current.ballot.proposer == local.incarnation
        assert current is not None or not self.part.is_bound, f"{self.part.state} without a round"
        assert (self.announcer.announcement is None) == self.announcer.is_idle
        has_plan = self.participant.plan is not None
        assert self.has_left or has_plan == (self.participant.state in WITH_A_PLAN), self.participant.state
