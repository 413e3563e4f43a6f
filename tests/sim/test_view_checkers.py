"""Hand-made histories of views: each rule catches what breaks it, and lets pass what only looks like it."""

from __future__ import annotations

from dataclasses import replace

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND
from motet.protocol.core.view import View, ViewId
from motet.sim.checkers.views import check_self_delivery, check_views
from motet.sim.world.history import DeliveredBatch, EnteredView, History, MessageStream, RestartedWithState

A = Address("a", "127.0.0.1", 7800, 1 << 48)
B = Address("b", "127.0.0.1", 7801, 2 << 48)
C = Address("c", "127.0.0.1", 7802, 3 << 48)
D = Address("d", "127.0.0.1", 7803, 4 << 48)
E = Address("e", "127.0.0.1", 7804, 5 << 48)
A2, B2, A3 = (replace(one, incarnation=life * 10 + one.incarnation) for life, one in ((1, A), (1, B), (2, A)))


def view(number: int, *members: Address, primary: bool = False, creator: Address | None = None) -> View:
    return View(ViewId(number, (creator or members[0]).incarnation), members, primary)


def primary(number: int, *members: Address, creator: Address | None = None) -> View:
    return view(number, *members, primary=True, creator=creator)


def payload(stream: MessageStream, place: int) -> bytes:
    return f"{stream} number {place}".encode()


class Story:
    """Tells a history in short words, and has it judged."""

    def __init__(self) -> None:
        self.history = History()

    def entered(self, entering: View, *members: Address) -> Story:
        """These members, or all of its members, install the view."""
        for member in members or entering.members:
            self.history.events.append(EnteredView(self._now, member, entering, ()))
        return self

    def sent(self, sender: Address, count: int, *, to: Address | None = None) -> Story:
        stream = _stream(sender, to)
        before = len(self.history.accepted.get(stream, ()))
        self.history.accept(stream, [payload(stream, place) for place in range(before, before + count)])
        return self

    def got(self, receiver: Address, sender: Address, *places: int, by_unicast: bool = False) -> Story:
        stream = _stream(sender, receiver if by_unicast else None)
        messages = tuple(payload(stream, place) for place in places)
        self.history.events.append(DeliveredBatch(self._now, receiver, stream.channel, sender, messages))
        return self

    def all_got(self, receivers: tuple[Address, ...], sender: Address, *places: int) -> Story:
        for receiver in receivers:
            self.got(receiver, sender, *places)
        return self

    def restarted(self, before: Address, member: Address, last: View | None = None) -> Story:
        self.history.events.append(RestartedWithState(self._now, member, before, last=last))
        return self

    def failed(self, sender: Address, first: int, last: int) -> Story:
        self.history.fail(_stream(sender, None), first, last)
        return self

    def died(self, member: Address) -> Story:
        self.history.dead.add(member)
        return self

    def asked_to_leave(self, member: Address) -> Story:
        self.history.leavers.add(member)
        return self

    def broken(self, *, static_quorum: int = 0, is_one_primary: bool = True) -> list[str]:
        """The rules that are broken, in order."""
        violations = check_views(self.history, static_quorum=static_quorum, is_one_primary=is_one_primary)
        return [violation.rule for violation in violations]

    def undelivered(self) -> list[str]:
        return [violation.what for violation in check_self_delivery(self.history)]

    @property
    def _now(self) -> int:
        return len(self.history.events) * MILLISECOND


def _stream(sender: Address, to: Address | None) -> MessageStream:
    return MessageStream(Channel.UNICAST if to else Channel.MULTICAST, sender, to)


AB = view(2, A, B)
ABC = view(3, A, B, C)


# Agreement


def test_an_empty_history_breaks_nothing() -> None:
    assert Story().broken() == []


def test_members_that_install_the_same_views_agree() -> None:
    assert Story().entered(view(1, A)).entered(view(1, B)).entered(AB).entered(ABC).broken() == []


def test_one_id_must_not_name_two_member_lists() -> None:
    story = Story().entered(AB, A).entered(View(AB.id, (B, A), is_primary=False), B)
    assert story.broken() == ["agreement"]


def test_one_id_must_not_name_a_primary_view_and_one_that_is_not() -> None:
    story = Story().entered(AB, A).entered(View(AB.id, AB.members, is_primary=True), B)
    assert story.broken() == ["agreement"]


