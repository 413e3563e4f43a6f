"""Scenarios that break merges, and the sentences of the seed `merge.txt`, with real members in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.membership import DigestsOverlapped, FlushTimedOut, MergeUnanswered
from motet.protocol.window.digest import DigestEntry
from motet.protocol.wire.frames import (
    Commit,
    Hello,
    HelloBack,
    Installed,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeRequest,
    MergeResponse,
    MergeView,
    MulticastData,
    Prepare,
    Prepared,
)
from tests.protocol.membership.world import Flight, World, names_of

MERGED_S = 5  # a partition heals: noticed by the next probe, gathered, merged


def parted(*sides: str) -> World:
    """A group that fell into these views, and can hear one another again from now on."""
    world = World(sides[0][0])
    world.gather(*"".join(sides))
    world.split(*sides)
    world.heal()
    return world


def entry_of(quads: tuple[tuple[int, int, int, int], ...], member: Address) -> tuple[int, int, int] | None:
    return next((quad[1:] for quad in quads if quad[0] == member.incarnation), None)


class TestViewsThatDisagree:
    def test_overlapping_views(self) -> None:
        """A sees {A,B}, B sees {A,B}, C sees {A,B,C}: one view, and traffic flows."""
        world = World("A")
        world.gather(*"ABC")
        world.pause("C")
        world.settle("AB", limit=3)
        world.resume("C")
        assert (world["A"].members, world["B"].members, world["C"].members) == ("AB", "AB", "ABC")
        world.settle("ABC", limit=8)
        for name in "ABC":
            world.multicast(name, f"of {name}")
        world.run(0.1)
        for name in "ABC":
            assert sorted(world[name].got()) == ["of A", "of B", "of C"]

    def test_asymmetric_views(self) -> None:
        """A sees {B,A,C}; B and C see {B,C}."""
        world = World("B")
        world.gather(*"BAC")
        world.pause("A")
        world.settle("BC", limit=3)
        world.resume("A")
        assert (world["A"].members, world["B"].members, world["C"].members) == ("BAC", "BC", "BC")
        world.settle("ABC", limit=8)
        assert world["A"].members == "BCA"
        assert world["A"].view.is_primary

    def test_the_old_coordinator_still_believes_in_its_view(self) -> None:
        """A sees {A,B,C}; B and C see {B,C}."""
        world = World("A")
        world.gather(*"ABC")
        world.pause("A")
        world.settle("BC", limit=3)
        world.resume("A")
        world.settle("ABC", limit=8)
        assert world["A"].members == "BCA"

    def test_everybody_believes_in_a_view_of_its_own(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        world.split(*"ABCDE")
        world.heal()
        world.settle(limit=MERGED_S)
        world.run(3)
        assert world.is_one_view()


class TestFaultsDuringAMerge:
    @pytest.mark.parametrize("kind", [MergeResponse, MergeView, MergeReady, MergeCommit])
    def test_the_merge_leader_dies(self, kind: type[Frame]) -> None:
        """After MERGE_REQ or later: the merge is cancelled, joins go on, a later merge succeeds."""
        world = parted("ABE", "CD")
        world.once(kind, lambda _: world.crash("A"))
        world.run_until(lambda: not world["A"].is_alive, 3)
        world.start("F", config=replace(world.config, membership=world.membership.with_seeds(world.endpoint("C"))))
        world.settle("BCDEF", limit=10)
        assert world["B"].view == world["F"].view
        assert world["B"].view.is_primary

    @pytest.mark.parametrize("kind", [MergeResponse, MergeReady])
    def test_the_merge_leader_dies_and_the_part_that_it_asked_stays_together(self, kind: type[Frame]) -> None:
        """Its members wait for the leader for a while, and nobody of them is blamed. Before READY they resume.

        After READY another part may have installed the merged view: they end theirs in a view of their own.
        """
        world = parted("AB", "CD")
        world.once(kind, lambda _: world.crash("A", "B"), source="C")
        world.run_until(lambda: not world["A"].is_alive, 3)
        before = len(world["C"].entries)
        world.multicast("C", "after")
        world.run(3)
        assert world["D"].got("C") == ["after"]
        assert len(world["C"].entries) == before + (kind is MergeReady)
        assert world["C"].view == world["D"].view
        assert len(world["C"].view.members) == 2
        assert not world["C"].saw(FlushTimedOut)
        assert not world["D"].saw(FlushTimedOut)

    @pytest.mark.parametrize("kind", [MergeResponse, MergeReady, Installed])
    def test_a_merged_coordinator_dies(self, kind: type[Frame]) -> None:
        world = parted("AB", "CD")
        world.once(kind, lambda _: world.crash("C"), source="C", to="A")
        world.settle("ABD", limit=10)
        assert world["A"].view.is_primary

    def test_two_merges_at_once_that_want_the_same_part(self) -> None:
        """A and C both see B and not each other; B refuses one of them, and says so."""
        world = World("AB")
        world.gather(*"ABCD")
        world.split("A", "B", "CD")
        refusals = world.watch(MergeRefusal)
        requests = world.watch(MergeRequest)
        world.heal()
        world.partition("A", "CD")
        world.run_until(lambda: len({flight.source for flight in requests}) > 1, 10)
        world.run(1)
        world.heal()
        world.settle(limit=10)
        assert {flight.to for flight in requests} >= {"B"}
        assert all(flight.frame.reason for flight in refusals if isinstance(flight.frame, MergeRefusal))
        assert world["A"].view.is_primary

    def test_two_leaders_ask_each_other(self) -> None:
        """Each believes that the other is the lesser part; no deadlock."""
        world = parted("AB", "CD")

        def lesser(frame: Frame) -> Frame:
            assert isinstance(frame, Hello | HelloBack)
            return replace(frame, view=replace(frame.view, is_primary=False, size=1))

        world.rewrite_next(HelloBack, "A", "C", lesser, 1_000)
        requests = world.watch(MergeRequest)
        world.settle(limit=MERGED_S)
        assert {("A", "C"), ("C", "A")} <= {(flight.source, flight.to) for flight in requests}
        assert world["A"].view.is_primary

    def test_two_merges_of_two_pairs_that_meet(self) -> None:
        world = World("A")
        world.gather(*"ABCD")
        world.split(*"ABCD")
        world.once(MergeRequest, lambda _: world.heal())
        world.partition("AB", "CD")
        world.settle(limit=MERGED_S)
        assert world["A"].view.is_primary

    def test_a_member_is_silent_during_a_merge(self) -> None:
        """The attempt is cancelled and the member suspected; the rest merges; it is merged when it is back."""
        world = parted("AB", "CD")
        world.once(MergeRequest, lambda _: world.pause("D"))
        world.run_until(lambda: world.is_one_view("ABC"), 6)
        assert world["C"].saw(FlushTimedOut)
        assert world["A"].count(Count.MERGE_CANCELLED) >= 1
        world.resume("D")
        world.settle("ABCD", limit=8)
        assert world["D"].view.is_primary

    def test_a_coordinator_is_silent_so_the_leader_cancels_the_merge(self) -> None:
        """Seed: "If it doesn't receive them within N ms, it cancels the merge." """
        world = parted("AB", "CD")
        cancels = world.watch(MergeCancel)
        world.once(MergeRequest, lambda _: world.pause("C"))
        world.run_until(lambda: world["A"].count(Count.MERGE_CANCELLED) == 1, 4)
        assert [flight.to for flight in cancels] == ["C"]
        assert world["A"].count(Count.MERGE_UNANSWERED) == 1
        assert world["A"].saw(MergeUnanswered) == [MergeUnanswered((world["C"].address,))]
        world.multicast("B", "thawed")
        world.run(0.1)
        assert world["A"].got("B") == ["thawed"]
        assert world["A"].members == "AB"
        world.resume("C")
        world.settle("ABCD", limit=8)

    def test_a_leader_that_is_refused_knows_it_at_once(self) -> None:
        """C is removing D when A asks it to merge; A receives that answer within round trips, not at its timeout."""
        world = parted("AB", "CD")
        requests = world.watch(MergeRequest)
        world.once(MergeRequest, lambda _: world.leave("D"), source="A", to="C")
        world.run_until(lambda: bool(requests), 5)
        world.run_until(lambda: world["A"].count(Count.MERGE_CANCELLED) == 1, 0.1)
        assert world["A"].count(Count.MERGE_REFUSED) == 1
        assert world["A"].count(Count.MERGE_UNANSWERED) == 0
        world.settle("ABC", limit=5)

    def test_a_digest_of_a_member_is_missing_so_the_leader_cancels_the_merge(self) -> None:
        """Seed: "it makes sure it has digests for 6 nodes A, B, C, D, E and F. If not, it cancels the merge." """
        world = parted("AB", "CD")

        def without_d(frame: Frame) -> Frame:
            assert isinstance(frame, MergeResponse)
            missing = world["D"].address.incarnation
            digest = tuple(quad for quad in frame.report.digest if quad[0] != missing)
            return replace(frame, report=replace(frame.report, digest=digest))

        world.rewrite_next(MergeResponse, "C", "A", without_d)
        world.settle(limit=MERGED_S)
        assert world["A"].count(Count.MERGE_CANCELLED) == 1
        assert world["A"].view.is_primary

    @pytest.mark.parametrize("kind", [MergeRequest, MergeResponse, MergeView, MergeReady, MergeCommit])
    def test_a_join_arrives_during_a_merge(self, kind: type[Frame]) -> None:
        """It is answered after it, and succeeds."""
        world = parted("AB", "CD")
        world.once(kind, lambda _: world.start("E"))
        world.run_until(lambda: any(process.name == "E" for process in world.processes), 3)
        took = world.settle("ABCDE", limit=MERGED_S)
        assert took < 2

    @pytest.mark.parametrize("who", ["B", "C", "D"])
    @pytest.mark.parametrize("kind", [MergeRequest, MergeResponse, MergeView, MergeReady, MergeCommit])
    def test_a_member_leaves_during_a_merge(self, kind: type[Frame], who: str) -> None:
        world = parted("AB", "CD")
        world.once(kind, lambda _: world.leave(who))
        rest = "ABCD".replace(who, "")
        world.run_until(lambda: not world[who].is_alive, 3)
        world.settle(rest, limit=MERGED_S)
        assert world["A"].view.is_primary

    @pytest.mark.parametrize("kind", [MergeRequest, MergeResponse, MergeView, MergeReady, MergeCommit])
    def test_the_merge_leader_leaves_during_a_merge(self, kind: type[Frame]) -> None:
        """What it leaves behind is primary: a graceful leaver shrinks what is counted."""
        world = parted("AB", "CD")
        world.once(kind, lambda _: world.leave("A"))
        world.run_until(lambda: not world["A"].is_alive, 5)
        world.settle("BCD", limit=MERGED_S)
        assert world["B"].view.is_primary

    @pytest.mark.parametrize(
        "kind", [MergeRequest, MergeResponse, MergeView, MergeReady, MergeCommit, Commit, Installed]
    )
    def test_a_partition_comes_in_the_middle_of_a_merge(self, kind: type[Frame]) -> None:
        """The halves go on, and merge when it heals."""
        world = parted("AB", "CD")
        world.once(kind, lambda _: world.partition("AB", "CD"))
        world.run(8)
        assert world.is_one_view("AB")
        assert world.is_one_view("CD")
        world.heal()
        world.settle(limit=8)
        assert world["A"].view.is_primary

    @pytest.mark.parametrize(
        "kind", [Hello, HelloBack, MergeRequest, MergeResponse, MergeView, MergeReady, MergeCommit, Prepare, Prepared]
    )
    def test_a_frame_of_the_merge_is_lost(self, kind: type[Frame]) -> None:
        world = parted("ABC", "DE")
        for source in "ABCDE":
            for to in "ABCDE":
                world.drop_next(kind, source, to, 2)
        world.settle(limit=8)
        assert world["A"].members == "ABCDE"

    def test_three_way_partition_heals_pairwise(self) -> None:
        world = parted("AB", "CD", "EF")
        world.partition("ABCD", "EF")
        world.settle("ABCD", limit=MERGED_S)
        world.heal()
        world.settle(limit=MERGED_S)
        assert world["A"].members == "ABCDEF"
        assert world["A"].view.is_primary

    def test_three_way_partition_heals_in_a_chain(self) -> None:
        """AB hears CD, CD hears EF, AB and EF do not hear each other: nobody can have all, and none is stuck."""
        world = World("A")
        world.gather(*"ABCDEF")
        world.split("AB", "CD", "EF")
        world.partition("AB", "EF")
        world.run(15)
        world.heal()
        world.settle(limit=10)
        assert world["A"].view.is_primary

    def test_a_partition_that_comes_and_goes(self) -> None:
        world = World("A")
        world.gather(*"ABCD")
        for _ in range(6):
            world.partition("AB", "CD")
            world.run(2.1)
            world.heal()
            world.run(0.4)
        world.settle(limit=8)
        assert world["A"].view.is_primary


class TestSubviews:
    def test_a_merge_tells_the_views_that_were_merged(self) -> None:
        world = parted("AB", "CD")
        left, right = world["A"].view, world["C"].view
        world.settle(limit=MERGED_S)
        for name in "ABCD":
            assert world[name].entries[-1].subviews == (left, right)

    def test_a_change_without_a_merge_tells_none(self) -> None:
        world = World("A")
        world.gather(*"ABC")
        world.leave("C")
        world.settle("AB")
        assert world["A"].entries[-1].subviews == ()

    def test_the_merged_view_is_ordered_by_seniority_of_the_primary_part(self) -> None:
        world = World("A")
        world.gather(*"ABCDE")
        world.split("AB", "CDE")
        world.heal()
        world.settle(limit=MERGED_S)
        assert world["A"].members == "CDEAB"


class TestSentencesOfTheSeed:
    def test_b_should_only_return_its_own_digest(self) -> None:
        """No hearsay: B misses what A sent last, and says so; D's part speaks of D, E and F only."""
        world = parted("ABC", "DEF")
        prepared, responses = world.watch(Prepared), world.watch(MergeResponse)
        world.multicast("A", "one")
        world.run(0.01)
        world.drop_next(MulticastData, "A", "B", 1_000)
        world.multicast("A", "two")
        world.run_until(lambda: bool(responses), 3)
        of_b = next(f.frame for f in prepared if f.source == "B" and f.to == "A")
        of_c = next(f.frame for f in prepared if f.source == "C" and f.to == "A")
        assert isinstance(of_b, Prepared)
        assert isinstance(of_c, Prepared)
        a = world["A"].address
        high = world["A"].member.multicast.sender.window.high
        assert (entry_of(of_b.report.digest, a) or (0, 0, 0))[2] == high - 1
        assert (entry_of(of_c.report.digest, a) or (0, 0, 0))[2] == high
        response = responses[0].frame
        assert isinstance(response, MergeResponse)
        assert {quad[0] for quad in response.report.digest} == {world[name].address.incarnation for name in "DEF"}
        assert names_of(response.view) == "DEF"
        world.heal()
        world.settle(limit=MERGED_S)
        assert world["B"].got("A") == ["one", "two"]

    def test_the_digest_of_the_merge_has_every_member_of_all_parts(self) -> None:
        world = parted("ABC", "DEF")
        views = world.watch(MergeView)
        for name in "ABCDEF":
            world.multicast(name, *(f"{name}{number}" for number in range(3)))
        world.settle(limit=MERGED_S)
        plan = views[0].frame
        assert isinstance(plan, MergeView)
        assert {member for member, _ in plan.digest} == {world[name].address.incarnation for name in "ABCDEF"}
        for name in "ABCDEF":
            seqno = dict(plan.digest)[world[name].address.incarnation]
            assert seqno == world[name].member.multicast.sender.window.high

    @pytest.mark.parametrize("theirs", [(2, 10, 10), (0, 0, 0)])
    def test_of_overlapping_entries_the_maximum_stands_and_both_are_reported(
        self, theirs: tuple[int, int, int]
    ) -> None:
        """Seed: "A: 7 20 (20)" and "A: 2 10 (10)" give "A: 7 20 (20)"."""
        world = parted("A", "B")
        world.multicast("A", *(f"a{number}" for number in range(3)))
        plans = world.watch(MergeView)
        high = world["A"].member.multicast.sender.window.high
        views = {name: world[name].view for name in "AB"}

        def overlapping(frame: Frame) -> Frame:
            assert isinstance(frame, MergeResponse)
            low, delivered, received = (min(number, high) for number in theirs)
            digest = (*frame.report.digest, (world["A"].address.incarnation, low, delivered, received))
            return replace(frame, report=replace(frame.report, digest=digest))

        leader, other = "AB"
        world.rewrite_next(MergeResponse, other, leader, overlapping)
        world.settle(limit=MERGED_S)
        assert world[leader].count(Count.DIGEST_OVERLAP) == 1
        (reported,) = world[leader].saw(DigestsOverlapped)
        assert isinstance(reported, DigestsOverlapped)
        assert (reported.member, reported.received) == (world["A"].address, high)
        entries = {one.view.id: one.entry for one in (reported.first, reported.second)}
        assert entries.keys() == {view.id for view in views.values()}
        assert entries[views["A"].id].received == high
        assert entries[views["B"].id] == DigestEntry(*(min(number, high) for number in theirs))
        assert not world[other].saw(DigestsOverlapped), "whoever leads the merge sees all digests, and reports it"
        plan = plans[0].frame
        assert isinstance(plan, MergeView)
        assert dict(plan.digest)[world["A"].address.incarnation] == high
        world.multicast("A", "after")
        world.multicast("B", "too")
        world.run(0.1)
        assert world["B"].got("A") == ["after"]
        assert world["A"].got("B") == ["too"]

    def test_our_own_digest_entry_is_never_overwritten_and_neither_is_one_that_is_behind_ours(self) -> None:
        """Seed: {A,B} and {C,D}; the digest says A:15, B:7; A is at 20 and B at 10. Nothing comes twice."""
        world = parted("AB", "CD")
        for number in range(1, 21):
            world.multicast("A", f"a{number}")
            if number <= 10:
                world.multicast("B", f"b{number}")
        world.run(0.05)
        a, b = world["A"].address, world["B"].address
        behind = {a.incarnation: 5, b.incarnation: 3}

        def stale(frame: Frame) -> Frame:
            assert isinstance(frame, Commit)
            digest = tuple((member, seqno - behind.get(member, 0)) for member, seqno in frame.decision.digest)
            return replace(frame, decision=replace(frame.decision, digest=digest))

        world.rewrite_next(Commit, "A", "B", stale, 10)
        world.settle(limit=MERGED_S)
        assert world["B"].member.multicast.receiver(a).window.delivered == 20  # type: ignore[union-attr]
        assert world["B"].member.multicast.sender.window.high == 10
        world.multicast("A", "a21")
        world.multicast("B", "b11")
        world.run(0.1)
        for name in "AB":
            assert world[name].got("A") == [f"a{number}" for number in range(1, 22)]
            assert world[name].got("B") == [f"b{number}" for number in range(1, 12)]
        for name in "CD":
            assert world[name].got("A") == ["a21"]
            assert world[name].got("B") == ["b11"]

    def test_the_window_of_one_who_went_on_without_us_is_reset(self) -> None:
        """Seed: "Else: reset P's NakReceiverWindow and overwrite it with the new seqno"."""
        world = World("A")
        world.gather(*"ABC")
        world.multicast("A", "one")
        world.run(0.1)
        world.split("AB", "C")
        for number in range(300):
            world.multicast("A", f"without C {number}")
            world.run(0.001)
        world.heal()
        world.settle(limit=MERGED_S)
        world.multicast("A", "two")
        world.run(0.1)
        assert world["C"].got("A") == ["one", "two"]
        assert world["A"].is_drained

    def test_messages_sent_while_a_merge_is_under_way_come_once(self) -> None:
        """Seed: "Before receiving the merge digest A and B multicast more messages"."""
        world = parted("AB", "CD")
        stop = world.keep_sending(*"ABCD", every_ms=2)
        world.settle(limit=MERGED_S)
        world.run(0.2)
        stop()
        world.run_until(lambda: all(process.is_drained for process in world.living), 2)
        for name, mate in (("A", "B"), ("C", "D")):
            assert world[mate].got(name) == world[name].got(name) == world.sent(name)
            assert world[name].got(mate) == world[mate].got(mate) == world.sent(mate)

    def test_each_coordinator_tells_its_own_part(self) -> None:
        """Seed: "unicasts the MERGE_VIEW to itself and D. Each coordinator then multicasts the new view"."""
        world = parted("ABC", "DEF")
        plans, commits = world.watch(MergeView), world.watch(Commit)
        flights: list[Flight] = world.watch(MergeRequest)
        world.settle(limit=MERGED_S)
        assert {(flight.source, flight.to) for flight in flights} == {("A", "D")}
        assert {(flight.source, flight.to) for flight in plans} == {("A", "D")}
        assert {(flight.source, flight.to) for flight in commits} == {("A", "B"), ("A", "C"), ("D", "E"), ("D", "F")}
