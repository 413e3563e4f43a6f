"""What breaks group communication systems: each test names a fault that was once a real bug in one of them."""

from __future__ import annotations

import pytest

from motet.errors import BacklogFullError, LeftGroupError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Admitted, BehindPurgePoint, Channel, SendFailed
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.multicast import MulticastConfig
from motet.protocol.window.digest import DigestEntry
from motet.protocol.wire.frames import Highest, MulticastAck, MulticastData, MulticastXmitRequest, Purged
from tests.protocol.multicast.link import A, B, C, D, Group, both, data, data_of, kind, numbered, path

SMALL = MulticastConfig(capacity=8)


def assert_all_have(group: Group, messages: list[bytes], sender: Address, *members: Address) -> None:
    for member in members:
        assert group.inbox(member, sender) == messages, f"at {member}"


def assert_drained(group: Group, *members: Address) -> None:
    """Every window of every living member is empty, the kept copies included, and nothing waits."""
    for member in members:
        assert group.sender(member).is_drained
        assert group[member].buffered_frames == 0, f"{member} still holds frames"


# The tail


def test_the_last_multicast_is_lost_and_the_next_interval_repairs_it() -> None:
    group = Group(A, B, C)
    group.drop(both(data_of(3), path(A, B)), times=1)
    group.send(A, *numbered(1, 3))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 3), A, A, B, C)
    assert_drained(group, A, B, C)
    assert group.now < 500 * MILLISECOND  # at the pace of the round trip, not of the slow interval


def test_the_last_multicast_and_the_first_announcement_are_lost_and_the_next_interval_repairs_it() -> None:
    group = Group(A, B, C)
    group.drop(both(data_of(3), path(A, B)), times=1)
    group.drop(both(kind(Highest), path(A, B)), times=1)
    group.send(A, *numbered(1, 3))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 3), A, A, B, C)
    assert_drained(group, A, B, C)
    assert len(group.flights(both(kind(Highest), path(A, B)))) >= 2


def test_the_only_multicast_is_lost_everywhere_and_still_arrives() -> None:
    group = Group(A, B, C)
    group.drop(kind(MulticastData), times=2)
    group.send(A, b"alone")
    group.run_until_quiet()
    assert_all_have(group, [b"alone"], A, A, B, C)


def test_the_final_ack_is_lost_then_it_is_sent_again_and_the_window_drains() -> None:
    group = Group(A, B, C)
    group.drop(both(kind(MulticastAck), path(B, A)), times=1)
    group.send(A, *numbered(1, 3))
    group.run_until_quiet()
    assert len(group.frames(B, MulticastAck)) >= 2
    assert_all_have(group, numbered(1, 3), A, A, B, C)
    assert_drained(group, A, B, C)
    assert group.counted(Count.FRAME_RESENT) == 0  # the data was there; only the ack had to come again


def test_every_ack_is_lost_for_a_while_and_notices_keep_to_the_slow_interval() -> None:
    group = Group(A, B)
    group.drop(kind(MulticastAck))
    group.send(A, b"one")
    group.run_for(10 * SECOND)
    notices = group.frames(A, Highest)
    assert 15 <= len(notices) <= 30  # about two in a second once the back-off has reached its ceiling
    assert set(notices) == {Highest(1, 0)}
    group.heal()
    group.run_until_quiet()
    assert_drained(group, A, B)


# Full windows and views


def test_a_sender_waits_on_a_full_window_and_the_view_without_the_crashed_member_releases_it() -> None:
    group = Group(A, B, C, config=SMALL)
    group.crash(C)
    group.send(A, *numbered(1, 20))
    group.run_for(5 * SECOND)
    assert group.sender(A).window.high == 8  # C never acked, so exactly one window went out
    assert group.inbox(B, A) == numbered(1, 8)
    group.install(A, B)
    group.run_until_quiet()
    assert group.sender(A).accepted == group.sender(A).admitted == 20
    assert_all_have(group, numbered(1, 20), A, A, B)
    assert_drained(group, A, B)


