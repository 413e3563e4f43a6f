"""The body of a data frame: packing, splitting, and saying what is wrong with bytes that are none."""

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from motet.protocol.wire.body import (
    FRAGMENT,
    FRAGMENT_HEADER,
    HEADER,
    LENGTH_BYTES,
    MAX_MESSAGE_BYTES,
    PACKED,
    flaw,
    fragment,
    message_count,
    pack,
    split,
)

MIXED = st.lists(st.binary(max_size=40), max_size=30)
UNIFORM = st.integers(0, 20).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=30))
MESSAGES = st.one_of(MIXED, UNIFORM)


@given(messages=MESSAGES)
@example(messages=[])
@example(messages=[b""])
@example(messages=[b"", b"", b""])
@example(messages=[b"", b"a", b""])
def test_what_was_packed_is_split_out_again(messages: list[bytes]) -> None:
    body = pack(messages)
    assert flaw(body) is None
    assert split(body) == tuple(messages)
    assert message_count(body) == len(messages)


@given(messages=MESSAGES)
def test_a_packed_body_has_exactly_the_documented_size(messages: list[bytes]) -> None:
    assert len(pack(messages)) == HEADER.size + sum(LENGTH_BYTES + len(message) for message in messages)


def test_the_layout_of_a_packed_body_is_the_documented_one() -> None:
    assert pack([b"ab", b"", b"c"]) == bytes.fromhex("01 000000  03000000  02000000 00000000 01000000  6162 63")


def test_the_layout_of_a_fragment_is_the_documented_one() -> None:
    assert fragment(b"abcdef", 2, 3) == bytes.fromhex("02 000000  06000000  02000000  636465")


def test_sixteen_thousand_messages_go_into_one_body_and_come_out_of_it() -> None:
    for messages in ([b"abcd"] * 8_000, [b""] * 16_000, [b"x" * (number % 3) for number in range(12_000)]):
        assert split(pack(messages)) == tuple(messages)


@given(messages=MESSAGES, cut=st.integers(1, 50))
def test_a_packed_body_that_was_cut_short_is_flawed(messages: list[bytes], cut: int) -> None:
    body = pack(messages)
    assert flaw(body[: max(len(body) - cut, 0)]) is not None


@given(messages=MESSAGES, extra=st.binary(min_size=1, max_size=20))
def test_a_packed_body_with_more_behind_it_is_flawed(messages: list[bytes], extra: bytes) -> None:
    assert flaw(pack(messages) + extra) is not None


@given(message=st.binary(min_size=1, max_size=400), chunk_bytes=st.integers(52, 90))
def test_fragments_together_are_the_message(message: bytes, chunk_bytes: int) -> None:
    bodies = [fragment(message, offset, chunk_bytes) for offset in range(0, len(message), chunk_bytes)]
    assert [flaw(body) for body in bodies] == [None] * len(bodies)
    assert b"".join(body[FRAGMENT_HEADER.size :] for body in bodies) == message
    assert [message_count(body) for body in bodies] == [0] * (len(bodies) - 1) + [1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "0 bytes are too short for a body"),
        (bytes(7), "7 bytes are too short for a body"),
        (HEADER.pack(0, 0, 0), "body kind 0 is unknown"),
        (HEADER.pack(3, 0, 0), "8 bytes are too short for an ordered body"),
        (HEADER.pack(PACKED, 0, 1), "1 lengths do not fit into 8 bytes"),
        (HEADER.pack(PACKED, 0, 0xFFFFFFFF) + bytes(100), "4294967295 lengths do not fit into 108 bytes"),
        (HEADER.pack(PACKED, 0, 0) + b"x", "lengths add up to 0, the payload has 1 bytes"),
        (HEADER.pack(PACKED, 0, 1) + b"\xff\xff\xff\xff", "lengths add up to 4294967295, the payload has 0 bytes"),
        (HEADER.pack(PACKED, 0, 2) + b"\xff\xff\xff\xff" * 2, "lengths add up to 8589934590, the payload has 0 bytes"),
        (HEADER.pack(FRAGMENT, 0, 5), "a fragment without a chunk"),
        (FRAGMENT_HEADER.pack(FRAGMENT, 0, 5, 0), "a fragment without a chunk"),
        (FRAGMENT_HEADER.pack(FRAGMENT, 0, 0, 0) + b"x", "a fragment that ends at 1 of a message of 0 bytes"),
        (FRAGMENT_HEADER.pack(FRAGMENT, 0, 5, 4) + b"xy", "a fragment that ends at 6 of a message of 5 bytes"),
        (
            FRAGMENT_HEADER.pack(FRAGMENT, 0, MAX_MESSAGE_BYTES + 1, 0) + b"x",
            "a fragment that ends at 1 of a message of 67108865 bytes",
        ),
        (
            FRAGMENT_HEADER.pack(FRAGMENT, 0, 5, 0xFFFFFFFF) + b"x",
            "a fragment that ends at 4294967296 of a message of 5 bytes",
        ),
    ],
)
def test_a_flaw_is_named(body: bytes, reason: str) -> None:
    assert flaw(body) == reason


def test_a_fragment_may_end_a_message_of_the_largest_size() -> None:
    assert flaw(FRAGMENT_HEADER.pack(FRAGMENT, 0, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES - 1) + b"x") is None


@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_body_or_flawed_and_never_raise(body: bytes) -> None:
    if flaw(body) is None and body[0] == PACKED:
        assert pack(split(body))[HEADER.size :] == body[HEADER.size :]


def test_a_claim_of_four_billion_messages_allocates_nothing_of_that_size() -> None:
    hostile = HEADER.pack(PACKED, 0, 0xFFFFFFFF) + bytes(60_000)
    tracemalloc.start()
    assert flaw(hostile) is not None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * len(hostile)
