"""When to request missing frames: only gaps that the previous poll saw as well, at intervals of the round trip.

A gap is noticed when it appears and requested at the next poll if it is still there, so mere reordering causes no
request. While there is a gap, the interval between polls follows the measured round trip and backs off when nothing
arrives; without a gap no timer is armed. The receivers of unicast and multicast share this class.

The round trip is measured from a request to the frame that answers it, and only with frames that were requested once
(Karn's rule): for others it is unknown which request was answered.
"""

from __future__ import annotations

from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.window.ranges import Ranges, limited
from motet.protocol.window.ring import RingWindow


class GapWatch:
    def __init__(self, window: RingWindow[bytes], round_trip: RoundTrip, most: int) -> None:
        self._window = window
        self._round_trip = round_trip
        self._most = most  # Seqnos requested in one poll; the answers must not flood the link that they repair.
        self._claimed = window.high  # The highest seqno known to have been sent, received or not.
        self._noticed = 0  # Gaps up to here existed at the previous poll.
        self._attempt = 0
        self._asked: int | None = None  # The lowest seqno of the last request.
        self._asked_to = 0  # The highest seqno that was ever requested.
        self._timed: tuple[int, int] | None = None  # A seqno that was requested exactly once, and when.
        # (claimed, low) at a poll that found nothing missing. Until it changes, no timer is armed: frames beyond the
        # window cannot be requested yet, and polling for them would be a busy loop.
        self._fruitless = (0, 0)
        self.due: int | None = None

    def claim(self, seqno: int) -> None:
        """Note that a peer says it has sent `seqno`."""
        self._claimed = max(self._claimed, seqno)

    def settle(self, now: int) -> None:
        """Call after every change of the window."""
        high = self._window.high
        if high > self._claimed:
            self._claimed = high
        if self._asked is not None or self._timed is not None:
            self._note_repair(now)
        if self._window.delivered >= self._claimed:
            self.due, self._attempt = None, 0
        elif self.due is None and self._fruitless != (self._claimed, self._window.low):
            self._noticed = self._claimed
            self.due = now + self._round_trip.timeout_ns

    def poll(self, now: int) -> Ranges:
        """The ranges to request now; empty before the deadline, or if nothing has been missing since the last poll."""
        if self.due is None or now < self.due:
            return ()
        asked = limited(self._window.missing(self._noticed), self._most)
        if not asked and not self._window.missing(self._claimed):
            self._fruitless = (self._claimed, self._window.low)
            self.due = None
            return ()
        self._noticed = self._claimed
        self.due = now + self._round_trip.backed_off(self._attempt)
        if asked:
            self._asked = asked[0][0]
            self._attempt += 1
            self._time(asked, now)
        return asked

    def _time(self, asked: Ranges, now: int) -> None:
        if self._timed is not None and any(first <= self._timed[0] <= last for first, last in asked):
            self._timed = None
        fresh = next((max(first, self._asked_to + 1) for first, last in asked if last > self._asked_to), None)
        if self._timed is None and fresh is not None:
            self._timed = (fresh, now)
        self._asked_to = max(self._asked_to, asked[-1][1])

    def poll_now(self, seqno: int, now: int) -> None:
        """Request what is missing up to `seqno` at once: it was sent long ago, so it is not merely reordered."""
        self.abandon()
        self.claim(seqno)
        self._noticed = self._claimed
        self._fruitless = (0, 0)
        self.due = now if self._window.delivered < self._claimed else None

    def abandon(self) -> None:
        """Stop requesting what is missing; the next change of the window starts over."""
        self.due = self._asked = self._timed = None
        self._attempt = 0

    def _note_repair(self, now: int) -> None:
        """End the back-off when a repair arrives: the link works, so request the rest at the round-trip interval."""
        if self._timed is not None and self._is_here(self._timed[0]):
            self._round_trip.sample(now - self._timed[1])
            self._timed = None
        if self._asked is None or not self._is_here(self._asked):
            return
        self._asked, self._attempt = None, 0
        if self.due is not None:
            self.due = min(self.due, now + self._round_trip.timeout_ns)

    def _is_here(self, seqno: int) -> bool:
        return self._window.delivered >= seqno or self._window[seqno] is not None
