"""The bytes of the messages: back and forth, and whatever else may come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.effects import Channel
from motet.protocol.core.limits import MOST_COUNT
from motet.protocol.core.view import ViewId
from motet.protocol.wire.snapshot import (
    Abandon,
    ChannelState,
    HeldBackFrame,
    InFlight,
    Marker,
    Message,
    Report,
    SnapshotId,
    SnapshotRefusal,
    StreamKind,
    StreamWindow,
    Waiting,
    decode,
    encode,
)

U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)
COUNT = st.integers(0, MOST_COUNT)
PORT = st.integers(0, 255)
PAYLOAD = st.binary(max_size=40)
CHANNEL = st.sampled_from(Channel)
ID = st.builds(SnapshotId, U64, COUNT)
WINDOW = st.builds(StreamWindow, st.sampled_from(StreamKind), U64, COUNT, COUNT, COUNT)
HELD = st.builds(HeldBackFrame, U64, COUNT, COUNT, U32, st.booleans(), U32)
IN_FLIGHT = st.builds(InFlight, PORT, PAYLOAD)
WAITING = st.builds(Waiting, CHANNEL, U64, PORT, PAYLOAD)


def some(item: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(item, max_size=4).map(tuple)


STATE = st.builds(ChannelState, CHANNEL, U64, some(IN_FLIGHT))
MESSAGE = st.one_of(
    st.builds(Marker, ID, st.builds(ViewId, COUNT, U64), COUNT),
    st.builds(SnapshotRefusal, ID, st.text(max_size=300), st.booleans()),
    st.builds(Abandon, ID),
    st.builds(Report, ID, COUNT, PAYLOAD, COUNT, COUNT, some(WINDOW), some(HELD), some(WAITING), some(STATE)),
)


@given(MESSAGE)
def test_there_and_back(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_reason(data: bytes) -> None:
    message = decode(data)
    assert isinstance(message, str) or encode(message) == data or isinstance(message, SnapshotRefusal)


@given(MESSAGE, st.data())
def test_a_message_that_was_cut_or_changed(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert isinstance(decode(whole[:cut]), str)
    assert isinstance(decode(whole + b"\x00"), str)
    at = data.draw(st.integers(0, len(whole) - 1))
    decode(whole[:at] + data.draw(st.binary(min_size=1, max_size=1)) + whole[at + 1 :])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x05",
        encode(Marker(SnapshotId(1, 1), ViewId(1, 1), 0))[:-1],
        b"\x02" + b"\x00" * 24 + b"\xff\xff\xff\xff",  # a state of four gigabytes
        b"\x02" + b"\x00" * 44 + b"\xff\xff\xff\xff",  # four billion windows
    ],
)
def test_lies_about_lengths_are_refused_before_anything_is_made(data: bytes) -> None:
    assert isinstance(decode(data), str)


def test_names() -> None:
    assert str(SnapshotId(0xAB, 3)) == "00000000000000ab/3"