def test_two_views_may_have_the_same_number_if_others_made_them() -> None:
    assert Story().entered(view(5, A, B)).entered(view(5, C, D)).broken() == []


def test_a_process_is_in_every_view_that_it_installs() -> None:
    assert Story().entered(AB, C).broken() == ["agreement"]


def test_no_stale_view_after_a_newer_one() -> None:
    assert Story().entered(ABC, A).entered(AB, A).broken() == ["view order"]


def test_no_view_is_installed_twice() -> None:
    assert Story().entered(AB, A).entered(AB, A).broken() == ["view order"]


def test_of_two_views_with_one_number_neither_follows_the_other() -> None:
    low, high = view(4, A, B, creator=A), view(4, A, B, creator=B)
    assert Story().entered(low, A).entered(high, A).broken() == ["view order"]
    assert Story().entered(high, A).entered(low, A).broken() == ["view order"]


# Virtual synchrony


def test_who_goes_on_together_delivered_the_same() -> None:
    story = Story().sent(A, 2).entered(AB).all_got((A, B), A, 0, 1)
    assert story.entered(ABC).broken() == []


def test_who_goes_on_together_must_not_have_delivered_less() -> None:
    story = Story().sent(A, 2).entered(AB).got(A, A, 0, 1).got(B, A, 0)
    assert story.entered(ABC).broken() == ["virtual synchrony"]


def test_batches_do_not_matter_and_neither_does_the_order_between_senders() -> None:
    story = Story().sent(A, 2).sent(B, 1).entered(AB)
    story.got(A, A, 0).got(A, B, 0).got(A, A, 1).got(B, A, 0, 1).got(B, B, 0)
    assert story.entered(ABC).broken() == []


def test_a_message_must_not_be_in_the_old_view_here_and_in_the_new_one_there() -> None:
    story = Story().sent(A, 1).entered(AB).got(A, A, 0).entered(ABC).got(B, A, 0)
    assert story.broken() == ["virtual synchrony"]


def test_who_goes_another_way_may_have_delivered_something_else() -> None:
    story = Story().sent(A, 2).entered(ABC).all_got((A, B), A, 0, 1).got(C, A, 0)
    assert story.entered(view(4, A, B)).entered(view(4, C)).broken() == []


def test_who_went_through_a_view_in_between_may_have_delivered_something_else() -> None:
    story = Story().sent(A, 2).entered(ABC).got(A, A, 0, 1).got(B, A, 0)
    story.entered(view(4, A), A).entered(view(5, A, B), A, B)
    assert story.broken() == []


def test_nothing_is_compared_before_a_view_ends() -> None:
    assert Story().sent(A, 2).entered(AB).got(A, A, 0, 1).got(B, A, 0).broken() == []


def test_everybody_is_compared_not_only_the_first_two() -> None:
    story = Story().sent(A, 1).entered(ABC).all_got((A, B), A, 0)
    assert story.entered(view(4, A, B, C)).broken() == ["virtual synchrony"]


# Multicast: integrity, order, gaps


def test_what_was_never_sent_must_not_be_delivered() -> None:
    assert Story().sent(A, 1).entered(AB).got(B, A, 7).broken() == ["integrity"]


def test_the_sender_of_a_multicast_is_in_the_view_of_the_receiver() -> None:
    assert Story().sent(C, 1).entered(AB).got(A, C, 0).broken() == ["integrity"]


def test_a_message_must_not_come_twice() -> None:
    assert Story().sent(A, 2).entered(AB).got(B, A, 0, 0).broken() == ["order"]
    assert Story().sent(A, 2).entered(AB).got(B, A, 0, 1).got(B, A, 0).broken() == ["order"]


def test_a_message_must_not_come_again_in_a_later_view() -> None:
    story = Story().sent(A, 1).entered(AB).all_got((A, B), A, 0).entered(ABC).got(B, A, 0)
    assert story.broken() == ["order"]


def test_messages_come_in_the_order_of_sending() -> None:
    assert Story().sent(A, 2).entered(AB).got(B, A, 1, 0).broken() == ["order"]


def test_no_gap_within_a_view() -> None:
    assert Story().sent(A, 3).entered(AB).got(B, A, 0, 2).broken() == ["fifo"]


def test_no_gap_between_two_views_that_sender_and_receiver_share() -> None:
    story = Story().sent(A, 3).entered(AB).all_got((A, B), A, 0).entered(ABC).got(B, A, 2)
    assert story.broken() == ["fifo"]


