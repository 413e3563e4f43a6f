"""Units: the cut is always the same, loses nothing, and fits."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import LogRequestError, MessageTooLargeError
from motet.log.service.append_batches import first_sequence, rows_of, rows_of_batch, size_of, split

payload_lists = st.lists(st.binary(max_size=40), max_size=60)


@given(payload_lists, st.booleans(), st.integers(min_value=90, max_value=400))
def test_units_are_the_rows_in_order_and_as_full_as_can_be(
    payloads: list[bytes], with_keys: bool, append_batch_bytes: int
) -> None:
    keys = [payload[:9] for payload in payloads] if with_keys else None
    units = split(rows_of(payloads, keys), append_batch_bytes)
    assert [payload for unit in units for payload in unit.payloads.to_pylist()] == payloads
    if keys is not None and payloads:
        assert [key for unit in units if unit.keys is not None for key in unit.keys.to_pylist()] == keys
    assert all(0 < size_of(unit) <= append_batch_bytes for unit in units)
    for unit, following in pairwise(units):
        assert size_of(unit) + size_of(following.slice(0, 1)) > append_batch_bytes


def model_size(payloads: list[bytes], keys: list[bytes] | None) -> int:
    return sum(4 + len(payload) for payload in payloads) + sum(2 + len(key) for key in keys or ())


@given(payload_lists)
def test_size_is_lengths_keys_and_payloads(payloads: list[bytes]) -> None:
    assert size_of(rows_of(payloads, None)) == model_size(payloads, None)
    if payloads:
        assert size_of(rows_of(payloads, payloads)) == model_size(payloads, payloads)


def test_lists_and_arrow_arrays_of_any_binary_kind_are_cut_alike() -> None:
    values = [b"abc", b"", b"d" * 30]
    kinds = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]
    arrays = [pa.array(values, kind) for kind in kinds] + [pa.chunked_array([values[:1], values[1:]], pa.binary())]
    expected = [unit.batch() for unit in split(rows_of(values, None), 40)]
    assert all([unit.batch() for unit in split(rows_of(array, None), 40)] == expected for array in arrays)


def test_a_sliced_array_is_cut_by_what_it_shows() -> None:
    array = pa.array([b"hidden" * 100, b"a", b"b", b"hidden" * 100]).slice(1, 2)
    (unit,) = split(rows_of(array, None), 20)
    assert unit.payloads.to_pylist() == [b"a", b"b"]


def test_a_row_that_fits_no_unit_is_named() -> None:
    with pytest.raises(MessageTooLargeError, match="row 2 takes 104 bytes; the maximum of an append batch is 50"):
        split(rows_of([b"a", b"b", b"c" * 100], None), 50)


@pytest.mark.parametrize(
    ("payloads", "keys", "reason"),
    [
        ([b"a"], [b"k", b"l"], "1 payloads but 2 keys"),
        ([1], None, "each payload is bytes"),
        ([None], None, "1 payloads are null"),
        (pa.array([1.5]), None, "the column payload is double"),
    ],
)
def test_nonsense_is_refused(payloads: list[bytes], keys: list[bytes] | None, reason: str) -> None:
    with pytest.raises(LogRequestError, match=reason):
        rows_of(payloads, keys)


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(MessageTooLargeError, match="a key has 70000 bytes"):
        rows_of([b"x"], [b"k" * 70_000])


@given(payload_lists.filter(bool), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_a_batch_that_fits_is_never_refused_for_its_buffers(payloads: list[bytes], kind: pa.DataType) -> None:
    """Empty messages of many rows are the worst case: Arrow has more bytes of offsets than a unit has of lengths."""
    column = pa.array(payloads, kind)
    batch = pa.record_batch({"payload": column, "key": column})
    assert rows_of_batch(batch, model_size(payloads, payloads)).payloads.to_pylist() == payloads


def test_later_batches_have_higher_sequences() -> None:
    assert first_sequence(0) == 0
    assert first_sequence(7) == 7 * 2**20
    assert first_sequence(2**44 - 1) + 2**20 - 1 == 2**64 - 1
    for batch_id in (-1, 2**44):
        with pytest.raises(LogRequestError, match="is not in 0 to"):
            first_sequence(batch_id)
