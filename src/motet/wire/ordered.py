"""The body of an ordered frame: the final numbers of earlier frames ride along with the next one, or alone.

    kind=3  flags u8  count u16  pad(4)  first u64   (number u64, proposer u32) * count   inner body, or nothing

`first` is the id of the frame that the first number belongs to; the others follow it without a gap. An inner body is to
be ordered itself when the flag says so; else it is one of the sender's plain stream, and only gives the numbers a lift.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

ORDERED = 3
HEADER = Struct("<BBHxxxxQ")
NUMBER = Struct("<QI")
MOST_NUMBERS = 0xFFFF
_TO_BE_ORDERED = 1


class Number(NamedTuple):
    """Where a frame stands: numbers first, and of two equal ones the smaller proposer."""

    number: int
    proposer: int  # rank in the view


class Ordered(NamedTuple):
    first: int
    numbers: tuple[Number, ...]
    is_ordered: bool  # the inner body is
    inner: bytes


def seal(first: int, numbers: Sequence[Number], inner: bytes, *, is_ordered: bool) -> bytes:
    head = HEADER.pack(ORDERED, _TO_BE_ORDERED if is_ordered else 0, len(numbers), first)
    return b"".join((head, *(NUMBER.pack(*number) for number in numbers), inner))


def unseal(body: bytes) -> Ordered:
    """Take apart what `flaw` found nothing wrong with."""
    _, flags, count, first = HEADER.unpack_from(body)
    end = HEADER.size + count * NUMBER.size
    numbers = tuple(Number(*pair) for pair in NUMBER.iter_unpack(body[HEADER.size : end]))
    return Ordered(first, numbers, bool(flags), body[end:])


def flaw_of_ordered(body: bytes) -> str | None:
    """Why these bytes are no ordered body; the inner one is the caller's to judge."""
    if len(body) < HEADER.size:
        return f"{len(body)} bytes are too short for an ordered body"
    _, flags, count, _ = HEADER.unpack_from(body)
    if flags > _TO_BE_ORDERED:
        return f"flags of {flags}"
    if HEADER.size + count * NUMBER.size > len(body):
        return f"{count} numbers do not fit into {len(body)} bytes"
    has_inner = len(body) > HEADER.size + count * NUMBER.size
    if flags and not has_inner:
        return "nothing to be ordered"
    return None if has_inner or count else "an ordered body that says nothing"


def inner_of(body: bytes) -> bytes:
    _, _, count, _ = HEADER.unpack_from(body)
    return body[HEADER.size + count * NUMBER.size :]
