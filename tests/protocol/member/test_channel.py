"""Total order through real members, in virtual time: what the table of scenarios wants, and what a channel owes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from motet.errors import (
    BacklogFullError,
    ConfigError,
    LeftGroupError,
    MessageTooLargeError,
    MisuseError,
    NotPrimaryError,
    SendFailedError,
)
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Admitted, Broadcast, Channel, Deliver, Frame, SendFailed, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.member import MemberConfig
from motet.protocol.member.channel import GroupChannel
from motet.protocol.membership import MembershipConfig
from motet.protocol.multicast import MulticastConfig
from motet.protocol.ordering import OrderingConfig, RolledBack, StableAdvanced
from motet.protocol.window.digest import Cut
from motet.protocol.wire.body import MAX_MESSAGE_BYTES, pack
from motet.protocol.wire.codec import encode, group_id
from motet.protocol.wire.frames import (
    Commit,
    MulticastData,
    Prepared,
    Progress,
    ProposalRequest,
    Proposals,
    Stable,
    UnicastData,
)
from motet.protocol.wire.ordered import ORDERED, SequenceNumber, seal
from tests.protocol.membership.world import GROUP, Flight
from tests.protocol.ordering.world import STRATEGIES, OrderedWorld, failures, refused, sealed_in

TEXTS = [f"t{number}" for number in range(1, 6)]
all_strategies = pytest.mark.parametrize("strategy", STRATEGIES, indirect=True)


@pytest.fixture(autouse=True)
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of all members; what hooks into the streams is for the window strategy alone."""
    name: str = getattr(request, "param", "window")
    monkeypatch.setattr(OrderedWorld, "strategy", name)
    return name


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(1, count + 1)]


def crash_before_seq(world: OrderedWorld, sender: str, *, reached: str = "") -> None:
    """The first datagram of `sender` with a agreed number reaches only these; then it is gone."""

    def hook(flight: Flight) -> None:
        sealed = sealed_in(flight)
        if flight.source != sender or sealed is None or not sealed.numbers:
            return
        for name in reached:
            world.arrive_later(name, flight.data)
        world.crash(sender)

    world.on_frame(hook)


