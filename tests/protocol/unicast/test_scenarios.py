"""Scenarios that once broke systems of this kind, on a fake link: what is lost, late or repeated, and what then."""

from __future__ import annotations

from itertools import pairwise

import pytest

from motet.errors import PeerUnreachableError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Channel, Deliver, Frame, SendFailed, Transmit
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.unicast import UnicastConfig
from motet.protocol.unicast.sender import ConnectionState
from motet.protocol.wire.body import pack
from motet.protocol.wire.frames import Close, Sync, SyncAck, SyncOk, UnicastAck, UnicastData, UnicastXmitRequest
from tests.protocol.unicast.link import (
    NO_REAPING,
    A,
    B,
    C,
    Link,
    data,
    data_of,
    everything,
    first_data,
    kind,
    numbered,
    path,
)

# The first message


def test_first_message_lost_later_ones_are_kept_and_delivered_in_order_once() -> None:
    link = Link()
    link.drop(first_data, times=1)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert [len(link.times(data_of(seqno))) for seqno in (1, 2, 3)] == [2, 1, 1]  # 2 and 3 were kept, not sent again
    assert link.is_in_step(A, B)


def test_first_message_lost_again_and_again_is_delivered_once_it_gets_through() -> None:
    link = Link()
    link.drop(data_of(1), times=5)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.is_in_step(A, B)


def test_the_only_message_lost_is_resent_as_a_first_message_without_a_sync() -> None:
    link = Link()
    link.drop(first_data, times=1)
    link.send(A, B, b"alone")
    link.run_until_quiet()
    assert link.inbox(B, A) == [b"alone"]
    assert link.kinds() == {"UnicastData": 2, "UnicastAck": 1}


def test_first_message_lost_when_its_sender_takes_the_last_place_among_the_peers() -> None:
    """A pending SYNC holds its peer's place; counted against the peer, it would refuse the window that it asks for."""
    link = Link(config=UnicastConfig(conn_expiry_ns=0, max_peers=1))
    link.drop(first_data, times=1)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)


def test_first_message_late_when_its_sender_takes_the_last_place_among_the_peers() -> None:
    link = Link(config=UnicastConfig(conn_expiry_ns=0, max_peers=1))
    link.delay(first_data, by_ns=5 * MILLISECOND)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.counters[B][Count.CONNECTION_REFUSED] == 0


# The last message


def test_last_message_lost_the_highest_is_resent_after_two_runs_of_the_task_and_delivered() -> None:
    link = Link()
    link.drop(data_of(3), times=1)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.kinds() == {"UnicastData": 4, "UnicastAck": 2}  # no request: the sender noticed by itself
    sent_at, resent_at = link.times(data_of(3))
    assert resent_at - sent_at >= 2 * NO_REAPING.ack_max_ns  # the ack of 1 and 2 moved HA: the first run only looks
    assert link.is_in_step(A, B)


def test_all_but_the_first_message_lost_the_highest_alone_brings_back_the_rest() -> None:
    link = Link()
    link.drop(data_of(2, 3, 4, 5), times=4)
    link.send(A, B, *numbered(1, 5))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 5)
    assert [len(link.times(data_of(seqno))) for seqno in range(1, 6)] == [1, 2, 2, 2, 2]
    assert link.frames(B, UnicastXmitRequest) == [UnicastXmitRequest(101, ((2, 4),))]


# The ack


def test_ack_lost_no_endless_resending_and_the_window_drains() -> None:
    link = Link()
    link.drop(kind(UnicastAck), times=1)
    link.send(A, B, b"once")
    link.run_until_quiet()
    assert link.inbox(B, A) == [b"once"]
    assert link.kinds() == {"UnicastData": 2, "UnicastAck": 2}
    assert link.is_in_step(A, B)


def test_many_acks_lost_resending_slows_down_and_ends_with_the_first_ack_that_arrives() -> None:
    link = Link()
    link.drop(kind(UnicastAck), times=16)
    link.send(A, B, b"once")
    link.run_until_quiet()
    assert link.inbox(B, A) == [b"once"]
    assert link.kinds() == {"UnicastData": 17, "UnicastAck": 17}
    sent = link.times(kind(UnicastData))
    waits = [later - earlier for earlier, later in pairwise(sent)]
    assert waits == sorted(waits)
    assert waits[-1] == NO_REAPING.xmit_interval_ns + NO_REAPING.ack_max_ns