def test_two_members_crash_one_after_the_other_with_the_window_full_and_both_views_are_installed_in_order() -> None:
    group = Group(A, B, C, D, config=SMALL)
    group.crash(C)
    group.send(A, *numbered(1, 20))
    group.run_for(SECOND)
    group.crash(D)
    group.install(A, B, D)
    assert group.sender(A).window.high > 8  # D had acked the first window before it crashed
    group.send(A, *numbered(21, 40))
    group.run_for(5 * SECOND)
    stuck_at = group.sender(A).window
    assert stuck_at.is_full
    assert C not in group.sender(A).acks
    assert D in group.sender(A).acks
    group.install(A, B)
    assert D not in group.sender(A).acks
    group.run_until_quiet()
    assert group.views[A] == group.views[B] == (A, B)
    assert_all_have(group, numbered(1, 40), A, A, B)
    assert_drained(group, A, B)


def test_two_members_crash_at_once_and_the_first_view_is_installed_though_it_cannot_release_the_window() -> None:
    group = Group(A, B, C, D, config=SMALL)
    group.crash(C)
    group.crash(D)
    group.send(A, *numbered(1, 20))
    group.run_for(SECOND)
    group.install(A, B, D)
    group.run_for(SECOND)
    assert group.views[A] == (A, B, D)  # installed, although the window is as full as it was
    assert group.sender(A).window.is_full
    assert group.sender(A).window.high == 8
    group.install(A, B)
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 20), A, A, B)
    assert_drained(group, A, B)


def test_all_others_crash_and_a_waiting_sender_goes_on_alone() -> None:
    group = Group(A, B, C, config=SMALL)
    group.crash(B)
    group.crash(C)
    group.send(A, *numbered(1, 30))
    group.run_for(SECOND)
    group.install(A)
    group.run_until_quiet()
    assert group.inbox(A, A) == numbered(1, 30)
    assert_drained(group, A)


def test_leave_while_a_send_is_waiting_ends_it_with_a_clear_error_and_no_gap_in_the_seqnos() -> None:
    group = Group(A, B, config=SMALL)
    group.pause(B)
    group.send(A, *numbered(1, 12))
    group.run_for(SECOND)
    group.leave(A)
    (failed,) = group.effects(A, SendFailed)
    assert (failed.channel, failed.to, failed.first, failed.last) == (Channel.MULTICAST, None, 9, 12)
    assert isinstance(failed.error, LeftGroupError)
    assert "left the group" in str(failed.error)
    with pytest.raises(LeftGroupError, match="join again"):
        group.send(A, b"too late")
    group.resume(B)
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 8), A, A, B)
    assert group.sender(A).window.high == group.receiver(B, A).window.high == 8
    assert_drained(group, A, B)


def test_leave_while_a_large_message_is_half_in_the_window_hands_up_no_part_of_it() -> None:
    group = Group(A, B, config=MulticastConfig(capacity=4, body_bytes=64))
    group.send(A, b"before", bytes(1_000))
    group.leave(A)
    group.run_until_quiet()
    assert [(f.first, f.last) for f in group.effects(A, SendFailed)] == [(2, 2)]
    assert_all_have(group, [b"before"], A, A, B)
    assert_drained(group, A, B)


def test_what_was_sent_before_leaving_is_still_repaired() -> None:
    group = Group(A, B)
    group.drop(data_of(2), times=1)
    group.send(A, *numbered(1, 2))
    group.leave(A)
    group.run_until_quiet()
    assert group.effects(A, SendFailed) == []
    assert_all_have(group, numbered(1, 2), A, A, B)


# Acks of those who are gone


def test_the_ack_of_a_member_that_has_left_is_ignored_blocks_nothing_and_purges_nothing_early() -> None:
    group = Group(A, B, C, config=SMALL)
    group.drop(path(A, B))
    late = group.collect(both(kind(MulticastAck), path(C, A)))
    group.send(A, *numbered(1, 8))
    group.run_for(SECOND)
    group.install(A, B, at=(A, B))
    assert late
    group.bring(late)
    assert group.counters[A][Count.ACK_OF_NON_MEMBER] == len(late)
    assert group.sender(A).window.low == 0  # B has nothing yet
    group.heal()
    group.crash(C)
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 8), A, A, B)
    assert_drained(group, A, B)


# Order and gaps


