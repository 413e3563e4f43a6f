"""The machine alone: inputs, and exactly what it answers."""

from __future__ import annotations

import pytest

from motet.errors import ConfigError, SnapshotRunningError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.snapshot import RecordState, SnapshotConfig, SnapshotFailed, SnapshotId, Snapshots, SnapshotTaken
from motet.protocol.snapshot.machine import MOST_MISSED, SendMarker, SendSnapshotMessage
from motet.protocol.snapshot.participation import LocalState
from motet.protocol.wire.body import Port
from motet.protocol.wire.snapshot import (
    Abandon,
    ChannelState,
    InFlight,
    Marker,
    Message,
    Report,
    SnapshotRefusal,
    Waiting,
    decode,
    encode,
)
from tests.protocol.snapshot.alone import NEXT_VIEW, VIEW, A, B, C, D, machine

FIRST = SnapshotId(A.incarnation, 1)
MARKER = Marker(FIRST, VIEW.id, 0)
UNICAST, MULTICAST, TOTAL = Channel.UNICAST, Channel.MULTICAST, Channel.TOTAL


def told(effects: list[Effect]) -> list[tuple[Address, Message | str]]:
    return [(effect.to, decode(effect.data)) for effect in effects if isinstance(effect, SendSnapshotMessage)]


def mark(snapshots: Snapshots, *senders: Address, ordered: int = 0, but: Channel | None = None) -> list[Effect]:
    """The markers of these arrive, on every channel that has them."""
    data, effects = encode(Marker(FIRST, VIEW.id, ordered)), []
    for sender in senders:
        for channel in (UNICAST, MULTICAST):
            if channel is not but:
                effects += snapshots.receive(channel, sender, data, 0)
    return effects


def app(snapshots: Snapshots, channel: Channel, sender: Address, *messages: bytes, frame: int = 0) -> list[Effect]:
    return snapshots.record(channel, sender, Port.APP, messages, frame, 0)


def participant() -> Snapshots:
    """B, which has heard of A's snapshot and has given its state."""
    snapshots = machine(B)
    assert snapshots.receive(UNICAST, A, encode(MARKER), 0) == [RecordState(FIRST)]
    snapshots.supply(FIRST, b"b", LocalState(), 0)
    return snapshots


def report_of(effects: list[Effect]) -> Report:
    ((to, report),) = told(effects)
    assert to == A
    assert isinstance(report, Report)
    return report


# Starting


def test_whoever_starts_asks_its_own_application_first() -> None:
    snapshots = machine(A)
    assert snapshots.start(0) == (FIRST, [RecordState(FIRST)])


def test_the_marker_leaves_when_the_state_is_there() -> None:
    snapshots = machine(A)
    snapshots.start(0)
    effects = snapshots.supply(FIRST, b"a", LocalState(ordered=7), 0)
    assert effects == [SendMarker(encode(Marker(FIRST, VIEW.id, 7)), to_itself=False)]


def test_a_state_that_comes_twice_or_for_nothing_is_ignored() -> None:
    snapshots = machine(A)
    snapshots.start(0)
    snapshots.supply(FIRST, b"a", LocalState(), 0)
    assert snapshots.supply(FIRST, b"other", LocalState(), 0) == []
    assert snapshots.supply(SnapshotId(9, 9), b"a", LocalState(), 0) == []


def test_a_member_runs_one_of_its_own_at_a_time() -> None:
    snapshots = machine(A)
    snapshots.start(0)
    with pytest.raises(SnapshotRunningError, match="not finished; wait for its end"):
        snapshots.start(0)


def test_alone_in_the_view() -> None:
    view = View(ViewId(1, A.incarnation), (A,), is_primary=False)
    snapshots = machine(A, view)
    snapshots.start(0)
    snapshots.supply(FIRST, b"a", LocalState(position=4), 0)
    app(snapshots, MULTICAST, A, b"mine")
    assert snapshots.receive(MULTICAST, A, encode(Marker(FIRST, view.id, 0)), 0) == []
    (taken,) = snapshots.settle({}, 0)
    assert isinstance(taken, SnapshotTaken)
    assert taken.view == view
    assert taken.reports[A].state == b"a"
    assert taken.reports[A].position == 4
    assert taken.reports[A].channels == (ChannelState(MULTICAST, 1, (InFlight(0, b"mine"),)),)
    assert not snapshots.is_recording


