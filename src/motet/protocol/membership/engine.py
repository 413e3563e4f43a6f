"""The view-change engine: how all who stay end one view together and begin the next. One engine per member.

A member is participant (participant.py) and, when it is the most senior that is not suspected, coordinator
(coordinator.py). This file adds the merge: a coordinator's part in it, and the leader of all coordinators (merge.py).
What a member sends to itself takes the same path as what it sends to others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from motet.errors import MisuseError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.settling import steps
from motet.protocol.core.view import NO_BALLOT, Ballot, ViewId, ViewSummary
from motet.protocol.membership.coordinator import IN_DOUBT_ANSWERS, Coordinator, Round
from motet.protocol.membership.merge import MergeLeader, Phase, Sends
from motet.protocol.membership.participant import (
    EngineConfig,
    Flushed,
    FlushTimedOut,
    Left,
    MergeFailed,
    MergeUnanswered,
    Surroundings,
    ViewInstalled,
    quads,
)
from motet.protocol.membership.plausible import Known, is_entered, is_plausible
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.window.digest import DigestEntry, merge_digests
from motet.protocol.wire.frames import (
    Abort,
    Commit,
    CutTo,
    Decision,
    Installed,
    LeaveRequest,
    LogCheckpoint,
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
    "FlushTimedOut",
    "Flushed",
    "Left",
    "MergeFailed",
    "MergeUnanswered",
    "Surroundings",
    "ViewEngine",
    "ViewInstalled",
]

MERGE_FRAMES = (MergeRequest, MergeRefusal, MergeResponse, MergeView, MergeReady, MergeCommit, MergeCancel)
FRAMES = (Prepare, Prepared, CutTo, Ready, Commit, Installed, Abort, Nack, LeaveRequest, *MERGE_FRAMES)
LEADER_ANSWERS = 3  # answer times that a merge leader waits: each part may have to wait for a silent member, twice
MOST_LEADERS = 64  # whose last merge is remembered
AFTER_LEAVING = (Prepare, Commit, Installed, MergeReady, MergeCommit)  # what one who is gone still owes the others


class ViewEngine(Coordinator):
    _leader: MergeLeader | None = None
    _lead_until = 0
    _merges = 0  # that we began to lead
    _joined_merges: dict[int, Ballot]  # of each leader, by incarnation: the last merge that we prepared our part for
    _led: MergeCommit | None = None  # of the last merge that we committed
    _led_parts: tuple[Address, ...] = ()  # and for whom
    _retry_at: int | None = None

    # What the failure detector and the application say

    def suspect(self, suspects: Collection[Address], now: int) -> list[Effect]:
        """These, and only these, are suspected now."""
        self._suspects = set(suspects)
        return self._settle(self._reconsider(now), now)

    def leave(self, now: int) -> list[Effect]:
        self._wants_to_leave = True
        return self._settle(self._ask_to_leave(now), now)

    def found(self, now: int) -> list[Effect]:
        """The same members in a new view, because it may be primary now."""
        if not self.is_idle or self.acting_coordinator != self._local:
            return []
        return self._settle(self._begin(self._trusted(), self._leaving(), now), now)

    def part(self, now: int) -> list[Effect]:
        """Be a view of our own until the next merge: so the others hear how we stand to the state now."""
        return self._settle(self._go_on_alone(now), now) if self.is_idle else []

    def lead_merge(self, parts: Sequence[ViewSummary], now: int) -> list[Effect]:
        """Merge our view with these."""
        if not self.is_idle or self.acting_coordinator != self._local:
            return []
        self._merges += 1
        merge = Ballot(self._merges, self._local.incarnation)
        views = {self._local: self.view.id} | {part.coordinator: part.id for part in parts}
        has_one_log = self._config.partitions != "all"
        self._leader = MergeLeader(merge, self._local, self.view.id, views, self._answer_ns, has_one_log=has_one_log)
        self._lead_until = now + LEADER_ANSWERS * self._answer_ns
        return self._settle(self._send_all(self._leader.unanswered()), now)

    def noticed(self, source: Address, view: ViewId, now: int) -> list[Effect]:
        """`source` says that it is in another view than ours: one of us missed how the one before ended."""
        if self._ended is not None and view == self._ended.view:
            return self._settle(self._send(source, self._ended), now)
        if view > self.view.id and source in self.view:
            return self._settle(self._send(source, Nack(self.view.id, self._promised, self._promised)), now)
        return []

    @property
    def is_idle(self) -> bool:
        """Nothing is being changed, as far as we know."""
        is_changing = self._round or self._leader or self.is_frozen or self._again_at is not None
        return not (is_changing or self.has_left)

    # What the network and the clock bring

    def receive(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        if source != self._local and not self._is_sensible(frame):
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        return self._settle(self._handle(source, frame, now), now)

    def _is_sensible(self, frame: Frame) -> bool:
        alone, record = (self._local,), self.record
        views = [view for view in (self.view, record.last, *record.attempts) if view is not None]
        known = Known(self._highest_number, self._highest_round, self._channel.position)
        is_new = all(view.members == alone for view in views)
        return is_plausible(frame, known, is_new=is_new) and is_entered(frame, self.view.members)

    def progressed(self, now: int) -> list[Effect]:
        """The channel may have got what it was fetching."""
        return self._settle(self._say_when_ready(now), now)

    def tick(self, now: int) -> list[Effect]:
        if self._retry_at is None or now < self._retry_at:
            return []
        if now - self._retry_at > self._config.retry_ns:
            self._excuse_pause(now - self._retry_at)
        self._retry_at, under_way = None, self._round
        effects = self._time_out_leading(now) + self._time_out_rounds(now)
        if self._leader is not None:
            effects += self._send_all(self._leader.unanswered())
        return self._settle(effects + self._repeat_round(under_way, now), now)

    def next_deadline(self) -> int | None:
        return self._retry_at

    # Frames

    def _settle(self, effects: list[Effect], now: int) -> list[Effect]:
        """Handle what we sent to ourselves, until nothing is left; then say when we want to be called again."""
        for _ in steps("the view-change engine"):
            if not self._to_self:
                break
            effects += self._handle(self._local, self._to_self.pop(0), now)
        is_changing = self._round or self.is_frozen or self._wants_to_leave or self._again_at is not None
        if not self._push and not self._leader and (self.has_left or not is_changing):
            self._retry_at = None
        elif self._retry_at is None:
            self._retry_at = now + self._config.retry_ns
        return effects

    def _send_all(self, sends: Sends) -> list[Effect]:
        return [effect for to, frame in sends for effect in self._send(to, frame)]

    def _handle(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        if self.has_left and not isinstance(frame, AFTER_LEAVING):
            return []
        if isinstance(frame, MERGE_FRAMES):
            return self._handle_merge(source, frame, now)
        match frame:
            case Prepare():
                return self._on_prepare(source, frame, now)
            case Prepared():
                return self._on_prepared(source, frame, now)
            case CutTo():
                return self._on_cut(source, frame, now)
            case Ready():
                return self._on_ready(source, frame, now)
            case Commit():
                return self._on_commit(source, frame, now)
            case Installed():
                return self._on_installed(source, frame)
            case Abort():
                return self._on_abort(frame, now)
            case Nack():
                return self._on_nack(source, frame, now)
            case LeaveRequest():
                return self._on_leave_request(source, frame, now)
        raise MisuseError(f"{type(frame).__name__} is not a frame of the view-change engine")

    def _handle_merge(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        match frame:
            case MergeRequest():
                return self._on_merge_request(source, frame, now)
            case MergeView():
                return self._on_merge_view(source, frame, now)
            case MergeCommit():
                return self._on_merge_commit(source, frame, now)
            case MergeCancel():
                return self._on_merge_cancel(source, frame, now)
            case MergeResponse():
                return self._on_merge_response(source, frame, now)
            case MergeRefusal():
                return self._on_merge_refusal(source, frame, now)
            case MergeReady():
                return self._on_merge_ready(source, frame, now)
        raise AssertionError(f"{type(frame).__name__} is in MERGE_FRAMES and nobody handles it")

    # A coordinator's part in a merge

    def _on_merge_request(self, source: Address, frame: MergeRequest, now: int) -> list[Effect]:
        if self._round is not None and self._round.merge == frame.merge:
            return []  # we are at it, and our answer is repeated
        if (reason := self._why_not(source, frame)) is not None:
            return self._send(source, MergeRefusal(frame.merge, reason))
        self._remember_merge(frame.merge)
        effects = self._begin(self._trusted(), self._leaving(), now)
        if self._round is not None:
            self._round.merge, self._round.leader = frame.merge, source
            self._round.answer_ns = max(self._round.answer_ns, min(frame.answer_ns, self._config.answer_max_ns))
        return effects

    def _remember_merge(self, merge: Ballot) -> None:
        known = self._joined_merges
        known.pop(merge.proposer, None)
        known[merge.proposer] = merge
        if len(known) > MOST_LEADERS:
            del known[next(iter(known))]

    def _why_not(self, leader: Address, frame: MergeRequest) -> str | None:
        """A request that was delayed is refused, too: our answer would be about a view or a round that is over."""
        if self.has_left:
            return "we have left the group"
        if frame.part != self.view.id:
            self._counters[Count.FRAME_MISPLACED] += 1
            return "that view is over"
        if frame.merge <= self._joined_merges.get(frame.merge.proposer, NO_BALLOT):
            self._counters[Count.FRAME_MISPLACED] += 1
            return "that merge is over for this part"
        if leader != self._local and leader in self.view:
            return "we are in one view already"
        if self.acting_coordinator != self._local:
            return "not the coordinator of this part"
        if self._surroundings.is_left_alone(leader):
            return "somebody in this part could not hear you; later"
        is_leading = self._leader is not None and leader != self._local
        return "busy" if self._round or self.is_frozen or is_leading or self._again_at is not None else None

    def _tell_leader(self, current: Round) -> list[Effect]:
        """Our part's answer: the digests at first, later that all are ready. Nothing while we are still at it."""
        if current.leader is None or current.merge is None or current.late:
            return []
        return self._send(
            current.leader,
            MergeReady(current.merge, current.ballot, *current.log) if current.plan else self._response(current),
        )

    def _response(self, current: Round) -> MergeResponse:
        digest: dict[Address, DigestEntry] = {}
        for theirs in self._digests(current).values():
            digest = merge_digests(digest, theirs)
        record = self._record_of(current)
        return MergeResponse(
            current.merge or NO_BALLOT,
            self.view,
            current.ballot,
            tuple(member for member in current.participants if member not in current.leavers),
            current.leavers,
            quads(digest),
            self._wanting(current),
            self._lacking(current, [member for member in current.participants if member not in current.leavers]),
            tuple(member.incarnation for member, answer in current.answers.items() if answer.may_bootstrap),
            self.epoch,
            max(answer.position for answer in current.answers.values()),
            record.last,
            record.attempts,
            self._heirs(current),
            any(answer.is_caught_up for member, answer in current.answers.items() if member not in current.leavers),
        )

    def _on_merge_view(self, source: Address, frame: MergeView, now: int) -> list[Effect]:
        current = self._part_of(source, frame.merge)
        if current is None or (frame.part, frame.ballot) != (self.view.id, current.ballot):
            self._counters[Count.FRAME_MISPLACED] += 1
            return self._send(source, MergeRefusal(frame.merge, "that round is over"))
        if current.plan is not None or current.late or not self._is_above_ours(frame.following):
            return []
        merged = (frame.following, frame.digest, frame.subviews, frame.lacking, frame.epoch)
        decision = Decision(self._end_of(current), *merged, agreed=self._agreed_of(current))
        return self._plan_the_end(current, decision, PrimaryRecord(frame.last, frame.attempts), now)

    def _on_merge_commit(self, source: Address, frame: MergeCommit, now: int) -> list[Effect]:
        """The leader's word that all parts are ready. Answered when we have installed, which we do at once."""
        current = self._part_of(source, frame.merge)
        plan = current.plan if current is not None and not current.late else None
        if current is not None and plan is not None and plan.decision.following.id == frame.view:
            decision = replace(plan.decision, position=frame.position, producers=frame.producers)
            return self._commit(current, decision, now) + self._send(source, Installed(frame.view))
        has_installed = self._ended is not None and self._ended.decision.following.id == frame.view
        return self._send(source, Installed(frame.view)) if has_installed else []

    def _on_merge_cancel(self, source: Address, frame: MergeCancel, now: int) -> list[Effect]:
        """The leader may have forgotten whether it was committed; then we are in doubt, and do not wait for more."""
        current = self._part_of(source, frame.merge)
        if current is None:
            return []
        is_off = frame.is_off or not self._is_in_doubt(current)
        return self._call_off(current, is_off=is_off) + self._reconsider(now)

    def _refuse_our_merge(self, reason: str) -> list[Effect]:
        """Our part cannot go on; the leader is told at once, not left to wait."""
        current = self._round
        if current is None or current.merge is None or current.leader is None:
            return []
        refusal = MergeRefusal(current.merge, reason)
        current.merge = None
        return self._send(current.leader, refusal)

    def _is_in_doubt(self, current: Round) -> bool:
        """We told the leader that our part is ready: it may have told the others to go on."""
        was_told = current.merge is not None and current.plan is not None and not current.late
        return was_told and not (current.leader == self._local and self._is_leading_openly)

    @property
    def _is_leading_openly(self) -> bool:
        return self._leader is not None and self._leader.phase is not Phase.COMMITTED

    def _part_of(self, leader: Address, merge: Ballot) -> Round | None:
        current = self._round
        return current if current is not None and current.merge == merge and current.leader == leader else None

    # The merge leader

    def _on_merge_response(self, source: Address, frame: MergeResponse, now: int) -> list[Effect]:
        leader = self._leader
        if leader is None or leader.merge != frame.merge:
            return self._settle_old_merge(source, frame.merge)
        if source not in leader.coordinators:
            return self._send(source, MergeCancel(frame.merge, is_off=True))  # it refused before, and is left out
        if leader.is_outdated_by(source, frame):
            return self._cancel_merge([])
        return self._agree(leader, now) if leader.respond(source, frame) else []

    def _agree(self, leader: MergeLeader, now: int) -> list[Effect]:
        if not leader.is_caught_up():
            return self._cancel_merge(leader.coordinators)
        counted = (leader.members, leader.record, leader.leavers, leader.bootstrap_voters, leader.heirs)
        is_primary_now = self.is_primary_with(*counted, lacking=leader.lacking)
        leader.agree(self._next_id(leader.highest_number), is_primary_now, self._counters)
        self._lead_until = now + LEADER_ANSWERS * self._answer_ns
        return [*leader.overlaps, *self._send_all(leader.unanswered())]

    def _on_merge_refusal(self, source: Address, frame: MergeRefusal, now: int) -> list[Effect]:
        leader = self._leader
        if leader is None or leader.merge != frame.merge or leader.phase is Phase.COMMITTED:
            return []
        self._counters[Count.MERGE_REFUSED] += 1
        if not leader.drop(source):
            return self._cancel_merge([source])
        return [MergeFailed((source,)), *([] if leader.silent else self._agree(leader, now))]

    def _on_merge_ready(self, source: Address, frame: MergeReady, now: int) -> list[Effect]:
        leader = self._leader
        if leader is None or leader.merge != frame.merge:
            return self._settle_old_merge(source, frame.merge)
        if (
            not leader.ready(source, frame.ballot, LogCheckpoint(frame.position, frame.producers))
            or leader.plan is None
        ):
            return []
        self._led = MergeCommit(leader.merge, leader.plan.following.id, *leader.log)
        self._led_parts = tuple(leader.coordinators)
        self._lead_until = now + IN_DOUBT_ANSWERS * self._answer_ns
        return self._send_all(leader.unanswered())

    def _settle_old_merge(self, source: Address, merge: Ballot) -> list[Effect]:
        """A part still waits for a merge that is over: it was committed, or it was not."""
        if self._led is not None and self._led.merge == merge:
            is_part = source in self._led_parts
            return self._send(source, self._led if is_part else MergeCancel(merge, is_off=True))
        is_off = merge.proposer == self._local.incarnation and (self._led is None or merge > self._led.merge)
        return self._send(source, MergeCancel(merge, is_off))

    def _cancel_merge(self, guilty: list[Address]) -> list[Effect]:
        leader = self._leader
        if leader is None:
            return []
        self._leader = None
        self._counters[Count.MERGE_CANCELLED] += 1
        others = tuple(coordinator for coordinator in guilty if coordinator != self._local)
        return [*self._send_all(leader.cancels()), MergeFailed(others)]

    def _give_up_leading(self) -> list[Effect]:
        """Our own part is gone under us. What was committed is still told to those who wait for it."""
        return self._cancel_merge([]) if self._is_leading_openly else []

    def _on_installed(self, source: Address, frame: Installed) -> list[Effect]:
        effects = super()._on_installed(source, frame)
        leader = self._leader
        if leader is None or leader.plan is None or leader.plan.following.id != frame.view:
            return effects
        return effects + (self._end_leading() if leader.installed(source) else [])

    def _end_leading(self) -> list[Effect]:
        self._leader = None
        return self._go_when_free()

    def _go_when_free(self) -> list[Effect]:
        return super()._go_when_free() if self._leader is None else []

    def _excuse_pause(self, late_ns: int) -> None:
        super()._excuse_pause(late_ns)
        self._lead_until += late_ns

    def _time_out_leading(self, now: int) -> list[Effect]:
        if self._leader is None or now < self._lead_until:
            return []
        if self._leader.phase is Phase.COMMITTED:
            return self._end_leading()
        silent = self._leader.silent
        others = tuple(coordinator for coordinator in silent if coordinator != self._local)
        self._counters[Count.MERGE_UNANSWERED] += bool(others)
        return [*([MergeUnanswered(others)] if others else []), *self._cancel_merge(silent)]

    def _check(self) -> None:
        assert self._local in self.view or self.has_left
        assert self._leader is None or self._leader.merge.proposer == self._local.incarnation
        assert self._round is None or self._round.ballot.proposer == self._local.incarnation
        assert not (self._plan and not self.is_frozen)
