"""The view-change engine: how all who stay end one view together and begin the next. One engine per member.

The state tables, the ballots and the argument why survivors agree are in docs/design/membership.md. A member is
participant and, when it is the most senior that is not suspected, coordinator; what it sends to itself takes the same
path as what it sends to others.

Invariants: `promised` never falls within a view; nothing is promised to two ballots at once; a COMMIT is accepted only
under the promised ballot and with its cut held; views are installed in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from motet.core.checks import require_between
from motet.core.counters import Count, Counters
from motet.core.effects import Effect, Frame, Transmit
from motet.core.identity import Address
from motet.core.units import MILLISECOND, SECOND
from motet.core.view import NO_BALLOT, Ballot, View, ViewId
from motet.errors import MisuseError
from motet.membership.primary import PrimaryRecord, is_primary
from motet.window.digest import Cut, DigestEntry, cut_of
from motet.wire.frames import (
    Abort,
    Commit,
    CutTo,
    Installed,
    LeaveRequest,
    Nack,
    Prepare,
    Prepared,
    Quads,
    Ready,
)

FRAMES = (Prepare, Prepared, CutTo, Ready, Commit, Installed, Abort, Nack, LeaveRequest)
Cuts = Mapping[Address, Cut[Address]]


class Flushed(Protocol):
    """The channel whose messages must be the same for all who go on. Reliable multicast is one."""

    def freeze(self) -> dict[Address, DigestEntry]: ...
    def fetch(self, cut: Cuts, now: int) -> list[Effect]: ...
    def is_complete(self, cut: Cuts) -> bool: ...
    def thaw(self, now: int) -> list[Effect]: ...
    def end_view(self, cut: Cuts) -> list[Effect]: ...
    def begin_view(self, members: tuple[Address, ...], digest: Mapping[Address, int], now: int) -> list[Effect]: ...


@dataclass(frozen=True, slots=True)
class EngineConfig:
    retry_ns: int = 50 * MILLISECOND  # what was not answered is sent again; a few round trips of a LAN
    answer_ns: int = 500 * MILLISECOND  # whoever has not answered by then is suspected: ten retries
    static_quorum: int = 0  # a view of at least so many members is primary; 0 counts majorities of earlier views

    def __post_init__(self) -> None:
        require_between("retry_ns", self.retry_ns, MILLISECOND, 10 * SECOND)
        require_between("answer_ns", self.answer_ns, 2 * self.retry_ns, 600 * SECOND)
        require_between("static_quorum", self.static_quorum, 0, 1 << 16)


@dataclass(frozen=True, slots=True)
class ViewInstalled(Effect):
    view: View


@dataclass(frozen=True, slots=True)
class Left(Effect):
    """Our own graceful leave is complete; the others have a view without us."""


@dataclass(frozen=True, slots=True)
class Accused(Effect):
    """A member did not do its part in a view change in time; it is treated as suspected until the next view."""

    member: Address


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
    ) -> None:
        if local not in view:
            raise MisuseError(f"{local} is not in the view that it starts with")
        self.view = view
        self.record = record or PrimaryRecord().installed(view)
        self.has_left = False
        self._local = local
        self._channel = channel
        self._config = config
        self._counters = counters
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
        if not self._push and (self.has_left or not is_changing):
            self._retry_at = None
        elif self._retry_at is None:
            self._retry_at = now + self._config.retry_ns
        return effects

    def _send(self, to: Address, frame: Frame) -> list[Effect]:
        if to == self._local:
            self._to_self.append(frame)
            return []
        return [Transmit(to, frame)]

    def _handle(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        if self.has_left and not isinstance(frame, Prepare | Commit | Installed):
            return []
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
        if frame.ballot > self._promised:
            self._promise(frame.ballot, now)
        return self._send(source, self._answer(frame, self._channel.freeze(), None))

    def _promise(self, ballot: Ballot, now: int) -> None:
        self._promised = ballot
        self._highest_round = max(self._highest_round, ballot.round)
        self._frozen_since = now
        self._plan, self._is_ready = None, False
        if self._round is not None and self._round.ballot < ballot:
            self._round = None  # somebody with a later ballot took over

    def _answer(self, frame: Prepare, digest: Mapping[Address, DigestEntry], ended: Commit | None) -> Prepared:
        streams = tuple((m.incarnation, e.low, e.delivered, e.received) for m, e in digest.items())
        following = ended.following if ended else None
        cut = ended.cut if ended else ()
        return Prepared(frame.view, frame.ballot, streams, self.record.last, self.record.attempts, following, cut)

    def _on_cut(self, source: Address, frame: CutTo, now: int) -> list[Effect]:
        if frame.view != self.view.id or frame.ballot != self._promised or not self.is_frozen:
            return self._refuse(source, frame.view, frame.ballot)
        if self._is_ready:
            return self._send(source, Ready(frame.view, frame.ballot))
        if self._plan == frame:
            return []
        self._plan = frame
        effects = self._channel.fetch(self._cut(frame.cut), now)
        return effects + self._say_when_ready(now)

    def _say_when_ready(self, now: int) -> list[Effect]:
        """The attempt is recorded before anybody can hear that we are ready: so it is before anybody can install."""
        plan = self._plan
        if plan is None or self._is_ready or not self._channel.is_complete(self._cut(plan.cut)):
            return []
        self._is_ready = True
        self._frozen_since = now
        self.record = self.record.attempted(plan.following)
        return self._send(self._member(plan.ballot.proposer), Ready(plan.view, plan.ballot))

    def _on_commit(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        if self._ended is not None and frame.following == self._ended.following:
            return self._send(source, Installed(frame.following.id))
        if frame.view != self.view.id or frame.ballot < self._promised or self.has_left:
            return self._refuse(source, frame.view, frame.ballot)
        is_leaving = self._local in self._leavers or self._wants_to_leave
        if self._local not in frame.following and not is_leaving:
            return self._go_on_alone(now)
        cut = self._cut(frame.cut)
        if not self._channel.is_complete(cut):
            return self._catch_up(frame, cut, now)
        return self._install(frame, cut, now) + self._send(source, Installed(frame.following.id))

    def _catch_up(self, frame: Commit, cut: Cuts, now: int) -> list[Effect]:
        """Decided, and we are not there yet: get what is missing; the COMMIT comes again."""
        self._promise(frame.ballot, now)
        self._channel.freeze()
        return self._channel.fetch(cut, now)

    def _install(self, frame: Commit, cut: Cuts, now: int) -> list[Effect]:
        effects = self._channel.end_view(cut)
        self._ended = frame
        if self._local in frame.following:
            digest = {sender: end.seqno for sender, end in cut.items()}
            return effects + self._enter(frame.following, digest, now)
        self.has_left = True
        return effects if self._push else [*effects, Left()]

    def _go_on_alone(self, now: int) -> list[Effect]:
        """The others ended this view without us: we were cut off, or suspected. Until a merge we are our own view."""
        view_id = ViewId(self.view.id.number + 1, self._local.incarnation)
        alone = View(view_id, (self._local,), is_primary=False)
        self._push = self._round = None
        return self._channel.end_view({}) + self._enter(alone, {}, now)

    def _enter(self, view: View, digest: Mapping[Address, int], now: int) -> list[Effect]:
        self.view = view
        self.record = self.record.installed(view)
        self._forget_the_old_view()
        begun = self._channel.begin_view(view.members, digest, now)
        return [ViewInstalled(view), *begun, *self._reconsider(now), *self._ask_to_leave(now)]

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
        if self._plan is not None:
            self.record = self.record.called_off(self._plan.following)
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
        if self.has_left or self.view.acting_coordinator(self._distrusted()) != self._local:
            return []
        gone = [member for member in self.view.members if member in self._distrusted()]
        leavers = tuple(member for member in self.view.members if member in self._leavers)
        participants = tuple(member for member in self.view.members if member not in gone)
        if (not gone and not leavers) or self._again_at is not None:
            return []
        current = self._round
        if current and current.participants == participants and set(leavers) <= set(current.leavers):
            return []
        return self._begin(participants, leavers, now)

    def _begin(self, participants: tuple[Address, ...], leavers: tuple[Address, ...], now: int) -> list[Effect]:
        self._highest_round += 1
        ballot = Ballot(self._highest_round, self._local.incarnation)
        self._round = _Round(ballot, participants, leavers, now + self._config.answer_ns)
        frame = Prepare(self.view.id, ballot, participants)
        return [effect for member in participants for effect in self._send(member, frame)]

    def _on_prepared(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        current = self._current(frame.view, frame.ballot)
        if current is None or current.plan is not None or source not in current.participants:
            return []
        if frame.decided is not None:
            return self._adopt(current, frame.decided, frame.decided_cut, now)
        current.answers[source] = frame
        if len(current.answers) < len(current.participants):
            return []
        return self._plan_the_end(current, now)

    def _plan_the_end(self, current: _Round, now: int) -> list[Effect]:
        digests = {
            member: {self._member(s): DigestEntry(low, delivered, received) for s, low, delivered, received in p.digest}
            for member, p in current.answers.items()
        }
        cut = tuple((s.incarnation, c.seqno, c.holder.incarnation, c.stable) for s, c in cut_of(digests).items())
        current.plan = CutTo(self.view.id, current.ballot, cut, self._following(current))
        current.until = now + self._config.answer_ns
        return [effect for member in current.participants for effect in self._send(member, current.plan)]

    def _following(self, current: _Round) -> View:
        staying = tuple(member for member in current.participants if member not in current.leavers)
        members = staying or (self._local,)  # where all leave, the coordinator is the last to go
        records = [PrimaryRecord(answer.last, answer.attempts) for answer in current.answers.values()]
        primary = is_primary(members, records, current.leavers, self._config.static_quorum)
        known = [view.id.number for record in records for view in (record.last, *record.attempts) if view is not None]
        number = max(self.view.id.number, *known) + 1 if known else self.view.id.number + 1
        return View(ViewId(number, self._local.incarnation), members, primary)

    def _on_ready(self, source: Address, frame: Ready, now: int) -> list[Effect]:
        current = self._current(frame.view, frame.ballot)
        if current is None or current.plan is None:
            return []
        current.ready.add(source)
        if not current.ready.issuperset(current.participants):
            return []
        plan = current.plan
        return self._commit(Commit(plan.view, plan.ballot, plan.cut, plan.following), current.participants, now)

    def _adopt(self, current: _Round, following: View, cut: Quads, now: int) -> list[Effect]:
        """Somebody saw how this view ends: then it ends so, for everybody who can still be told."""
        return self._commit(Commit(self.view.id, current.ballot, cut, following), current.participants, now)

    def _commit(self, frame: Commit, participants: tuple[Address, ...], now: int) -> list[Effect]:
        self._round = None
        others = [member for member in participants if member != self._local]
        self._push = _Push(frame, others, now + self._config.answer_ns) if others else None
        effects = [effect for member in others for effect in self._send(member, frame)]
        return effects + self._send(self._local, frame)

    def _on_installed(self, source: Address, frame: Installed) -> list[Effect]:
        if self._push is not None and self._push.frame.following.id == frame.view and source in self._push.pending:
            self._push.pending.remove(source)
            if not self._push.pending:
                return self._end_push()
        return []

    def _end_push(self) -> list[Effect]:
        """A coordinator that leaves is free once the others have the view without it."""
        self._push = None
        return [Left()] if self.has_left else []

    def _on_nack(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        """A later ballot is under way. Ours will never be committed; we wait what comes of the other.

        Or the other is still in the view before ours: then it needs the COMMIT that it missed.
        """
        if self._ended is not None and frame.view == self._ended.view:
            return self._send(source, self._ended)
        current = self._current(frame.view, frame.ballot)
        if current is None or frame.promised <= current.ballot:
            return []
        self._highest_round = max(self._highest_round, frame.promised.round)
        self._again_at = now + self._config.answer_ns
        return self._call_off(current)

    def _call_off(self, current: _Round) -> list[Effect]:
        self._round = None
        frame = Abort(self.view.id, current.ballot)
        return [effect for member in current.participants for effect in self._send(member, frame)]

    def _on_leave_request(self, source: Address, frame: LeaveRequest, now: int) -> list[Effect]:
        if frame.view != self.view.id or source not in self.view:
            return []
        self._leavers.add(source)
        return self._reconsider(now)

    def _ask_to_leave(self, now: int) -> list[Effect]:
        if not self._wants_to_leave or self.has_left:
            return []
        coordinator = self.view.acting_coordinator(self._distrusted())
        if self.view.members == (self._local,):
            self.has_left = True
            return [] if self._push else [Left()]
        return self._send(coordinator, LeaveRequest(self.view.id)) if coordinator else []

    # Time

    def _time_out(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._push is not None and now >= self._push.until:
            effects += self._end_push()  # whoever was not told will ask those who were
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            effects += self._reconsider(now)
        if self._round is not None and now >= self._round.until:
            done = self._round.ready if self._round.plan else self._round.answers.keys()
            effects += self._accuse([member for member in self._round.participants if member not in done], now)
        elif self._is_waiting_in_vain(now):
            effects += self._accuse([self._whom_we_wait_for()], now)
        return effects

    def _whom_we_wait_for(self) -> Address:
        """The one who froze us, or whoever should have taken over from it."""
        proposer = self._member(self._promised.proposer)
        acting = self.view.acting_coordinator(self._distrusted())
        return proposer if proposer not in self._distrusted() else acting or self._local

    def _is_waiting_in_vain(self, now: int) -> bool:
        """Twice the time that a coordinator has: it may itself be waiting for somebody else once."""
        return (
            self._frozen_since is not None
            and self._round is None
            and now - self._frozen_since >= 2 * self._config.answer_ns
        )

    def _accuse(self, members: list[Address], now: int) -> list[Effect]:
        accused = [member for member in members if member != self._local]
        self._accused.update(accused)
        self._frozen_since = now if self.is_frozen else None
        current, self._round = self._round, None
        effects: list[Effect] = [Accused(member) for member in accused]
        if current is not None and not accused:
            effects += self._call_off(current)
        return effects + self._reconsider(now)

    def _repeat(self, now: int) -> list[Effect]:
        """What was not answered is sent again."""
        effects: list[Effect] = []
        if self._push is not None:
            effects += [e for member in self._push.pending for e in self._send(member, self._push.frame)]
        current = self._round
        if current is not None and current.plan is not None:
            late = [member for member in current.participants if member not in current.ready]
            effects += [e for member in late for e in self._send(member, current.plan)]
        elif current is not None:
            frame = Prepare(self.view.id, current.ballot, current.participants)
            late = [member for member in current.participants if member not in current.answers]
            effects += [e for member in late for e in self._send(member, frame)]
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
        assert self._round is None or self._round.ballot.proposer == self._local.incarnation
        assert not (self._plan and not self.is_frozen)