@pytest.mark.parametrize("count", [2, 3, 7])
def test_reordering_without_loss_causes_no_retransmission_request(count: int) -> None:
    group = Group(A, B, C)
    group.reorder(both(kind(MulticastData), path(A, B)), count)
    group.send(A, *numbered(1, 7))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 7), A, A, B, C)
    assert group.counted(Count.REPAIR_ASKED) == 0
    assert group.counted(Count.FRAME_RESENT) == 0


def test_frames_overtaken_by_half_a_round_trip_cause_no_retransmission_request() -> None:
    group = Group(A, B)
    group.delay(data_of(1, 3, 5), by_ns=10 * MILLISECOND)
    group.send(A, *numbered(1, 6))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 6), A, B)
    assert group.counted(Count.REPAIR_ASKED) == 0


def test_a_batch_that_holds_frames_in_the_wrong_order_is_delivered_in_the_right_one() -> None:
    group = Group(A, B)
    taken = group.collect(kind(MulticastData))
    group.send(A, *numbered(1, 4))
    group.bring(reversed(taken))
    assert_all_have(group, numbered(1, 4), A, B)


def test_a_gap_of_tens_of_thousands_is_asked_for_in_parts_and_recovers() -> None:
    wide = MulticastConfig(capacity=65_536, body_bytes=64, repair_burst=4_096, request_limit=512)
    group = Group(A, B, config=wide, checking=False)
    lost = 30_000
    group.drop(kind(MulticastData), times=lost)
    messages = [number.to_bytes(4, "big") for number in range(lost + 5)]
    group.send(A, *messages)
    group.run_until_quiet()
    assert group.inbox(B, A) == messages
    requests = group.frames(B, MulticastXmitRequest)
    assert len(requests) >= lost / 512
    for request in requests:
        assert sum(last - first + 1 for first, last in request.ranges) <= 512
    assert group.counters[A][Count.FRAME_RESENT] == lost  # each once: requests overlap nowhere
    assert_drained(group, A, B)


def test_many_small_gaps_are_repaired_together() -> None:
    group = Group(A, B, C)
    group.drop(both(lambda f: isinstance(f.frame, MulticastData) and f.frame.seqno % 2 == 0, path(A, B)), times=50)
    group.send(A, *numbered(1, 101))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 101), A, B, C)
    assert group.counters[B][Count.REPAIR_ASKED] <= 2
    assert group.counters[A][Count.FRAME_RESENT] == 50


# Digests


def test_a_lower_digest_leaves_our_windows_alone_and_nothing_comes_twice() -> None:
    """A and B have gone on since the digest was taken: going back to it would deliver the same messages again."""
    group = Group(A, B)
    group.send(A, *numbered(1, 20))
    group.send(B, *numbered(1, 10))
    group.run_until_quiet()
    group.install(A, B, digest={A: 15, B: 7})
    assert group[A].digest() == {A: DigestEntry(20, 20, 20), B: DigestEntry(10, 10, 10)}
    assert group[B].digest() == {A: DigestEntry(20, 20, 20), B: DigestEntry(10, 10, 10)}
    group.send(A, b"next of A")
    group.send(B, b"next of B")
    group.run_until_quiet()
    assert_all_have(group, [*numbered(1, 20), b"next of A"], A, A, B)
    assert_all_have(group, [*numbered(1, 10), b"next of B"], B, A, B)


def test_an_equal_digest_changes_nothing() -> None:
    group = Group(A, B)
    group.send(A, *numbered(1, 5))
    group.run_until_quiet()
    before = group[B].digest()
    group.install(A, B, digest={A: 5, B: 0})
    assert group[B].digest() == before
    group.send(A, b"six")
    group.run_until_quiet()
    assert_all_have(group, [*numbered(1, 5), b"six"], A, A, B)


def test_a_higher_digest_resets_the_window_of_another_and_what_lies_beyond_it_is_kept() -> None:
    group = Group(A, B)
    group.drop(data_of(1, 2))
    group.send(A, *numbered(1, 5))
    group.run_for(5 * MILLISECOND)
    group.install(A, B, digest={A: 3, B: 0})
    assert group.inbox(B, A) == numbered(4, 5)  # 3 was held, and is skipped; 4 and 5 were held, and follow
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 5), A, A)
    assert_drained(group, A, B)


