"""Appends that can be repeated: of each producer the highest sequence that is in the log.

What it holds follows from the log alone, so it is the same at all who hold the same log. At most `MOST_PRODUCERS`; the
one whose last append is the oldest goes first, and could then repeat itself unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable

from motet.protocol.wire.frames import Pairs
from motet.protocol.wire.ordered import Tag

MOST_PRODUCERS = 256


class Producers:
    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        self._highest: dict[int, int] = {}  # the least recent first
        for producer, sequence in known:
            self.accept(Tag(producer, sequence))

    def __len__(self) -> int:
        return len(self._highest)

    def accept(self, tag: Tag) -> bool:
        """False for an append that is in the log already, or came after a later one."""
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
