"""State transfer end to end: the log of a group reaches whoever comes in, whole, in order and once, whatever breaks."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from motet.protocol.core.effects import Frame
from motet.protocol.core.units import MILLISECOND
from motet.protocol.core.view import ViewId
from motet.protocol.membership import (
    MembershipConfig,
    ProvideState,
    StateFailed,
    StateReceived,
    StateRefused,
    TransferConfig,
)
from motet.protocol.wire.frames import MergeCommit, StateChunk, StateRequest
from tests.protocol.membership.world import Entered, Flight, Got, Process, Supplier, World, log_as_state


def world_with_state(seeds: str = "A", capacity: int = 256) -> World:
    """Chunks of 100 bytes and a window of 4, so that a state takes several rounds."""
    settings = replace(MembershipConfig.lan(), transfer=TransferConfig(wants_state=True, chunk_bytes=100, window=4))
    return World(seeds, membership=settings, capacity=capacity)


def in_splits(world: World, pause_ms: int) -> Supplier:
    """An application that takes its snapshot at once and hands it over in pieces, some time apart."""

    def supply(process: Process, view: ViewId) -> None:
        snapshot = "\n".join(process.log).encode()
        pieces = [snapshot[at : at + 250] for at in range(0, len(snapshot), 250)] or [b""]

        def hand_over(index: int) -> None:
            is_last = index == len(pieces) - 1
            process.do(lambda now: process.member.supply_state(view, pieces[index], is_last, now))
            if not is_last:
                world.scheduler.after(pause_ms * MILLISECOND, lambda: hand_over(index + 1))

        hand_over(0)

    return supply


def assert_equal_logs(world: World, names: str) -> None:
    """The same messages, none twice; and of each sender in the same order."""
    first = world[names[0]].log
    assert len(set(first)) == len(first)
    for name in names:
        log = world[name].log
        assert sorted(log) == sorted(first), name
        for sender in {text.split("-")[0] for text in first}:
            ours, theirs = ([text for text in one if text.startswith(sender)] for one in (log, first))
            assert ours == theirs, (name, sender)


def talk(world: World, names: str, messages: int) -> None:
    for _ in range(messages):
        for name in names:
            world.multicast(name, f"{name}-{len(world.sent(name))}-{'x' * 40}")
        world.run(0.002)
    world.run(0.6)


def drained(world: World) -> bool:
    return all(process.is_drained for process in world.living)


class TestAJoinerGetsTheState:
    def test_the_state_of_the_view_comes_before_all_that_was_sent_in_it(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 20)
        world.start("C")
        world.settle()
        assert_equal_logs(world, "ABC")
        assert world["C"].got() == []
        assert len(world["C"].saw(StateReceived)) > 4

    def test_only_the_coordinator_is_asked_and_once_per_view(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 5)
        before = len(world["A"].saw(ProvideState))
        world.start(*"CDE")
        world.settle()
        assert len(world["A"].saw(ProvideState)) == before + 1
        assert not world["B"].saw(ProvideState)
        assert_equal_logs(world, "ABCDE")

    def test_deliveries_are_held_back_until_the_state_is_complete_and_then_follow_it_in_order(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 20)
        world["A"].supply = in_splits(world, pause_ms=20)
        stop = world.keep_sending("A", "B", every_ms=3)
        world.start("C")
        world.settle()
        stop()
        world.run_until(lambda: drained(world), 2)
        story = world["C"].story
        entered = max(index for index, entry in enumerate(story) if isinstance(entry, Entered))
        complete = next(i for i, e in enumerate(story) if isinstance(e, StateReceived) and e.is_last)
        deliveries = [entry for entry in story[complete:] if isinstance(entry, Got)]
        assert entered < complete
        assert len(deliveries) == len(world["C"].got())
        assert len([entry for entry in deliveries if entry.at == deliveries[0].at]) > 20
        assert_equal_logs(world, "ABC")

    def test_the_state_is_empty(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        assert world["B"].saw(StateReceived)
        talk(world, "AB", 2)
        assert_equal_logs(world, "AB")

    def test_nobody_has_a_state_when_all_start(self) -> None:
        """The most senior one counts as having it."""
        world = world_with_state("AB")
        world.start(*"ABCD")
        world.settle()
        stop = world.keep_sending(*"ABCD", every_ms=5)
        world.run(2)
        stop()
        world.run_until(lambda: drained(world), 2)
        assert world["A"].view.is_primary
        assert_equal_logs(world, "ABCD")

    def test_messages_that_were_sent_before_the_join_are_in_the_state_and_those_after_are_delivered(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        stop = world.keep_sending("A", "B", every_ms=2)
        world.run(0.5)
        world.start("C")
        world.settle()
        world.run(0.3)
        stop()
        world.run_until(lambda: drained(world), 2)
        assert_equal_logs(world, "ABC")
        assert 0 < len(world["C"].got()) < len(world["C"].log)

    @pytest.mark.parametrize("kind", [StateRequest, StateChunk])
    def test_a_frame_of_the_transfer_is_lost(self, kind: type[Frame]) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 20)
        world.drop_next(kind, "*", "*", 3)
        world.start("C")
        world.settle()
        assert_equal_logs(world, "ABC")

    def test_half_of_all_chunks_are_lost(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 20)
        rng = Random(1)

        def lose_half(flight: Flight) -> None:
            if isinstance(flight.frame, StateChunk):
                world.drop_next(StateChunk, flight.source, flight.to, rng.randrange(2))

        world.on_frame(lose_half)
        world.start("C")
        world.settle()
        assert_equal_logs(world, "ABC")

    def test_the_buffer_of_the_joiner_is_full_so_senders_wait_and_nothing_is_lost(self) -> None:
        world = world_with_state(capacity=4)
        world.gather(*"AB")
        talk(world, "AB", 20)
        world["A"].supply = in_splits(world, pause_ms=100)
        stop = world.keep_sending("A", "B", every_ms=3)
        world.start("C", config=replace(world.config, state_buffer_bytes=100))
        world.settle()
        stop()
        world.run_until(lambda: drained(world), 3)
        assert_equal_logs(world, "ABC")

    def test_the_joiner_is_slow_as_well(self) -> None:
        world = world_with_state(capacity=4)
        world.gather(*"AB")
        talk(world, "AB", 10)
        stop = world.keep_sending("A", "B", every_ms=3)
        world.start("C")
        world.pause_deliveries("C")
        world.settle()
        world.run(0.5)
        world.resume_deliveries("C")
        stop()
        world.run_until(lambda: drained(world), 3)
        assert_equal_logs(world, "ABC")


class TestFaultsDuringATransfer:
    def test_the_provider_dies_in_the_middle_and_another_one_provides(self) -> None:
        """The state is that of the new view: nothing twice, nothing missing."""
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 30)
        world["A"].supply = in_splits(world, pause_ms=100)
        stop = world.keep_sending("B", every_ms=3)
        world.start("C")
        world.run_until(lambda: len(world["C"].saw(StateReceived)) >= 3, 3)
        world.crash("A")
        world.settle("BC", limit=5)
        stop()
        world.run_until(lambda: drained(world), 2)
        firsts = [e for e in world["C"].saw(StateReceived) if isinstance(e, StateReceived) and e.is_first]
        assert len(firsts) == 2
        assert firsts[1].view == world["B"].view.id
        assert world["B"].saw(ProvideState)
        assert_equal_logs(world, "BC")

    def test_the_provider_leaves_in_the_middle_and_another_one_provides(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 30)
        world["A"].supply = in_splits(world, pause_ms=50)
        stop = world.keep_sending("B", every_ms=3)
        world.start("C")
        world.run_until(lambda: len(world["C"].saw(StateReceived)) >= 3, 3)
        world.leave("A")
        world.settle("BC", limit=2)
        stop()
        world.run_until(lambda: drained(world), 2)
        assert_equal_logs(world, "BC")

    def test_the_provider_dies_before_the_first_chunk(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 10)
        world.once(StateChunk, lambda _: world.crash("A"))
        world.start("C")
        world.run_until(lambda: not world["A"].is_alive, 3)
        world.settle("BC", limit=5)
        assert_equal_logs(world, "BC")

    def test_another_joiner_comes_in_the_middle(self) -> None:
        """The transfer begins anew in the new view, for both."""
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 30)
        world["A"].supply = in_splits(world, pause_ms=60)
        stop = world.keep_sending("A", "B", every_ms=3)
        world.start("C")
        world.run_until(lambda: len(world["C"].saw(StateReceived)) >= 3, 3)
        world.start("D")
        world.settle("ABCD", limit=5)
        stop()
        world.run_until(lambda: drained(world), 2)
        assert_equal_logs(world, "ABCD")

    def test_a_joiner_dies_in_the_middle(self) -> None:
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 30)
        world["A"].supply = in_splits(world, pause_ms=60)
        world.start(*"CD")
        world.run_until(lambda: len(world["C"].saw(StateReceived)) >= 3, 3)
        world.crash("D")
        world.settle("ABC", limit=5)
        assert_equal_logs(world, "ABC")

    def test_a_joiner_is_never_asked_for_a_state_that_it_does_not_have(self) -> None:
        """A and B both die while C, which lacks the state, and D, which has it, go on."""
        world = world_with_state()
        world.gather(*"ABD")
        talk(world, "ABD", 20)
        world["A"].supply = in_splits(world, pause_ms=100)
        world.start("C")
        world.run_until(lambda: len(world["C"].saw(StateReceived)) >= 3, 3)
        world.crash("A", "B")
        world.settle("CD", limit=6)
        assert not world["C"].saw(ProvideState)
        assert_equal_logs(world, "CD")

    def test_nobody_who_has_the_state_is_left(self) -> None:
        """The application is told to start from an empty one, and what living senders had sent is not lost."""
        world = world_with_state()
        world.gather("A")
        talk(world, "A", 30)
        world["A"].supply = in_splits(world, pause_ms=100)
        world.start(*"BC")
        world.run_until(lambda: len(world["C"].saw(StateReceived)) >= 3, 3)
        for name in "BC":
            world.multicast(name, f"{name}-alive")
        world.run(0.05)
        world.crash("A")
        world.settle("BC", limit=6)
        assert world["B"].saw(StateFailed)
        for name in "BC":
            assert {"B-alive", "C-alive"} <= set(world[name].log)
        assert_equal_logs(world, "BC")

    def test_the_provider_refuses(self) -> None:
        """Both applications are told, and the next holder gives the state."""
        world = world_with_state()
        world.gather(*"AB")
        talk(world, "AB", 5)

        def refuse(process: Process, view: ViewId) -> None:
            process.do(lambda now: process.member.refuse_state(view, "not today", now))

        world["A"].supply = refuse
        world.start("C")
        world.run(2)
        refused = [told.by.name for told in world["C"].saw(StateRefused) if isinstance(told, StateRefused)]
        assert refused == ["A"], "B gave it"
        assert not world["C"].saw(StateFailed)
        assert world["A"].saw(StateRefused)
        assert_equal_logs(world, "ABC")
        world["A"].supply = log_as_state
        talk(world, "B", 5)
        world.start("D")
        world.settle("ABCD", limit=5)
        assert_equal_logs(world, "ABCD")

    def test_a_restarted_process_gets_all_of_the_state_again(self) -> None:
        world = world_with_state()
        world.gather(*"ABC")
        talk(world, "ABC", 10)
        world.restart("C")
        world.settle("ABC", limit=5)
        assert_equal_logs(world, "ABC")


class TestStateOverAMerge:
    def test_the_minority_takes_the_state_of_the_majority(self) -> None:
        """Both sides send; after the merge all logs are equal, and are those of the primary side."""
        world = world_with_state()
        world.gather(*"ABCDE")
        talk(world, "ABCDE", 3)
        world.split("ABC", "DE")
        assert (world["A"].view.is_primary, world["D"].view.is_primary) == (True, False)
        stop = world.keep_sending(*"ABCDE", every_ms=10)
        world.run(0.5)
        grown = set(world["A"].log)
        world.heal()
        world.settle(limit=6)
        stop()
        world.run_until(lambda: drained(world), 2)
        assert_equal_logs(world, "ABCDE")
        assert grown <= set(world["D"].log)

    def test_the_provider_dies_while_the_merge_is_committed(self) -> None:
        world = world_with_state()
        world.gather(*"ABCDE")
        talk(world, "ABCDE", 5)
        world.split("ABC", "DE")
        talk(world, "ABC", 5)
        world.heal()
        world.once(MergeCommit, lambda _: world.crash("A"))
        world.run_until(lambda: not world["A"].is_alive, 4)
        world.settle("BCDE", limit=10)
        assert_equal_logs(world, "BCDE")

    def test_a_member_that_was_cut_off_alone_and_came_back_has_it_all(self) -> None:
        world = world_with_state()
        world.gather(*"ABC")
        talk(world, "ABC", 5)
        world.pause("C")
        world.settle("AB", limit=3)
        world.multicast("A", "A-while C slept")
        world.resume("C")
        world.settle("ABC", limit=8)
        assert_equal_logs(world, "ABC")
