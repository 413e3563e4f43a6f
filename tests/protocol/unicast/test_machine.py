"""The unicast machine alone: one input at a time, compared with the exact list of effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from motet.errors import (
    BacklogFullError,
    ConfigError,
    MessageTooLargeError,
    MisuseError,
    PeerUnreachableError,
    TooManyPeersError,
)
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Admitted, Channel, Effect, Frame, SendFailed, SyncCompleted, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.serial import SERIAL_MODULUS, is_newer
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.unicast import Unicast, UnicastConfig
from motet.protocol.unicast.sender import ConnectionState
from motet.protocol.wire.body import MAX_MESSAGE_BYTES
from motet.protocol.wire.frames import (
    Close,
    MulticastAck,
    Sync,
    SyncAck,
    SyncOk,
    UnicastAck,
    UnicastData,
    UnicastPurged,
    UnicastXmitRequest,
)
from tests.protocol.unicast.alone import (
    REAPING,
    SYNC_ID,
    TASK_NS,
    TIMEOUT_NS,
    counted,
    delivery,
    machine,
    receiver_state,
    receiving,
    sender_state,
    sending,
    ticks,
    to_a,
    to_b,
)
from tests.protocol.unicast.link import NO_REAPING, A, B, C, Link, data, everything, kind, numbered

# Numbering, packing, admission


def test_new_machine_wants_nothing() -> None:
    unicast = machine()
    assert unicast.next_deadline() is None
    assert unicast.tick(SECOND) == []
    assert unicast.accepted(B) == 0


def test_frames_are_numbered_from_one_and_the_first_says_that_it_is_the_first() -> None:
    unicast = machine()
    assert unicast.send(B, [b"x"], 0) == [*to_b(data(101, 1, b"x", first=True)), Admitted(Channel.UNICAST, B, 1)]
    assert unicast.send(B, [b"y"], 0) == [*to_b(data(101, 2, b"y")), Admitted(Channel.UNICAST, B, 2)]


def test_messages_of_one_call_share_a_frame() -> None:
    unicast = machine()
    assert unicast.send(B, [b"x", b"", b"z"], 0) == [
        *to_b(data(101, 1, b"x", b"", b"z", first=True)),
        Admitted(Channel.UNICAST, B, 3),
    ]
    assert unicast.accepted(B) == 3


def test_each_peer_has_a_connection_id_and_numbers_of_its_own() -> None:
    unicast = machine()
    unicast.send(B, [b"x"], 0)
    assert unicast.send(C, [b"x"], 0)[0] == Transmit(C, data(102, 1, b"x", first=True))
    assert unicast.send(B, [b"y"], 0)[0] == Transmit(B, data(101, 2, b"y"))


def test_sending_no_messages_opens_no_connection() -> None:
    unicast = machine()
    assert unicast.send(B, [], 0) == []
    assert unicast.sender(B) is None


def test_messages_beyond_the_window_wait_and_leave_together_when_an_ack_makes_space() -> None:
    unicast = machine(A, UnicastConfig(capacity=2, conn_expiry_ns=0))
    effects = [effect for message in numbered(1, 5) for effect in unicast.send(B, [message], 0)]
    assert effects == [
        *to_b(data(101, 1, first=True)),
        Admitted(Channel.UNICAST, B, 1),
        *to_b(data(101, 2)),
        Admitted(Channel.UNICAST, B, 2),
    ]
    assert unicast.accepted(B) == 5
    assert unicast.receive(B, [UnicastAck(101, 1)], MILLISECOND) == [
        *to_b(data(101, 3, *numbered(3, 5))),
        Admitted(Channel.UNICAST, B, 5),
    ]


def test_admitted_numbers_rise_and_end_with_the_last_message_accepted() -> None:
    link = Link(config=UnicastConfig(capacity=2, body_bytes=64, conn_expiry_ns=0))
    link.send(A, B, *numbered(1, 30), bytes(200), *numbered(31, 40))
    link.run_until_quiet()
    through = [effect.through for effect in link.told[A] if isinstance(effect, Admitted)]
    assert through == sorted(set(through))
    assert (through[0], through[-1]) == (1, 41)


def test_large_message_is_admitted_with_its_last_fragment() -> None:
    unicast = machine(A, UnicastConfig(capacity=2, body_bytes=64, conn_expiry_ns=0))
    effects = unicast.send(B, [bytes(120)], 0)  # fragments of 52, 52 and 16 bytes
    assert [type(effect) for effect in effects] == [Transmit, Transmit]
    effects = unicast.receive(B, [UnicastAck(101, 1)], 1)
    assert [type(effect) for effect in effects] == [Transmit, Admitted]
    assert effects[-1] == Admitted(Channel.UNICAST, B, 1)


# Delivering and acking


def test_batch_is_delivered_as_one_and_has_one_ack() -> None:
    """The example of the note: 20 to 50 in one batch, one ack of 50."""
    unicast = receiving(19)
    batch = [data(101, seqno) for seqno in range(20, 51)]
    assert unicast.receive(A, batch, SECOND) == [delivery(20, 50), *to_a(UnicastAck(101, 50))]
    assert unicast.next_deadline() is None


def test_ack_waits_until_the_least_time_since_the_last_one_has_passed() -> None:
    unicast = receiving(1)
    assert unicast.receive(A, [data(101, 2)], MILLISECOND) == [delivery(2, 2)]
    assert unicast.receive(A, [data(101, 3)], 2 * MILLISECOND) == [delivery(3, 3)]
    assert unicast.next_deadline() == NO_REAPING.ack_min_ns
    assert unicast.tick(NO_REAPING.ack_min_ns - 1) == []
    assert unicast.tick(NO_REAPING.ack_min_ns) == to_a(UnicastAck(101, 3))
    assert unicast.next_deadline() is None


def test_ack_goes_at_once_when_the_last_one_is_long_ago() -> None:
    unicast = receiving(1)
    assert unicast.receive(A, [data(101, 2)], NO_REAPING.ack_min_ns) == [delivery(2, 2), *to_a(UnicastAck(101, 2))]


def test_no_delivery_waits_longer_than_the_greatest_time_for_its_ack() -> None:
    config = UnicastConfig(ack_min_ns=20 * MILLISECOND, ack_max_ns=20 * MILLISECOND, conn_expiry_ns=0)
    unicast = receiving(1, config)
    unicast.receive(A, [data(101, 2)], 1)
    due = unicast.next_deadline()
    assert due is not None
    assert due <= 1 + config.ack_max_ns
    assert unicast.tick(due) == to_a(UnicastAck(101, 2))


def test_a_quarter_of_the_window_is_acked_without_waiting() -> None:
    unicast = receiving(1, UnicastConfig(capacity=8, conn_expiry_ns=0))
    assert unicast.receive(A, [data(101, 2)], 1) == [delivery(2, 2)]
    assert unicast.receive(A, [data(101, 3)], 2) == [delivery(3, 3), *to_a(UnicastAck(101, 3))]
    assert unicast.receive(A, [data(101, 4)], 3) == [delivery(4, 4)]  # counted from the last ack


def test_frame_beyond_a_gap_is_neither_delivered_nor_acked() -> None:
    unicast = receiving(1)
    assert unicast.receive(A, [data(101, 3)], SECOND) == []
    assert unicast.receive(A, [data(101, 2)], SECOND) == [delivery(2, 3), *to_a(UnicastAck(101, 3))]


def test_repeated_frame_is_acked_again_and_not_delivered_again() -> None:
    unicast = receiving(3)
    assert unicast.receive(A, [data(101, 3)], SECOND) == to_a(UnicastAck(101, 3))
    assert counted(unicast, Count.FRAME_DUPLICATE) == 1


def test_frame_outside_the_window_is_dropped_and_asked_for_later() -> None:
    unicast = receiving(1, UnicastConfig(capacity=4, conn_expiry_ns=0))
    assert unicast.receive(A, [data(101, 6)], SECOND) == to_a(UnicastAck(101, 1))
    assert counted(unicast, Count.FRAME_OUTSIDE_WINDOW) == 1
    assert unicast.tick(SECOND + TIMEOUT_NS) == to_a(UnicastXmitRequest(101, ((2, 5),)))


# Acks at the sender


def test_acks_are_cumulative_and_late_or_repeated_ones_change_nothing() -> None:
    unicast = sending(5)
    for acked, low in ((3, 3), (2, 3), (3, 3), (5, 5)):
        assert unicast.receive(B, [UnicastAck(101, acked)], MILLISECOND) == []
        connection = unicast.sender(B)
        assert connection is not None
        assert (connection.window.low, connection.confirmed) == (low, low)
    assert unicast.buffered_frames == 0
    assert unicast.next_deadline() is None


def test_ack_of_what_was_never_sent_is_counted_and_purges_nothing() -> None:
    unicast = sending(5)
    assert unicast.receive(B, [UnicastAck(101, 6)], 1) == []
    assert counted(unicast, Count.ACK_BEYOND_SENT) == 1
    assert unicast.buffered_frames == 5


def test_ack_of_another_connection_is_counted_and_purges_nothing() -> None:
    unicast = sending(5)
    assert unicast.receive(B, [UnicastAck(100, 5)], 1) == []
    assert counted(unicast, Count.ACK_OF_OLD_CONNECTION) == 1
    assert unicast.buffered_frames == 5


@pytest.mark.parametrize("frame", [UnicastAck(101, 1), UnicastXmitRequest(101, ((1, 1),)), SyncAck(101)])
def test_frame_that_only_a_receiver_sends_is_misplaced_when_nothing_was_sent_to_it(frame: Frame) -> None:
    unicast = machine()
    assert unicast.receive(B, [frame], 0) == []
    assert counted(unicast, Count.FRAME_MISPLACED) == 1
    assert unicast.next_deadline() is None


# The retransmission task of the sender


def test_only_the_highest_is_resent_and_only_when_a_whole_run_saw_no_change() -> None:
    unicast = sending(3)
    assert ticks(unicast, 2 * TASK_NS - 1) == []  # the first run reads HA=0 and HS=3
    assert unicast.tick(2 * TASK_NS) == to_b(data(101, 3))  # the second reads the same


def test_message_that_was_alone_from_the_start_is_resent_on_the_first_run() -> None:
    unicast = sending(1)
    assert unicast.tick(TASK_NS - 1) == []
    assert unicast.tick(TASK_NS) == to_b(data(101, 1, first=True))


@pytest.mark.parametrize("moved_by", ["ack", "send"])
def test_nothing_is_resent_on_a_run_that_finds_either_number_changed(moved_by: str) -> None:
    unicast = sending(3)
    unicast.tick(TASK_NS)
    if moved_by == "ack":
        unicast.receive(B, [UnicastAck(101, 2)], TASK_NS + 1)
        highest = 3
    else:
        unicast.send(B, [b"message 4"], TASK_NS + 1)
        highest = 4
    assert unicast.tick(2 * TASK_NS) == []
    (_, effects), *_ = ticks(unicast, SECOND)
    assert effects == to_b(data(101, highest))


def test_resending_slows_down_to_the_interval_and_no_further() -> None:
    unicast = sending(1)
    times = [when for when, _ in ticks(unicast, 5 * SECOND)]
    waits = [(later - earlier) // MILLISECOND for earlier, later in zip([0, *times], times, strict=False)]
    assert waits[:10] == [50, 50, 80, 80, 140, 140, 260, 260, 500, 500]
    assert set(waits[10:]) == {520}


def test_task_rests_when_all_is_acked() -> None:
    unicast = sending(3)
    unicast.receive(B, [UnicastAck(101, 3)], 1)
    assert unicast.next_deadline() is None
    assert unicast.tick(SECOND) == []


def test_resending_follows_the_measured_round_trip() -> None:
    unicast = machine()
    for number in range(100):
        now = number * SECOND
        unicast.send(B, [b"x"], now)
        unicast.receive(B, [UnicastAck(101, number + 1)], now + MILLISECOND)
    unicast.send(B, [b"lost"], 100 * SECOND)
    due = unicast.next_deadline()
    assert due is not None
    assert due - 100 * SECOND < 5 * MILLISECOND + NO_REAPING.ack_max_ns


# Selective retransmission


def test_receiver_that_misses_46_and_48_asks_for_exactly_these() -> None:
    unicast = receiving(45)
    assert unicast.receive(A, [data(101, 47), data(101, 49), data(101, 50)], SECOND) == []
    assert unicast.tick(SECOND + TIMEOUT_NS - 1) == []
    assert unicast.tick(SECOND + TIMEOUT_NS) == to_a(UnicastXmitRequest(101, ((46, 46), (48, 48))))
    assert unicast.receive(A, [data(101, 46), data(101, 48)], 2 * SECOND) == [
        delivery(46, 50),
        *to_a(UnicastAck(101, 50)),
    ]
    assert unicast.next_deadline() is None


def test_sender_that_is_asked_for_46_and_48_resends_exactly_these() -> None:
    unicast = sending(50)
    unicast.receive(B, [UnicastAck(101, 45)], 1)
    assert unicast.receive(B, [UnicastXmitRequest(101, ((46, 46), (48, 48)))], 2) == to_b(data(101, 46), data(101, 48))


def test_request_is_answered_with_what_is_still_held_and_no_more() -> None:
    unicast = sending(5)
    unicast.receive(B, [UnicastAck(101, 3)], 1)
    assert unicast.receive(B, [UnicastXmitRequest(101, ((4, 9),))], 2) == to_b(data(101, 4), data(101, 5))
    assert unicast.receive(B, [UnicastXmitRequest(101, ((6, 9),))], 2) == []


def test_request_for_what_was_acked_is_answered_with_how_much_of_it_is_gone() -> None:
    unicast = sending(5)
    unicast.receive(B, [UnicastAck(101, 3)], 1)
    effects = unicast.receive(B, [UnicastXmitRequest(101, ((1, 4),))], 2)
    assert effects == to_b(UnicastPurged(101, 3), data(101, 4))
    assert counted(unicast, Count.PURGED_ANSWERED) == 1


def test_receiver_that_misses_what_is_gone_gets_in_step_with_a_sync() -> None:
    unicast = receiving(1)
    unicast.receive(A, [data(101, 5)], SECOND)
    assert unicast.receive(A, [UnicastPurged(101, 4)], SECOND) == to_a(Sync(101, SYNC_ID))
    assert unicast.receive(A, [UnicastPurged(101, 4)], SECOND) == []  # the SYNC is on its way
    assert unicast.receive(A, [SyncOk(102, SYNC_ID, 4)], 2 * SECOND) == [
        *to_a(SyncAck(102)),
        delivery(5, 5),
        *to_a(UnicastAck(102, 5)),
    ]


@pytest.mark.parametrize("frame", [UnicastPurged(101, 3), UnicastPurged(100, 9), UnicastPurged(102, 9)])
def test_receiver_that_has_what_is_gone_or_another_connection_takes_no_notice(frame: Frame) -> None:
    unicast = receiving(3)
    assert unicast.receive(A, [frame], SECOND) == []
    assert not unicast.is_syncing(A)


def test_request_of_another_connection_is_counted_and_not_answered() -> None:
    unicast = sending(5)
    assert unicast.receive(B, [UnicastXmitRequest(100, ((1, 5),))], 2) == []
    assert counted(unicast, Count.FRAME_OF_OLD_CONNECTION) == 1


def test_request_for_everything_is_answered_up_to_the_limit() -> None:
    unicast = sending(10, UnicastConfig(request_limit=4, conn_expiry_ns=0))
    effects = unicast.receive(B, [UnicastXmitRequest(101, ((1, 1 << 60),))], 2)
    assert effects == to_b(*(data(101, seqno, first=seqno == 1) for seqno in range(1, 5)))


def test_gap_that_closes_before_the_look_is_not_asked_for() -> None:
    unicast = receiving(1)
    unicast.receive(A, [data(101, 3)], SECOND)
    unicast.receive(A, [data(101, 2)], SECOND + TIMEOUT_NS - 1)
    assert unicast.next_deadline() is None
    assert unicast.tick(SECOND + TIMEOUT_NS) == []


def test_gap_that_appears_between_looks_is_asked_for_on_the_look_after_it_was_noticed() -> None:
    unicast = receiving(1)
    unicast.receive(A, [data(101, 3)], SECOND)
    unicast.receive(A, [data(101, 5)], SECOND + TIMEOUT_NS - 1)
    assert unicast.tick(SECOND + TIMEOUT_NS) == to_a(UnicastXmitRequest(101, ((2, 2),)))
    ((_, effects),) = ticks(unicast, SECOND + 2 * TIMEOUT_NS)
    assert effects == to_a(UnicastXmitRequest(101, ((2, 2), (4, 4))))


def test_large_gap_is_asked_for_in_parts_and_in_bursts() -> None:
    unicast = receiving(1, UnicastConfig(repair_burst=5, request_limit=2, conn_expiry_ns=0))
    unicast.receive(A, [data(101, 11)], SECOND)
    assert unicast.tick(SECOND + TIMEOUT_NS) == to_a(
        UnicastXmitRequest(101, ((2, 3),)), UnicastXmitRequest(101, ((4, 5),)), UnicastXmitRequest(101, ((6, 6),))
    )


def test_gap_that_nobody_fills_is_asked_for_ever_more_slowly() -> None:
    unicast = receiving(1)
    unicast.receive(A, [data(101, 3)], 0)
    times = [when // MILLISECOND for when, _ in ticks(unicast, 3 * SECOND)]
    assert times[:10] == [30, 60, 90, 150, 210, 330, 450, 690, 930, 1410]
    assert times[10:] == [1890, 2390, 2890]


# OPEN, CLOSING, CLOSED


SENDER_INPUTS: dict[str, Callable[[Unicast, int], object]] = {
    "nothing": lambda unicast, now: None,
    "send": lambda unicast, now: unicast.send(B, [b"x"], now),
    "ack": lambda unicast, now: unicast.receive(B, [UnicastAck(101, 1)], now),
    "sync": lambda unicast, now: unicast.receive(B, [Sync(101, SYNC_ID)], now),
    "close": lambda unicast, now: unicast.close(B, now),
    "remove": lambda unicast, now: unicast.remove(B, now),
}


@pytest.mark.parametrize(
    ("before", "given", "after", "state"),
    [
        (ConnectionState.OPEN, "nothing", 0, ConnectionState.OPEN),
        (ConnectionState.OPEN, "nothing", REAPING.conn_expiry_ns - 1, ConnectionState.OPEN),
        (ConnectionState.OPEN, "nothing", REAPING.conn_expiry_ns, ConnectionState.CLOSING),
        (ConnectionState.OPEN, "nothing", REAPING.conn_expiry_ns + REAPING.conn_close_ns, ConnectionState.CLOSED),
        (ConnectionState.OPEN, "send", 0, ConnectionState.OPEN),
        (ConnectionState.OPEN, "ack", 0, ConnectionState.OPEN),
        (ConnectionState.OPEN, "sync", 0, ConnectionState.OPEN),
        (ConnectionState.OPEN, "close", 0, ConnectionState.CLOSING),
        (ConnectionState.OPEN, "close", REAPING.conn_close_ns, ConnectionState.CLOSED),
        (ConnectionState.OPEN, "remove", 0, ConnectionState.CLOSED),
        (ConnectionState.CLOSING, "nothing", REAPING.conn_close_ns - 1, ConnectionState.CLOSING),
        (ConnectionState.CLOSING, "nothing", REAPING.conn_close_ns, ConnectionState.CLOSED),
        (ConnectionState.CLOSING, "send", 0, ConnectionState.OPEN),
        (ConnectionState.CLOSING, "send", REAPING.conn_close_ns, ConnectionState.OPEN),
        (ConnectionState.CLOSING, "ack", 0, ConnectionState.CLOSING),
        (ConnectionState.CLOSING, "sync", 0, ConnectionState.CLOSING),
        (ConnectionState.CLOSING, "close", 0, ConnectionState.CLOSING),
        (ConnectionState.CLOSING, "remove", 0, ConnectionState.CLOSED),
    ],
)
def test_states_of_a_sender(before: ConnectionState, given: str, after: int, state: ConnectionState) -> None:
    unicast = sending(1, REAPING)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    if before is ConnectionState.CLOSING:
        unicast.close(B, 0)
    assert sender_state(unicast) is before
    SENDER_INPUTS[given](unicast, 0)
    ticks(unicast, after)
    assert sender_state(unicast) is state


RECEIVER_INPUTS: dict[str, Callable[[Unicast, int], object]] = {
    "nothing": lambda unicast, now: None,
    "message": lambda unicast, now: unicast.receive(A, [data(101, 2)], now),
    "repeated message": lambda unicast, now: unicast.receive(A, [data(101, 1)], now),
    "CLOSE": lambda unicast, now: unicast.receive(A, [Close(101)], now),
    "CLOSE with another conn-id": lambda unicast, now: unicast.receive(A, [Close(102)], now),
    "close": lambda unicast, now: unicast.close(A, now),
    "close_receiver": lambda unicast, now: unicast.close_receiver(A, now),
}


@pytest.mark.parametrize(
    ("before", "given", "after", "state"),
    [
        (ConnectionState.OPEN, "nothing", REAPING.conn_expiry_ns - 1, ConnectionState.OPEN),
        (ConnectionState.OPEN, "nothing", REAPING.conn_expiry_ns, ConnectionState.CLOSING),
        (ConnectionState.OPEN, "nothing", REAPING.conn_expiry_ns + REAPING.conn_close_ns, ConnectionState.CLOSED),
        (ConnectionState.OPEN, "message", 0, ConnectionState.OPEN),
        (ConnectionState.OPEN, "close", 0, ConnectionState.CLOSING),
        (ConnectionState.OPEN, "close", REAPING.conn_close_ns, ConnectionState.CLOSED),
        (ConnectionState.OPEN, "CLOSE", 0, ConnectionState.CLOSED),
        (ConnectionState.OPEN, "CLOSE with another conn-id", 0, ConnectionState.OPEN),
        (ConnectionState.OPEN, "close_receiver", 0, ConnectionState.CLOSED),
        (ConnectionState.CLOSING, "nothing", REAPING.conn_close_ns - 1, ConnectionState.CLOSING),
        (ConnectionState.CLOSING, "nothing", REAPING.conn_close_ns, ConnectionState.CLOSED),
        (ConnectionState.CLOSING, "message", 0, ConnectionState.OPEN),
        (ConnectionState.CLOSING, "message", REAPING.conn_close_ns, ConnectionState.OPEN),
        (ConnectionState.CLOSING, "repeated message", 0, ConnectionState.OPEN),
        (ConnectionState.CLOSING, "close", 0, ConnectionState.CLOSING),
        (ConnectionState.CLOSING, "CLOSE", 0, ConnectionState.CLOSED),
        (ConnectionState.CLOSING, "CLOSE with another conn-id", 0, ConnectionState.CLOSING),
        (ConnectionState.CLOSING, "close_receiver", 0, ConnectionState.CLOSED),
    ],
)
def test_states_of_a_receiver(before: ConnectionState, given: str, after: int, state: ConnectionState) -> None:
    unicast = receiving(1, REAPING)
    if before is ConnectionState.CLOSING:
        unicast.close(A, 0)
    assert receiver_state(unicast) is before
    RECEIVER_INPUTS[given](unicast, 0)
    ticks(unicast, after)
    assert receiver_state(unicast) is state


def test_sender_says_close_when_it_is_closed_and_a_receiver_goes_silently() -> None:
    lifetime = REAPING.conn_expiry_ns + REAPING.conn_close_ns
    sender = sending(1, REAPING)
    sender.receive(B, [UnicastAck(101, 1)], 0)
    assert ticks(sender, lifetime) == [(lifetime, to_b(Close(101)))]
    receiver = receiving(1, REAPING)
    assert ticks(receiver, lifetime) == []
    assert (sender.next_deadline(), receiver.next_deadline()) == (None, None)


def test_traffic_puts_off_expiry() -> None:
    sender, receiver = sending(1, REAPING), receiving(1, REAPING)
    for seconds in range(1, 100, 9):
        number = seconds // 9 + 2
        now = seconds * SECOND
        ticks(sender, now)
        ticks(receiver, now)
        sender.send(B, [b"x"], now)
        sender.receive(B, [UnicastAck(101, number)], now)
        receiver.receive(A, [data(101, number)], now)
        assert (sender_state(sender), receiver_state(receiver)) == (ConnectionState.OPEN, ConnectionState.OPEN)


def test_send_on_a_closing_connection_resets_its_age() -> None:
    unicast = sending(1, REAPING)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    ticks(unicast, REAPING.conn_expiry_ns)
    now = REAPING.conn_expiry_ns + SECOND
    assert unicast.send(B, [b"x"], now)[0] == Transmit(B, data(101, 2, b"x"))
    unicast.receive(B, [UnicastAck(101, 2)], now)
    assert ticks(unicast, now + REAPING.conn_expiry_ns - 1) == []
    assert sender_state(unicast) is ConnectionState.OPEN
    ticks(unicast, now + REAPING.conn_expiry_ns)
    assert sender_state(unicast) is ConnectionState.CLOSING


def test_closing_connection_is_flushed_before_it_is_closed() -> None:
    unicast = sending(2, REAPING)
    unicast.close(B, 0)
    resent = ticks(unicast, 3 * REAPING.conn_close_ns)
    assert sender_state(unicast) is ConnectionState.CLOSING
    assert {effect for _, effects in resent for effect in effects} == set(to_b(data(101, 2)))
    now = 3 * REAPING.conn_close_ns
    unicast.receive(B, [UnicastAck(101, 2)], now)
    ((closed_at, effects),) = ticks(unicast, now + SECOND)
    assert effects == to_b(Close(101))
    assert closed_at <= now + REAPING.xmit_interval_ns
    assert sender_state(unicast) is ConnectionState.CLOSED


def test_connection_opened_after_a_close_has_a_new_id_and_goes_on_counting() -> None:
    unicast = sending(2)
    unicast.receive(B, [UnicastAck(101, 2)], 0)
    unicast.close(B, 0)
    ticks(unicast, NO_REAPING.conn_close_ns)
    assert sender_state(unicast) is ConnectionState.CLOSED
    effects = unicast.send(B, [b"message 3"], 40 * SECOND)
    assert effects == [*to_b(data(102, 3, first=True)), Admitted(Channel.UNICAST, B, 1)]


def test_reaping_is_off_when_the_expiry_is_zero_and_an_asked_for_close_still_closes() -> None:
    sender, receiver = sending(1), receiving(1)
    sender.receive(B, [UnicastAck(101, 1)], 0)
    assert (sender.next_deadline(), receiver.next_deadline()) == (None, None)
    assert sender.tick(1 << 60) == receiver.tick(1 << 60) == []
    assert (sender_state(sender), receiver_state(receiver)) == (ConnectionState.OPEN, ConnectionState.OPEN)
    sender.close(B, 0)
    assert ticks(sender, SECOND * 60) == [(NO_REAPING.conn_close_ns, to_b(Close(101)))]


def test_connection_that_was_reverted_to_open_is_not_closed_by_the_old_timer_when_reaping_is_off() -> None:
    unicast = sending(1)
    unicast.close(B, 0)
    unicast.send(B, [b"x"], 1)
    unicast.receive(B, [UnicastAck(101, 2)], 2)
    assert ticks(unicast, 1 << 60) == []
    assert sender_state(unicast) is ConnectionState.OPEN


def test_close_of_a_peer_that_nobody_knows_does_nothing() -> None:
    unicast = machine()
    assert unicast.close(B, 0) == unicast.close_receiver(B, 0) == unicast.remove(B, 0) == []
    assert unicast.receive(B, [Close(7)], 0) == []
    assert unicast.next_deadline() is None


def test_window_that_is_dropped_sends_the_ack_that_it_owes() -> None:
    unicast = receiving(1)
    unicast.receive(A, [data(101, 2)], 1)
    assert unicast.close_receiver(A, 2) == to_a(UnicastAck(101, 2))
    unicast = receiving(1)
    assert unicast.close_receiver(A, 2) == []


# Giving up, and peers that leave


def failure(effect: Effect) -> tuple[Address | None, int, int]:
    assert isinstance(effect, SendFailed)
    assert isinstance(effect.error, PeerUnreachableError)
    return effect.to, effect.first, effect.last


def test_silent_peer_is_given_up_and_exactly_the_unconfirmed_messages_are_reported() -> None:
    unicast = sending(5, UnicastConfig(capacity=2, conn_expiry_ns=0))
    unicast.receive(B, [UnicastAck(101, 1)], SECOND)  # 2 stays in the window, 3 to 5 leave as one frame
    *_, (when, effects) = ticks(unicast, 70 * SECOND)
    assert NO_REAPING.give_up_ns + SECOND <= when <= NO_REAPING.give_up_ns + SECOND + TASK_NS + 500 * MILLISECOND
    assert effects[-2] == Transmit(B, Close(101))
    assert failure(effects[-1]) == (B, 2, 5)
    assert unicast.sender(B) is None
    assert unicast.next_deadline() is None
    assert counted(unicast, Count.CONNECTION_GIVEN_UP) == 1


def test_messages_still_in_the_backlog_are_reported_too() -> None:
    unicast = sending(7, UnicastConfig(capacity=1, conn_expiry_ns=0))
    *_, (_, effects) = ticks(unicast, 70 * SECOND)
    assert failure(effects[-1]) == (B, 1, 7)


def test_large_message_counts_as_unconfirmed_until_its_last_fragment_is_acked() -> None:
    unicast = machine(A, UnicastConfig(body_bytes=64, conn_expiry_ns=0))
    unicast.send(B, [b"small"], 0)
    unicast.send(B, [bytes(120)], 0)  # frames 2, 3 and 4
    unicast.receive(B, [UnicastAck(101, 3)], 0)
    assert failure(unicast.remove(B, 1)[-1]) == (B, 2, 2)


def test_any_sign_of_life_puts_off_giving_up() -> None:
    unicast = sending(1)
    for seconds in range(50, 500, 50):
        ticks(unicast, seconds * SECOND)
        unicast.receive(B, [UnicastAck(101, 0)], seconds * SECOND)
    assert unicast.sender(B) is not None


def test_silence_counts_from_the_first_message_that_waits_for_an_answer() -> None:
    unicast = sending(1)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    unicast.send(B, [b"x"], 1_000 * SECOND)
    ticks(unicast, 1_000 * SECOND + NO_REAPING.give_up_ns - 1)
    assert unicast.sender(B) is not None


def test_peer_that_left_releases_whoever_waits_and_drops_both_directions() -> None:
    unicast = sending(3)
    unicast.receive(B, [data(201, 1, first=True)], 0)
    unicast.receive(B, [data(201, 2)], 1)
    effects = unicast.remove(B, 2)
    assert effects[:2] == to_b(UnicastAck(201, 2), Close(101))
    assert failure(effects[2]) == (B, 1, 3)
    assert len(effects) == 3
    assert (unicast.sender(B), unicast.receiver(B)) == (None, None)


def test_peer_that_left_with_everything_confirmed_has_no_failure() -> None:
    unicast = sending(3)
    unicast.receive(B, [UnicastAck(101, 3)], 0)
    assert unicast.remove(B, 1) == to_b(Close(101))


def test_numbers_of_messages_restart_and_seqnos_go_on_after_a_failure() -> None:
    unicast = sending(3)
    unicast.remove(B, 1)
    assert unicast.accepted(B) == 0
    assert unicast.send(B, [b"x"], 2) == [
        *to_b(data(102, 4, b"x", first=True)),
        Admitted(Channel.UNICAST, B, 1),
    ]


# Bounds


def test_backlog_beyond_its_bound_refuses_and_accepts_again_after_an_ack() -> None:
    unicast = machine(A, UnicastConfig(capacity=1, backlog_bytes=10, conn_expiry_ns=0))
    unicast.send(B, [b"in flight"], 0)
    unicast.send(B, [b"ten bytes!"], 0)
    with pytest.raises(BacklogFullError, match="wait for Admitted") as refused:
        unicast.send(B, [b"too much"], 0)
    assert refused.value.retryable
    assert unicast.accepted(B) == 2
    assert unicast.receive(B, [UnicastAck(101, 1)], 1) == [
        *to_b(data(101, 2, b"ten bytes!")),
        Admitted(Channel.UNICAST, B, 2),
    ]
    assert unicast.send(B, [b"now"], 2) == []
    assert unicast.accepted(B) == 3


def test_refused_send_leaves_a_closing_connection_closing() -> None:
    unicast = machine(A, UnicastConfig(capacity=1, backlog_bytes=1, conn_expiry_ns=0))
    for message in numbered(1, 2):
        unicast.send(B, [message], 0)
    unicast.close(B, 0)
    with pytest.raises(BacklogFullError):
        unicast.send(B, [b"x"], 1)
    assert sender_state(unicast) is ConnectionState.CLOSING


def test_send_to_one_peer_too_many_is_refused_and_changes_nothing() -> None:
    unicast = sending(1, UnicastConfig(max_peers=1, conn_expiry_ns=0))
    with pytest.raises(TooManyPeersError, match="1 connections are open") as refused:
        unicast.send(C, [b"x"], 0)
    assert refused.value.retryable
    assert (unicast.sender(C), unicast.accepted(C)) == (None, 0)
    unicast.remove(B, 1)
    assert unicast.send(C, [b"x"], 2)[0] == Transmit(C, data(102, 2, b"x", first=True))


@pytest.mark.parametrize("is_first", [True, False])
def test_messages_of_one_peer_too_many_are_refused_and_counted(is_first: bool) -> None:
    unicast = receiving(1, UnicastConfig(max_peers=1, conn_expiry_ns=0))
    assert unicast.receive(C, [data(301, 1, first=is_first)], 0) == []
    assert counted(unicast, Count.CONNECTION_REFUSED) == 1
    assert unicast.receiver(C) is None
    assert not unicast.is_syncing(C)
    assert unicast.next_deadline() is None
    unicast.close_receiver(A, 1)
    unicast.receive(C, [data(301, 1, first=True)], 2)
    assert unicast.receiver(C) is not None


def test_peer_whose_sync_is_pending_keeps_its_place_when_the_house_fills_up() -> None:
    """Else the SYNC-ACK would confirm a window that was refused."""
    unicast = machine(B, UnicastConfig(max_peers=2, conn_expiry_ns=0))
    unicast.receive(A, [data(101, 1)], 0)
    unicast.receive(C, [data(301, 1, first=True)], 0)
    effects = unicast.receive(A, [SyncOk(102, SYNC_ID, 0)], 1)
    assert effects == [*to_a(SyncAck(102)), delivery(1, 1), *to_a(UnicastAck(102, 1))]
    assert counted(unicast, Count.CONNECTION_REFUSED) == 0


def test_full_house_of_pending_syncs_and_windows_never_exceeds_the_bound() -> None:
    limit = 4
    unicast = machine(B, UnicastConfig(max_peers=limit, capacity=2, conn_expiry_ns=0))
    strangers = [Address(f"s{number}", "127.0.0.1", number, number) for number in range(10, 30)]
    for stranger in strangers:
        for seqno in range(2, 9):
            unicast.receive(stranger, [data(1, seqno, first=stranger.incarnation % 2 == 0 and seqno == 2)], 0)
    windows = sum(unicast.receiver(stranger) is not None for stranger in strangers)
    syncs = sum(unicast.is_syncing(stranger) for stranger in strangers)
    assert windows + syncs == limit
    assert unicast.buffered_frames <= 2 * limit


def test_pending_sync_keeps_at_most_one_window_of_frames() -> None:
    unicast = machine(B, UnicastConfig(capacity=4, conn_expiry_ns=0))
    for seqno in range(2, 100):
        unicast.receive(A, [data(101, seqno)], 0)
    assert unicast.buffered_frames == 4


def test_closed_window_is_remembered_so_that_a_repeated_message_is_acked_and_not_delivered() -> None:
    unicast = receiving(1)
    unicast.close_receiver(A, 0)
    assert unicast.receive(A, [data(101, 1, first=True)], SECOND) == to_a(UnicastAck(101, 1))


@pytest.mark.parametrize("closed_by", ["CLOSE", "reaping"])
def test_window_closed_by_its_sender_or_by_reaping_is_remembered_too(closed_by: str) -> None:
    unicast = receiving(1, REAPING)
    if closed_by == "CLOSE":
        unicast.receive(A, [Close(101)], 1)
    else:
        ticks(unicast, REAPING.conn_expiry_ns + REAPING.conn_close_ns)
    assert unicast.receiver(A) is None
    assert unicast.receive(A, [data(101, 1, first=True)], 60 * SECOND) == to_a(UnicastAck(101, 1))


def test_only_so_many_closed_windows_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    unicast = receiving(1, UnicastConfig(remembered_peers=1, conn_expiry_ns=0))
    unicast.receive(C, [data(301, 1, first=True)], 0)
    unicast.close_receiver(A, 1)
    unicast.close_receiver(C, 2)
    unicast._check()
    assert unicast.receive(C, [data(301, 1, first=True)], SECOND) == [Transmit(C, UnicastAck(301, 1))]
    assert unicast.receive(A, [data(101, 1, first=True)], SECOND) == [delivery(1, 1), *to_a(UnicastAck(101, 1))]


# A slow application


def test_held_machine_delivers_and_acks_nothing_until_it_is_released() -> None:
    unicast = receiving(1)
    unicast.pause()
    assert unicast.receive(A, [data(101, 2), data(101, 3)], SECOND) == []
    assert ticks(unicast, 60 * SECOND) == []  # nothing is missing, so nothing is asked for
    assert unicast.resume(60 * SECOND) == [delivery(2, 3), *to_a(UnicastAck(101, 3))]


def test_held_machine_answers_a_repeated_message_with_how_far_it_is_so_that_it_does_not_look_dead() -> None:
    unicast = receiving(1)
    unicast.pause()
    unicast.receive(A, [data(101, 2)], SECOND)
    assert unicast.receive(A, [data(101, 2)], 2 * SECOND) == to_a(UnicastAck(101, 1))


def test_held_machine_drops_what_does_not_fit_its_window() -> None:
    unicast = receiving(1, UnicastConfig(capacity=4, conn_expiry_ns=0))
    unicast.pause()
    unicast.receive(A, [data(101, seqno) for seqno in range(2, 9)], SECOND)
    assert unicast.buffered_frames == 4
    assert counted(unicast, Count.FRAME_OUTSIDE_WINDOW) == 3
    assert unicast.resume(SECOND)[0] == delivery(2, 5)


def test_slow_application_pushes_back_on_the_sender_and_nothing_is_given_up_or_lost() -> None:
    link = Link(config=UnicastConfig(capacity=4, conn_expiry_ns=0))
    link[B].pause()
    link.send(A, B, *numbered(1, 10))
    link.run_for(300 * SECOND)  # five times the give-up time
    assert {frame.seqno for frame in link.frames(A, UnicastData)} == {1, 2, 3, 4}
    assert [effect.through for effect in link.told[A] if isinstance(effect, Admitted)] == [1, 2, 3, 4]
    assert link.inbox(B, A) == []
    link.perform(B, link[B].resume(link.now))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 10)
    assert link.is_in_step(A, B)


def test_release_of_a_machine_that_was_not_held_does_nothing() -> None:
    unicast = receiving(1)
    assert unicast.resume(SECOND) == []


# Connection ids


def test_connection_ids_wrap_around_and_the_one_after_the_wrap_is_the_newer() -> None:
    sender = machine(A, first_conn_id=SERIAL_MODULUS - 2)
    receiver = machine(B)
    old = sender.send(B, [b"message 1"], 0)[0]
    assert old == Transmit(B, data(SERIAL_MODULUS - 1, 1, first=True))
    receiver.receive(A, [data(SERIAL_MODULUS - 1, 1, first=True)], 0)
    sender.remove(B, 1)
    assert sender.send(B, [b"message 2"], 2)[0] == Transmit(B, data(0, 2, first=True))
    assert receiver.receive(A, [data(0, 2, first=True)], SECOND) == [delivery(2, 2), *to_a(UnicastAck(0, 2))]
    assert receiver.receive(A, [data(SERIAL_MODULUS - 1, 1, first=True)], 2 * SECOND) == []
    assert counted(receiver, Count.FRAME_OF_OLD_CONNECTION) == 1


def test_closed_connection_before_the_wrap_is_remembered_as_the_older() -> None:
    unicast = machine(B)
    unicast.receive(A, [data(1, 5, first=True)], 0)
    unicast.close_receiver(A, 0)
    assert unicast.receive(A, [data(SERIAL_MODULUS - 1, 3, first=True)], SECOND) == []
    assert unicast.receiver(A) is None
    assert counted(unicast, Count.FRAME_OF_OLD_CONNECTION) == 1


def test_sync_takes_a_connection_id_across_the_wrap() -> None:
    link = Link()
    link.machines[A] = Unicast(A, NO_REAPING, link.counters[A], SERIAL_MODULUS - 2)
    link.drop(everything, times=1)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.sender(A, B).conn_id == 0
    assert link.is_in_step(A, B)


def test_message_of_a_newer_connection_that_is_not_its_first_waits_for_a_sync() -> None:
    unicast = receiving(1)
    assert unicast.receive(A, [data(102, 3)], SECOND) == []
    assert unicast.is_syncing(A)
    assert unicast.tick(SECOND + TIMEOUT_NS) == to_a(Sync(102, SYNC_ID))


# SYNC at the sender


def test_sync_renames_the_connection_and_tells_where_it_stands() -> None:
    unicast = sending(5)
    unicast.receive(B, [UnicastAck(101, 2)], 1)
    assert unicast.receive(B, [Sync(101, SYNC_ID)], 2) == to_b(SyncOk(102, SYNC_ID, 2))
    assert unicast.receive(B, [UnicastXmitRequest(102, ((3, 3),))], 3) == to_b(data(102, 3))


def test_sync_that_comes_again_while_the_first_is_unconfirmed_has_the_same_answer() -> None:
    unicast = sending(1)
    assert unicast.receive(B, [Sync(101, SYNC_ID)], 0) == to_b(SyncOk(102, SYNC_ID, 0))
    assert unicast.receive(B, [Sync(101, SYNC_ID)], 1) == to_b(SyncOk(102, SYNC_ID, 0))
    assert unicast.receive(B, [Sync(102, SYNC_ID)], 2) == to_b(SyncOk(102, SYNC_ID, 0))  # B saw data, not the answer


def test_another_sync_while_the_first_is_unconfirmed_takes_a_new_connection_id_if_it_names_the_current_one() -> None:
    unicast = sending(1)
    assert unicast.receive(B, [Sync(101, SYNC_ID)], 0) == to_b(SyncOk(102, SYNC_ID, 0))
    effects = unicast.receive(B, [Sync(102, SYNC_ID + 1)], 1)
    connection = unicast.sender(B)
    assert connection is not None
    assert effects == to_b(SyncOk(connection.conn_id, SYNC_ID + 1, 0))
    assert is_newer(connection.conn_id, 102)


def test_sync_of_an_earlier_attempt_that_comes_late_does_not_disturb_the_one_in_progress() -> None:
    # It names the id that was last confirmed; were the connection renamed again, the answer that the receiver waits for
    # would be void. Sync ids are serial numbers: an older one than that in progress is late.
    unicast = sending(1)
    unicast.receive(B, [Sync(101, SYNC_ID)], 0)
    (answer,) = unicast.receive(B, [Sync(101, SYNC_ID + 1)], SECOND)  # the first attempt came to nothing
    assert isinstance(answer, Transmit)
    assert isinstance(answer.frame, SyncOk)
    unicast.receive(B, [Sync(101, SYNC_ID)], SECOND + 1)
    unicast.receive(B, [SyncAck(answer.frame.conn_id)], SECOND + 2)
    connection = unicast.sender(B)
    assert connection is not None
    assert connection.conn_id == answer.frame.conn_id
    assert not connection.is_syncing


def test_late_sync_is_counted_and_ignored() -> None:
    unicast = sending(1)
    unicast.receive(B, [Sync(101, SYNC_ID)], 0)
    unicast.receive(B, [SyncAck(102)], 1)
    assert unicast.receive(B, [Sync(101, SYNC_ID), Sync(77, SYNC_ID)], 2) == []
    assert counted(unicast, Count.FRAME_OF_OLD_CONNECTION) == 2
    connection = unicast.sender(B)
    assert connection is not None
    assert connection.conn_id == 102
    assert not connection.is_syncing


def test_sync_for_a_connection_that_is_gone_is_answered_with_close() -> None:
    unicast = machine()
    assert unicast.receive(B, [Sync(55, SYNC_ID)], 0) == to_b(Close(55))
    assert unicast.next_deadline() is None


def test_acks_are_discarded_until_the_sync_is_confirmed() -> None:
    unicast = sending(3)
    unicast.receive(B, [Sync(101, SYNC_ID)], 0)
    assert unicast.receive(B, [UnicastAck(102, 3)], 1) == []
    assert counted(unicast, Count.ACK_DURING_SYNC) == 1
    assert unicast.buffered_frames == 3
    unicast.receive(B, [SyncAck(101)], 2)  # names another connection: confirms nothing
    unicast.receive(B, [UnicastAck(102, 3)], 3)
    assert unicast.buffered_frames == 3
    unicast.receive(B, [SyncAck(102), UnicastAck(102, 3)], 4)
    assert unicast.buffered_frames == 0


def test_sync_ok_is_resent_until_the_timeout_and_then_acks_count_again() -> None:
    unicast = sending(1)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    unicast.receive(B, [Sync(101, SYNC_ID)], 0)
    resent = ticks(unicast, NO_REAPING.sync_timeout_ns + SECOND)
    assert {effect for _, effects in resent for effect in effects} == set(to_b(SyncOk(102, SYNC_ID, 1)))
    assert resent[-1][0] < NO_REAPING.sync_timeout_ns
    assert len(resent) > 5
    assert unicast.next_deadline() is None
    unicast.send(B, [b"x"], 10 * SECOND)
    unicast.receive(B, [UnicastAck(102, 2)], 10 * SECOND)
    assert unicast.buffered_frames == 0


# SYNC at the receiver


def test_sync_is_not_sent_at_once_but_by_the_task_and_then_ever_more_slowly_until_the_timeout() -> None:
    unicast = machine(B)
    assert unicast.receive(A, [data(101, 2)], 0) == []
    sent = ticks(unicast, 60 * SECOND)
    assert {effect for _, effects in sent for effect in effects} == set(to_a(Sync(101, SYNC_ID)))
    times = [when // MILLISECOND for when, _ in sent]
    assert times[:6] == [30, 60, 90, 150, 210, 330]
    assert NO_REAPING.sync_timeout_ns // MILLISECOND - 500 <= times[-1] < NO_REAPING.sync_timeout_ns // MILLISECOND
    assert unicast.next_deadline() is None
    assert unicast.buffered_frames == 0


def test_sync_names_the_newest_connection_that_was_seen() -> None:
    unicast = machine(B)
    unicast.receive(A, [data(102, 5), data(104, 7), data(103, 6)], 0)
    assert ticks(unicast, TIMEOUT_NS) == [(TIMEOUT_NS, to_a(Sync(104, SYNC_ID)))]


def test_sync_ok_opens_a_window_at_the_senders_low_and_takes_in_what_was_kept() -> None:
    unicast = machine(B)
    unicast.receive(A, [data(101, 8)], 0)
    assert unicast.receive(A, [SyncOk(102, SYNC_ID, 7)], 1) == [
        *to_a(SyncAck(102)),
        delivery(8, 8),
        *to_a(UnicastAck(102, 8)),
    ]
    assert unicast.next_deadline() is None


def test_sync_ok_renames_a_window_that_is_there_and_keeps_what_it_holds() -> None:
    unicast = receiving(1)
    unicast.receive(A, [data(101, 3)], SECOND)
    unicast.sync(A, SECOND)
    assert unicast.receive(A, [SyncOk(102, SYNC_ID, 1)], SECOND + 1) == [
        *to_a(SyncAck(102)),
        SyncCompleted(A, 102, 1),
        *to_a(UnicastAck(102, 1)),
    ]
    assert unicast.receive(A, [data(102, 2)], 2 * SECOND) == [delivery(2, 3), *to_a(UnicastAck(102, 3))]


def test_sync_ok_below_what_was_delivered_makes_nothing_come_twice() -> None:
    unicast = receiving(5)
    unicast.close_receiver(A, 0)
    unicast.receive(A, [data(101, 5)], SECOND)
    effects = unicast.receive(A, [SyncOk(102, SYNC_ID, 2)], SECOND + 1)
    assert effects == to_a(SyncAck(102), UnicastAck(102, 5))


def test_sync_ok_that_comes_again_is_confirmed_again() -> None:
    unicast = receiving(1)
    unicast.sync(A, SECOND)
    unicast.receive(A, [SyncOk(102, SYNC_ID, 1)], SECOND)
    assert unicast.receive(A, [SyncOk(102, SYNC_ID, 1)], 2 * SECOND) == to_a(SyncAck(102))
    assert not unicast.is_syncing(A)


@pytest.mark.parametrize("count", [0, 1])
def test_sync_ok_that_nobody_asked_for_is_misplaced(count: int) -> None:
    unicast = receiving(1) if count else machine(B)
    before = unicast.receiver(A)
    assert unicast.receive(A, [SyncOk(102, SYNC_ID, 50)], SECOND) == []
    assert counted(unicast, Count.FRAME_MISPLACED) == 1
    assert unicast.receiver(A) is before
    assert before is None or (before.conn_id, before.window.low) == (101, 1)


def test_first_message_that_arrives_before_the_sync_was_sent_makes_it_needless() -> None:
    unicast = machine(B)
    unicast.receive(A, [data(101, 2)], 0)
    assert unicast.receive(A, [data(101, 1, first=True)], 1) == [delivery(1, 2), *to_a(UnicastAck(101, 2))]
    assert not unicast.is_syncing(A)
    assert unicast.next_deadline() is None


def test_close_with_the_pending_conn_id_ends_a_sync_and_another_does_not() -> None:
    unicast = machine(B)
    unicast.receive(A, [data(101, 2)], 0)
    unicast.receive(A, [Close(100)], 1)
    assert unicast.is_syncing(A)
    unicast.receive(A, [Close(101)], 2)
    assert not unicast.is_syncing(A)
    assert unicast.next_deadline() is None


def test_window_that_is_dropped_takes_its_pending_sync_with_it() -> None:
    unicast = receiving(1)
    unicast.sync(A, 0)
    unicast.close_receiver(A, 1)
    assert not unicast.is_syncing(A)
    assert unicast.next_deadline() is None


# The operator's SYNC


def test_sync_of_an_operator_on_an_idle_connection_is_harmless() -> None:
    sender, receiver = sending(1), receiving(1)
    sender.receive(B, [UnicastAck(101, 1)], 0)
    assert receiver.sync(A, SECOND) == to_a(Sync(101, SYNC_ID))
    assert sender.receive(B, [Sync(101, SYNC_ID)], SECOND) == to_b(SyncOk(102, SYNC_ID, 1))
    assert receiver.receive(A, [SyncOk(102, SYNC_ID, 1)], SECOND) == [
        *to_a(SyncAck(102)),
        SyncCompleted(A, 102, 1),
        *to_a(UnicastAck(102, 1)),
    ]
    assert sender.receive(B, [SyncAck(102), UnicastAck(102, 1)], SECOND) == []
    assert (sender.next_deadline(), receiver.next_deadline()) == (None, None)
    assert sender.send(B, [b"message 2"], 2 * SECOND)[0] == Transmit(B, data(102, 2))
    assert receiver.receive(A, [data(102, 2)], 2 * SECOND) == [delivery(2, 2), *to_a(UnicastAck(102, 2))]


def test_sync_of_an_operator_in_the_middle_of_traffic_loses_and_repeats_nothing() -> None:
    link = Link()
    for number in range(1, 31):
        link.send(A, B, *numbered(number, number))
        if number % 5 == 0:
            link.perform(B, link[B].sync(A, link.now))
        link.run_for(MILLISECOND)
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 30)
    assert link.is_in_step(A, B)


def test_sync_of_an_operator_after_the_sender_forgot_the_connection_drops_the_window() -> None:
    link = Link()
    link.drop(kind(Close), times=1)
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    link.perform(A, link[A].remove(B, link.now))
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    assert link[B].receiver(A) is None


def test_sync_with_a_peer_that_sent_nothing_is_misuse_and_changes_nothing() -> None:
    unicast = sending(1)
    with pytest.raises(MisuseError, match="no receive window to synchronize"):
        unicast.sync(B, 0)
    assert not unicast.is_syncing(B)


# Misuse


def test_message_that_is_too_large_is_refused_with_all_of_its_call_and_changes_nothing() -> None:
    unicast = machine()
    with pytest.raises(MessageTooLargeError, match=f"at most {MAX_MESSAGE_BYTES}"):
        unicast.send(B, [b"small", bytes(MAX_MESSAGE_BYTES + 1)], 0)
    assert unicast.sender(B) is None
    assert unicast.send(B, [b"x"], 0)[0] == Transmit(B, data(101, 1, b"x", first=True))


@pytest.mark.parametrize("has_connection", [True, False])
def test_frame_of_another_protocol_is_misuse_and_changes_nothing(has_connection: bool) -> None:
    unicast = machine(B)
    if has_connection:
        unicast.send(A, [b"x"], 0)
    with pytest.raises(MisuseError, match="MulticastAck is not a frame of reliable unicast"):
        unicast.receive(A, [data(101, 1, first=True), MulticastAck(1)], 0)
    assert unicast.receiver(A) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity", 0),
        ("body_bytes", 63),
        ("backlog_bytes", 0),
        ("ack_min_ns", -1),
        ("ack_max_ns", 4 * MILLISECOND),  # below ack_min_ns
        ("xmit_interval_ns", MILLISECOND),  # below min_repair_ns
        ("initial_rtt_ns", 0),
        ("repair_burst", 0),
        ("request_limit", 513),  # more ranges than a request can carry
        ("conn_expiry_ns", -1),
        ("conn_close_ns", -1),
        ("give_up_ns", 499 * MILLISECOND),  # below xmit_interval_ns
        ("sync_timeout_ns", 0),
        ("max_peers", 0),
        ("remembered_peers", -1),
    ],
)
def test_config_refuses_what_is_out_of_range_and_names_it(field: str, value: int) -> None:
    options: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError, match="is outside what is allowed"):
        UnicastConfig(**options)


@pytest.mark.parametrize("now", [0, 1, TASK_NS, SECOND])
def test_ticks_that_come_twice_do_nothing_the_second_time(now: int) -> None:
    unicast = sending(3)
    unicast.receive(B, [data(201, 1, first=True), data(201, 3)], 0)
    unicast.receive(B, [data(201, 4)], 0)
    unicast.tick(now)
    assert unicast.tick(now) == []


def test_receiver_with_a_gap_stops_asking_a_sender_that_is_silent_for_the_give_up_time() -> None:
    config = UnicastConfig(conn_expiry_ns=0)
    unicast = machine(B, config)
    unicast.receive(A, [data(101, 1, first=True), data(101, 3)], 0)
    asked = []
    for _ in range(1_000):
        due = unicast.next_deadline()
        if due is None:
            break
        asked += [effect for effect in unicast.tick(due) if isinstance(effect, Transmit)]
    assert unicast.next_deadline() is None
    assert unicast.receiver(A) is None
    assert 2 < len(asked) < 2 * config.give_up_ns // config.xmit_interval_ns
