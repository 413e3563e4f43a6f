"""The encoding of control frames: small codecs that are composed like the types that they encode.

Control frames are rare and their fields nest (views, digests, cuts), so clarity matters here more than speed. Whatever
the bytes, either a field is read or `MalformedError` is raised, and no list is longer than the remaining bytes allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Generic, TypeVar

from motet.errors import MisuseError, MotetError
from motet.protocol.core.identity import Address, address_of
from motet.protocol.core.limits import MOST_COUNT, MOST_WALL_NS
from motet.protocol.core.view import Ballot, View, ViewId, ViewSummary
from motet.protocol.wire.frames import AgreedNumbers, Decision, MemberReport, StateNeed

T = TypeVar("T")


class MalformedError(Exception):
    """Internal to the package `wire`: the codec turns it into a rejection."""


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise MalformedError(f"{count} bytes wanted, {self.left} left")
        self._at += count
        return self._data[self._at - count : self._at]


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    write: Callable[[T], bytes]
    read: Callable[[Reader], T]


def _integer(form: str) -> Field[int]:
    shape = Struct(form)
    return Field(shape.pack, lambda reader: int(shape.unpack(reader.take(shape.size))[0]))


U8 = _integer("<B")
U16 = _integer("<H")
U32 = _integer("<I")
U64 = _integer("<Q")


def at_most(field: Field[int], limit: int) -> Field[int]:
    """An integer with a bound, so that arithmetic on it cannot overflow; a larger one is neither read nor written."""

    def read(reader: Reader) -> int:
        value = field.read(reader)
        if value > limit:
            raise MalformedError(f"{value} is more than {limit}")
        return value

    def write(value: int) -> bytes:
        if value > limit:
            raise MisuseError(f"{value} is more than {limit}, the bound of this field; no member would accept it")
        return field.write(value)

    return Field(write, read)


COUNT = at_most(U64, MOST_COUNT)
WALL_NS = at_most(U64, MOST_WALL_NS)
SPAN_NS = at_most(U64, 1 << 53)  # A hundred days.
THOUSANDTHS = at_most(U16, 1_000)


def _read_flag(reader: Reader) -> bool:
    value = U8.read(reader)
    if value > 1:
        raise MalformedError(f"a flag of {value}")
    return bool(value)


FLAG: Field[bool] = Field(lambda flag: U8.write(int(flag)), _read_flag)


def _read_text(reader: Reader) -> str:
    try:
        return reader.take(U8.read(reader)).decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"text that is no UTF-8: {error}") from None


TEXT: Field[str] = Field(lambda text: U8.write(len(text.encode())) + text.encode(), _read_text)


BYTES: Field[bytes] = Field(lambda data: U32.write(len(data)) + data, lambda reader: reader.take(U32.read(reader)))


def listed(item: Field[T]) -> Field[tuple[T, ...]]:
    def read(reader: Reader) -> tuple[T, ...]:
        count = U16.read(reader)
        if count > reader.left:
            raise MalformedError(f"{count} items in {reader.left} bytes")
        return tuple(item.read(reader) for _ in range(count))

    return Field(lambda items: U16.write(len(items)) + b"".join(map(item.write, items)), read)


def flat_list(form: str, counts: Sequence[int] = ()) -> Field[tuple[Any, ...]]:
    """A list of tuples of integers. Those at the indices `counts` take part in arithmetic and so are bounded."""
    shape = Struct(form)

    def require(items: Sequence[tuple[int, ...]], error: type[Exception]) -> None:
        for place in counts:
            if items and (largest := max(item[place] for item in items)) > MOST_COUNT:
                raise error(f"{largest} is more than {MOST_COUNT}")

    def read(reader: Reader) -> tuple[tuple[int, ...], ...]:
        items = tuple(shape.iter_unpack(reader.take(U16.read(reader) * shape.size)))
        require(items, MalformedError)
        return items

    def write(items: tuple[tuple[int, ...], ...]) -> bytes:
        require(items, MisuseError)
        return U16.write(len(items)) + b"".join([shape.pack(*item) for item in items])

    return Field(write, read)


def optional(item: Field[T]) -> Field[T | None]:
    return Field(
        lambda value: FLAG.write(False) if value is None else FLAG.write(True) + item.write(value),
        lambda reader: item.read(reader) if FLAG.read(reader) else None,
    )


def checked(build: Callable[..., T], parts: Callable[[T], tuple[object, ...]], *fields: Field[Any]) -> Field[T]:
    """A class composed of fields; values that its constructor rejects are malformed."""

    def read(reader: Reader) -> T:
        try:
            return build(*(field.read(reader) for field in fields))
        except MotetError as error:
            raise MalformedError(str(error)) from None

    def write(value: T) -> bytes:
        return b"".join(field.write(part) for field, part in zip(fields, parts(value), strict=True))

    return Field(write, read)


ADDRESS: Field[Address] = checked(
    address_of,
    lambda a: (a.name, a.host, a.port, a.incarnation),
    TEXT,
    TEXT,
    U16,
    U64,
)
VIEW_ID: Field[ViewId] = checked(ViewId, lambda v: (v.number, v.creator), COUNT, U64)
BALLOT: Field[Ballot] = checked(Ballot, lambda b: (b.round, b.proposer), COUNT, U64)
VIEW: Field[View] = checked(
    View,
    lambda v: (v.id, v.members, v.is_primary),
    VIEW_ID,
    listed(ADDRESS),
    FLAG,
)
SUMMARY: Field[ViewSummary] = checked(
    ViewSummary,
    lambda s: (s.id, s.coordinator, s.is_primary, s.size),
    VIEW_ID,
    ADDRESS,
    FLAG,
    U16,
)
PAIRS = flat_list("<QQ", counts=(1,))  # (member, seqno)
PRODUCERS = flat_list("<QQ")  # (producer, sequence): a client chooses both; they are compared, never added to.
DIGEST = flat_list("<QQQQ", counts=(1, 2, 3))  # (member, and three seqnos)
CUT = flat_list("<QQQQ", counts=(1, 3))  # (sender, seqno, holder, stable)
AGREED: Field[AgreedNumbers] = listed(
    checked(lambda *three: three, lambda three: three, U64, COUNT, flat_list("<QI", (0,)))
)
DECISION: Field[Decision] = checked(
    Decision,
    lambda d: (d.cut, d.following, d.digest, d.subviews, d.lacking, d.epoch, d.position, d.producers, d.agreed),
    CUT,
    VIEW,
    PAIRS,
    listed(VIEW),
    listed(U64),
    VIEW_ID,
    COUNT,
    PRODUCERS,
    AGREED,
)


# Field by field in the order of `MemberReport`; PREPARED and MERGE_RSP carry it.
REPORT: Field[MemberReport] = checked(
    MemberReport,
    lambda r: (r.digest, r.last, r.attempts, r.epoch, r.position, r.chain, r.is_complete),
    DIGEST,
    optional(VIEW),
    listed(VIEW),
    VIEW_ID,
    COUNT,
    listed(U64),
    FLAG,
)


def _read_need(reader: Reader) -> StateNeed:
    value = U8.read(reader)
    if value > max(StateNeed):
        raise MalformedError(f"a need of {value}")
    return StateNeed(value)


STATE_NEED: Field[StateNeed] = Field(lambda need: U8.write(int(need)), _read_need)
