"""When to ask for what is missing: for gaps that were there at the last look already, at the pace of the round trip.

A gap is noticed when it appears and asked for at the next look if it is still there, so mere reordering asks for
nothing. While a gap stands, looks follow the measured round trip and back off when nothing comes; without a gap there
is no look at all. Both receiving halves (unicast and multicast) share this.
"""

from __future__ import annotations

from motet.core.roundtrip import RoundTrip
from motet.window.ranges import Ranges, limited
from motet.window.ring import RingWindow


class GapWatch:
    def __init__(self, window: RingWindow[bytes], round_trip: RoundTrip, most: int) -> None:
        self._window = window
        self._round_trip = round_trip
        self._most = most  # seqnos asked for in one look; the answers must not flood the link they repair
        self._claimed = window.high  # the highest seqno that we know was sent, held or not
        self._noticed = 0  # gaps up to here were there at the last look
        self._attempt = 0
        self._asked: int | None = None  # the lowest seqno that was last asked for
        self._asked_at: int | None = None  # when, if it was asked for just once: then its arrival measures a round trip
        self._fruitless = (0, 0)  # (claimed, low) when a look found nothing missing; until it changes there is no look
        self.due: int | None = None

    def claim(self, seqno: int) -> None:
        """Somebody says that `seqno` exists."""
        self._claimed = max(self._claimed, seqno)

    def settle(self, now: int) -> None:
        """Call after every change of the window."""
        self.claim(self._window.high)
        self._note_repair(now)
        if self._window.delivered >= self._claimed:
            self.due, self._attempt = None, 0
        elif self.due is None and self._fruitless != (self._claimed, self._window.low):
            self._noticed = self._claimed
            self.due = now + self._round_trip.patience_ns

    def look(self, now: int) -> Ranges:
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
            self._asked, self._asked_at = asked[0][0], now if self._attempt == 0 else None
            self._attempt += 1
        return asked

    def hurry(self, seqno: int, now: int) -> None:
        """What is missing up to `seqno` was sent long ago: ask at the next look, and look now."""
        self.abandon()
        self.claim(seqno)
        self._noticed = self._claimed
        self._fruitless = (0, 0)
        self.due = now if self._window.delivered < self._claimed else None

    def abandon(self) -> None:
        """What is missing will not come; the next change of the window starts afresh."""
        self.due = self._asked = self._asked_at = None
        self._attempt = 0

    def _note_repair(self, now: int) -> None:
        """A repair that came ends the back-off: the link works, so the rest is asked for at its pace."""
        if self._asked is None or (self._window.delivered < self._asked and self._window[self._asked] is None):
            return
        if self._asked_at is not None:
            self._round_trip.sample(now - self._asked_at)
        self._asked = self._asked_at = None
        self._attempt = 0
        if self.due is not None:
            self.due = min(self.due, now + self._round_trip.patience_ns)
