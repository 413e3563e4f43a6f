"""The rules of the JGroups notes UNICAST3 and UNICAST3-SYNC, one test each, in other words."""

from __future__ import annotations

from itertools import pairwise

import pytest

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect, Frame, SendFailed, Transmit
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.unicast import UnicastConfig
from motet.protocol.unicast.sender import ConnectionState
from motet.protocol.wire.frames import Close, Sync, SyncAck, SyncOk, UnicastAck, UnicastData, UnicastXmitRequest
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
from tests.protocol.unicast.link import (
    NO_REAPING,
    A,
    B,
    Link,
    data,
    data_of,
    everything,
    first_data,
    kind,
    numbered,
    path,
)

# unicast3: what it is for


def test_note_sender_lets_go_of_a_message_as_soon_as_it_is_acked() -> None:
    """An ack frees the sender's memory at once."""
    unicast = sending(3)
    unicast.receive(B, [UnicastAck(101, 2)], 1)
    assert unicast.buffered_frames == 1


def test_note_acks_are_fewer_than_messages() -> None:
    """Ack traffic is kept low."""
    link = Link()
    for number in range(1, 101):
        link.send(A, B, *numbered(number, number))
        link.run_for(100_000)
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 100)
    assert len(link.frames(B, UnicastAck)) <= 4  # ten milliseconds, five between acks


def test_note_late_ack_causes_no_needless_resending() -> None:
    """An ack that is merely delayed does not make the sender repeat itself."""
    link = Link()
    link.delay(kind(UnicastAck), by_ns=30 * MILLISECOND)
    link.send(A, B, *numbered(1, 5))
    link.run_until_quiet()
    assert link.counters[A][Count.FRAME_RESENT] == 0


@pytest.mark.parametrize("lost", [1, 5])
def test_note_neither_the_first_nor_the_last_message_is_a_problem_when_lost(lost: int) -> None:
    """First or last message lost: no trouble."""
    link = Link()
    link.drop(data_of(lost), times=1)
    link.send(A, B, *numbered(1, 5))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 5)


def test_note_pending_messages_are_flushed_when_a_connection_is_closed() -> None:
    """Closing and sending at the same time loses nothing, because what is pending is flushed first."""
    link = Link()
    link.drop(everything, times=3)
    link.send(A, B, *numbered(1, 3))
    link.perform(A, link[A].close(B, link.now))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 3)
    assert link[A].sender(B) is None


# unicast3: seqnos and acks


def test_note_seqnos_rise_by_one() -> None:
    """The sender numbers its messages, each number above the one before."""
    link = Link()
    link.send(A, B, *numbered(1, 10))
    assert [frame.seqno for frame in link.frames(A, UnicastData)] == list(range(1, 11))


def test_note_a_batch_of_20_to_50_has_the_single_ack_50() -> None:
    """The ack goes out when the whole batch was handled."""
    unicast = receiving(19)
    effects = unicast.receive(A, [data(101, seqno) for seqno in range(20, 51)], SECOND)
    assert effects == [delivery(20, 50), *to_a(UnicastAck(101, 50))]


def test_note_ack_50_removes_everything_up_to_50() -> None:
    """Acks are cumulative."""
    unicast = sending(60)
    unicast.receive(B, [UnicastAck(101, 50)], 1)
    assert unicast.buffered_frames == 10
    connection = unicast.sender(B)
    assert connection is not None
    assert [connection.window[seqno] is None for seqno in (1, 50, 51)] == [True, True, False]


def test_note_of_seven_acks_in_a_second_only_three_are_sent() -> None:
    """5, 8, 13, 52, 62, 83 and 101 within one second, half a second between acks: most are left out."""
    config = UnicastConfig(capacity=1_024, ack_min_ns=500 * MILLISECOND, ack_max_ns=500 * MILLISECOND, conn_expiry_ns=0)
    unicast = machine(B, config)
    acks: list[int] = []
    last = 0
    for highest, milliseconds in ((5, 0), (8, 150), (13, 300), (52, 450), (62, 600), (83, 750), (101, 900)):
        now = milliseconds * MILLISECOND
        effects = [effect for _, done in ticks(unicast, now) for effect in done]
        effects += unicast.receive(
            A, [data(101, seqno, first=seqno == 1) for seqno in range(last + 1, highest + 1)], now
        )
        acks += [e.frame.seqno for e in effects if isinstance(e, Transmit) and isinstance(e.frame, UnicastAck)]
        last = highest
    assert acks == [5, 52]
    assert ticks(unicast, 2 * SECOND) == [(SECOND, to_a(UnicastAck(101, 101)))]


