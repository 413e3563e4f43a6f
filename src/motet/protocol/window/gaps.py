"""When to ask for what is missing: for gaps that were there at the last look already, at the pace of the round trip.

A gap is noticed when it appears and asked for at the next look if it is still there, so mere reordering asks for
nothing. While a gap stands, looks follow the measured round trip and back off when nothing comes; without a gap there
is no look at all. Both receiving halves (unicast and multicast) share this.

The round trip is measured from a question to its answer, and only by frames that were asked for once (Karn's rule):
of others nobody can say which question was answered.
"""

from __future__ import annotations

from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.window.ranges import Ranges, limited
from motet.protocol.window.ring import RingWindow


class GapWatch:
    def __init__(self, window: RingWindow[bytes], round_trip: RoundTrip, most: int) -> None:
        self._window = window
        self._round_trip = round_trip
        self._most = most  # seqnos asked for in one look; the answers must not flood the link they repair
        self._claimed = window.high  # the highest seqno that we know was sent, held or not
        self._noticed = 0  # gaps up to here were there at the last look
        self._attempt = 0
        self._asked: int | None = None  # the lowest seqno that was last asked for
        self._asked_to = 0  # nothing beyond it was ever asked for
        self._timed: tuple[int, int] | None = None  # a seqno that was asked for just once, and when
        self._fruitless = (0, 0)  # (claimed, low) when a look found nothing missing; until it changes there is no look
        self.due: int | None = None

    def claim(self, seqno: int) -> None:
        """Somebody says that `seqno` exists."""
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
        """What to ask for now; empty when it is not time yet or nothing has been missing long enough."""
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
        """What is missing up to `seqno` was sent long ago: ask at the next look, and look now."""
        self.abandon()
        self.claim(seqno)
        self._noticed = self._claimed
        self._fruitless = (0, 0)
        self.due = now if self._window.delivered < self._claimed else None

    def abandon(self) -> None:
        """What is missing will not come; the next change of the window starts afresh."""
        self.due = self._asked = self._timed = None
        self._attempt = 0

    def _note_repair(self, now: int) -> None:
        """A repair that came ends the back-off: the link works, so the rest is asked for at its pace."""
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
