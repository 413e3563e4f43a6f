"""Reliable multicast, receiving half: the stream of one other member.

    low = stable, nobody will need it from us      delivered = handed up      high = highest received

What was delivered is kept until the sender says that it is stable, so that any survivor can hand it on if the sender
crashes. Invariant: every seqno up to window.delivered was handed up exactly once, and an ack never names more.
"""

from __future__ import annotations

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import BehindPurgePoint, Channel, Deliver, Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.multicast.config import MulticastConfig
from motet.protocol.window.budget import RepairBudget
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.window.gaps import GapWatch
from motet.protocol.window.ranges import parts
from motet.protocol.window.ring import RingWindow
from motet.protocol.wire.frames import Highest, MulticastAck, MulticastData, MulticastXmitRequest


class MulticastReceiver:
    def __init__(
        self,
        sender: Address,
        offset: int,
        config: MulticastConfig,
        counters: Counters,
        round_trip: RoundTrip,
        budget: RepairBudget[Address],
    ) -> None:
        self.sender = sender
        self.window: RingWindow[bytes] = RingWindow(config.capacity, offset)
        self._limit: int | None = None  # during a flush: what lies beyond may belong to the next view
        self._ask = sender  # who repairs the stream: its sender, or during a flush one who holds what it sent
        self._goal: Cut[Address] | None = None  # during a flush: where we have to get
        self._stable = offset  # all of the view have delivered up to here; a small window may have let go of more
        self.view = 0  # names the view in every frame that we hand on
        self._purged = 0  # the sender told us that it has nothing left up to here
        self._config = config
        self._counters = counters
        self._round_trip = round_trip
        self._budget = budget
        self._gaps = GapWatch(self.window, round_trip, config.repair_burst)
        self.ack_threshold = config.ack_threshold  # so many deliveries are acked at once
        self._since_ack = 0  # frames delivered since the last ack
        self._owes_ack = False
        self._ack_due: int | None = None

    @property
    def is_behind_purge_point(self) -> bool:
        """The sender has purged what we miss."""
        return self.window.delivered < self._purged

    def data(self, frame: MulticastData) -> None:
        """Put one frame in. Call `settle` after the last one of a batch."""
        if frame.stable > self.window.low or frame.stable > self._stable:
            self._learn_stable(frame.stable)
        if self.window.offer(frame.seqno, frame.body):
            self._budget.earn(len(frame.body))
            return
        if frame.seqno > self.window.delivered and not self.window.fits(frame.seqno):
            self._gaps.claim(frame.seqno)
            self._counters[Count.FRAME_OUTSIDE_WINDOW] += 1
        else:
            self._counters[Count.FRAME_DUPLICATE] += 1
            self._owes_ack = True  # the sender would not repeat itself had it heard our ack

    def highest(self, frame: Highest) -> None:
        """The tail notice: ask if we miss it, ack again if we have it and the sender does not know."""
        self._learn_stable(frame.stable)
        self._gaps.claim(frame.seqno)
        if frame.stable < frame.seqno:
            self._owes_ack = True

    def purged(self, low: int) -> list[Effect]:
        """Nobody can give us what we miss up to `low`. Skipping it would be a silent gap, so we stop and say so."""
        was_behind_purge_point = self.is_behind_purge_point
        self._purged = max(self._purged, low)
        if was_behind_purge_point or not self.is_behind_purge_point:
            return []
        self._gaps.abandon()
        return [BehindPurgePoint(self.sender, low)]

    def reset(self, seqno: int) -> None:
        """A digest tells where to go on; what we hold beyond it is kept."""
        self.window.advance(seqno)
        self._stable = max(self._stable, seqno)

    def discard_view(self) -> None:
        """The view has ended: whoever goes on has delivered all that we have.

        Frames of the next view say so and are kept elsewhere. What lies beyond the cut was sent in this one by somebody
        who goes on in another.
        """
        self.window.purge(self.window.delivered)
        self.window.forget_undelivered()
        self._gaps = GapWatch(self.window, self._round_trip, self._config.repair_burst)
        self._stable = self.window.low

    def _learn_stable(self, seqno: int) -> None:
        self._stable = max(self._stable, min(seqno, self.window.delivered))
        self.window.purge(seqno)

    # A flush

    def freeze(self) -> DigestEntry:
        """Hand up nothing beyond what we report now, until a cut says how far everybody goes.

        Frozen again by another coordinator, we report no more than before, or than the cut of its predecessor: what
        came since may be of the next view.
        """
        contiguous = self.window.contiguous
        self._limit = contiguous if self._limit is None else min(self._limit, contiguous)
        return DigestEntry(self._stable, self.window.delivered, self._limit)

    def fetch(self, cut: Cut[Address], now: int) -> None:
        """Go for the cut: what is stable makes room, and its holder is asked, at once, instead of the sender."""
        self._limit = cut.seqno
        self._ask = cut.holder
        self._goal = cut
        self._purged = 0
        self._make_room(cut)
        self._gaps.poll_now(cut.seqno, now)

    def _make_room(self, cut: Cut[Address]) -> None:
        """A window smaller than the sender's must let go of more than is stable, or it would never get there."""
        self.window.purge(max(cut.stable, cut.seqno - self.window.capacity))

    def thaw(self) -> None:
        self._limit = self._goal = None
        self._ask = self.sender

    def deliver_rest(self, cut: int) -> list[Effect]:
        """The last deliveries of the old view, whether the application is ready or not: a view waits for nobody."""
        self._limit = cut
        effects = self._deliver()
        self.thaw()
        return effects

    def settle(self, now: int, *, is_paused: bool) -> list[Effect]:
        """End of a batch: deliver, ack when enough was delivered or an ack is owed, watch the gaps.

        On the way to a cut we deliver even to an application that takes nothing: the view that follows waits for it,
        and a small window gets there in several steps.
        """
        effects: list[Effect] = []
        if not is_paused or self._goal is not None:
            effects += self._deliver()
        if self._goal is not None:
            self._make_room(self._goal)
        if self._owes_ack or self._since_ack >= self.ack_threshold:
            effects += self._send_ack()
        elif self._since_ack and self._ack_due is None:
            self._ack_due = now + self._config.xmit_interval_ns
        if self.window.delivered >= self._purged:  # not stranded
            self._gaps.settle(now)
        return effects

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._ack_due is not None and now >= self._ack_due:
            effects += self._send_ack()
        asked = self._gaps.poll(now)
        for part in parts(asked, self._config.request_limit, self._config.request_spans):
            self._counters[Count.REPAIR_ASKED] += 1
            effects.append(Transmit(self._ask, MulticastXmitRequest(self.sender.incarnation, part)))
        return effects

    def next_deadline(self) -> int | None:
        ack, gap = self._ack_due, self._gaps.due
        return gap if ack is None or (gap is not None and gap < ack) else ack

    def frame(self, seqno: int) -> MulticastData | None:
        body = self.window[seqno]
        return None if body is None else MulticastData(self.sender.incarnation, seqno, self._stable, body, self.view)

    def _deliver(self) -> list[Effect]:
        bodies = self.window.take(self._limit)
        if not bodies:
            return []
        self._since_ack += len(bodies)
        self._counters[Count.FRAME_DELIVERED] += len(bodies)
        return [Deliver(Channel.MULTICAST, self.sender, self.window.delivered - len(bodies) + 1, bodies)]

    def _send_ack(self) -> list[Effect]:
        self._since_ack = 0
        self._owes_ack = False
        self._ack_due = None
        self._counters[Count.ACK_SENT] += 1
        return [Transmit(self.sender, MulticastAck(self.window.delivered))]
