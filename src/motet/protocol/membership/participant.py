"""A participant in the change of its view: it promises a ballot, stops, reports, fetches, installs what is decided.

Every member is one; coordinator.py adds what the acting coordinator does, and engine.py what a merge needs. Together
they are the view-change engine. The state tables, the ballots and the argument why survivors agree are in
docs/design/membership.md.

A part of a merge that has said READY cannot know whether the others went on to the merged view. So it never goes back
to the view that it was in: it ends that view in another way, and whether the next one may be primary is decided in the
knowledge of the attempt.

Invariants: `promised` never falls within a view; nothing is promised to two ballots at once; a COMMIT is accepted only
under the promised ballot and with its cut held; views are installed in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from motet.errors import ConfigError, MisuseError
from motet.protocol.core.checks import require_between
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import NO_BALLOT, NO_VIEW, Ballot, View, ViewId
from motet.protocol.membership.primary import PrimaryRecord, named_past
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.wire.frames import (
    Abort,
    AgreedNumbers,
    Commit,
    CutTo,
    Decision,
    Installed,
    LogCheckpoint,
    Nack,
    Prepare,
    Prepared,
    Quads,
    Ready,
    StateNeed,
)

Cuts = Mapping[Address, Cut[Address]]


class Flushed(Protocol):
    """The channel whose messages must be the same for all who go on. Reliable multicast is one."""

    def freeze(self) -> tuple[dict[Address, DigestEntry], AgreedNumbers]:
        """Stop. The answer: what we hold of each stream, and numbers of ordered frames that others may not know."""

    def fetch(self, cut: Cuts, now: int) -> list[Effect]: ...
    def is_complete(self, cut: Cuts) -> bool: ...
    def is_within(self, cut: Cuts) -> bool:
        """Nothing beyond the cut was delivered here, or sent by us."""

    def thaw(self, now: int) -> list[Effect]: ...

    @property
    def position(self) -> int:
        """How far the log is delivered."""

    @property
    def is_caught_up(self) -> bool:
        """Whether we have what lies before that, as far as we keep it."""

    def log_after(self, cut: Cuts, agreed: AgreedNumbers, *, log_continues: bool) -> LogCheckpoint:
        """Where the log will stand when the view has ended with this cut, which is held, and these numbers."""

    def end_view(self, cut: Cuts, agreed: AgreedNumbers, *, log_continues: bool) -> list[Effect]:
        """Deliver the rest; of the log only if it goes on in the view that follows."""

    def begin_view(
        self, view: View, digest: Mapping[Address, int], log: LogCheckpoint | None, now: int
    ) -> list[Effect]:
        """`log`: where it stands, for one who comes to it from outside."""


class Surroundings:
    """What the engine asks of the rest of membership. By itself: anybody may found, and nobody wants a state."""

    def may_found(self, members: Sequence[Address]) -> bool:
        """Whether these, who all say that they count, may found the group."""
        return True

    @property
    def may_bootstrap(self) -> bool:
        """Whether we count when the group is founded."""
        return True

    def is_left_alone(self, coordinator: Address) -> bool:
        """Whether a merge that this one leads is refused for now."""
        return False

    @property
    def need(self) -> StateNeed:
        return StateNeed.UNWANTED

    def was_heard(self, member: Address, since: int) -> bool:
        """Whether anything of this member has arrived since then."""
        return False

    def is_busy(self, member: Address, now: int) -> bool:
        """Whether this member's process is alive while its driver does not run, so that it cannot answer."""
        return False

    def answer_ns(self, config: EngineConfig) -> int:
        """How long a question that is repeated may go unanswered on the network as it is now."""
        return config.answer_ns


@dataclass(frozen=True, slots=True)
class EngineConfig:
    retry_ns: int = 50 * MILLISECOND  # what was not answered is sent again; a few round trips of a LAN
    answer_ns: int = 500 * MILLISECOND  # on a good network, whoever has not answered by then is suspected: ten retries
    answer_max_ns: int = 20 * SECOND  # the same on the worst one
    static_quorum: int = 0  # a view of at least so many members is primary; 0 counts majorities of earlier views
    partitions: str = "primary"  # at most one side goes on ordering; "all": every side does, and there is no single log

    def __post_init__(self) -> None:
        require_between("retry_ns", self.retry_ns, MILLISECOND, 10 * SECOND)
        require_between("answer_ns", self.answer_ns, 2 * self.retry_ns, 600 * SECOND)
        require_between("answer_max_ns", self.answer_max_ns, 1, 3600 * SECOND)
        require_between("static_quorum", self.static_quorum, 0, 1 << 16)
        if self.partitions not in ("primary", "all"):
            raise ConfigError(f"partitions is {self.partitions!r}; allowed are 'primary' and 'all'")


