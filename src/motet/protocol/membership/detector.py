"""Failure detection: any traffic is a sign of life, silence is verified before it is believed.

    idle for heartbeat_ns                       -> a heartbeat goes to the peers, with the view that we are in
    busy for four times that                    -> the same: others must hear of it when we are in another view; and
                                                   at once where datagrams are lost, because beats measure the loss
    a peer silent for suspect_ns, or for as
    long as it paused a short while ago         -> it is probed directly, and others are asked to probe it for us
    others have heard it                        -> the link is bad and the peer lives: its time begins again, twice at
                                                   most, because whom we cannot hear we cannot follow
    the silence is no accident any more         -> it is suspected
    any frame of a suspected peer               -> it is trusted again
    BUSY, sent on behalf of a peer whose
    process lives while its driver does not run -> a sign of life, until busy_max_ns after its last other frame

An accrual detector: what a silence says against a peer grows with every heartbeat that did not come and every probe
that was not answered, and by how much follows from the loss that was measured (links.py). DetectorConfig has the
formula.

Invariant: a peer is trusted, being asked, or suspected, and exactly one of them; only current peers are in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, log
from typing import NamedTuple

from motet.protocol.core.checks import require_between
from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import NO_VIEW, ViewId
from motet.protocol.membership.links import LEAST_LOSS, LOSS_SCALE, Link, Links, doubt, tries
from motet.protocol.wire.frames import AreYouAlive, Busy, Heartbeat, IAmAlive, IndirectProbe, Vouched

MOST_REPLACED = 4  # heartbeats that other traffic may replace in a row
FALSE_POSITIVES = 1e-8  # per silence, where datagrams are lost independently of one another, at the measured rate
ENOUGH_DOUBT = -log(FALSE_POSITIVES)
UNANSWERED_BY_CHANCE = 1e-6  # per question of a view change: a member that is dropped there by mistake merges again
MOST_VOUCHES = 2  # in one silence
PROXIES = 3  # members that are asked to probe for us
PAUSE_HALF_LIFE_NS = 5 * SECOND  # a process that paused once may do so again, soon rather than late
MOST_PAUSE = 4  # times suspect_ns: longer than that nobody is waited for because of earlier pauses

SignOfLife = AreYouAlive | IAmAlive | Heartbeat


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """How long silence may last.

    A peer is suspected when it was silent for suspect_ns, did not answer verify_attempts probes, and

        missed heartbeats · -ln(p)  +  unanswered probes · -ln(1 - (1-p)(1-p'))  >=  -ln(FALSE_POSITIVES)

    where p is the measured share of its datagrams that are lost or overtaken, p' that of ours, both at least 5 %, and
    when the silence has lasted for a round trip with four deviations; but at the latest after suspect_max_ns. So the
    chance that the silence of a living peer ends in a suspicion is FALSE_POSITIVES at most, where datagrams are lost
    independently of one another and p is known. Where less than 5 % are lost, what counts against a crashed peer after
    suspect_ns and verify_attempts probes is enough in every preset: it is suspected suspect_ns + verify_ns after its
    last frame arrived. Where heartbeats or probes are fewer, more probes follow at the same distance.
    """

    heartbeat_ns: int = 250 * MILLISECOND  # a fifth of the time that it must bridge
    suspect_ns: int = 1_250 * MILLISECOND  # five heartbeats lost in a row
    verify_ns: int = 500 * MILLISECOND  # how long a suspect has to answer, where nothing is lost
    verify_attempts: int = 4  # spread evenly over verify_ns; where datagrams are lost more follow at the same distance
    suspect_max_ns: int = 30 * SECOND  # on the worst network; so late a crash is noticed there
    busy_max_ns: int = 60 * SECOND  # how long BUSY frames alone keep a peer in the view: a process may hang for ever

    def __post_init__(self) -> None:
        require_between("heartbeat_ns", self.heartbeat_ns, MILLISECOND, 60 * SECOND)
        require_between("suspect_ns", self.suspect_ns, 2 * self.heartbeat_ns, 600 * SECOND)
        require_between("verify_attempts", self.verify_attempts, 1, 100)
        require_between("verify_ns", self.verify_ns, self.verify_attempts, 600 * SECOND)
        require_between("suspect_max_ns", self.suspect_max_ns, 1, 3600 * SECOND)
        require_between("busy_max_ns", self.busy_max_ns, 0, 3600 * SECOND)

    @property
    def probe_ns(self) -> int:
        """From one probe to the next."""
        return self.verify_ns // self.verify_attempts

    @property
    def longest_ns(self) -> int:
        """The longest silence of a peer that is not suspected; never shorter than what a good network is given."""
        return max(self.suspect_max_ns, self.suspect_ns + self.verify_ns)


@dataclass(frozen=True, slots=True)
class Suspected(Effect):
    peer: Address


@dataclass(frozen=True, slots=True)
class Trusted(Effect):
    """A suspected peer was heard again."""

    peer: Address


@dataclass(frozen=True, slots=True)
class BecameBusy(Effect):
    """A peer would be probed by now, and its process says that it is alive and does not get to run its driver."""

    peer: Address


@dataclass(frozen=True, slots=True)
class BecameResponsive(Effect):
    """A busy peer answers for itself again."""

    peer: Address


class LinkReport(NamedTuple):
    """What is measured of the link with one peer, and what follows from it."""

    loss_in: float  # the share of its beats that are lost or overtaken
    loss_out: float  # the same of ours, as the peer tells it
    round_trip_ns: int | None  # smoothed; None until it was measured
    detection_ns: int  # how long a crash of this peer would go unnoticed


class Standing(Enum):
    TRUSTED = "trusted"
    ASKED = "asked"  # silent, and asked directly
    SUSPECTED = "suspected"


@dataclass(slots=True)
class _Peer:
    received_at: int
    busy_at: int = 0  # the last BUSY that counted since the peer was heard; 0: none
    is_busy_notified: bool = False  # whether BecameBusy was returned since then
    standing: Standing = Standing.TRUSTED
    link: Link = field(default_factory=Link)
    asked_at: int = 0  # when it was last asked: a process that was paused leaves its peers time to answer
    asked: int = 0  # how often, since it was heard or vouched for
    silent_since: int = 0  # the same moment: what counts against it came after that
    vouches: int = 0  # in this silence
    pause_ns: int = 0  # by how much its last long silence exceeded suspect_ns
    paused_at: int = 0
    askers: dict[Address, int] = field(default_factory=dict)  # who wants to know whether it lives, until when

    @property
    def alive_at(self) -> int:
        """The last sign of life, be it BUSY."""
        return max(self.received_at, self.busy_at)


class FailureDetector:
    def __init__(self, local: Address, config: DetectorConfig) -> None:
        self._local = local
        self._config = config
        self._links = Links()
        self._peers: dict[Address, _Peer] = {}
        self._spoke_at = 0  # when we last sent something to all peers
        self._notified_at: int | None = None  # when we last told them our view, or first had something else to say
        self._view = self._view_before = NO_VIEW

    def watch(self, peers: Sequence[Address], now: int, view: ViewId = NO_VIEW) -> None:
        """Watch exactly these from now on; those who are new are given a full time of silence."""
        self._view, self._view_before = view, self._view
        wanted = [peer for peer in peers if peer != self._local]
        self._peers = {peer: self._peers.get(peer) or _Peer(now, link=Link.begun(now)) for peer in wanted}
        for state in self._peers.values():
            state.askers.clear()  # they asked in the view that is over, and may not be in this one

    def spoke(self, now: int) -> None:
        """We sent something to every peer: no heartbeat is needed for a while."""
        self._spoke_at = now
        self._notified_at = now if self._notified_at is None else self._notified_at

    def heard(self, peer: Address, now: int) -> list[Effect]:
        """Any frame of `peer` arrived."""
        state = self._peers.get(peer)
        if state is None:
            return []
        if state.standing is Standing.TRUSTED and not state.askers and not state.busy_at:
            state.received_at = now
            return []
        return self._received_again(peer, state, now)

    def receive_busy(self, peer: Address, frame: Busy, now: int) -> list[Effect]:
        """The process of `peer` is alive, and its driver does not run. That is a sign of life for a limited time only.

        BUSY was prepared in the view that the peer is in. It may have missed the COMMIT of ours, so the view before
        ours counts as well; what was recorded in any other view proves nothing.
        """
        state = self._peers.get(peer)
        is_current = frame.view in (self._view, self._view_before)
        if state is None or not is_current or now - state.received_at > self._config.busy_max_ns:
            return []
        effects = self._alive_again(peer, state, now)
        state.busy_at = now
        if not state.is_busy_notified and now - state.received_at >= self._config.suspect_ns:
            state.is_busy_notified = True
            effects.append(BecameBusy(peer))
        return effects

    def is_busy(self, peer: Address, now: int) -> bool:
        """Whether BUSY is the latest that came from it, and not long ago."""
        state = self._peers.get(peer)
        return state is not None and state.busy_at > 0 and now - state.busy_at <= self._config.suspect_ns

    def busy(self, now: int) -> tuple[Address, ...]:
        return tuple(peer for peer in self._peers if self.is_busy(peer, now))

    def _received_again(self, peer: Address, state: _Peer, now: int) -> list[Effect]:
        effects = self._alive_again(peer, state, now)
        if state.is_busy_notified:
            effects.append(BecameResponsive(peer))
        state.received_at, state.busy_at, state.is_busy_notified = now, 0, False
        return effects

    def _alive_again(self, peer: Address, state: _Peer, now: int) -> list[Effect]:
        """After a silence, ours or that of somebody who asked us."""
        self._learn_pause(state, now)
        was_suspected = state.standing is Standing.SUSPECTED
        state.standing = Standing.TRUSTED
        curious = [asker for asker, until in state.askers.items() if now <= until and asker in self._peers]
        state.askers.clear()
        vouched: list[Effect] = [Transmit(asker, Vouched(self._view, peer.incarnation)) for asker in curious]
        return [Trusted(peer), *vouched] if was_suspected else vouched

    def is_late(self, source: Address, frame: SignOfLife) -> bool:
        """Whether a later beat of the same peer has arrived before: then what this one tells may be over."""
        state = self._peers.get(source)
        return state is not None and frame.beat > 0 and state.link.is_late(frame.beat)

    def receive(self, source: Address, frame: SignOfLife, now: int) -> list[Effect]:
        """Answer whoever asks, member or not: only the asker knows why it asks."""
        effects = self.heard(source, now)
        state = self._peers.get(source)
        if state is not None and frame.beat > 0:
            self._measure(state.link, frame, now)
        if isinstance(frame, AreYouAlive):
            effects.append(Transmit(source, IAmAlive(self._view, *self._measured(state, now))))
        return effects

    def _measure(self, link: Link, frame: SignOfLife, now: int) -> None:
        if not link.is_late(frame.beat):
            link.loss_out = min(frame.loss, LOSS_SCALE) / LOSS_SCALE
        self._links.arrived(link, frame.beat, now)
        link.echoed(frame.echo, frame.echo_delay_ns, now)

    def receive_indirect(self, source: Address, frame: IndirectProbe | Vouched, now: int) -> list[Effect]:
        """Somebody cannot hear a member of our view, or heard one that we cannot hear."""
        effects = self.heard(source, now)
        target = next((peer for peer in self._peers if peer.incarnation == frame.target), None)
        if target is None or frame.view != self._view or source not in self._peers or target == source:
            return effects
        state = self._peers[target]
        if isinstance(frame, IndirectProbe):
            return effects + self._probe_for(source, target, state, now)
        is_open = state.standing is Standing.ASKED and state.vouches < MOST_VOUCHES and self._has_time_left(state, now)
        if is_open and state.asked > 0:  # of several proxies that answer one question the first one counts
            state.vouches += 1
            state.asked, state.silent_since = 0, now
        return effects

    def _has_time_left(self, state: _Peer, now: int) -> bool:
        """Whether all probes can be sent once more before the longest silence is over."""
        config = self._config
        return now + config.verify_ns + config.probe_ns <= state.alive_at + config.longest_ns

    def _probe_for(self, asker: Address, target: Address, state: _Peer, now: int) -> list[Effect]:
        if now - state.alive_at <= self._config.heartbeat_ns:
            return [Transmit(asker, Vouched(self._view, target.incarnation))]
        state.askers[asker] = now + self._config.verify_ns
        return [self._probe(target, state, now)]

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._peers and now >= self._heartbeat_due:
            self._spoke_at = self._notified_at = now
            effects += [
                Transmit(peer, Heartbeat(self._view, *self._measured(state, now)))
                for peer, state in self._peers.items()
            ]
        for peer, state in self._peers.items():
            effects += self._examine(peer, state, now)
        return effects

    def next_deadline(self) -> int | None:
        if not self._peers:
            return None
        open_cases = (state for state in self._peers.values() if state.standing is not Standing.SUSPECTED)
        return min([self._heartbeat_due, *map(self._deadline, open_cases)])

    @property
    def _heartbeat_due(self) -> int:
        interval_ns = self._config.heartbeat_ns
        idle_due = self._spoke_at + interval_ns
        if self._notified_at is None:
            return idle_due
        most_replaced = MOST_REPLACED if self._links.common.share < LEAST_LOSS else 1
        return min(idle_due, self._notified_at + most_replaced * interval_ns)

    @property
    def suspects(self) -> tuple[Address, ...]:
        return tuple(peer for peer, state in self._peers.items() if state.standing is Standing.SUSPECTED)

    def has_received_from(self, peer: Address, since: int) -> bool:
        return peer in self._peers and self._peers[peer].alive_at >= since

    def standing(self, peer: Address) -> Standing | None:
        return self._peers[peer].standing if peer in self._peers else None

    # What others wait by

    @property
    def loss(self) -> float:
        """The largest share of datagrams that is lost on a link of ours, in either direction, as measured."""
        links = [state.link for state in self._peers.values()]
        return max([self._links.common.share, *(max(link.loss.share, link.loss_out) for link in links)])

    def links(self) -> dict[Address, LinkReport]:
        return {
            peer: LinkReport(
                state.link.loss.share,
                state.link.loss_out,
                state.link.round_trip.smoothed_ns if state.link.has_echo else None,
                self._detection_ns(state.link),
            )
            for peer, state in self._peers.items()
        }

    def is_received_by_all(self, now: int) -> bool:
        """Whether all peers hear us, as far as they have told: little is lost, and recent beats of ours were echoed."""
        recent_ns = 2 * MOST_REPLACED * self._config.heartbeat_ns  # a busy peer answers only so often
        is_echoed = all(state.link.unechoed_ns(now) <= recent_ns for state in self._peers.values())
        return is_echoed and self.loss < LEAST_LOSS

    def answer_ns(self, retry_ns: int, least_ns: int, most_ns: int) -> int:
        """How long a question that is repeated every retry_ns may go unanswered, by the worst link that we have:

        the round trip with four deviations, and as many tries as make an accident rarer than UNANSWERED_BY_CHANCE.
        """
        states = list(self._peers.values())
        worst = max(self._links.unanswered(link) for link in (None, *(state.link for state in states)))
        slowest_ns = max((state.link.round_trip.timeout_ns for state in states if state.link.received), default=0)
        wanted_ns = slowest_ns + tries(worst, UNANSWERED_BY_CHANCE) * retry_ns
        return max(min(wanted_ns, most_ns), least_ns)

    @property
    def detection_ns(self) -> int:
        """How long it takes until a crash is suspected, on the worst link that we have."""
        return max([self._detection_ns(None), *(self._detection_ns(state.link) for state in self._peers.values())])

    @property
    def lapse_ns(self) -> int:
        """How long a word that is repeated every heartbeat_ns may be missing by chance."""
        return self._config.heartbeat_ns * max(3, tries(self._links.lost(None), 1e-3))

    def _detection_ns(self, link: Link | None) -> int:
        config = self._config
        per_beat, per_probe = doubt(self._links.lost(link)), doubt(self._links.unanswered(link))
        before = per_beat * (config.suspect_ns // config.heartbeat_ns)
        by_step = per_probe + per_beat * config.probe_ns / config.heartbeat_ns
        probes = max(config.verify_attempts, ceil((ENOUGH_DOUBT - before) / by_step))
        return min(config.suspect_ns + probes * config.probe_ns, config.longest_ns)

    # One peer

    def _measured(self, state: _Peer | None, now: int) -> tuple[int, int, int, int]:
        """What a beat carries: its number, the last one that came, how long that was held, and what was lost."""
        if state is None:
            return (0, 0, 0, 0)
        link = state.link
        echo_delay_ns = now - link.received_at if link.received else 0
        return (link.next_beat(now), link.received, max(0, echo_delay_ns), int(link.loss.share * LOSS_SCALE))

    def _probe(self, peer: Address, state: _Peer, now: int) -> Effect:
        return Transmit(peer, AreYouAlive(*self._measured(state, now)))

    def _learn_pause(self, state: _Peer, now: int) -> None:
        if state.standing is not Standing.TRUSTED and state.vouches:
            return  # others heard it meanwhile: the link was silent, and not the process
        excess_ns = now - state.alive_at - self._config.suspect_ns
        if excess_ns >= self._pause_ns(state, now):
            state.pause_ns, state.paused_at = excess_ns, now

    def _pause_ns(self, state: _Peer, now: int) -> int:
        return state.pause_ns >> min((now - state.paused_at) // PAUSE_HALF_LIFE_NS, 62)

    def _deadline(self, state: _Peer) -> int:
        config = self._config
        if state.standing is Standing.TRUSTED:
            alive_at = state.alive_at
            pause_ns = self._pause_ns(state, alive_at + config.suspect_ns)
            longest_ns = min(MOST_PAUSE * config.suspect_ns, config.longest_ns - config.verify_ns)
            return alive_at + min(config.suspect_ns + pause_ns, longest_ns)
        return state.asked_at + config.probe_ns

    def _examine(self, peer: Address, state: _Peer, now: int) -> list[Effect]:
        if state.standing is Standing.SUSPECTED or now < self._deadline(state):
            return []
        if state.standing is Standing.TRUSTED:
            state.standing, state.asked, state.vouches = Standing.ASKED, 0, 0
            state.silent_since = state.alive_at
        if state.asked >= self._config.verify_attempts and self._is_no_accident(state, now):
            state.standing = Standing.SUSPECTED
            return [Suspected(peer)]
        state.asked, state.asked_at = state.asked + 1, now
        is_first_of_round = state.asked % self._config.verify_attempts == 1 or self._config.verify_attempts == 1
        indirect = list(self._ask_others(peer)) if is_first_of_round and state.vouches < MOST_VOUCHES else []
        return [self._probe(peer, state, now), *indirect]

    def _is_no_accident(self, state: _Peer, now: int) -> bool:
        if now + self._config.probe_ns > state.alive_at + self._config.longest_ns:
            return True  # the next look would be too late
        missed = (now - state.silent_since) // self._config.heartbeat_ns
        lost, unanswered = self._links.lost(state.link), self._links.unanswered(state.link)
        against = missed * doubt(lost) + state.asked * doubt(unanswered)
        return against >= ENOUGH_DOUBT and now - state.silent_since >= state.link.round_trip.timeout_ns

    def _ask_others(self, peer: Address) -> Iterator[Effect]:
        """Those who can be expected to answer; each adds a way to the peer that does not share our link."""
        others = [one for one, state in self._peers.items() if one != peer and state.standing is Standing.TRUSTED]
        yield from (Transmit(one, IndirectProbe(self._view, peer.incarnation)) for one in others[:PROXIES])

    def _check(self) -> None:
        assert self._local not in self._peers
        for state in self._peers.values():
            assert state.vouches <= MOST_VOUCHES
            assert len(state.askers) <= len(self._peers)
            assert 0 <= state.link.loss.share <= 1
            assert state.busy_at or not state.is_busy_notified
