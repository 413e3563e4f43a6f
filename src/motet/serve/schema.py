"""Stand-in until the journal's is there."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")
LOG_SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("view", pa.string(), nullable=False),
        pa.field("sender", pa.string(), nullable=False),
        pa.field("seqno", pa.int64(), nullable=False),
        pa.field("sent_at", _TIME, nullable=False),
        pa.field("delivered_at", _TIME, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Bounds:
    first: int
    last: int
    stable: int
    epoch: int
