"""Trace events: every effect that an onlooker cares for has its record, and all records have the same columns."""

from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pytest

from motet.errors import LeftGroupError, SyncError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import (
    Admitted,
    BehindPurgePoint,
    Channel,
    Effect,
    SendFailed,
    SyncCompleted,
    SyncFailed,
)
from motet.protocol.core.identity import NOBODY, Address, Endpoint
from motet.protocol.core.trace import TRACE_COLUMNS, TraceEvent, TraceKind, trace_name, trace_view
from motet.protocol.core.view import View, ViewId
from motet.protocol.member import Announcement, Datagram, Delivered, Member, MemberConfig
from motet.protocol.member.trace import COUNTED, Tracer, events_of
from motet.protocol.membership import (
    BecameBusy,
    BecameResponsive,
    Consult,
    DigestsOverlapped,
    DnsName,
    FlushTimedOut,
    IpMulticast,
    Left,
    ProvideState,
    ReportedEntry,
    StateFailed,
    StateReceived,
    Suspected,
    Trusted,
    ViewInstalled,
)
from motet.protocol.ordering import AppendRepeated, RolledBack, StableAdvanced
from motet.protocol.snapshot import RecordState, SnapshotFailed, SnapshotId, SnapshotTaken
from motet.protocol.window.digest import DigestEntry
from motet.protocol.wire.codec import encode, group_id, kind_name
from motet.protocol.wire.frames import MulticastAck

A, B, C = (Address(name, "10.0.0.1", 7800 + place, place + 1) for place, name in enumerate("abc"))
VIEW = View(ViewId(7, 1), (A, B), is_primary=True)
OTHER = View(ViewId(6, 3), (C,), is_primary=False)
ACK = encode(group_id("g"), 1, NOBODY, MulticastAck(5))
NAME_A, NAME_B = "a#0000000000000001", "b#0000000000000002"


def event(kind: TraceKind, **columns: Any) -> TraceEvent:
    return TraceEvent(99, NAME_A, kind, **columns)


TABLE: list[tuple[Effect, list[TraceEvent]]] = [
    (
        Datagram((B, Endpoint("h", 1)), ACK),
        [
            event(TraceKind.DATAGRAM_SENT, peer=NAME_B, size=len(ACK), detail="MulticastAck"),
            event(TraceKind.DATAGRAM_SENT, peer="h:1", size=len(ACK), detail="MulticastAck"),
        ],
    ),
    (
        Announcement(IpMulticast("239.1.2.3", 4), ACK),
        [event(TraceKind.DATAGRAM_SENT, peer="239.1.2.3:4", size=len(ACK), detail="MulticastAck")],
    ),
    (
        Delivered(Channel.TOTAL, B, (b"one", b"three"), 41),
        [event(TraceKind.DELIVERED, peer=NAME_B, channel="total", position=41, count=2, size=8)],
    ),
    (
        Delivered(Channel.UNICAST, B, (b"",)),
        [event(TraceKind.DELIVERED, peer=NAME_B, channel="unicast", count=1, size=0)],
    ),
    (Delivered(Channel.TOTAL, B, (), 41), []),
    (Admitted(Channel.UNICAST, B, 12), [event(TraceKind.ADMITTED, peer=NAME_B, channel="unicast", count=12)]),
    (Admitted(Channel.MULTICAST, None, 3), [event(TraceKind.ADMITTED, channel="multicast", count=3)]),
    (
        SendFailed(Channel.TOTAL, None, 4, 9, LeftGroupError("gone")),
        [event(TraceKind.SEND_FAILED, channel="total", position=4, last=9, detail="LeftGroupError: gone")],
    ),
    (
        SyncCompleted(B, 102, 40),
        [event(TraceKind.SYNC_COMPLETED, peer=NAME_B, channel="unicast", position=40, detail="connection 102")],
    ),
    (
        SyncFailed(B, SyncError("silent")),
        [event(TraceKind.SYNC_FAILED, peer=NAME_B, channel="unicast", detail="SyncError: silent")],
    ),
    (
        DigestsOverlapped(A, ReportedEntry(VIEW, DigestEntry(7, 20, 20)), ReportedEntry(OTHER, DigestEntry(2, 10, 10))),
        [
            event(
                TraceKind.DIGESTS_OVERLAPPED,
                peer=NAME_A,
                last=20,
                detail="7 20 (20) in 7@0000000000000001, 2 10 (10) in 6@0000000000000003",
            )
        ],
    ),
    (BehindPurgePoint(B, 17), [event(TraceKind.BEHIND_PURGE_POINT, peer=NAME_B, last=17)]),
    (
        ViewInstalled(VIEW),
        [
            event(
                TraceKind.VIEW_INSTALLED,
                peer=NAME_A,
                view="7@0000000000000001",
                count=2,
                detail=f"primary: {NAME_A}, {NAME_B}",
            )
        ],
    ),
    (
        ViewInstalled(OTHER, (VIEW, OTHER)),
        [
            event(
                TraceKind.VIEW_INSTALLED,
                peer="c#0000000000000003",
                view="6@0000000000000003",
                count=1,
                detail="not primary: c#0000000000000003",
            ),
            event(
                TraceKind.MERGED, view="6@0000000000000003", count=2, detail="7@0000000000000001, 6@0000000000000003"
            ),
        ],
    ),
    (StableAdvanced(8), [event(TraceKind.STABLE, position=8)]),
    (RolledBack(8, 9), [event(TraceKind.ROLLED_BACK, position=8, last=9)]),
    (Suspected(B), [event(TraceKind.SUSPECTED, peer=NAME_B)]),
    (Trusted(B), [event(TraceKind.TRUSTED, peer=NAME_B)]),
    (BecameBusy(B), [event(TraceKind.BUSY, peer=NAME_B)]),
    (BecameResponsive(B), [event(TraceKind.RESPONSIVE, peer=NAME_B)]),
    (FlushTimedOut(B), [event(TraceKind.FLUSH_TIMED_OUT, peer=NAME_B)]),
    (Left(), [event(TraceKind.LEFT)]),
    (ProvideState(VIEW.id), [event(TraceKind.STATE_ASKED, view="7@0000000000000001")]),
    (
        StateReceived(VIEW.id, b"abc", is_first=True, is_last=True),
        [event(TraceKind.STATE_RECEIVED, view="7@0000000000000001", size=3, detail="first last")],
    ),
    (
        StateReceived(VIEW.id, b"abc", is_first=False, is_last=False),
        [event(TraceKind.STATE_RECEIVED, view="7@0000000000000001", size=3)],
    ),
    (RecordState(SnapshotId(1, 2)), [event(TraceKind.SNAPSHOT, detail=f"{SnapshotId(1, 2)} is recorded")]),
    (
        SnapshotTaken(SnapshotId(1, 2), VIEW, {}),
        [event(TraceKind.SNAPSHOT, view="7@0000000000000001", count=0, detail=f"{SnapshotId(1, 2)} is taken")],
    ),
    (
        SnapshotFailed(SnapshotId(1, 2), "no"),
        [event(TraceKind.SNAPSHOT, detail=f"{SnapshotId(1, 2)} has failed: no")],
    ),
    (AppendRepeated(255, 4), [event(TraceKind.APPEND_REPEATED, last=4, detail="producer 00000000000000ff")]),
    (StateFailed(VIEW.id, "no"), [event(TraceKind.STATE_FAILED, view="7@0000000000000001", detail="no")]),
    (Consult(DnsName("n", 1)), []),
]


