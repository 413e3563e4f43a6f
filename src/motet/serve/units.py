"""Units of an append: what one ordered frame can carry, and how many rows are cut into such units, always alike.

Each unit has a sequence, and the group drops a unit whose (producer, sequence) it has seen. So a batch that is tried
again must be cut into the very same units: the cut depends on the rows and on `unit_bytes` and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from motet.errors import LogRequestError, MessageTooLargeError

APPEND_SCHEMA = pa.schema([pa.field("payload", pa.binary(), nullable=False), pa.field("key", pa.binary())])
UNITS_PER_BATCH = 1 << 20
MOST_BATCHES = 1 << 44  # so that every sequence fits 64 bits
LENGTH_BYTES = 4  # per message, beside its payload
KEY_LENGTH_BYTES = 2  # per message of a unit with keys
MOST_KEY_BYTES = (1 << 16) - 1

Column: TypeAlias = Sequence[bytes] | pa.Array


@dataclass(frozen=True, slots=True)
class Rows:
    """Checked rows of one append; `keys` is None when no row has one."""

    payloads: pa.Array
    keys: pa.Array | None

    def __len__(self) -> int:
        return len(self.payloads)

    def batch(self) -> pa.RecordBatch:
        keys = pa.nulls(len(self), pa.binary()) if self.keys is None else self.keys
        return pa.record_batch([self.payloads, keys], schema=APPEND_SCHEMA)

    def slice(self, offset: int, length: int) -> Rows:
        keys = None if self.keys is None else self.keys.slice(offset, length)
        return Rows(self.payloads.slice(offset, length), keys)

    def sizes(self) -> np.ndarray:
        """Bytes of each row in a unit."""
        sizes = _lengths(self.payloads) + LENGTH_BYTES
        return sizes if self.keys is None else sizes + _lengths(self.keys) + KEY_LENGTH_BYTES


def rows_of(payloads: Column, keys: Column | None) -> Rows:
    """Rows as a caller has them: lists or Arrow arrays. A row without key among rows with keys gets the empty key."""
    payload = _binary("payload", payloads)
    if payload.null_count:
        raise LogRequestError(f"{payload.null_count} payloads are null; a message may be empty but not missing")
    key = None if keys is None else _binary("key", keys)
    if key is not None and len(key) != len(payload):
        raise LogRequestError(f"{len(payload)} payloads but {len(key)} keys; give one key per payload, or none at all")
    if key is None or key.null_count == len(key):
        return Rows(payload, None)
    if (longest := int(_lengths(key).max())) > MOST_KEY_BYTES:
        raise MessageTooLargeError(f"a key has {longest} bytes; at most {MOST_KEY_BYTES} are allowed")
    return Rows(payload, key.fill_null(b"") if key.null_count else key)


def rows_of_batch(batch: pa.RecordBatch) -> Rows:
    """Rows as they arrive over the wire."""
    names = batch.schema.names
    if "payload" not in names or set(names) - {"payload", "key"} or len(set(names)) < len(names):
        raise LogRequestError(f"rows to append have a column payload and may have a column key, not {names}")
    return rows_of(batch.column("payload"), batch.column("key") if "key" in names else None)


def size_of(rows: Rows) -> int:
    """Bytes of the rows as one unit."""
    return int(rows.sizes().sum())


def cut(rows: Rows, unit_bytes: int) -> list[Rows]:
    """Units of at most `unit_bytes`, each as large as it can be; a row that fits none is refused."""
    ends = np.cumsum(rows.sizes())
    units: list[Rows] = []
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + unit_bytes, side="right"))
        if end == start:
            raise MessageTooLargeError(
                f"row {start} takes {int(ends[start]) - before} bytes; one append unit here holds {unit_bytes}"
            )
        units.append(rows.slice(start, end - start))
        start = end
    return units


def first_sequence(batch_id: int) -> int:
    """The sequence of the first unit of a batch; later batches have higher ones whatever their size."""
    if not 0 <= batch_id < MOST_BATCHES:
        raise LogRequestError(f"batch {batch_id} is not in 0 to 2**44 - 1")
    return batch_id * UNITS_PER_BATCH


def _binary(name: str, values: Column) -> pa.Array:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        try:
            return pa.array(values, pa.binary())
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise LogRequestError(f"each {name} is bytes: {error}") from error
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not (_is_binary(array.type)):
        raise LogRequestError(f"the column {name} is {array.type}; it is binary or string")
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _is_binary(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_null,
    )
    return any(test(kind) for test in tests) or pa.types.is_fixed_size_binary(kind)


def _lengths(array: pa.Array) -> np.ndarray:
    lengths = pc.binary_length(array)
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