def test_what_was_reported_as_failed_may_be_absent() -> None:
    assert Story().sent(A, 4).failed(A, 1, 2).entered(AB).got(B, A, 0, 3).broken() == []
    assert Story().sent(A, 4).failed(A, 1, 1).entered(AB).got(B, A, 0, 3).broken() == ["fifo"]


def test_a_joiner_may_begin_in_the_middle_of_a_stream() -> None:
    assert Story().sent(A, 3).entered(AB).got(B, A, 2).broken() == []


def test_a_gap_is_allowed_where_the_receiver_was_in_another_view() -> None:
    story = Story().sent(A, 3).entered(AB).all_got((A, B), A, 0)
    story.entered(view(3, A)).got(A, A, 1).entered(view(3, B)).entered(view(4, A, B)).got(B, A, 2)
    assert story.broken() == []


def test_a_gap_is_allowed_where_the_sender_went_through_a_view_without_the_receiver() -> None:
    story = Story().sent(A, 3).entered(AB).all_got((A, B), A, 0)
    story.entered(view(3, A)).got(A, A, 1).entered(view(4, A, B)).got(B, A, 2)
    assert story.broken() == []


def test_a_sender_has_no_gap_in_its_own_stream() -> None:
    story = Story().sent(A, 3).entered(view(1, A)).got(A, A, 0).entered(AB).got(A, A, 2)
    assert story.broken() == ["fifo"]


# Unicast


def test_unicast_comes_in_order_and_may_have_gaps() -> None:
    story = Story().sent(A, 4, to=B).entered(AB).got(B, A, 0, 1, by_unicast=True).got(B, A, 3, by_unicast=True)
    assert story.broken() == []


def test_unicast_must_not_come_twice_or_out_of_order() -> None:
    assert Story().sent(A, 2, to=B).entered(AB).got(B, A, 0, 0, by_unicast=True).broken() == ["order"]
    assert Story().sent(A, 2, to=B).entered(AB).got(B, A, 1, 0, by_unicast=True).broken() == ["order"]


def test_unicast_must_have_been_sent_to_the_receiver() -> None:
    assert Story().sent(A, 1, to=C).entered(AB).got(B, A, 0, by_unicast=True).broken() == ["integrity"]


def test_unicast_has_no_part_in_virtual_synchrony() -> None:
    story = Story().sent(A, 1, to=B).entered(AB).got(B, A, 0, by_unicast=True).entered(ABC)
    assert story.broken() == []


# State transfer


def test_a_state_that_was_supplied_for_the_view_may_be_received() -> None:
    story = Story().entered(AB)
    story.history.supplied[AB.id] = {b"one", b"two"}
    story.history.received[B, AB.id] = b"two"
    assert story.broken() == []


def test_a_state_of_another_view_or_a_damaged_one_must_not_be_received() -> None:
    story = Story().entered(AB)
    story.history.supplied[AB.id] = {b"one"}
    story.history.received |= {(B, AB.id): b"on", (B, ABC.id): b"one"}
    assert story.broken() == ["state transfer", "state transfer"]


def test_who_waited_for_the_state_in_vain_is_compared_with_nobody() -> None:
    story = Story().sent(A, 3).entered(AB).got(A, A, 0, 1)
    story.history.lacking.add((B, AB.id))
    assert story.entered(ABC).got(B, A, 2).broken() == []


def test_who_got_the_state_is_compared_with_the_others() -> None:
    story = Story().sent(A, 2).entered(AB).got(A, A, 0, 1).got(B, A, 0)
    story.history.lacking.add((B, AB.id))
    story.history.supplied[AB.id] = {b"state"}
    story.history.received[B, AB.id] = b"state"
    assert story.entered(ABC).broken() == ["virtual synchrony"]


# Self delivery


def test_what_a_process_multicast_it_delivers_itself() -> None:
    assert Story().sent(A, 2).entered(AB).got(A, A, 0, 1).undelivered() == []


def test_an_own_message_that_never_came_is_named() -> None:
    (what,) = Story().sent(A, 2).entered(AB).got(A, A, 0).got(B, A, 0, 1).undelivered()
    assert what == f"{A} never got its own message 1"


def test_an_own_message_that_was_reported_as_failed_need_not_come() -> None:
    assert Story().sent(A, 2).failed(A, 1, 1).entered(AB).got(A, A, 0).undelivered() == []


