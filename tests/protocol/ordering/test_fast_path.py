"""Numbers that are known before their sender says them: the machine alone, then real members."""

from __future__ import annotations

import pytest

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Broadcast, Deliver, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.ordering import OrderingConfig, TotalOrder
from motet.protocol.ordering.fast_path import MOST_TRACKED
from motet.protocol.ordering.window_strategy import MOST_PENDING
from motet.protocol.wire.frames import Proposals
from motet.protocol.wire.ordered import SequenceNumber, header
from tests.protocol.membership.world import Flight
from tests.protocol.ordering.alone import (
    START,
    V1,
    A,
    B,
    C,
    body,
    calm,
    counted,
    is_eager,
    leaving,
    proposals,
    request,
    seq,
    to,
    total,
)
from tests.protocol.ordering.world import OrderedWorld, sealed_in

EARLY = OrderingConfig(fast_path_members=3, piggyback_wait_ns=5 * MILLISECOND)


def quiet(local: Address = B, config: OrderingConfig = EARLY) -> TotalOrder:
    return calm(local, config=config)


def frame(text: str, proposed: int | None, *, first: int = 1, numbers: tuple[SequenceNumber, ...] = ()) -> bytes:
    """Of A, with what A itself proposes for it."""
    return header(first, numbers, is_ordered=True, sent_at=0, tag=None, proposed=proposed) + body(text)


def told(*runs: tuple[int, int, int]) -> Proposals:
    """About frames of A, and told to all."""
    return Proposals(V1, runs, A.incarnation)


def delivered(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Deliver)]


class TestWhoeverHearsAll:
    def test_tells_all_what_it_proposes(self) -> None:
        assert quiet().take(A, [frame("a", 1)], START) == [Broadcast(told((1, 1, 1)))]

    def test_delivers_when_the_last_proposal_is_in(self) -> None:
        order = quiet()
        order.take(A, [frame("a", 1)], START)
        assert order.receive(C, told((1, 1, 1)), START) == [total(A, 1, 1, "a")]

    def test_takes_the_largest_and_of_equal_ones_the_smaller_proposers(self) -> None:
        order = quiet()
        order.take(A, [frame("a", 5)], START)
        order.receive(C, told((1, 1, 5)), START)
        assert order.freeze() == ((A.incarnation, 1, ((5, 0),)),)

    def test_may_hear_of_a_frame_before_it_comes(self) -> None:
        order = quiet()
        assert order.receive(C, told((1, 1, 1)), START) == []
        effects = order.take(A, [frame("a", 1)], START)
        assert delivered(effects) == [total(A, 1, 1, "a")]

    def test_waits_for_an_earlier_frame_of_the_same_sender(self) -> None:
        order = quiet()
        order.take(A, [frame("a", 1), frame("b", 2)], START)
        assert order.receive(C, told((2, 1, 2)), START) == []
        assert len(delivered(order.receive(C, told((1, 1, 1)), START))) == 1

    def test_hears_the_sender_say_the_same_later_and_nothing_happens(self) -> None:
        order = quiet()
        order.take(A, [frame("a", 1)], START)
        order.receive(C, told((1, 1, 1)), START)
        assert order.take(A, [seq(1, SequenceNumber(1, 0))], START) == []
        assert counted(order, Count.FRAME_MISPLACED) == 0
        assert order.freeze() == ()

    def test_says_its_proposal_again_though_it_has_delivered(self) -> None:
        """Seed 133 of total-order: the sender had lost it, and would have asked for ever."""
        order = quiet()
        order.take(A, [frame("a", 1)], START)
        order.receive(C, told((1, 1, 1)), START)
        assert order.receive(A, request(1, 1), START) == [to(A, proposals((1, 1, 1)))]


class TestWhenItIsNotDone:
    def test_a_sender_that_does_not_tell_its_own_decides_alone(self) -> None:
        order = quiet()
        order.take(A, [frame("a", None)], START)
        assert order.receive(C, told((1, 1, 1)), START) == []

    def test_a_large_group(self) -> None:
        order = quiet(config=OrderingConfig(fast_path_members=2))
        assert order.take(A, [frame("a", 1)], START) == [to(A, proposals((1, 1, 1)))]
        assert order.receive(C, told((1, 1, 1)), START) == []

    def test_a_busy_group(self) -> None:
        order = quiet()
        many = [frame("a", number) for number in range(1, MOST_PENDING + 2)]
        assert order.take(A, many, START) == [to(A, proposals((1, MOST_PENDING + 1, 1)))]

    def test_while_the_view_ends(self) -> None:
        order = quiet()
        order.take(A, [frame("a", 1)], START)
        order.freeze()
        assert order.receive(C, told((1, 1, 1)), START) == []
        assert order.thaw(START) == [total(A, 1, 1, "a")]

    def test_of_strangers_and_of_far_too_much(self) -> None:
        order = quiet()
        order.receive(C, Proposals(V1, ((1, 1, 1),), 12345), START)
        assert counted(order, Count.FRAME_MISPLACED) == 1
        order.receive(C, told((1, 1 << 40, 1)), START)
        order._check()
        assert len(order._strategy._fast_path._senders[0].proposals) == MOST_TRACKED  # type: ignore[attr-defined]


class TestTheSender:
    def spoken(self) -> TotalOrder:
        order = quiet(A)
        order.send([b"a"])
        (left,) = leaving(order)
        assert left.proposed == 1
        return order

    def test_delivers_at_once_and_lets_the_numbers_wait_for_a_frame(self) -> None:
        order = self.spoken()
        order.receive(B, told((1, 1, 1)), START)
        assert len(delivered(order.receive(C, told((1, 1, 1)), START))) == 1
        assert not is_eager(order)
        order.tick(START + EARLY.piggyback_wait_ns)
        assert is_eager(order)
        (left,) = leaving(order)
        assert (left.first, left.numbers, left.is_ordered) == (1, (SequenceNumber(1, 0),), False)

    def test_they_ride_on_the_next_frame(self) -> None:
        order = self.spoken()
        order.receive(B, told((1, 1, 1)), START)
        order.receive(C, told((1, 1, 1)), START)
        order.send([b"b"])
        (left,) = leaving(order)
        assert (left.first, left.numbers, left.is_ordered) == (1, (SequenceNumber(1, 0),), True)
        order.tick(START + EARLY.piggyback_wait_ns)
        assert not is_eager(order)

    def test_says_them_at_once_where_somebody_was_told_nothing(self) -> None:
        order = self.spoken()
        order.receive(B, told((1, 1, 1)), START)
        order.receive(C, proposals((1, 1, 1)), START)
        assert is_eager(order)

    def test_tells_the_next_view_what_it_knows(self) -> None:
        order = self.spoken()
        order.receive(B, told((1, 1, 3)), START)
        order.receive(C, told((1, 1, 1)), START)
        assert order.freeze() == ((A.incarnation, 1, ((3, 1),)),)


def test_two_message_delays_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """All three deliver though no sender has said a number."""
    monkeypatch.setattr(OrderedWorld, "strategy", "early")
    world = OrderedWorld(ordering=OrderingConfig(piggyback_wait_ns=10 * SECOND))
    world.gather(*"ABC")
    said: list[Flight] = []
    world.on_frame(lambda flight: said.append(flight) if (sealed := sealed_in(flight)) and sealed.numbers else None)
    world.order("B", "b1")
    world.run(0.2)
    assert [world[name].ordered for name in "ABC"] == [["b1"]] * 3
    assert not said
    world.run(11)
    assert {flight.source for flight in said} == {"B"}
