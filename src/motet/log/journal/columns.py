"""Frames become columns: a few calls for each frame and a few for each batch, none for each row.

The lengths in front of a frame's payloads are the offsets of a column, once they are added up; payloads of several
frames are joined by one copy each. A message with a key is cut in three (length, key, payload) by offsets alone, and
Arrow takes every third frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from motet.log.journal.records import Head
from motet.log.journal.schema import LOG_SCHEMA, TIMESTAMP
from motet.protocol.wire.body import HEADER, LENGTH_BYTES, Port

MOST_BATCH_BYTES = 64 << 20  # of payload; offsets of an Arrow column have 31 bits
_Ints = NDArray[np.int64]
_ENCODED_SCHEMA = pa.schema(
    [
        one.with_type(pa.dictionary(pa.int32(), pa.string())) if one.name in ("view", "sender") else one
        for one in LOG_SCHEMA
    ]
)


@dataclass(slots=True)
class FrameRows:
    """Rows that end in one frame."""

    first: int  # position of the first of them
    head: Head
    port: int
    lengths: NDArray[np.uint32]
    payload: bytes | memoryview
    is_null: bool = False  # the end of a message whose beginning is not in the log

    @property
    def rows(self) -> int:
        return len(self.lengths)

    def cut(self, first: int, last: int) -> FrameRows:
        """Only the rows whose positions are within these."""
        start, stop = max(0, first - self.first), min(self.rows, last + 1 - self.first)
        if start == 0 and stop == self.rows:
            return self
        ends = np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)))
        payload = memoryview(self.payload)[int(ends[start]) : int(ends[stop])]
        return FrameRows(self.first + start, self.head, self.port, self.lengths[start:stop], payload, self.is_null)


def packed_rows(head: Head, body: memoryview) -> FrameRows | None:
    """The rows of a packed body; None if its lengths do not add up."""
    _, port, count = HEADER.unpack_from(body)
    payload_at = HEADER.size + LENGTH_BYTES * count
    if count != head.messages or payload_at > len(body):
        return None
    lengths = np.frombuffer(body, "<u4", count, HEADER.size)
    if int(lengths.sum(dtype=np.uint64)) != len(body) - payload_at:  # as offsets they would point outside of the body
        return None
    return FrameRows(head.position, head, port, lengths, body[payload_at:])


@dataclass(slots=True)
class RowBatch:
    """Pieces that become one record batch."""

    frames: list[FrameRows] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, frame: FrameRows) -> None:
        self.frames.append(frame)
        self.rows += frame.rows
        self.size += len(frame.payload)

    def fits(self, frame: FrameRows, batch_rows: int) -> bool:
        fits = self.rows + frame.rows <= batch_rows and self.size + len(frame.payload) <= MOST_BATCH_BYTES
        return fits or not self.frames

    def build(self, senders: dict[int, bytes], *, is_encoded: bool = False) -> pa.RecordBatch:
        """With `is_encoded` view and sender are dictionaries, for whoever looks at them once per frame."""
        frames = self.frames
        heads = [frame.head for frame in frames]
        counts = np.fromiter((frame.rows for frame in frames), np.int64, len(frames))
        first = frames[0].first

        def repeated(values: list[int], divisor: int = 1) -> _Ints:
            return np.repeat(np.array(values, np.int64) // divisor, counts)

        texts = _encoded_texts if is_encoded else _texts
        key, payload = _key_and_payload(frames, self.rows)
        columns = [
            _integers(np.arange(first, first + self.rows, dtype=np.int64)),
            _integers(repeated([head.view_number for head in heads])),
            texts([f"{head.view_number}@{head.view_creator:016x}".encode() for head in heads], counts),
            texts([senders.get(head.sender) or b"?#%016x" % head.sender for head in heads], counts),
            _integers(repeated([head.seqno for head in heads])),
            _integers(repeated([head.sent_at for head in heads], 1000), TIMESTAMP),
            _integers(repeated([head.at for head in heads], 1000), TIMESTAMP),
            key,
            payload,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_ENCODED_SCHEMA if is_encoded else LOG_SCHEMA)


def _integers(values: _Ints, kind: pa.DataType | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind or pa.int64(), len(values), [None, pa.py_buffer(values)])


def _offsets(lengths: NDArray[np.generic]) -> NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _texts(texts: Sequence[bytes], counts: _Ints) -> pa.Array:
    """Each text so many times."""
    lengths = np.repeat(np.fromiter(map(len, texts), np.int32, len(texts)), counts)
    data = b"".join(text * count for text, count in zip(texts, counts.tolist(), strict=True))
    return _variable(pa.string(), _offsets(lengths), data)


def _encoded_texts(texts: Sequence[bytes], counts: _Ints) -> pa.Array:
    codes: dict[bytes, int] = {}
    indices = np.fromiter((codes.setdefault(text, len(codes)) for text in texts), np.int32, len(texts))
    dictionary = pa.array([text.decode() for text in codes], pa.string())
    repeated = np.repeat(indices, counts)  # as a buffer: from an array Arrow would load pandas
    codes_at = pa.Array.from_buffers(pa.int32(), len(repeated), [None, pa.py_buffer(repeated)])
    return pa.DictionaryArray.from_arrays(codes_at, dictionary)


def _variable(kind: pa.DataType, offsets: NDArray[np.int32], data: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _key_and_payload(frames: Sequence[FrameRows], rows: int) -> tuple[pa.Array, pa.Array]:
    """Neighbours of one kind are joined; mostly a batch has one kind only."""
    runs: list[list[FrameRows]] = []
    for frame in frames:
        if not runs or (frame.port == Port.KEYED) != (runs[-1][-1].port == Port.KEYED):
            runs.append([])
        runs[-1].append(frame)
    columns = [_keyed(run) if run[0].port == Port.KEYED else _plain(run) for run in runs]
    if len(columns) == 1:
        return columns[0]
    keys, payloads = zip(*columns, strict=True)
    return pa.concat_arrays(keys), pa.concat_arrays(payloads)


def _joined(frames: Sequence[FrameRows]) -> tuple[NDArray[np.int32], bytes]:
    lengths = np.concatenate([frame.lengths for frame in frames])
    return _offsets(lengths), b"".join([frame.payload for frame in frames])


def _plain(frames: Sequence[FrameRows]) -> tuple[pa.Array, pa.Array]:
    offsets, data = _joined(frames)
    rows = len(offsets) - 1
    payload = _without_nulls(_variable(pa.binary(), offsets, data), frames)
    return pa.nulls(rows, pa.binary()), payload


def _keyed(frames: Sequence[FrameRows]) -> tuple[pa.Array, pa.Array]:
    """A message that is too short for the key that it announces has none: all of it is payload."""
    offsets, data = _joined(frames)
    starts, ends = offsets[:-1], offsets[1:]
    padded = np.frombuffer(data + b"\0\0", np.uint8)
    key_bytes = padded[starts].astype(np.int32) | padded[starts + 1].astype(np.int32) << 8
    is_sound = (starts + 2 + key_bytes) <= ends
    cuts = np.empty(3 * len(starts) + 1, np.int32)
    cuts[0:-1:3] = starts
    cuts[1::3] = np.where(is_sound, starts + 2, starts)
    cuts[2::3] = np.where(is_sound, starts + 2 + key_bytes, starts)
    cuts[-1] = offsets[-1]
    thirds = _variable(pa.binary(), cuts, data)
    every = np.arange(len(starts), dtype=np.int64) * 3
    keys = thirds.take(pa.array(every + 1, mask=None if is_sound.all() else ~is_sound))
    return keys, _without_nulls(thirds.take(pa.array(every + 2)), frames)


def _without_nulls(payload: pa.Array, frames: Sequence[FrameRows]) -> pa.Array:
    if not any(frame.is_null for frame in frames):
        return payload
    is_null = np.concatenate([np.fromiter(repeat(frame.is_null, frame.rows), bool) for frame in frames])
    return payload.take(pa.array(np.arange(len(payload)), mask=is_null))
