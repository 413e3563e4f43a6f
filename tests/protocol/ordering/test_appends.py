"""Appends that can be repeated: of one producer only what is higher than all before gets a position."""

from __future__ import annotations

import pytest

from motet.errors import BacklogFullError, LeftGroupError, MessageTooLargeError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Deliver
from motet.protocol.core.view import View
from motet.protocol.member import DurableState
from motet.protocol.ordering import AppendRepeated, OrderingConfig, TotalOrder
from motet.protocol.ordering.producers import MOST_PRODUCERS, Producers
from motet.protocol.wire.body import pack
from motet.protocol.wire.frames import LogCheckpoint
from motet.protocol.wire.ordered import SequenceNumber, Tag, header, seal, unseal
from tests.protocol.ordering.alone import START, V2, A, B, C, answer, body, calm, data, hear_ourselves, machine, seq
from tests.protocol.ordering.world import STRATEGIES, OrderedWorld

all_strategies = pytest.mark.parametrize("strategy", STRATEGIES, indirect=True)


@pytest.fixture(autouse=True)
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderedWorld, "strategy", getattr(request, "param", "window"))


def tagged(producer: int, sequence: int, *texts: str) -> bytes:
    return seal(1, (), body(*texts), is_ordered=True, tag=Tag(producer, sequence))


def append(world: OrderedWorld, name: str, producer: int, sequence: int, *texts: str) -> None:
    process = world[name]
    messages = [text.encode() for text in texts]
    process.do(lambda now: process.member.append_tagged(Tag(producer, sequence), messages, now))


class TestTheTable:
    def test_only_what_is_higher_is_new(self) -> None:
        producers = Producers()
        assert [producers.accept(Tag(7, sequence)) for sequence in (1, 1, 3, 2, 3, 4)] == [
            *(True, False, True, False, False, True)
        ]
        assert producers.accept(Tag(8, 1))
        assert producers.pairs() == ((7, 4), (8, 1))

    def test_the_one_whose_last_append_is_the_oldest_goes(self) -> None:
        producers = Producers((number, 1) for number in range(MOST_PRODUCERS))
        assert producers.accept(Tag(0, 2))
        assert not producers.accept(Tag(1, 1))  # a repetition makes nobody younger: it is not in the log
        assert producers.accept(Tag(1_000, 1))
        assert len(producers) == MOST_PRODUCERS
        assert producers.accept(Tag(1, 1))  # forgotten
        assert not producers.accept(Tag(0, 2))

    def test_it_goes_over_as_it_is(self) -> None:
        producers = Producers([(3, 1), (1, 9), (2, 5)])
        assert Producers(producers.pairs()).pairs() == producers.pairs() == ((3, 1), (1, 9), (2, 5))


