"""Processes that restart with their memory: they stand for what they were, and a whole group comes to life again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from motet.protocol.core.view import NO_VIEW
from motet.protocol.wire.frames import Commit, CutTo, Ready
from tests.protocol.membership.world import Flight, World, names_of


def running(seeds: str, names: str) -> World:
    """A group that all of these are in, and that is primary."""
    world = World(seeds)
    world.start(*names)
    world.settle()
    world.run_until(lambda: all(process.view.is_primary for process in world.living), 4)
    return world


def primary_views(world: World) -> list[str]:
    """All that anybody ever installed, by id."""
    views = {entry.view.id: entry.view for process in world.processes for entry in process.entries}
    return [names_of(views[view_id]) for view_id in sorted(views) if views[view_id].is_primary]


def test_a_whole_group_that_restarts_with_its_memory_is_primary_again() -> None:
    world = running("A", "ABC")
    world.crash(*"ABC")
    world.wake(*"ABC")
    world.settle(limit=4)
    assert world["A"].view.is_primary
    assert sorted(world["A"].members) == list("ABC")


def test_a_majority_that_restarts_with_its_memory_is_enough() -> None:
    world = running("ABC", "ABCDE")
    world.crash(*"ABCDE")
    world.wake(*"CDE")
    world.settle(limit=6)
    assert world["C"].view.is_primary


def test_a_minority_that_restarts_with_its_memory_waits_for_more() -> None:
    world = running("ABC", "ABCDE")
    world.crash(*"ABCDE")
    world.wake(*"CD")
    world.run(10)
    assert not any(process.view.is_primary for process in world.living)
    world.wake("E")
    world.settle(limit=4)
    assert world["C"].view.is_primary


def test_those_without_memory_do_not_count() -> None:
    world = running("ABC", "ABC")
    world.crash(*"ABC")
    world.wake("C")
    stranger = replace(world.config, membership=replace(world.membership, may_bootstrap=False))
    world.start("A", "B", config=stranger)
    world.settle(limit=6)
    world.run(5)
    assert not world["C"].view.is_primary


def test_one_that_was_alone_goes_on_alone() -> None:
    world = running("A", "A")
    world.crash("A")
    world.wake("A")
    world.run(0.1)
    assert world["A"].view.is_primary
    assert world["A"].member.membership.epoch == world["A"].view.id


@pytest.mark.parametrize(("who", "is_enough"), [("A", True), ("B", False)])
def test_of_two_the_senior_goes_on_alone_and_the_junior_waits(who: str, is_enough: bool) -> None:
    world = running("AB", "AB")
    senior = {name: world["A"].view.members.index(world[name].address) == 0 for name in "AB"}
    assert senior[who] is is_enough
    world.crash(*"AB")
    world.wake(who)
    world.run(10)
    assert world[who].view.is_primary is is_enough


def test_the_past_is_handed_on_from_life_to_life() -> None:
    world = running("A", "ABC")
    for _ in range(7):
        world.crash(*"ABC")
        world.wake(*"BC")
        world.run(0.02)  # too short for anything
        world.crash(*"BC")
        world.wake(*"ABC")
    world.settle(limit=4)
    assert world["A"].view.is_primary
    assert len(world["B"].member.membership.chain) == 14


def test_a_rolling_restart_with_memory_never_loses_the_primary_view() -> None:
    world = running("ABC", "ABC")
    for name in "ABCABC":
        world.crash(name)
        world.run(0.3)
        world.wake(name)
        world.settle(limit=5)
        assert world["A"].view.is_primary


def test_most_of_a_group_restarts_while_the_rest_lives() -> None:
    """B to E are gone at once: A is alone, without a majority; those who come back with their memory count again."""
    world = running("ABC", "ABCDE")
    world.crash(*"BCDE")
    world.run(4)
    assert not world["A"].view.is_primary
    world.wake(*"BC")
    world.settle(limit=6)
    assert world["A"].view.is_primary


def test_of_two_halves_that_restart_apart_only_one_is_primary() -> None:
    world = running("ABCDE", "ABCDE")
    world.crash(*"ABCDE")
    world.partition("AB", "CDE")
    world.wake(*"ABCDE")
    world.run(10)
    assert not world["A"].view.is_primary
    assert world["C"].view.is_primary
    world.heal()
    world.settle(limit=6)
    assert world["A"].view.is_primary


def test_one_who_missed_what_followed_does_not_bring_back_the_old_view() -> None:
    """A and B went on without C, and then A alone; C comes back with what it remembers of the three."""
    world = running("ABC", "ABC")
    world.crash("C")
    world.settle(limit=4)
    world.crash(*"AB")
    world.wake(*"BC")
    world.run(8)
    assert not any(process.view.is_primary for process in world.living)  # B is half of {A, B}, and not the senior
    world.wake("A")
    world.settle(limit=5)
    assert world["C"].view.is_primary


def test_those_who_left_one_by_one_wait_for_the_last() -> None:
    world = running("ABC", "ABC")
    order = [member.name for member in reversed(world["A"].view.members)]
    for name in order:
        world.leave(name)
        world.run(2)
    assert not world.living
    first, second, last = order
    world.wake(first, second)
    world.run(8)
    assert not any(process.view.is_primary for process in world.living)
    world.wake(last)
    world.settle(limit=5)
    assert world[last].view.is_primary


def test_a_leaver_remembers_the_view_that_followed_without_it() -> None:
    world = running("A", "ABC")
    world.leave("C")
    world.settle("AB")
    assert world["C"].member.record.last == world["A"].view
    assert world["C"].member.record.attempts == ()


def test_a_leaver_that_nobody_waited_for_remembers_it_as_well() -> None:
    """C asks to leave and is cut off; the others go on without it, and the COMMIT finds it in the end."""
    world = running("A", "ABC")

    def cut_off(_: Flight) -> None:
        for other in "AB":
            world.cut(other, "C")

    world.once(Ready, cut_off, source="C")
    world.leave("C")
    world.settle("AB", limit=5)
    assert not any(entry.names == "C" and entry.view.is_primary for entry in world["C"].entries)
    world.heal()
    world.run(3)
    assert not world["C"].is_alive
    assert world["C"].member.record.last in {entry.view for entry in world["A"].entries}


def test_all_leave_at_once_and_come_back() -> None:
    world = running("ABC", "ABC")
    world.leave(*"ABC")
    world.run(3)
    assert not world.living
    world.wake(*"ABC")
    world.settle(limit=5)
    assert world["A"].view.is_primary
    assert sorted(primary_views(world)[-1]) == list("ABC")


@pytest.mark.parametrize("kind", [CutTo, Ready, Commit])
def test_all_crash_in_the_middle_of_a_change_and_come_back(kind: type[object]) -> None:
    world = running("ABC", "ABCD")
    world.once(kind, lambda _: world.crash(*"ABC"))  # type: ignore[arg-type]
    world.crash("D")
    world.run_until(lambda: not world.living, 5)
    world.wake(*"ABC")
    world.settle(limit=6)
    assert world["A"].view.is_primary


@pytest.mark.parametrize("kind", [CutTo, Ready, Commit])
def test_all_crash_while_the_group_is_bootstrapped_and_come_back(kind: type[object]) -> None:
    """What they remember is an attempt at most; they found the group after all."""
    world = World("ABC")
    world.start(*"ABC")
    world.settle()
    world.once(kind, lambda _: world.crash(*"ABC"))  # type: ignore[arg-type]
    world.run_until(lambda: not world.living, 5)
    world.wake(*"ABC")
    world.settle(limit=6)
    world.run_until(lambda: all(process.view.is_primary for process in world.living), 5)


def test_durable_state_that_began_after_a_loss_bootstraps_nothing() -> None:
    """Seed 1885 of the simulator: A lost its memory of a group once, and restarted with the memory of that life."""
    world = running("A", "A")
    told = replace(world.config, membership=replace(world.membership, may_bootstrap=False))
    world.restart("A", config=told)
    world.run(0.5)
    world.crash("A")
    world.wake("A")  # nobody tells it again
    world.run(5)
    assert not world["A"].view.is_primary


def test_the_epoch_of_a_group_that_was_is_kept_until_there_is_another() -> None:
    world = running("ABC", "ABC")
    epoch = world["B"].member.membership.epoch
    assert epoch != NO_VIEW
    world.crash(*"ABC")
    world.wake("B")
    world.run(3)
    assert world["B"].member.membership.epoch == epoch
    assert not world["B"].view.is_primary


def test_a_restart_in_a_partition_makes_no_second_line() -> None:
    """C, D and E go on; D and E restart with their memory among A and B: they know of the view with C."""
    world = running("ABCDE", "ABCDE")
    world.partition("AB", "CDE")
    world.run_until(lambda: world["C"].members == "CDE" and world["C"].view.is_primary, 6)
    world.crash(*"DE")
    world.heal()
    world.partition("C", "ABDE")
    world.wake(*"DE")
    world.run(10)
    assert world["D"].view.is_primary  # D and E are two of {C, D, E}
    assert not world["C"].view.is_primary
    world.heal()
    world.settle(limit=6)
    assert world["C"].view.is_primary