@pytest.mark.parametrize("reason", ["not in a group", "waits for the application's state"])
def test_whoever_cannot_take_part_fails_at_once(reason: str) -> None:
    snapshots = machine(A)
    if "state" in reason:
        snapshots.begin_view(VIEW, lacks_state=True)
    else:
        snapshots.leave()
    snapshot, (failed,) = snapshots.start(0)
    assert isinstance(failed, SnapshotFailed)
    assert failed.snapshot == snapshot
    assert reason in failed.reason


def test_with_the_state_it_can_take_part() -> None:
    snapshots = machine(A)
    snapshots.begin_view(VIEW, lacks_state=True)
    snapshots.has_state()
    assert snapshots.start(0)[1] == [RecordState(FIRST)]


# Recording


def test_a_channel_is_recorded_from_our_own_recording_until_the_marker_in_it() -> None:
    snapshots = machine(B)
    app(snapshots, UNICAST, C, b"before")
    snapshots.receive(UNICAST, A, encode(MARKER), 0)
    app(snapshots, UNICAST, A, b"after the marker of A")
    app(snapshots, UNICAST, C, b"in flight", b"as well")
    app(snapshots, MULTICAST, A, b"in the other channel of A")
    snapshots.supply(FIRST, b"b", LocalState(), 0)
    mark(snapshots, A, but=UNICAST)
    mark(snapshots, C)
    app(snapshots, UNICAST, C, b"after")
    mark(snapshots, B, but=UNICAST)
    report = report_of(snapshots.settle({}, 0))
    assert report.state == b"b"
    assert report.channels == (
        ChannelState(MULTICAST, A.incarnation, (InFlight(0, b"in the other channel of A"),)),
        ChannelState(UNICAST, C.incarnation, (InFlight(0, b"in flight"), InFlight(0, b"as well"))),
    )


def test_the_port_of_a_message_is_kept() -> None:
    snapshots = participant()
    snapshots.record(UNICAST, C, Port.RPC, (b"call",), 0, 0)
    mark(snapshots, A, but=UNICAST)
    mark(snapshots, B, but=UNICAST)
    mark(snapshots, C)
    (state,) = report_of(snapshots.settle({}, 0)).channels
    assert state.messages == (InFlight(Port.RPC, b"call"),)


def test_ordered_messages_count_up_to_the_frame_that_the_marker_names() -> None:
    snapshots = participant()
    app(snapshots, TOTAL, C, b"four", frame=4)
    mark(snapshots, C, ordered=5)
    mark(snapshots, A, but=UNICAST)
    mark(snapshots, B, but=UNICAST)
    assert snapshots.settle({C: 4}, 0) == []  # frame 5 is held back
    app(snapshots, TOTAL, C, b"five", frame=5)
    app(snapshots, TOTAL, C, b"six", frame=6)  # it was sent after the marker, and came in one batch with the other
    report = report_of(snapshots.settle({C: 6}, 0))
    assert report.channels == (ChannelState(TOTAL, C.incarnation, (InFlight(0, b"four"), InFlight(0, b"five"))),)


def test_without_a_state_there_is_no_report() -> None:
    snapshots = machine(B)
    snapshots.receive(UNICAST, A, encode(MARKER), 0)
    mark(snapshots, A, but=UNICAST)
    mark(snapshots, C)
    mark(snapshots, B, but=UNICAST)
    assert snapshots.settle({}, 0) == []
    effects = snapshots.supply(FIRST, b"b", LocalState(), 0)
    assert isinstance(effects[0], SendMarker)
    assert report_of(effects).state == b"b"


def test_a_member_that_talks_to_itself_waits_for_its_own_marker_there_too() -> None:
    snapshots = machine(B)
    snapshots.receive(UNICAST, A, encode(MARKER), 0)
    (marker,) = snapshots.supply(FIRST, b"b", LocalState(talks_to_itself=True), 0)
    assert isinstance(marker, SendMarker)
    assert marker.to_itself
    mark(snapshots, A, but=UNICAST)
    mark(snapshots, C)
    mark(snapshots, B, but=UNICAST)
    assert snapshots.settle({}, 0) == []
    app(snapshots, UNICAST, B, b"to myself")
    (state,) = report_of(mark(snapshots, B, but=MULTICAST)).channels
    assert state == ChannelState(UNICAST, B.incarnation, (InFlight(0, b"to myself"),))


def test_what_waits_at_its_sender_goes_with_the_state() -> None:
    snapshots = machine(B)
    snapshots.receive(UNICAST, A, encode(MARKER), 0)
    waiting = (Waiting(TOTAL, 0, 0, b"not out"), Waiting(UNICAST, C.incarnation, 1, b"in the driver"))
    snapshots.supply(FIRST, b"b", LocalState(waiting=waiting), 0)
    mark(snapshots, A, but=UNICAST)
    mark(snapshots, C)
    mark(snapshots, B, but=UNICAST)
    assert report_of(snapshots.settle({}, 0)).waiting == waiting