# The second before the first


def test_second_message_arrives_alone_before_the_first_nothing_lost_nothing_twice_and_nothing_asked_for() -> None:
    link = Link()
    link.delay(first_data, by_ns=10 * MILLISECOND)
    link.send(A, B, *numbered(1, 2))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 2)
    assert link.kinds() == {"UnicastData": 2, "UnicastAck": 1}


def test_second_message_arrives_with_the_first_behind_it_in_one_batch() -> None:
    link = Link()
    late = link.collect(kind(UnicastData))
    link.send(A, B, *numbered(1, 2))
    assert link.bring(reversed(late)) == [
        Deliver(Channel.UNICAST, A, 1, (pack(numbered(1, 1)), pack(numbered(2, 2)))),
        Transmit(A, UnicastAck(101, 2)),
    ]


@pytest.mark.parametrize("delay_ms", [31, 32, 33, 34, 100, 1_000, 7_000])
def test_first_message_comes_so_late_that_a_sync_has_overtaken_it(delay_ms: int) -> None:
    link = Link()
    link.delay(first_data, by_ns=delay_ms * MILLISECOND, times=1)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert link.frames(B, Sync)
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.is_in_step(A, B)


# Connections that come and go


def closed_by_sender(link: Link) -> None:
    """A closes its connection to B and lets it go."""
    link.perform(A, link[A].close(B, link.now))
    link.run_until_quiet()
    assert link[A].sender(B) is None


def test_sender_closes_and_reopens_while_the_receiver_kept_its_side() -> None:
    link = Link()
    link.drop(kind(Close))
    link.send(A, B, *numbered(1, 2))
    link.run_until_quiet()
    closed_by_sender(link)
    assert link.receiver(B, A).conn_id == 101
    link.send(A, B, *numbered(3, 4))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 4)
    assert link.receiver(B, A).conn_id == 102
    assert not link.frames(B, Sync)
    assert link.is_in_step(A, B)


def test_close_arrives_after_the_messages_of_the_reopened_connection_and_closes_nothing() -> None:
    link = Link()
    link.delay(kind(Close), by_ns=SECOND)
    link.send(A, B, *numbered(1, 2))
    link.run_until_quiet()
    link.perform(A, link[A].close(B, link.now))
    link.run_for(NO_REAPING.conn_close_ns)
    link.send(A, B, b"message 3")
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.is_in_step(A, B)


@pytest.mark.parametrize("is_close_lost", [False, True])
def test_first_message_of_a_reopened_connection_lost_resync_and_all_delivered(is_close_lost: bool) -> None:
    link = Link()
    if is_close_lost:
        link.drop(kind(Close))
    link.send(A, B, *numbered(1, 2))
    link.run_until_quiet()
    closed_by_sender(link)
    link.drop(first_data, times=1)
    link.send(A, B, *numbered(3, 5))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 5)
    assert (len(link.frames(B, Sync)), len(link.frames(A, SyncOk)), len(link.frames(B, SyncAck))) == (1, 1, 1)
    assert link.is_in_step(A, B)


def test_both_sides_close_at_once_and_reopen() -> None:
    link = Link()
    link.send(A, B, *numbered(1, 2))
    link.send(B, A, *numbered(11, 12))
    link.run_until_quiet()
    for member, peer in ((A, B), (B, A)):
        link.perform(member, link[member].close(peer, link.now))
    link.run_until_quiet()
    assert (link[A].receiver(B), link[B].receiver(A)) == (None, None)
    link.send(A, B, *numbered(3, 4))
    link.send(B, A, *numbered(13, 14))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 4)
    assert link.inbox(A, B) == numbered(11, 14)


# Asymmetric split