def test_our_own_entry_in_a_higher_digest_is_never_taken_over() -> None:
    group = Group(A, B)
    group.send(A, *numbered(1, 5))
    group.run_until_quiet()
    group.install(A, B, at=[A], digest={A: 99, B: 0})
    assert group[A].digest()[A] == DigestEntry(5, 5, 5)
    group.send(A, b"six")
    assert group.frames(A, MulticastData)[-1].seqno == 6
    group.run_until_quiet()
    assert_all_have(group, [*numbered(1, 5), b"six"], A, A, B)


# Unequal windows


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_a_receiver_with_a_smaller_window_than_the_sender_makes_progress_and_never_stalls(capacity: int) -> None:
    group = Group(A, B, C, config=MulticastConfig(capacity=64), configs={B: MulticastConfig(capacity=capacity)})
    group.send(A, *numbered(1, 100))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 100), A, A, B, C)
    assert group.counters[B][Count.FRAME_OUTSIDE_WINDOW] > 0
    assert_drained(group, A, B, C)


def test_a_receiver_with_a_larger_window_than_the_sender_sees_no_difference() -> None:
    group = Group(A, B, config=MulticastConfig(capacity=2), configs={B: MulticastConfig(capacity=64)})
    group.send(A, *numbered(1, 50))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 50), A, A, B)
    assert_drained(group, A, B)


# What is gone


def test_a_seqno_that_was_purged_already_is_answered_with_purged_and_nobody_asks_for_ever() -> None:
    """C joins with a digest that is older than what A still holds: nobody can give it 7 to 10 any more."""
    group = Group(A, B)
    group.send(A, *numbered(1, 10))
    group.run_until_quiet()
    group.start(C)
    group.install(A, B, C, digest={A: 6, B: 0, C: 0})
    group.send(A, b"eleven")
    group.run_for(30 * SECOND)
    assert group.effects(C, BehindPurgePoint) == [BehindPurgePoint(A, 10)]
    assert group.frames(A, Purged) == [Purged(A.incarnation, 10)]
    assert len(group.frames(C, MulticastXmitRequest)) == 1
    assert group.inbox(C, A) == []  # skipping what is missing would be a silent gap
    group.install(A, B, C, digest={A: 11, B: 0, C: 0})  # only a new view can help
    group.send(A, b"twelve")
    group.run_until_quiet()
    assert group.inbox(C, A) == [b"twelve"]
    assert group.inbox(B, A) == [*numbered(1, 10), b"eleven", b"twelve"]


def test_a_member_that_the_sender_no_longer_counts_in_is_told_so_and_does_not_ask_for_ever() -> None:
    """A goes on without B, which has not heard of that view and still misses a frame of the old one."""
    group = Group(A, B)
    group.drop(data_of(2))
    group.send(A, *numbered(1, 3))
    group.run_for(2 * MILLISECOND)
    group.install(A, at=[A])
    group.heal()
    group.run_for(30 * SECOND)
    assert group.effects(B, BehindPurgePoint) == [BehindPurgePoint(A, 3)]
    assert len(group.frames(B, MulticastXmitRequest)) <= 2


# Joining


def test_a_multicast_that_arrives_before_the_joiner_has_its_view_is_kept_and_delivered_after_it() -> None:
    group = Group(A, B)
    group.send(A, *numbered(1, 3))
    group.run_until_quiet()
    group.start(C)
    digest = {A: 3, B: 0, C: 0}
    group.install(A, B, C, at=(A, B), digest=digest)
    group.send(A, *numbered(4, 6))
    group.run_for(5 * MILLISECOND)
    assert group.inbox(C, A) == []
    assert group.counters[C][Count.FRAME_EARLY] == 3
    group.install(A, B, C, at=[C], digest=digest)
    assert group.inbox(C, A) == numbered(4, 6)
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 6), A, A, B)
    assert group.counted(Count.FRAME_RESENT) == 0
    assert_drained(group, A, B, C)


