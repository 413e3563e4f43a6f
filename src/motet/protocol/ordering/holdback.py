"""The hold-back queue: frames that wait until it is certain that none can still come before them.

Order: by number; of equal numbers the undecided one first; of two undecided ones, or two decided ones, the smaller
proposer first (seed `isis-total-order.md`). A heap with lazy deletion: each frame is pushed once when it is proposed
and once when it is decided, so the cost per frame grows with the logarithm of the queue.

Invariant: no two frames have the same sender and id; a frame whose final number is below its proposal cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from motet.protocol.wire.body import message_count
from motet.protocol.wire.ordered import SequenceNumber, Tag

Key = tuple[int, bool, int, int, int]  # number, is decided, proposer, sender's rank, id


@dataclass(slots=True)
class Pending:
    sender: int  # rank in the view
    id: int  # counted by its sender from 1 in this view
    body: bytes
    proposed: int  # our own proposal
    number: SequenceNumber
    is_decided: bool = False
    sent_at: int = 0
    tag: Tag | None = None

    @property
    def count(self) -> int:
        """Of messages that end in it."""
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
        """The final number is known. False when there is no such frame, or it was decided already."""
        pending = self._pending.get((sender, frame_id))
        if pending is None or pending.is_decided:
            return False
        pending.number, pending.is_decided = number, True
        heappush(self._heap, pending.key)
        return True

    def pop(self) -> Pending | None:
        """The head, if it is decided."""
        head = self._head()
        if head is None or not head.is_decided:
            return None
        heappop(self._heap)
        return self._pending.pop((head.sender, head.id))

    def drain(self) -> list[Pending]:
        """Everything, at the end of a view: what is decided by its number, then the rest by sender and id.

        All who end the view together hold the same frames and numbers, so they drain the same list. What any of them
        delivered before was decided, and stood before everything undecided.
        """
        decided = sorted((p for p in self._pending.values() if p.is_decided), key=lambda p: p.key)
        undecided = sorted((p for p in self._pending.values() if not p.is_decided), key=lambda p: (p.sender, p.id))
        self._pending.clear()
        self._heap.clear()
        return decided + undecided

    def _head(self) -> Pending | None:
        """A key of a time when its frame was undecided is of no use once it is decided."""
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
        assert len(self._heap) <= 2 * len(self._pending), "stale keys lie before the head and go first"