def test_receiver_dropped_its_window_while_the_sender_kept_sending() -> None:
    link = Link()
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    link.drop(everything)
    link.send(A, B, *numbered(4, 5))
    link.perform(B, link[B].close_receiver(A, link.now))
    link.run_for(SECOND)
    link.heal()
    link.send(A, B, b"message 6")
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 6)
    assert link.sender(A, B).window.low == link.receiver(B, A).window.low == 6
    assert link.is_in_step(A, B)


def test_receiver_dropped_its_window_with_its_acks_lost_and_delivers_nothing_twice() -> None:
    link = Link()
    link.drop(path(B, A))
    link.send(A, B, *numbered(1, 3))
    link.run_for(10 * MILLISECOND)
    link.perform(B, link[B].close_receiver(A, link.now))
    assert link.sender(A, B).window.low == 0  # the sender knows of no delivery
    link.run_for(SECOND)
    link.heal()
    link.send(A, B, b"message 4")
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 4)
    assert link.is_in_step(A, B)


def test_receiver_that_drops_its_window_again_and_again_loses_and_repeats_nothing() -> None:
    link = Link()
    for number in range(1, 21):
        link.send(A, B, *numbered(number, number))
        link.run_for(number * MILLISECOND)
        link.perform(B, link[B].close_receiver(A, link.now))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 20)


# SYNC


def test_late_ack_of_the_old_connection_after_a_sync_is_ignored_and_nothing_is_purged() -> None:
    link = Link()
    late = link.collect(kind(UnicastAck), times=1)
    link.send(A, B, *numbered(1, 2))
    link.run_for(2 * MILLISECOND)
    link.drop(kind(UnicastAck))
    link.perform(B, link[B].sync(A, link.now))
    link.run_for(5 * MILLISECOND)
    assert link.sender(A, B).conn_id == 102
    assert not link.sender(A, B).is_syncing
    assert link.bring(late) == []
    assert link.sender(A, B).window.low == 0
    assert link.counters[A][Count.ACK_OF_OLD_CONNECTION] == 1
    link.heal()
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 2)
    assert link.is_in_step(A, B)


@pytest.mark.parametrize("lost", [Sync, SyncOk, SyncAck])
def test_sync_or_its_answer_lost_once_is_resent_by_the_retransmission_task(lost: type[Frame]) -> None:
    link = Link()
    link.drop(first_data, times=1)
    link.drop(kind(lost), times=1)
    link.send(A, B, *numbered(1, 3))
    link.run_until_quiet()
    assert len(link.times(kind(lost))) == 2
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.is_in_step(A, B)


@pytest.mark.parametrize("lost", [Sync, SyncOk, SyncAck])
def test_sync_on_an_idle_connection_or_its_answer_lost_once_is_resent(lost: type[Frame]) -> None:
    link = Link()
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    link.drop(kind(lost), times=1)
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    assert len(link.times(kind(lost))) == 2
    assert link.is_in_step(A, B)


@pytest.mark.parametrize("lost", [Sync, SyncOk, SyncAck])
def test_sync_or_its_answer_that_never_arrives_is_bounded_by_the_timeout(lost: type[Frame]) -> None:
    link = Link()
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    link.drop(kind(lost))
    started_at = link.now
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    assert link.now <= started_at + NO_REAPING.sync_timeout_ns + 2 * MILLISECOND
    assert len(link.times(kind(lost))) > 2
    assert not link.sender(A, B).is_syncing
    assert not link[B].is_syncing(A)


@pytest.mark.parametrize("lost", [Sync, SyncOk, SyncAck])
def test_messages_flow_again_after_a_sync_that_ended_by_its_timeout(lost: type[Frame]) -> None:
    link = Link()
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    link.drop(kind(lost))
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    link.heal()
    link.send(A, B, *numbered(2, 3))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.is_in_step(A, B)


def test_a_second_sync_brings_both_ends_in_step_after_the_first_one_ended_by_its_timeout() -> None:
    """The receiver still names the id from before the first SYNC, as a late SYNC would."""
    link = Link()
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    link.drop(kind(SyncOk))
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    link.heal()
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    assert link.is_in_step(A, B)