def test_note_delayed_ack_is_sent_by_the_task_of_the_receiver() -> None:
    """Nothing else needs to arrive for an ack that was put off."""
    unicast = receiving(1)
    unicast.receive(A, [data(101, 2)], 1)
    assert ticks(unicast, SECOND) == [(NO_REAPING.ack_min_ns, to_a(UnicastAck(101, 2)))]


# unicast3: retransmission


def test_note_with_45_acked_and_50_sent_the_second_run_resends_50_and_only_50() -> None:
    """The highest is resent when the task finds HA below HS and both as they were on its previous run."""
    unicast = sending(50)
    unicast.tick(TASK_NS)
    unicast.receive(B, [UnicastAck(101, 45)], TASK_NS + 1)
    runs: list[list[Effect]] = []
    while len(runs) < 2:
        due = unicast.next_deadline()
        assert due is not None
        runs.append(unicast.tick(due))
    assert runs == [[], to_b(data(101, 50))]


def test_note_missing_46_and_48_are_asked_for_once_50_shows_them_and_then_50_is_acked() -> None:
    """The resent 50 shows the receiver its gaps; it asks for these only, acks 50, and the sender is at rest.

    (The note says that 46 and 47 are sent in answer; 48 is meant.)
    """
    link = Link()
    link.send(A, B, *numbered(1, 45))
    link.run_until_quiet()
    link.drop(data_of(46, 48, 50), times=3)
    link.send(A, B, *numbered(46, 50))
    link.run_until_quiet()
    assert link.frames(B, UnicastXmitRequest) == [UnicastXmitRequest(101, ((46, 46), (48, 48)))]
    assert [len(link.times(data_of(seqno))) for seqno in (46, 47, 48, 49)] == [2, 1, 2, 1]
    assert link.inbox(B, A) == numbered(1, 50)
    assert link.frames(B, UnicastAck)[-1] == UnicastAck(101, 50)
    assert link.is_in_step(A, B)


def test_note_nothing_is_resent_when_all_that_was_sent_is_acked() -> None:
    """HA equals HS: the task has nothing to do."""
    unicast = sending(50)
    unicast.receive(B, [UnicastAck(101, 50)], 1)
    assert ticks(unicast, 60 * SECOND) == []


def test_note_there_is_a_longest_time_until_an_ack() -> None:
    """Every delivery is acked within a known time."""
    unicast = receiving(1)
    for seqno in range(2, 50):
        now = seqno * MILLISECOND
        ticks(unicast, now)
        unicast.receive(A, [data(101, seqno)], now)
        due = unicast.next_deadline()
        assert due is None or due <= now + NO_REAPING.ack_max_ns


def test_note_there_is_a_longest_time_until_a_message_is_resent() -> None:
    """A message that nobody acks is sent again within a known time, again and again."""
    unicast = sending(1)
    times = [0] + [when for when, _ in ticks(unicast, 50 * SECOND)]
    longest = NO_REAPING.xmit_interval_ns + NO_REAPING.ack_max_ns
    assert all(later - earlier <= longest for earlier, later in pairwise(times))
    assert times[-1] > 50 * SECOND - longest


# unicast3: connections


def test_note_closed_connection_is_not_removed_but_closing() -> None:
    """Closing takes its time."""
    unicast = sending(1)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    assert unicast.close(B, 1) == []
    assert sender_state(unicast) is ConnectionState.CLOSING


def test_note_closing_connection_is_still_retransmitted_while_acked_is_below_sent() -> None:
    """The task goes on flushing in CLOSING."""
    unicast = sending(2)
    unicast.close(B, 0)
    assert ticks(unicast, 2 * TASK_NS) == [(2 * TASK_NS, to_b(data(101, 2)))]


