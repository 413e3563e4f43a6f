"""What is promised about messages and about the primary component while views change: real members, virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from motet.errors import LeftGroupError, PeerUnreachableError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Channel
from motet.protocol.membership import MembershipConfig
from motet.protocol.wire.frames import (
    AreYouAlive,
    Commit,
    Heartbeat,
    IAmAlive,
    Installed,
    MergeRequest,
    MulticastAck,
    MulticastData,
    Suspicion,
    UnicastData,
)
from tests.protocol.membership.world import Flight, Got, World, failures, names_of

NOTICED_S = 2.5  # a crash is suspected after suspect_ns + verify_ns + heartbeat_ns at most; then the view changes
WINDOWS = [(1, 60_000, 0), (256, 60_000, 0), (1, 300, 1_000), (4, 300, 1_000)]  # capacity, frame, size of a message


def policy(**engine: int | str) -> MembershipConfig:
    lan = MembershipConfig.lan()
    return replace(lan, engine=replace(lan.engine, **engine))  # type: ignore[arg-type]


def drain(world: World, names: str, limit: float = 10) -> None:
    world.run_until(lambda: all(world[name].is_drained for name in names), limit)


def assert_all_got(world: World, sender: str, receivers: str) -> None:
    for receiver in receivers:
        assert world[receiver].got(sender) == world.sent(sender), (receiver, sender)


class TestNothingAcceptedIsLost:
    @pytest.mark.parametrize(("capacity", "frame_bytes", "size"), WINDOWS)
    def test_over_a_join(self, capacity: int, frame_bytes: int, size: int) -> None:
        world = World("A", capacity=capacity, frame_bytes=frame_bytes)
        world.gather(*"AB")
        stop = world.keep_sending("A", "B", every_ms=5, size=size)
        world.run(0.1)
        world.start("C")
        world.settle()
        more = world.keep_sending("C", every_ms=5, size=size)
        world.run(0.3)
        stop()
        more()
        drain(world, "ABC")
        assert_all_got(world, "A", "AB")
        assert_all_got(world, "B", "AB")
        assert_all_got(world, "C", "ABC")
        for sender in "AB":
            got = world["C"].got(sender)
            assert got
            assert got == world.sent(sender)[-len(got) :]

    @pytest.mark.parametrize(("capacity", "frame_bytes", "size"), WINDOWS)
    def test_over_a_leave(self, capacity: int, frame_bytes: int, size: int) -> None:
        world = World("A", capacity=capacity, frame_bytes=frame_bytes)
        world.gather(*"ABCD")
        stop = world.keep_sending(*"ABCD", every_ms=8, size=size)
        world.run(0.1)
        world.leave("C")
        world.settle("ABD")
        world.leave("A")
        world.settle("BD")
        world.run(0.1)
        stop()
        drain(world, "BD")
        assert_all_got(world, "B", "BD")
        assert_all_got(world, "D", "BD")
        for leaver in "AC":
            failed = sum(failure.last - failure.first + 1 for failure in failures(world[leaver]))
            admitted = world.sent(leaver)[: len(world.sent(leaver)) - failed]
            for receiver in "BD":
                assert world[receiver].got(leaver) == admitted, "what left the backlog is delivered, the rest failed"
            assert all(isinstance(failure.error, LeftGroupError) for failure in failures(world[leaver]))

    @pytest.mark.parametrize(("capacity", "frame_bytes", "size"), WINDOWS)
    def test_over_a_merge(self, capacity: int, frame_bytes: int, size: int) -> None:
        world = World("A", capacity=capacity, frame_bytes=frame_bytes)
        world.gather(*"ABCD")
        stop = world.keep_sending(*"ABCD", every_ms=40, size=size)
        world.run(0.1)
        world.split("AB", "CD")
        world.heal()
        world.settle(limit=5)
        world.run(0.1)
        stop()
        drain(world, "ABCD")
        for sender, mate in ("AB", "BA", "CD", "DC"):
            assert_all_got(world, sender, sender + mate)

    @pytest.mark.parametrize(("capacity", "frame_bytes", "size"), WINDOWS)
    def test_over_a_crash(self, capacity: int, frame_bytes: int, size: int) -> None:
        world = World("A", capacity=capacity, frame_bytes=frame_bytes)
        world.gather(*"ABC")
        stop = world.keep_sending(*"ABC", every_ms=10, size=size)
        world.run(0.1)
        world.crash("A")
        world.settle("BC", limit=3)
        stop()
        drain(world, "BC")
        assert_all_got(world, "B", "BC")
        assert_all_got(world, "C", "BC")
        assert world["B"].got("A") == world["C"].got("A")

    def test_a_message_that_only_one_survivor_has_reaches_the_others(self) -> None:
        """The last words of one who crashes: B heard them, A did not."""
        world = World("A")
        world.gather(*"ABC")
        world.drop_next(MulticastData, "C", "A", 1_000)
        world.multicast("C", "last words")
        world.run(0.0015)
        world.crash("C")
        world.settle("AB", limit=3)
        assert world["A"].got("C") == world["B"].got("C") == ["last words"]

    def test_a_message_that_nobody_who_is_left_has_is_delivered_by_none(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.drop_next(MulticastData, "C", "*", 1_000)
        world.multicast("C", "unheard")
        world.crash("C")
        world.settle("AB", limit=3)
        assert world["A"].got("C") == world["B"].got("C") == []

    def test_a_view_change_frees_a_full_window_and_does_not_wait_behind_it(self) -> None:
        world = World("A", capacity=2)
        world.gather(*"ABC")
        world.crash("C")
        world.multicast("A", *(f"a{number}" for number in range(5)))
        for number in range(20):
            world.multicast("A", f"more {number}")
        world.settle("AB", limit=3)
        drain(world, "AB", 1)
        assert_all_got(world, "A", "AB")

    def test_two_members_crash_one_after_the_other_with_a_full_window(self) -> None:
        world = World("A", capacity=2)
        world.gather(*"ABCD")
        world.crash("C")
        for number in range(20):
            world.multicast("A", f"more {number}")
        world.run(1)
        world.crash("D")
        world.settle("AB", limit=6)
        drain(world, "AB", 1)
        assert_all_got(world, "A", "AB")

    def test_a_message_of_many_fragments_meets_a_change_at_every_fragment(self) -> None:
        for nth in range(1, 8):
            world = World("A", capacity=2, frame_bytes=300)
            world.gather(*"ABC")
            seen: list[Flight] = []

            def leave(flight: Flight, world: World = world, seen: list[Flight] = seen, nth: int = nth) -> None:
                if isinstance(flight.frame, MulticastData) and flight.to == "B":
                    seen.append(flight)
                    if len(seen) == nth:
                        world.leave("C")

            world.on_frame(leave)
            world.multicast("A", "x" * 1_500)
            world.settle("AB")
            drain(world, "AB", 1)
            assert_all_got(world, "A", "AB")


class TestBusyAndSlow:
    def test_busy_members_are_never_expelled(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        doubts = world.watch(AreYouAlive, Suspicion, IAmAlive)
        world.keep_sending(*"ABC", every_ms=20)
        world.run(8)
        assert world["A"].history == ["A", "A", "AB", "ABC"]
        assert doubts == []

    def test_busy_members_still_notice_a_member_in_another_view(self) -> None:
        """C slept through a change and goes on in the old view; nobody is ever idle."""
        world = World("A")
        world.gather(*"ABC")
        stop = world.keep_sending(*"ABC", every_ms=20)
        world.run(0.5)
        world.pause("C")
        world.settle("AB", limit=NOTICED_S)
        world.resume("C")
        world.settle("ABC", limit=8)
        stop()

    def test_heartbeats_are_sent_only_now_and_then_by_the_busy(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.keep_sending(*"ABC", every_ms=20)
        world.run(1)
        beats = world.watch(Heartbeat)
        world.run(4)
        assert 4 <= len([beat for beat in beats if (beat.source, beat.to) == ("A", "B")]) <= 5

    def test_a_member_that_is_only_slow_is_not_expelled(self) -> None:
        world = World("A", capacity=8)
        world.gather(*"ABC")
        world.pause_deliveries("C")
        stop = world.keep_sending("A", "B", every_ms=10)
        world.run(8)
        assert world["A"].history == ["A", "A", "AB", "ABC"]
        assert world["C"].got() == []
        assert world["C"].member.buffered_frames <= 3 * 8
        world.resume_deliveries("C")
        stop()
        world.run_until(lambda: all(world[name].is_drained for name in "ABC"), 5)
        assert world["C"].got("A") == world.sent("A")
        assert world["C"].got("B") == world.sent("B")

    def test_a_member_that_is_slow_does_not_hold_up_a_view(self) -> None:
        world = World("A", capacity=8)
        world.gather(*"ABC")
        world.pause_deliveries("C")
        stop = world.keep_sending("A", "B", every_ms=10)
        world.run(1)
        world.start("D")
        world.settle("ABCD", limit=1)
        world.leave("B")
        world.settle("ACD", limit=1)
        world.resume_deliveries("C")
        stop()
        world.run_until(lambda: all(world[name].is_drained for name in "ACD"), 5)
        assert world["C"].got("A") == world.sent("A")

    def test_the_acks_of_a_joiner_do_not_stall_the_senders(self) -> None:
        """It stands in the ack table where the digest says, not at 0."""
        world = World("A", capacity=4)
        world.gather(*"AB")
        stop = world.keep_sending("A", "B", every_ms=5)
        world.run(1)
        acks: list[tuple[int, int]] = []

        def look(flight: Flight) -> None:
            if isinstance(flight.frame, Installed) and flight.source == "C":
                sender = world["A"].member.multicast.sender
                acks.append((sender.acks[world["C"].address], sender.window.low))

        world.on_frame(look)
        world.start("C")
        world.settle()
        stop()
        world.run_until(lambda: world["A"].is_drained and world["B"].is_drained, 1)
        assert acks
        assert all(acked >= low > 100 for acked, low in acks)
        sender = world["A"].member.multicast.sender
        assert sender.acks[world["C"].address] == sender.window.high
        assert world["C"].got("A") == world.sent("A")[-len(world["C"].got("A")) :]
        assert world["C"].count(Count.REPAIR_ASKED) == 0

    def test_an_ack_of_one_who_has_left_is_ignored(self) -> None:
        world = World("A", capacity=4)
        world.gather(*"ABC")
        acks = world.watch(MulticastAck)
        world.multicast("A", "one")
        world.run(1)
        late = next(flight for flight in acks if flight.source == "C")
        world.leave("C")
        world.settle("AB")
        world.arrive_later("A", late.data)
        world.multicast("A", "two")
        world.run(1)
        assert world["B"].got("A") == ["one", "two"]
        assert world["A"].is_drained

    def test_a_multicast_that_arrives_before_the_view_is_kept_and_delivered_in_it(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.drop_next(Commit, "A", "C", 1)
        world.leave("B")
        world.run_until(lambda: world["A"].members == "AC", 1)
        data = world.watch(MulticastData)
        world.multicast("A", "early")
        world.settle("AC")
        world.run(1)
        assert data
        got = [entry for entry in world["C"].story if isinstance(entry, Got)]
        assert [entry.text for entry in got] == ["early"]
        assert got[0].view == world["A"].view.id


class TestUnicast:
    def test_a_send_to_a_member_that_is_expelled_fails_with_a_clear_error(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.partition("AB", "C")
        world.send("A", "C", "into the void")
        world.settle("AB", limit=3)
        (failure,) = failures(world["A"])
        assert failure.channel is Channel.UNICAST
        assert failure.to == world["C"].address
        assert isinstance(failure.error, PeerUnreachableError)
        assert str(world["C"].address) in str(failure.error)

    def test_unicast_works_again_after_the_merge(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.send("A", "C", "one")
        world.send("C", "A", "eins")
        world.run(0.1)
        world.partition("AB", "C")
        world.send("A", "C", "lost")
        world.settle("AB", limit=3)
        world.settle("C", limit=3)
        world.heal()
        world.settle(limit=5)
        world.send("A", "C", "two", "three")
        world.send("C", "A", "zwei")
        world.run(1)
        assert world["C"].got("A", Channel.UNICAST)[-2:] == ["two", "three"]
        assert world["C"].got("A", Channel.UNICAST)[0] == "one"
        assert world["A"].got("C", Channel.UNICAST) == ["eins", "zwei"]

    def test_a_send_after_the_expulsion_fails_or_arrives_after_the_merge_but_is_not_forgotten(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.split("AB", "C")
        world.send("A", "C", "later")
        world.run(1)
        world.heal()
        world.settle(limit=5)
        world.run(3)
        arrived = world["C"].got("A", Channel.UNICAST) == ["later"]
        assert arrived != bool(failures(world["A"]))

    def test_a_send_to_one_who_never_comes_back_fails_in_bounded_time(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        gone = world["C"].address
        world.crash("C")
        world.settle("AB", limit=3)
        world.send("A", gone, "anybody?")
        world.run(70)
        (failure,) = failures(world["A"])
        assert isinstance(failure.error, PeerUnreachableError)

    def test_unicast_goes_on_while_views_change(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        for number in range(50):
            world.send("A", "B", f"u{number}")
            if number == 10:
                world.leave("C")
            if number == 20:
                world.start("D")
            world.run(0.02)
        world.run(0.5)
        assert world["B"].got("A", Channel.UNICAST) == [f"u{number}" for number in range(50)]

    def test_a_restarted_process_gets_nothing_that_was_meant_for_its_earlier_life(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        old = world["C"].address
        datagrams = world.watch(UnicastData)
        world.crash("C")
        world.send("A", old, "for the old one")
        world.start("C")
        world.settle(limit=5)
        world.send("A", "C", "for the new one")
        world.run(1)
        assert datagrams
        assert world["C"].got("A", Channel.UNICAST) == ["for the new one"]
        assert [failure.to for failure in failures(world["A"])] == [old]


class TestPrimary:
    def test_a_partition_of_three_and_two_with_both_sides_sending(self) -> None:
        """Only the majority is primary; both sides go on with FIFO multicast; one primary view after the merge."""
        world = World("A")
        world.gather(*"ABCDE")
        stop = world.keep_sending(*"ABCDE", every_ms=20)
        world.split("ABC", "DE")
        assert (world["A"].view.is_primary, world["D"].view.is_primary) == (True, False)
        before = len(world["E"].got("D"))
        world.run(0.5)
        assert len(world["E"].got("D")) > before
        world.heal()
        world.settle(limit=5)
        stop()
        assert world["D"].view.is_primary
        assert world["D"].members == "ABCDE"

    def test_exactly_half_with_the_most_senior_member_is_primary(self) -> None:
        world = World("A")
        world.gather(*"ABCD")
        world.split("AD", "BC")
        assert world["A"].view.is_primary
        assert not world["B"].view.is_primary

    def test_the_attempt_that_one_member_did_not_hear_the_end_of(self) -> None:
        """{A,B,C} attempt a primary view; A and B install it, C is cut off before it hears; C meets {D,E}."""
        world = World("A")
        world.gather(*"ABCDE")

        def cut_off_c(_: Flight) -> None:
            world.partition("AB", "CDE")

        world.once(Commit, cut_off_c, source="A", to="C")
        world.partition("ABC", "DE")
        world.run_until(lambda: world["B"].members in ("ABC", "AB"), 4)
        world.settle("AB", limit=10)
        world.settle("CDE", limit=10)
        assert "ABC" in world["A"].history
        assert "ABC" not in world["C"].history[-3:]
        assert not world["C"].view.is_primary
        assert world["A"].view.is_primary
        world.heal()
        world.settle(limit=6)
        assert world["C"].view.is_primary

    def test_never_two_primary_views_without_a_common_member(self) -> None:
        """A group of five falls apart again and again, each time differently."""
        world = World("A")
        world.gather(*"ABCDE")
        for sides in (("ABC", "DE"), ("AB", "CDE"), ("A", "BCDE"), ("AE", "BD", "C"), ("ABCD", "E")):
            world.partition(*sides)
            world.run(5)
            primary = {process.view.id for process in world.living if process.view.is_primary}
            assert len(primary) <= 1, sides
        world.heal()
        world.settle(limit=10)
        assert world["A"].view.is_primary

    def test_all_but_one_crash_at_once_and_the_last_one_is_not_primary(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        world.crash(*"ABCD")
        world.settle("E", limit=10)
        assert not world["E"].view.is_primary

    def test_with_partitions_all_both_sides_are_primary_and_the_merge_tells_the_subviews(self) -> None:
        world = World("A", membership=policy(partitions="all"))
        world.start(*"ABCD")
        world.settle()
        world.split("AB", "CD")
        sides = (world["A"].view, world["C"].view)
        assert all(view.is_primary for view in sides)
        world.heal()
        world.settle(limit=5)
        for name in "ABCD":
            entry = world[name].entries[-1]
            assert {frozenset(names_of(view)) for view in entry.subviews} == {frozenset("AB"), frozenset("CD")}
            assert set(entry.subviews) == set(sides)
            assert entry.view.is_primary

    def test_with_partitions_all_a_member_alone_is_primary_from_the_beginning(self) -> None:
        world = World("A", membership=policy(partitions="all"))
        world.start("B")
        world.run(1)
        assert all(entry.view.is_primary for entry in world["B"].entries)

    def test_static_quorum(self) -> None:
        """Three of five, at the bootstrap and ever after."""
        world = World("A", membership=policy(static_quorum=3))
        world.start(*"AB")
        world.run(5)
        assert world.is_one_view()
        assert not any(process.view.is_primary for process in world.living)
        world.start("C")
        world.settle()
        world.run(1)
        assert all(process.view.is_primary for process in world.living)
        world.start(*"DE")
        world.settle()
        world.split("ABC", "DE")
        assert (world["A"].view.is_primary, world["D"].view.is_primary) == (True, False)
        world.split("AB", "CDE")
        assert (world["A"].view.is_primary, world["D"].view.is_primary) == (False, True)

    def test_a_group_that_lost_its_primary_gets_it_back_when_the_others_return(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        world.split("A", "BC", "DE")
        assert not any(process.view.is_primary for process in world.living)
        world.partition("ABC", "DE")
        world.settle("ABC", limit=5)
        assert world["A"].view.is_primary

    def test_joiners_do_not_make_a_minority_primary(self) -> None:
        """Members that never were in the primary view count for nothing."""
        world = World("AD")
        world.gather(*"ABCDE")
        world.partition("ABC", "DEFGHI")
        world.settle("DE", limit=4)
        world.start(*"FGHI")
        world.settle("DEFGHI", limit=5)
        assert not world["D"].view.is_primary
        assert world["A"].view.is_primary

    def test_a_merge_that_fails_again_and_again_does_not_stop_the_service(self) -> None:
        """C answers no MERGE_REQ; A and B stay primary and their messages flow."""
        world = World("A")
        world.gather(*"ABC")
        world.split("AB", "C")
        world.heal()
        world.drop_next(MergeRequest, "*", "*", 100_000)
        stop = world.keep_sending("A", "B", every_ms=20)
        world.run(10)
        stop()
        drain(world, "AB", 3)
        assert_all_got(world, "A", "AB")
        assert len(world["B"].got("A")) > 300
        assert world["A"].members == "AB"