class TestTheSenderCrashesBetweenDataAndSeq:
    def test_all_survivors_have_the_data_and_deliver_it_at_the_same_place(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.order("A", "a1")
        world.finish("ABC", 1)
        crash_before_seq(world, "C")
        world.order("C", "c1")
        world.order("B", "b1")
        world.run(0.01)
        assert not world["C"].is_alive
        assert "c1" not in world["A"].ordered + world["B"].ordered
        world.settle("AB")
        world.order("A", "a2")
        world.finish("AB", 4)
        assert world["A"].ordered == world["B"].ordered
        assert sorted(world["A"].ordered[1:3]) == ["b1", "c1"]

    @pytest.mark.parametrize("reached", ["", "A", "B"])
    def test_the_data_reached_few_of_them(self, reached: str) -> None:
        world = OrderedWorld()
        world.gather(*"ABCD")
        for name in set("ABC") - set(reached):
            world.cut("D", name)
        world.order("D", "d1")
        world.order("A", "a1")
        world.run(0.005)
        world.crash("D")
        world.settle("ABC")
        world.finish("ABC", 2 if reached else 1)
        for name in "ABC":
            assert sorted(world[name].ordered) == (["a1", "d1"] if reached else ["a1"])
            assert world[name].ordered == world["A"].ordered

    def test_in_the_middle_of_a_large_message_nothing_of_it_is_delivered(self) -> None:
        world = OrderedWorld(frame_bytes=400, ordering=OrderingConfig(window=2))
        world.gather(*"ABC")
        crash_before_seq(world, "C")
        world.order("C", "c" * 5_000)
        world.order("B", "b1")
        world.run(0.02)
        assert not world["C"].is_alive
        world.settle("AB")
        world.order("A", "a1")
        world.finish("AB", 2)
        assert world["A"].ordered == world["B"].ordered == ["b1", "a1"]


class TestSeqReachesOneMemberOnly:
    def test_then_sender_and_that_member_crash(self) -> None:
        """D delivers it and dies with E. For the others it is undecided; what was stable before stays."""
        world = OrderedWorld()
        world.gather(*"ABCDE")
        world.order("A", "before")
        world.finish("ABCDE", 1)
        crash_before_seq(world, "E", reached="D")
        world.order("E", "e1")
        world.run(0.004)
        assert world["D"].ordered == ["before", "e1"]
        assert world["A"].ordered == ["before"]
        assert not world["D"].saw(RolledBack)
        world.crash("D")
        world.order("A", "a1")
        world.order("B", "b1")
        world.settle("ABC")
        world.finish("ABC", 4)
        for name in "ABC":
            assert world[name].ordered == world["A"].ordered
            assert world[name].ordered[0] == "before"
            assert not world[name].saw(RolledBack)
        assert set(world["A"].ordered) == {"before", "e1", "a1", "b1"}

    def test_that_member_survives_and_all_put_it_where_it_stands_there(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABCD")
        world.drop_next(Proposals, "B", "A", 100)  # a1 stays undecided, and stands before d1 in ranks
        world.order("A", "a1")
        world.run(0.003)
        crash_before_seq(world, "D", reached="B")
        world.order("D", "d1")
        world.run(0.005)
        world.settle("ABC")
        world.finish("ABC", 2)
        assert [world[name].ordered for name in "ABC"] == [["d1", "a1"]] * 3


class TestEqualFinalNumbers:
    def test_two_senders_at_one_instant(self) -> None:
        """Each proposes 1 for its own frame and 2 for the other's: of B's frame the smaller proposer named 2."""
        world = OrderedWorld()
        world.gather(*"AB")
        agreed: list[SequenceNumber] = []
        world.on_frame(lambda flight: agreed.extend(sealed.numbers if (sealed := sealed_in(flight)) else ()))
        world.order("A", "a1")
        world.order("B", "b1")
        world.finish("AB", 2)
        assert sorted(agreed) == [SequenceNumber(2, 0), SequenceNumber(2, 1)]
        assert world["A"].ordered == world["B"].ordered == ["b1", "a1"]

    def test_all_of_five_at_once_many_times(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABCDE")
        for turn in range(10):
            for name in "EDCBA":
                world.order(name, f"{name}{turn}")
            world.run(0.0005 * turn)
        world.finish("ABCDE", 50)
        assert all(world[name].ordered == world["A"].ordered for name in "ABCDE")


class TestLossAndDelay:
    @all_strategies
    @pytest.mark.parametrize("loss", [0.25, 0.5])
    def test_drop_25_and_50_percent_of_all_datagrams(self, loss: float) -> None:
        world = OrderedWorld(frame_bytes=1_400)
        world.gather(*"ABC")
        world.loss = loss
        stop = world.keep_ordering(*"ABC", every_ms=20)
        world.run(0.5)
        stop()
        count = sum(map(len, world.asked.values()))
        world.finish("ABC", count, limit=60)
        assert world["A"].ordered == world["B"].ordered == world["C"].ordered
        assert world["A"].members == "ABC"
        assert not world["A"].saw(RolledBack)

    @all_strategies
    def test_drop_a_quarter_while_members_are_suspected_and_merged_again(self) -> None:
        """With the usual timeout the view may change at any time; those who come back get the state."""
        world = OrderedWorld("ABC", wants_state=True, frame_bytes=1_400)
        world.gather(*"ABC")
        world.loss = 0.25
        stop = world.keep_ordering(*"ABC", every_ms=50)
        world.run(4)
        world.loss = 0
        stop()
        world.settle(limit=20)
        world.finish("ABC", limit=20)
        assert world["A"].ordered == world["B"].ordered == world["C"].ordered
        assert len(world["A"].ordered) > 50

    @all_strategies
    def test_half_of_all_proposals_take_two_seconds(self) -> None:
        """The "acks" of the ISIS document. A member that misses them asks, so most do not wait that long."""
        world = OrderedWorld()
        world.gather(*"ABC")
        world.delay(Proposals, 0.5, 2.0)
        stop = world.keep_ordering(*"ABC", every_ms=10)
        world.run(0.3)
        stop()
        count = sum(map(len, world.asked.values()))
        took = world.finish("ABC", count, limit=20)
        assert took < 2
        assert world["A"].ordered == world["B"].ordered == world["C"].ordered
        world.run(3)  # the late ones come, and are ignored
        assert world.is_ordered("ABC", count)

    def test_all_proposals_take_two_seconds(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.delay(Proposals, 1.0, 2.0)
        world.order("A", *TEXTS)
        world.order("B", "b1")
        assert 1.9 < world.finish("ABC", 6, limit=10) < 2.2

    @all_strategies
    @pytest.mark.parametrize("kind", [Proposals, ProposalRequest, Progress, Stable])
    def test_some_frames_of_one_kind_are_lost(self, kind: type) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        if kind is ProposalRequest:
            world.drop_next(Proposals, "*", "*", 3)
        world.drop_next(kind, "*", "*", 6)
        world.order("B", *TEXTS)
        world.finish("ABC", 5, limit=5)
        assert world["C"].ordered == TEXTS

    def test_the_last_seq_is_lost(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        lost: list[str] = []

        def hook(flight: Flight) -> None:
            sealed = sealed_in(flight)
            if sealed is not None and sealed.numbers and flight.to not in lost:
                lost.append(flight.to)
                world.drop_next(MulticastData, flight.source, flight.to)

        world.on_frame(hook)
        world.order("A", "a1")
        world.finish("ABC", 1, limit=2)
        assert sorted(lost) == ["B", "C"]


class TestAProposerCrashes:
    def test_before_it_proposed(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.crash("C")
        world.order("A", *TEXTS)
        world.order("B", "b1")
        world.run(0.3)
        assert world["A"].ordered == world["B"].ordered == []
        world.settle("AB")
        world.finish("AB", 6)
        assert world["A"].ordered == world["B"].ordered == [*TEXTS, "b1"]

    @all_strategies
    def test_before_it_proposed_for_some(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.order("A", *TEXTS[:2])
        world.run(0.0015)  # C has them, and its proposals are on their way
        world.crash("C")
        world.order("A", *TEXTS[2:])
        world.settle("AB")
        world.finish("AB", 5)
        assert world["A"].ordered == world["B"].ordered == TEXTS

    @all_strategies
    def test_the_coordinator_is_the_one(self) -> None:
        world = OrderedWorld("ABC")
        world.gather(*"ABC")
        world.crash("A")
        world.order("B", *TEXTS)
        world.order("C", "c1")
        world.settle("BC")
        world.finish("BC", 6)
        assert world["B"].ordered == world["C"].ordered

    @all_strategies
    def test_one_that_stands_still_blocks_the_others_only_until_it_is_suspected(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.pause("C")
        world.order("A", *TEXTS)
        world.settle("AB")
        world.finish("AB", 5)
        world.resume("C")
        world.settle("ABC")
        world.order("C", "c1")
        world.finish("ABC", 6)
        assert world["C"].ordered == ["c1"]
        assert world["C"].positions == {6: "c1"}


class TestFifoAcrossAFlush:
    @all_strategies
    @pytest.mark.parametrize("window", [1, 3, 64])
    def test_in_which_a_proposal_is_discarded(self, window: int) -> None:
        """C's word counted for some frames only; the flush decides without it, and nobody's messages change places."""
        world = OrderedWorld(ordering=OrderingConfig(window=window))
        world.gather(*"ABC")
        world.order("A", *numbered("a", 5))
        world.order("B", *numbered("b", 5))
        world.run(0.0021)
        world.drop_next(Proposals, "C", "A", 1_000)
        world.order("A", *numbered("A", 10))
        world.order("B", *numbered("B", 10))
        world.run(0.01)
        world.crash("C")
        world.order("A", *numbered("x", 5))
        world.settle("AB")
        world.order("A", *numbered("y", 5))
        world.finish("AB", 40)
        assert world["A"].ordered == world["B"].ordered
        log = world["A"].ordered
        ours = [text for text in log if text[0] in "aAxy"]
        assert ours == [*numbered("a", 5), *numbered("A", 10), *numbered("x", 5), *numbered("y", 5)]

    @all_strategies
    def test_while_members_come_and_go(self) -> None:
        world = OrderedWorld("AB", wants_state=True)
        world.gather(*"ABC")
        stop = world.keep_ordering(*"AB", every_ms=3)
        world.run(0.2)
        world.start("D")
        world.settle()
        world.leave("C")
        world.settle("ABD")
        world.crash("D")
        world.settle("AB")
        world.restart("D")
        world.settle("ABD")
        stop()
        world.finish("ABD")
        for name in "AB":
            assert [text for text in world[name].ordered if text.startswith(name)] == world.asked[world[name].address]
        assert world["D"].ordered == world["A"].ordered == world["B"].ordered

    @all_strategies
    def test_a_large_message_that_a_flush_interrupts_is_delivered_once_and_whole(self) -> None:
        world = OrderedWorld(frame_bytes=400, ordering=OrderingConfig(window=2))
        world.gather(*"ABC")
        world.crash("C")
        large = "x" * 5_000
        world.order("A", "a1", large, "a2")
        world.run(0.05)
        world.settle("AB")
        world.finish("AB", 3)
        assert world["A"].ordered == world["B"].ordered == ["a1", large, "a2"]
        assert world["B"].count(Count.BODY_INCOHERENT) == 0


class TestAJoinerArrives:
    def test_while_many_frames_are_pending(self) -> None:
        """It delivers exactly from the view's position on."""
        world = OrderedWorld(ordering=OrderingConfig(window=4_096, in_flight_limit=4_096), capacity=2_048)
        world.gather(*"AB")
        world.order("A", *numbered("before", 3))
        world.finish("AB", 3)
        world.drop_next(Proposals, "B", "A", 1_000_000)
        world.order("A", *numbered("a", 1_000))
        world.run(0.02)
        assert len(world["B"].order.queue) == 1_000
        assert world["A"].order.position == 3
        world.start("C")
        world.settle()
        world.heal()
        assert world["C"].order.position == world["A"].order.position == 1_003
        assert world["C"].positions == {}
        world.order("B", "b1")
        world.order("C", "c1")
        world.finish("ABC", 1_005)
        assert sorted(world["C"].positions) == [1_004, 1_005]
        assert world["A"].ordered == [*numbered("before", 3), *numbered("a", 1_000), *world["C"].ordered]

    @all_strategies
    def test_while_all_are_sending_and_with_the_state_it_has_the_whole_log(self) -> None:
        world = OrderedWorld(wants_state=True)
        world.gather(*"AB")
        stop = world.keep_ordering(*"AB", every_ms=2)
        world.run(0.1)
        world.start("C")
        world.settle()
        world.run(0.1)
        stop()
        world.finish("ABC")
        assert world["C"].ordered == world["A"].ordered == world["B"].ordered
        assert len(world["C"].ordered) == sum(map(len, world.asked.values()))

    @all_strategies
    def test_what_was_stable_before_is_stable_at_the_joiner_too(self) -> None:
        world = OrderedWorld()
        world.gather(*"AB")
        world.order("A", *TEXTS)
        world.finish("AB", 5)
        world.start("C")
        world.settle()
        world.finish("ABC", 5)
        assert world["C"].saw(StableAdvanced) == [StableAdvanced(5)]
        assert world["A"].saw(StableAdvanced)[-1] == StableAdvanced(5)
        assert len(world["A"].saw(StableAdvanced)) == len(set(map(str, world["A"].saw(StableAdvanced))))


class TestPartition:
    def parted(self) -> OrderedWorld:
        """{A,B,C} and {D,E}, with messages in flight on both sides when the network parts."""
        world = OrderedWorld("AD", wants_state=True)
        world.gather(*"ABCDE")
        world.order("A", *TEXTS)
        world.finish("ABCDE", 5)
        world.order("B", "b-in-flight")
        world.order("D", "d-in-flight")
        world.run(0.0005)
        world.split("ABC", "DE")
        return world

    @all_strategies
    def test_both_sides_send_and_only_the_majority_grows_the_log(self) -> None:
        world = self.parted()
        position = world["D"].order.position
        stop = world.keep_ordering(*"ABCDE", every_ms=20)
        world.run(0.5)
        stop()
        assert world["A"].order.position > 50
        for name in "DE":
            assert world[name].order.position == position
            assert refused(world, name, "impatient")
            assert world[name].order.accepted > world[name].order.admitted
        waiting = {name: world.asked[world[name].address][-20:] for name in "DE"}
        world.heal()
        world.settle("ABCDE", limit=20)
        world.finish("ABCDE")
        for name in "BCDE":
            assert world[name].ordered == world["A"].ordered, name
        for texts in waiting.values():
            assert set(texts) <= set(world["A"].ordered)

    @all_strategies
    def test_what_was_in_flight_in_the_minority_failed_or_is_in_the_log(self) -> None:
        world = self.parted()
        world.heal()
        world.settle("ABCDE", limit=20)
        world.finish("ABCDE")
        assert "b-in-flight" in world["A"].ordered
        fate = failures(world["D"])
        if "d-in-flight" not in world["A"].ordered:
            assert fate == [(1, 1, SendFailedError)]
        assert all(world[name].ordered == world["A"].ordered for name in "BCDE")

    def test_what_the_minority_delivered_and_the_majority_did_not_is_rolled_back(self) -> None:
        """E's message got its number, which only D and E heard; the others put something before it."""
        world = OrderedWorld("AD", wants_state=True)
        world.gather(*"ABCDE")

        def hook(flight: Flight) -> None:
            sealed = sealed_in(flight)
            if flight.source == "E" and sealed is not None and sealed.numbers:
                world.partition("ABC", "DE")

        world.on_frame(hook)
        world.order("E", "e1")
        world.run(0.005)
        assert world["D"].positions == world["E"].positions == {1: "e1"}
        world.order("A", "a1")
        world.settle("ABC", limit=20)
        world.settle("DE", limit=20)
        world.finish("ABC", 2)
        world._hooks.clear()
        world.heal()
        world.settle("ABCDE", limit=20)
        world.finish("ABCDE", 2)
        assert world["D"].saw(RolledBack) == world["E"].saw(RolledBack) == [RolledBack(1, 1)]
        assert not world["A"].saw(RolledBack)
        assert all(world[name].ordered == world["A"].ordered for name in "BCDE")

    @all_strategies
    def test_plain_messages_go_on_on_both_sides(self) -> None:
        world = self.parted()
        world.multicast("D", "plain-d")
        world.multicast("A", "plain-a")
        world.run(0.05)
        assert "plain-d" in world["E"].got()
        assert "plain-a" in world["C"].got()

    def test_where_every_side_orders_the_part_that_comes_in_drops_what_is_undecided(self) -> None:
        """`partitions="all"`: at the merge one log goes on, and the sender of the other part hears of its failure."""
        lan = MembershipConfig.lan()
        settings = replace(lan, engine=replace(lan.engine, partitions="all"))
        world = OrderedWorld("AC", membership=settings)
        world.gather(*"ABCDE")
        world.split("ABE", "CD")
        world.crash("E")
        world.settle("AB")  # theirs is the later view, so the others follow them
        world.drop_next(Proposals, "D", "C", 1_000)
        world.order("A", "a1")
        world.order("C", "c1", "c2")
        world.run(0.05)
        assert world["C"].positions == {}
        world.partition("ABCD")
        world.settle("ABCD", limit=20)
        world.run(0.5)
        assert world["A"].positions == {1: "a1"}
        assert world["C"].positions == world["D"].positions == {}
        assert failures(world["C"]) == [(1, 2, SendFailedError)]

    @all_strategies
    def test_one_that_is_alone_waits_and_is_told_why(self) -> None:
        world = OrderedWorld("AB")
        world.start("B")
        with pytest.raises(NotPrimaryError, match="wait for a primary view"):
            world.order("B", "b1", waits_for_primary=False)
        world.order("B", "b2")
        world.start("A")
        world.settle("AB")
        world.finish("AB", 1)
        assert world["A"].ordered == ["b2"]


class TestOneStream:
    @pytest.mark.parametrize("capacity", [1, 4, 256])
    def test_plain_and_ordered_messages(self, capacity: int) -> None:
        world = OrderedWorld(capacity=capacity)
        world.gather(*"ABC")
        piggybacked: list[bool] = []
        world.on_frame(
            lambda f: piggybacked.append(bool(s.inner) and not s.is_ordered) if (s := sealed_in(f)) else None
        )
        for number in range(30):
            for name in "ABC":
                world.multicast(name, f"plain-{name}{number}")
                world.order(name, f"ordered-{name}{number}")
            world.run(0.001)
        world.finish("ABC", 90)
        for name in "ABC":
            assert world[name].ordered == world["A"].ordered
            for sender in "ABC":
                assert world[name].got(sender) == world.sent(sender)
        assert any(piggybacked) == (capacity == 4)  # where plain frames wait for space, numbers are piggybacked on them

    @all_strategies
    def test_across_a_flush(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        plain, ordered = world.keep_sending(*"AB", every_ms=7), world.keep_ordering(*"AB", every_ms=5)
        world.run(0.1)
        world.crash("C")
        world.settle("AB")
        plain()
        ordered()
        world.finish("AB")
        for sender in "AB":
            assert world["A"].got(sender) == world["B"].got(sender) == world.sent(sender)
        assert world["A"].ordered == world["B"].ordered
        assert len(world["A"].ordered) == sum(map(len, world.asked.values()))

    @all_strategies
    @pytest.mark.parametrize("frame_bytes", [256, 300, 1_400])
    def test_large_messages_of_both_kinds_in_small_frames(self, frame_bytes: int) -> None:
        world = OrderedWorld(frame_bytes=frame_bytes)
        world.gather(*"AB")
        sizes: list[int] = []
        world.on_frame(lambda f: sizes.append(len(f.data)) if isinstance(f.frame, MulticastData) else None)
        for name in "AB":
            for number in range(3):
                world.multicast(name, f"plain-{name}{number}".ljust(3_000, "."))
                world.order(name, f"ordered-{name}{number}".ljust(3_000, "."))
        world.finish("AB", 6, limit=20)
        assert max(sizes) <= frame_bytes
        assert world["A"].ordered == world["B"].ordered
        for sender in "AB":
            assert world["A"].got(sender) == world["B"].got(sender) == world.sent(sender)

    @all_strategies
    def test_neither_starves_the_other(self) -> None:
        world = OrderedWorld(capacity=4, frame_bytes=400)
        world.gather(*"AB")
        world.multicast("A", *(f"plain-{number}".ljust(250, ".") for number in range(200)))
        world.order("A", "o1")
        world.run(0.03)
        assert world["B"].ordered == ["o1"]
        assert len(world["B"].got()) < 200
        world.finish("AB", 1)


class TestHolding:
    @all_strategies
    def test_an_application_that_takes_nothing_gets_all_in_order_later(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.pause_deliveries("B")
        world.order("A", *TEXTS)
        world.order("B", "b1")
        world.run(0.5)
        assert world["B"].ordered == []
        assert world["A"].ordered == []  # B has not proposed
        world.resume_deliveries("B")
        world.finish("ABC", 6)
        assert world["A"].ordered == world["B"].ordered == world["C"].ordered

    @pytest.mark.parametrize(
        "strategy", ["window", "continuous"], indirect=True
    )  # the fast path does not leave the time
    def test_nothing_is_stable_that_one_has_not_delivered(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.order("A", "a1")
        world.run(0.0025)  # all have proposed
        world.pause_deliveries("C")
        world.run(0.2)
        assert world["A"].ordered == world["B"].ordered == ["a1"]
        assert world["A"].order.stable == world["B"].order.stable == 0
        world.resume_deliveries("C")
        world.finish("ABC", 1)

    @all_strategies
    def test_whoever_waits_for_others_does_not_tell_them_again_and_again(self) -> None:
        """`progress_ns`: how often members tell how far they are, while that changes."""
        world = OrderedWorld()
        world.gather(*"ABC")
        world.order("A", "a1")
        world.run(0.0025)
        world.pause_deliveries("C")
        told = world.watch(Progress)
        world.run(10)
        assert [flight.source for flight in told].count("B") < 100


class TestLeaving:
    @all_strategies
    def test_what_is_in_flight_is_ordered_and_what_waits_fails(self) -> None:
        world = OrderedWorld(ordering=OrderingConfig(window=2))
        world.gather(*"ABC")
        world.order("B", *TEXTS)
        world.leave("B")
        world.settle("AC")
        world.finish("AC", 2)
        assert failures(world["B"]) == [(3, 5, LeftGroupError)]
        assert world["B"].ordered == world["A"].ordered == world["C"].ordered == TEXTS[:2]

    @all_strategies
    def test_the_last_member(self) -> None:
        world = OrderedWorld()
        world.gather("A")
        world.order("A", *TEXTS)
        world.leave("A")
        world.run(0.1)
        assert world["A"].ordered == TEXTS
        assert failures(world["A"]) == []

    @all_strategies
    def test_nothing_is_accepted_any_more(self) -> None:
        world = OrderedWorld()
        world.gather(*"AB")
        world["B"].do(world["B"].member.leave)
        with pytest.raises(LeftGroupError):
            world["B"].member.multicast_ordered([b"late"], world.now)


class TestWhatTheApplicationIsTold:
    @all_strategies
    def test_a_member_without_total_order_says_so(self) -> None:
        world = OrderedWorld()
        config = MemberConfig(membership=world.membership)
        world.start("A", config=config)
        with pytest.raises(MisuseError, match="give its MemberConfig an OrderingConfig"):
            world["A"].member.multicast_ordered([b"a"], world.now)

    @all_strategies
    def test_total_order_needs_membership(self) -> None:
        with pytest.raises(ConfigError, match="total order needs membership"):
            MemberConfig(ordering=OrderingConfig())

    @all_strategies
    def test_a_message_that_is_too_large_is_refused_whole(self) -> None:
        world = OrderedWorld()
        world.gather("A")
        with pytest.raises(MessageTooLargeError):
            world["A"].member.multicast_ordered([b"a", bytes(MAX_MESSAGE_BYTES + 1)], world.now)
        assert world["A"].order.accepted == 0

    @all_strategies
    def test_a_full_backlog_is_refused_and_opens_again(self) -> None:
        world = OrderedWorld("AB", ordering=OrderingConfig(backlog_bytes=1_000))
        world.start("B")
        world.order("B", "x" * 1_001)
        with pytest.raises(BacklogFullError):
            world.order("B", "y")
        world.start("A")
        world.run_until(lambda: world["B"].order.admitted == 1, 5)
        world.order("B", "z")
        world.finish("AB", 2)

    @all_strategies
    def test_whoever_was_refused_hears_when_to_go_on(self) -> None:
        """BacklogFullError says: wait for Admitted before sending more."""
        world = OrderedWorld(ordering=OrderingConfig(window=1))
        world.gather(*"AB")
        world.order("A", *TEXTS)
        world.finish("AB", 5)
        admitted = [entry for entry in world["A"].story if isinstance(entry, Admitted)]
        assert admitted, "nobody says that messages of the ordered channel have left the backlog"
        assert admitted[-1] == Admitted(Channel.TOTAL, None, 5)

    @all_strategies
    def test_not_primary_is_raised_only_if_one_does_not_want_to_wait(self) -> None:
        world = OrderedWorld("AB")
        world.start("B")
        assert refused(world, "B", "b1")
        assert world["B"].order.accepted == 0
        world.order("B", "b2")
        assert world["B"].order.accepted == 1

    @all_strategies
    def test_a_view_of_one_orders_at_once(self) -> None:
        world = OrderedWorld()
        world.gather("A")
        world.order("A", *TEXTS)
        assert world["A"].ordered == TEXTS

    @all_strategies
    def test_much_in_a_view_of_one(self) -> None:
        """However many rounds it takes: the stack of the interpreter is not what bounds them."""
        world = OrderedWorld(frame_bytes=256, ordering=OrderingConfig(window=1, in_flight_limit=4_096))
        world.gather("A")
        world.order("A", "x" * 200_000)
        assert world["A"].ordered == ["x" * 200_000]


class TestNonsense:
    def pair(self) -> OrderedWorld:
        world = OrderedWorld()
        world.gather(*"AB")
        return world

    def inject(self, world: OrderedWorld, frame: Frame) -> None:
        """To A, as B would send it."""
        group, a, b = group_id(GROUP), world["A"].address, world["B"].address
        world["A"].arrive(encode(group, b.incarnation, a.incarnation, frame))

    @pytest.mark.parametrize("declared", [16, 2**32 - 1, 0])
    def test_an_ordered_body_in_a_unicast_frame_is_no_message(self, declared: int) -> None:
        """It could be read as a fragment: its padding as the length of a message, its first id as an offset."""
        world = self.pair()
        sealed = bytearray(seal(0, [SequenceNumber(1, 0)], b"", is_ordered=False))
        assert sealed[0] == ORDERED
        sealed[4:8] = declared.to_bytes(4, "little")
        before = len(world["A"].story)
        self.inject(world, UnicastData(1, True, 1, bytes(sealed)))
        assert [entry for entry in world["A"].story[before:] if not isinstance(entry, Admitted)] == []
        reassemblers = world["A"].member._delivery._reassemblers
        assert all(one.collected_bytes == 0 for one in reassemblers.values())

    @pytest.mark.parametrize("is_ordered", [True, False])
    def test_a_member_without_total_order_keeps_its_plain_stream_clean(self, is_ordered: bool) -> None:
        """It cannot order anything, and takes nothing that numbers ride on: all members have total order, or none."""
        world = OrderedWorld()
        world.start("A", config=MemberConfig(membership=world.membership))
        world.run(1.3)
        world.start("B", config=MemberConfig(membership=world.membership))
        world.settle()
        world.multicast("B", "before")
        world.run(0.1)
        high = world["B"].member.multicast.sender.window.high
        sealed = seal(1, [SequenceNumber(1, 0)], pack([b"piggybacked"]), is_ordered=is_ordered)
        world.accepted[Channel.MULTICAST, world["B"].address, None][b"piggybacked"] = 1
        self.inject(world, MulticastData(world["B"].address.incarnation, high + 1, 0, sealed, world["B"].view.id.tag))
        assert world["A"].got("B") == ["before"]
        assert world["A"].count(Count.BODY_INCOHERENT) == 1

    @pytest.mark.parametrize("run", [(1, 2**63, 5), (1, 2**64 - 1, 5), (2, 2**63, 5), (2**63, 2**63, 2**63), (0, 0, 0)])
    def test_proposals_with_huge_runs(self, run: tuple[int, int, int]) -> None:
        world = self.pair()
        world.order("A", *TEXTS)
        self.inject(world, Proposals(world["A"].view.id, (run,) * 100))
        world.order("B", "b1")
        world.finish("AB", 6)

    @pytest.mark.parametrize("number", [2**63, 2**64 - 2, 2**64 - 1])
    def test_a_proposal_at_the_end_of_all_numbers(self, number: int) -> None:
        """Once it is final everybody's clock stands there; the next proposal does not fit into 64 bits."""
        world = self.pair()
        world.order("A", *TEXTS)
        self.inject(world, Proposals(world["A"].view.id, ((1, 5, number),)))
        world.order("B", "b1")
        world.order("A", "a6")
        world.run(1)
        world.order("B", "b2")
        world.run(1)
        assert set(world["A"].ordered) <= {*TEXTS, "a6", "b1", "b2"}

    @pytest.mark.parametrize("kind", [Progress, Stable])
    @pytest.mark.parametrize("position", [0, 3, 2**63, 2**64 - 1])
    def test_progress_of_a_liar(self, kind: type[Progress] | type[Stable], position: int) -> None:
        world = self.pair()
        world.order("A", "a1")
        self.inject(world, kind(world["A"].view.id, position))
        assert world["A"].order.stable <= world["A"].order.position
        world.finish("AB", 1)

    def test_frames_of_total_order_at_a_member_that_has_none_are_counted(self) -> None:
        world = OrderedWorld()
        world.start("A", config=MemberConfig(membership=world.membership))
        world.run(1.3)
        world.start("B")
        world.settle()
        before = world["A"].count(Count.ORDER_MISMATCH)
        self.inject(world, Proposals(world["A"].view.id, ((1, 1, 1),)))
        assert world["A"].count(Count.ORDER_MISMATCH) == before + 1


class TestAFlush:
    def test_what_is_accepted_while_it_is_in_flight_leaves_in_the_next_view(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        before = world["B"].view.id
        left_in: list[ViewId] = []
        world.on_frame(lambda f: left_in.append(world["B"].view.id) if f.source == "B" and sealed_in(f) else None)
        world.crash("C")
        world.once(Prepared, lambda f: world.scheduler.after(0, lambda: world.order("B", "b1")), source="B")
        world.settle("AB")
        world.finish("AB", 1)
        assert left_in
        assert before not in left_in

    @all_strategies
    def test_it_is_called_off_and_the_same_view_goes_on_ordering(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        view = world["A"].view.id
        world.order("A", "a1")
        world.run(0.0005)
        world["A"].member.channel.freeze()
        world["B"].member.channel.freeze()
        world.order("B", "b1")
        world.run(0.02)
        assert world["B"].ordered == []
        for name in "AB":
            world[name].do(lambda now, member=world[name].member: member._perform(member.channel.thaw(now), now))  # type: ignore[misc]
        world.finish("ABC", 2)
        assert world["A"].view.id == view

    def test_no_proposal_leaves_for_a_view_that_has_ended(self) -> None:
        """Nobody can use it."""
        world = OrderedWorld()
        world.gather(*"AB")
        late: list[Flight] = []

        def hook(flight: Flight) -> None:
            if isinstance(flight.frame, Proposals) and flight.frame.view != world[flight.source].view.id:
                late.append(flight)

        world.on_frame(hook)
        world.pause_deliveries("B")  # so that A's frames are delivered by the end of the view
        world.order("A", *TEXTS)
        world.start("C")
        world.settle()
        world.finish("ABC", 5)
        assert late == []

    @all_strategies
    def test_the_coordinator_crashes_after_some_have_installed_the_view(self) -> None:
        """All survivors end the old view with the same order, although one of them heard of it first."""
        world = OrderedWorld("ABCDE")
        world.gather(*"ABCDE")
        world.order("B", *TEXTS)
        world.order("C", *numbered("c", 5))
        world.run(0.0005)
        world.crash("E")
        world.once(Commit, lambda flight: world.cut_off("A", *"CD"), source="A")

        def hook(flight: Flight) -> None:
            if isinstance(flight.frame, Commit) and flight.source == "A" and flight.to != "B":
                world.crash("A")

        world.on_frame(hook)
        world.settle("BCD", limit=20)
        world.finish("BCD", 10)
        assert world["B"].ordered == world["C"].ordered == world["D"].ordered


class TestAChannelAlone:
    A, B = (Address(name, "127.0.0.1", 7800 + index, (index + 1) << 48) for index, name in enumerate("AB"))
    VIEW = View(ViewId(1, 1), (A, B), is_primary=True)

    def channel(self, ordering: OrderingConfig | None) -> GroupChannel:
        channel = GroupChannel(self.A, MulticastConfig(), ordering, Counters())
        channel.start(View(ViewId(0, 1), (self.A,), is_primary=False), 0)
        channel.begin_view(self.VIEW, {self.B: 0}, 0)
        channel._check()
        return channel

    def frame(self, seqno: int, body: bytes) -> MulticastData:
        return MulticastData(self.B.incarnation, seqno, 0, body, self.VIEW.id.tag)

    def test_without_total_order_it_is_the_multicast_and_nothing_else(self) -> None:
        channel = self.channel(None)
        effects = channel.receive(self.B, [self.frame(1, pack([b"p"]))], 0) + channel.advance(0)
        assert effects == [Deliver(Channel.MULTICAST, self.B, 1, (pack([b"p"]),))]
        assert (channel.position, channel.log_after({}, log_continues=True).position) == (0, 0)
        assert channel.leave(0) == []

    def test_a_batch_is_answered_by_one_datagram(self) -> None:
        channel = self.channel(OrderingConfig())
        frames = [self.frame(n, seal(1, [], pack([b"o"]), is_ordered=True)) for n in (1, 2, 3)]
        effects = channel.receive(self.B, frames, 0) + channel.advance(0)
        assert effects == [Transmit(self.B, Proposals(self.VIEW.id, ((1, 3, 1),)))]

    def test_numbers_leave_as_soon_as_they_are_final(self) -> None:
        channel = self.channel(OrderingConfig())
        channel.send_ordered([b"a"], 0)
        effects = channel.receive_order(self.B, [Proposals(self.VIEW.id, ((1, 1, 1),))]) + channel.advance(0)
        kinds = [type(effect.frame if isinstance(effect, Broadcast) else effect) for effect in effects]
        assert kinds == [MulticastData, Deliver]
        assert effects[-1] == Deliver(Channel.TOTAL, self.A, 1, (pack([b"a"]),), 1, (0,))

    def test_its_deadline_is_the_earlier_of_both(self) -> None:
        channel = self.channel(OrderingConfig(progress_ns=MILLISECOND))
        assert channel.next_deadline() == 0  # to tell how far we are
        channel.tick(0)
        assert channel.next_deadline() == MILLISECOND

    def test_nothing_leaves_as_the_view_ends_also_when_no_flush_has_stopped_us(self) -> None:
        """The others ended it without us; what becomes final or has space now has nobody to go to."""
        channel = self.channel(OrderingConfig(window=1))
        channel.pause()
        channel.send_ordered([b"a"], 0)
        channel.send_ordered([b"b"], 0)
        channel.receive_order(self.B, [Proposals(self.VIEW.id, ((1, 1, 1),))])
        effects = channel.end_view({}, log_continues=False)
        assert [type(effect) for effect in effects] == [SendFailed]

    @pytest.mark.parametrize("log_continues", [True, False])
    def test_it_knows_where_the_log_will_stand(self, log_continues: bool) -> None:
        channel = self.channel(OrderingConfig())
        channel.pause()
        channel.send_ordered([b"a"], 0)
        channel.send([b"plain"], 0)
        bodies = [
            seal(1, [], pack([b"o", b"p"]), is_ordered=True),
            seal(1, [SequenceNumber(1, 0)], b"", is_ordered=False),
        ]
        channel.receive(self.B, [self.frame(n, body) for n, body in enumerate(bodies, 1)], 0)
        channel.advance(0)
        cut = {self.A: Cut(2, self.A, 0), self.B: Cut(2, self.B, 0)}
        channel.freeze()
        expected = channel.log_after(cut, log_continues=log_continues).position
        channel.end_view(cut, log_continues=log_continues)
        assert channel.position == expected == (3 if log_continues else 2)


class TestTime:
    def test_a_group_at_rest_says_nothing_about_order(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.order("A", *TEXTS)
        world.finish("ABC", 5)
        world.run(0.5)
        said = world.watch(Proposals, ProposalRequest, Progress, Stable)
        world.run(5)
        assert said == []
        assert all(world[name].order.next_deadline() is None for name in "ABC")

    def test_a_message_takes_three_hops_to_be_ordered_by_all(self) -> None:
        world = OrderedWorld()
        world.gather(*"ABC")
        world.order("B", "b1")
        took = world.run_until(lambda: all(world[name].ordered == ["b1"] for name in "ABC"), 1)
        assert took <= 0.003 + MILLISECOND / SECOND