def test_note_closing_connection_without_activity_is_closed_and_removed_by_the_task() -> None:
    """After the time lag the entry goes, and the target hears CLOSE."""
    unicast = sending(1)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    unicast.close(B, 0)
    assert ticks(unicast, NO_REAPING.conn_close_ns) == [(NO_REAPING.conn_close_ns, to_b(Close(101)))]
    assert unicast.sender(B) is None


def test_note_message_on_a_closing_connection_reverts_it_to_open_with_a_new_timestamp() -> None:
    """A message within the time lag means that the connection is still used."""
    unicast = sending(1, REAPING)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    unicast.close(B, 0)
    now = REAPING.conn_close_ns - 1
    unicast.send(B, [b"x"], now)
    unicast.receive(B, [UnicastAck(101, 2)], now)
    assert ticks(unicast, now + REAPING.conn_expiry_ns - 1) == []
    assert sender_state(unicast) is ConnectionState.OPEN


def test_note_message_after_closed_opens_a_new_connection() -> None:
    """A closed entry counts as none: the next message makes a new one."""
    unicast = sending(1)
    unicast.receive(B, [UnicastAck(101, 1)], 0)
    unicast.close(B, 0)
    ticks(unicast, NO_REAPING.conn_close_ns)
    assert unicast.send(B, [b"message 2"], 40 * SECOND)[0] == Transmit(B, data(102, 2, first=True))


def test_note_close_with_the_same_conn_id_removes_the_receivers_entry() -> None:
    """CLOSE is for the connection that it names."""
    unicast = receiving(1)
    assert unicast.receive(A, [Close(101)], 1) == []
    assert unicast.receiver(A) is None


@pytest.mark.parametrize("conn_id", [100, 102])
def test_note_close_with_another_conn_id_removes_nothing(conn_id: int) -> None:
    """CLOSE is for the connection that it names, and for no other."""
    unicast = receiving(1)
    unicast.receive(A, [Close(conn_id)], 1)
    assert receiver_state(unicast) is ConnectionState.OPEN


def test_note_message_for_an_entry_that_was_closed_is_taken_as_if_there_were_none() -> None:
    """CLOSED counts the same as no entry at all."""
    unicast = receiving(1)
    unicast.receive(A, [Close(101)], 1)
    assert unicast.receive(A, [data(102, 2, first=True)], SECOND) == [delivery(2, 2), *to_a(UnicastAck(102, 2))]


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_note_first_message_of_a_batch_is_added_before_the_rest_wherever_it_stands(position: int) -> None:
    """A batch is searched for the first message, which goes in first."""
    unicast = machine(B)
    batch = [data(101, seqno) for seqno in (2, 3, 4)]
    batch.insert(position, data(101, 1, first=True))
    assert unicast.receive(A, batch, 0) == [delivery(1, 4), *to_a(UnicastAck(101, 4))]


def test_note_question_for_the_first_seqno_is_not_sent_at_once_but_by_the_task() -> None:
    """Asking is left to the retransmission task, for the first message may just be late."""
    unicast = machine(B)
    assert unicast.receive(A, [data(101, 2), data(101, 3)], 0) == []
    assert ticks(unicast, TIMEOUT_NS) == [(TIMEOUT_NS, to_a(Sync(101, SYNC_ID)))]


def test_note_question_for_the_first_seqno_is_not_answered_with_all_messages() -> None:
    """The answer is short; the rest is asked for, or resent anyway."""
    unicast = sending(50)
    assert len(unicast.receive(B, [Sync(101, SYNC_ID)], 1)) == 1


def test_note_expired_connection_is_closing_when_reaping_is_enabled() -> None:
    """Both ends: OPEN and idle for the expiry time, then CLOSING with a new timestamp."""
    sender, receiver = sending(1, REAPING), receiving(1, REAPING)
    sender.receive(B, [UnicastAck(101, 1)], 0)
    for unicast in (sender, receiver):
        assert ticks(unicast, REAPING.conn_expiry_ns) == []
        assert unicast.next_deadline() == REAPING.conn_expiry_ns + REAPING.conn_close_ns
    assert (sender_state(sender), receiver_state(receiver)) == (ConnectionState.CLOSING, ConnectionState.CLOSING)