def test_what_is_kept_for_a_joiner_is_bounded_and_the_rest_is_asked_for() -> None:
    group = Group(A, B)
    group.start(C, MulticastConfig(early_frames=2))
    digest = {A: 0, B: 0, C: 0}
    group.install(A, B, C, at=(A, B), digest=digest)
    group.send(A, *numbered(1, 6))
    group.run_for(5 * MILLISECOND)
    assert group[C].buffered_frames == 2
    assert group.counters[C][Count.FRAME_EARLY_DROPPED] == 4
    group.install(A, B, C, at=[C], digest=digest)
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 6), A, A, B, C)


def test_a_joiner_counts_from_the_digest_on_and_hears_nothing_older() -> None:
    group = Group(A, B)
    group.send(A, *numbered(1, 7))
    group.run_until_quiet()
    group.start(C)
    group.install(A, B, C)
    group.send(A, *numbered(8, 9))
    group.send(C, b"hello")
    group.run_until_quiet()
    assert group.inbox(C, A) == numbered(8, 9)
    assert_all_have(group, [b"hello"], C, A, B, C)
    assert_drained(group, A, B, C)


# Consumers


def test_a_consumer_that_raises_loses_and_repeats_no_other_delivery() -> None:
    """Effects are data: when the consumer runs, the machine has moved on and cannot be half way through anything."""

    def picky(sender: Address, message: bytes) -> None:
        if message == b"message 3":
            raise ValueError("I do not like threes")

    group = Group(A, B, C, config=SMALL)
    group.consumers[B] = picky
    group.duplicate(kind(MulticastData))  # a second copy must not bring the refused message back
    group.send(A, *numbered(1, 20))
    group.run_until_quiet()
    assert [str(error) for error in group.reported] == ["I do not like threes"]
    assert group.inbox(B, A) == [message for message in numbered(1, 20) if message != b"message 3"]
    assert_all_have(group, numbered(1, 20), A, A, C)
    assert_drained(group, A, B, C)  # the refused one is acked like the others: it was handed over


# Slow receivers


def test_one_slow_receiver_slows_the_sender_to_its_pace_and_memory_stays_bounded() -> None:
    group = Group(A, B, C, config=SMALL)
    group.pause(C)
    group.send(A, *(bytes([number]) * 30_000 for number in range(100)))  # two to a frame, so packing cannot hide it
    for _ in range(60):
        group.run_for(SECOND)
        for member in (A, B, C):
            assert group[member].buffered_frames <= 3 * SMALL.capacity
        assert group.sender(A).window.high <= group.receiver(C, A).window.delivered + SMALL.capacity
        group.resume(C)
        group.pause(C)
    assert group.views == dict.fromkeys((A, B, C), (A, B, C))  # slow is not dead
    group.resume(C)
    group.run_until_quiet()
    assert_all_have(group, [bytes([number]) * 30_000 for number in range(100)], A, A, B, C)
    assert_drained(group, A, B, C)


def test_a_receiver_that_takes_nothing_holds_the_sender_at_exactly_one_window() -> None:
    group = Group(A, B, C, config=SMALL)
    group.pause(C)
    group.send(A, *numbered(1, 50))
    group.run_for(60 * SECOND)
    assert group.sender(A).window.high == 8
    assert [effect.through for effect in group.effects(A, Admitted)] == list(range(1, 9))
    assert group.inbox(B, A) == numbered(1, 8)
    assert group.inbox(C, A) == []
    group.resume(C)
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 50), A, A, B, C)


def test_a_slow_receiver_fills_the_backlog_up_to_its_bound_and_then_send_refuses() -> None:
    group = Group(A, B, config=MulticastConfig(capacity=2, backlog_bytes=1_000))
    group.pause(B)
    sent = 2 + 11  # two in the window, ten that fill the bound exactly, and the one that passes it
    group.send(A, *[bytes(96)] * sent)
    with pytest.raises(BacklogFullError, match="wait for Admitted"):
        group.send(A, b"one more")
    assert group.sender(A).accepted == sent
    group.resume(B)
    group.run_until_quiet()
    assert group.effects(A, Admitted)[-1].through == sent
    group.send(A, b"again")
    group.run_until_quiet()
    assert_all_have(group, [bytes(96)] * sent + [b"again"], A, A, B)


# More of the same kind