def test_nobody_delivers_for_the_dead_or_for_those_who_leave() -> None:
    assert Story().sent(A, 1).entered(AB).died(A).undelivered() == []
    assert Story().sent(A, 1).entered(AB).asked_to_leave(A).undelivered() == []


def test_a_unicast_is_not_owed_to_oneself() -> None:
    assert Story().sent(A, 1, to=B).entered(AB).undelivered() == []


# One primary


def test_a_line_of_majorities_is_one_primary() -> None:
    story = Story().entered(primary(2, A, B, C, D, E)).entered(primary(3, A, B, C)).entered(primary(4, A, B))
    assert story.broken() == []


def test_two_sides_of_a_partition_must_not_both_be_primary() -> None:
    story = Story().entered(primary(2, A, B, C, D)).entered(primary(3, A, B, C)).entered(primary(4, D))
    assert story.broken() == ["one primary"]


def test_two_sides_must_not_both_be_primary_whatever_their_numbers() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(primary(3, A, B)).entered(primary(3, C))
    assert story.broken() == ["one primary", "one primary"]  # not a majority, and the same number


def test_half_is_enough_only_with_the_most_senior_member() -> None:
    assert Story().entered(primary(2, A, B, C, D)).entered(primary(3, A, D)).broken() == []
    assert Story().entered(primary(2, A, B, C, D)).entered(primary(3, B, C)).broken() == ["one primary"]


def test_a_group_is_bootstrapped_once() -> None:
    story = Story().entered(primary(2, A, B)).entered(primary(9, C, D, E))
    assert story.broken() == ["one primary"]


def test_a_view_that_is_not_primary_is_no_link_of_the_line() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(view(3, C, D, E)).entered(primary(4, A, B))
    assert story.broken() == []


def test_a_view_that_only_its_crashed_coordinator_installed_counts() -> None:
    """The next one was decided by members that knew of the attempt: it must hold a majority of that one, too."""
    begun = Story().entered(primary(2, A, B, C, D, E)).entered(primary(3, A, B, C), A)
    assert begun.entered(primary(4, B, C, D, E)).broken() == []
    begun = Story().entered(primary(2, A, B, C, D, E)).entered(primary(3, A, B, C), A)
    assert begun.entered(primary(4, C, D, E)).broken() == ["one primary"]


def test_those_who_left_are_not_counted() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(primary(3, C))
    assert story.broken() == ["one primary"]
    assert story.asked_to_leave(A).asked_to_leave(B).broken() == []


def test_who_asked_to_leave_and_is_still_in_counts() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(primary(3, B, C)).asked_to_leave(C)
    assert story.broken() == []


def test_newcomers_may_outnumber_those_who_were_there() -> None:
    assert Story().entered(primary(2, A)).entered(primary(3, A, B, C, D, E)).broken() == []


def test_every_side_may_be_primary_where_all_partitions_go_on() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(primary(3, A)).entered(primary(3, B, C))
    assert story.broken(is_one_primary=False) == []


def test_a_static_quorum_counts_members_and_nothing_else() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(primary(5, A, D, E))
    assert story.broken(static_quorum=3) == []
    assert story.entered(primary(6, A, D)).broken(static_quorum=3) == ["one primary"]


def test_one_that_restarted_with_its_memory_is_still_the_same_member() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(primary(3, A2, B2))
    assert story.broken() == ["one primary"]
    assert story.restarted(A, A2).restarted(B, B2).broken() == []


def test_memory_is_handed_on_over_several_lives() -> None:
    story = Story().entered(primary(2, A, B)).entered(primary(3, A3)).restarted(A, A2).restarted(A2, A3)
    assert story.broken() == []


def test_two_lives_of_one_memory_are_one_vote() -> None:
    story = Story().entered(primary(2, A, B, C)).entered(primary(3, A2, A3)).restarted(A, A2).restarted(A2, A3)
    assert story.broken() == ["one primary"]


def test_a_view_that_only_a_leaver_was_told_of_is_a_link_of_the_line() -> None:
    story = Story().entered(primary(2, B)).entered(primary(4, A, B2)).asked_to_leave(B)
    assert story.broken() == []
    assert story.restarted(B, B2, primary(3, C)).broken() == ["one primary"]
    told = Story().entered(primary(2, B)).entered(primary(4, A, C)).asked_to_leave(B).restarted(B, B2, primary(3, A))
    assert told.broken() == []
