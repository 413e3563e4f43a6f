"""The sentences of the ISIS document that apply to the window strategy, one test each.

Left out: how `ContinuousMsgSender` resends, and SEQ-ACK. Those belong to the continuous strategy; here the
windows of the reliable multicast do their work.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from motet.protocol.core.counters import Count
from motet.protocol.member import Delivered
from motet.protocol.ordering.holdback import HoldBackQueue, Pending
from motet.protocol.ordering.isis import Isis
from motet.protocol.wire.frames import MulticastData, ProposalRequest, Proposals
from motet.protocol.wire.ordered import Ordered, SequenceNumber
from tests.protocol.membership.world import Flight
from tests.protocol.ordering.alone import (
    ASK_NS,
    START,
    V1,
    A,
    B,
    C,
    answer,
    body,
    calm,
    counted,
    data,
    leaving,
    proposals,
    request,
    seq,
    speak,
    ticks,
    to,
    total,
)
from tests.protocol.ordering.world import OrderedWorld, sealed_in


def quiet_world(names: str = "ABC") -> OrderedWorld:
    world = OrderedWorld()
    world.gather(*names)
    return world


def is_data(flight: Flight) -> bool:
    sealed = sealed_in(flight)
    return sealed is not None and sealed.is_ordered


def is_seq(flight: Flight) -> bool:
    sealed = sealed_in(flight)
    return sealed is not None and bool(sealed.numbers)


# What it is for


def test_multicast_does_not_block() -> None:
    """“This call is non-blocking, `MulticastService` takes the `data` and returns the control to the sender.”"""
    world = quiet_world()
    world.pause("C")  # so that nothing can be delivered
    effects = world["A"].member.multicast_ordered([b"a"], world.now)
    assert world["A"].order.accepted == 1
    assert not [effect for effect in effects if isinstance(effect, Delivered)]


def test_what_needs_to_be_delivered_is_handed_to_the_process() -> None:
    """“This callback is invoked when a multicast message needs to be delivered to the process.”"""
    world = quiet_world("A")
    effects = world["A"].member.multicast_ordered([b"a"], world.now)
    (delivered,) = [effect for effect in effects if isinstance(effect, Delivered)]
    assert (delivered.messages, delivered.position) == ((b"a",), 1)


def test_delivered_content_is_the_same_at_all() -> None:
    """“delivery message content is checked for all processes, by transitivity”"""
    world = quiet_world("ABCD")
    for number in range(10):
        for name in "ABCD":
            world.order(name, f"{name}{number}")
        world.run(0.0007)
    world.finish("ABCD", 40)
    assert world["A"].positions == world["B"].positions
    assert world["B"].positions == world["C"].positions
    assert world["C"].positions == world["D"].positions


# The state machine


def test_data_is_held_back_with_a_proposal_and_answered_once() -> None:
    """“On receiving a `DataMessage` at a recipient `r`, `r` add the `DataMessage` to the `HoldBackQueue` along with a
    `proposedSeq` and `r` sends `AckMessage` to `s` once.”
    """
    order = calm(B)
    assert order.take(A, [data("a")], START) == [to(A, proposals((1, 1, 1)))]
    (held_back,) = order.queue
    assert (held_back.sender, held_back.id, held_back.body, held_back.proposed, held_back.is_decided) == (
        0,
        1,
        body("a"),
        1,
        False,
    )
    assert ticks(order, START + 10 * ASK_NS) == []


def test_the_ack_has_the_proposed_number() -> None:
    """“It contains the `proposed_seq` for a `DataMessage`”"""
    order = calm(B)
    order.take(C, [data("c")], START)
    assert order.take(A, [data("a")], START) == [to(A, proposals((1, 1, 2)))]


def test_seq_is_made_once_all_have_answered() -> None:
    """“Once `AckMessage` from all recipients is received, `s` creates a `SeqMessage`”"""
    order = calm()
    speak(order, "a")
    assert leaving(order) == []
    order.receive(B, proposals((1, 1, 3)), START)
    assert leaving(order) == []
    order.receive(C, proposals((1, 1, 2)), START)
    assert leaving(order) == [Ordered(1, (SequenceNumber(3, 1),), False, b"")]
    assert leaving(order) == []


def test_seq_has_the_final_number_of_its_data() -> None:
    """“It contains the `final_seq` for a `DataMessage`”"""
    order = calm()
    speak(order, "a", "b")
    order.receive(B, proposals((1, 1, 7), (2, 1, 9)), START)
    order.receive(C, proposals((1, 1, 8), (2, 1, 9)), START)
    assert leaving(order) == [Ordered(1, (SequenceNumber(8, 2), SequenceNumber(9, 1)), False, b"")]


def test_seq_makes_its_data_deliverable() -> None:
    """“On receiving a `SeqMessage` at a recipient `r`, `r` marks the `DataMessage` in `HoldBackQueue` as deliverable
    and sorts the `HoldBackQueue`”
    """
    order = calm(B)
    order.take(A, [data("a1")], START)
    order.take(C, [data("c1")], START)
    order.take(A, [seq(1, SequenceNumber(5, 2))], START)
    marked = {(pending.sender, pending.id): pending.is_decided for pending in order.queue}
    assert marked == {(0, 1): True, (2, 1): False}
    assert order.position == 0  # c1 stands before it now


def test_the_front_is_delivered_when_it_is_deliverable() -> None:
    """“If a `DataMessage` at front of the queue is deliverable, it delivers it.”"""
    order = calm(B)
    order.take(A, [data("a1")], START)
    order.take(C, [data("c1")], START)
    assert order.take(C, [seq(1, SequenceNumber(2, 1))], START) == []
    assert order.take(A, [seq(1, SequenceNumber(1, 0))], START) == [total(A, 1, 1, "a1"), total(C, 1, 2, "c1")]


# HoldBackQueue


def frame(sender: int, number: int, proposer: int, *, is_decided: bool) -> Pending:
    return Pending(sender, 1, b"", number, SequenceNumber(number, proposer), is_decided)


def test_no_two_have_the_same_sender_and_id() -> None:
    """“No two messages in the `HoldBackQueue` can have same `sender` and same `msg_id`. This invariant helps discard
    the duplicate `DataMessage` which are received due to retransmission.”
    """
    isis = Isis(2, 0)
    assert isis.receive_data(1, 1, b"a") == 1
    assert isis.receive_data(1, 1, b"a") is None
    assert [(pending.sender, pending.id) for pending in isis.queue] == [(1, 1)]


def test_the_queue_is_sorted_by_the_final_number() -> None:
    """“As soon as a `PendingMsg` is marked deliverable, the `deque` is sorted according to the `final_seq`.”"""
    for numbers in permutations((4, 5, 6)):
        queue = HoldBackQueue()
        for sender in range(3):
            queue.add(frame(sender, sender + 1, 0, is_decided=False))
        for sender, number in enumerate(numbers):
            queue.decide(sender, 1, SequenceNumber(number, 0))
        popped = [head.number.number for _ in numbers if (head := queue.pop()) is not None]
        assert popped == [4, 5, 6]


@pytest.mark.parametrize("proposers", [(0, 1), (1, 0), (1, 1)])
def test_of_equal_numbers_the_undeliverable_is_ahead(proposers: tuple[int, int]) -> None:
    """“If two messages have same `final_seq`, then the one which is undeliverable is placed ahead of deliverable.”"""
    undecided, decided = proposers
    queue = HoldBackQueue()
    queue.add(frame(0, 3, undecided, is_decided=False))
    queue.add(frame(1, 3, decided, is_decided=True))
    assert queue.pop() is None
    queue.decide(0, 1, SequenceNumber(4, 0))
    assert [head.sender for _ in range(2) if (head := queue.pop()) is not None] == [1, 0]


def test_of_equal_undeliverable_ones_the_smaller_proposer_is_ahead() -> None:
    """“If two messages have same `final_seq` and are undeliverable, then the message with smaller `final_seq_proposer`
    is placed ahead.”
    """
    for senders in permutations((0, 1)):
        queue = HoldBackQueue()
        for sender in senders:
            queue.add(frame(sender, 3, 1 - sender, is_decided=False))
        head = queue._head()
        assert head is not None
        assert head.sender == 1


def test_ties_between_two_senders_and_by_induction_between_all() -> None:
    """“breaking ties, two senders by induction n senders.”"""
    for names in ("AB", "ABC", "ABCDE"):
        world = quiet_world(names)
        agreed: list[SequenceNumber] = []
        world.on_frame(lambda f, agreed=agreed: agreed.extend(s.numbers) if (s := sealed_in(f)) else None)  # type: ignore[misc]
        for name in names:
            world.order(name, name.lower())
        world.finish(names, len(names))
        assert len({final.number for final in agreed}) < len(names), "some are equal"
        assert all(world[name].ordered == world["A"].ordered for name in names)


# How a process delivers its own message


def test_our_own_message_takes_the_same_way() -> None:
    """“The process also sends the multicast `DataMessage` to itself and follows the state machine to deliver its own
    message.”
    """
    order = calm()
    assert speak(order, "a") == []
    assert [(pending.sender, pending.id, pending.proposed) for pending in order.queue] == [(0, 1, 1)]
    answer(order, (1, 1, 1))
    assert len(order.queue) == 1  # not before its own SEQ comes along
    (sealed,) = leaving(order)
    assert order.take(A, [seq(sealed.first, *sealed.numbers)], START) == [total(A, 1, 1, "a")]


# What happens if a message is dropped or delayed


def drop_first(world: OrderedWorld, which: str, to_name: str) -> list[Flight]:
    """The first DATA, or SEQ, to one member is lost; the answer is all that leave for it."""
    fits = {"data": is_data, "seq": is_seq}[which]
    seen: list[Flight] = []

    def hook(flight: Flight) -> None:
        if flight.to == to_name and fits(flight):
            if not seen:
                world.drop_next(MulticastData, flight.source, to_name)
            seen.append(flight)

    world.on_frame(hook)
    return seen


@pytest.mark.parametrize("which", ["data", "seq"])
def test_what_the_sender_says_is_repeated_until_it_has_arrived(which: str) -> None:
    """“If dropped or delayed, it will be retransmitted by `ContinuousMsgSender<DataMessage>` at `s` until a
    `AckMessage` is received from `r`.” The same for SEQ. Here the multicast repeats it.
    """
    world = quiet_world()
    seen = drop_first(world, which, "C")
    world.order("A", "a")
    world.finish("ABC", 1, limit=2)
    assert len(seen) == 2


def test_duplicate_data_is_dropped() -> None:
    """“Duplicate `DataMessage` received at `r` will be dropped.”"""
    world = quiet_world()
    world.on_frame(lambda flight: world.arrive_later(flight.to, flight.data) if is_data(flight) else None)
    said = world.watch(Proposals)
    world.order("A", "a")
    world.finish("ABC", 1)
    assert [flight.source for flight in said] == ["B", "C"]
    assert world["B"].count(Count.FRAME_DUPLICATE) == 1


def test_a_lost_ack_is_asked_for_and_said_again() -> None:
    """“If dropped or delayed, `s` will retransmit `DataMessage` which will force `r` to send `AckMessage` to `s`. This
    cycle will continue until a `AckMessage` is received at `s`.” Here a request takes the place of the DATA.
    """
    world = quiet_world()
    world.drop_next(Proposals, "C", "A", 3)
    asked, said = world.watch(ProposalRequest), world.watch(Proposals)
    world.order("A", "a")
    world.finish("ABC", 1, limit=2)
    assert [(flight.source, flight.to) for flight in asked] == [("A", "C")] * 3
    assert {flight.frame for flight in said if flight.source == "C"} == {Proposals(world["A"].view.id, ((1, 1, 1),))}


def test_duplicate_acks_are_dropped() -> None:
    """“Duplicate `AckMessage` received at `s` will be dropped.”"""
    order = calm()
    speak(order, "a")
    for _ in range(3):
        order.receive(B, proposals((1, 1, 4)), START)
    order.receive(B, proposals((1, 1, 9)), START)  # not what it said first
    order.receive(C, proposals((1, 1, 1)), START)
    assert leaving(order) == [Ordered(1, (SequenceNumber(4, 1),), False, b"")]
    answer(order, (1, 1, 4))
    assert leaving(order) == []


def test_duplicate_seqs_are_dropped() -> None:
    """“Duplicate `SeqMessage` will be dropped at `r`”"""
    order = calm(B)
    order.take(A, [data("a")], START)
    assert len(order.take(A, [seq(1, SequenceNumber(1, 0))], START)) == 1
    assert order.take(A, [seq(1, SequenceNumber(1, 0))], START) == []
    assert counted(order, Count.FRAME_MISPLACED) == 1
    world = quiet_world()
    world.on_frame(lambda flight: world.arrive_later(flight.to, flight.data) if is_seq(flight) else None)
    world.order("A", "a")
    world.finish("ABC", 1)
    assert world["B"].count(Count.FRAME_MISPLACED) == world["A"].count(Count.FRAME_MISPLACED)


def test_half_of_the_messages_are_delayed_by_two_seconds() -> None:
    """“the message delay test may take a while to complete since, 50% of the messages are being delayed by 2000ms”"""
    world = quiet_world()
    for kind in (MulticastData, Proposals):
        world.delay(kind, 0.5, 2.0)
    for number in range(10):
        for name in "ABC":
            world.order(name, f"{name}{number}")
        world.run(0.01)
    world.finish("ABC", 30, limit=30)
    assert world["A"].ordered == world["B"].ordered == world["C"].ordered


def test_a_request_names_the_view_and_what_is_missing() -> None:
    """The window strategy's own rule: late proposals are requested again."""
    order = calm()
    speak(order, "a")
    order.receive(B, proposals((1, 1, 1)), START)
    assert ticks(order, START + ASK_NS) == [(START + ASK_NS, [to(C, request(1, 1))])]
    assert request(1, 1).view == V1