def test_late_sync_ok_of_an_earlier_sync_does_not_take_the_connection_back_to_an_older_id() -> None:
    link = Link()
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    for _ in range(2):
        link.perform(B, link[B].sync(A, link.now))
        link.run_until_quiet()
    late, latest = link.frames(A, SyncOk)
    assert link.receiver(B, A).conn_id == latest.conn_id
    link.perform(B, link[B].sync(A, link.now))
    link.receive(B, A, [late])  # once more, while a third SYNC is on its way
    assert link.receiver(B, A).conn_id == latest.conn_id
    link.run_until_quiet()
    assert link.is_in_step(A, B)


def test_duplicated_sync_frames_of_every_kind_end_in_step() -> None:
    link = Link(batching=False)
    link.duplicate(kind(Sync, SyncOk, SyncAck), copies=3)
    link.drop(first_data, times=1)
    link.send(A, B, *numbered(1, 4))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 4)
    assert link.is_in_step(A, B)


def test_window_that_is_replaced_in_a_sync_is_not_forgotten_even_if_no_closed_window_is_remembered() -> None:
    """`remembered_peers` is about windows that were closed; the one at hand has delivered what it has delivered."""
    link = Link(config=UnicastConfig(conn_expiry_ns=0, remembered_peers=0))
    link.drop(kind(UnicastAck), times=1)
    link.drop(kind(SyncOk), times=3)
    link.send(A, B, b"message 1")
    link.run_for(10 * MILLISECOND)
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()  # A resends message 1 as the first of connection 102
    assert link.inbox(B, A) == [b"message 1"]


def test_forgetful_receiver_whose_window_reopens_below_what_it_acked_does_not_ask_forever() -> None:
    """Nothing is remembered here, so a repeated first message opens a window at the bottom; what follows is gone."""
    link = Link(config=UnicastConfig(conn_expiry_ns=0, remembered_peers=0))
    late = link.collect(first_data, times=1)
    link.send(A, B, b"message 1")
    link.bring(late)
    link.send(A, B, *numbered(2, 3))
    link.run_until_quiet()
    link.perform(B, link[B].close_receiver(A, link.now))
    link.bring(late)
    link.send(A, B, b"message 4")
    link.run_until_quiet()
    assert link.inbox(B, A) == [*numbered(1, 3), b"message 1", b"message 4"]
    assert link.is_in_step(A, B)


# Batches


@pytest.mark.parametrize("order", [1, -1])
def test_one_batch_holds_messages_of_two_conn_ids_only_the_current_ones_are_delivered(order: int) -> None:
    link = Link()
    link.receive(B, A, [data(101, 1, first=True)])
    batch = [data(101, 2), data(102, 3, first=True), data(102, 4)][::order]
    effects = link.receive(B, A, batch)
    assert [effect for effect in effects if isinstance(effect, Deliver)] == [
        Deliver(Channel.UNICAST, A, 3, (pack(numbered(3, 3)), pack(numbered(4, 4))))
    ]
    assert link.inbox(B, A) == numbered(1, 1) + numbered(3, 4)
    assert link.counters[B][Count.FRAME_OF_OLD_CONNECTION] == 1


def test_one_batch_holds_leftovers_of_a_replaced_connection_and_they_are_dropped() -> None:
    link = Link()
    link.receive(B, A, [data(101, 1, first=True)])
    link.receive(B, A, [data(102, 3, first=True)])
    link.receive(B, A, [data(101, 1, first=True), data(101, 2), data(102, 4)])
    assert link.inbox(B, A) == [b"message 1", b"message 3", b"message 4"]
    assert link.counters[B][Count.FRAME_OF_OLD_CONNECTION] == 2
    assert link.receiver(B, A).conn_id == 102


@pytest.mark.parametrize("batching", [True, False])
def test_many_duplicates_of_the_first_message_at_once_are_delivered_once(batching: bool) -> None:
    link = Link(batching=batching)
    link.duplicate(first_data, copies=50)
    link.send(A, B, b"once")
    link.run_until_quiet()
    assert link.inbox(B, A) == [b"once"]
    assert len(link.frames(B, UnicastAck)) <= 2
    assert link.is_in_step(A, B)


