"""A lazy sequence of the messages in packed bodies, which are split only when the messages are accessed.

Iteration splits one body at a time, just before its messages are used, while they are in the processor's cache. That is
several times faster than splitting everything into a queue first. A consumer that needs only the count, or writes the
bodies to a journal, never pays for splitting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from motet.protocol.wire.body import message_count, split

EAGER_BYTES = 4_096  # Smaller deliveries are split at once, because laziness costs more than it saves.


class Messages(Sequence[bytes]):
    """Behaves like the tuple of the messages, and equals it."""

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
