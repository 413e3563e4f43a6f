"""The messages of whole bodies, split out when somebody looks at them, and not before.

Whoever takes them one after the other gets each body's messages made just before, and lets go of them soon: that is
several times faster than making all of them, keeping them in a queue, and finding them cold there. Who only wants to
know how many there are, or hands the bodies on to a journal, never pays for splitting at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from motet.protocol.wire.body import message_count, split

EAGER_BYTES = 4_096  # less than this is split at once: what waits must be worth the wait


class Messages(Sequence[bytes]):
    """Reads like the tuple of them, and equals it."""

    __slots__ = ("_bodies", "_count", "_made")

    def __init__(self, bodies: tuple[bytes, ...]) -> None:
        """Packed bodies only."""
        self._bodies = bodies
        self._count = sum(map(message_count, bodies))
        self._made: tuple[bytes, ...] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._made) if self._made is not None else chain.from_iterable(map(split, self._bodies))

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if self._made is None:
            self._made = tuple(self)
        return self._made[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | Messages):
            return NotImplemented
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{self._count} messages in {len(self._bodies)} bodies>"
