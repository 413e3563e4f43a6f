"""The fixed ring window of the JGroups note MCAST: seqnos map to slots, and exactly `capacity` of them fit.

    low        everything up to it is purged: acked by all (sender), or stable and delivered (receiver)
    delivered  everything up to it was delivered, without a gap
    high       the highest seqno that was inserted

Invariant: low <= delivered <= high <= low + capacity, and a slot is filled only for seqnos in (low, high].
On a sender nothing is missing below `high`. On a receiver, seqnos in (delivered, high] may be.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from motet.errors import ConfigError, MisuseError
from motet.protocol.window.ranges import Ranges

T = TypeVar("T")


class RingWindow(Generic[T]):
    def __init__(self, capacity: int, low: int = 0) -> None:
        if capacity < 1:
            raise ConfigError(f"a window of {capacity} frames is too small; it needs at least 1")
        self.capacity = capacity
        self.low = self.delivered = self.high = low
        self._slots: list[T | None] = [None] * capacity

    @property
    def free(self) -> int:
        """How many more fit behind `high`."""
        return self.low + self.capacity - self.high

    @property
    def is_full(self) -> bool:
        return self.high - self.low >= self.capacity

    def fits(self, seqno: int) -> bool:
        return self.low < seqno <= self.low + self.capacity

    def __getitem__(self, seqno: int) -> T | None:
        """The item with this seqno, or None."""
        return self._slots[seqno % self.capacity] if self.low < seqno <= self.high else None

    def append(self, item: T) -> int:
        """Insert the next item and return its seqno."""
        if self.is_full:
            raise MisuseError(f"{self.capacity} frames are in the window; purge or wait before appending")
        self.high += 1
        self._slots[self.high % self.capacity] = item
        return self.high

    def offer(self, seqno: int, item: T) -> bool:
        """Insert an item at its seqno; False when that is outside the window or already present."""
        index = seqno % self.capacity
        if not self.delivered < seqno <= self.low + self.capacity or (
            seqno <= self.high and self._slots[index] is not None
        ):
            return False
        self._slots[index] = item
        self.high = max(self.high, seqno)
        return True

    @property
    def contiguous(self) -> int:
        """The last seqno before the first gap: everything up to here is delivered or received."""
        seqno = self.delivered
        while seqno < self.high and self._slots[(seqno + 1) % self.capacity] is not None:
            seqno += 1
        return seqno

    def take(self, up_to: int | None = None) -> tuple[T, ...]:
        """Deliver everything up to the first gap, or up to `up_to`. The items stay in the window until purged."""
        taken: list[T] = []
        end = self.high if up_to is None else min(self.high, up_to)
        while self.delivered < end:
            item = self._slots[(self.delivered + 1) % self.capacity]
            if item is None:
                break
            taken.append(item)
            self.delivered += 1
        return tuple(taken)

    def purge(self, seqno: int) -> None:
        """Remove everything up to `seqno` that was delivered. A lower seqno than before does nothing."""
        target = min(seqno, self.delivered)
        while self.low < target:
            self.low += 1
            self._slots[self.low % self.capacity] = None

    def forget_undelivered(self) -> None:
        """Drop what was received and not delivered; it may be received again."""
        for gone in range(self.delivered + 1, self.high + 1):
            self._slots[gone % self.capacity] = None
        self.high = self.delivered

    def advance(self, seqno: int) -> None:
        """Continue from `seqno` as if everything up to it had been delivered and purged; keep what lies beyond it."""
        for gone in range(self.low + 1, min(seqno, self.high) + 1):
            self._slots[gone % self.capacity] = None
        self.low = max(self.low, seqno)
        self.delivered = max(self.delivered, seqno)
        self.high = max(self.high, seqno)

    def missing(self, up_to: int) -> Ranges:
        """The gaps among (delivered, up_to], clamped to the window, ascending."""
        gaps: list[tuple[int, int]] = []
        start = 0
        last = min(up_to, self.low + self.capacity)
        for seqno in range(self.delivered + 1, last + 1):
            if seqno > self.high:
                gaps.append((start or seqno, last))
                return tuple(gaps)
            if self._slots[seqno % self.capacity] is None:
                start = start or seqno
            elif start:
                gaps.append((start, seqno - 1))
                start = 0
        if start:
            gaps.append((start, last))
        return tuple(gaps)

    @property
    def occupied(self) -> int:
        """How many items are in the slots. Counts every slot: for tests and probes, not for the hot path."""
        return self.capacity - self._slots.count(None)

    def _check(self) -> None:
        assert self.low <= self.delivered <= self.high <= self.low + self.capacity, self
        for seqno in range(self.low + 1, self.delivered + 1):
            assert self._slots[seqno % self.capacity] is not None, f"{seqno} was delivered and is not in the window"

    def __repr__(self) -> str:
        return f"[{self.low} | {self.delivered} | {self.high}] of {self.capacity}"
