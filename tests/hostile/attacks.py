"""Hostile datagrams, made from what members really sent: each attack is a function of what was recorded, and chance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any, NamedTuple

from motet.core.effects import Frame
from motet.core.identity import NOBODY, Address, Endpoint
from motet.core.limits import MAX_DATAGRAM_BYTES, MOST_COUNT
from motet.errors import MotetError
from motet.wire.codec import HEADER, Envelope, decode, encode
from motet.wire.frames import Hello, HelloBack
from motet.wire.seal import Keyring, Sealer

RECORDED = 3_000  # genuine datagrams to play with
FOREIGN_KEY = f"7:{'22' * 32}"
NUMBERS = (0, 1, 2, 255, 1 << 16, 1 << 32, 1 << 53, MOST_COUNT - 1, MOST_COUNT, MOST_COUNT + 1, 1 << 63, (1 << 64) - 1)


class Recorded(NamedTuple):
    source: Endpoint
    to: Endpoint
    data: bytes


class Attacker:
    """Hears all that is sent. `members` are those whose names it can use; what it makes is for one `victim`."""

    def __init__(self, rng: Random, group: int, members: Sequence[Address]) -> None:
        self.rng = rng
        self.group = group
        self.members = list(members)
        self.recorded: deque[Recorded] = deque(maxlen=RECORDED)
        self._foreign = Sealer(Keyring.of([FOREIGN_KEY]), 77)
        self.known: tuple[Attack, ...] = (self.mutated, self.mutated, self.mutated, self.forged, self.flipped)
        self.unknown: tuple[Attack, ...] = (self.random, self.cut, self.stranger, self.reflected, self.oversized)
        self.again: tuple[Attack, ...] = (self.replayed, self.replayed_elsewhere)
        self.keyless: tuple[Attack, ...] = (*self.unknown[:2], *self.again, self.flipped, self.foreign_key, self.reflected)

    # Without any knowledge

    def random(self, victim: Address) -> bytes:
        return self.rng.randbytes(self.rng.randrange(0, 300))

    def cut(self, victim: Address) -> bytes:
        data = self._some()
        return data[: self.rng.randrange(len(data))]

    def oversized(self, victim: Address) -> bytes:
        return self._some() + bytes(self.rng.choice((1, 100, MAX_DATAGRAM_BYTES)))

    def flipped(self, victim: Address) -> bytes:
        data = bytearray(self._some())
        for _ in range(self.rng.randrange(1, 4)):
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(data)

    def foreign_key(self, victim: Address) -> bytes:
        return self._foreign.seal(self._some())

    # What was sent before

    def replayed(self, victim: Address) -> bytes:
        return self._some(lambda one: one.to == victim.endpoint)

    def replayed_elsewhere(self, victim: Address) -> bytes:
        return self._some(lambda one: one.to != victim.endpoint)

    def reflected(self, victim: Address) -> bytes:
        """The victim's own datagrams, sent back to it."""
        data = self._some(lambda one: one.source == victim.endpoint)
        envelope = decode(self.group, data)
        if not isinstance(envelope, Envelope):
            return data
        return encode(self.group, victim.incarnation, self.rng.choice((NOBODY, victim.incarnation)), envelope.frame)

    # Frames of somebody

    def stranger(self, victim: Address) -> bytes:
        """Well-formed, and of nobody that anybody knows."""
        data = bytearray(self._some())
        data[HEADER.size - 16 : HEADER.size - 8] = self.rng.randbytes(8)
        data[HEADER.size - 8 : HEADER.size] = victim.incarnation.to_bytes(8, "little")
        return bytes(data)

    def mutated(self, victim: Address) -> bytes:
        """A genuine frame in which one field, or two, say something else."""
        frame = self._frame()
        for _ in range(self.rng.choice((1, 1, 2))):
            frame = self._changed(frame)
        return self._from_a_member(victim, frame)

    def forged(self, victim: Address) -> bytes:
        """A genuine frame, word for word, in the name of another member."""
        return self._from_a_member(victim, self._frame())

    def _from_a_member(self, victim: Address, frame: Frame) -> bytes:
        others = [member for member in self.members if member != victim]
        source = frame.sender if isinstance(frame, Hello | HelloBack) else self.rng.choice(others)
        to = self.rng.choice((NOBODY, victim.incarnation))
        try:
            return encode(self.group, source.incarnation, to, frame)
        except Exception:
            return self._some()  # such a frame cannot even be written

    def _frame(self) -> Frame:
        for _ in range(100):
            envelope = decode(self.group, self._some())
            if isinstance(envelope, Envelope):
                return envelope.frame
        raise AssertionError("nothing that was recorded is a frame")

    def _some(self, is_wanted: Callable[[Recorded], bool] = lambda one: True) -> bytes:
        for _ in range(20):
            one = self.recorded[self.rng.randrange(len(self.recorded))]
            if is_wanted(one):
                return one.data
        return one.data

    # Values of fields

    def _changed(self, value: Any) -> Any:
        """The same kind of value with one thing in it changed; it may be one that no constructor takes."""
        if is_dataclass(value) and not isinstance(value, type):
            name = self.rng.choice(fields(value)).name
            try:
                return replace(value, **{name: self._changed(getattr(value, name))})
            except MotetError:
                return value
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._number(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, bytes | memoryview):
            return self._bytes(bytes(value))
        if isinstance(value, str):
            return self.rng.choice(("", "x" * 200, value + "\0"))
        return value

    def _number(self, value: int) -> int:
        near = (value + 1, max(0, value - 1), value + 1000, value + (1 << 31), value + (1 << 41))
        names = [member.incarnation for member in self.members]
        return self.rng.choice((*near, self.rng.choice(NUMBERS), self.rng.choice(names), self.rng.getrandbits(64)))

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            return self.rng.choice(((), (self.rng.choice(self.members),), ((1, 1),), (1,)))
        at = self.rng.randrange(len(value))
        choice = self.rng.randrange(5)
        if choice == 0:
            return value[:at] + value[at + 1 :]
        if choice == 1:
            return value + (value[at],)
        if choice == 2:
            return value[::-1]
        changed = (*value[:at], self._changed(value[at]), *value[at + 1 :])
        return type(value)(*changed) if hasattr(value, "_fields") else changed

    def _bytes(self, value: bytes) -> bytes:
        if not value:
            return self.rng.randbytes(5)
        at = self.rng.randrange(len(value))
        return self.rng.choice((value[:at], value[:at] + self.rng.randbytes(1) + value[at + 1 :], value + b"\0" * 9))


Attack = Callable[[Address], bytes]