def test_several_are_recorded_side_by_side() -> None:
    snapshots = participant()
    second = SnapshotId(C.incarnation, 5)
    app(snapshots, UNICAST, C, b"first only")
    marker = encode(Marker(second, VIEW.id, 0))
    assert snapshots.receive(MULTICAST, C, marker, 0) == [RecordState(second)]
    app(snapshots, UNICAST, C, b"both")
    assert snapshots.running == (FIRST, second)


# Gathering


def gathering() -> Snapshots:
    """A, whose own report is there."""
    snapshots = machine(A)
    snapshots.start(0)
    snapshots.supply(FIRST, b"a", LocalState(), 0)
    mark(snapshots, B, C)
    mark(snapshots, A, but=UNICAST)
    assert snapshots.settle({}, 0) == []
    return snapshots


def report(state: bytes = b"", *channels: ChannelState, snapshot: SnapshotId = FIRST) -> bytes:
    return encode(Report(snapshot, 0, state, 0, 0, (), (), (), channels))


def test_when_all_reports_are_there_the_snapshot_is_taken() -> None:
    snapshots = gathering()
    assert snapshots.receive(UNICAST, C, report(b"c"), 0) == []
    (taken,) = snapshots.receive(UNICAST, B, report(b"b"), 0)
    assert isinstance(taken, SnapshotTaken)
    assert taken.snapshot == FIRST
    assert {member: one.state for member, one in taken.reports.items()} == {A: b"a", B: b"b", C: b"c"}
    assert list(taken.reports) == [A, B, C]
    assert snapshots.next_deadline() is None


def test_a_report_counts_once_and_only_of_a_member_and_for_this_snapshot() -> None:
    snapshots = gathering()
    snapshots.receive(UNICAST, B, report(b"b"), 0)
    for sender, data in ((B, report(b"again")), (D, report()), (C, report(snapshot=SnapshotId(1, 2)))):
        assert snapshots.receive(UNICAST, sender, data, 0) == []
    assert snapshots._counters[Count.FRAME_MISPLACED] == 3


def test_a_report_that_names_strangers_is_no_report() -> None:
    snapshots = gathering()
    effects = snapshots.receive(UNICAST, B, report(b"b", ChannelState(UNICAST, 99, ())), 0)
    assert isinstance(effects[-1], SnapshotFailed)
    assert "outside the view" in effects[-1].reason
    assert snapshots._counters[Count.SNAPSHOT_REJECTED] == 1


# Failing


def test_a_view_change_ends_it() -> None:
    snapshots = gathering()
    (failed,) = snapshots.begin_view(NEXT_VIEW, lacks_state=False)
    assert failed == SnapshotFailed(
        FIRST, f"view {VIEW.id} ended meanwhile, and {NEXT_VIEW.id} follows without {C}; start again", is_transient=True
    )
    assert not snapshots.is_recording
    assert snapshots.next_deadline() is None
    assert snapshots.start(0)[0] == SnapshotId(A.incarnation, 2)


def test_a_participant_forgets_it_with_the_view() -> None:
    snapshots = participant()
    assert snapshots.begin_view(NEXT_VIEW, lacks_state=False) == []
    assert not snapshots.is_recording
    assert snapshots.supply(FIRST, b"late", LocalState(), 0) == []


def test_it_does_not_last_for_ever() -> None:
    snapshots = gathering()
    assert snapshots.next_deadline() == 10 * SECOND
    assert snapshots.tick(10 * SECOND - 1) == []
    *abandoned, failed = snapshots.tick(10 * SECOND)
    assert told(abandoned) == [(B, Abandon(FIRST)), (C, Abandon(FIRST))]
    assert isinstance(failed, SnapshotFailed)
    assert failed.reason.startswith(f"after 10.000 s there is no report of {B}, {C}")
    assert snapshots.tick(20 * SECOND) == []


def test_a_participant_waits_no_longer_than_twice_that() -> None:
    snapshots = participant()
    assert snapshots.next_deadline() == 20 * SECOND
    assert snapshots.tick(20 * SECOND) == []
    assert not snapshots.is_recording
    assert snapshots._counters[Count.SNAPSHOT_ABANDONED] == 1


