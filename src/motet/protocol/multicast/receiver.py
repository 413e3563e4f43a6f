"""Reliable multicast, receiving half: the stream of one other member.

    low = stable, so no survivor will request it      delivered = delivered here      high = highest received

Delivered frames are kept until the sender announces that they are stable, so that any survivor can repair them if the
sender crashes. Invariant: every seqno up to window.delivered was delivered exactly once, and no ack exceeds it.
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
        self._limit: int | None = None  # During a flush, the last seqno that may be delivered in this view.
        self._ask = sender  # Who repairs the stream: its sender, or during a flush the holder of the cut.
        self._goal: Cut[Address] | None = None  # During a flush, the cut to reach.
        self._stable = offset  # All members of the view have delivered up to here; a small window may purge more.
        self.view = 0  # Names the view in frames that are retransmitted from here.
        self._purged = 0  # The sender has purged everything up to here.
        self._config = config
        self._counters = counters
        self._round_trip = round_trip
        self._budget = budget
        self._gaps = GapWatch(self.window, round_trip, config.repair_burst)
        self.ack_threshold = config.ack_threshold  # Deliveries that trigger an ack at once.
        self._since_ack = 0  # Frames delivered since the last ack.
        self._owes_ack = False
        self._ack_due: int | None = None

    @property
    def is_behind_purge_point(self) -> bool:
        """Whether the sender has purged frames that are missing here."""
        return self.window.delivered < self._purged

    def data(self, frame: MulticastData) -> None:
        """Insert one frame. Call `settle` after the last one of a batch."""
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
            self._owes_ack = True  # The sender repeats a frame only if it has not received the ack.

    def highest(self, frame: Highest) -> None:
        """Last-seqno announcement: request what is missing, and ack again if the sender lacks the ack."""
        self._learn_stable(frame.stable)
        self._gaps.claim(frame.seqno)
        if frame.stable < frame.seqno:
            self._owes_ack = True

    def purged(self, low: int) -> list[Effect]:
        """Missing frames up to `low` cannot be repaired. Skipping them would be a silent gap, so stop and report it."""
        was_behind_purge_point = self.is_behind_purge_point
        self._purged = max(self._purged, low)
        if was_behind_purge_point or not self.is_behind_purge_point:
            return []
        self._gaps.abandon()
        return [BehindPurgePoint(self.sender, low)]

    def reset(self, seqno: int) -> None:
        """Continue from the digest's seqno; frames received beyond it are kept."""
        self.window.advance(seqno)
        self._stable = max(self._stable, seqno)

    def discard_view(self) -> None:
        """The view has ended, and every survivor has delivered what is in the window, so drop it.

        Frames of the next view are tagged with it and buffered elsewhere. Frames beyond the cut were sent in the old
        view by a member that continues in a different view.
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
        """Deliver nothing beyond what is reported now, until the cut is known.

        If another coordinator freezes the view again, report no more than before and no more than the cut of its
        predecessor: frames that arrived since may belong to the next view.
        """
        contiguous = self.window.contiguous
        self._limit = contiguous if self._limit is None else min(self._limit, contiguous)
        return DigestEntry(self._stable, self.window.delivered, self._limit)

    def fetch(self, cut: Cut[Address], now: int) -> None:
        """Fetch frames up to the cut: purge what is stable to make space, and request the rest from the holder."""
        self._limit = cut.seqno
        self._ask = cut.holder
        self._goal = cut
        self._purged = 0
        self._make_space(cut)
        self._gaps.poll_now(cut.seqno, now)

    def _make_space(self, cut: Cut[Address]) -> None:
        """A window smaller than the sender's must purge more than is stable, or it could never reach the cut."""
        self.window.purge(max(cut.stable, cut.seqno - self.window.capacity))

    def thaw(self) -> None:
        self._limit = self._goal = None
        self._ask = self.sender

    def deliver_rest(self, cut: int) -> list[Effect]:
        """Deliver the rest of the old view even while deliveries are paused: a view change must not wait for them."""
        self._limit = cut
        effects = self._deliver()
        self.thaw()
        return effects

    def settle(self, now: int, *, is_paused: bool) -> list[Effect]:
        """End a batch: deliver, send an ack if one is due, and watch for gaps.

        While fetching up to a cut, deliver even if deliveries are paused: the next view waits for the cut, and a small
        window reaches it in several steps.
        """
        effects: list[Effect] = []
        if not is_paused or self._goal is not None:
            effects += self._deliver()
        if self._goal is not None:
            self._make_space(self._goal)
        if self._owes_ack or self._since_ack >= self.ack_threshold:
            effects += self._send_ack()
        elif self._since_ack and self._ack_due is None:
            self._ack_due = now + self._config.xmit_interval_ns
        if self.window.delivered >= self._purged:  # Requests are futile behind the purge point.
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
