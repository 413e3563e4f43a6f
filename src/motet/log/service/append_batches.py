"""Append batches: rows that one ordered frame carries, and the deterministic split of many rows into such batches.

Each append batch has a sequence, and the group drops one whose (producer, sequence) it has seen. So a retry must split
the rows into the same append batches: the split depends on the rows and on `append_batch_bytes` and on nothing else.
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
APPEND_BATCHES_PER_ID = 1 << 20
MOST_BATCH_IDS = 1 << 44  # so that every sequence fits 64 bits
LENGTH_BYTES = 4  # per message, beside its payload
KEY_LENGTH_BYTES = 2  # per message of an append batch with keys
MOST_KEY_BYTES = (1 << 16) - 1
BUFFERS_PER_BYTE = 4  # Arrow's offsets have up to 8 bytes where an append batch has 2 to 4
PADDING_BYTES = 512  # Arrow pads each buffer to 64 bytes, and two columns have six buffers

Column: TypeAlias = Sequence[bytes] | pa.Array


@dataclass(frozen=True, slots=True)
class AppendRows:
    """Checked rows of one append; `keys` is None when no row has one."""

    payloads: pa.Array
    keys: pa.Array | None

    def __len__(self) -> int:
        return len(self.payloads)

    def batch(self) -> pa.RecordBatch:
        keys = pa.nulls(len(self), pa.binary()) if self.keys is None else self.keys
        return pa.record_batch([self.payloads, keys], schema=APPEND_SCHEMA)

    def slice(self, offset: int, length: int) -> AppendRows:
        keys = None if self.keys is None else self.keys.slice(offset, length)
        return AppendRows(self.payloads.slice(offset, length), keys)

    def sizes(self) -> np.ndarray:
        """Bytes of each row in an append batch."""
        sizes = _lengths(self.payloads) + LENGTH_BYTES
        return sizes if self.keys is None else sizes + _lengths(self.keys) + KEY_LENGTH_BYTES


def rows_of(payloads: Column, keys: Column | None) -> AppendRows:
    """Rows as a caller has them: lists or Arrow arrays. A row without key among rows with keys gets the empty key."""
    payload = _binary("payload", payloads)
    if payload.null_count:
        raise LogRequestError(f"{payload.null_count} payloads are null; a message may be empty but not missing")
    key = None if keys is None else _binary("key", keys)
    if key is not None and len(key) != len(payload):
        raise LogRequestError(f"{len(payload)} payloads but {len(key)} keys; give one key per payload, or none at all")
    if key is None or key.null_count == len(key):
        return AppendRows(payload, None)
    if (longest := int(_lengths(key).max())) > MOST_KEY_BYTES:
        raise MessageTooLargeError(f"a key has {longest} bytes; at most {MOST_KEY_BYTES} are allowed")
    return AppendRows(payload, key.fill_null(b"") if key.null_count else key)


def check_schema(schema: pa.Schema) -> None:
    """Refuse columns that cannot be appended, before any row of them is read."""
    names = schema.names
    if "payload" not in names or set(names) - {"payload", "key"} or len(set(names)) < len(names):
        raise LogRequestError(f"rows to append have a column payload and may have a column key, not {str(names)[:200]}")
    for field in schema:
        if not _is_binary(field.type):
            raise _wrong_type(field.name, field.type)


def rows_of_batch(batch: pa.RecordBatch, most_bytes: int) -> AppendRows:
    """Rows as they arrive over the wire. Only sizes are looked at until the batch is known to be small and valid."""
    check_schema(batch.schema)
    buffers = (batch.get_total_buffer_size() - PADDING_BYTES) // BUFFERS_PER_BYTE
    if (size := max(batch.num_rows * LENGTH_BYTES, buffers)) > most_bytes:
        raise MessageTooLargeError(
            f"this append batch takes at least {size} bytes; the maximum is {most_bytes}: split it into several"
        )
    return rows_of(batch.column("payload"), batch.column("key") if "key" in batch.schema.names else None)


def size_of(rows: AppendRows) -> int:
    """Bytes of the rows as one append batch."""
    return int(rows.sizes().sum())


def split(rows: AppendRows, append_batch_bytes: int) -> list[AppendRows]:
    """Append batches of at most `append_batch_bytes`, each as large as possible; a larger row raises an error."""
    ends = np.cumsum(rows.sizes())
    batches: list[AppendRows] = []
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + append_batch_bytes, side="right"))
        if end == start:
            raise MessageTooLargeError(
                f"row {start} takes {int(ends[start]) - before} bytes; the maximum of an append batch is "
                f"{append_batch_bytes}"
            )
        batches.append(rows.slice(start, end - start))
        start = end
    return batches


def first_sequence(batch_id: int) -> int:
    """The sequence of the first append batch under `batch_id`; higher ids have higher sequences whatever their size."""
    if not 0 <= batch_id < MOST_BATCH_IDS:
        raise LogRequestError(f"batch {batch_id} is not in 0 to 2**44 - 1")
    return batch_id * APPEND_BATCHES_PER_ID


def _binary(name: str, values: Column) -> pa.Array:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        try:
            return pa.array(values, pa.binary())
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise LogRequestError(f"each {name} is bytes: {error}") from error
    if not _is_binary(values.type):
        raise _wrong_type(name, values.type)
    _validate(name, values)
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _validate(name: str, values: pa.Array | pa.ChunkedArray) -> None:
    """Validate all offsets: Arrow trusts them, and one beyond the data reads foreign memory or crashes."""
    try:
        values.validate(full=True)
    except pa.ArrowException as error:
        raise LogRequestError(f"the column {name} is no valid Arrow data: {in_one_line(error)}") from error


def in_one_line(error: BaseException) -> str:
    """Arrow's message about unreadable data, without its source locations."""
    return str(error).partition("\n")[0][:200]


def _wrong_type(name: str, kind: pa.DataType) -> LogRequestError:
    return LogRequestError(f"the column {name[:40]} is {str(kind)[:100]}; it is binary or string")


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