class TestSending:
    def test_an_append_is_a_frame_of_its_own(self) -> None:
        order = calm()
        order.send([b"a"])
        order.send_tagged(7, 1, [b"b", b"c"])
        order.send([b"d"])
        frames = []
        while (taken := order.next_body()) is not None:
            frames.append(unseal(taken))
        assert [(frame.tag, frame.inner) for frame in frames] == [
            (None, body("a")),
            ((7, 1), body("b", "c")),
            (None, body("d")),
        ]

    def test_it_must_fit_into_one_frame_and_hears_how_much_does(self) -> None:
        order = calm(config=OrderingConfig(body_bytes=300, most_piggybacks=1))
        space = order.append_bytes
        order.send_tagged(7, 1, [bytes(space - 4)])
        with pytest.raises(MessageTooLargeError, match=f"at most {space} bytes"):
            order.send_tagged(7, 2, [bytes(space - 3)])
        with pytest.raises(MessageTooLargeError, match=f"at most {space} bytes"):
            order.send_tagged(7, 2, [b""] * (space // 4 + 1))
        with pytest.raises(MessageTooLargeError, match="at least one message"):
            order.send_tagged(7, 2, [])
        assert order.accepted == 1
        (frame,) = [unseal(taken) for taken in iter(order.next_body, None)]
        assert (
            len(header(1, [SequenceNumber(1, 1)], is_ordered=True, sent_at=0, tag=frame.tag, proposed=1) + frame.inner)
            == 300
        )

    def test_it_is_refused_like_anything_else(self) -> None:
        order = calm(config=OrderingConfig(backlog_bytes=1))
        order.send_tagged(7, 1, [b"a", b"b"])
        with pytest.raises(BacklogFullError):
            order.send_tagged(7, 2, [b"c"])
        order.leave()
        with pytest.raises(LeftGroupError):
            order.send_tagged(7, 2, [b"c"])


class TestDelivery:
    def test_a_repetition_gets_no_position(self) -> None:
        order = calm(C)
        order.take(A, [tagged(7, 1, "a", "b"), tagged(7, 1, "a", "b"), data("x")], START)
        order.take(B, [tagged(7, 1, "a", "b")], START)
        effects = order.take(A, [seq(1, SequenceNumber(1, 0), SequenceNumber(2, 0), SequenceNumber(3, 0))], START)
        effects += order.take(B, [seq(1, SequenceNumber(4, 0))], START)
        delivered = [effect for effect in effects if isinstance(effect, Deliver)]
        assert [(effect.first, effect.position, effect.tag) for effect in delivered] == [(1, 1, (7, 1)), (3, 3, None)]
        assert not [effect for effect in effects if isinstance(effect, AppendRepeated)]  # not ours
        assert (order.position, order._counters[Count.APPEND_REPEATED]) == (3, 2)

    def test_its_sender_is_told(self) -> None:
        order = calm()
        order.take(B, [tagged(7, 5, "b")], START)
        order.take(B, [seq(1, SequenceNumber(1, 0))], START)
        order.send_tagged(7, 5, [b"b", b"b2"])
        order.send_tagged(7, 4, [b"a"])  # came after a later one
        hear_ourselves(order)
        answer(order, (1, 2, 2))
        assert hear_ourselves(order) == [AppendRepeated(7, 5, 2), AppendRepeated(7, 4, 1)]
        assert (order.position, order.in_flight) == (1, 0)
        assert order.end_view(log_continues=False) == []  # nothing of ours has failed

    def test_the_log_after_the_view_knows_what_is_dropped(self) -> None:
        order = calm(C)
        order.take(A, [tagged(7, 1, "a")], START)
        rest = [(A, tagged(7, 1, "a")), (B, tagged(7, 2, "b", "c")), (A, seq(1, SequenceNumber(1, 0)))]
        after = order.log_after(rest, log_continues=True)
        assert after == LogCheckpoint(3, ((7, 2),))
        for sender, taken in rest:
            order.take(sender, [taken], START)
        order.end_view(log_continues=True)
        assert (order.position, order.producers) == after

    def test_those_who_come_in_know_the_appends(self) -> None:
        order = machine(B, [B], is_primary=False)
        order.take_over(LogCheckpoint(10, ((7, 3),)))
        order.begin_view(View(V2, (A, B), is_primary=True), START)
        order.take(A, [tagged(7, 3, "a"), tagged(7, 4, "b")], START)
        effects = order.take(A, [seq(1, SequenceNumber(1, 0), SequenceNumber(2, 0))], START)
        assert [effect.position for effect in effects if isinstance(effect, Deliver)] == [11]

    def test_what_a_journal_kept(self) -> None:
        order = TotalOrder(A, OrderingConfig(), Counters())
        order.restore(10, 8, ((7, 3),))
        assert (order.position, order.stable, order.producers) == (10, 8, ((7, 3),))
        assert DurableState(position=10, stable=8, producers=((7, 3),)).producers == order.producers


class TestThroughMembers:
    @all_strategies
    def test_failover_of_a_producer(self) -> None:
        """It is not sure whether its append got through, and sends it again through another member."""
        world = OrderedWorld()
        world.gather(*"ABC")
        append(world, "A", 7, 1, "x", "y")
        append(world, "B", 7, 1, "x", "y")
        append(world, "C", 7, 1, "x", "y")
        world.finish("ABC", 2)
        assert world["A"].ordered == world["B"].ordered == world["C"].ordered == ["x", "y"]
        repeated = [name for name in "ABC" if world[name].saw(AppendRepeated)]
        assert len(repeated) == 2

    @all_strategies
    def test_the_member_is_cut_off_and_comes_back_with_the_append(self) -> None:
        world = OrderedWorld("AC")
        world.gather(*"ABC")
        world.split("AB", "C")
        append(world, "C", 7, 1, "x")
        append(world, "A", 7, 1, "x")
        world.finish("AB", 1)
        append(world, "B", 7, 2, "y")
        world.finish("AB", 2)
        world.heal()
        world.settle("ABC", limit=20)
        world.finish("ABC", 2)
        assert world["C"].saw(AppendRepeated) == [AppendRepeated(7, 1, 1)]
        assert world["A"].ordered == ["x", "y"]

    @all_strategies
    def test_a_joiner_drops_what_the_others_drop(self) -> None:
        world = OrderedWorld()
        world.gather(*"AB")
        append(world, "A", 7, 1, "x")
        world.finish("AB", 1)
        world.start("C")
        world.settle()
        append(world, "C", 7, 1, "x")
        world.order("C", "z")
        world.finish("ABC", 2)
        assert world["C"].positions == {2: "z"}
        assert world["A"].ordered == world["B"].ordered == ["x", "z"]


def test_a_plain_body_cannot_be_an_append() -> None:
    order = calm(C)
    order.take(A, [pack([b"plain"])], START)
    assert order.producers == ()