def test_note_expired_connection_stays_open_when_reaping_is_disabled() -> None:
    """An expiry time of zero disables reaping."""
    sender, receiver = sending(1), receiving(1)
    sender.receive(B, [UnicastAck(101, 1)], 0)
    for unicast in (sender, receiver):
        assert unicast.tick(10_000 * SECOND) == []
    assert (sender_state(sender), receiver_state(receiver)) == (ConnectionState.OPEN, ConnectionState.OPEN)


def test_note_only_a_sender_says_close_when_the_close_timeout_has_expired() -> None:
    """Both entries are removed; CLOSE is sent for the sender's only."""
    sender, receiver = sending(1), receiving(1)
    sender.receive(B, [UnicastAck(101, 1)], 0)
    sender.close(B, 0)
    receiver.close(A, 0)
    assert ticks(sender, 60 * SECOND) == [(NO_REAPING.conn_close_ns, to_b(Close(101)))]
    assert ticks(receiver, 60 * SECOND) == []
    assert (sender_state(sender), receiver_state(receiver)) == (ConnectionState.CLOSED, ConnectionState.CLOSED)


# unicast3-sync


def test_note_asymmetric_split_heals_with_one_sync_exchange() -> None:
    """B closed its window, A did not: when the network heals, one short exchange puts them in step."""
    link = Link()
    link.send(A, B, *numbered(1, 20))
    link.run_until_quiet()
    link.perform(B, link[B].close_receiver(A, link.now))
    link.send(A, B, *numbered(21, 40))
    link.run_until_quiet()
    assert link.inbox(B, A) == numbered(1, 40)
    assert (link.kinds()["Sync"], link.kinds()["SyncOk"], link.kinds()["SyncAck"]) == (1, 1, 1)
    assert link.counters[A][Count.FRAME_RESENT] == 0  # B kept what it got while it asked


def test_note_delayed_ack_cannot_purge_what_the_receiver_has_not_seen_since_its_sync() -> None:
    """Why there is a new conn-id: the receiver starts at low again, and an ack from before the SYNC must not count."""
    unicast = sending(3)
    unicast.receive(B, [Sync(101, SYNC_ID)], 1)
    unicast.receive(B, [SyncAck(102)], 2)
    unicast.receive(B, [UnicastAck(101, 3)], 3)
    assert counted(unicast, Count.ACK_OF_OLD_CONNECTION) == 1
    effects = unicast.receive(B, [UnicastXmitRequest(102, ((1, 3),))], 4)
    assert effects == to_b(data(102, 1, first=True), data(102, 2), data(102, 3))


def test_note_message_without_a_receive_window_makes_the_receiver_send_sync() -> None:
    """No window for the sender: SYNC."""
    unicast = machine(B)
    unicast.receive(A, [data(101, 7)], 0)
    assert ticks(unicast, TIMEOUT_NS) == [(TIMEOUT_NS, to_a(Sync(101, SYNC_ID)))]


def test_note_message_with_another_conn_id_makes_the_receiver_send_sync() -> None:
    """A window, but of another conn-id: SYNC."""
    unicast = receiving(1)
    unicast.receive(A, [data(105, 7)], 0)
    assert ticks(unicast, TIMEOUT_NS) == [(TIMEOUT_NS, to_a(Sync(105, SYNC_ID)))]


def test_note_sync_gives_the_send_window_a_new_conn_id_and_is_answered_with_low_and_conn_id() -> None:
    """On SYNC the sender takes a new conn-id and says where its window begins."""
    unicast = sending(5)
    unicast.receive(B, [UnicastAck(101, 3)], 1)
    assert unicast.receive(B, [Sync(101, SYNC_ID)], 2) == to_b(SyncOk(102, SYNC_ID, 3))
    connection = unicast.sender(B)
    assert connection is not None
    assert connection.conn_id == 102


