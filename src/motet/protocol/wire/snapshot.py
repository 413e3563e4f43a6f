"""The messages of a global snapshot and their encoding. They travel as ordinary messages of port SNAPSHOT.

    marker    sent into every channel, after the last message before a member's recording, before the first one after it
    report    sent to the initiator: what one member recorded
    refusal   sent to the initiator: a member cannot take part, and why
    abandon   sent to all: the initiator has given up

Members are named by their incarnations. Whatever the bytes, `decode` returns a message or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from motet.protocol.core.effects import Channel
from motet.protocol.core.view import ViewId
from motet.protocol.wire.fields import (
    BYTES,
    COUNT,
    FLAG,
    U8,
    U32,
    U64,
    VIEW_ID,
    WALL_NS,
    Field,
    MalformedError,
    Reader,
    checked,
)

T = TypeVar("T")


class StreamKind(Enum):
    """Which stream a reported window belongs to."""

    MULTICAST = "multicast"  # The stream of `peer`, which may be the member itself.
    UNICAST_TO = "unicast to"  # What the member sends to `peer`.
    UNICAST_FROM = "unicast from"  # What the member receives from `peer`.


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    initiator: int  # incarnation
    number: int  # counted by the initiator from 1

    def __str__(self) -> str:
        return f"{self.initiator:016x}/{self.number}"


@dataclass(frozen=True, slots=True)
class Marker:
    snapshot: SnapshotId
    view: ViewId
    ordered: int  # Ordered frames that its sender had sent in this view when it recorded its state.


@dataclass(frozen=True, slots=True)
class SnapshotRefusal:
    snapshot: SnapshotId
    reason: str
    is_transient: bool  # The cause is temporary, so another snapshot may succeed soon.


@dataclass(frozen=True, slots=True)
class Abandon:
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class StreamWindow:
    kind: StreamKind
    peer: int
    low: int
    delivered: int  # For UNICAST_TO, where nothing is delivered, the highest sent.
    high: int


@dataclass(frozen=True, slots=True)
class HeldBackFrame:
    """A frame in the hold-back queue."""

    sender: int
    id: int
    number: int  # The agreed sequence number if decided, else the member's proposal.
    proposer: int  # Rank in the view.
    is_decided: bool
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Retransmitted:
    """A frame that the continuous strategy resends until all of its recipients have acknowledged it."""

    frame: str  # DATA or SEQ
    id: int
    recipients: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InFlight:
    port: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that its sender has accepted and not sent yet."""

    channel: Channel
    to: int  # NOBODY means the group.
    port: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The messages in flight from `sender` to the reporting member, oldest first."""

    channel: Channel
    sender: int
    messages: tuple[InFlight, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The recording of one member."""

    snapshot: SnapshotId
    recorded_at: int  # Wall clock of the member, in nanoseconds.
    state: bytes  # The application's state.
    position: int  # The delivered position of the log, and below the stable one.
    stable: int
    windows: tuple[StreamWindow, ...]
    held_back: tuple[HeldBackFrame, ...]
    waiting: tuple[Waiting, ...]  # Accepted messages that were not sent yet, mostly ones to be ordered.
    channels: tuple[ChannelState, ...]  # The channels with messages in flight.
    retransmitted: tuple[Retransmitted, ...] = ()  # Only with the continuous strategy.


Message = Marker | Report | SnapshotRefusal | Abandon


def encode(message: Message) -> bytes:
    kind, field = _KINDS[type(message)]
    return U8.write(kind) + field.write(message)


def decode(data: bytes) -> Message | str:
    """The message, or why the bytes are not a valid one."""
    reader = Reader(data)
    try:
        field = _FIELDS.get(U8.read(reader))
        if field is None:
            return f"kind {data[0]} is unknown"
        message = field.read(reader)
    except MalformedError as error:
        return str(error)
    return f"{reader.left} bytes too many" if reader.left else message