@dataclass(frozen=True, slots=True)
class ViewInstalled(Effect):
    view: View
    subviews: tuple[View, ...] = ()  # the views that were merged into it, the one that others follow first
    lacking: tuple[int, ...] = ()  # who does not have the application's state yet
    position: int = field(default=0, compare=False)  # where the log stands when it begins


@dataclass(frozen=True, slots=True)
class Left(Effect):
    """Our own graceful leave is complete; the others have a view without us."""


@dataclass(frozen=True, slots=True)
class FlushTimedOut(Effect):
    """A member did not do its part in a view change in time; it is treated as suspected until the next view."""

    member: Address


@dataclass(frozen=True, slots=True)
class MergeFailed(Effect):
    """The merge that we led came to nothing; these coordinators were silent, refused, or could not go on."""

    coordinators: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class MergeUnanswered(Effect):
    """These coordinators said nothing to a merge that we led, not even that they refuse: crashed, or cut off."""

    coordinators: tuple[Address, ...]


class Participant:
    def __init__(
        self,
        local: Address,
        view: View,
        channel: Flushed,
        config: EngineConfig,
        counters: Counters,
        record: PrimaryRecord | None = None,
        surroundings: Surroundings | None = None,
        *,
        epoch: ViewId = NO_VIEW,
        earlier_incarnations: tuple[int, ...] = (),
    ) -> None:
        if local not in view:
            raise MisuseError(f"{local} is not in the view that it starts with")
        self.view = view
        self.record = record if record is not None else PrimaryRecord().installed(view)
        self.has_left = False
        self.epoch = max(epoch, view.id) if view.is_primary else epoch  # the last one whose log and state we share
        self.earlier_incarnations = earlier_incarnations  # what we were before we restarted with our memory
        self._local = local
        self._channel = channel
        self._config = config
        self._counters = counters
        self._surroundings = surroundings or Surroundings()
        known = (view.id.number, self.record.highest_number, epoch.number)
        self._highest_number = max(known)  # of any view that we made or know
        self._highest_round = 0  # of any ballot that was heard of in this view
        self._promised = NO_BALLOT
        self._frozen_since: int | None = None
        self._plan: CutTo | None = None  # what we are fetching
        self._is_ready = False
        self._readied: set[ViewId] = set()  # the views that we said READY to since we stopped
        self._doubts: set[ViewId] = set()  # the merged ones of them that other parts may have installed without us
        self._ended: Commit | None = None  # the COMMIT that ended the view before this one
        self._suspects: set[Address] = set()
        self._accused: set[Address] = set()
        self._leavers: set[Address] = set()
        self._wants_to_leave = False
        self._to_self: list[Frame] = []  # what we sent to ourselves; engine.py hands it back to us
        self._joined_merges: dict[int, Ballot] = {}
        self.covered: int | None = None  # how much of the one log our application had when the last view ended

    @property
    def acting_coordinator(self) -> Address | None:
        return self.view.acting_coordinator(self._distrusted())

    @property
    def is_frozen(self) -> bool:
        return self._frozen_since is not None

    @property
    def _answer_ns(self) -> int:
        return self._surroundings.answer_ns(self._config)

    # What the roles above add

    def _superseded(self, ballot: Ballot) -> list[Effect]:
        """A later ballot was promised."""
        return []

    def _over(self) -> list[Effect]:
        """The view has ended."""
        return []

    def _begun(self, now: int) -> list[Effect]:
        """A view has begun."""
        return []

    def _go_when_free(self) -> list[Effect]:
        """We are not in the view that follows."""
        return [Left()]

    # Frames

    def _send(self, to: Address, frame: Frame) -> list[Effect]:
        if to == self._local:
            self._to_self.append(frame)
            return []
        return [Transmit(to, frame)]

    def _on_prepare(self, source: Address, frame: Prepare, now: int) -> list[Effect]:
        if self._ended is not None and frame.view == self._ended.view:
            return self._send(source, self._answer(frame, {}, (), self._ended))
        if frame.view.number > self.view.id.number and source in self.view:
            return self._send(source, Nack(self.view.id, self._promised, self._promised))  # we missed how ours ended
        if frame.view != self.view.id or source not in self.view or self.has_left:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        if frame.ballot < self._promised:
            return self._send(source, Nack(frame.view, frame.ballot, self._promised))
        if frame.ballot == self._promised and not self.is_frozen:
            return []  # this ballot was called off
        effects = self._promise(frame.ballot, now, voids=frame.voids) if frame.ballot > self._promised else []
        self._frozen_since = now
        return effects + self._send(source, self._answer(frame, *self._channel.freeze(), None))

    def _promise(self, ballot: Ballot, now: int, *, voids: bool = False) -> list[Effect]:
        """A proposer that begins again will not commit what it planned, and says whether others might."""
        plan = self._plan
        if plan is not None and plan.ballot.proposer == ballot.proposer and voids:
            self._call_off_plan(plan)
        self._promised = ballot
        self._highest_round = max(self._highest_round, ballot.round)
        self._frozen_since = now
        self._plan, self._is_ready = None, False
        return self._superseded(ballot)

    def _answer(
        self, frame: Prepare, digest: Mapping[Address, DigestEntry], agreed: AgreedNumbers, ended: Commit | None
    ) -> Prepared:
        record, need = self.record, self._surroundings.need
        decided = ended.decision if ended else None
        log = (self.epoch, self._channel.position)
        may_bootstrap = self._surroundings.may_bootstrap
        known = (record.last, record.attempts)
        earlier_incarnations = named_past(self.earlier_incarnations, record)
        is_caught_up = self._channel.is_caught_up and need not in (StateNeed.LACKING, StateNeed.DISPENSABLE)
        own = (quads(digest), *known, need, may_bootstrap, *log)
        return Prepared(frame.view, frame.ballot, *own, decided, agreed, earlier_incarnations, is_caught_up)

    def _on_cut(self, source: Address, frame: CutTo, now: int) -> list[Effect]:
        if frame.view != self.view.id or frame.ballot != self._promised or not self.is_frozen:
            return self._refuse(source, frame.view, frame.ballot)
        if not self._is_above_ours(frame.decision.following):
            return self._refuse(source, frame.view, frame.ballot)
        self._frozen_since = now
        if self._is_ready:
            return self._send(source, self._readiness(frame))
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
        self._readied.add(plan.decision.following.id)
        if plan.decision.subviews:
            self._doubts.add(plan.decision.following.id)
        self._frozen_since = now
        self.record = self.record.attempted(plan.decision.following, PrimaryRecord(plan.last, plan.attempts))
        return self._send(self._member(plan.ballot.proposer), self._readiness(plan))

    def _readiness(self, plan: CutTo) -> Ready:
        decision = plan.decision
        is_followed = self._is_followed(decision)
        log = self._channel.log_after(self._cut(decision.cut), decision.agreed, log_continues=is_followed)
        return Ready(plan.view, plan.ballot, *log)

    def _is_followed(self, decision: Decision) -> bool:
        """Our log goes on in the view that follows, and those who come in from other parts take it over."""
        is_first = not decision.subviews or decision.subviews[0].id == self.view.id
        return is_first and decision.following.is_primary

    def _on_commit(self, source: Address, frame: Commit, now: int) -> list[Effect]:
        following = frame.decision.following
        if self._ended is not None and following == self._ended.decision.following:
            return self._send(source, Installed(following.id))
        if frame.view != self.view.id or frame.ballot < self._promised or self.has_left:
            return self._refuse(source, frame.view, frame.ballot)
        if not self._is_above_ours(following):
            return self._refuse(source, frame.view, frame.ballot)
        is_leaving = self._local in self._leavers or self._wants_to_leave
        if self._local not in following and not is_leaving:
            return self._go_on_alone(now)
        cut = self._cut(frame.decision.cut)
        if self._local in following and not self._is_where_we_stand(following, cut):
            return self._go_on_alone(now)
        if not self._channel.is_complete(cut):
            return self._leave_behind(frame)
        return self._install(frame, cut, now) + self._send(source, Installed(following.id))

    def _is_above_ours(self, following: View) -> bool:
        """Views are installed in the order of their numbers, whatever was delayed on its way."""
        return following.id.number > self.view.id.number

    def _is_where_we_stand(self, following: View, cut: Cuts) -> bool:
        """Whether we have delivered what all who go there have delivered: no less, and no more.

        We said READY to it. A coordinator that did not know of that may have taken us further since, or let us go on;
        then the others went there without us.
        """
        return following.id in self._readied and self._channel.is_within(cut)

    def _leave_behind(self, frame: Commit) -> list[Effect]:
        """We wanted to go, and the others did not wait for us: nobody keeps what we lack."""
        self._ended = frame
        return self._channel.end_view({}, (), log_continues=False) + self._go(frame.decision.following)

    def _install(self, frame: Commit, cut: Cuts, now: int) -> list[Effect]:
        effects = self._channel.end_view(cut, frame.decision.agreed, log_continues=self._is_followed(frame.decision))
        self._ended = frame
        if self._local in frame.decision.following:
            return effects + self._enter(frame.decision, now)
        return effects + self._go(frame.decision.following)

    def _go(self, following: View) -> list[Effect]:
        """What is remembered for the next life: the view without us came after all that we were in."""
        self.has_left = True
        self.record = self.record.installed(following)
        return self._go_when_free()

    def _go_on_alone(self, now: int) -> list[Effect]:
        """The others ended this view without us: we were cut off, or suspected. Until a merge we are our own view."""
        alone = View(self._next_id(0), (self._local,), is_primary=self._config.partitions == "all")
        lacking = (self._local.incarnation,) if self._surroundings.need is StateNeed.LACKING else ()
        return self._channel.end_view({}, (), log_continues=False) + self._enter(
            Decision((), alone, (), (), lacking), now
        )

    def _enter(self, decision: Decision, now: int) -> list[Effect]:
        before, self.view = self.view.id, decision.following
        view = self.view
        self.record = self.record.installed(view)
        self._highest_number = max(self._highest_number, view.id.number)
        self._counters[Count.VIEW_CHANGED] += 1
        effects = self._over()
        self._forget_the_old_view()
        known = {member.incarnation: member for member in view.members}
        digest = {known[incarnation]: seqno for incarnation, seqno in decision.digest if incarnation in known}
        has_log = self.epoch != NO_VIEW and self._config.partitions != "all"
        self.covered = (self._channel.position or None) if has_log else None
        taken_over = self._take_over(decision, before)
        position = self._channel.position if taken_over is None else taken_over.position
        begun = self._channel.begin_view(view, digest, taken_over, now)
        installed = ViewInstalled(view, decision.subviews, decision.lacking, position)
        return [installed, *effects, *begun, *self._begun(now)]

    def _take_over(self, decision: Decision, before: ViewId) -> LogCheckpoint | None:
        """Whose log and state we share from now on; the answer is where that log stands, if it was not ours."""
        comes_in = bool(decision.subviews) and decision.subviews[0].id != before
        has_state = any(member.incarnation not in decision.lacking for member in decision.following.members)
        if decision.following.is_primary and has_state:
            self.epoch = decision.following.id
        elif comes_in:
            self.epoch = decision.epoch
        return LogCheckpoint(decision.position, decision.producers) if comes_in else None

    def _next_id(self, known: int) -> ViewId:
        """Above every view that we made or know of: no id is used twice, and views are installed in their order."""
        self._highest_number = max(self._highest_number, known) + 1
        return ViewId(self._highest_number, self._local.incarnation)

    def _forget_the_old_view(self) -> None:
        self._promised, self._highest_round = NO_BALLOT, 0
        self._resume()
        self._accused.clear()
        self._leavers = {member for member in self._leavers if member in self.view}
        self._suspects = {member for member in self._suspects if member in self.view}

    def _on_abort(self, frame: Abort, now: int) -> list[Effect]:
        if frame.view != self.view.id or frame.ballot != self._promised or not self.is_frozen:
            return []
        if self._plan is not None and frame.is_off:
            self._call_off_plan(self._plan)
        if self._doubts:
            self._plan, self._is_ready, self._frozen_since = None, False, now
            return []
        self._resume()
        return self._channel.thaw(now)

    def _call_off_plan(self, plan: CutTo) -> None:
        """Nobody has installed what this planned, and nobody will."""
        self.record = self.record.called_off(plan.decision.following)
        self._doubts.discard(plan.decision.following.id)

    def _resume(self) -> None:
        self._frozen_since, self._plan, self._is_ready = None, None, False
        self._readied.clear()
        self._doubts.clear()

    def _refuse(self, source: Address, view: ViewId, ballot: Ballot) -> list[Effect]:
        if view == self.view.id and ballot < self._promised:
            return self._send(source, Nack(view, ballot, self._promised))
        self._counters[Count.FRAME_MISPLACED] += 1
        return []

    # Waiting

    def _whom_we_wait_for(self) -> Address:
        """The one who froze us, or whoever should have taken over from it."""
        proposer = self._member(self._promised.proposer)
        return proposer if proposer not in self._distrusted() else self.acting_coordinator or self._local

    def _ask_around(self, now: int) -> list[Effect]:
        """Frozen, and the coordinator is late: somebody may have seen the COMMIT that we did not get."""
        if self._frozen_since is None or now - self._frozen_since < self._answer_ns:
            return []
        trusted = [m for m in self.view.members if m != self._local and m not in self._distrusted()]
        frame = Nack(self.view.id, self._promised, self._promised)
        return [effect for member in trusted for effect in self._send(member, frame)]

    # Names

    def _distrusted(self) -> set[Address]:
        return self._suspects | self._accused

    def _member(self, incarnation: int) -> Address:
        """A member of this view by its incarnation; a stranger in a frame of ours is nonsense that names ourselves."""
        return next((member for member in self.view.members if member.incarnation == incarnation), self._local)

    def _cut(self, cut: Quads) -> dict[Address, Cut[Address]]:
        known = {member.incarnation for member in self.view.members}
        return {self._member(s): Cut(seqno, self._member(h), stable) for s, seqno, h, stable in cut if s in known}


def quads(digest: Mapping[Address, DigestEntry]) -> Quads:
    return tuple((member.incarnation, entry.low, entry.delivered, entry.received) for member, entry in digest.items())
