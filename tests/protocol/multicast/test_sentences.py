"""One test for each rule of the JGroups note MCAST, in other words.

Where the note's receiver drops a message as it delivers it (its `low`), this one keeps it until it is stable: the
note's `low` is `delivered` here, and `low` is what may be forgotten.
"""

from __future__ import annotations

import pytest

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Admitted
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.multicast import MulticastConfig
from motet.protocol.wire.frames import MulticastAck, MulticastData, MulticastXmitRequest
from tests.protocol.multicast.link import A, B, C, D, Group, both, data, data_of, kind, numbered, path

FOUR = MulticastConfig(capacity=4)
ROUND_TRIP = 5 * MILLISECOND  # there and back, with time to spare, and far less than any interval


# The window


def test_the_window_has_a_fixed_size_so_flow_control_needs_no_protocol_of_its_own() -> None:
    group = Group(A, B, config=FOUR)
    group.pause(B)
    group.send(A, *numbered(1, 100))
    group.run_for(10 * SECOND)
    assert group.sender(A).window.capacity == group.receiver(B, A).window.capacity == 4
    assert group.sender(A).window.high == 4  # neither side made space for more


def test_on_the_sender_low_is_the_highest_that_all_have_acked_and_high_the_highest_sent() -> None:
    group = Group(A, B, C)
    taken = group.collect(kind(MulticastData))
    group.send(A, *numbered(1, 5))
    group.receive(A, B, MulticastAck(3))
    group.receive(A, C, MulticastAck(2))
    assert len(taken) == 10
    assert (group.sender(A).window.low, group.sender(A).window.high) == (2, 5)


def test_on_the_receiver_delivered_and_high_are_the_highest_delivered_and_the_highest_received() -> None:
    group = Group(A, B)
    group.receive(B, A, data(A, 1), data(A, 2), data(A, 5))
    assert (group.receiver(B, A).window.delivered, group.receiver(B, A).window.high) == (2, 5)


def test_seqnos_share_the_slots_of_the_ring_again_and_again() -> None:
    group = Group(A, B, config=MulticastConfig(capacity=3))
    for number in range(1, 50):
        group.send(A, *numbered(number, number))
        group.run_until_quiet()
    assert group.inbox(B, A) == numbered(1, 49)
    assert group.sender(A).window.high == 49


def test_without_space_the_sender_waits_and_the_receiver_drops() -> None:
    group = Group(A, B, config=FOUR)
    group.drop(kind(MulticastData))
    group.send(A, *numbered(1, 5))
    assert group.sender(A).accepted == 5
    assert group.sender(A).admitted == 4
    group.receive(B, A, data(A, 5))
    assert group[B].buffered_frames == 0
    assert group.counters[B][Count.FRAME_OUTSIDE_WINDOW] == 1


# Sending


def test_each_message_is_sent_under_the_next_seqno() -> None:
    group = Group(A, B)
    group.send(A, *numbered(1, 5))
    assert [frame.seqno for frame in group.frames(A, MulticastData)] == [1, 2, 3, 4, 5]


def test_a_sender_waits_when_its_seqno_would_be_a_whole_window_ahead_of_low() -> None:
    group = Group(A, B, config=FOUR)
    group.drop(kind(MulticastData))
    group.send(A, *numbered(1, 5))
    assert group.frames(A, MulticastData)[-1].seqno == 4
    group.receive(A, B, MulticastAck(1))
    assert group.frames(A, MulticastData)[-1].seqno == 5


def test_otherwise_the_message_is_added_high_moves_and_it_is_sent() -> None:
    group = Group(A, B, config=FOUR)
    group.send(A, b"message 1")
    assert group.sender(A).window.high == 1
    assert group.sender(A).window[1] is not None
    assert group.frames(A, MulticastData) == [data(A, 1)]


# Receiving


def test_a_message_goes_into_the_window_of_its_sender() -> None:
    group = Group(A, B, C)
    group.receive(C, A, data(A, 1))
    group.receive(C, B, data(B, 2))
    assert group.receiver(C, A).window.high == 1
    assert group.receiver(C, B).window.high == 2
    assert group.inbox(C, B) == []