def test_a_member_that_leaves_says_so() -> None:
    snapshots = gathering()
    failed = snapshots.leave()[-1]
    assert failed == SnapshotFailed(FIRST, "this member leaves the group")


def test_a_refusal_ends_it_and_the_others_are_told() -> None:
    snapshots = gathering()
    *abandoned, failed = snapshots.receive(UNICAST, B, encode(SnapshotRefusal(FIRST, "no room", is_transient=True)), 0)
    assert told(abandoned) == [(B, Abandon(FIRST)), (C, Abandon(FIRST))]
    assert failed == SnapshotFailed(FIRST, f"{B} cannot take part: no room", is_transient=True)


def test_whoever_lacks_the_state_refuses() -> None:
    snapshots = machine(B)
    snapshots.begin_view(VIEW, lacks_state=True)
    ((to, refusal),) = told(snapshots.receive(MULTICAST, C, encode(MARKER), 0))
    assert to == A
    assert isinstance(refusal, SnapshotRefusal)
    assert "still waits for the application's state" in refusal.reason
    assert refusal.is_transient
    assert mark(snapshots, A, C, but=MULTICAST) == []  # once is enough


def test_an_application_that_has_no_state_to_give() -> None:
    snapshots = machine(B)
    snapshots.receive(UNICAST, A, encode(MARKER), 0)
    refusal = SnapshotRefusal(FIRST, "the disk is full", is_transient=False)
    assert told(snapshots.refuse(FIRST, "the disk is full", 0)) == [(A, refusal)]
    assert snapshots.supply(FIRST, b"after all", LocalState(), 0) == []
    assert snapshots.refuse(FIRST, "again", 0) == []
    ours = machine(A)
    ours.start(0)
    assert ours.refuse(FIRST, "the disk is full", 0)[-1] == SnapshotFailed(FIRST, "the disk is full")


def test_whoever_is_in_another_view_refuses_when_the_initiator_asks() -> None:
    snapshots = machine(B, NEXT_VIEW)
    assert snapshots.receive(MULTICAST, A, encode(MARKER), 0) == []
    ((to, refusal),) = told(snapshots.receive(UNICAST, A, encode(MARKER), 0))
    assert to == A
    assert isinstance(refusal, SnapshotRefusal)
    assert refusal.reason.startswith(f"it is in view {NEXT_VIEW.id}, not in {VIEW.id}")
    assert not snapshots.is_recording


def test_too_much_in_flight_fails_and_says_what_to_do() -> None:
    snapshots = machine(B, config=SnapshotConfig(most_bytes=100))
    snapshots.receive(UNICAST, A, encode(MARKER), 0)
    assert app(snapshots, UNICAST, C, b"x" * 50) == []
    ((to, refusal),) = told(app(snapshots, UNICAST, C, b"x" * 50))
    assert to == A
    assert isinstance(refusal, SnapshotRefusal)
    assert "132 bytes, and most_bytes allows 100; raise it" in refusal.reason
    assert not snapshots.is_recording
    assert mark(snapshots, A, C) == []  # late markers begin nothing anew


def test_too_large_a_state_fails_at_the_initiator_itself() -> None:
    snapshots = machine(A, config=SnapshotConfig(most_bytes=100))
    snapshots.start(0)
    failed = snapshots.supply(FIRST, b"x" * 101, LocalState(), 0)[-1]
    assert isinstance(failed, SnapshotFailed)
    assert "101 bytes" in failed.reason


def test_all_reports_together_have_a_bound() -> None:
    snapshots = machine(A, config=SnapshotConfig(most_gathered_bytes=1_000))
    snapshots.start(0)
    failed = snapshots.receive(UNICAST, B, report(b"x" * 1_000), 0)[-1]
    assert isinstance(failed, SnapshotFailed)
    assert "reports of 1 of 3 members" in failed.reason


def test_no_more_than_most_running() -> None:
    snapshots = machine(B, config=SnapshotConfig(most_running=1))
    snapshots.receive(UNICAST, A, encode(MARKER), 0)
    ((to, refusal),) = told(snapshots.receive(UNICAST, C, encode(Marker(SnapshotId(3, 1), VIEW.id, 0)), 0))
    assert to == C
    assert isinstance(refusal, SnapshotRefusal)
    assert "1 snapshots are running already" in refusal.reason


def test_when_its_initiator_gives_up_a_participant_forgets_it() -> None:
    snapshots = participant()
    assert snapshots.receive(UNICAST, C, encode(Abandon(FIRST)), 0) == []
    assert FIRST in snapshots.running, "it is not for C to say"
    snapshots.receive(UNICAST, A, encode(Abandon(FIRST)), 0)
    assert FIRST not in snapshots.running
    assert mark(snapshots, A, C) == []


