"""Requests: whatever arrives is a request or a LogRequestError, and what is sent is what is read."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from motet.errors import LogRequestError
from motet.log.service.requests import (
    AppendRequest,
    OffsetsRequest,
    ReadRequest,
    encode,
    parse_append,
    parse_offsets,
    parse_read,
)

names = st.sampled_from(
    [
        *("first", "last", "follow_from", "batch_rows", "unstable", "wait_s", "heartbeat_s", "compression"),
        *("until", "producer", "sequence", "self", ""),
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
documents = st.dictionaries(names, values, max_size=4).map(lambda document: json.dumps(document).encode())
positions = st.integers(min_value=1, max_value=2**63 - 1)
seconds = st.floats(min_value=0, max_value=60)


@given(documents | st.binary(max_size=60))
def test_nonsense_is_refused_and_never_anything_worse(raw: bytes) -> None:
    for parse in (parse_read, parse_offsets, parse_append):
        with suppress(LogRequestError):
            parse(raw)


@given(positions, positions, st.integers(min_value=1, max_value=200_000), seconds, seconds, st.booleans())
def test_a_range_is_read_as_it_was_sent(
    first: int, last: int, batch_rows: int, wait_s: float, heartbeat_s: float, unstable: bool
) -> None:
    request = ReadRequest(first, last, None, batch_rows, unstable, wait_s, heartbeat_s)
    assert parse_read(encode(request)) == request


@given(positions, st.sampled_from([None, "lz4", "zstd"]))
def test_a_follow_is_read_as_it_was_sent(first: int, compression: str | None) -> None:
    request = ReadRequest(follow_from=first, compression=compression)
    assert parse_read(encode(request)) == request


@given(positions, seconds, st.integers(min_value=1, max_value=2**64 - 1), st.integers(min_value=0, max_value=2**64 - 1))
def test_offsets_and_appends_are_read_as_they_were_sent(
    until: int, wait_s: float, producer: int, sequence: int
) -> None:
    assert parse_offsets(encode(OffsetsRequest(until, wait_s))) == OffsetsRequest(until, wait_s)
    assert parse_append(encode(AppendRequest(producer, sequence))) == AppendRequest(producer, sequence)
