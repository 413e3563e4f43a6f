"""Ranges against sets of seqnos."""

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.window.ranges import Ranges, limited, parts, size

STEPS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=12)  # (distance to the last, length)


def ranges_of(steps: list[tuple[int, int]]) -> Ranges:
    """Ascending, disjoint ranges; a distance of 1 makes two that touch."""
    ranges: list[tuple[int, int]] = []
    end = 0
    for distance, length in steps:
        ranges.append((end + distance, end + distance + length - 1))
        end = ranges[-1][1]
    return tuple(ranges)


def seqnos_of(ranges: Ranges) -> list[int]:
    return [seqno for first, last in ranges for seqno in range(first, last + 1)]


RANGES = STEPS.map(ranges_of)


@given(ranges=RANGES)
def test_size_counts_the_seqnos(ranges: Ranges) -> None:
    assert size(ranges) == len(seqnos_of(ranges))


@given(ranges=RANGES, most=st.integers(-1, 50))
def test_limited_keeps_the_first_ones(ranges: Ranges, most: int) -> None:
    assert seqnos_of(limited(ranges, most)) == seqnos_of(ranges)[: max(most, 0)]


@given(ranges=RANGES, seqnos=st.integers(1, 10), spans=st.integers(1, 5))
def test_parts_lose_nothing_and_repeat_nothing(ranges: Ranges, seqnos: int, spans: int) -> None:
    cut = parts(ranges, seqnos, spans)
    assert [seqno for part in cut for seqno in seqnos_of(part)] == seqnos_of(ranges)


@given(ranges=RANGES, seqnos=st.integers(1, 10), spans=st.integers(1, 5))
def test_parts_keep_both_bounds_and_none_is_empty(ranges: Ranges, seqnos: int, spans: int) -> None:
    for part in parts(ranges, seqnos, spans):
        assert 1 <= size(part) <= seqnos
        assert 1 <= len(part) <= spans
        assert all(first <= last for first, last in part)


@given(ranges=RANGES, seqnos=st.integers(1, 10), spans=st.integers(1, 5))
def test_every_part_but_the_last_reaches_a_bound(ranges: Ranges, seqnos: int, spans: int) -> None:
    for part in parts(ranges, seqnos, spans)[:-1]:
        assert size(part) == seqnos or len(part) == spans


def test_a_huge_range_is_limited_without_being_walked() -> None:
    assert limited(((1, 1 << 62),), 64) == ((1, 64),)


def test_one_long_range_is_cut_into_equal_parts() -> None:
    assert parts(((1, 10),), seqnos=4, spans=4) == [((1, 4),), ((5, 8),), ((9, 10),)]


def test_nothing_is_cut_into_no_parts() -> None:
    assert parts((), seqnos=4, spans=4) == []