def test_a_later_one_of_the_same_initiator_takes_its_place() -> None:
    snapshots = participant()
    second = SnapshotId(A.incarnation, 2)
    assert snapshots.receive(UNICAST, A, encode(Marker(second, VIEW.id, 0)), 0) == [RecordState(second)]
    assert snapshots.running == (second,)
    assert mark(snapshots, A, C) == []


# Markers that come before their view


def test_one_that_came_before_its_view_does_not_come_again_and_the_initiator_hears_of_it() -> None:
    """Whoever sent it: that channel has no end any more (a snapshot waited for its time-out, seed 6)."""
    snapshots = machine(B)
    early = Marker(FIRST, NEXT_VIEW.id, 0)
    ((to, refusal),) = told(snapshots.receive(UNICAST, C, encode(early), 0))
    assert to == A
    assert isinstance(refusal, SnapshotRefusal)
    assert "not in" in refusal.reason
    snapshots.begin_view(NEXT_VIEW, lacks_state=False)
    assert snapshots.receive(UNICAST, A, encode(early), 0) == []  # A knows already


def test_and_an_initiator_that_is_new_hears_of_it_when_its_own_comes() -> None:
    snapshots = machine(B)
    later = View(ViewId(9, A.incarnation), (A, B, C, D), is_primary=True)
    early = Marker(SnapshotId(D.incarnation, 1), later.id, 0)
    assert snapshots.receive(UNICAST, C, encode(early), 0) == []
    snapshots.begin_view(later, lacks_state=False)
    ((to, refusal),) = told(snapshots.receive(UNICAST, D, encode(early), 0))
    assert to == D
    assert isinstance(refusal, SnapshotRefusal)
    assert "when markers arrived" in refusal.reason
    assert not snapshots.is_recording


def test_but_only_in_the_view_that_it_was_of() -> None:
    snapshots = machine(B)
    later = View(ViewId(9, A.incarnation), (A, B, C, D), is_primary=True)
    snapshot = SnapshotId(D.incarnation, 1)
    snapshots.receive(UNICAST, C, encode(Marker(snapshot, NEXT_VIEW.id, 0)), 0)
    snapshots.begin_view(later, lacks_state=False)
    assert snapshots.receive(UNICAST, D, encode(Marker(snapshot, later.id, 0)), 0) == [RecordState(snapshot)]


def test_of_strangers_only_so_many_are_remembered() -> None:
    snapshots = machine(B)
    for number in range(1, 2 * MOST_MISSED):
        snapshots.receive(UNICAST, C, encode(Marker(SnapshotId(D.incarnation, number), NEXT_VIEW.id, 0)), 0)
    assert len(snapshots._missed) == MOST_MISSED


# Nonsense


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x01", b"\x09" * 40, encode(MARKER) + b"x", encode(MARKER)[:-1]])
def test_bytes_that_are_no_message_are_counted(data: bytes) -> None:
    snapshots = machine(B)
    assert snapshots.receive(UNICAST, A, data, 0) == []
    assert snapshots._counters[Count.SNAPSHOT_REJECTED] == 1


def test_markers_that_make_no_sense_begin_nothing() -> None:
    snapshots = machine(B)
    nonsense = [
        (UNICAST, D, MARKER),  # of a stranger
        (UNICAST, A, Marker(SnapshotId(99, 1), VIEW.id, 0)),  # for a stranger
        (UNICAST, A, Marker(SnapshotId(B.incarnation, 1), VIEW.id, 0)),  # for one that we never started
    ]
    for channel, sender, marker in nonsense:
        assert snapshots.receive(channel, sender, encode(marker), 0) == []
    assert not snapshots.is_recording
    assert snapshots._counters[Count.FRAME_MISPLACED] == len(nonsense)


def test_a_second_marker_in_one_channel_changes_nothing() -> None:
    snapshots = participant()
    app(snapshots, MULTICAST, A, b"x")
    assert mark(snapshots, A, but=MULTICAST) == []
    assert snapshots.receive(TOTAL, A, encode(MARKER), 0) == []  # there are no markers in the log
    assert snapshots._counters[Count.FRAME_MISPLACED] == 2


@pytest.mark.parametrize(
    ("field", "value"), [("timeout_ns", 0), ("most_bytes", 0), ("most_gathered_bytes", 0), ("most_running", 0)]
)
def test_settings_that_make_no_sense(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=field):
        SnapshotConfig(**{field: value})