def test_many_duplicates_of_the_first_message_in_one_batch_have_one_delivery_and_one_ack() -> None:
    link = Link()
    assert link.receive(B, A, [data(101, 1, b"once", first=True)] * 50) == [
        Deliver(Channel.UNICAST, A, 1, (pack([b"once"]),)),
        Transmit(A, UnicastAck(101, 1)),
    ]


# Peers that leave, or never were


def test_sender_waits_on_a_full_window_the_peer_leaves_and_the_sender_is_released_with_a_clear_error() -> None:
    link = Link(config=UnicastConfig(capacity=2, conn_expiry_ns=0))
    link.drop(path(B, A))
    link.send(A, B, *numbered(1, 5))
    link.run_for(10 * MILLISECOND)
    effects = link.perform(A, link[A].remove(B, link.now))
    failure = effects[-1]
    assert isinstance(failure, SendFailed)
    assert (failure.channel, failure.to, failure.first, failure.last) == (Channel.UNICAST, B, 1, 5)
    assert isinstance(failure.error, PeerUnreachableError)
    assert str(failure.error) == f"{B} left before it had acknowledged all messages"
    assert link[A].sender(B) is None
    assert link[A].next_deadline() is None
    assert link[A].buffered_frames == 0


def test_address_that_never_becomes_a_member_its_state_is_removed_in_bounded_time() -> None:
    link = Link(A)
    link.send(A, C, *numbered(1, 3))
    link.run_until_quiet(NO_REAPING.give_up_ns + NO_REAPING.xmit_interval_ns + NO_REAPING.ack_max_ns)
    failure = link.told[A][-1]
    assert isinstance(failure, SendFailed)
    assert (failure.to, failure.first, failure.last) == (C, 1, 3)
    assert isinstance(failure.error, PeerUnreachableError)
    assert "silent for 60.000 s" in str(failure.error)
    assert link[A].sender(C) is None
    assert link[A].buffered_frames == 0
    assert len(link.log) < 10 + NO_REAPING.give_up_ns // NO_REAPING.xmit_interval_ns


def test_stranger_whose_first_message_never_comes_is_forgotten_in_bounded_time() -> None:
    link = Link(B)
    link.receive(B, A, [data(101, 7)])
    assert link[B].buffered_frames == 1
    link.run_until_quiet(NO_REAPING.sync_timeout_ns)
    assert {frame.conn_id for frame in link.frames(B, Sync)} == {101}
    assert not link[B].is_syncing(A)
    assert link[B].receiver(A) is None
    assert link[B].buffered_frames == 0


# CLOSING


def test_message_sent_on_a_closing_connection_opens_it_again_and_is_delivered() -> None:
    link = Link()
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    link.perform(A, link[A].close(B, link.now))
    link.run_for(NO_REAPING.conn_close_ns - 1)
    assert link.sender(A, B).state is ConnectionState.CLOSING
    link.send(A, B, b"message 2")
    assert link.sender(A, B).state is ConnectionState.OPEN
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 2)
    assert link.sender(A, B).conn_id == 101
    assert not link.frames(A, Close)


@pytest.mark.parametrize("lost", [UnicastAck, UnicastData])
def test_idle_connection_expires_while_an_ack_is_outstanding_and_is_flushed_before_it_is_closed(
    lost: type[Frame],
) -> None:
    link = Link(config=UnicastConfig(conn_expiry_ns=SECOND, conn_close_ns=SECOND))
    link.drop(kind(lost))
    link.send(A, B, *numbered(1, 3))
    link.run_for(6 * SECOND)  # expired, and CLOSING for far longer than the close timeout
    assert link.sender(A, B).state is ConnectionState.CLOSING
    assert not link.frames(A, Close)
    link.heal()
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert not any(isinstance(effect, SendFailed) for effect in link.told[A])
    assert [frame.conn_id for frame in link.frames(A, Close)] == [link.frames(A, UnicastData)[-1].conn_id]
    assert link[A].sender(B) is None
    assert link[B].receiver(A) is None


# Oneself


