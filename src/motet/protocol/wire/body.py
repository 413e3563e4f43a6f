"""The body of a data frame: many application messages, or one fragment of a large one.

    packed    kind=1  port u8  pad(2)  count u32   lengths u32 * count   payloads
    fragment  kind=2  port u8  pad(2)  total u32   offset u32            chunk
    ordered   kind=3           see ordered.py                            one of the two above, or nothing

All messages of one body have one port, which names their consumer: the application, or a part of the member itself.
All integers are little-endian. This layout is what travels, what a journal appends, and what becomes an Arrow column
(its offsets are the cumulative lengths). Every function here works on a whole body: joining, slicing and checking run
inside the interpreter's C code, never as a Python loop over messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum, unique
from functools import lru_cache
from io import BytesIO
from struct import Struct

from motet.protocol.core.limits import MIN_BODY_BYTES
from motet.protocol.wire.ordered import ORDERED, flaw_of_ordered

MAX_MESSAGE_BYTES = 64 << 20
HEADER = Struct("<BBxxI")
FRAGMENT_HEADER = Struct("<BBxxII")
_SINGLE = Struct("<BBxxII")  # the header and the length of a body of one message
_LENGTH = Struct("<I")
LENGTH_BYTES = _LENGTH.size
SINGLE_OVERHEAD = _SINGLE.size
PACKED = 1
FRAGMENT = 2


@unique
class Port(IntEnum):
    """The consumer of a body's messages. Messages for a port without a consumer are dropped at delivery and counted."""

    APP = 0
    KEYED = 1  # The application; each message begins with the length of its key (u16) and the key.
    RPC = 2
    BLOCKS = 3  # Replicated data structures.
    SNAPSHOT = 4
    CONTROL = 5  # Backfill of the log between members.
    NOTICE = 6  # The addresses of the services that members offer.


# Internal messages whose admission or failure is not reported to the application.
UNCOUNTED = frozenset({Port.SNAPSHOT})


def pack(messages: Sequence[bytes], port: int = Port.APP, header: bytes = b"") -> bytes:
    """Pack messages into one body, behind `header`."""
    if len(messages) == 1:
        return b"".join((header, _SINGLE.pack(PACKED, port, 1, len(messages[0])), messages[0]))
    lengths = array("I", map(len, messages))
    return b"".join((header, HEADER.pack(PACKED, port, len(messages)), _little_endian(lengths), *messages))


def fragment(message: bytes, offset: int, chunk_bytes: int, port: int = Port.APP, header: bytes = b"") -> bytes:
    """The fragment of a large message that starts at `offset`, behind `header`."""
    head = FRAGMENT_HEADER.pack(FRAGMENT, port, len(message), offset)
    return b"".join((header, head, memoryview(message)[offset : offset + chunk_bytes]))


def port_of(body: bytes) -> int:
    """The port of a packed body or a fragment."""
    return body[1]


def split(body: bytes) -> tuple[bytes, ...]:
    """The messages of a packed body, which must have passed `flaw`."""
    _, _, count = HEADER.unpack_from(body)
    payload_at = HEADER.size + LENGTH_BYTES * count
    if count < 2:
        return (bytes(body[payload_at:]),) if count else ()
    if (length := _uniform_length(body, count)) is not None:
        return _uniform_splitter(length, count).unpack_from(body, payload_at)
    payload = BytesIO(body)
    payload.seek(payload_at)
    return tuple(map(payload.read, _lengths(body, count)))


def message_count(body: bytes) -> int:
    """How many messages this body completes; a fragment counts when it is the last of its message."""
    kind, _, number = HEADER.unpack_from(body)
    if kind == PACKED:
        return int(number)
    _, _, total, offset = FRAGMENT_HEADER.unpack_from(body)
    return int(offset + len(body) - FRAGMENT_HEADER.size == total)


def flaw(body: bytes, start: int = 0) -> str | None:
    """Why the bytes from `start` on are not a valid body, or None. Copies nothing but the lengths."""
    size = len(body) - start
    if size < HEADER.size:
        return f"{size} bytes are too short for a body"
    kind, _, number = HEADER.unpack_from(body, start)
    if kind == PACKED:
        return _flaw_of_packed(body, number, start)
    if kind == FRAGMENT:
        return _flaw_of_fragment(body, start)
    if kind == ORDERED:
        return _flaw_of_ordered(body)
    return f"body kind {kind} is unknown"


def _flaw_of_ordered(body: bytes) -> str | None:
    start = flaw_of_ordered(body)
    if isinstance(start, str):
        return start
    if len(body) == start:
        return None
    return "an ordered body inside another" if body[start] == ORDERED else flaw(body, start)


def _flaw_of_packed(body: bytes, count: int, start: int) -> str | None:
    size, payload_at = len(body) - start, HEADER.size + LENGTH_BYTES * count
    if payload_at > size:
        return f"{count} lengths do not fit into {size} bytes"
    length = _LENGTH.unpack_from(body, start + HEADER.size)[0] if count == 1 else _uniform_length(body, count, start)
    claimed = length * count if length is not None else sum(_lengths(body, count, start))
    if claimed != size - payload_at:
        return f"lengths add up to {claimed}, the payload has {size - payload_at} bytes"
    return None


def _flaw_of_fragment(body: bytes, start: int) -> str | None:
    size = len(body) - start
    if size <= FRAGMENT_HEADER.size:
        return "a fragment without a chunk"
    _, _, total, offset = FRAGMENT_HEADER.unpack_from(body, start)
    end = offset + size - FRAGMENT_HEADER.size
    if total > MAX_MESSAGE_BYTES or end > total:
        return f"a fragment that ends at {end} of a message of {total} bytes"
    if end < total and size < MIN_BODY_BYTES:
        return f"a fragment of {size} bytes that is not the last of its message"
    return None


def _lengths(body: bytes, count: int, start: int = 0) -> tuple[int, ...]:
    return Struct(f"<{count}I").unpack_from(body, start + HEADER.size)


def _uniform_length(body: bytes, count: int, start: int = 0) -> int | None:
    """The length of all messages if it is the same: compares the vector of lengths with itself shifted by one."""
    first, end = start + HEADER.size, start + HEADER.size + LENGTH_BYTES * count
    lengths = bytes(body[first:end])  # Copied, because memoryviews are compared slowly, item by item.
    if not count or lengths[:-LENGTH_BYTES] != lengths[LENGTH_BYTES:]:
        return None
    return int.from_bytes(lengths[:LENGTH_BYTES], "little")


@lru_cache(maxsize=32)  # Traffic has few distinct shapes; the largest possible Struct takes half a megabyte.
def _uniform_splitter(length: int, count: int) -> Struct:
    return Struct(f"{length}s" * count)


def _little_endian(lengths: array[int]) -> bytes:
    if _BIG_ENDIAN:
        lengths.byteswap()
    return lengths.tobytes()


_BIG_ENDIAN = array("I", [1]).tobytes()[0] == 0