@pytest.mark.parametrize(("effect", "events"), TABLE, ids=lambda part: type(part).__name__)
def test_an_effect_and_its_events(effect: Effect, events: list[TraceEvent]) -> None:
    assert events_of(effect, A, 99) == events


def test_every_kind_comes_from_somewhere() -> None:
    of_effects = {made.kind for _, events in TABLE for made in events}
    of_tracer = {TraceKind.STARTED, TraceKind.FAILED, TraceKind.FAULT, TraceKind.DATAGRAM_RECEIVED}
    of_writer = {TraceKind.TRACE_LOST}
    assert of_effects | of_tracer | of_writer | set(COUNTED.values()) == set(TraceKind)


def test_names_are_those_of_the_log() -> None:
    address = Address("x", "h", 1, 0xFEDC_BA98_7654_3210)
    assert trace_name(address) == "x#fedcba9876543210"
    assert trace_view(ViewId(3, 0xFEDC_BA98_7654_3210)) == "3@fedcba9876543210"


def test_a_record_leaves_out_what_is_empty_and_keeps_the_order() -> None:
    assert list(TraceEvent(1, "a", TraceKind.STABLE, position=0).as_dict().items()) == [
        *(("at_ns", 1), ("member", "a"), ("kind", "stable"), ("position", 0))
    ]
    assert tuple(field.name for field in fields(TraceEvent)) == TRACE_COLUMNS


def test_a_datagram_is_named_by_its_kind() -> None:
    assert kind_name(ACK) == "MulticastAck"
    assert kind_name(b"mT\x01\xff") == kind_name(b"") == kind_name(b"mT") == "unknown"


def test_a_tracer_tells_what_only_counters_know() -> None:
    member, events = Member(A, "g", MemberConfig(), Random(1)), list[TraceEvent]()
    tracer = Tracer(member, events.append)
    tracer.performed([], 1)
    assert events == []
    tracer.performed(member.receive([b"nonsense", b"more of it"], 2), 2)
    member.counters[Count.FRAME_RESENT] += 3
    tracer.performed([], 3)
    tracer.performed([], 4)
    assert events == [
        TraceEvent(2, NAME_A, TraceKind.DATAGRAM_DROPPED, count=2, detail="datagram_rejected"),
        TraceEvent(3, NAME_A, TraceKind.FRAME_RESENT, count=3, detail="frame_resent"),
    ]


def test_a_tracer_tells_what_is_done_to_a_member() -> None:
    member, events = Member(A, "g", MemberConfig(), Random(1)), list[TraceEvent]()
    tracer = Tracer(member, events.append)
    tracer.started(1)
    tracer.received(ACK, 2, B)
    tracer.received(b"", 3)
    tracer.dropped("seal_broken", 4, Endpoint("h", 1), 70)
    tracer.fault("drop=0.2", 5)
    tracer.failed("disk full", 7)
    assert [(e.at_ns, e.kind.value, e.peer, e.size, e.detail) for e in events] == [
        (1, "started", None, None, "10.0.0.1:7800"),
        (2, "datagram_received", NAME_B, len(ACK), "MulticastAck"),
        (3, "datagram_received", None, 0, "unknown"),
        (4, "datagram_dropped", "h:1", 70, "seal_broken"),
        (5, "fault", None, None, "drop=0.2"),
        (7, "failed", None, None, "disk full"),
    ]


def test_the_reference_names_every_kind_and_every_column() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "trace.md").read_text(encoding="utf-8")
    assert [word for word in (*TraceKind, *TRACE_COLUMNS) if f"`{word}`" not in page] == []
