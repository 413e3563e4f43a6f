"""The machine alone: inputs, and exactly the effects that they have. Time is a number that the test hands in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from motet.errors import BacklogFullError, ConfigError, LeftGroupError, MessageTooLargeError, MisuseError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import (
    Admitted,
    BehindPurgePoint,
    Broadcast,
    Channel,
    Deliver,
    Effect,
    Frame,
    SendFailed,
    Transmit,
)
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.multicast import Multicast, MulticastConfig
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.window.digest import DigestEntry
from motet.protocol.wire.body import MAX_MESSAGE_BYTES
from motet.protocol.wire.frames import Highest, MulticastAck, MulticastData, MulticastXmitRequest, Purged, UnicastAck
from tests.protocol.multicast.link import A, B, C, D, bodies, data, numbered

TIMEOUT = 30 * MILLISECOND  # before anything was measured: 10 ms believed, and four deviations of 5 ms
INTERVAL = 500 * MILLISECOND


class Machine:
    """One machine, its counters, and a clock that only the test moves."""

    def __init__(
        self, *others: Address, local: Address = A, config: MulticastConfig | None = None, capacity: int = 8
    ) -> None:
        self.now = 0
        self.local = local
        self.counters = Counters()
        self.multicast = Multicast(local, config or MulticastConfig(capacity=capacity), self.counters)
        if others:
            self.install(local, *others, digest=dict.fromkeys((local, *others), 0))

    @property
    def due(self) -> int | None:
        return self.multicast.next_deadline()

    def install(self, *members: Address, digest: dict[Address, int] | None = None) -> list[Effect]:
        return self._checked(self.multicast.install_view(members, digest or {}, self.now))

    def send(self, *messages: bytes) -> list[Effect]:
        """Each message by itself."""
        effects: list[Effect] = []
        for message in messages:
            effects += self._checked(self.multicast.send([message], self.now))
        return effects

    def receive(self, source: Address, *frames: Frame) -> list[Effect]:
        return self._checked(self.multicast.receive(source, frames, self.now))

    def tick(self, now: int) -> list[Effect]:
        self.now = now
        return self._checked(self.multicast.tick(now))

    def tick_when_due(self) -> list[Effect]:
        assert self.due is not None, "no tick is due"
        assert self.tick(self.due - 1) == [], "something happened before its time"
        return self.tick(self.now + 1)

    def resume(self) -> list[Effect]:
        return self._checked(self.multicast.resume(self.now))

    def receiver(self, sender: Address) -> MulticastReceiver:
        receiver = self.multicast.receiver(sender)
        assert receiver is not None, f"no window for {sender}"
        return receiver

    def _checked(self, effects: list[Effect]) -> list[Effect]:
        self.multicast._check()
        return effects


def delivery(sender: Address, first: int, last: int) -> Deliver:
    return Deliver(Channel.MULTICAST, sender, first, bodies(first, last))


def admitted(through: int) -> Admitted:
    return Admitted(Channel.MULTICAST, None, through)


def ask(sender: Address, *ranges: tuple[int, int]) -> Transmit:
    return Transmit(sender, MulticastXmitRequest(sender.incarnation, ranges))


def asked_for(effects: Sequence[Effect]) -> list[tuple[tuple[int, int], ...]]:
    """The ranges of all requests among the effects."""
    frames = [effect.frame for effect in effects if isinstance(effect, Transmit)]
    return [frame.ranges for frame in frames if isinstance(frame, MulticastXmitRequest)]


def test_configuration_outside_its_range_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="capacity = 0 is outside what is allowed: 1 to"):
        MulticastConfig(capacity=0)
    with pytest.raises(ConfigError, match="request_limit = 513"):
        MulticastConfig(request_limit=513)


@pytest.mark.parametrize(("capacity", "threshold"), [(1, 1), (3, 1), (4, 1), (8, 2), (256, 64)])
def test_the_ack_threshold_is_a_quarter_of_the_window_and_at_least_one(capacity: int, threshold: int) -> None:
    assert MulticastConfig(capacity=capacity).ack_threshold == threshold


class TestSending:
    def test_frames_are_numbered_from_one_without_a_gap_and_delivered_to_ourselves_too(self) -> None:
        machine = Machine(B)
        assert machine.send(*numbered(1, 2)) == [
            Broadcast(data(A, 1)),
            delivery(A, 1, 1),
            admitted(1),
            Broadcast(data(A, 2)),
            delivery(A, 2, 2),
            admitted(2),
        ]
        assert machine.counters[Count.FRAME_SENT] == 2
        assert machine.counters[Count.FRAME_DELIVERED] == 2

    def test_messages_that_are_sent_together_share_a_frame(self) -> None:
        machine = Machine(B)
        assert machine.multicast.send([b"one", b"", b"three"], 0)[0] == Broadcast(data(A, 1, b"one", b"", b"three"))
        assert machine.multicast.sender.admitted == 3

    def test_sending_no_message_does_nothing(self) -> None:
        machine = Machine(B)
        assert machine.multicast.send([], 0) == []
        assert machine.due is None

    def test_a_large_message_is_cut_into_frames_and_admitted_with_its_last_one(self) -> None:
        machine = Machine(B, config=MulticastConfig(capacity=2, body_bytes=64))
        effects = machine.send(bytes(150))
        assert [type(effect) for effect in effects] == [Broadcast, Broadcast, Deliver]
        machine.receive(B, MulticastAck(1))
        assert machine.multicast.sender.admitted == 1

    def test_exactly_capacity_frames_fit(self) -> None:
        machine = Machine(B, capacity=4)
        machine.send(*numbered(1, 3))
        assert not machine.multicast.sender.window.is_full
        assert machine.send(b"message 4") == [Broadcast(data(A, 4)), delivery(A, 4, 4), admitted(4)]
        assert machine.send(b"message 5") == []
        assert machine.multicast.sender.window.high == 4

    def test_waiting_sends_are_released_in_order_with_no_gap_in_the_seqnos(self) -> None:
        machine = Machine(B, config=MulticastConfig(capacity=4, body_bytes=64))
        waiting = [bytes([number]) * 40 for number in range(5, 9)]  # too long for two in a frame
        machine.send(*numbered(1, 4), *waiting)
        effects = machine.receive(B, MulticastAck(3))
        assert [effect for effect in effects if isinstance(effect, Broadcast)] == [
            Broadcast(data(A, 5, waiting[0], stable=3)),
            Broadcast(data(A, 6, waiting[1], stable=3)),
            Broadcast(data(A, 7, waiting[2], stable=3)),
        ]
        assert effects[-1] == admitted(7)
        effects = machine.receive(B, MulticastAck(4))
        assert effects[0] == Broadcast(data(A, 8, waiting[3], stable=4))
        assert effects[-1] == admitted(8)

    def test_messages_that_waited_share_a_frame_when_there_is_space(self) -> None:
        machine = Machine(B, capacity=2)
        machine.send(*numbered(1, 5))
        assert machine.receive(B, MulticastAck(1)) == [
            Broadcast(data(A, 3, *numbered(3, 5), stable=1)),
            Deliver(Channel.MULTICAST, A, 3, (data(A, 3, *numbered(3, 5)).body,)),
            admitted(5),
        ]

    def test_a_member_that_is_alone_waits_for_nobody(self) -> None:
        machine = Machine(capacity=2)
        machine.send(*numbered(1, 10))
        assert machine.multicast.sender.is_drained
        assert machine.multicast.sender.window.high == 10

    def test_a_large_message_of_a_lonely_member_is_longer_than_its_window(self) -> None:
        machine = Machine(config=MulticastConfig(capacity=2, body_bytes=64))
        machine.send(bytes(1_000))
        assert machine.multicast.sender.admitted == 1
        assert machine.multicast.sender.is_drained

    def test_a_message_that_is_too_large_is_refused_and_nothing_is_accepted(self) -> None:
        machine = Machine(B)
        with pytest.raises(MessageTooLargeError, match="split it"):
            machine.multicast.send([b"fits", bytes(MAX_MESSAGE_BYTES + 1)], 0)
        assert machine.multicast.sender.accepted == 0
        assert machine.due is None

    def test_a_full_backlog_refuses_all_of_a_batch_and_takes_it_once_there_is_space(self) -> None:
        machine = Machine(B, config=MulticastConfig(capacity=1, backlog_bytes=100))
        machine.send(b"in the window")
        machine.send(bytes(96))  # with its length, exactly the bound
        machine.send(b"the one that passes the bound")
        with pytest.raises(BacklogFullError) as refused:
            machine.multicast.send([b"two", b"more"], 0)
        assert refused.value.retryable
        assert machine.multicast.sender.accepted == 3
        machine.receive(B, MulticastAck(1))
        machine.send(b"two", b"more")
        assert machine.multicast.sender.accepted == 5

    def test_leaving_fails_what_waits_and_refuses_what_comes(self) -> None:
        machine = Machine(B, capacity=2)
        machine.send(*numbered(1, 5))
        (failed,) = machine.multicast.leave(0)
        assert isinstance(failed, SendFailed)
        assert (failed.first, failed.last) == (3, 5)
        assert machine.multicast.leave(0) == []
        with pytest.raises(LeftGroupError, match="join again"):
            machine.send(b"more")
        assert machine.receive(B, MulticastAck(2)) == []  # nothing of what waited slips out
        assert machine.multicast.sender.window.high == 2

    def test_leaving_with_nothing_waiting_tells_nothing(self) -> None:
        machine = Machine(B)
        machine.send(b"on its way")
        assert machine.multicast.leave(0) == []


class TestAckTable:
    def test_the_minimum_over_all_members_is_purged(self) -> None:
        machine = Machine(B, C)
        machine.send(*numbered(1, 6))
        window = machine.multicast.sender.window
        machine.receive(B, MulticastAck(5))
        assert window.low == 0
        machine.receive(C, MulticastAck(2))
        assert window.low == 2
        machine.receive(C, MulticastAck(6))
        assert window.low == 5
        machine.receive(B, MulticastAck(6))
        assert window.low == 6
        assert machine.multicast.buffered_frames == 0

    def test_a_late_or_repeated_ack_purges_nothing_and_takes_nothing_back(self) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 4))
        machine.receive(B, MulticastAck(3))
        due = machine.due
        machine.now = MILLISECOND
        assert machine.receive(B, MulticastAck(3), MulticastAck(1), MulticastAck(0)) == []
        assert machine.multicast.sender.window.low == 3
        assert machine.due == due

    def test_the_sender_itself_is_in_the_table_so_holding_pushes_back(self) -> None:
        machine = Machine(B, capacity=2)
        machine.multicast.pause()
        assert machine.send(*numbered(1, 3)) == [
            Broadcast(data(A, 1)),
            admitted(1),
            Broadcast(data(A, 2)),
            admitted(2),
        ]
        assert machine.receive(B, MulticastAck(2)) == []
        assert machine.multicast.sender.window.low == 0
        assert machine.resume() == [
            delivery(A, 1, 2),
            Broadcast(data(A, 3, stable=2)),
            delivery(A, 3, 3),
            admitted(3),
        ]

    def test_the_ack_of_somebody_who_is_no_member_is_ignored_and_counted(self) -> None:
        machine = Machine(B)
        machine.send(b"message 1")
        assert machine.receive(D, MulticastAck(1)) == []
        assert machine.counters[Count.ACK_OF_NON_MEMBER] == 1
        assert machine.multicast.sender.window.low == 0

    def test_an_ack_beyond_what_was_sent_is_ignored_and_counted(self) -> None:
        machine = Machine(B)
        machine.send(b"message 1")
        assert machine.receive(B, MulticastAck(2)) == []
        assert machine.counters[Count.ACK_BEYOND_SENT] == 1
        assert machine.multicast.sender.window.low == 0
        machine.receive(B, MulticastAck(1))
        assert machine.multicast.sender.is_drained

    def test_a_new_view_lets_go_of_what_only_the_departed_had_not_acked(self) -> None:
        machine = Machine(B, C, capacity=2)
        machine.send(*numbered(1, 3))
        machine.receive(B, MulticastAck(2))
        assert machine.install(A, B) == [Broadcast(data(A, 3, stable=2)), delivery(A, 3, 3), admitted(3)]

    def test_a_joiner_enters_the_table_at_the_seqno_of_the_digest(self) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 5))
        machine.install(A, B, C, digest={A: 2, C: 0})
        assert machine.multicast.sender.acks[C] == 2
        machine.receive(B, MulticastAck(5))
        assert machine.multicast.sender.window.low == 2

    def test_a_joiner_enters_no_lower_than_what_is_purged_already(self) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 5))
        machine.receive(B, MulticastAck(4))
        machine.install(A, B, C, digest={A: 2, C: 0})
        assert machine.multicast.sender.acks[C] == 4


class TestReceiving:
    def test_a_batch_is_delivered_as_one_up_to_the_first_gap(self) -> None:
        machine = Machine(B)
        assert machine.receive(B, data(B, 1)) == [delivery(B, 1, 1)]
        machine = Machine(B, capacity=32)
        assert machine.receive(B, *(data(B, seqno) for seqno in (2, 4, 1, 3, 6))) == [delivery(B, 1, 4)]
        assert machine.receiver(B).window.high == 6

    def test_each_sender_has_a_stream_of_its_own(self) -> None:
        machine = Machine(B, C)
        assert machine.receive(B, data(B, 1)) == [delivery(B, 1, 1)]
        assert machine.receive(C, data(C, 2)) == []
        assert machine.receive(C, data(C, 1))[0] == delivery(C, 1, 2)

    def test_a_frame_that_is_there_already_is_dropped_and_acked_again(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 1))
        assert machine.receive(B, data(B, 1)) == [Transmit(B, MulticastAck(1))]
        machine.receive(B, data(B, 3))
        assert machine.receive(B, data(B, 3)) == [Transmit(B, MulticastAck(1))]  # held, not delivered: acked is 1
        assert machine.counters[Count.FRAME_DUPLICATE] == 2

    def test_a_frame_ahead_of_the_window_is_dropped_and_known_to_exist(self) -> None:
        machine = Machine(B, capacity=4)
        assert machine.receive(B, data(B, 5)) == []
        assert machine.counters[Count.FRAME_OUTSIDE_WINDOW] == 1
        assert machine.multicast.buffered_frames == 0
        assert machine.tick_when_due() == [ask(B, (1, 4))]

    def test_a_frame_just_inside_the_window_is_kept(self) -> None:
        machine = Machine(B, capacity=4)
        machine.receive(B, data(B, 4))
        assert machine.counters[Count.FRAME_OUTSIDE_WINDOW] == 0
        assert machine.multicast.buffered_frames == 1

    def test_an_ack_follows_so_many_deliveries(self) -> None:
        machine = Machine(B, capacity=16)
        assert machine.receive(B, *(data(B, seqno) for seqno in (1, 2, 3))) == [delivery(B, 1, 3)]
        assert machine.receive(B, data(B, 4)) == [delivery(B, 4, 4), Transmit(B, MulticastAck(4))]
        assert machine.due is None
        assert machine.counters[Count.ACK_SENT] == 1

    def test_fewer_deliveries_are_acked_at_the_interval(self) -> None:
        machine = Machine(B, capacity=16)
        machine.now = 7
        machine.receive(B, data(B, 1))
        machine.now = 100
        machine.receive(B, data(B, 2))
        assert machine.due == 7 + INTERVAL  # counted from the first delivery that is not acked
        assert machine.tick_when_due() == [Transmit(B, MulticastAck(2))]
        assert machine.due is None

    def test_while_held_nothing_is_delivered_or_acked_and_then_all_of_it(self) -> None:
        machine = Machine(B)
        machine.multicast.pause()
        assert machine.receive(B, *(data(B, seqno) for seqno in (1, 2, 3))) == []
        assert machine.resume() == [delivery(B, 1, 3), Transmit(B, MulticastAck(3))]

    def test_our_own_frame_that_comes_back_is_a_duplicate(self) -> None:
        machine = Machine(B)
        machine.send(b"message 1")
        assert machine.receive(A, data(A, 1)) == []
        assert machine.receive(B, data(A, 1)) == []
        assert machine.counters[Count.FRAME_DUPLICATE] == 2

    def test_a_frame_of_an_unknown_sender_that_another_hands_on_is_misplaced(self) -> None:
        machine = Machine(B)
        assert machine.receive(B, data(D, 1)) == []
        assert machine.counters[Count.FRAME_MISPLACED] == 1
        assert machine.multicast.buffered_frames == 0

    def test_frames_of_another_protocol_are_the_callers_mistake(self) -> None:
        machine = Machine(B)
        with pytest.raises(MisuseError, match="UnicastAck is not a frame of reliable multicast"):
            machine.multicast.receive(B, [UnicastAck(1, 1)], 0)


class TestLastSeqnoAnnouncement:
    def test_it_is_sent_when_nothing_was_sent_for_an_interval_and_acks_are_missing(self) -> None:
        machine = Machine(B)
        assert machine.tick(0) == []
        machine.send(b"message 1")
        machine.now = 5 * MILLISECOND
        machine.send(b"message 2")
        assert machine.due == 5 * MILLISECOND + TIMEOUT  # each send puts it off
        assert machine.tick_when_due() == [Broadcast(Highest(2, 0))]
        assert machine.counters[Count.LAST_SEQNO_ANNOUNCED] == 1

    def test_it_backs_off_up_to_the_interval_while_no_ack_comes(self) -> None:
        machine = Machine(B)
        machine.send(b"message 1")
        times = []
        for _ in range(13):
            assert machine.tick_when_due() == [Broadcast(Highest(1, 0))]
            times.append(machine.now)
        pauses = [(later - earlier) // MILLISECOND for earlier, later in pairwise(times)]
        assert pauses == [30, 60, 60, 120, 120, 240, 240, 480, 480] + [INTERVAL // MILLISECOND] * 3

    def test_an_ack_that_moves_the_window_ends_the_back_off(self) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 3))
        for _ in range(5):
            machine.tick_when_due()
        machine.receive(B, MulticastAck(2))
        assert machine.due == machine.now + TIMEOUT
        assert machine.tick_when_due() == [Broadcast(Highest(3, 2))]
        assert machine.due == machine.now + TIMEOUT  # and the next back-off starts from the beginning

    def test_a_new_send_ends_the_back_off(self) -> None:
        machine = Machine(B)
        machine.send(b"message 1")
        for _ in range(5):
            machine.tick_when_due()
        machine.send(b"message 2")
        assert machine.due == machine.now + TIMEOUT

    def test_once_the_window_is_drained_the_stable_seqno_is_announced_once(self) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 2))
        machine.receive(B, MulticastAck(2))
        assert machine.tick_when_due() == [Broadcast(Highest(2, 2))]
        assert machine.due is None
        assert machine.tick(machine.now + 10 * SECOND) == []
        machine.install(A, B)
        assert machine.multicast.next_deadline() is None  # nothing moved, so there is nothing new to tell

    def test_what_later_data_has_announced_already_is_not_announced_again(self) -> None:
        machine = Machine(B, C)
        machine.send(b"message 1")
        machine.receive(B, MulticastAck(1))
        machine.receive(C, MulticastAck(1))
        assert machine.send(b"message 2")[0] == Broadcast(data(A, 2, stable=1))
        assert machine.tick_when_due() == [Broadcast(Highest(2, 1))]  # because 2 is not acked
        machine.receive(B, MulticastAck(2))
        machine.receive(C, MulticastAck(2))
        assert machine.tick_when_due() == [Broadcast(Highest(2, 2))]
        assert machine.due is None

    def test_its_answers_measure_the_round_trip_and_notices_follow_it(self) -> None:
        machine = Machine(B)
        for seqno in range(1, 21):
            machine.send(b"again")
            machine.tick_when_due()
            machine.now += MILLISECOND
            machine.receive(B, MulticastAck(seqno))
        machine.send(b"again")
        assert machine.due is not None
        assert machine.due - machine.now < 10 * MILLISECOND

    @pytest.mark.parametrize("is_repaired", [True, False])
    def test_an_ack_that_waited_for_a_repair_measures_nothing(self, is_repaired: bool) -> None:
        """It came after the notice, a request and the repair; timeout would grow with every loss."""
        machine = Machine(B)
        for seqno in range(1, 21):
            machine.send(b"again")
            machine.tick_when_due()
            if is_repaired:
                machine.receive(B, MulticastXmitRequest(A.incarnation, ((seqno, seqno),)))
            machine.now += 300 * MILLISECOND
            machine.receive(B, MulticastAck(seqno))
        machine.send(b"again")
        assert machine.due is not None
        assert (machine.due - machine.now < 100 * MILLISECOND) is is_repaired

    def test_an_ack_after_two_notices_measures_nothing(self) -> None:
        machine = Machine(B)
        for seqno in range(1, 21):
            machine.send(b"again")
            machine.tick_when_due()
            machine.tick_when_due()
            machine.now += 1
            machine.receive(B, MulticastAck(seqno))
        machine.send(b"again")
        assert machine.due == machine.now + TIMEOUT

    def test_a_receiver_that_has_everything_acks_again_if_the_sender_lacks_the_ack(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 1))
        assert machine.receive(B, Highest(1, 0)) == [Transmit(B, MulticastAck(1))]
        assert machine.receive(B, Highest(1, 0)) == [Transmit(B, MulticastAck(1))]

    def test_a_receiver_that_has_everything_is_silent_if_the_sender_knows(self) -> None:
        machine = Machine(B, capacity=4)
        assert machine.receive(B, data(B, 1)) == [delivery(B, 1, 1), Transmit(B, MulticastAck(1))]
        assert machine.receive(B, Highest(1, 1)) == []
        assert machine.due is None
        assert machine.multicast.buffered_frames == 0

    def test_a_receiver_that_misses_the_tail_asks_for_it(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 1))
        assert machine.receive(B, Highest(3, 0)) == [Transmit(B, MulticastAck(1))]
        assert machine.due == TIMEOUT
        assert machine.tick_when_due() == [ask(B, (2, 3))]

    def test_the_notice_of_somebody_who_is_no_member_is_misplaced(self) -> None:
        machine = Machine(B)
        assert machine.receive(D, Highest(3, 0)) == []
        assert machine.counters[Count.FRAME_MISPLACED] == 1
        assert machine.due is None


class TestGaps:
    def test_a_gap_is_asked_for_only_when_the_look_before_has_seen_it(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 2))
        assert machine.due == TIMEOUT
        machine.now = TIMEOUT - 1
        machine.receive(B, data(B, 4))  # 3 is missing since just now
        assert machine.tick(TIMEOUT) == [ask(B, (1, 1))]
        assert machine.tick_when_due() == [ask(B, (1, 1), (3, 3))]
        assert machine.counters[Count.REPAIR_ASKED] == 2

    def test_a_gap_that_closes_in_time_is_not_asked_for(self) -> None:
        machine = Machine(B, capacity=32)
        machine.receive(B, data(B, 2))
        machine.now = TIMEOUT - 1
        machine.receive(B, data(B, 1))
        assert machine.tick(TIMEOUT) == []
        assert machine.due == TIMEOUT - 1 + INTERVAL  # only the ack is left

    def test_requests_are_clamped_to_the_window(self) -> None:
        machine = Machine(B, capacity=4)
        machine.receive(B, data(B, 2), Highest(1_000, 0))
        assert machine.tick_when_due() == [ask(B, (1, 1), (3, 4))]

    def test_requests_are_limited_per_look_and_split(self) -> None:
        machine = Machine(B, config=MulticastConfig(capacity=32, request_limit=2, repair_burst=5))
        machine.receive(B, Highest(20, 0))
        assert machine.tick_when_due() == [ask(B, (1, 2)), ask(B, (3, 4)), ask(B, (5, 5))]
        assert machine.counters[Count.REPAIR_ASKED] == 3

    def test_looks_back_off_up_to_the_interval_while_nothing_comes(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 2))
        times = []
        for _ in range(13):
            assert machine.tick_when_due() == [ask(B, (1, 1))]
            times.append(machine.now)
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert pauses[:5] == [TIMEOUT, TIMEOUT, 2 * TIMEOUT, 2 * TIMEOUT, 4 * TIMEOUT]
        assert pauses == sorted(pauses)
        assert pauses[-1] == INTERVAL

    def test_looks_do_not_back_off_while_repairs_come_in(self) -> None:
        """Nothing answers the first look; every later one is answered in part, so the link works and time matters."""
        machine = Machine(B, capacity=64)
        machine.receive(B, data(B, 20))
        looks = [self.next_look(machine), self.next_look(machine)]
        for seqno in range(1, 9):
            machine.now += MILLISECOND
            machine.receive(B, data(B, seqno))
            looks.append(self.next_look(machine))
        pauses = [later - earlier for earlier, later in pairwise(looks)]
        assert max(pauses) <= 3 * TIMEOUT, [pause // MILLISECOND for pause in pauses]

    @staticmethod
    def next_look(machine: Machine) -> int:
        """Let time pass until something is asked for; when that was."""
        for _ in range(10):
            if asked_for(machine.tick_when_due()):
                return machine.now
        raise AssertionError("nothing is asked for any more")

    def test_answers_measure_the_round_trip_and_looks_follow_it(self) -> None:
        machine = Machine(B, capacity=64)
        for seqno in range(1, 41, 2):
            machine.receive(B, data(B, seqno + 1))
            self.next_look(machine)
            machine.now += MILLISECOND
            machine.receive(B, data(B, seqno))
        machine.receive(B, data(B, 42))
        assert machine.due is not None
        assert machine.due - machine.now < 10 * MILLISECOND

    def test_a_full_window_of_a_held_application_asks_for_nothing(self) -> None:
        machine = Machine(B, capacity=4)
        machine.multicast.pause()
        machine.receive(B, *(data(B, seqno) for seqno in range(1, 8)))
        for _ in range(3):
            assert asked_for(machine.tick(machine.now + SECOND)) == []
        assert machine.due is None
        machine.receive(B, Highest(7, 0))
        assert machine.multicast.next_deadline() is None  # said before: a second look would find no more than the first

    def test_the_window_opens_when_the_sender_tells_what_is_stable_and_then_the_rest_is_asked_for(self) -> None:
        machine = Machine(B, capacity=4)
        machine.receive(B, *(data(B, seqno) for seqno in range(1, 8)))
        machine.tick(SECOND)
        assert machine.due is None
        machine.receive(B, Highest(7, 4))
        assert machine.tick_when_due() == [ask(B, (5, 7))]


class TestRepair:
    @staticmethod
    def request(*ranges: tuple[int, int], sender: Address = A) -> MulticastXmitRequest:
        return MulticastXmitRequest(sender.incarnation, ranges)

    def test_the_asker_alone_is_answered(self) -> None:
        machine = Machine(B, C)
        machine.send(*numbered(1, 5))
        assert machine.receive(B, self.request((2, 3), (5, 5))) == [
            Transmit(B, data(A, 2)),
            Transmit(B, data(A, 3)),
            Transmit(B, data(A, 5)),
        ]
        assert machine.counters[Count.FRAME_RESENT] == 3

    def test_a_repair_carries_what_is_stable_by_now(self) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 3))
        machine.receive(B, MulticastAck(2))
        assert machine.receive(B, self.request((3, 3))) == [Transmit(B, data(A, 3, stable=2))]

    def test_the_same_asker_is_answered_again_by_itself(self) -> None:
        machine = Machine(B, C)
        machine.send(b"message 1")
        machine.receive(B, self.request((1, 1)))
        assert machine.receive(B, self.request((1, 1))) == [Transmit(B, data(A, 1))]

    def test_a_second_asker_within_a_round_trip_makes_it_a_multicast(self) -> None:
        machine = Machine(B, C)
        machine.send(b"message 1")
        machine.receive(B, self.request((1, 1)))
        machine.now = TIMEOUT - 1
        assert machine.receive(C, self.request((1, 1))) == [Broadcast(data(A, 1))]

    def test_right_after_a_multicast_repair_nobody_is_answered_again(self) -> None:
        machine = Machine(B, C, D)
        machine.send(b"message 1")
        machine.receive(B, self.request((1, 1)))
        machine.receive(C, self.request((1, 1)))
        machine.now = TIMEOUT - 1
        for asker in (B, C, D):
            assert machine.receive(asker, self.request((1, 1))) == []
        assert machine.counters[Count.FRAME_RESENT] == 2

    def test_a_round_trip_after_a_multicast_repair_the_asker_is_answered_alone(self) -> None:
        machine = Machine(B, C)
        machine.send(b"message 1")
        machine.receive(B, self.request((1, 1)))
        machine.receive(C, self.request((1, 1)))
        machine.now = TIMEOUT
        assert machine.receive(B, self.request((1, 1))) == [Transmit(B, data(A, 1))]

    def test_a_second_asker_much_later_is_answered_alone(self) -> None:
        machine = Machine(B, C)
        machine.send(b"message 1")
        machine.receive(B, self.request((1, 1)))
        machine.now = TIMEOUT
        assert machine.receive(C, self.request((1, 1))) == [Transmit(C, data(A, 1))]

    def test_a_request_for_too_much_is_answered_up_to_the_limit(self) -> None:
        machine = Machine(B, config=MulticastConfig(capacity=16, request_limit=3))
        machine.send(*numbered(1, 10))
        effects = machine.receive(B, self.request((1, 2), (4, 1 << 62)))
        assert effects == [Transmit(B, data(A, seqno)) for seqno in (1, 2, 4)]

    def test_what_was_never_sent_is_not_answered(self) -> None:
        machine = Machine(B)
        machine.send(b"message 1")
        assert machine.receive(B, self.request((2, 9))) == []

    def test_the_memory_of_repairs_is_bounded(self) -> None:
        machine = Machine(B, capacity=4)
        for seqno in range(1, 101):
            machine.send(*numbered(seqno, seqno))
            machine.receive(B, self.request((seqno, seqno)))
            machine.receive(B, MulticastAck(seqno))
            assert len(machine.multicast._repaired) <= 4 * 2


class TestPurged:
    def test_a_request_for_what_is_gone_is_answered_with_how_far_it_is_gone(self) -> None:
        machine = Machine(B, C)
        machine.send(*numbered(1, 4))
        machine.receive(B, MulticastAck(3))
        machine.receive(C, MulticastAck(3))
        assert machine.receive(B, MulticastXmitRequest(A.incarnation, ((2, 4),))) == [
            Transmit(B, Purged(A.incarnation, 3)),
            Transmit(B, data(A, 4, stable=3)),
        ]
        assert machine.counters[Count.PURGED_ANSWERED] == 1

    @pytest.mark.parametrize(("seqno", "answer"), [(3, Purged(A.incarnation, 3)), (4, data(A, 4, stable=3))])
    def test_the_last_seqno_that_is_gone_and_the_first_that_is_not(self, seqno: int, answer: Frame) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 4))
        machine.receive(B, MulticastAck(3))
        request = MulticastXmitRequest(A.incarnation, ((seqno, seqno),))
        assert machine.receive(B, request) == [Transmit(B, answer)]

    def test_whoever_misses_it_is_behind_the_purge_point_once_and_asks_no_more(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 5))
        machine.tick_when_due()
        assert machine.receive(B, Purged(B.incarnation, 3)) == [BehindPurgePoint(B, 3)]
        assert machine.receive(B, Purged(B.incarnation, 4)) == []
        assert machine.due is None
        assert machine.tick(machine.now + 60 * SECOND) == []

    def test_whoever_has_it_is_not_behind_the_purge_point(self) -> None:
        machine = Machine(B)
        machine.receive(B, *(data(B, seqno) for seqno in (1, 2, 3)))
        assert machine.receive(B, Purged(B.incarnation, 3)) == []
        assert not machine.receiver(B).is_behind_purge_point

    def test_only_the_sender_itself_can_say_so(self) -> None:
        machine = Machine(B, C)
        machine.receive(B, data(B, 5))
        assert machine.receive(C, Purged(B.incarnation, 3)) == []
        assert machine.receive(B, Purged(D.incarnation, 3)) == []
        assert machine.counters[Count.FRAME_MISPLACED] == 2
        assert asked_for(machine.tick_when_due()) == [((1, 4),)]

    def test_a_view_with_a_higher_digest_helps_out(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 5))
        machine.receive(B, Purged(B.incarnation, 3))
        assert machine.install(A, B, digest={B: 4})[0] == delivery(B, 5, 5)
        machine.receive(B, data(B, 7))
        assert asked_for(machine.tick_when_due()) == [((6, 6),)]

    def test_frames_that_were_only_late_end_it_and_the_next_gap_is_asked_for_again(self) -> None:
        """The missing frames were in flight when the sender answered: nothing is missing any more."""
        machine = Machine(B, capacity=32)
        machine.receive(B, data(B, 3))
        machine.tick_when_due()
        machine.receive(B, Purged(B.incarnation, 2))
        assert machine.receive(B, data(B, 1), data(B, 2)) == [delivery(B, 1, 3)]
        machine.install(A, B, digest={B: 3})
        machine.receive(B, data(B, 5))
        assert asked_for(machine.tick(machine.now + TIMEOUT)) == [((4, 4),)]

    def test_the_time_spent_behind_the_purge_point_is_not_taken_for_a_round_trip(self) -> None:
        """All streams share the estimate, so all would repair at the slowest pace afterwards."""
        machine = Machine(B, capacity=32)
        machine.receive(B, data(B, 3))
        machine.tick_when_due()
        machine.receive(B, Purged(B.incarnation, 2))
        machine.now += 60 * SECOND
        machine.install(A, B, digest={B: 3})
        machine.receive(B, data(B, 5))
        assert machine.due is not None
        assert machine.due - machine.now <= TIMEOUT


class TestEarlyFrames:
    def test_they_are_kept_and_delivered_with_the_view_that_explains_them(self) -> None:
        machine = Machine()
        assert machine.receive(B, data(B, 4), data(B, 3), data(B, 1)) == []
        assert machine.counters[Count.FRAME_EARLY] == 3
        assert machine.multicast.buffered_frames == 3
        effects = machine.install(A, B, digest={A: 0, B: 2})
        assert effects[0] == delivery(B, 3, 4)
        assert machine.receiver(B).window.delivered == 4

    def test_they_are_bounded_over_all_senders(self) -> None:
        machine = Machine(config=MulticastConfig(early_frames=3))
        machine.receive(B, data(B, 1), data(B, 2))
        machine.receive(C, data(C, 1), data(C, 2))
        assert machine.counters[Count.FRAME_EARLY_DROPPED] == 1
        assert machine.multicast.buffered_frames == 3

    def test_copies_of_one_frame_are_kept_once(self) -> None:
        machine = Machine(config=MulticastConfig(early_frames=3))
        machine.receive(B, data(B, 1), data(B, 1))
        assert machine.multicast.buffered_frames == 1

    def test_those_of_strangers_go_with_the_view(self) -> None:
        machine = Machine()
        machine.receive(B, data(B, 1))
        machine.receive(C, data(C, 1))
        machine.install(A, B, digest={A: 0, B: 0})
        assert machine.multicast.buffered_frames == 1  # B's, delivered and kept until stable
        machine.install(A, B, C, digest={C: 0})
        assert machine.receiver(C).window.delivered == 0

    def test_with_a_bound_of_none_nothing_is_kept(self) -> None:
        machine = Machine(config=MulticastConfig(early_frames=0))
        machine.receive(B, data(B, 1))
        assert machine.counters[Count.FRAME_EARLY_DROPPED] == 1
        assert machine.multicast.buffered_frames == 0


class TestDigest:
    def test_it_tells_what_we_know_at_first_hand(self) -> None:
        machine = Machine(B, C)
        machine.send(*numbered(1, 3))
        machine.receive(B, MulticastAck(2))
        machine.receive(C, MulticastAck(1))
        machine.receive(B, data(B, 1))
        machine.receive(B, data(B, 2, stable=1), data(B, 5, stable=1))
        assert machine.multicast.digest() == {
            A: DigestEntry(1, 3, 3),
            B: DigestEntry(1, 2, 5),
            C: DigestEntry(0, 0, 0),
        }

    def test_our_own_entry_is_never_overwritten(self) -> None:
        machine = Machine(B)
        machine.send(*numbered(1, 3))
        for own in (0, 2, 3, 99):
            machine.install(A, B, digest={A: own, B: 0})
            assert machine.multicast.digest()[A] == DigestEntry(0, 3, 3)

    @pytest.mark.parametrize("told", [0, 3, 4])
    def test_of_another_a_window_that_is_not_behind_is_kept(self, told: int) -> None:
        machine = Machine(B)
        machine.receive(B, *(data(B, seqno) for seqno in (1, 2, 3, 4, 6)))
        before = machine.multicast.digest()[B]
        assert machine.install(A, B, digest={B: told}) == []
        assert machine.multicast.digest()[B] == before
        assert machine.receive(B, data(B, 5))[0] == delivery(B, 5, 6)

    def test_of_another_a_window_that_is_behind_is_reset_to_the_digest(self) -> None:
        machine = Machine(B)
        machine.receive(B, *(data(B, seqno) for seqno in (1, 2, 4, 7)))
        assert machine.install(A, B, digest={B: 5}) == []
        assert machine.multicast.digest()[B] == DigestEntry(5, 5, 7)
        assert machine.receive(B, data(B, 3), data(B, 5))[0] == Transmit(B, MulticastAck(5))  # nothing comes back
        assert machine.receive(B, data(B, 6))[0] == delivery(B, 6, 7)

    def test_a_digest_far_beyond_the_window_is_followed(self) -> None:
        machine = Machine(B, capacity=4)
        machine.receive(B, data(B, 1), data(B, 3))
        machine.install(A, B, digest={B: 1_000})
        assert machine.multicast.digest()[B] == DigestEntry(1_000, 1_000, 1_000)
        assert machine.receive(B, data(B, 1_001))[0] == delivery(B, 1_001, 1_001)

    def test_a_member_without_an_entry_keeps_its_window(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 1))
        machine.install(A, B)
        assert machine.multicast.digest()[B] == DigestEntry(0, 1, 1)


class TestRetention:
    def test_what_was_delivered_is_kept_until_the_sender_says_that_it_is_stable(self) -> None:
        machine = Machine(B)
        machine.receive(B, *(data(B, seqno) for seqno in (1, 2, 3)))
        assert machine.multicast.buffered_frames == 3
        machine.receive(B, data(B, 4, stable=2))
        assert machine.multicast.buffered_frames == 2
        machine.receive(B, Highest(4, 4))
        assert machine.multicast.buffered_frames == 0

    def test_what_is_stable_elsewhere_but_not_delivered_here_is_not_let_go(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 1))
        machine.receive(B, data(B, 3, stable=3))
        assert machine.multicast.digest()[B] == DigestEntry(1, 1, 3)

    def test_any_member_hands_on_the_frame_of_another_on_request(self) -> None:
        machine = Machine(B, C)
        machine.receive(B, data(B, 1))
        machine.receive(B, data(B, 2, stable=1), data(B, 4, stable=1))
        request = MulticastXmitRequest(B.incarnation, ((2, 4),))
        assert machine.receive(C, request) == [
            Transmit(C, data(B, 2, stable=1)),
            Transmit(C, data(B, 4, stable=1)),  # received, though not delivered yet
        ]

    def test_a_frame_that_is_handed_on_is_delivered_as_its_senders(self) -> None:
        machine = Machine(B, C)
        assert machine.receive(C, data(B, 1)) == [delivery(B, 1, 1)]

    def test_a_stranger_gets_no_frame_of_a_third_one(self) -> None:
        machine = Machine(B)
        machine.receive(B, data(B, 1))
        assert machine.receive(D, MulticastXmitRequest(B.incarnation, ((1, 1),))) == []
        assert machine.counters[Count.FRAME_MISPLACED] == 1

    def test_a_request_for_the_stream_of_nobody_is_misplaced(self) -> None:
        machine = Machine(B)
        assert machine.receive(B, MulticastXmitRequest(D.incarnation, ((1, 1),))) == []
        assert machine.counters[Count.FRAME_MISPLACED] == 1


class TestViews:
    def test_a_view_without_ourselves_is_misuse_and_changes_nothing(self) -> None:
        machine = Machine(B)
        with pytest.raises(MisuseError, match="is not in the view"):
            machine.install(B, C, digest={B: 0, C: 0})
        assert set(machine.multicast.digest()) == {A, B}

    def test_a_new_member_without_a_digest_entry_is_misuse_and_changes_nothing(self) -> None:
        machine = Machine(B)
        with pytest.raises(MisuseError, match=r"no entry for C#.*, D#"):
            machine.install(A, C, D, digest={A: 0})
        assert set(machine.multicast.digest()) == {A, B}
        assert B in machine.multicast.sender.acks

    def test_windows_of_non_members_are_removed_and_new_ones_start_at_the_digest(self) -> None:
        machine = Machine(B, C)
        machine.receive(B, data(B, 1))
        machine.install(A, C, D, digest={D: 9})
        assert machine.multicast.receiver(B) is None
        assert machine.multicast.digest()[D] == DigestEntry(9, 9, 9)
        assert machine.multicast.buffered_frames == 0
        assert B not in machine.multicast.sender.acks

    def test_a_view_is_installed_at_once_behind_a_full_window(self) -> None:
        machine = Machine(B, C, capacity=2)
        machine.send(*numbered(1, 9))
        assert machine.install(A, B) == []  # B has not acked either, so nothing is released
        assert C not in machine.multicast.sender.acks
        assert machine.multicast.sender.window.is_full

    def test_installing_the_same_view_again_changes_nothing(self) -> None:
        machine = Machine(B)
        machine.send(b"message 1")
        machine.receive(B, data(B, 1), data(B, 3))
        before = machine.multicast.digest()
        assert machine.install(A, B, digest={A: 0, B: 0}) == []
        assert machine.multicast.digest() == before

    def test_a_view_while_held_delivers_nothing(self) -> None:
        machine = Machine()
        machine.receive(B, data(B, 1))
        machine.multicast.pause()
        assert machine.install(A, B, digest={B: 0}) == []
        assert machine.resume() == [delivery(B, 1, 1)]


def test_the_next_deadline_is_the_earliest_of_all_streams() -> None:
    machine = Machine(B, C, capacity=32)
    assert machine.multicast.next_deadline() is None
    machine.receive(B, data(B, 1))
    assert machine.due == INTERVAL
    machine.now = MILLISECOND
    machine.receive(C, data(C, 2))
    assert machine.due == MILLISECOND + TIMEOUT
    machine.now = 0
    machine.send(b"message 1")
    assert machine.due == TIMEOUT


def test_ticking_early_late_or_twice_does_no_harm() -> None:
    machine = Machine(B, capacity=32)
    machine.receive(B, data(B, 1))
    assert machine.tick(1) == []
    assert machine.tick(10 * SECOND) == [Transmit(B, MulticastAck(1))]
    assert machine.tick(10 * SECOND) == []


def test_the_same_inputs_have_the_same_effects() -> None:
    def run() -> list[Effect]:
        machine = Machine(B, C, D, capacity=4)
        effects = machine.send(*numbered(1, 9))
        for source in (D, B, C):
            effects += machine.receive(source, data(source, 2), MulticastAck(3), Highest(5, 0))
        effects += machine.tick(INTERVAL)
        return effects + machine.install(A, D, B)

    assert run() == run()


def test_memory_is_bounded_by_a_window_for_each_member_and_the_early_frames() -> None:
    machine = Machine(B, C, config=MulticastConfig(capacity=4, early_frames=5))
    machine.multicast.pause()
    machine.send(*numbered(1, 50))
    for source in (B, C, D):
        machine.receive(source, *(data(source, seqno) for seqno in range(1, 100)))
    assert machine.multicast.buffered_frames == 3 * 4 + 5


def test_data_frames_carry_the_incarnation_of_their_sender() -> None:
    machine = Machine(A, C, local=B)
    (broadcast, *_) = machine.send(b"message 1")
    assert broadcast == Broadcast(MulticastData(B.incarnation, 1, 0, bodies(1, 1)[0]))


class TestASharedSocket:
    CONFIG = MulticastConfig(capacity=64, body_bytes=16_000, receive_bytes=1 << 20)

    @pytest.mark.parametrize(("members", "share"), [(1, 39), (2, 39), (3, 19), (5, 9), (9, 8), (100, 8)])
    def test_all_senders_of_a_view_share_what_it_holds(self, members: int, share: int) -> None:
        assert self.CONFIG.share(members) == share

    def test_without_a_known_limit_the_window_is_the_limit(self) -> None:
        assert MulticastConfig(capacity=64).share(9) == 64

    def test_a_sender_stops_at_its_share_and_goes_on_with_the_acks(self) -> None:
        multicast = Multicast(A, self.CONFIG, Counters())
        multicast.install_view([A, B, C], {B: 0, C: 0}, 0)
        sent = multicast.send([bytes(15_000)] * 40, 0)
        assert sum(isinstance(effect, Broadcast) for effect in sent) == 19
        multicast.receive(B, [MulticastAck(10)], 0)
        more = multicast.receive(C, [MulticastAck(10)], 0)
        assert sum(isinstance(effect, Broadcast) for effect in more) == 10

    def test_a_receiver_acks_a_quarter_of_a_share_at_once(self) -> None:
        multicast = Multicast(A, self.CONFIG, Counters())
        multicast.install_view([A, B, C], {B: 0, C: 0}, 0)
        assert not any(isinstance(e, Transmit) for e in multicast.receive(B, [data(B, n) for n in range(1, 4)], 0))
        assert Transmit(B, MulticastAck(4)) in multicast.receive(B, [data(B, 4)], 0)
