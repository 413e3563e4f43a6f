"""Hand-made histories: each rule of the checker catches what breaks it, and lets pass what only looks like it."""

from __future__ import annotations

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND
from motet.sim.checkers.channels import StreamChecker
from motet.sim.world.history import DeliveredBatch, ForgotSender, History, MessageStream

A = Address("a", "127.0.0.1", 7800, 1 << 48)
B = Address("b", "127.0.0.1", 7801, 2 << 48)
C = Address("c", "127.0.0.1", 7802, 3 << 48)

A_TO_B = MessageStream(Channel.UNICAST, A, B)
A_TO_C = MessageStream(Channel.UNICAST, A, C)
A_TO_ALL = MessageStream(Channel.MULTICAST, A, None)


def payload(stream: MessageStream, index: int) -> bytes:
    return f"{stream} number {index}".encode()


class Story:
    """Tells a history in short words, and has it judged."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.history = History(remembers=remembers)

    def sent(self, stream: MessageStream, count: int) -> Story:
        before = len(self.history.accepted.get(stream, ()))
        self.history.accept(stream, [payload(stream, index) for index in range(before, before + count)])
        return self

    def got(self, receiver: Address, stream: MessageStream, *indices: int) -> Story:
        """One batch with these messages of the stream, in this order."""
        messages = tuple(payload(stream, index) for index in indices)
        return self.got_bytes(receiver, stream, *messages)

    def got_bytes(self, receiver: Address, stream: MessageStream, *messages: bytes) -> Story:
        at = len(self.history.events) * MILLISECOND
        self.history.events.append(DeliveredBatch(at, receiver, stream.channel, stream.sender, messages))
        return self

    def forgot(self, receiver: Address, sender: Address) -> Story:
        self.history.events.append(ForgotSender(len(self.history.events) * MILLISECOND, receiver, sender))
        return self

    def failed(self, stream: MessageStream, first: int, last: int) -> Story:
        self.history.fail(stream, first, last)
        return self

    def counted_in(self, *receivers: Address) -> Story:
        for receiver in receivers:
            self.history.count_in(A, receiver)
        return self

    def counted_out(self, receiver: Address) -> Story:
        self.history.count_out(A, receiver)
        return self

    def died(self, address: Address) -> Story:
        self.history.dead.add(address)
        return self

    def broken(self) -> list[str]:
        """The rules that the deliveries break, in order."""
        return [violation.rule for violation in StreamChecker(self.history).run()]

    def missing(self) -> list[tuple[Address, MessageStream, int]]:
        checker = StreamChecker(self.history)
        checker.run()
        return list(checker.missing())


# Integrity


def test_an_empty_history_breaks_nothing_and_owes_nothing() -> None:
    assert Story().broken() == []
    assert Story().missing() == []


def test_what_was_sent_and_delivered_in_order_is_fine_however_it_is_cut_into_batches() -> None:
    story = Story().sent(A_TO_B, 5).got(B, A_TO_B, 0, 1, 2).got(B, A_TO_B, 3).got(B, A_TO_B, 4)
    assert story.broken() == []
    assert story.missing() == []


def test_a_message_that_nobody_sent_is_caught() -> None:
    story = Story().sent(A_TO_B, 1).got_bytes(B, A_TO_B, b"from nowhere")
    assert story.broken() == ["integrity"]


def test_a_message_that_is_changed_on_the_way_is_caught() -> None:
    story = Story().sent(A_TO_B, 1).got_bytes(B, A_TO_B, payload(A_TO_B, 0) + b"!")
    assert story.broken() == ["integrity"]


def test_an_unsent_message_does_not_hide_what_comes_after_it() -> None:
    story = Story().sent(A_TO_B, 2).got(B, A_TO_B, 0).got_bytes(B, A_TO_B, b"from nowhere").got(B, A_TO_B, 1)
    assert story.broken() == ["integrity"]
    assert story.got(B, A_TO_B, 1).broken() == ["integrity", "no duplication"]


def test_a_message_at_somebody_elses_door_is_caught() -> None:
    story = Story().sent(A_TO_C, 1).got_bytes(B, A_TO_B, payload(A_TO_C, 0))
    assert story.broken() == ["integrity"]
    assert Story().sent(A_TO_C, 1).got(C, A_TO_C, 0).broken() == []


def test_a_multicast_that_arrives_as_a_unicast_is_caught() -> None:
    story = Story().sent(A_TO_ALL, 1).got_bytes(B, A_TO_B, payload(A_TO_ALL, 0))
    assert story.broken() == ["integrity"]
    assert Story().sent(A_TO_ALL, 1).got(B, A_TO_ALL, 0).broken() == []


# No duplication


def test_a_message_that_comes_twice_is_caught() -> None:
    assert Story().sent(A_TO_B, 2).got(B, A_TO_B, 0, 1, 1).broken() == ["no duplication"]
    assert Story().sent(A_TO_B, 2).got(B, A_TO_B, 0, 1).broken() == []


def test_a_message_that_comes_again_much_later_is_caught() -> None:
    story = Story().sent(A_TO_ALL, 3).got(B, A_TO_ALL, 0, 1).got(B, A_TO_ALL, 2).got(B, A_TO_ALL, 0)
    assert "no duplication" in story.broken()


def test_a_multicast_comes_once_to_each_and_that_is_no_duplicate() -> None:
    story = Story().sent(A_TO_ALL, 2)
    for receiver in (A, B, C):
        story.got(receiver, A_TO_ALL, 0, 1)
    assert story.broken() == []


# FIFO without gaps


def test_a_swapped_pair_is_caught() -> None:
    assert Story().sent(A_TO_B, 3).got(B, A_TO_B, 0, 2, 1).broken() == ["fifo", "no duplication"]
    assert Story().sent(A_TO_B, 3).got(B, A_TO_B, 0, 1, 2).broken() == []


def test_a_swapped_pair_at_the_start_of_a_unicast_stream_is_caught() -> None:
    assert "fifo" in Story().sent(A_TO_B, 2).got(B, A_TO_B, 1, 0).broken()


def test_streams_may_be_mixed_as_long_as_each_is_in_order() -> None:
    b_to_c = MessageStream(Channel.UNICAST, B, C)
    story = Story().sent(A_TO_C, 2).sent(b_to_c, 2).sent(A_TO_ALL, 2)
    story.got(C, A_TO_C, 0).got(C, A_TO_ALL, 0).got(C, b_to_c, 0, 1).got(C, A_TO_ALL, 1).got(C, A_TO_C, 1)
    assert story.broken() == []


def test_a_gap_is_caught() -> None:
    assert Story().sent(A_TO_B, 3).got(B, A_TO_B, 0, 2).broken() == ["fifo"]
    assert Story().sent(A_TO_ALL, 3).got(B, A_TO_ALL, 0, 2).broken() == ["fifo"]


def test_a_gap_between_two_batches_is_caught() -> None:
    assert Story().sent(A_TO_ALL, 4).got(B, A_TO_ALL, 0, 1).got(B, A_TO_ALL, 3).broken() == ["fifo"]
    assert Story().sent(A_TO_ALL, 4).got(B, A_TO_ALL, 0, 1).got(B, A_TO_ALL, 2, 3).broken() == []


def test_a_unicast_stream_has_to_begin_with_its_first_message() -> None:
    assert Story().sent(A_TO_B, 2).got(B, A_TO_B, 1).broken() == ["fifo"]


def test_a_joiner_may_begin_in_the_middle_of_a_multicast_stream() -> None:
    assert Story().sent(A_TO_ALL, 2).counted_in(C).sent(A_TO_ALL, 2).got(C, A_TO_ALL, 2, 3).broken() == []


# Nothing is missing in the end


def test_a_missing_last_message_is_named() -> None:
    story = Story().sent(A_TO_B, 3).got(B, A_TO_B, 0, 1)
    assert story.broken() == []  # it may still come
    assert story.missing() == [(B, A_TO_B, 2)]
    assert story.got(B, A_TO_B, 2).missing() == []


def test_a_stream_of_which_nothing_came_is_missing_from_its_first_message() -> None:
    assert Story().sent(A_TO_B, 3).missing() == [(B, A_TO_B, 0)]


def test_a_multicast_is_missing_at_exactly_those_who_did_not_get_it() -> None:
    story = Story().counted_in(A, B, C).sent(A_TO_ALL, 2)
    story.got(A, A_TO_ALL, 0, 1).got(B, A_TO_ALL, 0).got(C, A_TO_ALL, 0, 1)
    assert story.missing() == [(B, A_TO_ALL, 1)]


def test_the_sender_owes_its_multicast_to_itself_too() -> None:
    story = Story().counted_in(A, B).sent(A_TO_ALL, 1).got(B, A_TO_ALL, 0)
    assert story.missing() == [(A, A_TO_ALL, 0)]


def test_a_joiner_is_owed_what_was_sent_after_it_was_counted_in() -> None:
    story = Story().sent(A_TO_ALL, 2).counted_in(C).sent(A_TO_ALL, 2)
    assert story.missing() == [(C, A_TO_ALL, 2)]
    assert story.got(C, A_TO_ALL, 2, 3).missing() == []


def test_a_joiner_that_begins_too_late_misses_what_came_before() -> None:
    story = Story().sent(A_TO_ALL, 2).counted_in(C).sent(A_TO_ALL, 2).got(C, A_TO_ALL, 3)
    assert story.missing() == [(C, A_TO_ALL, 2)]


def test_a_joiner_that_gets_more_than_it_is_owed_misses_nothing() -> None:
    story = Story().sent(A_TO_ALL, 2).counted_in(C).sent(A_TO_ALL, 1).got(C, A_TO_ALL, 1, 2)
    assert story.broken() == []
    assert story.missing() == []


def test_a_later_view_with_the_same_member_does_not_shorten_what_it_is_owed() -> None:
    story = Story().counted_in(B).sent(A_TO_ALL, 1).counted_in(B)
    assert story.missing() == [(B, A_TO_ALL, 0)]


def test_a_receiver_that_was_counted_out_is_owed_nothing() -> None:
    story = Story().counted_in(B, C).sent(A_TO_ALL, 1).got(B, A_TO_ALL, 0)
    assert story.missing() == [(C, A_TO_ALL, 0)]
    assert story.counted_out(C).missing() == []


def test_a_receiver_that_was_counted_out_still_gets_nothing_twice() -> None:
    story = Story().counted_in(C).sent(A_TO_ALL, 1).got(C, A_TO_ALL, 0).counted_out(C)
    assert story.broken() == []
    assert story.got(C, A_TO_ALL, 0).broken() == ["no duplication"]


def test_a_receiver_that_was_never_counted_in_is_owed_nothing() -> None:
    assert Story().counted_in(B).sent(A_TO_ALL, 1).got(B, A_TO_ALL, 0).missing() == []


# What was reported as failed


def test_a_failed_range_may_be_skipped() -> None:
    story = Story().sent(A_TO_B, 5).got(B, A_TO_B, 0).got(B, A_TO_B, 3, 4)
    assert story.broken() == ["fifo"]
    assert story.failed(A_TO_B, 1, 2).broken() == []
    assert story.missing() == []


def test_a_failed_range_excuses_no_message_beside_it() -> None:
    story = Story().sent(A_TO_B, 5).failed(A_TO_B, 1, 2).got(B, A_TO_B, 0, 4)
    assert story.broken() == ["fifo"]  # message 3 did not fail


def test_a_failed_range_of_another_stream_excuses_nothing() -> None:
    story = Story().sent(A_TO_B, 3).sent(A_TO_C, 3).failed(A_TO_C, 1, 1).got(B, A_TO_B, 0, 2)
    assert story.broken() == ["fifo"]


def test_two_failed_ranges_that_touch_may_be_skipped_together() -> None:
    story = Story().sent(A_TO_B, 5).failed(A_TO_B, 1, 1).failed(A_TO_B, 2, 3).got(B, A_TO_B, 0, 4)
    assert story.broken() == []


def test_a_failed_beginning_may_be_skipped() -> None:
    story = Story().sent(A_TO_B, 3).got(B, A_TO_B, 2)
    assert story.broken() == ["fifo"]
    assert story.failed(A_TO_B, 0, 1).broken() == []
    assert story.missing() == []


def test_a_failed_end_is_not_missing() -> None:
    story = Story().sent(A_TO_B, 3).got(B, A_TO_B, 0)
    assert story.missing() == [(B, A_TO_B, 1)]
    assert story.failed(A_TO_B, 1, 1).missing() == [(B, A_TO_B, 2)]
    assert story.failed(A_TO_B, 2, 2).missing() == []


def test_a_stream_that_failed_as_a_whole_is_not_missing() -> None:
    assert Story().sent(A_TO_B, 3).failed(A_TO_B, 0, 2).missing() == []


def test_a_failed_message_may_have_arrived_all_the_same_but_once() -> None:
    story = Story().sent(A_TO_B, 3).failed(A_TO_B, 1, 1).got(B, A_TO_B, 0, 1, 2)
    assert story.broken() == []
    assert story.got(B, A_TO_B, 1).broken() == ["no duplication"]


# Receivers that forget


def forgetful() -> Story:
    """B has three messages of A and has just dropped its window, with nothing to remember it by."""
    return Story(remembers=False).sent(A_TO_B, 5).got(B, A_TO_B, 0, 1, 2).forgot(B, A)


def test_a_forgetful_receiver_may_repeat_after_it_forgot() -> None:
    assert forgetful().got(B, A_TO_B, 0, 1, 2).got(B, A_TO_B, 3, 4).broken() == []
    assert forgetful().got(B, A_TO_B, 2, 3, 4).broken() == []


def test_a_forgetful_receiver_need_not_repeat() -> None:
    assert forgetful().got(B, A_TO_B, 3, 4).broken() == []


def test_a_forgetful_receiver_may_go_on_before_it_has_repeated_everything() -> None:
    """A late first message opens the window at the beginning; then a SYNC-OK tells it where the sender stands."""
    story = forgetful().got(B, A_TO_B, 0).got(B, A_TO_B, 3, 4)
    assert story.broken() == []
    assert story.missing() == []


def test_a_repetition_takes_nothing_back_of_what_has_arrived() -> None:
    assert forgetful().got(B, A_TO_B, 0).missing() == [(B, A_TO_B, 3)]


def test_a_repetition_that_comes_before_the_forgetting_is_caught() -> None:
    story = Story(remembers=False).sent(A_TO_B, 3).got(B, A_TO_B, 0, 1, 1, 2).forgot(B, A)
    assert story.broken() == ["no duplication"]


def test_a_forgetful_receiver_may_not_repeat_what_came_after_it_forgot() -> None:
    assert forgetful().got(B, A_TO_B, 3).got(B, A_TO_B, 3).broken() == ["no duplication"]


def test_a_forgetful_receiver_may_repeat_once_for_each_time_it_forgot() -> None:
    assert forgetful().got(B, A_TO_B, 1, 2).got(B, A_TO_B, 1).broken() == ["no duplication"]
    assert forgetful().got(B, A_TO_B, 1, 2).forgot(B, A).got(B, A_TO_B, 1, 2, 3, 4).broken() == []


def test_a_forgetful_receiver_may_not_skip() -> None:
    assert forgetful().got(B, A_TO_B, 4).broken() == ["fifo"]
    assert forgetful().got(B, A_TO_B, 2).got(B, A_TO_B, 4).broken() == ["fifo"]


def test_a_receiver_that_remembers_its_windows_may_never_repeat() -> None:
    story = Story(remembers=True).sent(A_TO_B, 3).got(B, A_TO_B, 0, 1).forgot(B, A).got(B, A_TO_B, 1)
    assert story.broken() == ["no duplication"]


def test_forgetting_one_sender_excuses_no_repetition_of_another() -> None:
    c_to_b = MessageStream(Channel.UNICAST, C, B)
    assert forgetful().sent(c_to_b, 1).got(B, c_to_b, 0).got(B, c_to_b, 0).broken() == ["no duplication"]


def test_the_forgetting_of_one_receiver_excuses_no_other() -> None:
    story = forgetful().sent(A_TO_C, 1).got(C, A_TO_C, 0).got(C, A_TO_C, 0)
    assert story.broken() == ["no duplication"]


def test_forgetting_a_unicast_window_excuses_no_repetition_of_multicasts() -> None:
    story = Story(remembers=False).sent(A_TO_ALL, 2).got(B, A_TO_ALL, 0, 1).forgot(B, A).got(B, A_TO_ALL, 1)
    assert story.broken() == ["no duplication"]


# The dead


def test_a_dead_sender_owes_nothing() -> None:
    story = Story().counted_in(B).sent(A_TO_B, 1).sent(A_TO_ALL, 1)
    assert story.missing() == [(B, A_TO_B, 0), (B, A_TO_ALL, 0)]
    assert story.died(A).missing() == []


def test_nothing_is_owed_to_a_dead_receiver() -> None:
    story = Story().counted_in(B, C).sent(A_TO_B, 1).sent(A_TO_ALL, 1).died(B)
    assert story.missing() == [(C, A_TO_ALL, 0)]


def test_death_excuses_no_broken_order() -> None:
    story = Story().sent(A_TO_B, 3).got(B, A_TO_B, 0, 2).died(A).died(B)
    assert story.broken() == ["fifo"]


# What a person reads


def test_a_violation_says_which_rule_when_who_and_what() -> None:
    story = Story().sent(A_TO_B, 3).got(B, A_TO_B, 0).got(B, A_TO_B, 2)
    (violation,) = StreamChecker(story.history).run()
    assert str(violation) == f"fifo: 1.0 ms: {B} got {A} -> {B}: message 2 came where 1 was next"
