"""The hold-back queue beside a dumb one that sorts a list each time (ISIS total order)."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import permutations
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.protocol.ordering import holdback
from motet.protocol.ordering.holdback import HoldBackQueue, Pending
from motet.protocol.wire.ordered import SequenceNumber

LOCAL = 1  # our own rank


def pending(sender: int, frame_id: int, number: int, proposer: int = LOCAL, *, is_decided: bool = False) -> Pending:
    """A frame that stands in the queue as it is."""
    return Pending(
        sender, frame_id, f"{sender}-{frame_id}".encode(), number, SequenceNumber(number, proposer), is_decided
    )


def queue_of(*frames: Pending) -> HoldBackQueue:
    queue = HoldBackQueue()
    for frame in frames:
        queue.add(frame)
    queue._check()
    return queue


def names(frames: list[Pending]) -> list[tuple[int, int]]:
    return [(frame.sender, frame.id) for frame in frames]


def popped(queue: HoldBackQueue) -> list[tuple[int, int]]:
    frames: list[Pending] = []
    while (head := queue.pop()) is not None:
        frames.append(head)
        queue._check()
    return names(frames)


class TestOrder:
    def test_by_number(self) -> None:
        queue = queue_of(pending(0, 1, 3), pending(1, 1, 1), pending(2, 1, 2))
        for sender, number in ((0, 3), (1, 1), (2, 2)):
            assert queue.decide(sender, 1, SequenceNumber(number, LOCAL))
        assert popped(queue) == [(1, 1), (2, 1), (0, 1)]

    def test_an_undecided_head_holds_back_what_is_decided(self) -> None:
        queue = queue_of(pending(0, 1, 1), pending(1, 1, 2))
        queue.decide(1, 1, SequenceNumber(2, LOCAL))
        assert popped(queue) == []
        queue.decide(0, 1, SequenceNumber(1, LOCAL))
        assert popped(queue) == [(0, 1), (1, 1)]

    def test_a_decision_can_move_a_frame_back(self) -> None:
        queue = queue_of(pending(0, 1, 1), pending(1, 1, 2))
        queue.decide(0, 1, SequenceNumber(7, 0))
        assert popped(queue) == []
        queue.decide(1, 1, SequenceNumber(6, 0))
        assert popped(queue) == [(1, 1), (0, 1)]

    @pytest.mark.parametrize("proposer", [0, LOCAL, 2])
    def test_of_equal_numbers_the_undecided_one_comes_first_whoever_proposed(self, proposer: int) -> None:
        queue = queue_of(pending(0, 1, 1), pending(1, 1, 2))
        queue.decide(0, 1, SequenceNumber(2, proposer))
        assert popped(queue) == []
        queue.decide(1, 1, SequenceNumber(3, 0))
        assert popped(queue) == [(0, 1), (1, 1)]

    def test_of_two_undecided_ones_the_smaller_proposer_comes_first(self) -> None:
        proposers = {0: 2, 1: 0, 2: 1}  # of the sender's frame
        for senders in permutations(proposers):
            queue = queue_of(*(pending(sender, 1, 5, proposers[sender]) for sender in senders))
            heads = []
            for _ in senders:
                head = queue._head()
                assert head is not None
                heads.append(head.number.proposer)
                queue.decide(head.sender, 1, SequenceNumber(6, 0))
            assert heads == [0, 1, 2]

    def test_of_two_decided_ones_the_smaller_proposer_comes_first(self) -> None:
        for senders in permutations(range(3)):
            queue = queue_of(*(pending(sender, 1, sender + 1) for sender in senders))
            for sender in senders:
                queue.decide(sender, 1, SequenceNumber(9, 2 - sender))
            assert popped(queue) == [(2, 1), (1, 1), (0, 1)]


class TestDuplicates:
    def test_a_second_decision_changes_nothing(self) -> None:
        queue = queue_of(pending(0, 1, 1), pending(1, 1, 2))
        assert queue.decide(0, 1, SequenceNumber(5, 0))
        assert not queue.decide(0, 1, SequenceNumber(9, 0))
        found = queue.get(0, 1)
        assert found is not None
        assert found.number == SequenceNumber(5, 0)

    def test_what_was_popped_can_neither_be_decided_nor_popped_again(self) -> None:
        queue = queue_of(pending(0, 1, 1))
        queue.decide(0, 1, SequenceNumber(1, LOCAL))
        assert popped(queue) == [(0, 1)]
        assert not queue.decide(0, 1, SequenceNumber(2, LOCAL))
        assert queue.pop() is None
        assert len(queue) == 0

    def test_an_unknown_frame_cannot_be_decided(self) -> None:
        queue = queue_of(pending(0, 1, 1))
        assert not queue.decide(0, 2, SequenceNumber(1, 0))
        assert not queue.decide(1, 1, SequenceNumber(1, 0))

    def test_it_knows_what_it_holds(self) -> None:
        queue = queue_of(pending(0, 1, 1), pending(0, 2, 2))
        assert (0, 1) in queue
        assert (1, 1) not in queue
        assert names(list(queue)) == [(0, 1), (0, 2)]
        assert queue.get(1, 1) is None


class TestDrain:
    def test_decided_ones_by_number_and_then_the_rest_by_sender_and_id(self) -> None:
        queue = queue_of(*(pending(sender, i, 3 * i + sender) for i in (1, 2) for sender in (2, 0, 1)))
        queue.decide(2, 1, SequenceNumber(20, 0))
        queue.decide(1, 1, SequenceNumber(10, 0))
        queue.decide(1, 2, SequenceNumber(20, 1))
        assert names(queue.drain()) == [(1, 1), (2, 1), (1, 2), (0, 1), (0, 2), (2, 2)]

    def test_an_undecided_one_with_a_small_number_does_not_hold_back_the_decided(self) -> None:
        queue = queue_of(pending(0, 1, 1), pending(1, 1, 2))
        queue.decide(1, 1, SequenceNumber(2, LOCAL))
        assert names(queue.drain()) == [(1, 1), (0, 1)]

    def test_it_empties_the_queue(self) -> None:
        queue = queue_of(pending(0, 1, 1), pending(0, 2, 2))
        queue.drain()
        assert len(queue) == 0
        assert queue.drain() == []
        assert queue.pop() is None
        queue._check()


@dataclass(slots=True)
class DumbQueue:
    """The deque of the ISIS document: sorted as often as anything changes."""

    frames: list[Pending] = field(default_factory=list)

    def pop(self) -> tuple[int, int] | None:
        self.frames.sort(key=lambda p: (p.number.number, p.is_decided, p.number.proposer, p.sender, p.id))
        if not self.frames or not self.frames[0].is_decided:
            return None
        head = self.frames.pop(0)
        return (head.sender, head.id)

    def decide(self, sender: int, frame_id: int, number: SequenceNumber) -> bool:
        for frame in self.frames:
            if (frame.sender, frame.id) == (sender, frame_id) and not frame.is_decided:
                frame.number, frame.is_decided = number, True
                return True
        return False


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 3)),  # sender, how far the clock moves
        st.tuples(st.just("decide"), st.integers(0, 30), st.integers(0, 4)),  # which of the pending, how far up
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(steps=STEPS, proposers=st.randoms(use_true_random=False))
def test_it_does_what_a_sorted_list_does(steps: list[tuple[str, int, int]], proposers: Random) -> None:
    queue, dumb, clock, sent = HoldBackQueue(), DumbQueue(), 0, [0] * 4
    for action, which, far in steps:
        if action == "add":
            clock, sent[which] = clock + far, sent[which] + 1
            proposer = proposers.randrange(4)
            queue.add(pending(which, sent[which], clock, proposer))
            dumb.frames.append(pending(which, sent[which], clock, proposer))
        elif action == "decide" and dumb.frames:
            frame = dumb.frames[which % len(dumb.frames)]
            number = SequenceNumber(frame.proposed + far, proposers.randrange(4))
            assert queue.decide(frame.sender, frame.id, number) == dumb.decide(frame.sender, frame.id, number)
        else:
            head = queue.pop()
            assert ((head.sender, head.id) if head else None) == dumb.pop()
        assert len(queue) == len(dumb.frames)
        queue._check()
    decided = sorted((f for f in dumb.frames if f.is_decided), key=lambda p: (p.number, p.sender, p.id))
    rest = sorted((f for f in dumb.frames if not f.is_decided), key=lambda p: (p.sender, p.id))
    assert names(queue.drain()) == names(decided + rest)


@pytest.mark.parametrize("frames", [10, 500])
@pytest.mark.parametrize("order", ["as they came", "backwards", "odd ones first"])
def test_a_frame_costs_two_pushes_and_two_pops_at_most(frames: int, order: str) -> None:
    ids = list(range(1, frames + 1))
    decisions = {"as they came": ids, "backwards": ids[::-1], "odd ones first": ids[::2] + ids[1::2]}[order]
    with (
        patch.object(holdback, "heappush", wraps=heappush) as pushes,
        patch.object(holdback, "heappop", wraps=heappop) as pops,
    ):
        queue = HoldBackQueue()
        for frame_id in ids:
            queue.add(pending(0, frame_id, frame_id))
        delivered = []
        for frame_id in decisions:
            queue.decide(0, frame_id, SequenceNumber(frame_id + frames, 0))
            delivered += popped(queue)
    assert delivered == [(0, frame_id) for frame_id in ids]
    assert pushes.call_count <= 2 * frames
    assert pops.call_count <= 2 * frames


def test_a_queue_that_is_never_popped_does_not_grow_with_decisions() -> None:
    queue = queue_of(pending(0, 1, 1), *(pending(1, frame_id, frame_id + 1) for frame_id in range(1, 101)))
    for again in range(5):
        for frame_id in range(1, 101):
            assert queue.decide(1, frame_id, SequenceNumber(frame_id + 1, LOCAL)) == (again == 0)
        assert queue.pop() is None
    assert len(queue._heap) <= 2 * len(queue)
