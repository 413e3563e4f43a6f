"""Datagrams cut into segments: whatever is lost, what is put together again is what was cut, or nothing is."""

from __future__ import annotations

from random import Random

import pytest

from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MIN_PACKET_BYTES
from motet.protocol.wire.segments import HEADER, MAGIC, MOST_BYTES, MOST_DATAGRAMS, MOST_SEGMENTS, Assembler, Segmenter

MODES = [(8, False), (5, True), (1, False), (2, True)]
PACKET = 1_400


def put_together(assembler: Assembler, segments: list[bytes]) -> list[bytes]:
    made = [datagram for segment in segments if (datagram := assembler.take(segment)) is not None]
    assembler._check()
    return made


@pytest.mark.parametrize(("column", "has_rows"), MODES)
@pytest.mark.parametrize("size", [1, 1_382, 1_383, 9_999, 32_000, MAX_DATAGRAM_BYTES])
def test_what_was_cut_is_put_together_again(size: int, column: int, has_rows: bool) -> None:
    data = Random(size).randbytes(size)
    segments = Segmenter(1).cut(data, PACKET, column, has_rows=has_rows)

    assert {len(segment) for segment in segments} == {len(segments[0])}
    assert len(segments[0]) <= PACKET
    assert put_together(Assembler(), segments) == [data]
    Random(1).shuffle(segments)
    assert put_together(Assembler(), segments + segments) == [data]


def test_the_smallest_packets_carry_the_largest_datagram() -> None:
    data = bytes(MAX_DATAGRAM_BYTES)
    segments = Segmenter(1).cut(data, MIN_PACKET_BYTES, 5, has_rows=True)

    assert put_together(Assembler(), segments) == [data]
    assert sum(not segment[HEADER.size - 2] & 0x80 for segment in segments) <= MOST_SEGMENTS


@pytest.mark.parametrize(("column", "has_rows"), MODES)
def test_any_single_segment_may_be_lost(column: int, has_rows: bool) -> None:
    data = Random(3).randbytes(32_000)
    segments = Segmenter(1).cut(data, PACKET, column, has_rows=has_rows)

    for lost in range(len(segments)):
        assert put_together(Assembler(), segments[:lost] + segments[lost + 1 :]) == [data]


def test_columns_and_rows_together_recover_any_two_segments_and_any_row() -> None:
    data = Random(4).randbytes(32_000)
    segments = Segmenter(1).cut(data, PACKET, 5, has_rows=True)

    for first in range(24):
        for second in range(first):
            kept = [segment for index, segment in enumerate(segments) if index not in (first, second)]
            assert put_together(Assembler(), kept) == [data]
    assert put_together(Assembler(), segments[5:]) == [data]


@pytest.mark.parametrize("seed", range(50))
def test_under_any_loss_it_is_the_datagram_or_nothing(seed: int) -> None:
    rng = Random(seed)
    segmenters, assembler = [Segmenter(1), Segmenter(2)], Assembler()
    loss, sent, arriving = rng.choice([0.05, 0.2, 0.5]), [], []
    for _ in range(40):
        data = rng.randbytes(rng.randrange(1, 40_000))
        column, has_rows = rng.choice(MODES)
        sent.append(data)
        arriving += rng.choice(segmenters).cut(data, PACKET, column, has_rows=has_rows) * rng.choice([1, 2])
    arriving = [segment for segment in arriving if rng.random() >= loss]
    if rng.random() < 0.5:
        rng.shuffle(arriving)

    made = put_together(assembler, arriving)

    assert len(set(made)) == len(made)
    assert set(made) <= set(sent)


def test_incomplete_datagrams_make_room_for_later_ones() -> None:
    segmenter, assembler = Segmenter(1), Assembler()
    data = Random(5).randbytes(60_000)
    halves = [segmenter.cut(data, PACKET, 8, has_rows=False)[:30] for _ in range(3 * MOST_BYTES // 60_000)]

    assert not [made for half in halves for made in put_together(assembler, half)]
    assert assembler.forgotten > 0
    assert put_together(assembler, segmenter.cut(data, PACKET, 8, has_rows=False)) == [data]


def test_many_tiny_datagrams_are_forgotten_too() -> None:
    segmenter, assembler = Segmenter(1), Assembler()
    for _ in range(3 * MOST_DATAGRAMS):
        put_together(assembler, segmenter.cut(bytes(3_000), PACKET, 8, has_rows=False)[:1])

    assert assembler.forgotten >= 2 * MOST_DATAGRAMS


@pytest.mark.parametrize("seed", range(20))
def test_garbage_and_altered_segments_raise_nothing_and_fill_no_memory(seed: int) -> None:
    rng, segmenter, assembler = Random(seed), Segmenter(1), Assembler()
    for _ in range(500):
        segment = bytearray(rng.choice(segmenter.cut(rng.randbytes(9_000), PACKET, 5, has_rows=True)))
        for _ in range(rng.randrange(1, 4)):
            segment[rng.randrange(len(MAGIC), HEADER.size)] = rng.randrange(256)
        assembler.take(bytes(segment[: rng.randrange(len(segment) + 1)]) if rng.random() < 0.3 else bytes(segment))
        assembler.take(MAGIC + rng.randbytes(rng.randrange(40)))
        assembler._check()
