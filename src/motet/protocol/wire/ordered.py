"""The body of an ordered frame: agreed sequence numbers of earlier frames, piggybacked on the next body or alone.

    kind=3  flags u8  count u16  pad(4)  first u64  sent_at u64
    [producer u64  sequence u64]  [proposed u64]   (number u64, proposer u32) * count   inner body, or nothing

`first` is the id of the frame that the first number belongs to; the others follow without a gap. A flag says whether
the inner body is to be ordered; otherwise it is a plain body that the numbers are piggybacked on. `sent_at` is the
sender's wall clock when it made the frame. A tag, present if its flag is set, makes the inner body an idempotent
append: only a higher sequence than all earlier ones of its producer is new. `proposed`, present if its flag is set, is
the sender's own proposal for the inner body.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from motet.protocol.core.limits import MOST_COUNT, MOST_WALL_NS

ORDERED = 3
HEADER = Struct("<BBHxxxxQQ")
TAG = Struct("<QQ")
PROPOSAL = Struct("<Q")
NUMBER = Struct("<QI")
MOST_NUMBERS = 0xFFFF
VIEWED_BYTES = 4_096  # A larger part of a buffer is passed on as a memoryview instead of a copy.
_TO_BE_ORDERED = 1
_TAGGED = 2
_PROPOSED = 4
_NUMBERS_AT = [  # The offset of the numbers, by flags.
    HEADER.size + (TAG.size if flags & _TAGGED else 0) + (PROPOSAL.size if flags & _PROPOSED else 0)
    for flags in range((_TO_BE_ORDERED | _TAGGED | _PROPOSED) + 1)
]


class SequenceNumber(NamedTuple):
    """The position of a frame in the total order: compared by number, then by proposer."""

    number: int
    proposer: int  # Rank in the view.


class Tag(NamedTuple):
    """Names an idempotent append, so that it can be resent through another member and is in the log once."""

    producer: int
    sequence: int


class Ordered(NamedTuple):
    first: int
    numbers: tuple[SequenceNumber, ...]
    is_ordered: bool  # Whether the inner body is to be ordered.
    inner: bytes
    sent_at: int = 0
    tag: Tag | None = None
    proposed: int | None = None  # The sender's own proposal.


def seal(
    first: int,
    numbers: Sequence[SequenceNumber],
    inner: bytes,
    *,
    is_ordered: bool,
    sent_at: int = 0,
    tag: Tag | None = None,
) -> bytes:
    return b"".join((header(first, numbers, is_ordered=is_ordered, sent_at=sent_at, tag=tag), inner))


def header(
    first: int,
    numbers: Sequence[SequenceNumber],
    *,
    is_ordered: bool,
    sent_at: int,
    tag: Tag | None,
    proposed: int | None = None,
) -> bytes:
    """The bytes before the inner body."""
    flags = _TO_BE_ORDERED if is_ordered else 0
    parts = [NUMBER.pack(*number) for number in numbers]
    if proposed is not None:
        flags |= _PROPOSED
        parts.insert(0, PROPOSAL.pack(proposed))
    if tag is not None:
        flags |= _TAGGED
        parts.insert(0, TAG.pack(*tag))
    return HEADER.pack(ORDERED, flags, len(numbers), first, sent_at) + b"".join(parts)


def unseal(body: bytes) -> Ordered:
    """Decode an ordered body, which must have passed `flaw`."""
    _, flags, count, first, sent_at = HEADER.unpack_from(body)
    start = _NUMBERS_AT[flags]
    end = start + count * NUMBER.size
    numbers = tuple(SequenceNumber(*pair) for pair in NUMBER.iter_unpack(body[start:end])) if count else ()
    tag = Tag(*TAG.unpack_from(body, HEADER.size)) if flags & _TAGGED else None
    proposed = PROPOSAL.unpack_from(body, start - PROPOSAL.size)[0] if flags & _PROPOSED else None
    inner = body[end:] if len(body) < VIEWED_BYTES else memoryview(body)[end:]
    return Ordered(first, numbers, bool(flags & _TO_BE_ORDERED), inner, sent_at, tag, proposed)


def flaw_of_ordered(body: bytes) -> str | int:
    """Why these bytes are not an ordered body, or where the inner body begins, which the caller must validate."""
    if len(body) < HEADER.size:
        return f"{len(body)} bytes are too short for an ordered body"
    _, flags, count, first, sent_at = HEADER.unpack_from(body)
    if first > MOST_COUNT or sent_at > MOST_WALL_NS:
        return f"an id of {first} or a clock of {sent_at}, beyond their bounds"
    if flags >= len(_NUMBERS_AT) or (flags and not flags & _TO_BE_ORDERED):
        return f"flags of {flags}"
    end = _NUMBERS_AT[flags] + count * NUMBER.size
    if end > len(body):
        return f"{count} numbers do not fit into {len(body)} bytes"
    has_inner = len(body) > end
    if flags and not has_inner:
        return "nothing to be ordered"
    return end if has_inner or count else "an ordered body that says nothing"


def inner_at(body: bytes) -> int:
    """The offset of the inner body."""
    _, flags, count, _, _ = HEADER.unpack_from(body)
    return int(_NUMBERS_AT[flags] + count * NUMBER.size)


def inner_of(body: bytes) -> bytes:
    return body[inner_at(body) :]
