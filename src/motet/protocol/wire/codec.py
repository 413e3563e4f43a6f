"""Encodes frames as datagrams and decodes them. `decode` accepts any bytes and returns a frame or a typed rejection.

    magic 2 bytes  version u8  kind u8  group u32  source u64  destination u64  | fields of the kind | ranges or body

All integers are little-endian. `group` is a checksum of the group's name, so that two groups never mix by accident;
`source` and `destination` are incarnations, so that no datagram for an earlier incarnation of a process is handled by a
later one. Decoding is total: no input raises or allocates more than a small multiple of its own size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from motet.protocol.core.effects import Frame
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MOST_COUNT
from motet.protocol.core.view import ViewId
from motet.protocol.wire.body import flaw
from motet.protocol.wire.fields import (
    ADDRESS,
    AGREED,
    BALLOT,
    BYTES,
    COUNT,
    DECISION,
    FLAG,
    PAIRS,
    PRODUCERS,
    REPORT,
    SPAN_NS,
    STATE_NEED,
    SUMMARY,
    TEXT,
    THOUSANDTHS,
    U16,
    U32,
    U64,
    VIEW,
    VIEW_ID,
    Field,
    MalformedError,
    Reader,
    listed,
    optional,
)
from motet.protocol.wire.frames import (
    Abort,
    AreYouAlive,
    Busy,
    Close,
    Commit,
    CutTo,
    Heartbeat,
    Hello,
    HelloBack,
    Highest,
    IAmAlive,
    IndirectProbe,
    Installed,
    LeaveRequest,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeRequest,
    MergeResponse,
    MergeView,
    MulticastAck,
    MulticastData,
    MulticastXmitRequest,
    Nack,
    OrderAck,
    OrderData,
    OrderSeq,
    OrderSeqAck,
    Prepare,
    Prepared,
    Progress,
    ProposalRequest,
    Proposals,
    Purged,
    Ranges,
    Ready,
    Stable,
    StateChunk,
    StateRefusal,
    StateRequest,
    Suspicion,
    Sync,
    SyncAck,
    SyncOk,
    UnicastAck,
    UnicastData,
    UnicastPurged,
    UnicastXmitRequest,
    Vouched,
)
from motet.protocol.wire.ordered import VIEWED_BYTES

MAGIC = b"mT"
VERSION = 1
HEADER = Struct("<2sBBIQQ")
MAX_RANGES = 512
_RANGE = Struct("<QQ")
_TRIPLE = Struct("<QQQ")
_U16 = Struct("<H")


class Reject(Enum):
    """Why bytes are not a valid frame."""

    TOO_SHORT = "is too short for a header"
    TOO_LONG = "is longer than a datagram can be"
    NOT_OURS = "does not start as a Motet datagram"
    OTHER_VERSION = "speaks another version of the protocol"
    OTHER_GROUP = "belongs to another group"
    UNKNOWN_KIND = "is of a kind that this version does not know"
    TRUNCATED = "ends before its fields do"
    TRAILING_BYTES = "continues after its fields end"
    BAD_FIELD = "has a field outside its range"
    BAD_RANGES = "asks for ranges that are not ascending and disjoint"
    BAD_BODY = "has a body that contradicts itself"


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: Reject
    detail: str


class DecodedDatagram(NamedTuple):
    """A decoded datagram."""

    source: int
    destination: int
    frame: Frame


def group_id(name: str) -> int:
    return crc32(name.encode())


def kind_name(datagram: bytes) -> str:
    """The name of the frame in a datagram, by its kind alone: for traces."""
    return _NAMES.get(datagram[_KIND_AT], "unknown") if len(datagram) > _KIND_AT else "unknown"


@dataclass(frozen=True, slots=True)
class _Kind:
    """The encoding of one kind of frame: its fixed fields, and what follows them."""

    number: int
    fields: Struct
    tail: str  # "none", "ranges", "triples" or "body".
    counts: slice  # Fields that take part in arithmetic and so are bounded; the others are names of any value.
    unpack: Callable[..., Frame]
    pack: Callable[..., tuple[int, ...]]


_TAIL_BYTES: dict[str, Callable[..., bytes]] = {
    "none": lambda frame: b"",
    "ranges": lambda frame: _U16.pack(len(frame.ranges)) + b"".join(_RANGE.pack(*span) for span in frame.ranges),
    "triples": lambda frame: _U16.pack(len(frame.runs)) + b"".join([_TRIPLE.pack(*run) for run in frame.runs]),
    "body": lambda frame: frame.body,
}

_U32 = Struct("<I")
_U64 = Struct("<Q")
_CONN_U64 = Struct("<IQ")
_TWO_U32 = Struct("<II")
_TWO_U32_U64 = Struct("<IIQ")
_CONN_FLAG_U64 = Struct("<IBQ")
_THREE_U64 = Struct("<QQQ")
_FOUR_U64 = Struct("<QQQQ")
_FIVE_U64 = Struct("<QQQQQ")
_TWO_U64 = Struct("<QQ")

# A retired kind number is never reused: 3, 18 and 70 were requests and proposals without a count.
_NONE = slice(0)
_KINDS: dict[type[Frame], _Kind] = {
    UnicastData: _Kind(
        1,
        _CONN_FLAG_U64,
        "body",
        slice(2, 3),
        lambda conn_id, first, seqno, body: UnicastData(conn_id, bool(first), seqno, body),
        lambda f: (f.conn_id, f.first, f.seqno),
    ),
    UnicastAck: _Kind(2, _CONN_U64, "none", slice(1, 2), UnicastAck, lambda f: (f.conn_id, f.seqno)),
    UnicastXmitRequest: _Kind(9, _U32, "ranges", _NONE, UnicastXmitRequest, lambda f: (f.conn_id,)),
    Close: _Kind(4, _U32, "none", _NONE, Close, lambda f: (f.conn_id,)),
    Sync: _Kind(5, _TWO_U32, "none", _NONE, Sync, lambda f: (f.conn_id, f.sync_id)),
    SyncOk: _Kind(6, _TWO_U32_U64, "none", slice(2, 3), SyncOk, lambda f: (f.conn_id, f.sync_id, f.low)),
    SyncAck: _Kind(7, _U32, "none", _NONE, SyncAck, lambda f: (f.conn_id,)),
    UnicastPurged: _Kind(8, _CONN_U64, "none", slice(1, 2), UnicastPurged, lambda f: (f.conn_id, f.low)),
    MulticastData: _Kind(
        16,
        _FOUR_U64,
        "body",
        slice(1, 4),
        lambda sender, seqno, stable, view, body: MulticastData(sender, seqno, stable, body, view),
        lambda f: (f.sender, f.seqno, f.stable, f.view),
    ),
    MulticastAck: _Kind(17, _U64, "none", slice(0, 1), MulticastAck, lambda f: (f.seqno,)),
    MulticastXmitRequest: _Kind(21, _U64, "ranges", _NONE, MulticastXmitRequest, lambda f: (f.sender,)),
    Highest: _Kind(19, _THREE_U64, "none", slice(0, 3), Highest, lambda f: (f.seqno, f.stable, f.view)),
    Purged: _Kind(20, _TWO_U64, "none", slice(1, 2), Purged, lambda f: (f.sender, f.low)),
    OrderData: _Kind(
        80,
        _FIVE_U64,
        "body",
        slice(2, 5),
        lambda number, creator, *fields: OrderData(ViewId(number, creator), *fields),
        lambda f: (f.view.number, f.view.creator, f.id, f.settled, f.after),
    ),
    Proposals: _Kind(
        74,
        _THREE_U64,
        "triples",
        slice(0, 1),
        lambda number, creator, sender, runs: Proposals(ViewId(number, creator), runs, sender),
        lambda f: (f.view.number, f.view.creator, f.sender),
    ),
    Progress: _Kind(
        72,
        _THREE_U64,
        "none",
        slice(0, 3, 2),
        lambda number, creator, position: Progress(ViewId(number, creator), position),
        lambda f: (f.view.number, f.view.creator, f.position),
    ),
    Stable: _Kind(
        73,
        _THREE_U64,
        "none",
        slice(0, 3, 2),
        lambda number, creator, position: Stable(ViewId(number, creator), position),
        lambda f: (f.view.number, f.view.creator, f.position),
    ),
}
# Control frames, whose fields nest. Their kind numbers share the series above.
_RECORD = (optional(VIEW), listed(VIEW))
_BEAT = (COUNT, COUNT, SPAN_NS, THOUSANDTHS)
_CONTROL: dict[type[Frame], tuple[int, tuple[Field[Any], ...]]] = {
    Heartbeat: (32, (VIEW_ID, *_BEAT)),
    AreYouAlive: (33, _BEAT),
    IAmAlive: (34, (VIEW_ID, *_BEAT)),
    IndirectProbe: (35, (VIEW_ID, U64)),
    Vouched: (36, (VIEW_ID, U64)),
    Busy: (37, (VIEW_ID,)),
    Prepare: (40, (VIEW_ID, BALLOT, listed(ADDRESS), FLAG)),
    Prepared: (41, (VIEW_ID, BALLOT, REPORT, STATE_NEED, FLAG, optional(DECISION), AGREED)),
    CutTo: (42, (VIEW_ID, BALLOT, DECISION, *_RECORD)),
    Ready: (43, (VIEW_ID, BALLOT, COUNT, PRODUCERS)),
    Commit: (44, (VIEW_ID, BALLOT, DECISION)),
    Installed: (45, (VIEW_ID,)),
    Abort: (46, (VIEW_ID, BALLOT, FLAG)),
    Nack: (47, (VIEW_ID, BALLOT, BALLOT)),
    LeaveRequest: (48, (VIEW_ID,)),
    Suspicion: (49, (VIEW_ID, U64, listed(U64))),
    Hello: (50, (ADDRESS, SUMMARY, U64)),
    HelloBack: (51, (ADDRESS, SUMMARY, U64)),
    MergeRequest: (52, (BALLOT, VIEW_ID, VIEW_ID, SPAN_NS)),
    MergeRefusal: (53, (BALLOT, TEXT)),
    MergeResponse: (54, (BALLOT, VIEW, BALLOT, REPORT, *(2 * (listed(ADDRESS),)), *(3 * (listed(U64),)))),
    MergeView: (55, (BALLOT, VIEW_ID, BALLOT, VIEW, PAIRS, listed(VIEW), listed(U64), VIEW_ID, *_RECORD)),
    MergeReady: (56, (BALLOT, BALLOT, COUNT, PRODUCERS)),
    MergeCommit: (57, (BALLOT, VIEW_ID, COUNT, PRODUCERS)),
    MergeCancel: (58, (BALLOT, FLAG)),
    StateRequest: (60, (VIEW_ID, COUNT, U16)),
    StateChunk: (61, (VIEW_ID, COUNT, FLAG, BYTES)),
    StateRefusal: (62, (VIEW_ID, TEXT)),
    ProposalRequest: (71, (VIEW_ID, COUNT, COUNT)),
    OrderAck: (81, (VIEW_ID, COUNT, COUNT)),
    OrderSeq: (82, (VIEW_ID, COUNT, COUNT, COUNT, U32)),
    OrderSeqAck: (83, (VIEW_ID, COUNT)),
}
_CONTROL_BY_NUMBER = {number: (kind, schema) for kind, (number, schema) in _CONTROL.items()}

_NAMES = {kind.number: frame.__name__ for frame, kind in _KINDS.items()} | {
    number: frame.__name__ for number, (frame, _) in _CONTROL_BY_NUMBER.items()
}
_KIND_AT = 3

_FLAGGED = _KINDS[UnicastData].number
_BY_NUMBER: dict[int, _Kind] = {kind.number: kind for kind in _KINDS.values()}

# The bytes of a data frame besides its body, which gets the rest of `frame_bytes`. The header of an OrderData is
# larger, but that frame has no piggybacked numbers, and needs less than the space reserved for them.
DATA_OVERHEAD = HEADER.size + max(_KINDS[kind].fields.size for kind in (UnicastData, MulticastData))
CHUNK_OVERHEAD = HEADER.size + 29  # The bytes of a StateChunk besides its data: view id, index, flag, length.


def encode(group: int, source: int, destination: int, frame: Frame) -> bytes:
    return b"".join(encode_parts(group, source, destination, frame))


def encode_parts(group: int, source: int, destination: int, frame: Frame) -> tuple[bytes, bytes]:
    """The datagram in two consecutive parts, so that a large body need not be copied behind its header."""
    kind = _KINDS.get(type(frame))
    if kind is None:
        number, schema = _CONTROL[type(frame)]
        header = HEADER.pack(MAGIC, VERSION, number, group, source, destination)
        values = (getattr(frame, name) for name in frame.__dataclass_fields__)  # type: ignore[attr-defined]
        return header, b"".join([field.write(value) for field, value in zip(schema, values, strict=True)])
    head = HEADER.pack(MAGIC, VERSION, kind.number, group, source, destination) + kind.fields.pack(*kind.pack(frame))
    return head, _TAIL_BYTES[kind.tail](frame)


def decode(group: int, datagram: bytes) -> DecodedDatagram | Rejection:
    size = len(datagram)
    if not HEADER.size <= size <= MAX_DATAGRAM_BYTES:
        return Rejection(Reject.TOO_SHORT if size < HEADER.size else Reject.TOO_LONG, f"{size} bytes")
    magic, version, number, its_group, source, destination = HEADER.unpack_from(datagram)
    if magic != MAGIC or version != VERSION or its_group != group:
        return _stranger(magic, version, its_group, group)
    kind = _BY_NUMBER.get(number)
    if kind is not None:
        frame = _decode_frame(kind, datagram, size)
    elif number in _CONTROL_BY_NUMBER:
        frame = _decode_control(number, datagram)
    else:
        return Rejection(Reject.UNKNOWN_KIND, f"kind {number}")
    return frame if type(frame) is Rejection else DecodedDatagram(source, destination, frame)  # type: ignore[arg-type]


def _stranger(magic: bytes, version: int, its_group: int, group: int) -> Rejection:
    if magic != MAGIC:
        return Rejection(Reject.NOT_OURS, f"starts with {magic!r}")
    if version != VERSION:
        return Rejection(Reject.OTHER_VERSION, f"version {version}, this member speaks {VERSION}")
    return Rejection(Reject.OTHER_GROUP, f"group {its_group:08x}, this member is in {group:08x}")


def _decode_frame(kind: _Kind, datagram: bytes, size: int) -> Frame | Rejection:
    end = HEADER.size + kind.fields.size
    if size < end:
        return Rejection(Reject.TRUNCATED, f"{size} bytes, kind {kind.number} needs {end}")
    fields = kind.fields.unpack_from(datagram, HEADER.size)
    counts = fields[kind.counts]
    if counts and max(counts) > MOST_COUNT:
        return Rejection(Reject.BAD_FIELD, f"{max(counts)} is more than {MOST_COUNT}")
    if kind.number == _FLAGGED and fields[1] > 1:
        return Rejection(Reject.BAD_FIELD, f"a flag of {fields[1]}")
    if kind.tail == "body":  # A large body is a memoryview of its datagram instead of a copy.
        body = datagram[end:] if size < VIEWED_BYTES else memoryview(datagram)[end:]
        wrong = flaw(body)
        return Rejection(Reject.BAD_BODY, wrong) if wrong else kind.unpack(*fields, body)
    if kind.tail == "ranges":
        return _with_ranges(kind, fields, datagram[end:])
    if kind.tail == "triples":
        return _with_triples(kind, fields, datagram[end:])
    if size > end:
        return Rejection(Reject.TRAILING_BYTES, f"{size - end} bytes")
    return kind.unpack(*fields)


def _decode_control(number: int, datagram: bytes) -> Frame | Rejection:
    kind, schema = _CONTROL_BY_NUMBER[number]
    reader = Reader(datagram[HEADER.size :])
    try:
        frame = kind(*(field.read(reader) for field in schema))
    except MalformedError as error:
        return Rejection(Reject.BAD_FIELD, str(error))
    return Rejection(Reject.TRAILING_BYTES, f"{reader.left} bytes") if reader.left else frame


def _counted(tail: bytes, item: Struct) -> Rejection | None:
    """Why `tail` is not a count and that many items. Without a count, a tail truncated between items would be valid."""
    if len(tail) < _U16.size:
        return Rejection(Reject.TRUNCATED, f"{len(tail)} bytes, where a count of {_U16.size} begins")
    needed = _U16.size + _U16.unpack_from(tail)[0] * item.size
    if len(tail) == needed:
        return None
    reason = Reject.TRUNCATED if len(tail) < needed else Reject.TRAILING_BYTES
    return Rejection(reason, f"{len(tail)} bytes of items, which need {needed}")


def _with_triples(kind: _Kind, fields: tuple[int, ...], tail: bytes) -> Frame | Rejection:
    if (wrong := _counted(tail, _TRIPLE)) is not None:
        return wrong
    runs = tuple(_TRIPLE.iter_unpack(tail[_U16.size :]))
    if runs and max(map(max, runs)) > MOST_COUNT:
        return Rejection(Reject.BAD_FIELD, f"{max(map(max, runs))} is more than {MOST_COUNT}")
    return kind.unpack(*fields, runs)


def _with_ranges(kind: _Kind, fields: tuple[int, ...], tail: bytes) -> Frame | Rejection:
    if (wrong := _counted(tail, _RANGE)) is not None:
        return wrong
    ranges: Ranges = tuple(_RANGE.iter_unpack(tail[_U16.size :]))
    if not 0 < len(ranges) <= MAX_RANGES:
        return Rejection(Reject.BAD_RANGES, f"{len(ranges)} ranges")
    previous = 0
    for first, last in ranges:
        if not previous < first <= last <= MOST_COUNT:
            return Rejection(Reject.BAD_RANGES, f"{first}-{last} after {previous}")
        previous = last
    return kind.unpack(*fields, ranges)