def test_everything_arrives_twice_and_is_delivered_once() -> None:
    group = Group(A, B, C, config=SMALL)
    group.duplicate(lambda _: True)
    group.send(A, *numbered(1, 30))
    group.send(B, *numbered(1, 30))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 30), A, A, B, C)
    assert_all_have(group, numbered(1, 30), B, A, B, C)
    assert_drained(group, A, B, C)


def test_the_first_repair_is_lost_too() -> None:
    group = Group(A, B)
    group.drop(data_of(2), times=2)
    group.send(A, *numbered(1, 3))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 3), A, A, B)
    assert len(group.frames(B, MulticastXmitRequest)) == 2


def test_the_request_for_a_retransmission_is_lost() -> None:
    group = Group(A, B)
    group.drop(data_of(2), times=1)
    group.drop(kind(MulticastXmitRequest), times=1)
    group.send(A, *numbered(1, 3))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 3), A, A, B)


def test_a_frame_of_the_old_view_that_arrives_after_its_sender_was_removed_is_not_delivered() -> None:
    group = Group(A, B, C)
    late = group.collect(both(kind(MulticastData), path(C, A)))
    group.send(C, b"late")
    group.run_for(2 * MILLISECOND)
    group.crash(C)
    group.install(A, B)
    group.bring(late)
    group.run_for(SECOND)
    assert group.inbox(A, C) == []
    group.install(A, B)  # the next view drops what was kept of a stranger
    assert group[A].buffered_frames == 0


def test_two_receivers_lose_the_same_frame_and_one_multicast_repairs_both() -> None:
    group = Group(A, B, C, D)
    lost = both(data_of(2), lambda flight: flight.to in (B, C))
    group.drop(lost, times=2)
    group.delay(both(kind(MulticastXmitRequest), path(C, A)), by_ns=MILLISECOND)
    group.drop(both(data_of(2), path(A, B)), times=1)  # the answer to B alone is lost as well
    group.send(A, *numbered(1, 3))
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 3), A, A, B, C, D)
    assert group.counters[A][Count.FRAME_RESENT] == 2  # once to B, then once to all
    assert len(group.frames(B, MulticastXmitRequest)) == 1


def test_a_partition_of_one_minute_heals_and_nothing_is_missing() -> None:
    group = Group(A, B, C, config=SMALL)
    group.drop(lambda flight: C in (flight.source, flight.to))
    group.send(A, *numbered(1, 20))
    group.send(C, *numbered(1, 20))
    group.run_for(60 * SECOND)
    group.heal()
    healed_at = group.now
    group.run_until_quiet()
    assert_all_have(group, numbered(1, 20), A, A, B, C)
    assert_all_have(group, numbered(1, 20), C, A, B, C)
    assert group.now - healed_at < 5 * SECOND
    assert_drained(group, A, B, C)


def test_a_survivor_hands_on_what_a_crashed_sender_sent_to_it_alone() -> None:
    group = Group(A, B, C)
    group.drop(both(kind(MulticastData), path(C, A)))
    group.send(C, *numbered(1, 3))
    group.run_for(2 * MILLISECOND)
    group.crash(C)
    assert group[A].digest()[C].received == 0
    assert group[B].digest()[C].received == 3
    group.receive(B, A, MulticastXmitRequest(C.incarnation, ((1, 3),)))
    group.run_for(2 * MILLISECOND)
    assert_all_have(group, numbered(1, 3), C, A, B)
    group.install(A, B)
    group.run_until_quiet()
    assert_drained(group, A, B)


def test_nonsense_of_a_member_changes_nothing_that_is_delivered() -> None:
    group = Group(A, B, C)
    group.send(A, *numbered(1, 3))
    group.receive(A, B, MulticastAck(999), MulticastXmitRequest(12345, ((1, 5),)), Purged(A.incarnation, 7))
    group.receive(C, B, data(A, 2, b"again"), Purged(A.incarnation, 9), Highest(0, 0))
    group.run_until_quiet()
    assert group.inbox(C, A)[0] == b"message 1"
    assert group.effects(C, BehindPurgePoint) == []
    assert group.counters[A][Count.ACK_BEYOND_SENT] == 1
    assert_drained(group, A, B)
