"""The hold-back queue: frames that wait until no other frame can precede them.

The order is by priority: the proposal of an undecided frame, the agreed sequence number of a decided one. Of equal
numbers, undecided frames come first, because their number may still grow; then the smaller proposer comes first. The
queue is a heap with lazy deletion: a frame is pushed once with its proposal and once with its agreed number.

Invariants: no two frames have the same sender and id; no agreed number is below this member's proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from motet.protocol.wire.body import message_count
from motet.protocol.wire.ordered import SequenceNumber, Tag

Key = tuple[int, bool, int, int, int]  # Number, is decided, proposer, sender's rank, id.


@dataclass(slots=True)
class Pending:
    sender: int  # The sender's rank in the view.
    id: int  # Counted by its sender from 1 in this view.
    body: bytes
    proposed: int  # This member's proposal.
    number: SequenceNumber  # The proposal until `is_decided`, then the agreed sequence number.
    is_decided: bool = False
    sent_at: int = 0
    tag: Tag | None = None

    @property
    def count(self) -> int:
        """The number of messages that end in this frame."""
        return message_count(self.body)

    @property
    def key(self) -> Key:
        return (self.number.number, self.is_decided, self.number.proposer, self.sender, self.id)


class HoldBackQueue:
    def __init__(self) -> None:
        self._pending: dict[tuple[int, int], Pending] = {}
        self._heap: list[Key] = []

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._pending.values())

    def __contains__(self, name: tuple[int, int]) -> bool:
        return name in self._pending

    def get(self, sender: int, frame_id: int) -> Pending | None:
        return self._pending.get((sender, frame_id))

    def add(self, pending: Pending) -> None:
        self._pending[pending.sender, pending.id] = pending
        heappush(self._heap, pending.key)

    def decide(self, sender: int, frame_id: int, number: SequenceNumber) -> bool:
        """Set the agreed sequence number. False when there is no such frame, or it is decided already."""
        pending = self._pending.get((sender, frame_id))
        if pending is None or pending.is_decided:
            return False
        pending.number, pending.is_decided = number, True
        heappush(self._heap, pending.key)
        return True

    def pop(self) -> Pending | None:
        """Remove and return the head if it is decided, else None."""
        head = self._head()
        if head is None or not head.is_decided:
            return None
        heappop(self._heap)
        return self._pending.pop((head.sender, head.id))

    def drain(self) -> list[Pending]:
        """Empty the queue at the end of a view: decided frames by number, then undecided ones by sender and id.

        After a flush all survivors hold the same frames and agreed numbers, so they drain the same list. What one of
        them delivered earlier was decided, and preceded everything undecided.
        """
        decided = sorted((p for p in self._pending.values() if p.is_decided), key=lambda p: p.key)
        undecided = sorted((p for p in self._pending.values() if not p.is_decided), key=lambda p: (p.sender, p.id))
        self._pending.clear()
        self._heap.clear()
        return decided + undecided

    def _head(self) -> Pending | None:
        """The first frame. Keys from before a frame was decided, or was delivered, are stale and discarded here."""
        heap = self._heap
        while heap:
            _, is_decided, _, sender, frame_id = heap[0]
            pending = self._pending.get((sender, frame_id))
            if pending is not None and pending.is_decided is is_decided:
                return pending
            heappop(heap)
        return None

    def _check(self) -> None:
        for name, pending in self._pending.items():
            assert name == (pending.sender, pending.id)
            assert pending.number.number >= pending.proposed
        assert len(self._heap) <= 2 * len(self._pending), "stale keys precede the head and are discarded with it"
