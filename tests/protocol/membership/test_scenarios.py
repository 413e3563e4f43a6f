"""Scenarios that break group communication: how views begin, change and end. Real members, virtual time.

Every world also checks, all the time, what tests/protocol/membership/world.py lists at its head.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from motet.protocol.core.effects import Frame
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View
from motet.protocol.membership import Left, MembershipConfig, Suspected, Trusted
from motet.protocol.wire.frames import (
    AreYouAlive,
    Commit,
    CutTo,
    Heartbeat,
    Hello,
    HelloBack,
    Installed,
    MergeCommit,
    MergeReady,
    MergeRequest,
    MergeView,
    Prepare,
    Prepared,
    Ready,
    Suspicion,
)
from tests.protocol.membership.world import Flight, Got, World, names_of

NOTICED_S = 2.5  # a crash is suspected after suspect_ns + verify_ns + heartbeat_ns at most; then the view changes
TWENTY = "ABCDEFGHIJKLMNOPQRST"


def lives_of(world: World, name: str) -> list[int]:
    return [process.address.incarnation for process in world.processes if process.name == name]


def slowest_gap_ms(world: World, receiver: str, sender: str, since: int) -> float:
    """The longest silence between two deliveries."""
    times = [
        entry.at
        for entry in world[receiver].story
        if isinstance(entry, Got) and entry.sender == sender and entry.at >= since
    ]
    return max(later - earlier for earlier, later in pairwise(times)) / MILLISECOND


def views_since(world: World, name: str, common: View) -> list[View]:
    views = [entry.view for entry in world[name].entries]
    return views[views.index(common) :]


def crash_at(world: World, name: str, kind: type[Frame], nth: int) -> None:
    """Just before it sends its nth frame of this class."""
    seen: list[Flight] = []

    def strike(flight: Flight) -> None:
        if flight.source == name and isinstance(flight.frame, kind):
            seen.append(flight)
            if len(seen) == nth:
                world.crash(name)

    world.on_frame(strike)


class TestColdStart:
    def test_all_members_start_at_the_same_moment(self) -> None:
        world = World("ABC")
        world.start(*TWENTY)
        world.run(3)
        assert world.is_one_view()
        assert world["A"].view.is_primary
        assert all(len(process.history) <= 4 for process in world.processes), world.tell()

    def test_all_members_start_at_the_same_moment_and_each_knows_one_seed_only(self) -> None:
        world = World("A")
        world.start(*TWENTY)
        world.run(3)
        assert world.is_one_view()
        assert world["A"].view.is_primary

    def test_all_members_start_within_a_second_in_any_order(self) -> None:
        world = World("ABC")
        for name in reversed(TWENTY):
            world.start(name)
            world.run(0.05)
        world.run(2)
        assert world.is_one_view()
        assert world["A"].view.is_primary

    def test_a_member_without_seeds_bootstraps_its_own_group(self) -> None:
        world = World("")
        world.start("A")
        world.run(2)
        assert world["A"].view.is_primary
        assert world["A"].members == "A"

    def test_a_member_that_is_its_own_only_seed_bootstraps(self) -> None:
        world = World("A")
        world.start("A")
        world.run(2)
        assert world["A"].view.is_primary

    def test_members_that_name_a_seed_which_is_not_there_do_not_found(self) -> None:
        world = World("ABC")
        world.start("C", "D", "E")
        world.run(10)
        assert world.is_one_view()
        assert not world["C"].view.is_primary
        world.start("B")
        world.settle()
        world.run_until(lambda: world["B"].view.is_primary, 3)
        assert world.is_one_view()

    def test_members_that_name_only_absent_seeds_do_not_found(self) -> None:
        world = World("AB")
        world.start("C", "D")
        world.run(10)
        assert not any(process.view.is_primary for process in world.living)

    def test_a_restarted_seed_that_does_not_found_joins_the_group(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.crash("A")
        world.settle(limit=4)
        world.start("A", config=replace(world.config, membership=replace(world.membership, may_bootstrap=False)))
        world.settle(limit=4)
        assert world["A"].members == "BCA"
        assert world["A"].view.is_primary
        assert world["A"].history == ["A", "BCA"]

    def test_a_restarted_seed_that_does_not_found_waits_for_a_group_that_it_cannot_reach(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.crash("A")
        world.settle(limit=4)
        world.partition("A", "BC")
        world.start("A", config=replace(world.config, membership=replace(world.membership, may_bootstrap=False)))
        world.run(10)
        assert not world["A"].view.is_primary
        world.heal()
        world.settle(limit=4)
        assert world["A"].view.is_primary

    def test_a_seed_that_restarts_at_once_hears_of_its_past_and_does_not_found(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.restart("A")
        world.settle(limit=6)
        assert not any(entry.view.is_primary and entry.names == "A" for entry in world["A"].entries)


class TestJoinsAndLeaves:
    def test_joins_that_wait_go_into_one_view(self) -> None:
        world = World("A")
        world.gather(*"AB")
        world.start(*"CDEF")
        world.settle()
        assert world["A"].history[-2:] == ["AB", "ABCDEF"]

    def test_leaves_that_wait_go_into_one_view(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        world.leave(*"CDE")
        world.settle("AB")
        assert world["A"].history[-2:] == ["ABCDE", "AB"]
        assert world["A"].view.is_primary
        assert all(world[name].saw(Left) for name in "CDE")

    def test_leaves_during_a_change_go_into_it(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        world.once(CutTo, lambda _: world.leave("D", "E"))
        world.leave("C")
        world.settle("AB")
        assert world["A"].history[-2:] == ["ABCDE", "AB"]

    def test_joins_and_leaves_at_once_are_done_in_moments(self) -> None:
        world = World("A")
        world.gather(*"ABCD")
        world.start(*"EF")
        world.leave(*"CD")
        took = world.settle("ABEF", limit=2)
        assert took < 0.5
        assert world["A"].history[-1] == "ABEF"
        assert len(world["A"].history) <= len("ABCD") + 1 + 2

    def test_a_leave_during_a_merge_is_not_lost_and_neither_is_the_join(self) -> None:
        world = World("A")
        world.gather(*"ABCD")
        world.once(MergeRequest, lambda _: world.leave("C", "D"))
        world.start(*"EF")
        world.settle("ABEF", limit=3)
        assert world["A"].history[-1] == "ABEF"

    def test_the_first_view_of_a_joiner_has_the_whole_group(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.start("D")
        world.settle()
        assert world["D"].history == ["D", "ABCD"]

    def test_all_members_leave_at_once(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.leave(*"ABC")
        world.run(3)
        assert world.living == []
        assert all(process.saw(Left) for process in world.processes)

    def test_the_last_member_leaves(self) -> None:
        world = World("A")
        world.gather("A")
        world.leave("A")
        world.run(1)
        assert world["A"].saw(Left)

    def test_one_who_left_comes_back_under_a_new_incarnation(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.leave("C")
        world.settle("AB")
        world.start("C")
        world.settle()
        assert world["A"].history[-3:] == ["ABC", "AB", "ABC"]
        assert world["C"].history == ["C", "ABC"]

    def test_a_member_leaves_while_it_is_cut_off_from_the_coordinator(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.cut_off("C", "A")
        world.leave("C")
        world.run(10)
        assert world.is_one_view("AB")
        assert world["C"].saw(Left)

    def test_coordinator_leaves_gracefully(self) -> None:
        """No gap in service, and nobody is doubted."""
        world = World("A")
        world.gather(*"ABCD")
        world.keep_sending(*"BCD", every_ms=5)
        world.run(0.5)
        doubts, since = world.watch(AreYouAlive, Suspicion), world.now
        world.leave("A")
        took = world.settle("BCD", limit=1)
        assert took < 0.05
        world.run(2)
        assert doubts == []
        assert world["B"].view.is_primary
        assert slowest_gap_ms(world, "D", "B", since) < 30
        assert world["A"].saw(Left)
        assert world["B"].history[-2:] == ["ABCD", "BCD"]

    def test_the_majority_shrinks_step_by_step_to_one_member(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        for leaver, rest in (("C", "ABDE"), ("A", "BDE"), ("E", "BD"), ("B", "D")):
            world.leave(leaver)
            world.settle(rest, limit=1)
            assert world[rest[0]].view.is_primary, rest
        world.start("F", config=replace(world.config, membership=world.membership.with_seeds(world.endpoint("D"))))
        world.settle("DF")
        assert world["D"].view.is_primary


class TestLostFrames:
    @pytest.mark.parametrize("times", [1, 5, 10_000])
    def test_the_view_message_is_lost_at_one_member(self, times: int) -> None:
        """It gets the view from those who have it."""
        world = World("A")
        world.gather(*"ABCD")
        world.drop_next(Commit, "A", "C", times)
        world.leave("D")
        world.settle("ABC", limit=6)
        assert world["C"].history[-2:] == ["ABCD", "ABC"]

    def test_the_view_message_never_reaches_one_member_and_it_is_merged_back(self) -> None:
        world = World("A")
        world.gather(*"ABCD")
        world.drop_next(Commit, "*", "C", 10_000)
        world.leave("D")
        world.run(8)
        world.heal()
        world.settle("ABC", limit=8)
        assert world["C"].view.is_primary

    @pytest.mark.parametrize(
        "kind", [Prepare, Prepared, CutTo, Ready, Commit, Installed, MergeCommit, MergeReady, MergeRequest, MergeView]
    )
    @pytest.mark.parametrize("times", [1, 3])
    def test_a_frame_of_a_change_is_lost_on_every_link(self, kind: type[Frame], times: int) -> None:
        """Once or more, for a join and for a leave: what is not answered is sent again, and nobody is expelled."""
        world = World("A")
        world.gather(*"ABC")
        for source in "ABCD":
            for to in "ABCD":
                world.drop_next(kind, source, to, times)
        world.start("D")
        world.settle("ABCD", limit=3)
        for source in "ABCD":
            for to in "ABCD":
                world.drop_next(kind, source, to, times)
        world.leave("B")
        world.settle("ACD", limit=3)
        assert world["A"].history[-3:] == ["ABC", "ABCD", "ACD"]

    def test_two_views_race(self) -> None:
        """Every frame of every change comes again later; no stale view is installed after a newer one."""
        world = World("A")
        kinds = (Prepare, Prepared, CutTo, Ready, Commit, Installed, MergeRequest, MergeView, MergeReady, MergeCommit)

        def again(flight: Flight) -> None:
            if isinstance(flight.frame, kinds):
                for delay_ns in (40 * MILLISECOND, 700 * MILLISECOND, 3 * SECOND):
                    world.arrive_later(flight.to, flight.data, delay_ns)

        world.on_frame(again)
        world.gather(*"ABC")
        world.start("D", "E")
        world.settle()
        world.leave("B")
        world.settle("ACDE")
        world.crash("D")
        world.settle("ACE")
        before = world["A"].history
        world.run(5)
        assert world["A"].history == before
        assert world.is_one_view("ACE")

    def test_two_coordinators_change_one_view_at_once(self) -> None:
        """B cannot hear A and takes over, while A, which hears everybody, lets D go."""
        world = World("A")
        world.gather(*"ABCD")
        world.cut("A", "B")
        world.once(Prepare, lambda _: world.leave("D"), source="B")
        world.run(8)
        world.heal()
        world.settle("ABC", limit=8)
        assert world["C"].view.is_primary


class TestCrashes:
    @pytest.mark.parametrize("nth", [1, 2, 3])
    @pytest.mark.parametrize("kind", [Prepare, CutTo, Commit])
    def test_the_coordinator_crashes_while_it_installs_a_view(self, kind: type[Frame], nth: int) -> None:
        """Before its nth frame of a kind: the next one finishes, and all survivors install the same views."""
        world = World("AB")
        world.gather(*"ABCD")
        world.keep_sending(*"BCD", every_ms=20)
        common = world["A"].view
        crash_at(world, "A", kind, nth)
        world.start("E")
        world.run_until(lambda: not world["A"].is_alive, 2)
        world.settle("BCDE", limit=8)
        assert views_since(world, "B", common) == views_since(world, "C", common) == views_since(world, "D", common)
        assert world["B"].view.is_primary

    @pytest.mark.parametrize("nth", [1, 2])
    @pytest.mark.parametrize("kind", [Prepare, CutTo, Commit])
    def test_the_coordinator_crashes_while_it_lets_a_member_go(self, kind: type[Frame], nth: int) -> None:
        world = World("A")
        world.gather(*"ABCD")
        world.keep_sending(*"BC", every_ms=20)
        common = world["A"].view
        crash_at(world, "A", kind, nth)
        world.leave("D")
        world.settle("BC", limit=5)
        assert views_since(world, "B", common) == views_since(world, "C", common)
        assert world["B"].view.is_primary
        assert world["D"].saw(Left)

    def test_the_next_coordinator_adopts_the_view_that_one_survivor_has_installed(self) -> None:
        """C got the COMMIT, B did not and takes over: a COMMIT that anybody has seen stands."""
        world = World("A")
        world.gather(*"ABCD")
        common = world["A"].view
        world.drop_next(Commit, "*", "B", 10_000)
        world.once(Installed, lambda _: world.crash("A"), source="C")
        world.leave("D")
        world.run_until(lambda: world["B"].members == "BC", 6)
        world.settle("BC", limit=3)
        assert views_since(world, "B", common) == views_since(world, "C", common)
        assert "ABC" in world["B"].history[-2:]

    def test_two_coordinators_crash_one_after_the_other_in_the_same_change(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        world.once(CutTo, lambda _: world.crash("A"), source="A")
        world.once(CutTo, lambda _: world.crash("B"), source="B")
        world.leave("E")
        world.settle("CD", limit=8)
        assert world["C"].view == world["D"].view

    def test_a_member_crashes_and_is_gone_in_time(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.crash("C")
        assert world.settle(limit=NOTICED_S) >= 1.0
        assert world["A"].history[-1] == "AB"

    def test_a_member_crashes_while_a_joiner_comes_in(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.once(MergeView, lambda _: world.crash("C"))
        world.start("D")
        world.settle("ABD", limit=5)
        assert world["A"].view.is_primary

    def test_the_joiner_crashes_while_it_comes_in(self) -> None:
        for kind in (Hello, MergeReady, Installed):
            world = World("A")
            world.gather(*"ABC")
            world.once(kind, lambda _, world=world: world.crash("D"), source="D")  # type: ignore[misc]
            world.start("D")
            world.run(4)
            assert world.is_one_view("ABC"), kind
            assert world["A"].view.is_primary

    @pytest.mark.parametrize("who", ["A", "C"])
    def test_a_process_restarts_at_the_same_address_before_it_was_suspected(self, who: str) -> None:
        """It is a new incarnation; the old one is removed, and no view has both."""
        world = World("A")
        world.gather(*"ABC")
        world.restart(who, replace(world.config, membership=replace(world.membership, may_bootstrap=False)))
        took = world.settle(limit=5)
        old, new = lives_of(world, who)
        survivor = world["B"]
        for view in (entry.view for entry in survivor.entries):
            assert not {old, new} <= {member.incarnation for member in view.members}
        assert {member.incarnation for member in survivor.view.members} >= {new}
        assert survivor.view.is_primary
        assert took < (NOTICED_S if who == "A" else 0.5), "its own HELLO tells of the restart"

    def test_a_process_restarts_again_and_again(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        for _ in range(5):
            world.restart("C")
            world.run(0.15)
        world.settle(limit=5)
        assert world["C"].address in world["A"].view
        assert world["A"].view.is_primary


class TestSuspicion:
    def test_a_member_whose_heartbeats_are_lost_but_who_answers_stays(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.drop_next(Heartbeat, "C", "*", 1_000)
        world.run(10)
        assert world["A"].history[-1] == "ABC"
        assert world["A"].saw(Suspected) == []

    def test_one_who_was_let_go_hears_so_from_those_who_did_it(self) -> None:
        """C was mute for a while, never doubted anybody, and would otherwise stay in the old view until a probe."""
        world = World("A")
        world.gather(*"ABC")
        world.cut("C", "A")
        world.cut("C", "B")
        world.run_until(lambda: world["A"].history[-1] == "AB", NOTICED_S)
        world.mend("C", "B")  # who is not the coordinator, and never heard a greeting of C
        world.run_until(lambda: world["C"].history[-1] == "C", 1.5)
        world.heal()
        world.settle("ABC", limit=8)

    def test_false_suspicion_then_traffic(self) -> None:
        """B does not hear C for a while; the coordinator does. C stays a member, and the view stays."""
        world = World("A")
        world.gather(*"ABC")
        world.cut("C", "B")
        world.run_until(lambda: bool(world["B"].saw(Suspected)), 3)
        world.mend("C", "B")
        world.multicast("C", "here")
        world.run_until(lambda: bool(world["B"].saw(Trusted)), 1)
        world.run(5)
        assert world["A"].history == ["A", "A", "AB", "ABC"]
        assert world["B"].got("C") == ["here"]

    def test_false_suspicion_by_the_coordinator_then_traffic_calls_the_change_off(self) -> None:
        world = World("A")
        world.gather(*"ABCD")
        world.cut("C", "A")

        def mend(_: Flight) -> None:
            world.mend("C", "A")
            world.multicast("C", "here")

        world.once(Prepare, mend, source="A")
        world.run(6)
        assert world["A"].saw(Suspected)
        assert world["A"].saw(Trusted)
        assert [names_of(entry.view) for entry in world["C"].entries] == ["C", "ABC", "ABCD"]
        assert world.is_one_view()
        for name in "ABD":
            assert world[name].got("C") == ["here"]

    @pytest.mark.parametrize("who", ["A", "B", "D"])
    def test_a_member_that_can_send_but_not_receive(self, who: str) -> None:
        world = World("AB")
        world.start(*"ABCD")
        world.settle()
        world.run_until(lambda: world["A"].view.is_primary, 3)
        rest = "ABCD".replace(who, "")
        for other in rest:
            world.cut(other, who)
        world.run_until(lambda: world.is_one_view(rest), 8)
        world.run(5)
        assert world.is_one_view(rest)
        world.heal()
        world.settle("ABCD", limit=5)
        assert world["C"].view.is_primary

    @pytest.mark.parametrize("who", ["A", "B", "D"])
    def test_a_member_that_can_receive_but_not_send(self, who: str) -> None:
        world = World("AB")
        world.start(*"ABCD")
        world.settle()
        world.run_until(lambda: world["A"].view.is_primary, 3)
        rest = "ABCD".replace(who, "")
        for other in rest:
            world.cut(who, other)
        world.run_until(lambda: world.is_one_view(rest), 8)
        world.run(5)
        assert world.is_one_view(rest)
        world.heal()
        world.settle("ABCD", limit=5)
        assert world["C"].view.is_primary

    @pytest.mark.parametrize(("one", "other"), [("A", "B"), ("B", "A"), ("B", "C"), ("C", "B"), ("D", "A"), ("A", "D")])
    def test_one_link_is_cut_one_way(self, one: str, other: str) -> None:
        """Of the two only one can stay; the others stay together, and all are one view when it is healed."""
        world = World("ABCD")
        world.start(*"ABCD")
        world.settle()
        world.run_until(lambda: world["A"].view.is_primary, 3)
        world.cut(one, other)
        world.run(15)
        third = [name for name in "ABCD" if name not in (one, other)]
        assert world[third[0]].view == world[third[1]].view
        changes = len(world[third[0]].entries)
        world.run(30)
        assert len(world[third[0]].entries) <= changes + 4, "views come and go for ever"
        world.heal()
        world.settle(limit=20)
        assert world["C"].view.is_primary

    def test_one_whom_most_others_cannot_hear_has_to_go_though_it_is_their_senior(self) -> None:
        world = World("ABCD")
        world.gather(*"ABCD")
        for other in "CD":
            world.cut("B", other)
        world.run_until(lambda: world.is_one_view("ACD"), 8)
        assert world["A"].history[-2:] == ["ABCD", "ACD"]

    def test_short_suspicions_far_apart_are_not_one_long_one(self) -> None:
        """B cannot hear C for a second, and some seconds later again. Each time is less than it takes to expel C."""
        world = World("A")
        world.gather(*"ABC")
        for _ in range(3):
            world.cut("C", "B")
            world.run_until(lambda: bool(world["B"].member.membership.suspects), 3)
            world.run(0.8)
            world.mend("C", "B")
            world.run(4)
        assert world["A"].history == ["A", "A", "AB", "ABC"]

    def test_a_paused_member_is_expelled_and_comes_back(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.pause("C")
        world.settle("AB", limit=NOTICED_S)
        world.resume("C")
        world.settle("ABC", limit=8)
        assert world["C"].view.is_primary

    def test_a_short_pause_expels_nobody(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.pause("C")
        world.run(1.2)
        world.resume("C")
        world.run(3)
        assert world["A"].history == ["A", "A", "AB", "ABC"]
        assert world["C"].history == ["C", "ABC"]

    def test_all_are_paused_and_go_on(self) -> None:
        """A machine that was suspended: nobody is suspected for what happened meanwhile."""
        world = World("A")
        world.gather(*"ABC")
        for name in "ABC":
            world.pause(name)
        world.run(60)
        for name in "ABC":
            world.resume(name)
        world.run(3)
        assert world["A"].history == ["A", "A", "AB", "ABC"]


class TestPresets:
    @pytest.mark.parametrize("preset", [MembershipConfig.local(), MembershipConfig.lan(), MembershipConfig.wan()])
    def test_every_preset_goes_through_a_start_a_crash_and_a_partition(self, preset: MembershipConfig) -> None:
        world = World("AB", membership=preset)
        world.start(*"ABCD")
        world.settle()
        world.run_until(lambda: world["A"].view.is_primary, 20)
        world.partition("ABC", "D")
        world.settle("ABC", limit=20)
        world.heal()
        world.settle(limit=20)
        world.crash("B")
        world.settle(limit=20)
        assert world["A"].view.is_primary

    def test_a_hello_answers_with_the_same_nonce_only(self) -> None:
        """An answer to nothing that we asked introduces nobody."""
        world = World("A")
        world.gather(*"AB")
        backs = world.watch(HelloBack)
        world.start("C")
        world.settle()
        world.crash("C")
        world.settle("AB")
        before = world["A"].history
        for flight in list(backs):
            world.arrive_later("A", flight.data)
        world.run(3)
        assert world["A"].history == before