def test_messages_to_oneself_keep_order_and_guarantees() -> None:
    link = Link(A)
    link.drop(data_of(1, 3, 6), times=3)
    link.drop(kind(UnicastAck), times=1)
    link.duplicate(data_of(2, 4))
    link.send(A, A, *numbered(1, 6))
    link.run_until_quiet()
    assert link.inbox(A, A) == numbered(1, 6)
    assert link.is_in_step(A, A)


def test_messages_to_oneself_survive_a_close_of_both_ends() -> None:
    link = Link(A)
    link.send(A, A, *numbered(1, 2))
    link.run_until_quiet()
    link.perform(A, link[A].close(A, link.now))
    link.run_until_quiet()
    assert (link[A].sender(A), link[A].receiver(A)) == (None, None)
    link.send(A, A, *numbered(3, 4))
    link.run_until_quiet()
    assert link.inbox(A, A) == numbered(1, 4)


# More of the same kind


def test_every_data_frame_duplicated_and_acks_crossing_deliver_once_in_both_directions() -> None:
    link = Link(batching=False)
    link.duplicate(everything, copies=3)
    for number in range(1, 11):
        link.send(A, B, *numbered(number, number))
        link.send(B, A, *numbered(number, number))
    link.run_until_quiet()
    assert link.inbox(B, A) == link.inbox(A, B) == numbered(1, 10)


def test_batches_that_arrive_in_reverse_order_deliver_in_order_once() -> None:
    link = Link()
    late = link.collect(kind(UnicastData))
    link.send(A, B, *numbered(1, 20))
    link.heal()
    for flight in reversed(late):
        link.bring([flight])
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 20)
    assert link.is_in_step(A, B)


def test_reordering_alone_asks_for_no_retransmission() -> None:
    link = Link()
    link.send(A, B, b"message 1")
    link.run_until_quiet()
    link.delay(data_of(2, 5, 8), by_ns=5 * MILLISECOND)
    link.send(A, B, *numbered(2, 9))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 9)
    assert not link.frames(B, UnicastXmitRequest)
    assert link.counters[A][Count.FRAME_RESENT] == 0


def test_large_message_survives_the_loss_of_every_third_frame() -> None:
    link = Link(config=UnicastConfig(capacity=8, body_bytes=64, conn_expiry_ns=0))
    link.drop(data_of(*range(1, 100, 3)), times=33)
    large = bytes(range(256)) * 16
    link.send(A, B, large, b"small")
    link.run_until_quiet()
    assert link.inbox(B, A) == [large, b"small"]


def test_receiver_with_a_smaller_window_than_its_sender_makes_progress() -> None:
    link = Link()
    link.machines[B] = Link(B, config=UnicastConfig(capacity=4, conn_expiry_ns=0)).machines[B]
    link.send(A, B, *numbered(1, 40))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 40)
    assert link.is_in_step(A, B)


def test_one_peer_that_is_cut_off_slows_nobody_else() -> None:
    link = Link(A, B, C)
    link.drop(path(A, C))
    link.send(A, C, *numbered(1, 3))
    link.send(A, B, *numbered(1, 3))
    link.run_for(2 * MILLISECOND)
    assert link.inbox(B, A) == numbered(1, 3)
    assert link.sender(A, B).is_flushed
    assert not link.sender(A, C).is_flushed


def test_peer_that_failed_and_came_back_gets_only_what_was_accepted_afterwards() -> None:
    link = Link()
    link.drop(everything)
    link.send(A, B, *numbered(1, 3))
    link.perform(A, link[A].remove(B, link.now))
    link.heal()
    link.send(A, B, *numbered(4, 5))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(4, 5)
    assert link.frames(A, UnicastData)[-1].seqno == 5  # numbering went on, so no late frame can be mistaken


def test_same_inputs_give_the_same_frames_at_the_same_times() -> None:
    def run() -> Link:
        link = Link(A, B, C)
        link.drop(data_of(1, 4), times=3)
        link.delay(kind(UnicastAck), by_ns=7 * MILLISECOND, times=2)
        for peer in (B, C):
            link.send(A, peer, *numbered(1, 9))
        link.run_until_quiet()
        return link

    assert run().log == run().log