def _many(item: Field[T]) -> Field[tuple[T, ...]]:
    """A list with a 32-bit count, for it may be longer than the lists of control frames."""

    def read(reader: Reader) -> tuple[T, ...]:
        count = U32.read(reader)
        if count > reader.left:
            raise MalformedError(f"{count} items in {reader.left} bytes")
        return tuple(item.read(reader) for _ in range(count))

    return Field(lambda items: U32.write(len(items)) + b"".join(map(item.write, items)), read)


def _one_of(kind: Callable[[str], T], values: tuple[T, ...]) -> Field[T]:
    def read(reader: Reader) -> T:
        number = U8.read(reader)
        if number >= len(values):
            raise MalformedError(f"{kind.__name__} number {number} is unknown")
        return values[number]

    return Field(lambda value: U8.write(values.index(value)), read)


def _read_reason(reader: Reader) -> str:
    return BYTES.read(reader).decode(errors="replace")


_REASON: Field[str] = Field(lambda text: BYTES.write(text.encode()), _read_reason)
_CHANNEL = _one_of(Channel, (Channel.UNICAST, Channel.MULTICAST, Channel.TOTAL))
_STREAM_KIND = _one_of(StreamKind, tuple(StreamKind))
_ID: Field[SnapshotId] = checked(SnapshotId, lambda s: (s.initiator, s.number), U64, COUNT)
_WINDOW: Field[StreamWindow] = checked(
    StreamWindow, lambda w: (w.kind, w.peer, w.low, w.delivered, w.high), _STREAM_KIND, U64, COUNT, COUNT, COUNT
)
_HELD_BACK: Field[HeldBackFrame] = checked(
    HeldBackFrame,
    lambda h: (h.sender, h.id, h.number, h.proposer, h.is_decided, h.size),
    U64,
    COUNT,
    COUNT,
    U32,
    FLAG,
    U32,
)
_IN_FLIGHT: Field[InFlight] = checked(InFlight, lambda m: (m.port, m.payload), U8, BYTES)
_WAITING: Field[Waiting] = checked(Waiting, lambda w: (w.channel, w.to, w.port, w.payload), _CHANNEL, U64, U8, BYTES)
_CHANNEL_STATE: Field[ChannelState] = checked(
    ChannelState, lambda c: (c.channel, c.sender, c.messages), _CHANNEL, U64, _many(_IN_FLIGHT)
)
_MARKER: Field[Marker] = checked(Marker, lambda m: (m.snapshot, m.view, m.ordered), _ID, VIEW_ID, COUNT)
_SNAPSHOT_REFUSAL: Field[SnapshotRefusal] = checked(
    SnapshotRefusal, lambda r: (r.snapshot, r.reason, r.is_transient), _ID, _REASON, FLAG
)
_ABANDON: Field[Abandon] = checked(Abandon, lambda a: (a.snapshot,), _ID)
_FRAME = _one_of(str, ("DATA", "SEQ"))
_RETRANSMITTED: Field[Retransmitted] = checked(
    Retransmitted, lambda r: (r.frame, r.id, r.recipients), _FRAME, COUNT, _many(U64)
)
_REPORT: Field[Report] = checked(
    Report,
    lambda r: (
        *(r.snapshot, r.recorded_at, r.state, r.position, r.stable),
        *(r.windows, r.held_back, r.waiting, r.channels, r.retransmitted),
    ),
    *(_ID, WALL_NS, BYTES, COUNT, COUNT),
    *(_many(_WINDOW), _many(_HELD_BACK), _many(_WAITING), _many(_CHANNEL_STATE), _many(_RETRANSMITTED)),
)
_KINDS: dict[type[Message], tuple[int, Field[Message]]] = {
    Marker: (1, _MARKER),  # type: ignore[dict-item]
    Report: (2, _REPORT),  # type: ignore[dict-item]
    SnapshotRefusal: (3, _SNAPSHOT_REFUSAL),  # type: ignore[dict-item]
    Abandon: (4, _ABANDON),  # type: ignore[dict-item]
}
_FIELDS = dict(_KINDS.values())
