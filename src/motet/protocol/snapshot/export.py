"""A snapshot as an Arrow table and as files that Spark can read: one row per member and per message in flight.

This is the only module of the package that imports pyarrow; the protocol machine never imports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from motet.protocol.core.trace import trace_name, trace_view
from motet.protocol.snapshot.result import FlyingMessage, SnapshotResult

_WINDOW = pa.struct(
    [
        ("stream", pa.string()),
        ("peer", pa.string()),
        ("low", pa.int64()),
        ("delivered", pa.int64()),
        ("high", pa.int64()),
    ]
)
_HELD_BACK = pa.struct(
    [
        ("sender", pa.string()),
        ("id", pa.int64()),
        ("number", pa.int64()),
        ("proposer", pa.int64()),
        ("is_decided", pa.bool_()),
        ("size", pa.int64()),
    ]
)
_RETRANSMITTED = pa.struct([("frame", pa.string()), ("id", pa.int64()), ("to", pa.list_(pa.string()))])
SNAPSHOT_SCHEMA = pa.schema(
    [
        ("snapshot", pa.string()),
        ("view", pa.string()),
        ("kind", pa.string()),  # "member", "in_flight" or "waiting".
        ("member", pa.string()),  # The member whose report has the row.
        ("sender", pa.string()),  # The sender of a message.
        ("receiver", pa.string()),  # The receiver of a message; null for a waiting message to the group.
        ("channel", pa.string()),
        ("port", pa.int32()),
        ("index", pa.int64()),  # The index of a message in its channel, oldest first.
        ("payload", pa.binary()),  # The payload of a message, or the application's state of a member.
        ("recorded_at", pa.timestamp("us", tz="UTC")),
        ("position", pa.int64()),
        ("stable", pa.int64()),
        ("windows", pa.list_(_WINDOW)),
        ("held_back", pa.list_(_HELD_BACK)),
        (
            "retransmitted",
            pa.list_(_RETRANSMITTED),
        ),  # With the continuous strategy: frames that are being resent, and to whom.
    ]
)


def to_arrow(result: SnapshotResult) -> pa.Table:
    rows = [*_member_rows(result), *(_message_row(result, one) for one in result.in_flight())]
    return pa.Table.from_pylist(rows, schema=SNAPSHOT_SCHEMA)


def write_parquet(result: SnapshotResult, path: Path | str) -> None:
    pq.write_table(to_arrow(result), path)


def write_files(result: SnapshotResult, directory: Path | str) -> tuple[Path, Path]:
    """Write `snapshot-<initiator>-<number>.json` and `.parquet` into this directory."""
    stem = Path(directory) / f"snapshot-{result.id.initiator:016x}-{result.id.number}"
    as_json, as_parquet = stem.with_suffix(".json"), stem.with_suffix(".parquet")
    as_json.parent.mkdir(parents=True, exist_ok=True)
    as_json.write_text(result.to_json(indent=2) + "\n", encoding="utf-8")
    write_parquet(result, as_parquet)
    return as_json, as_parquet


def _head(result: SnapshotResult) -> dict[str, Any]:
    return {"snapshot": str(result.id), "view": trace_view(result.view.id)}


def _member_rows(result: SnapshotResult) -> Iterator[dict[str, Any]]:
    for member, report in result.reports.items():
        yield _head(result) | {
            "kind": "member",
            "member": trace_name(member),
            "payload": report.state,
            "recorded_at": report.recorded_at // 1_000,
            "position": report.position,
            "stable": report.stable,
            "windows": result.windows(report),
            "held_back": result.held_back(report),
            "retransmitted": result.retransmitted(report),
        }


def _message_row(result: SnapshotResult, one: FlyingMessage) -> dict[str, Any]:
    receiver = trace_name(one.receiver) if one.receiver is not None else None
    return _head(result) | {
        "kind": "waiting" if one.is_waiting else "in_flight",
        "member": trace_name(one.sender) if one.is_waiting else receiver,
        "sender": trace_name(one.sender),
        "receiver": receiver,
        "channel": one.channel.value,
        "port": one.port,
        "index": one.index,
        "payload": one.payload,
    }
