"""What a snapshot looks like outside: JSON, Arrow, Parquet."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pyarrow.parquet as pq

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import NOBODY
from motet.protocol.snapshot import Report, SnapshotId, SnapshotResult, SnapshotTaken, Waiting
from motet.protocol.snapshot.export import SNAPSHOT_SCHEMA, to_arrow, write_files
from motet.protocol.wire.snapshot import ChannelState, HeldBackFrame, InFlight, StreamKind, StreamWindow
from tests.protocol.snapshot.alone import VIEW, A, B, C

ID = SnapshotId(A.incarnation, 7)
WINDOWS = (StreamWindow(StreamKind.MULTICAST, B.incarnation, 1, 2, 3),)
HELD = (HeldBackFrame(C.incarnation, 4, 9, 1, True, 100),)
WAITING = (Waiting(Channel.TOTAL, NOBODY, 0, b"later"), Waiting(Channel.UNICAST, C.incarnation, 1, b"to C"))
FLYING = (
    ChannelState(Channel.MULTICAST, C.incarnation, (InFlight(0, b"one"), InFlight(0, b"two"))),
    ChannelState(Channel.TOTAL, A.incarnation, (InFlight(1, b"\xff\x00"),)),
)
REPORTS = {
    A: Report(ID, 1_700_000_000_000_000_000, b"state of A", 10, 9, WINDOWS, HELD, (), ()),
    B: Report(ID, 1_700_000_000_000_001_000, b"\x00\x01", 11, 9, (), (), WAITING, FLYING),
    C: Report(ID, 1_700_000_000_000_002_000, b"", 10, 9, (), (), (), ()),
}
RESULT = SnapshotResult.of(SnapshotTaken(ID, VIEW, REPORTS))
NAMES = {member: f"{member.name}#{member.incarnation:016x}" for member in VIEW.members}


def test_in_flight() -> None:
    seen = [(m.sender, m.receiver, m.channel, m.is_waiting, m.index, m.payload) for m in RESULT.in_flight()]
    assert seen == [
        (C, B, Channel.MULTICAST, False, 0, b"one"),
        (C, B, Channel.MULTICAST, False, 1, b"two"),
        (A, B, Channel.TOTAL, False, 0, b"\xff\x00"),
        (B, None, Channel.TOTAL, True, 0, b"later"),
        (B, C, Channel.UNICAST, True, 1, b"to C"),
    ]


def test_summary() -> None:
    assert RESULT.summary() == {
        "snapshot": "0000000000000001/7",
        "view": "3@0000000000000001",
        "members": 3,
        "state_bytes": 12,
        "in_flight": 3,
        "in_flight_bytes": 8,
        "waiting": 2,
        "held_back": 1,
        "position": {NAMES[A]: 10, NAMES[B]: 11, NAMES[C]: 10},
    }


def test_json_has_everything() -> None:
    whole = json.loads(RESULT.to_json())
    assert whole["initiator"] == NAMES[A]
    assert whole["view"] == {"id": "3@0000000000000001", "is_primary": True, "members": list(NAMES.values())}
    first, second, _ = whole["members"]
    assert b64decode(first["state"]) == b"state of A"
    assert first["windows"] == [{"stream": "multicast", "peer": NAMES[B], "low": 1, "delivered": 2, "high": 3}]
    assert first["held_back"][0]["sender"] == NAMES[C]
    assert [one["to"] for one in second["waiting"]] == [None, NAMES[C]]
    assert [(one["channel"], one["sender"], len(one["messages"])) for one in second["in_flight"]] == [
        ("multicast", NAMES[C], 2),
        ("total", NAMES[A], 1),
    ]


def test_arrow_has_one_row_per_member_and_per_message() -> None:
    table = to_arrow(RESULT)
    assert table.schema == SNAPSHOT_SCHEMA
    rows = table.to_pylist()
    assert [row["kind"] for row in rows] == ["member"] * 3 + ["in_flight"] * 3 + ["waiting"] * 2
    assert [row["payload"] for row in rows[:3]] == [b"state of A", b"\x00\x01", b""]
    assert rows[0]["held_back"][0]["number"] == 9
    assert (rows[3]["sender"], rows[3]["receiver"], rows[3]["member"]) == (NAMES[C], NAMES[B], NAMES[B])
    assert (rows[6]["sender"], rows[6]["receiver"], rows[6]["member"]) == (NAMES[B], None, NAMES[B])
    assert rows[0]["recorded_at"].year == 2023


def test_files(tmp_path: Path) -> None:
    as_json, as_parquet = write_files(RESULT, tmp_path / "new")
    assert as_json.name == "snapshot-0000000000000001-7.json"
    assert json.loads(as_json.read_text()) == RESULT.as_dict()
    assert pq.read_table(as_parquet).equals(to_arrow(RESULT))
