"""A dict that is the same at every member. Values are kept as they travelled, and decoded when they are read: what a
caller does with a list that it got changes nobody's copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from motet.api.blocks.base import Block, OrderedLog, Refused
from motet.api.blocks.values import Value, Writable, decode_value, encode_value
from motet.errors import MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

logger = logging.getLogger("motet")

MOST_BYTES = 256 << 20  # keys and values of one dict; the same at every member, or their copies would part
MOST_KEY_BYTES = 4_096
ENTRY_BYTES = 64  # what an entry counts beside its key and value
ABSENT = b""  # no value has this encoding

_HEAD = Struct("<B")
_PART = Struct("<I")
_STATE = Struct("<QI")


class DictionaryOperation(IntEnum):
    """Each is followed by its parts: u32 length and bytes."""

    SET = 1  # key, value, key, value, ...
    DELETE = 2  # key
    CLEAR = 3
    SET_IF = 4  # key, value that it must have (ABSENT: none), value that it gets (ABSENT: none)


@dataclass(frozen=True, slots=True)
class Change:
    """One key has another value now."""

    key: str
    value: Value  # None where the key is gone, too
    is_deleted: bool
    position: int


class DictMachine:
    """Invariant: `size` is what `_cost` of all entries adds up to, and at most MOST_BYTES."""

    def __init__(self, on_change: Callable[[int, str, bytes], None] | None = None) -> None:
        self.applied = 0
        self.size = 0
        self.entries: dict[str, bytes] = {}
        self._on_change = on_change

    def apply(self, position: int, sender: Address, request: int, operation: bytes) -> bytes | bool | Refused:
        """The result: what was there before (SET of one key, DELETE), or whether it was done (all others)."""
        self.applied = position
        try:
            kind, parts = _unpacked(operation)
            match kind, len(parts):
                case DictionaryOperation.SET, length if length and length % 2 == 0:
                    return self._set(position, parts)
                case DictionaryOperation.DELETE, 1:
                    return self._delete(position, _key(parts[0]))
                case DictionaryOperation.CLEAR, 0:
                    return self._clear(position)
                case DictionaryOperation.SET_IF, 3:
                    return self._set_if(position, _key(parts[0]), parts[1], parts[2])
        except ValueError as error:
            return Refused(f"no operation of a dict: {error}")
        return Refused(f"operation {kind} with {len(parts)} parts is unknown to this version")

    def on_view(self, view: View) -> None:
        pass

    def snapshot(self) -> bytes:
        parts = [part for key, value in self.entries.items() for part in (key.encode(), value)]
        return _STATE.pack(self.applied, len(self.entries)) + b"".join(map(_part, parts))

    def restore(self, data: bytes) -> None:
        self.applied, count = _STATE.unpack_from(data)
        parts = _parts(data, _STATE.size)
        if len(parts) != 2 * count:
            raise ValueError(f"{count} entries were announced, {len(parts)} parts came")
        self.entries = {key.decode(): value for key, value in zip(parts[::2], parts[1::2], strict=True)}
        self.size = sum(_cost(key, value) for key, value in self.entries.items())

    def _set(self, position: int, parts: list[bytes]) -> bytes | Refused:
        given = {_key(key): _checked(value) for key, value in zip(parts[::2], parts[1::2], strict=True)}
        grown = sum(_cost(key, value) - self._cost_of(key) for key, value in given.items())
        if self.size + grown > MOST_BYTES:
            return Refused(f"it would have {self.size + grown} bytes, and {MOST_BYTES} are the most")
        before = self.entries.get(next(iter(given)), ABSENT)
        for key, value in given.items():
            self._put(position, key, value)
        return before

    def _delete(self, position: int, key: str) -> bytes:
        before = self.entries.get(key, ABSENT)
        if before != ABSENT:
            self._put(position, key, ABSENT)
        return before

    def _clear(self, position: int) -> bool:
        for key in list(self.entries):
            self._put(position, key, ABSENT)
        return True

    def _set_if(self, position: int, key: str, expected: bytes, value: bytes) -> bool | Refused:
        if self.entries.get(key, ABSENT) != expected:
            return False
        if value == ABSENT:
            self._delete(position, key)
            return True
        done = self._set(position, [key.encode(), value])
        return done if isinstance(done, Refused) else True

    def _put(self, position: int, key: str, value: bytes) -> None:
        self.size -= self._cost_of(key)
        if value == ABSENT:
            del self.entries[key]
        else:
            self.entries[key] = value
            self.size += _cost(key, value)
        if self._on_change is not None:
            self._on_change(position, key, value)

    def _cost_of(self, key: str) -> int:
        value = self.entries.get(key)
        return 0 if value is None else _cost(key, value)

    def _check(self) -> None:
        assert self.size == sum(_cost(key, value) for key, value in self.entries.items()) <= MOST_BYTES


class ReplicatedDict(Block, Mapping[str, Value]):
    """Read it like a dict; writing is `await orders.set("a", 1)`, because the group has to agree on the order."""

    kind = "dict"

    def __init__(self, log: OrderedLog, name: str = "dict") -> None:
        self._dict = DictMachine(self._note_change)
        self._listeners: list[Callable[[Change], None]] = []
        super().__init__(log, name, self._dict)

    # This member's copy

    def __getitem__(self, key: str) -> Value:
        return decode_value(self._dict.entries[key])

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._dict.entries))

    def __len__(self) -> int:
        return len(self._dict.entries)

    def __contains__(self, key: object) -> bool:
        return key in self._dict.entries

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with every change from now on; what is returned ends that. A restored state tells nothing."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # The group's

    async def set(self, key: str, value: Writable) -> Value:
        """Returns what was there before, None if nothing was."""
        return _decoded(await self._ask(_packed(DictionaryOperation.SET, _key_bytes(key), encode_value(value))))

    async def update(self, entries: Mapping[str, Writable]) -> None:
        """All of them at once: nobody sees one without the others."""
        if entries:
            parts = [part for key, value in entries.items() for part in (_key_bytes(key), encode_value(value))]
            await self._ask(_packed(DictionaryOperation.SET, *parts))

    async def delete(self, key: str) -> Value:
        """Returns what was there before, None if nothing was."""
        return _decoded(await self._ask(_packed(DictionaryOperation.DELETE, _key_bytes(key))))

    async def clear(self) -> None:
        await self._ask(_packed(DictionaryOperation.CLEAR))

    async def set_default(self, key: str, value: Writable) -> bool:
        """Whether the key was absent, and so has this value now."""
        return bool(await self._ask(_packed(DictionaryOperation.SET_IF, _key_bytes(key), ABSENT, encode_value(value))))

    async def compare_and_set(self, key: str, expected: Writable, value: Writable) -> bool:
        """Whether the key had the value `expected`, and so has `value` now. What travels is compared: 1 is not 1.0."""
        parts = (_key_bytes(key), encode_value(expected), encode_value(value))
        return bool(await self._ask(_packed(DictionaryOperation.SET_IF, *parts)))

    async def compare_and_delete(self, key: str, expected: Writable) -> bool:
        return bool(
            await self._ask(_packed(DictionaryOperation.SET_IF, _key_bytes(key), encode_value(expected), ABSENT))
        )

    def _note_change(self, position: int, key: str, value: bytes) -> None:
        if self._listeners:
            change = Change(key, _decoded(value), value == ABSENT, position)
            for listener in tuple(self._listeners):
                try:
                    listener(change)
                except Exception:  # or this copy would lack the rest of the operation
                    logger.exception("a listener of ReplicatedDict %r raised at key %r", self.name, key)


def _decoded(value: bytes) -> Value:
    return None if value == ABSENT else decode_value(value)


def _key_bytes(key: str) -> bytes:
    if not isinstance(key, str):
        raise MisuseError(f"the key {key!r} is no str")
    try:
        data = key.encode()
    except UnicodeEncodeError:
        raise MisuseError(f"the key {key!r} has half a surrogate pair") from None
    if len(data) > MOST_KEY_BYTES:
        raise MisuseError(f"a key of {len(data)} bytes is too long; allowed are {MOST_KEY_BYTES}")
    return data


def _key(data: bytes) -> str:
    if len(data) > MOST_KEY_BYTES:
        raise ValueError(f"a key of {len(data)} bytes")
    return data.decode()


def _checked(value: bytes) -> bytes:
    """A value that somebody could not read must not get in: it would hit whoever reads it, much later."""
    decode_value(value)
    return value


def _cost(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value) + ENTRY_BYTES


def _part(data: bytes) -> bytes:
    return _PART.pack(len(data)) + data


def _packed(operation: DictionaryOperation, *parts: bytes) -> bytes:
    return _HEAD.pack(operation) + b"".join(map(_part, parts))


def _unpacked(operation: bytes) -> tuple[int, list[bytes]]:
    return operation[0], _parts(operation, _HEAD.size)


def _parts(data: bytes, at: int) -> list[bytes]:
    parts = []
    while at < len(data):
        begin = at + _PART.size
        at = begin + int.from_bytes(data[at:begin], "little")
        if at > len(data):
            raise ValueError("it ends within a part")
        parts.append(data[begin:at])
    return parts
