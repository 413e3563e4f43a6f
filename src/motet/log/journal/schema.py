"""The log as a table: one row per message. Everything that reads the log, here or in Spark, has these columns."""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")

LOG_SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),  # counted from 1, the same at all members
        pa.field("epoch", pa.int64(), nullable=False),  # number of the primary view that it was delivered in
        pa.field("view", pa.string(), nullable=False),  # number@creator, the creator in 16 hexadecimal digits
        pa.field("sender", pa.string(), nullable=False),  # name#incarnation, in 16 hexadecimal digits
        pa.field("seqno", pa.int64(), nullable=False),  # of the frame, in its sender's ordered stream of this view
        pa.field("sent_at", TIMESTAMP, nullable=False),  # wall clock of the sender
        pa.field("delivered_at", TIMESTAMP, nullable=False),  # wall clock of the member whose journal this is
        pa.field("key", pa.binary()),  # null unless the message was sent with a key
        pa.field(
            "payload", pa.binary()
        ),  # null for the end of a message that never began, which no sender of ours makes
    ]
)
