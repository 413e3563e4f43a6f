"""The view-change engine: how all who stay end one view together and begin the next. One engine per member.

The state tables, the ballots and the argument why survivors agree are in docs/design/membership.md. A member is
participant and, when it is the most senior that is not suspected, coordinator; of several coordinators that merge
their views one is the leader (merge.py). What a member sends to itself takes the same path as what it sends to others.

Invariants: `promised` never falls within a view; nothing is promised to two ballots at once; a COMMIT is accepted only
under the promised ballot and with its cut held; views are installed in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from motet.core.checks import require_between
from motet.core.counters import Count, Counters
from motet.core.effects import Effect, Frame, Transmit
from motet.core.identity import Address
from motet.core.units import MILLISECOND, SECOND
from motet.core.view import NO_BALLOT, Ballot, View, ViewId
from motet.errors import ConfigError, MisuseError
from motet.membership.merge import MergeLeader, Phase, Sends, with_a_holder
from motet.membership.primary import PrimaryRecord, combined, is_primary
from motet.window.digest import Cut, DigestEntry, cut_of, merge_digests
from motet.wire.frames import (
    Abort,
    Commit,
    CutTo,
    Decision,
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
    Quads,
    Ready,
    StateNeed,
)

MERGE_FRAMES = (MergeRequest, MergeRefusal, MergeResponse, MergeView, MergeReady, MergeCommit, MergeCancel)
FRAMES = (Prepare, Prepared, CutTo, Ready, Commit, Installed, Abort, Nack, LeaveRequest, *MERGE_FRAMES)
AFTER_LEAVING = (Prepare, Commit, Installed, MergeReady, MergeCommit)  # what one who is gone still owes the others
Cuts = Mapping[Address, Cut[Address]]


class Flushed(Protocol):
    """The channel whose messages must be the same for all who go on. Reliable multicast is one."""

    def freeze(self) -> dict[Address, DigestEntry]: ...
    def fetch(self, cut: Cuts, now: int) -> list[Effect]: ...
    def is_complete(self, cut: Cuts) -> bool: ...
    def thaw(self, now: int) -> list[Effect]: ...
    def end_view(self, cut: Cuts) -> list[Effect]: ...
    def begin_view(self, members: tuple[Address, ...], digest: Mapping[Address, int], now: int) -> list[Effect]: ...


class Surroundings:
    """What the engine asks of the rest of membership. By itself: anybody may found, and nobody wants a state."""

    def may_found(self, members: Sequence[Address]) -> bool:
        """Whether these, none of whom ever knew a primary view, may found the group."""
        return True

    @property
    def need(self) -> StateNeed:
        return StateNeed.UNWANTED


@dataclass(frozen=True, slots=True)
class EngineConfig:
    retry_ns: int = 50 * MILLISECOND  # what was not answered is sent again; a few round trips of a LAN
    answer_ns: int = 500 * MILLISECOND  # whoever has not answered by then is suspected: ten retries
    static_quorum: int = 0  # a view of at least so many members is primary; 0 counts majorities of earlier views
    partitions: str = "primary"  # at most one side goes on ordering; "all": every side does, and there is no single log

    def __post_init__(self) -> None:
        require_between("retry_ns", self.retry_ns, MILLISECOND, 10 * SECOND)
        require_between("answer_ns", self.answer_ns, 2 * self.retry_ns, 600 * SECOND)
        require_between("static_quorum", self.static_quorum, 0, 1 << 16)
        if self.partitions not in ("primary", "all"):
            raise ConfigError(f"partitions is {self.partitions!r}; allowed are 'primary' and 'all'")

    @property
    def leader_ns(self) -> int:
        """How long a merge leader waits for the parts: each may have to wait for a silent member first, twice."""
        return 3 * self.answer_ns

    @property
    def in_doubt_ns(self) -> int:
        """How long a part waits for the leader, and a member for the coordinator that froze it."""
        return 4 * self.answer_ns


@dataclass(frozen=True, slots=True)
class ViewInstalled(Effect):
    view: View
    subviews: tuple[View, ...] = ()  # the views that were merged into it, the one that others follow first
    lacking: tuple[int, ...] = ()  # who does not have the application's state yet


@dataclass(frozen=True, slots=True)
class Left(Effect):
    """Our own graceful leave is complete; the others have a view without us."""


@dataclass(frozen=True, slots=True)
class Accused(Effect):
    """A member did not do its part in a view change in time; it is treated as suspected until the next view."""

    member: Address


@dataclass(frozen=True, slots=True)
class MergeFailed(Effect):
    """The merge that we led came to nothing; these coordinators were silent, refused, or could not go on."""

    coordinators: tuple[Address, ...]


@dataclass(slots=True)
class _Round:
    """The coordinator's side of one ballot."""

    ballot: Ballot
    participants: tuple[Address, ...]
    leavers: tuple[Address, ...]
    until: int  # whoever has not answered by then is suspected
    answers: dict[Address, Prepared] = field(default_factory=dict)
    plan: CutTo | None = None
    ready: set[Address] = field(default_factory=set)
    merge: Ballot | None = None  # this round prepares our part of a merge
    leader: Address | None = None  # of the merge

    @property
    def late(self) -> list[Address]:
        done = self.ready if self.plan else self.answers.keys()
        return [member for member in self.participants if member not in done]