@pytest.mark.parametrize("conn_id", [101, 102])
def test_note_sender_discards_acks_after_sync_until_sync_ack(conn_id: int) -> None:
    """Between SYNC and SYNC-ACK no ack counts, whichever conn-id it bears; afterwards those of the new one do."""
    unicast = sending(5)
    unicast.receive(B, [Sync(101, SYNC_ID)], 1)
    unicast.receive(B, [UnicastAck(conn_id, 5)], 2)
    assert unicast.buffered_frames == 5
    unicast.receive(B, [SyncAck(102)], 3)
    unicast.receive(B, [UnicastAck(conn_id, 5)], 4)
    assert unicast.buffered_frames == (0 if conn_id == 102 else 5)


def test_note_sync_ok_creates_a_window_with_its_conn_id_and_low() -> None:
    """No window: a new one as SYNC-OK says, then SYNC-ACK."""
    unicast = machine(B)
    unicast.receive(A, [data(101, 9)], 0)
    assert unicast.receive(A, [SyncOk(102, SYNC_ID, 7)], 1)[0] == Transmit(A, SyncAck(102))
    connection = unicast.receiver(A)
    assert connection is not None
    assert (connection.conn_id, connection.window.low) == (102, 7)


def test_note_sync_ok_adjusts_conn_id_and_low_of_a_window_that_exists() -> None:
    """A window is there: it is adjusted, then SYNC-ACK."""
    unicast = receiving(3)
    before = unicast.receiver(A)
    unicast.receive(A, [data(102, 9)], 0)
    assert unicast.receive(A, [SyncOk(103, SYNC_ID, 7)], 1)[0] == Transmit(A, SyncAck(103))
    connection = unicast.receiver(A)
    assert connection is before
    assert connection is not None
    assert (connection.conn_id, connection.window.low) == (103, 7)


@pytest.mark.parametrize("lost", [Sync, SyncOk, SyncAck])
def test_note_lost_sync_frames_are_resent_by_the_retransmission_task(lost: type[Frame]) -> None:
    """All three travel unreliably; the task sends again what the state says is missing."""
    link = Link()
    link.drop(first_data, times=1)
    link.drop(kind(lost), times=2)
    link.send(A, B, *numbered(1, 2))
    link.run_until_quiet()
    assert len(link.times(kind(lost))) == 3
    assert link.inbox(B, A) == numbered(1, 2)
    assert link.is_in_step(A, B)


def test_note_receiver_stops_waiting_for_sync_ok_after_the_timeout() -> None:
    """The receiver's side of the bound."""
    unicast = receiving(1)
    unicast.sync(A, 0)
    ticks(unicast, NO_REAPING.sync_timeout_ns - 1)
    assert unicast.is_syncing(A)
    ticks(unicast, NO_REAPING.sync_timeout_ns)
    assert not unicast.is_syncing(A)
    assert unicast.next_deadline() is None


def test_note_sender_stops_waiting_for_sync_ack_after_the_timeout() -> None:
    """The sender's side of the bound: acks count again."""
    unicast = sending(1)
    unicast.receive(B, [Sync(101, SYNC_ID)], 0)
    ticks(unicast, NO_REAPING.sync_timeout_ns - 1)
    unicast.receive(B, [UnicastAck(102, 1)], NO_REAPING.sync_timeout_ns - 1)
    assert unicast.buffered_frames == 1
    ticks(unicast, NO_REAPING.sync_timeout_ns)
    unicast.receive(B, [UnicastAck(102, 1)], NO_REAPING.sync_timeout_ns)
    assert unicast.buffered_frames == 0


def test_note_after_a_sync_both_ends_have_the_same_lowest_seqno() -> None:
    """What the exchange is for."""
    link = Link()
    link.drop(path(B, A), times=4)
    link.send(A, B, *numbered(1, 3))
    link.run_for(20 * MILLISECOND)
    link.perform(B, link[B].close_receiver(A, link.now))
    link.send(A, B, *numbered(4, 6))
    link.run_until_quiet()
    assert link.frames(B, Sync)
    assert link.sender(A, B).window.low == link.receiver(B, A).window.low == 6
    assert not any(isinstance(effect, SendFailed) for effect in link.told[A])


def test_note_an_admin_can_trigger_the_sync() -> None:
    """A second line of defence, by hand."""
    unicast = receiving(1)
    assert unicast.sync(A, SECOND) == to_a(Sync(101, SYNC_ID))
    assert unicast.is_syncing(A)
    assert counted(unicast, Count.SYNC_SENT) == 1
