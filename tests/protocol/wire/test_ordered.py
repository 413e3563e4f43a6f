"""The body of an ordered frame: sealing, unsealing, and saying what is wrong with bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.limits import MOST_COUNT, MOST_WALL_NS
from motet.protocol.wire.body import flaw, fragment, pack
from motet.protocol.wire.ordered import (
    HEADER,
    MOST_NUMBERS,
    NUMBER,
    ORDERED,
    Ordered,
    SequenceNumber,
    Tag,
    flaw_of_ordered,
    inner_of,
    seal,
    unseal,
)

U64 = st.integers(0, 2**64 - 1)
IDS = st.integers(0, MOST_COUNT)
TIMES = st.integers(0, MOST_WALL_NS)
NUMBERS = st.lists(st.builds(SequenceNumber, U64, st.integers(0, 2**32 - 1)), max_size=20)
INNER = st.one_of(
    st.lists(st.binary(max_size=20), max_size=5).map(pack),
    st.binary(min_size=70, max_size=200).map(lambda message: fragment(message, 0, 60)),
)


@given(first=IDS, numbers=NUMBERS, inner=INNER, is_ordered=st.booleans())
def test_what_was_sealed_is_unsealed_again(
    first: int, numbers: list[SequenceNumber], inner: bytes, is_ordered: bool
) -> None:
    body = seal(first, numbers, inner, is_ordered=is_ordered)
    assert flaw(body) is None
    assert unseal(body) == Ordered(first, tuple(numbers), is_ordered, inner)
    assert inner_of(body) == inner


@given(numbers=NUMBERS, inner=INNER, sent_at=TIMES, producer=U64, sequence=U64)
def test_a_tag_and_the_time_of_sending_come_back(
    numbers: list[SequenceNumber], inner: bytes, sent_at: int, producer: int, sequence: int
) -> None:
    tag = Tag(producer, sequence)
    body = seal(1, numbers, inner, is_ordered=True, sent_at=sent_at, tag=tag)
    assert flaw(body) is None
    assert unseal(body) == Ordered(1, tuple(numbers), True, inner, sent_at, tag)
    assert inner_of(body) == inner


@given(first=IDS, numbers=NUMBERS.filter(bool))
def test_numbers_travel_alone(first: int, numbers: list[SequenceNumber]) -> None:
    body = seal(first, numbers, b"", is_ordered=False)
    assert flaw(body) is None
    assert unseal(body) == Ordered(first, tuple(numbers), False, b"")


@given(numbers=NUMBERS, inner=INNER)
def test_a_sealed_body_has_exactly_the_documented_size(numbers: list[SequenceNumber], inner: bytes) -> None:
    body = seal(1, numbers, inner, is_ordered=True)
    assert len(body) == HEADER.size + NUMBER.size * len(numbers) + len(inner)


def test_the_layout_is_the_documented_one() -> None:
    assert seal(7, [SequenceNumber(5, 2)], pack([b"a"]), is_ordered=True, sent_at=9) == bytes.fromhex(
        "03 01 0100 00000000  0700000000000000  0900000000000000"
        "0500000000000000 02000000  01000000 01000000 01000000 61"
    )
    assert seal(7, [], pack([b"a"], port=3), is_ordered=True, tag=Tag(4, 6)) == bytes.fromhex(
        "03 03 0000 00000000  0700000000000000  0000000000000000"
        "0400000000000000 0600000000000000  01030000 01000000 01000000 61"
    )


def test_as_many_numbers_as_the_count_can_say() -> None:
    numbers = [SequenceNumber(index, 0) for index in range(MOST_NUMBERS)]
    body = seal(1, numbers, b"", is_ordered=False)
    assert flaw(body) is None
    assert unseal(body).numbers == tuple(numbers)


def test_numbers_compare_by_number_and_then_by_proposer() -> None:
    assert sorted([SequenceNumber(2, 0), SequenceNumber(1, 3), SequenceNumber(1, 1)]) == [
        SequenceNumber(1, 1),
        SequenceNumber(1, 3),
        SequenceNumber(2, 0),
    ]


GOOD = seal(1, [SequenceNumber(1, 0), SequenceNumber(2, 1)], pack([b"a"]), is_ordered=True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "0 bytes are too short for an ordered body"),
        (GOOD[:15], "15 bytes are too short for an ordered body"),
        (HEADER.pack(ORDERED, 2, 0, 1, 0) + pack([b"a"]), "flags of 2"),
        (HEADER.pack(ORDERED, 255, 0, 1, 0) + pack([b"a"]), "flags of 255"),
        (GOOD[: HEADER.size + 2 * NUMBER.size - 1], "2 numbers do not fit into 47 bytes"),
        (HEADER.pack(ORDERED, 0, MOST_NUMBERS, 1, 0), "65535 numbers do not fit into 24 bytes"),
        (HEADER.pack(ORDERED, 1, 0, 1, 0), "nothing to be ordered"),
        (seal(1, [SequenceNumber(1, 0)], b"", is_ordered=True), "nothing to be ordered"),
        (HEADER.pack(ORDERED, 0, 0, 1, 0), "an ordered body that says nothing"),
    ],
)
def test_every_flaw_is_named(body: bytes, reason: str) -> None:
    assert flaw_of_ordered(body) == reason


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (GOOD, "an ordered body inside another"),
        (bytes([ORDERED]), "an ordered body inside another"),
        (b"\x01", "1 bytes are too short for a body"),
        (pack([b"a"]) + b"b", "lengths add up to 1, the payload has 2 bytes"),
        (bytes([9]) + bytes(10), "body kind 9 is unknown"),
        (fragment(bytes(100), 0, 10), "a fragment of 22 bytes that is not the last of its message"),
    ],
)
@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_flaw_of_the_inner_body_is_one_of_the_whole(inner: bytes, reason: str, is_ordered: bool) -> None:
    assert flaw(seal(1, [SequenceNumber(1, 0)], inner, is_ordered=is_ordered)) == reason


@given(cut=st.integers(0, len(GOOD) - 1))
def test_a_body_that_was_cut_short_is_flawed(cut: int) -> None:
    assert flaw(GOOD[:cut]) is not None or not unseal(GOOD[:cut]).is_ordered


@given(tail=st.binary(max_size=120))
def test_garbage_is_taken_apart_or_named_and_never_raises(tail: bytes) -> None:
    for body in (tail, bytes([ORDERED]) + tail):
        if flaw_of_ordered(body) is None and body[:1] == bytes([ORDERED]):
            ordered = unseal(body)
            assert seal(*ordered[:2], ordered.inner, is_ordered=ordered.is_ordered)[16:] == body[16:]
        flaw(body)


@given(where=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255))
def test_one_changed_byte_never_raises(where: int, value: int) -> None:
    body = GOOD[:where] + bytes([value]) + GOOD[where + 1 :]
    if flaw(body) is None and body[0] == ORDERED:
        assert len(unseal(body).numbers) <= 2
