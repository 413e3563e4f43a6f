"""What is stable: with disks that lag, after a restart, and how far a sender may be ahead of the slowest."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Broadcast, Effect, Transmit
from motet.protocol.core.view import View
from motet.protocol.ordering import OrderingConfig, RolledBack, StableAdvanced, TotalOrder
from motet.protocol.ordering import continuous_strategy as continuous
from motet.protocol.ordering import window_strategy as window
from motet.protocol.wire.frames import LogCheckpoint, OrderData, OrderSeq, Progress, Stable
from motet.protocol.wire.ordered import SequenceNumber, seal
from tests.protocol.ordering.alone import (
    START,
    TELL_NS,
    V1,
    V2,
    A,
    B,
    C,
    answer,
    body,
    data,
    hear_ourselves,
    machine,
    seq,
)
from tests.protocol.ordering.world import OrderedWorld

DISK = OrderingConfig(waits_for_disk=True)


def delivered(order: TotalOrder, count: int) -> None:
    """B has so many messages of A in its log."""
    order.take(A, [data(*(f"m{number}" for number in range(count)))], START)
    order.take(A, [seq(1, SequenceNumber(1, 0))], START)


def told(effects: list[Effect]) -> list[int]:
    return [e.frame.position for e in effects if isinstance(e, Transmit) and isinstance(e.frame, Progress)]


class TestTheDisk:
    def test_others_hear_only_of_what_is_on_it(self) -> None:
        order = machine(B, config=DISK)
        delivered(order, 5)
        assert told(order.tick(START)) == [0]
        order.persisted(3, START)
        assert told(order.tick(START + TELL_NS)) == [3]
        order.persisted(5, START + TELL_NS)
        assert told(order.tick(START + 2 * TELL_NS)) == [5]

    def test_without_waiting_for_it(self) -> None:
        order = machine(B)
        delivered(order, 5)
        assert told(order.tick(START)) == [5]

    def test_the_coordinator_counts_its_own_disk(self) -> None:
        order = machine(A, [A, B], DISK)
        order.take(B, [data("a", "b")], START)
        order.take(B, [seq(1, SequenceNumber(1, 0))], START)
        order.tick(START)
        assert order.receive(B, Progress(V1, 2), START) == [Broadcast(Stable(V1, 0))]
        order.persisted(1, START)
        assert order.tick(START + TELL_NS) == [StableAdvanced(1), Broadcast(Stable(V1, 1))]

    def test_it_cannot_have_what_was_not_delivered(self) -> None:
        order = machine(B, config=DISK)
        delivered(order, 2)
        order.persisted(9, START)
        assert told(order.tick(START)) == [2]
        order.persisted(1, START)  # an old word
        assert order._log.persisted == 2

    def test_a_tail_that_is_rolled_back_is_not_on_it(self) -> None:
        """What comes at these positions now is something else."""
        order = machine(B, config=DISK)
        delivered(order, 5)
        order.persisted(5, START)
        order.receive(A, Stable(V1, 2), START)
        order.end_view(log_continues=False)
        assert [*order.take_over(LogCheckpoint(7)), *order.begin_view(View(V2, (C, B), is_primary=True), START)] == [
            RolledBack(3, 5)
        ]
        assert told(order.tick(START)) == [2]
        order.persisted(7, START)
        assert told(order.tick(START + TELL_NS)) == [7]


class TestARestartWithAJournal:
    def test_it_goes_on_where_it_was(self) -> None:
        order = TotalOrder(B, DISK, Counters())
        order.restore(10, 8)
        order.begin_view(View(V1, (A, B), is_primary=True), START)
        assert told(order.tick(START)) == [10]  # a journal is on disk
        assert (order.position, order.stable) == (10, 8)

    def test_a_tail_that_may_differ_from_the_groups_is_rolled_back(self) -> None:
        order = TotalOrder(B, DISK, Counters())
        order.restore(10, 8)
        order.begin_view(View(V1, (B,), is_primary=False), START)
        assert [*order.take_over(LogCheckpoint(12)), *order.begin_view(View(V2, (A, B), is_primary=True), START)] == [
            RolledBack(9, 10)
        ]
        assert (order.position, order.stable) == (12, 8)


class TestReach:
    """Nobody is further ahead of the slowest member than its reach: that bounds every hold-back queue."""

    def test_a_sender_waits_until_all_have_delivered(self) -> None:
        order = machine(A, [A, B], OrderingConfig(window=2, in_flight_limit=3))
        for number in range(4):
            order.send([b"%d" % number])
            hear_ourselves(order)
            answer(order, (number + 1, 1, number + 1))
            hear_ourselves(order)
        assert (order.position, order.in_flight) == (3, 0)
        assert not order.is_eager
        order.tick(START)
        order.receive(B, Progress(V1, 1), START)
        assert order.is_eager

    @pytest.mark.parametrize("strategy", ["window", "continuous"])
    def test_one_member_is_slow_and_all_is_delivered_in_the_end(
        self, strategy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(OrderedWorld, "strategy", strategy)
        world = OrderedWorld(ordering=OrderingConfig(window=2, in_flight_limit=4))
        world.gather(*"ABC")
        for number in range(40):
            world.order("A", f"a{number}")
            world.order("B", f"b{number}")
            world.run(0.001)
        world.finish("ABC", 80, limit=20)

    def test_a_stream_that_does_not_wait_is_dropped_beyond_it(self) -> None:
        """DATA after DATA and never a number: a liar, who must not fill our memory."""
        order = machine(B)
        with patch.object(window, "MOST_IN_FLIGHT", 10):
            for number in range(50):
                order.take(A, [data(f"{number}")], START)
        assert len(order.queue) == 10
        assert order._counters[Count.FRAME_OUTSIDE_WINDOW] == 40
        order.take(C, [data("c")], START)  # the others are not touched
        assert len(order.queue) == 11

    def test_datagrams_that_do_not_wait_are_dropped_beyond_it(self) -> None:
        """Decided, and far away: nothing of it can be delivered."""
        order = machine(B, config=OrderingConfig(strategy="continuous"))
        order.receive(C, _order_data(1), START)  # undecided: it blocks
        with patch.object(continuous, "MOST_IN_FLIGHT", 10):
            for frame_id in range(1, 51):
                order.receive(A, _order_data(frame_id, settled=max(0, frame_id - 11)), START)
                order.receive(A, OrderSeq(V1, frame_id, 0, 1_000 + frame_id, 0), START)
        assert len(order.queue) == 11
        assert order._counters[Count.FRAME_OUTSIDE_WINDOW] + order._counters[Count.FRAME_MISPLACED] > 0


def _order_data(frame_id: int, settled: int = 0) -> OrderData:
    return OrderData(V1, frame_id, settled, 0, seal(0, (), body("x"), is_ordered=True))
