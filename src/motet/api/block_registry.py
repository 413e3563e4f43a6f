"""The building blocks of one member by name, and what comes for a block before the application has made it.

A block is made after joining, so operations, views and the state of the group may come first. They are kept, in order,
and played to the block when it is made. They are also handed on to those who join, because whoever gives them the state
may be the one that has not made the block yet, or never will. Invariant: what a block has been told is what every other
copy of it has been told, from the beginning or from a snapshot on.

An operation travels as

    name length u8  name  request u64  operation

where the request is a number that tells the operations of one sender apart.

and a part of the state begins with its kind, u8:

    MADE    the block's own snapshot
    EARLY   a snapshot or none, then what came after it: operations (position, sender, request, bytes) and primary views
    LOST    more came than could be kept

A block that raises in `apply` or `on_view` stops nobody else: the exception goes to `failed`, with the traceback.

Bounds: MOST_EARLY_BYTES and MOST_EARLY_NAMES over all that is kept; a name beyond that is LOST, and making its block
here is refused. Who makes its blocks right after joining keeps next to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct

from motet.errors import MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.wire.fields import ADDRESS, BYTES, FLAG, U8, U64, VIEW, Field, MalformedError, Reader, optional

logger = logging.getLogger("motet")

MOST_EARLY_BYTES = 16 << 20
MOST_EARLY_NAMES = 1_024
EVENT_BYTES = 100  # what a kept event counts beside its bytes
MOST_NAME_BYTES = 255
REQUEST = Struct("<Q")

Apply = Callable[[int, Address, int, bytes], object]  # position, sender, request, operation
Operation = tuple[int, Address, int, bytes]  # the same
Failed = Callable[[str, int | None, Address | None, Exception], None]  # name, position, sender, what was raised
Told = Operation | View


class Kind(IntEnum):
    MADE = 0
    EARLY = 1
    LOST = 2


@dataclass(frozen=True, slots=True)
class _Block:
    apply: Apply
    on_view: Callable[[View], None]
    take: Callable[[], bytes]
    restore: Callable[[bytes], None]
    initial: bytes  # its snapshot when it was made


@dataclass(slots=True)
class _Early:
    """What came for a block that is not made yet."""

    snapshot: bytes | None = None
    told: list[Told] = field(default_factory=list)
    size: int = 0


def log_failure(name: str, position: int | None, sender: Address | None, error: Exception) -> None:
    what = "a view" if position is None else f"the operation at position {position} of {sender}"
    logger.error("block %r raised an exception for %s", name, what, exc_info=error)


class Blocks:
    def __init__(self, failed: Failed = log_failure) -> None:
        self._failed = failed
        self._blocks: dict[str, _Block] = {}
        self._early: dict[str, _Early | None] = {}  # None: LOST
        self._early_bytes = 0

    def register(
        self,
        name: str,
        apply: Apply,
        on_view: Callable[[View], None],
        take: Callable[[], bytes],
        restore: Callable[[bytes], None],
    ) -> None:
        """The block is made; what came for it before is played to it."""
        if name in self._blocks:
            raise MisuseError(f"there is a block {name!r} in this group already; choose another name")
        if not 0 < len(name.encode()) <= MOST_NAME_BYTES:
            raise MisuseError(f"the name of a block has 1 to {MOST_NAME_BYTES} bytes")
        early = self._early.get(name, _Early())
        if early is None:
            raise MisuseError(
                f"so much was done with block {name!r} before it was made here that it could not be kept; "
                f"make blocks right after joining"
            )
        block = _Block(apply, on_view, take, restore, take())
        if early.snapshot is not None:
            restore(early.snapshot)  # if this raises, the block is not made, and what came for it is still kept
        self._blocks[name] = block
        self._forget(name)
        for told in early.told:
            self._play(name, block, told)

    def apply(self, position: int, sender: Address, messages: Sequence[bytes]) -> None:
        """Messages of port BLOCKS; the first is at `position` of the log."""
        for offset, message in enumerate(messages):
            self._apply(position + offset, sender, message)

    def _apply(self, position: int, sender: Address, message: bytes) -> None:
        end = 1 + message[0] if message else 1
        if len(message) < end + REQUEST.size:
            return
        name, operation = message[1:end].decode(errors="replace"), message[end + REQUEST.size :]
        told = (position, sender, *REQUEST.unpack_from(message, end), operation)
        block = self._blocks.get(name)
        if block is not None:
            self._play(name, block, told)
        elif name:
            self._keep(name, told, len(operation))

    def on_view(self, view: View) -> None:
        for name, block in tuple(self._blocks.items()):
            self._play(name, block, view)
        if view.is_primary:  # nothing is ordered in another one
            for name in tuple(self._early):
                self._keep(name, view, EVENT_BYTES * len(view.members))

    # State that goes out and comes in

    def take(self) -> dict[str, bytes]:
        """By name, everything that a newcomer needs to have the same blocks."""
        made = {name: U8.write(Kind.MADE) + block.take() for name, block in self._blocks.items()}
        early = {
            name: U8.write(Kind.LOST) if early is None else U8.write(Kind.EARLY) + _EARLY.write(early)
            for name, early in self._early.items()
        }
        return made | early

    def restore(self, parts: Mapping[str, bytes]) -> None:
        """The state of the group has come: what was here before is void, also where the group has nothing."""
        for name in tuple(self._early):
            self._forget(name)
        for name in sorted({*parts, *self._blocks}):
            self._restore(name, parts.get(name))

    def _restore(self, name: str, part: bytes | None) -> None:
        early = _Early() if part is None else _read_part(name, part)
        block = self._blocks.get(name)
        if block is None:
            self._take_over(name, early)
        elif early is None:
            logger.error("the state of block %r did not come whole: its copy here is not to be trusted", name)
        else:
            block.restore(block.initial if early.snapshot is None else early.snapshot)
            for told in early.told:
                self._play(name, block, told)

    def _take_over(self, name: str, early: _Early | None) -> None:
        size = 0 if early is None else early.size
        if len(self._early) >= MOST_EARLY_NAMES or self._early_bytes + size > MOST_EARLY_BYTES:
            early, size = None, 0
        self._early[name] = early
        self._early_bytes += size

    def _play(self, name: str, block: _Block, told: Told) -> None:
        """One operation or view. What the block raises concerns neither the other blocks nor the group."""
        try:
            if isinstance(told, View):
                block.on_view(told)
            else:
                block.apply(*told)
        except Exception as error:
            position, sender = (None, None) if isinstance(told, View) else told[:2]
            self._failed(name, position, sender, error)

    def _keep(self, name: str, told: Told, size: int) -> None:
        if name not in self._early and len(self._early) >= MOST_EARLY_NAMES:
            logger.error("block %r is not kept for later: there are %d others", name, MOST_EARLY_NAMES)
            return
        early = self._early.setdefault(name, _Early())
        if early is None:
            return
        size += EVENT_BYTES
        if self._early_bytes + size > MOST_EARLY_BYTES:
            self._forget(name)
            self._early[name] = None
            return
        early.told.append(told)
        early.size += size
        self._early_bytes += size

    def _forget(self, name: str) -> None:
        early = self._early.pop(name, None)
        self._early_bytes -= 0 if early is None else early.size

    def _check(self) -> None:
        assert self._early_bytes == sum(early.size for early in self._early.values() if early is not None)
        assert not self._early.keys() & self._blocks.keys()


def message_of(name: str, request: int, operation: bytes) -> bytes:
    return bytes([len(name.encode())]) + name.encode() + REQUEST.pack(request) + operation


def _read_part(name: str, part: bytes) -> _Early | None:
    """A block that is made is, for one who comes later, a snapshot and nothing after it."""
    kind = part[0] if part else Kind.LOST
    if kind == Kind.MADE:
        return _Early(part[1:], size=len(part))
    if kind != Kind.EARLY:
        return None
    try:
        return _EARLY.read(Reader(part[1:]))
    except MalformedError as error:
        logger.error("the state of block %r cannot be read: %s", name, error)
        return None


def _write_told(told: Told) -> bytes:
    if isinstance(told, View):
        return FLAG.write(True) + VIEW.write(told)
    position, sender, request, operation = told
    fixed = FLAG.write(False) + U64.write(position) + ADDRESS.write(sender) + U64.write(request)
    return fixed + BYTES.write(operation)


def _read_told(reader: Reader) -> Told:
    if FLAG.read(reader):
        return VIEW.read(reader)
    return U64.read(reader), ADDRESS.read(reader), U64.read(reader), BYTES.read(reader)


def _write_early(early: _Early) -> bytes:
    return optional(BYTES).write(early.snapshot) + b"".join(map(_write_told, early.told))


def _read_early(reader: Reader) -> _Early:
    whole = reader.left
    early = _Early(optional(BYTES).read(reader))
    while reader.left:
        early.told.append(_read_told(reader))
    early.size = whole + EVENT_BYTES * len(early.told)
    return early


_EARLY: Field[_Early] = Field(_write_early, _read_early)