@pytest.mark.parametrize(("seqno", "is_added"), [(2, False), (3, True), (6, True), (7, False)])
def test_a_message_below_or_beyond_the_window_is_dropped(seqno: int, is_added: bool) -> None:
    group = Group(A, B, config=FOUR)
    group.receive(B, A, data(A, 1), data(A, 2))
    group.receive(B, A, data(A, 2, stable=2))  # a window of four, from 3 to 6
    group.receive(B, A, data(A, seqno, stable=2))
    assert (group[B].buffered_frames == 1) is is_added


def test_a_message_that_was_received_already_is_not_added_again() -> None:
    group = Group(A, B)
    group.receive(B, A, data(A, 1), data(A, 3))
    group.receive(B, A, data(A, 1, b"other"), data(A, 3, b"other"))
    group.receive(B, A, data(A, 2))
    assert group.inbox(B, A) == numbered(1, 3)


def test_messages_are_delivered_until_a_gap_is_met() -> None:
    group = Group(A, B)
    group.receive(B, A, data(A, 1), data(A, 2), data(A, 4), data(A, 5), data(A, 7))
    assert group.inbox(B, A) == numbered(1, 2)
    group.receive(B, A, data(A, 3))
    assert group.inbox(B, A) == numbered(1, 5)


def test_the_ack_names_the_highest_message_that_was_delivered() -> None:
    group = Group(A, B, config=FOUR)
    group.receive(B, A, data(A, 1), data(A, 2), data(A, 4))
    assert group.frames(B, MulticastAck) == [MulticastAck(2)]


def test_the_ack_may_wait_for_a_number_of_deliveries() -> None:
    group = Group(A, B, config=MulticastConfig(capacity=16))
    group.receive(B, A, *(data(A, seqno) for seqno in (1, 2, 3)))
    assert group.frames(B, MulticastAck) == []
    group.receive(B, A, data(A, 4))
    assert group.frames(B, MulticastAck) == [MulticastAck(4)]


def test_the_ack_comes_with_the_interval_when_the_number_is_not_reached() -> None:
    group = Group(A, B, config=MulticastConfig(capacity=16))
    group.receive(B, A, data(A, 1))
    group.run_for(group[B]._config.xmit_interval_ns - 1)
    assert group.frames(B, MulticastAck) == []
    group.run_for(1)
    assert group.frames(B, MulticastAck) == [MulticastAck(1)]


# Acks


def test_of_each_member_the_highest_ack_counts() -> None:
    group = Group(A, B)
    group.drop(kind(MulticastData))
    group.send(A, *numbered(1, 5))
    group.receive(A, B, MulticastAck(4))
    group.receive(A, B, MulticastAck(2))
    assert group.sender(A).acks[B] == 4


def test_messages_are_purged_once_everybody_has_acked_them() -> None:
    group = Group(A, B, C, D)
    group.drop(kind(MulticastData))
    group.send(A, *numbered(1, 5))
    group.receive(A, B, MulticastAck(5))
    group.receive(A, C, MulticastAck(4))
    assert group[A].buffered_frames == 5  # D has said nothing yet
    group.receive(A, D, MulticastAck(3))
    assert group[A].buffered_frames == 2


def test_an_ack_that_does_not_raise_the_minimum_purges_nothing() -> None:
    group = Group(A, B, C)
    group.drop(kind(MulticastData))
    group.send(A, *numbered(1, 5))
    group.receive(A, B, MulticastAck(2))
    group.receive(A, C, MulticastAck(2))
    group.receive(A, B, MulticastAck(5))
    assert group.sender(A).window.low == 2


def test_purging_releases_senders_that_wait_for_space() -> None:
    group = Group(A, B, config=FOUR)
    group.drop(kind(MulticastData))
    group.send(A, *numbered(1, 6))
    assert group.effects(A, Admitted)[-1].through == 4
    group.receive(A, B, MulticastAck(1))
    assert group.effects(A, Admitted)[-1].through == 6


