"""Idempotent appends: for each producer, the highest sequence in the log.

The table is a function of the log, so all members with the same log have the same table. It holds at most
`MOST_PRODUCERS`; the producer with the oldest last append is evicted first, and its repetitions are no longer detected.
"""

from __future__ import annotations

from collections.abc import Iterable

from motet.protocol.wire.frames import Pairs
from motet.protocol.wire.ordered import Tag

MOST_PRODUCERS = 256


class Producers:
    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        self._highest: dict[int, int] = {}  # The least recent producer first.
        for producer, sequence in known:
            self.accept(Tag(producer, sequence))

    def __len__(self) -> int:
        return len(self._highest)

    def accept(self, tag: Tag) -> bool:
        """Record an append; False if it, or a later one of its producer, is in the log already."""
        before = self._highest.get(tag.producer)
        if before is not None and tag.sequence <= before:
            return False
        self._highest.pop(tag.producer, None)
        self._highest[tag.producer] = tag.sequence
        if len(self._highest) > MOST_PRODUCERS:
            del self._highest[next(iter(self._highest))]
        return True

    def pairs(self) -> Pairs:
        return tuple(self._highest.items())
