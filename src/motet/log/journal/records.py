"""Records: the bytes of a journal. A segment is a file header and then records, each beginning at a multiple of 8.

    0 crc u32   4 kind u8  5 flags u8  6 head_bytes u16  8 body_bytes u32  12 zero u32   16 synced u64   24 at u64
    32 chain 16 B   48 digest 16 B   64 position u64                                            (all kinds: 72 bytes)
    72 count u32  76 is_tagged u32   80 sender u64   88 seqno u64   96 view number u64   104 view creator u64
    112 sent_at u64   120 producer u64   128 sequence u64                                 (frames only: 136 bytes)
    then the body, for a frame exactly the bytes of the wire; then zeros up to a multiple of 8

The CRC covers the head, and the head holds the digest of the body, so heads can be indexed and trusted without reading
bodies. Everything from the digest on is the same at all members, and that is what the chain covers. `synced` is how
much of the journal was known to be on disk when the record was made: it tells a torn tail from a damaged record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MOST_COUNT, MOST_WALL_NS
from motet.protocol.core.view import View, ViewId
from motet.protocol.wire.fields import (
    ADDRESS,
    BYTES,
    COUNT,
    PRODUCERS,
    TEXT,
    U64,
    VIEW,
    VIEW_ID,
    Field,
    checked,
    listed,
    optional,
)

FILE_HEADER = Struct("<8sII")
MAGIC = b"motetlog"
VERSION = 2
READABLE = (1, 2)  # a segment of version 1 does not say whose it is
ALIGNMENT = 8
MOST_BODY_BYTES = 16 << 20  # a frame has 65 507 bytes at most; the state of a group of thousands fits, too
CHAIN_BYTES = 16
START_OF_CHAIN = bytes(CHAIN_BYTES)

_OWN = Struct("<BBHIIQQ16s")  # what each member writes for itself, behind the CRC; ends with the chain
_SHARED = Struct("<16sQ")  # what all have in common, of any record
_SHARED_FRAME = Struct("<16sQIIQQQQQQQ")
_HEAD = Struct("<IBBHIIQQ16s16sQ")
_FRAME_HEAD = Struct("<IBBHIIQQ16s16sQIIQQQQQQQ")
_CRC = Struct("<I")
HEAD_BYTES = _HEAD.size
FRAME_HEAD_BYTES = _FRAME_HEAD.size
SHARED_AT = 48


@unique
class RecordKind(IntEnum):
    FRAME = 1
    VIEW = 2
    STABLE = 3
    MEMBER = 4  # of the file beside the segments: whose journal it is
    STATE = 5  # the first of every segment: what a reader must know of all that came before


class Head(NamedTuple):
    """The fields in the order of the bytes. `position` is that of the next message when the record was written."""

    crc: int
    kind: int
    flags: int
    head_bytes: int
    body_bytes: int
    zero: int
    synced: int
    at: int  # wall clock of whoever wrote it; for a frame, when it was delivered
    chain: bytes  # after this record
    digest: bytes  # of the body
    position: int
    messages: int = 0  # that end in it
    is_tagged: int = 0
    sender: int = 0
    seqno: int = 0
    view_number: int = 0
    view_creator: int = 0
    sent_at: int = 0
    producer: int = 0
    sequence: int = 0

    @property
    def size(self) -> int:
        """With the zeros behind it."""
        return (self.head_bytes + self.body_bytes + ALIGNMENT - 1) & -ALIGNMENT

    @property
    def last(self) -> int:
        """The position of the last message that ends in this record or before it."""
        return self.position + self.messages - 1

    @property
    def view(self) -> ViewId:
        return ViewId(self.view_number, self.view_creator)


@dataclass(frozen=True, slots=True)
class Entry:
    """One delivered frame, as it goes into the log."""

    position: int  # of the first message that ends in it
    count: int  # of messages that end in it; 0 for a fragment that is not the last
    sender: Address
    seqno: int  # its id in the sender's ordered stream of this view
    sent_at: int  # wall clock, nanoseconds
    delivered_at: int
    view: ViewId
    tag: tuple[int, int] | None
    body: bytes


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """From `position` on, exclusive, the log was delivered in this view."""

    view: View
    epoch: ViewId
    position: int
    at: int
    producers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentState:
    """What the first record of a segment says of all that came before it."""

    group: str
    address: int  # bytes of the journal before this segment; `synced` counts from the same beginning
    stable: int
    epoch: ViewId
    view: View | None
    producers: tuple[tuple[int, int], ...]
    begun: tuple[tuple[int, bytes], ...]  # messages of which only fragments came yet: sender, and their hash
    owner: Address | None = None  # the process that began the segment


# Bytes of records


# A universal hash of 128 bits at the speed of memory (four times that of zlib's CRC), from a library that is here
# anyway. Key and nonce are fixed and nothing is kept secret: it finds accidents, and any damage within 16 bytes surely.
_HASH = AESGCM(b"motet's journal.")
_NONCE = bytes(12)


def digest_of(body: bytes | memoryview) -> bytes:
    return _HASH.encrypt(_NONCE, b"", body)


def padding(size: int) -> bytes:
    return bytes(-size % ALIGNMENT)


def head_of(kind: RecordKind, body_bytes: int, synced: int, at: int, chain: bytes, shared: bytes) -> bytes:
    own = _OWN.pack(kind, 0, SHARED_AT + len(shared), body_bytes, 0, synced, at, chain)
    rest = own + shared
    return _CRC.pack(crc32(rest)) + rest


def shared_of_frame(entry: Entry) -> bytes:
    producer, sequence = entry.tag or (0, 0)
    return _SHARED_FRAME.pack(
        digest_of(entry.body),
        entry.position,
        entry.count,
        entry.tag is not None,
        entry.sender.incarnation,
        entry.seqno,
        entry.view.number,
        entry.view.creator,
        entry.sent_at,
        producer,
        sequence,
    )


def record_bytes(kind: RecordKind, body: bytes, synced: int, at: int, chain: bytes, position: int) -> bytes:
    """A whole record of any kind but a frame."""
    head = head_of(kind, len(body), synced, at, chain, _SHARED.pack(digest_of(body), position))
    return b"".join((head, body, padding(len(body))))


_HEAD_BYTES_OF = {kind: FRAME_HEAD_BYTES if kind is RecordKind.FRAME else HEAD_BYTES for kind in RecordKind}


def parse_head(data: bytes | memoryview, offset: int) -> Head | str:
    """The head that begins at `offset`, or what is wrong with it. A head that is not all there is "incomplete"."""
    left = len(data) - offset
    if left < HEAD_BYTES:
        return INCOMPLETE
    kind = data[offset + 4]
    size = FRAME_HEAD_BYTES if kind == RecordKind.FRAME else HEAD_BYTES
    if left < size:
        return INCOMPLETE
    head = Head(*(_FRAME_HEAD if size == FRAME_HEAD_BYTES else _HEAD).unpack_from(data, offset))
    if head.crc != crc32(memoryview(data)[offset + 4 : offset + size]):
        return "the checksum of a record's head is wrong"
    if max(head.position, head.seqno, head.view_number) > MOST_COUNT or max(head.at, head.sent_at) > MOST_WALL_NS:
        return "a record with a number beyond its bound, which no group can reach"
    if kind not in _HEAD_BYTES_OF or head.head_bytes != size or head.body_bytes > MOST_BODY_BYTES:
        return f"a record of kind {kind} with a head of {head.head_bytes} and a body of {head.body_bytes} bytes"
    return head


INCOMPLETE = "the file ends inside a record"


# Fields of records other than frames

BEGUN: Field[tuple[int, bytes]] = checked(lambda *two: two, lambda two: two, U64, BYTES)
VIEW_FIELDS: Field[tuple[View, ViewId, tuple[tuple[int, int], ...]]] = checked(
    lambda *three: three, lambda three: three, VIEW, VIEW_ID, PRODUCERS
)
_STATE_1 = (TEXT, COUNT, COUNT, VIEW_ID, optional(VIEW), PRODUCERS, listed(BEGUN))
STATE_1: Field[SegmentState] = checked(
    SegmentState, lambda s: (s.group, s.address, s.stable, s.epoch, s.view, s.producers, s.begun), *_STATE_1
)
STATE: Field[SegmentState] = checked(
    SegmentState,
    lambda s: (s.group, s.address, s.stable, s.epoch, s.view, s.producers, s.begun, s.owner),
    *(*_STATE_1, optional(ADDRESS)),
)


class HashChain:
    """The hash over the order, for which a message counts where it ends.

    Fragments are hashed aside until the last one comes: those of a message that a view change cuts short are in the
    journals of the members that were there, and not in that of a member that joined with the view.
    """

    __slots__ = ("begun", "value")

    def __init__(self, value: bytes = START_OF_CHAIN, begun: Sequence[tuple[int, bytes]] = ()) -> None:
        self.value = value
        self.begun = dict(begun)

    def take(self, sender: int, count: int, shared: bytes) -> bytes:
        if not count:
            self.begun[sender] = _hash(self.begun.get(sender, b"") + shared)
        elif self.begun:
            self.value = _hash(self.value + self.begun.pop(sender, b"") + shared)
        else:
            self.value = _hash(self.value + shared)
        return self.value

    def copy(self) -> HashChain:
        return HashChain(self.value, tuple(self.begun.items()))


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=CHAIN_BYTES).digest()