# Retransmission


def test_every_member_looks_at_its_windows_now_and_then_and_asks_the_sender_for_what_is_missing() -> None:
    group = Group(A, B, C)
    group.drop(both(data_of(2, 4), path(A, B)))
    group.batch(path(A, B), count=3)
    group.send(A, *numbered(1, 5))
    group.run_for(40 * MILLISECOND)
    requests = group.flights(kind(MulticastXmitRequest))
    assert {(request.source, request.to) for request in requests} == {(B, A)}
    assert requests[0].frame == MulticastXmitRequest(A.incarnation, ((2, 2), (4, 4)))


def test_each_window_with_a_gap_leads_to_a_request_of_its_own() -> None:
    group = Group(A, B, C)
    group.drop(both(data_of(1), lambda flight: flight.to == C))
    group.send(A, *numbered(1, 2))
    group.send(B, *numbered(1, 2))
    group.run_for(40 * MILLISECOND)
    requests = group.flights(kind(MulticastXmitRequest))
    assert {(request.source, request.to) for request in requests} == {(C, A), (C, B)}


def test_a_request_is_answered_with_the_message_to_the_asker() -> None:
    group = Group(A, B, C)
    group.send(A, *numbered(1, 3))
    group.run_for(ROUND_TRIP)
    before = len(group.log)
    group.receive(A, B, MulticastXmitRequest(A.incarnation, ((2, 2),)))
    assert [(flight.to, flight.frame) for flight in group.log[before:]] == [(B, data(A, 2))]


def test_a_request_may_be_answered_as_a_multicast() -> None:
    group = Group(A, B, C, D)
    group.send(A, *numbered(1, 3))
    group.run_for(ROUND_TRIP)
    group.receive(A, B, MulticastXmitRequest(A.incarnation, ((2, 2),)))
    before = len(group.log)
    group.receive(A, C, MulticastXmitRequest(A.incarnation, ((2, 2),)))
    assert [(flight.to, flight.frame) for flight in group.log[before:]] == [(to, data(A, 2)) for to in (B, C, D)]


# Views and digests


def test_a_view_removes_the_windows_of_those_who_are_no_members() -> None:
    group = Group(A, B, C)
    group.send(C, b"message 1")
    group.run_for(ROUND_TRIP)
    group.crash(C)
    group.install(A, B)
    assert group[A].receiver(C) is None
    assert group[A].buffered_frames == 0


def test_a_view_creates_windows_for_new_members() -> None:
    group = Group(A, B)
    group.start(C)
    group.install(A, B, C)
    group.send(C, b"message 1")
    group.run_until_quiet()
    for member in (A, B, C):
        assert group.inbox(member, C) == numbered(1, 1)


def test_the_window_of_a_new_member_starts_at_the_seqno_of_the_digest() -> None:
    group = Group(A, B)
    group.send(A, *numbered(1, 5))
    group.run_until_quiet()
    group.start(C)
    group.install(A, B, C, digest={A: 5, B: 0, C: 0})
    assert group.receiver(C, A).window.delivered == 5
    group.send(A, b"message 6")
    group.run_until_quiet()
    assert group.inbox(C, A) == numbered(6, 6)


# Numbering and sending as one step


def test_messages_leave_in_the_order_of_their_seqnos_so_nothing_is_asked_for_without_need() -> None:
    group = Group(A, B, C, config=MulticastConfig(capacity=4, body_bytes=64))
    for number in range(10):
        group.send(A, *(bytes([number]) * size for size in (1, 30, 200, 3)))  # waiting, packed and cut ones mixed
        group.run_for(MILLISECOND)
    group.run_until_quiet()
    seqnos = [flight.frame.seqno for flight in group.flights(path(A, B)) if isinstance(flight.frame, MulticastData)]
    assert seqnos == list(range(1, len(seqnos) + 1))
    assert group.counted(Count.REPAIR_ASKED) == 0