@dataclass(slots=True)
class _Push:
    """A COMMIT on its way to those who have not said that they installed it."""

    frame: Commit
    pending: list[Address]
    until: int


class ViewEngine:
    def __init__(
        self,
        local: Address,
        view: View,
        channel: Flushed,
        config: EngineConfig,
        counters: Counters,
        record: PrimaryRecord | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        if local not in view:
            raise MisuseError(f"{local} is not in the view that it starts with")
        self.view = view
        self.record = record if record is not None else PrimaryRecord().installed(view)
        self.has_left = False
        self._local = local
        self._channel = channel
        self._config = config
        self._counters = counters
        self._surroundings = surroundings or Surroundings()
        self._highest_number = max(view.id.number, self.record.highest_number)  # of any view that we made or know
        self._promised = NO_BALLOT
        self._highest_round = 0  # of any ballot that was heard of in this view
        self._frozen_since: int | None = None
        self._plan: CutTo | None = None  # what we are fetching
        self._is_ready = False
        self._ended: Commit | None = None  # the COMMIT that ended the view before this one
        self._suspects: set[Address] = set()
        self._accused: set[Address] = set()
        self._leavers: set[Address] = set()
        self._wants_to_leave = False
        self._round: _Round | None = None
        self._push: _Push | None = None
        self._leader: MergeLeader | None = None
        self._lead_until = 0
        self._merges = 0  # that we began to lead
        self._led: tuple[Ballot, ViewId] | None = None  # the last merge that we committed
        self._again_at: int | None = None  # we stood back for a later ballot; if nothing comes of it, try again then
        self._retry_at: int | None = None
        self._to_self: list[Frame] = []

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

    def lead_merge(self, coordinators: Sequence[Address], now: int) -> list[Effect]:
        """Merge our view with those that these coordinators speak for."""
        if not self.is_idle or self.acting_coordinator != self._local:
            return []
        self._merges += 1
        merge = Ballot(self._merges, self._local.incarnation)
        self._leader = MergeLeader(merge, self._local, self.view.id, (self._local, *coordinators))
        self._lead_until = now + self._config.leader_ns
        return self._settle(self._send_all(self._leader.unanswered()), now)

    def noticed(self, source: Address, view: ViewId, now: int) -> list[Effect]:
        """`source` says that it is in another view than ours: one of us missed how the one before ended."""
        if self._ended is not None and view == self._ended.view:
            return self._settle(self._send(source, self._ended), now)
        if view > self.view.id and source in self.view:
            return self._settle(self._send(source, Nack(self.view.id, self._promised, self._promised)), now)
        return []

    @property
    def acting_coordinator(self) -> Address | None:
        return self.view.acting_coordinator(self._distrusted())

    @property
    def is_idle(self) -> bool:
        """Nothing is being changed, as far as we know."""
        is_changing = self._round or self._leader or self.is_frozen or self._again_at is not None
        return not (is_changing or self.has_left)

    # What the network and the clock bring

    def receive(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        return self._settle(self._handle(source, frame, now), now)

    def progressed(self, now: int) -> list[Effect]:
        """The channel may have got what it was fetching."""
        return self._settle(self._say_when_ready(now), now)

    def tick(self, now: int) -> list[Effect]:
        if self._retry_at is None or now < self._retry_at:
            return []
        self._retry_at = None
        effects = self._time_out(now)
        effects += self._repeat(now)
        return self._settle(effects, now)

    def next_deadline(self) -> int | None:
        return self._retry_at

    @property
    def is_frozen(self) -> bool:
        return self._frozen_since is not None

    # Frames

    def _settle(self, effects: list[Effect], now: int) -> list[Effect]:
        """Handle what we sent to ourselves, until nothing is left; then say when we want to be called again."""
        while self._to_self:
            frame = self._to_self.pop(0)
            effects += self._handle(self._local, frame, now)
        is_changing = self._round or self.is_frozen or self._wants_to_leave or self._again_at is not None
        if not self._push and not self._leader and (self.has_left or not is_changing):
            self._retry_at = None
        elif self._retry_at is None:
            self._retry_at = now + self._config.retry_ns
        return effects

    def _send(self, to: Address, frame: Frame) -> list[Effect]:
        if to == self._local:
            self._to_self.append(frame)
            return []
        return [Transmit(to, frame)]

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
                return self._on_merge_cancel(source, frame)
            case MergeResponse():
                return self._on_merge_response(source, frame, now)
            case MergeRefusal():
                return self._on_merge_refusal(source, frame, now)
            case MergeReady():
                return self._on_merge_ready(source, frame, now)
        raise AssertionError(f"{type(frame).__name__} is in MERGE_FRAMES and nobody handles it")

    # The participant

    def _on_prepare(self, source: Address, frame: Prepare, now: int) -> list[Effect]:
        if self._ended is not None and frame.view == self._ended.view:
            return self._send(source, self._answer(frame, {}, self._ended))
        if frame.view.number > self.view.id.number and source in self.view:
            return self._send(source, Nack(self.view.id, frame.ballot, self._promised))  # we missed how ours ended
        if frame.view != self.view.id or source not in self.view or self.has_left:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        if frame.ballot < self._promised:
            return self._send(source, Nack(frame.view, frame.ballot, self._promised))
        if frame.ballot == self._promised and not self.is_frozen:
            return []  # this ballot was called off
        effects = self._promise(frame.ballot, now) if frame.ballot > self._promised else []
        self._frozen_since = now
        return effects + self._send(source, self._answer(frame, self._channel.freeze(), None))

    def _promise(self, ballot: Ballot, now: int) -> list[Effect]:
        plan = self._plan
        if plan is not None and plan.ballot.proposer == ballot.proposer and not plan.decision.subviews:
            self.record = self.record.called_off(plan.decision.following)  # its proposer has begun again
        self._promised = ballot
        self._highest_round = max(self._highest_round, ballot.round)
        self._frozen_since = now
        self._plan, self._is_ready = None, False
        if self._round is None or self._round.ballot >= ballot:
            return []
        return self._drop_round("another coordinator is changing this part")

    def _answer(self, frame: Prepare, digest: Mapping[Address, DigestEntry], ended: Commit | None) -> Prepared:
        record, need = self.record, self._surroundings.need
        decided = ended.decision if ended else None
        return Prepared(frame.view, frame.ballot, _quads(digest), record.last, record.attempts, need, decided)

    def _on_cut(self, source: Address, frame: CutTo, now: int) -> list[Effect]:
        if frame.view != self.view.id or frame.ballot != self._promised or not self.is_frozen:
            return self._refuse(source, frame.view, frame.ballot)
        if self._is_ready:
            return self._send(source, Ready(frame.view, frame.ballot))
        self._frozen_since = now
        if self._plan == frame:
            return []
        self._plan = frame
        effects = self._channel.fetch(self._cut(frame.decision.cut), now)
        return effects + self._say_when_ready(now)

    def _say_when_ready(self, now: int) -> list[Effect]:
        """The attempt is recorded before anybody can hear that we are ready: so it is before anybody can install."""
        plan = self._plan
        if plan is None or self._is_ready or not self._channel.is_complete(self._cut(plan.decision.cut)):
            return []
        self._is_ready = True
        self._frozen_since = now
        self.record = self.record.attempted(plan.decision.following, PrimaryRecord(plan.last, plan.attempts))
        return self._send(self._member(plan.ballot.proposer), Ready(plan.view, plan.ballot))

    def _on_commit(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        following = frame.decision.following
        if self._ended is not None and following == self._ended.decision.following:
            return self._send(source, Installed(following.id))
        if frame.view != self.view.id or frame.ballot < self._promised or self.has_left:
            return self._refuse(source, frame.view, frame.ballot)
        is_leaving = self._local in self._leavers or self._wants_to_leave
        if self._local not in following and not is_leaving:
            return self._go_on_alone(now)
        cut = self._cut(frame.decision.cut)
        if not self._channel.is_complete(cut):
            return self._catch_up(frame, cut, now)
        return self._install(frame, cut, now) + self._send(source, Installed(following.id))

    def _catch_up(self, frame: Commit, cut: Cuts, now: int) -> list[Effect]:
        """Decided, and we are not there yet: get what is missing; the COMMIT comes again."""
        effects = self._promise(frame.ballot, now)
        self._channel.freeze()
        return effects + self._channel.fetch(cut, now)

    def _install(self, frame: Commit, cut: Cuts, now: int) -> list[Effect]:
        effects = self._channel.end_view(cut)
        self._ended = frame
        if self._local in frame.decision.following:
            return effects + self._enter(frame.decision, now)
        self.has_left = True
        return effects + self._go_when_free()

    def _go_on_alone(self, now: int) -> list[Effect]:
        """The others ended this view without us: we were cut off, or suspected. Until a merge we are our own view."""
        alone = View(self._next_id(0), (self._local,), is_primary=self._config.partitions == "all")
        lacking = (self._local.incarnation,) if self._surroundings.need is StateNeed.LACKING else ()
        self._push = None
        return self._channel.end_view({}) + self._enter(Decision((), alone, (), (), lacking), now)

    def _enter(self, decision: Decision, now: int) -> list[Effect]:
        self.view = view = decision.following
        self.record = self.record.installed(view)
        self._highest_number = max(self._highest_number, view.id.number)
        self._counters[Count.VIEW_CHANGED] += 1
        effects = self._drop_round("the view ended otherwise") + self._give_up_leading()
        self._forget_the_old_view()
        known = {member.incarnation: member for member in view.members}
        digest = {known[incarnation]: seqno for incarnation, seqno in decision.digest if incarnation in known}
        begun = self._channel.begin_view(view.members, digest, now)
        installed = ViewInstalled(view, decision.subviews, decision.lacking)
        return [installed, *effects, *begun, *self._reconsider(now), *self._ask_to_leave(now)]

    def _next_id(self, known: int) -> ViewId:
        """Above every view that we made or know of: no id is used twice, and views are installed in their order."""
        self._highest_number = max(self._highest_number, known) + 1
        return ViewId(self._highest_number, self._local.incarnation)

    def _forget_the_old_view(self) -> None:
        self._again_at = None
        self._promised, self._highest_round = NO_BALLOT, 0
        self._frozen_since, self._plan, self._is_ready = None, None, False
        self._accused.clear()
        self._leavers = {member for member in self._leavers if member in self.view}
        self._suspects = {member for member in self._suspects if member in self.view}

    def _on_abort(self, frame: Abort, now: int) -> list[Effect]:
        if frame.view != self.view.id or frame.ballot != self._promised or not self.is_frozen:
            return []
        if self._plan is not None and frame.is_off:
            self.record = self.record.called_off(self._plan.decision.following)
        self._frozen_since, self._plan, self._is_ready = None, None, False
        return self._channel.thaw(now)

    def _refuse(self, source: Address, view: ViewId, ballot: Ballot) -> list[Effect]:
        if view == self.view.id and ballot < self._promised:
            return self._send(source, Nack(view, ballot, self._promised))
        self._counters[Count.FRAME_MISPLACED] += 1
        return []

    # The coordinator

    def _reconsider(self, now: int) -> list[Effect]:
        """Begin, or begin again, if we are the one to act and there is something to do."""
        if self.has_left or self.acting_coordinator != self._local or self._again_at is not None:
            return []
        participants, leavers, current = self._trusted(), self._leaving(), self._round
        if current and current.participants == participants and set(leavers) <= set(current.leavers):
            return []
        if leavers or len(participants) < len(self.view.members):
            return self._begin(participants, leavers, now)
        return self._call_off(current, is_off=True) if current else []  # whom we had given up is trusted again

    def _trusted(self) -> tuple[Address, ...]:
        distrusted = self._distrusted()
        return tuple(member for member in self.view.members if member not in distrusted)

    def _leaving(self) -> tuple[Address, ...]:
        return tuple(member for member in self.view.members if member in self._leavers)

    def _begin(self, participants: tuple[Address, ...], leavers: tuple[Address, ...], now: int) -> list[Effect]:
        effects = self._refuse_our_merge("a member of this part is gone, or wants to go")
        self._highest_round += 1
        ballot = Ballot(self._highest_round, self._local.incarnation)
        self._round = _Round(ballot, participants, leavers, now + self._config.answer_ns)
        frame = Prepare(self.view.id, ballot, participants)
        return effects + [effect for member in participants for effect in self._send(member, frame)]

    def _on_prepared(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        current = self._current(frame.view, frame.ballot)
        if current is None or current.plan is not None or source not in current.participants:
            return []
        if frame.decided is not None:
            return self._adopt(current, frame.decided, now)
        current.answers[source] = frame
        if current.late:
            return []
        if current.merge is not None:
            current.until = now + self._config.in_doubt_ns
            return self._tell_leader(current)
        return self._plan_the_end(current, self._decide(current), self._record_of(current), now)

    def _plan_the_end(self, current: _Round, decision: Decision, record: PrimaryRecord, now: int) -> list[Effect]:
        current.plan = CutTo(self.view.id, current.ballot, decision, record.last, record.attempts)
        current.until = now + self._config.answer_ns
        return [effect for member in current.participants for effect in self._send(member, current.plan)]

    def _digests(self, current: _Round) -> dict[Address, dict[Address, DigestEntry]]:
        return {
            member: {self._member(s): DigestEntry(low, delivered, received) for s, low, delivered, received in p.digest}
            for member, p in current.answers.items()
        }

    def _end_of(self, current: _Round) -> Quads:
        cut = cut_of(self._digests(current))
        return tuple((s.incarnation, c.seqno, c.holder.incarnation, c.stable) for s, c in cut.items())

    def _record_of(self, current: _Round) -> PrimaryRecord:
        return combined(PrimaryRecord(answer.last, answer.attempts) for answer in current.answers.values())

    def _decide(self, current: _Round) -> Decision:
        staying = tuple(member for member in current.participants if member not in current.leavers)
        members = staying or (self._local,)  # where all leave, the coordinator is the last to go
        record = self._record_of(current)
        view_id = self._next_id(max(record.highest_number, self.view.id.number))
        following = View(view_id, members, self.is_primary_with(members, record, current.leavers))
        cut = self._end_of(current)
        ends = {sender: seqno for sender, seqno, _, _ in cut}
        digest = tuple((member.incarnation, ends[member.incarnation]) for member in members)
        return Decision(cut, following, digest, (), with_a_holder(members, self._needing(current, StateNeed.LACKING)))

    def _needing(self, current: _Round, *needs: StateNeed) -> tuple[int, ...]:
        return tuple(member.incarnation for member, answer in current.answers.items() if answer.state in needs)

    def is_primary_with(
        self, members: Sequence[Address], record: PrimaryRecord, leavers: Collection[Address] = ()
    ) -> bool:
        if self._config.partitions == "all":
            return True
        if record.is_empty and not self._config.static_quorum:
            return self._surroundings.may_found(members)
        return is_primary(members, [record], leavers, self._config.static_quorum)

    def _on_ready(self, source: Address, frame: Ready, now: int) -> list[Effect]:
        current = self._current(frame.view, frame.ballot)
        if current is None or current.plan is None:
            return []
        current.ready.add(source)
        if not current.ready.issuperset(current.participants):
            return []
        if current.merge is not None:
            current.until = now + self._config.in_doubt_ns
            return self._tell_leader(current)
        return self._commit(current, current.plan.decision, now)

    def _adopt(self, current: _Round, decision: Decision, now: int) -> list[Effect]:
        """Somebody saw how this view ends: then it ends so, for everybody who can still be told."""
        return self._refuse_our_merge("the view ended otherwise") + self._commit(current, decision, now)

    def _commit(self, current: _Round, decision: Decision, now: int) -> list[Effect]:
        frame = Commit(self.view.id, current.ballot, decision)
        self._round = None
        others = [member for member in current.participants if member != self._local]
        self._push = _Push(frame, others, now + self._config.answer_ns) if others else None
        effects = [effect for member in others for effect in self._send(member, frame)]
        return effects + self._send(self._local, frame)

    def _on_installed(self, source: Address, frame: Installed) -> list[Effect]:
        effects: list[Effect] = []
        push, leader = self._push, self._leader
        if push is not None and push.frame.decision.following.id == frame.view and source in push.pending:
            push.pending.remove(source)
            if not push.pending:
                effects += self._end_push()
        if leader is not None and leader.plan and leader.plan.following.id == frame.view and leader.installed(source):
            effects += self._end_leading()
        return effects

    def _end_push(self) -> list[Effect]:
        self._push = None
        return self._go_when_free()

    def _go_when_free(self) -> list[Effect]:
        """A coordinator that leaves is free once the others have the view without it."""
        return [Left()] if self.has_left and not self._push and not self._leader else []

    def _on_nack(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        """A later ballot is under way. Ours will never be committed; we wait what comes of the other.

        Or the other is still in the view before ours, and needs the COMMIT that it missed; or it is frozen by a ballot
        of ours, and wants to know what has become of that.
        """
        if self._ended is not None and frame.view == self._ended.view:
            return self._send(source, self._ended)
        if frame.view != self.view.id:
            return []
        if frame.promised.proposer == self._local.incarnation:
            return self._remind(source, frame.promised)
        current = self._current(frame.view, frame.ballot)
        if current is None or frame.promised <= current.ballot:
            return []
        self._highest_round = max(self._highest_round, frame.promised.round)
        self._again_at = now + self._config.answer_ns
        refusal = self._refuse_our_merge("another coordinator is changing this part")
        return refusal + self._call_off(current, is_off=True)

    def _remind(self, source: Address, ballot: Ballot) -> list[Effect]:
        current = self._current(self.view.id, ballot)
        if current is None:
            return self._send(source, Abort(self.view.id, ballot, is_off=False))
        return self._send(source, current.plan or Prepare(self.view.id, ballot, current.participants))

    def _call_off(self, current: _Round, *, is_off: bool) -> list[Effect]:
        self._round = None
        frame = Abort(self.view.id, current.ballot, is_off)
        return [effect for member in current.participants for effect in self._send(member, frame)]

    def _on_leave_request(self, source: Address, frame: LeaveRequest, now: int) -> list[Effect]:
        if frame.view != self.view.id or source not in self.view:
            return []
        self._leavers.add(source)
        return self._reconsider(now)

    def _ask_to_leave(self, now: int) -> list[Effect]:
        if not self._wants_to_leave or self.has_left:
            return []
        coordinator = self.acting_coordinator
        if self.view.members == (self._local,):
            self.has_left = True
            effects = self._drop_round("the last member of this part has left") + self._give_up_leading()
            return effects + self._go_when_free()
        return self._send(coordinator, LeaveRequest(self.view.id)) if coordinator else []

    # A coordinator's part in a merge

    def _on_merge_request(self, source: Address, frame: MergeRequest, now: int) -> list[Effect]:
        if self._round is not None and self._round.merge == frame.merge:
            return []  # we are at it, and our answer is repeated
        if (reason := self._why_not(source)) is not None:
            return self._send(source, MergeRefusal(frame.merge, reason))
        effects = self._begin(self._trusted(), self._leaving(), now)
        if self._round is not None:
            self._round.merge, self._round.leader = frame.merge, source
        return effects

    def _why_not(self, leader: Address) -> str | None:
        if self.has_left:
            return "we have left the group"
        if leader != self._local and leader in self.view:
            return "we are in one view already"
        if self.acting_coordinator != self._local:
            return "not the coordinator of this part"
        is_leading = self._leader is not None and leader != self._local
        return "busy" if self._round or self.is_frozen or is_leading or self._again_at is not None else None

    def _tell_leader(self, current: _Round) -> list[Effect]:
        """Our part's answer: the digests at first, later that all are ready. Nothing while we are still at it."""
        if current.leader is None or current.merge is None or current.late:
            return []
        return self._send(current.leader, MergeReady(current.merge) if current.plan else self._response(current))

    def _response(self, current: _Round) -> MergeResponse:
        digest: dict[Address, DigestEntry] = {}
        for theirs in self._digests(current).values():
            digest = merge_digests(digest, theirs)
        record = self._record_of(current)
        return MergeResponse(
            current.merge or NO_BALLOT,
            self.view,
            tuple(member for member in current.participants if member not in current.leavers),
            current.leavers,
            _quads(digest),
            self._needing(current, StateNeed.HELD, StateNeed.LACKING),
            self._needing(current, StateNeed.LACKING),
            record.last,
            record.attempts,
        )

    def _on_merge_view(self, source: Address, frame: MergeView, now: int) -> list[Effect]:
        current = self._part_of(source, frame.merge)
        if current is None or current.plan is not None or current.late:
            return []
        decision = Decision(self._end_of(current), frame.following, frame.digest, frame.subviews, frame.lacking)
        return self._plan_the_end(current, decision, PrimaryRecord(frame.last, frame.attempts), now)

    def _on_merge_commit(self, source: Address, frame: MergeCommit, now: int) -> list[Effect]:
        """The leader's word that all parts are ready. Answered when we have installed, which we do at once."""
        current = self._part_of(source, frame.merge)
        if current is not None and current.plan is not None and not current.late:
            return self._commit(current, current.plan.decision, now) + self._send(source, Installed(frame.view))
        has_installed = self._ended is not None and self._ended.decision.following.id == frame.view
        return self._send(source, Installed(frame.view)) if has_installed else []

    def _on_merge_cancel(self, source: Address, frame: MergeCancel) -> list[Effect]:
        current = self._part_of(source, frame.merge)
        return self._call_off(current, is_off=frame.is_off) if current is not None else []

    def _refuse_our_merge(self, reason: str) -> list[Effect]:
        """Our part cannot go on; the leader is told at once, not left to wait."""
        current = self._round
        if current is None or current.merge is None or current.leader is None:
            return []
        refusal = MergeRefusal(current.merge, reason)
        current.merge = None
        return self._send(current.leader, refusal)

    def _drop_round(self, reason: str) -> list[Effect]:
        effects = self._refuse_our_merge(reason)
        self._round = None
        return effects

    def _part_of(self, leader: Address, merge: Ballot) -> _Round | None:
        current = self._round
        return current if current is not None and current.merge == merge and current.leader == leader else None

    # The merge leader

    def _on_merge_response(self, source: Address, frame: MergeResponse, now: int) -> list[Effect]:
        leader = self._leader
        if leader is None or leader.merge != frame.merge:
            return self._settle_old_merge(source, frame.merge)
        if not leader.respond(source, frame):
            return []
        return self._agree(leader, now)

    def _agree(self, leader: MergeLeader, now: int) -> list[Effect]:
        if not leader.is_whole():
            return self._cancel_merge(leader.coordinators)
        is_primary_now = self.is_primary_with(leader.members, leader.record, leader.leavers)
        leader.agree(self._next_id(leader.highest_number), is_primary_now, self._counters)
        self._lead_until = now + self._config.leader_ns
        return self._send_all(leader.unanswered())

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
        if not leader.ready(source) or leader.plan is None:
            return []
        self._led = (leader.merge, leader.plan.following.id)
        self._lead_until = now + self._config.in_doubt_ns
        return self._send_all(leader.unanswered())

    def _settle_old_merge(self, source: Address, merge: Ballot) -> list[Effect]:
        """A part still waits for a merge that is over: it was committed, or it was not."""
        if self._led is not None and self._led[0] == merge:
            return self._send(source, MergeCommit(merge, self._led[1]))
        is_off = merge.proposer == self._local.incarnation and (self._led is None or merge > self._led[0])
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
        is_open = self._leader is not None and self._leader.phase is not Phase.COMMITTED
        return self._cancel_merge([]) if is_open else []

    def _end_leading(self) -> list[Effect]:
        self._leader = None
        return self._go_when_free()

    # Time

    def _time_out(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._push is not None and now >= self._push.until:
            effects += self._end_push()  # whoever was not told will ask those who were
        if self._leader is not None and now >= self._lead_until:
            is_over = self._leader.phase is Phase.COMMITTED
            effects += self._end_leading() if is_over else self._cancel_merge(self._leader.silent)
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            effects += self._reconsider(now)
        if self._round is not None and now >= self._round.until:
            effects += self._end_round(self._round, now)
        elif self._is_waiting_in_vain(now):
            effects += self._accuse([self._whom_we_wait_for()], now)
        return effects

    def _end_round(self, current: _Round, now: int) -> list[Effect]:
        """Somebody in our part is late, or the leader of a merge is. If we said that we are ready, others may go on."""
        if current.late:
            return self._refuse_our_merge("a member of this part is silent") + self._accuse(current.late, now)
        return self._call_off(current, is_off=current.plan is None) + self._reconsider(now)

    def _whom_we_wait_for(self) -> Address:
        """The one who froze us, or whoever should have taken over from it."""
        proposer = self._member(self._promised.proposer)
        return proposer if proposer not in self._distrusted() else self.acting_coordinator or self._local

    def _is_waiting_in_vain(self, now: int) -> bool:
        """Whoever froze us is heard of no more, not even when asked: it repeats itself while it is at it."""
        is_waiting = self._frozen_since is not None and self._round is None
        return is_waiting and now - (self._frozen_since or 0) >= self._config.in_doubt_ns

    def _accuse(self, members: list[Address], now: int) -> list[Effect]:
        accused = [member for member in members if member != self._local]
        self._accused.update(accused)
        self._frozen_since = now if self.is_frozen else None
        current, self._round = self._round, None
        effects: list[Effect] = [Accused(member) for member in accused]
        if current is not None and not accused:
            effects += self._call_off(current, is_off=True)
        return effects + self._reconsider(now)

    def _repeat(self, now: int) -> list[Effect]:
        """What was not answered is sent again."""
        effects: list[Effect] = []
        if self._push is not None:
            effects += [e for member in self._push.pending for e in self._send(member, self._push.frame)]
        if self._leader is not None:
            effects += self._send_all(self._leader.unanswered())
        if (current := self._round) is not None:
            frame = current.plan or Prepare(self.view.id, current.ballot, current.participants)
            effects += [e for member in current.late for e in self._send(member, frame)]
            effects += self._tell_leader(current)
        return effects + self._ask_around(now) + self._ask_to_leave(now)

    def _ask_around(self, now: int) -> list[Effect]:
        """Frozen, and the coordinator is late: somebody may have seen the COMMIT that we did not get."""
        if self._frozen_since is None or self._round or now - self._frozen_since < self._config.answer_ns:
            return []
        trusted = [m for m in self.view.members if m != self._local and m not in self._distrusted()]
        frame = Nack(self.view.id, self._promised, self._promised)
        return [effect for member in trusted for effect in self._send(member, frame)]

    # Names

    def _current(self, view: ViewId, ballot: Ballot) -> _Round | None:
        is_ours = self._round is not None and view == self.view.id and ballot == self._round.ballot
        return self._round if is_ours else None

    def _distrusted(self) -> set[Address]:
        return self._suspects | self._accused

    def _member(self, incarnation: int) -> Address:
        """A member of this view by its incarnation; a stranger in a frame of ours is nonsense that names ourselves."""
        return next((member for member in self.view.members if member.incarnation == incarnation), self._local)

    def _cut(self, cut: Quads) -> dict[Address, Cut[Address]]:
        known = {member.incarnation for member in self.view.members}
        return {self._member(s): Cut(seqno, self._member(h), stable) for s, seqno, h, stable in cut if s in known}

    def _check(self) -> None:
        assert self._local in self.view or self.has_left
        assert self._leader is None or self._leader.merge.proposer == self._local.incarnation
        assert self._round is None or self._round.ballot.proposer == self._local.incarnation
        assert not (self._plan and not self.is_frozen)


def _quads(digest: Mapping[Address, DigestEntry]) -> Quads:
    return tuple((member.incarnation, entry.low, entry.delivered, entry.received) for member, entry in digest.items())
