"""Membership as one machine: discovery, failure detection, view changes and state transfer together.

    another view is found, and we should lead    -> after gather_ns the engine merges it with ours
    another view is found, and it should lead    -> it has timeout_ns to do so
    a suspect, a member in a different view, one whose process restarted, one that others cannot receive from
                                                 -> the engine removes it
    nobody ever was in a primary view, enough
    seeds are here, all look-ups succeeded,
    nobody else answers                          -> the view is made primary: the group is bootstrapped

Invariant: the detector watches exactly the members of the engine's view, and discovery knows that view.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from random import Random

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect, Frame, Transmit
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.settling import steps
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import NO_VIEW, View, ViewId, ViewSummary
from motet.protocol.membership.config import MembershipConfig
from motet.protocol.membership.context import IN_DOUBT_ANSWERS
from motet.protocol.membership.detector import (
    MOST_REPLACED,
    FailureDetector,
    LinkReport,
    SignOfLife,
    Suspected,
    Trusted,
)
from motet.protocol.membership.discovery import FRESH_PROBES, Discovery, DnsName, SharedDirectory
from motet.protocol.membership.engine import FRAMES as ENGINE_FRAMES
from motet.protocol.membership.engine import (
    EngineConfig,
    FlushTarget,
    MembershipCallbacks,
    MergeFailed,
    ViewEngine,
    ViewInstalled,
)
from motet.protocol.membership.primary import PrimaryRecord, is_primary
from motet.protocol.membership.reports import Reports
from motet.protocol.membership.transfer import StateFailed, StateTransfer
from motet.protocol.wire.frames import (
    AreYouAlive,
    Busy,
    Heartbeat,
    Hello,
    HelloBack,
    IAmAlive,
    IndirectProbe,
    StateChunk,
    StateNeed,
    StateRefusal,
    StateRequest,
    Suspicion,
    Vouched,
)

DETECTOR_FRAMES = (Heartbeat, AreYouAlive, IAmAlive)
INDIRECT_FRAMES = (IndirectProbe, Vouched)
TRANSFER_FRAMES = (StateRequest, StateChunk, StateRefusal)
FRAMES = (*DETECTOR_FRAMES, *INDIRECT_FRAMES, *ENGINE_FRAMES, *TRANSFER_FRAMES, Suspicion, Busy)
GREETINGS = (Hello, HelloBack)  # they introduce their sender, so they may come from anybody
MOST_BACKED_OFF = 1024
LEAVE_NS = 5 * SECOND  # how long one who leaves goes on giving its state to those who wait for it


class Membership(MembershipCallbacks):
    def __init__(
        self,
        local: Address,
        channel: FlushTarget,
        config: MembershipConfig,
        counters: Counters,
        rng: Random,
        record: PrimaryRecord | None = None,
        epoch: ViewId = NO_VIEW,
        chain: tuple[int, ...] = (),
    ) -> None:
        alone = View(ViewId(1, local.incarnation), (local,), is_primary=config.engine.partitions == "all")
        self._local = local
        self._config = config
        self._counters = counters
        self._rng = rng
        self._detector = FailureDetector(local, config.detector)
        self._discovery = Discovery(local, config.discovery, rng)
        self._transfer = StateTransfer(local, config.transfer, counters)
        known = record or PrimaryRecord()
        self._engine = ViewEngine(local, alone, channel, config.engine, counters, known, self, epoch=epoch, chain=chain)
        self._now = 0
        self._due: int | None = None
        self._is_due_known = False
        self._started_at: int | None = None
        self._suspected: set[Address] = set()  # by the detector, as its effects say
        self._distrusted: tuple[Address, ...] = ()  # what was last passed to the engine
        self._in_other_view: dict[Address, tuple[int, int]] = {}  # first and last sign of it
        self._reports = Reports(local, config.detector)
        self._report_at: int | None = None
        self._unacted_since: int | None = None  # since when we suspect somebody, in this view
        self._sighted_at: int | None = None  # when we first saw a view that we could merge with
        self._backed_off: dict[Address, int] = {}  # coordinators that we leave alone until then
        self._members = alone.members
        self._failed_bootstrap: tuple[
            Address, ...
        ] = ()  # these tried to bootstrap the group, and one of them knows or lacks too much
        self._lineage = epoch  # the epoch when the last view ended
        self._leave_at: int | None = None  # we want to leave, and give our state to those who wait for it until then

    # What the application asks for

    def start(self, now: int) -> list[Effect]:
        self._started_at = now
        self._discovery.begin(self.view, now)
        return self._settle([], now)

    def leave(self, now: int) -> list[Effect]:
        """Those who wait for our state get it first: we may be the last one who has it."""
        if self._config.transfer.needs_state and self._transfer.is_giving:
            self._leave_at = now + LEAVE_NS
            return self._settle([], now)
        return self._settle(self._engine.leave(now), now)

    def found(self, source: DnsName | SharedDirectory, endpoints: Sequence[Endpoint], now: int) -> list[Effect]:
        """The answer to `Consult`."""
        return self._settle(self._discovery.found(source, endpoints, now), now)

    def not_found(self, source: DnsName | SharedDirectory, now: int) -> list[Effect]:
        """The look-up that `Consult` asked for has failed."""
        self._discovery.not_found(source)
        return self._settle([], now)

    def supply_state(self, view: ViewId, data: bytes, is_last: bool, now: int) -> list[Effect]:
        """The answer to `ProvideState`, in as many pieces as the application likes."""
        return self._settle(self._transfer.supply(view, data, is_last, now), now)

    def require_state(self) -> None:
        self._transfer.require()

    def begin_state_anew(self, now: int) -> list[Effect]:
        """Where nobody has the state: our application's is the group's from the next view on."""
        self._transfer.begin_anew()
        return self._settle([], now)

    def rolled_back(self) -> None:
        """Our application has messages that the group did not agree on."""
        self._transfer.rolled_back()

    def refuse_state(self, view: ViewId, reason: str, now: int) -> list[Effect]:
        return self._settle(self._transfer.refuse(view, reason, now), now)

    # What the channels report

    def heard(self, source: Address, now: int) -> list[Effect]:
        """Any frame of a member is a sign of life."""
        effects = self._observed(self._detector.heard(source, now))
        return self._settle(effects, now) if effects else []

    def spoke(self, now: int) -> None:
        self._detector.spoke(now)

    def progressed(self, now: int) -> list[Effect]:
        """The channel may have got what a flush was waiting for."""
        return self._settle(self._engine.progressed(now), now) if self._engine.is_frozen else []

    def behind_purge_point(self, sender: Address, now: int) -> list[Effect]:
        """We are behind the purge point of a member: it does not count us in, so it is in a different view."""
        self._note_other_view(sender, now)
        return self._settle([], now)

    # What the network and the clock bring

    def misaddressed(self, sources: Sequence[Endpoint], now: int) -> list[Effect]:
        """Datagrams for an earlier incarnation of ours came from there: a group may exist that still counts it in."""
        return self._settle([asked for at in sources for asked in self._discovery.misaddressed(at, now)], now)

    def greet(self, frame: Hello | HelloBack, now: int) -> list[Effect]:
        discovery = self._discovery
        effects = discovery.hello(frame, now) if isinstance(frame, Hello) else discovery.hello_back(frame, now)
        if frame.sender in self.view:
            effects += self._compare(frame.sender, frame.view.id, now)
        return self._settle(effects, now)

    def receive(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        self._now = now
        if isinstance(frame, Busy):
            return self._settle(self._observed(self._detector.receive_busy(source, frame, now)), now)
        effects = self._observed(self._detector.heard(source, now))
        if isinstance(frame, DETECTOR_FRAMES):
            effects += self._on_sign_of_life(source, frame, now)
        elif isinstance(frame, INDIRECT_FRAMES):
            effects += self._observed(self._detector.receive_indirect(source, frame, now))
        elif isinstance(frame, Suspicion):
            effects += self._on_suspicion(frame, now)
        elif isinstance(frame, TRANSFER_FRAMES):
            effects += self._transfer.receive(source, frame, now)
        else:
            effects += self._engine.receive(source, frame, now)
        return self._settle(effects, now)

    def tick(self, now: int) -> list[Effect]:
        self._now = now
        effects = self._observed(self._detector.tick(now))
        effects += self._discovery.tick(now)
        effects += self._engine.tick(now)
        effects += self._transfer.tick(now)
        effects += self._report(now)
        return self._settle(effects, now)

    def next_deadline(self) -> int | None:
        """Computed again when something has settled. Signs of life in between only postpone it."""
        if not self._is_due_known:
            self._due, self._is_due_known = self._reckon_deadline(), True
        return self._due

    def _reckon_deadline(self) -> int | None:
        parts = (self._detector, self._discovery, self._engine, self._transfer)
        own = (self._merge_due(), self._bootstrap_due(), self._report_due(), self._leave_at)
        deadlines = [*(part.next_deadline() for part in parts), *own]
        return min((due for due in deadlines if due is not None), default=None)

    # What others may look at

    @property
    def view(self) -> View:
        return self._engine.view

    @property
    def epoch(self) -> ViewId:
        """The last primary view whose log and state we share."""
        return self._engine.epoch

    @property
    def record(self) -> PrimaryRecord:
        return self._engine.record

    @property
    def chain(self) -> tuple[int, ...]:
        """Our earlier incarnations, whose durable state we have."""
        return self._engine.chain

    @property
    def has_left(self) -> bool:
        return self._engine.has_left

    @property
    def is_settled(self) -> bool:
        """No view change is under way, as far as we know, and nobody is doubted."""
        return self._engine.is_idle and not self._distrusted

    @property
    def is_waiting_for_state(self) -> bool:
        return self._transfer.is_waiting

    @property
    def handed_up(self) -> int:
        """Chunks of the state of this view that the application was given."""
        return self._transfer.handed_up

    @property
    def is_state_lost(self) -> bool:
        """Nobody in our view has the application's state."""
        return self._transfer.is_lost

    @property
    def is_holder_again(self) -> bool:
        """Nobody in our view has the state, and we are about to give ours."""
        return self._transfer.is_holder_again

    @property
    def state_provider(self) -> Address | None:
        """Whose state we wait for."""
        return self._transfer.provider

    @property
    def suspects(self) -> tuple[Address, ...]:
        """Whom the detector suspects, in the order of the view."""
        return tuple(member for member in self._members if member in self._suspected)

    def known(self, incarnation: int) -> Address | None:
        return self._discovery.known(incarnation)

    # What the engine asks

    @property
    def state_need(self) -> StateNeed:
        return self._transfer.need

    @property
    def counts_for_bootstrap(self) -> bool:
        return self._config.may_bootstrap

    def may_bootstrap(self, members: Sequence[Address]) -> bool:
        """With seeds, a majority of them must be in: two halves of a group that starts cannot both have that.

        Without seeds nothing but silence shows that there is no group yet.
        """
        return self._has_bootstrap_quorum(members) and self._is_quiet(self._now)

    def was_alive(self, member: Address, since: int) -> bool:
        return self._detector.has_received_from(member, since)

    def is_busy(self, member: Address, now: int) -> bool:
        return self._detector.is_busy(member, now)

    @property
    def busy(self) -> tuple[Address, ...]:
        """Members whose process is alive while their driver does not run, as of the last input."""
        return self._detector.busy(self._now)

    def answer_ns(self, config: EngineConfig) -> int:
        return self._detector.answer_ns(config.retry_ns, config.answer_ns, config.answer_max_ns)

    def is_received_by_all(self, now: int) -> bool:
        """Whether all members receive from us, as far as they have reported."""
        return self._detector.is_received_by_all(now)

    def links(self) -> dict[Address, LinkReport]:
        """What is measured of the link with each other member, and how long its crash would go unnoticed."""
        return self._detector.links()

    def is_backed_off(self, coordinator: Address) -> bool:
        return self._reports.is_quarantined(coordinator, self._now) or bool(self.busy)

    def _has_bootstrap_quorum(self, members: Sequence[Address]) -> bool:
        seeds, here = self._config.seeds, {member.endpoint for member in members}
        is_enough = not seeds or 2 * sum(seed in here for seed in seeds) > len(seeds)
        return self._config.may_bootstrap and self._started_at is not None and is_enough

    def _is_quiet(self, now: int) -> bool:
        due = self._quiet_from(counts_strangers=not self._config.seeds)
        return due is not None and now >= due

    def _quiet_from(self, *, counts_strangers: bool) -> int | None:
        """When silence suffices to bootstrap. None while a look-up fails, because silence then proves nothing."""
        discovery, bootstrap_after_ns = self._discovery, self._config.bootstrap_after_ns
        looked_up_at = 0 if self._config.bootstrap_without_lookup else discovery.looked_up_at
        if looked_up_at is None:
            return None
        heard = (self._started_at, looked_up_at, discovery.heard_foreign_at if counts_strangers else None)
        quiet_from = max((at for at in heard if at is not None), default=0) + bootstrap_after_ns
        if discovery.heard_primary_at is None:
            return quiet_from
        # A few answers of an existing group may be lost before it counts as gone.
        fresh_ns = FRESH_PROBES * self._config.discovery.probe_ns
        return max(quiet_from, discovery.heard_primary_at + max(bootstrap_after_ns, fresh_ns))

    # Effects of the parts, for one another

    def _settle(self, effects: list[Effect], now: int) -> list[Effect]:
        """Carry effects between the parts until nothing changes; what remains is for the outside."""
        self._now, self._is_due_known = now, False
        out = [made for effect in effects for made in self._digest(effect, now)]
        for _ in steps("membership"):
            effects = self._review(now) or self._follow_up(now)
            if not effects:
                break
            out += [made for effect in effects for made in self._digest(effect, now)]
        return out

    def _observed(self, effects: list[Effect]) -> list[Effect]:
        """Suspicion enters here, as an input, and nowhere else: the detector is not asked again whom it suspects."""
        for effect in effects:
            if isinstance(effect, Suspected):
                self._suspected.add(effect.peer)
            elif isinstance(effect, Trusted):
                self._suspected.discard(effect.peer)
        return effects

    def _digest(self, effect: Effect, now: int) -> list[Effect]:
        match effect:
            case ViewInstalled():
                begun = self._begin_view(effect, now)
                failed = [e for e in begun if isinstance(e, StateFailed)]  # of the view that has ended
                return [*failed, effect, *(e for e in begun if not isinstance(e, StateFailed))]
            case MergeFailed():
                self._back_off(effect.coordinators, now)
                return []
            case Transmit() if effect.to == self._local:
                return self.receive(self._local, effect.frame, now)
        return [effect]

    def _begin_view(self, installed: ViewInstalled, now: int) -> list[Effect]:
        before = self._members
        view, self._members = installed.view, installed.view.members
        self._suspected.intersection_update(view.members)  # a peer that comes back is watched anew, as trusted
        is_no_op = view.members == before and not view.is_primary  # nothing but the attempt to bootstrap does that
        was_quiet = is_no_op and self._is_quiet(now)  # else it is tried again later
        self._failed_bootstrap = view.members if was_quiet else ()
        self._in_other_view.clear()
        self._reports.begin_view(view.members, now)
        self._report_at = self._sighted_at = self._unacted_since = None
        self._detector.watch(installed.view.members, now, installed.view.id)
        self._discovery.begin(installed.view, now)
        is_latest = installed.view is self._engine.view
        lineage, self._lineage = self._lineage, self.epoch
        return self._transfer.begin_view(
            installed.view,
            installed.lacking,
            now,
            is_merge=bool(installed.subviews),
            position=installed.position,
            covered=self._engine.covered if is_latest else None,
            lineage=lineage,
        )

    def _review(self, now: int) -> list[Effect]:
        """Tell the engine whom we distrust, if that has changed."""
        out = self._suspected | set(self._discovery.replaced)
        out |= {member for member, (since, last) in self._in_other_view.items() if last >= since + self._other_view_ns}
        out |= self._bypassed(out, now)
        grace_ns = self._detector.detection_ns + 2 * self._config.detector.heartbeat_ns
        out.update(self._reports.chosen(self.view.members, out, now, grace_ns, self._detector.lapse_ns))
        distrusted = tuple(member for member in self.view.members if member in out and member != self._local)
        if distrusted == self._distrusted:
            return []
        self._distrusted = distrusted
        return self._engine.suspect(distrusted, now)

    def _bypassed(self, distrusted: set[Address], now: int) -> set[Address]:
        """A busy coordinator is given the time of a silent one to act on a suspicion; then the next in line acts."""
        if not self._suspected:
            self._unacted_since = None
            return set()
        if self._unacted_since is None:
            self._unacted_since = now
        if now - self._unacted_since < IN_DOUBT_ANSWERS * self.answer_ns(self._config.engine):
            return set()
        seniors = (member for member in self.view.members if member not in distrusted)
        return set(takewhile(lambda member: self._detector.is_busy(member, now), seniors))

    def _follow_up(self, now: int) -> list[Effect]:
        """What is due now that all has settled: to probe for others, to merge with them, to bootstrap."""
        if self._engine.acting_coordinator == self._local and not self.has_left:
            self._discovery.activate(now)
        else:
            self._discovery.deactivate()
        return self._merge(now) + self._bootstrap(now) + self._form_again(now) + self._leave_at_last(now)

    # Members in a different view

    @property
    def _other_view_ns(self) -> int:
        """A COMMIT in flight may take so long, and a busy member reports its view only so often.

        Signs of a different view have to come for so long, with none of ours between them: one that was delayed on its
        way says nothing about where its sender is now.
        """
        return 2 * self.answer_ns(self._config.engine) + MOST_REPLACED * self._config.detector.heartbeat_ns

    def _on_sign_of_life(self, source: Address, frame: SignOfLife, now: int) -> list[Effect]:
        is_late = self._detector.is_late(source, frame)
        effects = self._observed(self._detector.receive(source, frame, now))
        if isinstance(frame, AreYouAlive) or is_late:
            return effects
        return effects + self._compare(source, frame.view, now)

    def _compare(self, source: Address, view: ViewId, now: int) -> list[Effect]:
        """A peer reports its view. A member that is in a different one may catch up, or let us do so."""
        if view == self.view.id:
            self._in_other_view.pop(source, None)
        if view in (self.view.id, NO_VIEW) or source == self._local:
            return []
        if source not in self.view:
            return self._discovery.notice(source, now) + self._engine.noticed(source, view, now)
        doubted: list[Effect] = [] if source in self._in_other_view else [Transmit(source, AreYouAlive())]
        self._note_other_view(source, now)
        return doubted + self._engine.noticed(source, view, now)

    def _note_other_view(self, member: Address, now: int) -> None:
        since, _ = self._in_other_view.get(member, (now, now))
        self._in_other_view[member] = (since, now)

    # Suspicions of members that are not coordinator

    def _report_due(self) -> int | None:
        return self._report_at if self._suspected else None

    def _report(self, now: int) -> list[Effect]:
        """The coordinator may receive from those from whom we do not; it has to decide between us."""
        suspects, coordinator = self.suspects, self._engine.acting_coordinator
        if not suspects or (self._report_at is not None and now < self._report_at):
            return []
        self._report_at = now + self._config.detector.heartbeat_ns
        if coordinator is None or coordinator == self._local:
            return []
        named = tuple(suspect.incarnation for suspect in suspects)
        return [Transmit(coordinator, Suspicion(self.view.id, self._local.incarnation, named))]

    def _on_suspicion(self, frame: Suspicion, now: int) -> list[Effect]:
        if frame.view != self.view.id:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        coordinator = self._engine.acting_coordinator
        if coordinator is not None and coordinator != self._local:
            return [Transmit(coordinator, frame)]  # more senior than we are, so it goes nowhere in circles
        named = {member.incarnation: member for member in self.view.members}
        reporter = named.get(frame.reporter)
        for suspect in (named[incarnation] for incarnation in frame.suspects if incarnation in named):
            if reporter is not None and reporter != suspect:
                self._reports.tell(reporter, suspect, now)
        return []

    # Merge

    def _foreign(self, now: int) -> list[ViewSummary]:
        """Views that we could merge with: their coordinators answer, and none of them is quarantined or backed off.

        A merge waits while a member is busy: to merge without it would remove it for the sake of one who joins.
        """
        if not self._engine.is_idle or self._engine.acting_coordinator != self._local or self._distrusted:
            return []
        if self._detector.busy(now):
            return []
        found = [one for one in self._discovery.foreign(now) if not self._reports.is_quarantined(one.coordinator, now)]
        return [summary for summary in found if now >= self._backed_off.get(summary.coordinator, 0)]

    def _merge_due(self) -> int | None:
        foreign = self._foreign(self._now)
        if not foreign or self._sighted_at is None:
            return None
        ours = _rank(self.view.summary)
        is_leader = all(ours > _rank(summary) for summary in foreign)
        return self._sighted_at + (self._config.gather_ns if is_leader else self._config.timeout_ns)

    def _merge(self, now: int) -> list[Effect]:
        foreign = self._foreign(now)
        if not foreign:
            self._sighted_at = None
            return []
        if self._sighted_at is None:
            self._sighted_at = now
        due = self._merge_due()
        if due is None or now < due:
            return []
        self._sighted_at = None
        return self._engine.lead_merge(foreign[: self._config.most_parts - 1], now)

    def _back_off(self, coordinators: Sequence[Address], now: int) -> None:
        """Quarantine them for a while, each for a different one: two that collided once would collide again."""
        for coordinator in coordinators:
            self._discovery.forget(coordinator)
            self._backed_off.pop(coordinator, None)
            self._backed_off[coordinator] = now + self._config.gather_ns + self._rng.randrange(self._config.timeout_ns)
            if len(self._backed_off) > MOST_BACKED_OFF:
                del self._backed_off[next(iter(self._backed_off))]

    # The application's state

    def _form_again(self, now: int) -> list[Effect]:
        """The same members in a new view: another holder gives the state, or we are a holder now."""
        if not self._engine.is_idle or self._distrusted:
            return []
        is_ours = self._engine.acting_coordinator == self._local
        if is_ours and (self._transfer.wants_other_provider or self._transfer.is_holder_again):
            return self._engine.form_again(now)
        return self._engine.separate(now) if self._transfer.is_holder_again else []

    def _leave_at_last(self, now: int) -> list[Effect]:
        if self._leave_at is None or (self._transfer.is_giving and now < self._leave_at):
            return []
        self._leave_at = None
        return self._engine.leave(now)

    # Bootstrap

    def _bootstrap_due(self) -> int | None:
        """When the view that we coordinate may be made primary, though its members stay the same."""
        is_ours = self._engine.is_idle and self._engine.acting_coordinator == self._local
        is_futile = self._transfer.is_lost or bool(self.busy)
        is_no_op = self.view.is_primary or self.view.members == self._failed_bootstrap or is_futile
        if not is_ours or is_no_op or self._started_at is None:
            return None
        if quorum := self._config.engine.static_quorum:
            return self._started_at if len(self.view.members) >= quorum else None
        if self.record.last is not None:
            return self._started_at if self._is_enough_alone else None
        return self._quiet_from(counts_strangers=True) if self._has_bootstrap_quorum(self.view.members) else None

    @property
    def _is_enough_alone(self) -> bool:
        """We restarted with our durable state, and the last primary view that it names had no member but us."""
        chain = self._engine.chain
        return self.view.members == (self._local,) and is_primary(self.view.members, [self.record], chains=chain)

    def _bootstrap(self, now: int) -> list[Effect]:
        due = self._bootstrap_due()
        return self._engine.form_again(now) if due is not None and now >= due else []

    def _check(self) -> None:
        self._detector._check()
        self._discovery._check()
        self._engine._check()
        self._transfer._check()
        assert self.suspects == self._detector.suspects, "a suspicion was lost on its way"
        assert len(self._reports) <= len(self.view.members) ** 2
        assert all(member in self.view for member in self._in_other_view)
        if self._is_due_known:
            due = self._reckon_deadline()
            assert due is None or (self._due is not None and self._due <= due), "we would wake too late"


def _rank(summary: ViewSummary) -> tuple[bool, int, int]:
    """Who leads a merge: the part that continues the log, then the largest; of two that are alike, either."""
    return (summary.is_primary, summary.size, -summary.coordinator.incarnation)
