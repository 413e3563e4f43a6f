"""The primary rule: case by case, and in worlds where anything that can be cut off half-way is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from motet.protocol.core.identity import Address
from motet.protocol.membership import PrimaryRecord, View, ViewId, is_primary, primary
from motet.protocol.membership.primary import bases, named_chain
from tests.protocol.membership.lineage import (
    Attempt,
    BrokenLineError,
    History,
    Process,
    World,
    draw_history,
)
from tests.protocol.membership.people import EVERYBODY, A, B, C, D, E, F, G

BLANK = PrimaryRecord()
WITHOUT_SHRINKING = (Phase.generate,)


def primary_view(number: int, *members: Address) -> View:
    return View(ViewId(number, members[0].incarnation), members, is_primary=True)


def other_view(number: int, *members: Address) -> View:
    return replace(primary_view(number, *members), is_primary=False)


FIVE = primary_view(1, A, B, C, D, E)
IN_FIVE = BLANK.attempted(FIVE).installed(FIVE)


# Founding


@pytest.mark.parametrize("members", [(A,), (A, B), EVERYBODY])
def test_where_nobody_ever_was_in_a_primary_view_the_group_is_bootstrapped(members: tuple[Address, ...]) -> None:
    assert is_primary(members, [BLANK for _ in members])
    assert bases([BLANK for _ in members]) == []


def test_newcomers_beside_one_who_was_in_a_primary_view_found_nothing() -> None:
    assert not is_primary((E, F, G), [IN_FIVE, BLANK, BLANK])


def test_an_interrupted_bootstrap_counts_as_an_attempt() -> None:
    knows = BLANK.attempted(primary_view(1, A, B, C))
    assert is_primary((B, C), [knows, knows])
    assert not is_primary((C,), [knows])
    assert not is_primary((C, D), [knows, BLANK])


def test_a_view_that_is_not_primary_bootstraps_nothing_and_leaves_no_trace() -> None:
    alone = other_view(1, A)
    assert BLANK.attempted(alone).installed(alone) == BLANK


# Majorities


@pytest.mark.parametrize("size", range(1, len(EVERYBODY) + 1))
def test_a_majority_or_half_with_the_most_senior_for_every_part_of_a_view(size: int) -> None:
    base = primary_view(1, *reversed(EVERYBODY[:size]))  # seniority is the place in the view, no order of addresses
    record = PrimaryRecord(base)
    for count in range(1, size + 1):
        for members in combinations(base.members, count):
            expected = count > size / 2 or (count == size / 2 and base.members[0] in members)
            assert is_primary(members, [record] * count) is expected


def test_of_two_parts_at_most_one_is_primary_however_a_view_is_cut() -> None:
    for size in range(2, len(EVERYBODY) + 1):
        record = PrimaryRecord(primary_view(1, *EVERYBODY[:size]))
        for count in range(1, size):
            for part in combinations(EVERYBODY[:size], count):
                rest = [member for member in EVERYBODY[:size] if member not in part]
                assert is_primary(part, [record]) + is_primary(rest, [record]) == 1


def test_partition_of_three_and_two_leaves_the_three_primary() -> None:
    assert is_primary((A, B, C), [IN_FIVE] * 3)
    assert not is_primary((D, E), [IN_FIVE] * 2)


def test_the_minority_stays_a_minority_whoever_joins_it() -> None:
    assert not is_primary((D, E, F, G), [IN_FIVE, IN_FIVE, BLANK, BLANK])


def test_even_split_leaves_the_half_with_the_most_senior_primary() -> None:
    record = PrimaryRecord(primary_view(1, C, A, D, B))
    assert is_primary((C, B), [record] * 2)
    assert is_primary((A, C), [record] * 2)
    assert not is_primary((A, D), [record] * 2)
    assert not is_primary((A, B), [record] * 2)


def test_a_new_incarnation_is_not_the_member_that_it_was() -> None:
    reborn = [replace(member, incarnation=90 + member.incarnation) for member in (A, B, C)]
    assert not is_primary((*reborn, D), [IN_FIVE] * 4)
    assert is_primary((*reborn, C, D, E), [IN_FIVE] * 6)


def test_partition_three_two_then_merge_and_the_line_goes_on_from_the_majority() -> None:
    three = primary_view(2, A, B, C)
    in_three = IN_FIVE.attempted(three).installed(three)
    assert is_primary(FIVE.members, [in_three] * 3 + [IN_FIVE] * 2)
    assert is_primary((A, B, D, E), [in_three] * 2 + [IN_FIVE] * 2)
    assert not is_primary((A, D, E), [in_three] + [IN_FIVE] * 2)  # three of five, but one of the three that went on


# Shrinking


@pytest.mark.parametrize("leaves_first", [0, -1, 1], ids=["coordinator", "youngest", "second"])
def test_majority_that_shrinks_gracefully_step_by_step_to_one_member_stays_primary(leaves_first: int) -> None:
    view = primary_view(1, *EVERYBODY)
    record = PrimaryRecord(view)
    while len(view.members) > 1:
        leaver = view.members[leaves_first]
        members = view.next_members([leaver], [])
        assert is_primary(members, [record] * len(view.members), [leaver])
        view = primary_view(view.id.number + 1, *members)
        record = record.attempted(view).installed(view)
    assert is_primary(view.members, [record])


def test_majority_that_shrinks_by_crashes_ends_with_the_most_senior_of_two() -> None:
    record, number = IN_FIVE, 2
    for members in ((A, B, C), (A, B)):
        assert is_primary(members, [record] * len(members))
        record, number = record.installed(primary_view(number, *members)), number + 1
    assert is_primary((A,), [record])
    assert not is_primary((B,), [record])
    assert not is_primary((B, C, D, E), [record, IN_FIVE, IN_FIVE, IN_FIVE])


def test_graceful_leavers_shrink_what_is_counted() -> None:
    assert not is_primary((A, B), [IN_FIVE] * 2)
    assert is_primary((A, B), [IN_FIVE] * 4, leavers=(D, E))
    assert not is_primary((C,), [IN_FIVE] * 3, leavers=(D, E))


def test_when_the_most_senior_leaves_the_next_one_decides_an_even_split() -> None:
    assert is_primary((B, E), [IN_FIVE] * 3, leavers=(A,))
    assert not is_primary((C, D), [IN_FIVE] * 3, leavers=(A,))


def test_a_leaver_that_was_in_no_base_shrinks_nothing() -> None:
    assert not is_primary((A, B), [IN_FIVE] * 2 + [BLANK], leavers=(G,))


def test_leavers_shrink_every_base() -> None:
    knows = IN_FIVE.attempted(primary_view(2, A, B, D, E))
    assert not is_primary((A, C), [knows, IN_FIVE], leavers=(D,))
    assert is_primary((A, C), [knows, IN_FIVE, knows, knows], leavers=(D, E))


def test_when_all_leave_gracefully_those_who_join_in_the_same_change_go_on() -> None:
    two = PrimaryRecord(primary_view(1, A, B))
    assert is_primary((C,), [two, two, BLANK], leavers=(A, B))
    assert not is_primary((C,), [two, BLANK], leavers=(A,))


def test_leavers_that_recorded_the_view_and_did_not_hear_of_it_form_no_second_one() -> None:
    four = PrimaryRecord(primary_view(1, A, B, C, D))
    assert is_primary((A,), [four] * 3, leavers=(C, D))  # B is cut off
    knows = four.attempted(primary_view(2, A))
    assert not is_primary((B, C, D), [four, knows, knows])


# Heirs

A2, B2, C2, D2, E2 = (replace(member, incarnation=100 + member.incarnation) for member in (A, B, C, D, E))


def test_a_group_that_restarts_with_its_memory_counts_by_its_heirs() -> None:
    everybody = (A2, B2, C2)
    assert not is_primary(everybody, [IN_FIVE] * 3)
    assert is_primary(everybody, [IN_FIVE] * 3, chains={A.incarnation, B.incarnation, C.incarnation})
    assert not is_primary(everybody, [IN_FIVE] * 3, chains={A.incarnation, B.incarnation})
    assert is_primary((A, B, C2), [IN_FIVE] * 3, chains={C.incarnation})


def test_an_heir_and_its_predecessor_are_one_member() -> None:
    assert not is_primary((A, B), [IN_FIVE] * 2, chains={A.incarnation, B.incarnation})


def test_half_of_a_view_counts_with_the_heir_of_its_most_senior_member() -> None:
    four = PrimaryRecord(primary_view(1, A, B, C, D))
    assert is_primary((A2, B2), [four] * 2, chains={A.incarnation, B.incarnation})
    assert not is_primary((C2, D2), [four] * 2, chains={C.incarnation, D.incarnation})


def test_heirs_count_in_attempts_as_well() -> None:
    knows = IN_FIVE.attempted(primary_view(2, A, B, C))
    chains = {member.incarnation for member in (C, D, E)}
    assert not is_primary((C2, D2, E2), [knows, IN_FIVE, IN_FIVE], chains=chains)
    assert is_primary((B, C2, D2), [knows, knows, IN_FIVE], chains={C.incarnation, D.incarnation})


def test_heirs_do_not_help_against_a_static_quorum() -> None:
    assert not is_primary((A2,), [IN_FIVE], static_quorum=2, chains={A.incarnation, B.incarnation})


def test_of_a_long_past_only_what_a_view_knows_and_the_latest_is_named() -> None:
    past = (C.incarnation, *range(1_000, 1_100))
    assert named_chain(past, IN_FIVE) == (C.incarnation, *range(1_096, 1_100))
    assert named_chain(past, BLANK) == tuple(range(1_096, 1_100))
    assert named_chain((), IN_FIVE) == ()


# Attempts


def test_whoever_is_cut_off_from_an_attempt_that_others_installed_is_not_primary_elsewhere() -> None:
    """{A,B,C} attempt a view, A and B install it, C is cut off before it hears; C meets {D,E}."""
    attempt = primary_view(2, A, B, C)
    assert is_primary(attempt.members, [IN_FIVE] * 3)
    recorded = IN_FIVE.attempted(attempt)
    assert not is_primary((C, D, E), [recorded, IN_FIVE, IN_FIVE])
    installed = recorded.installed(attempt)
    assert is_primary((A, B), [installed] * 2)
    assert is_primary((B, C), [installed, recorded])
    assert is_primary((A, B, D), [installed, installed, IN_FIVE])


def test_without_the_record_of_the_attempt_the_same_meeting_would_be_primary() -> None:
    assert is_primary((C, D, E), [IN_FIVE] * 3)


def test_an_attempt_that_a_single_participant_knows_of_counts_for_all() -> None:
    knows = IN_FIVE.attempted(primary_view(2, A, B, C))
    for records in permutations([knows, IN_FIVE, IN_FIVE]):
        assert not is_primary((C, D, E), records)


def test_interrupted_attempts_pile_up_and_all_of_them_count() -> None:
    first, second, third = primary_view(2, A, B, C), primary_view(3, B, C, D), primary_view(4, B, D, E)
    one, other = IN_FIVE.attempted(first).attempted(second), IN_FIVE.attempted(third)
    assert bases([one, other]) == [FIVE, first, second, third]
    assert is_primary((A, B, D), [one, other])
    assert not is_primary((A, B, C), [one, other])  # not of the third
    assert not is_primary((A, C, D), [one, other])  # not of the third either, though of all the others
    assert not is_primary((B, D, E), [one, other])  # not of the first
    assert not is_primary((A, B), [one, other])  # not of the last that was installed


def test_half_of_an_attempt_counts_with_its_own_most_senior_member() -> None:
    knows = IN_FIVE.attempted(primary_view(2, D, C, B, A))
    assert is_primary((A, D, E), [knows] * 3)
    assert not is_primary((A, B, E), [knows] * 3)


def test_an_attempt_that_was_called_off_is_not_counted_any_more() -> None:
    attempt, another = primary_view(2, A, B, C), primary_view(3, A, B, C, D)
    knows = IN_FIVE.attempted(attempt)
    assert knows.called_off(attempt) == IN_FIVE
    assert is_primary((C, D, E), [knows.called_off(attempt), IN_FIVE, IN_FIVE])
    assert knows.attempted(another).called_off(attempt) == IN_FIVE.attempted(another)
    assert not is_primary((C, D, E), [knows.called_off(attempt), knows, IN_FIVE])  # one did not hear of it


def test_calling_off_what_was_never_recorded_changes_nothing() -> None:
    knows = IN_FIVE.attempted(primary_view(2, A, B, C))
    assert knows.called_off(primary_view(3, A, B)) == knows
    assert knows.called_off(FIVE) == knows
    assert knows.called_off(primary_view(2, A, B)) == knows  # the same id, another view


def test_attempts_are_kept_oldest_first_and_once() -> None:
    first, second, third = primary_view(2, A, B, C), primary_view(3, A, B, C), primary_view(3, B, C, D)
    for order in permutations((first, second, third)):
        record = IN_FIVE
        for view in (*order, *order):
            record = record.attempted(view)
        assert record == PrimaryRecord(FIVE, (first, second, third))


def test_a_view_that_is_not_primary_is_no_attempt_and_settles_none() -> None:
    knows = IN_FIVE.attempted(primary_view(2, A, B, C))
    assert IN_FIVE.attempted(other_view(2, D, E)) == IN_FIVE
    assert knows.installed(other_view(3, C, D, E)) == knows


def test_an_installed_view_settles_the_attempts_before_it_and_no_later_one() -> None:
    first, second, third = primary_view(2, A, B, C), primary_view(3, B, C, D), primary_view(4, A, B, C, D)
    knows = IN_FIVE.attempted(first).attempted(second).attempted(third)
    assert knows.installed(second) == PrimaryRecord(second, (third,))
    assert knows.installed(third) == PrimaryRecord(third)


def test_what_one_participant_installed_settles_the_attempts_that_others_know() -> None:
    stale, later = primary_view(2, B, C, D), primary_view(3, A, B, C, E)
    assert bases([IN_FIVE.attempted(stale), PrimaryRecord(later)]) == [later]
    assert is_primary((A, B, E), [PrimaryRecord(later), IN_FIVE.attempted(stale), IN_FIVE])


def test_a_view_that_one_installed_and_another_only_recorded_counts_once() -> None:
    three = primary_view(2, A, B, C)
    assert bases([IN_FIVE.attempted(three), PrimaryRecord(three)]) == [three]


def test_of_all_views_that_participants_installed_the_latest_counts() -> None:
    three, two = primary_view(2, A, B, C), primary_view(3, A, B)
    records = [IN_FIVE, PrimaryRecord(three), PrimaryRecord(two)]
    for order in permutations(records):
        assert bases(order) == [two]
        assert is_primary((A, D, E), order)
        assert not is_primary((B, C, D, E), order)


@pytest.mark.parametrize(("number", "is_fork"), [(2, True), (3, False)])
def test_a_view_needs_a_higher_number_than_every_attempt_that_it_was_decided_over(number: int, is_fork: bool) -> None:
    """The oldest installed {oldest,B,C} alone; {B,C,D,E} went on over that attempt, and C did not hear that they did.

    Under the number of the attempt, their view would pass for the earlier one: it counts for nobody who meets the
    oldest, whose incarnation happens to be large.
    """
    oldest = replace(A, incarnation=99)
    five = PrimaryRecord(primary_view(1, oldest, B, C, D, E))
    attempt, later = primary_view(2, oldest, B, C), primary_view(number, B, C, D, E)
    assert is_primary(later.members, [five.attempted(attempt)] * 2 + [five] * 2)
    cut_off = five.attempted(attempt).attempted(later)
    assert is_primary((oldest, C), [five.attempted(attempt).installed(attempt), cut_off]) is is_fork


def test_newcomers_that_recorded_the_bases_with_their_first_attempt_do_not_go_on_alone() -> None:
    """A was the whole group; B and C recorded the view they should join in, and A is gone before anybody installed.

    They know nothing of the log. An attempt alone would make them a majority of it, as after an interrupted bootstrap.
    """
    in_one = PrimaryRecord(primary_view(1, A))
    attempt = primary_view(2, A, B, C)
    assert is_primary((B, C), [BLANK.attempted(attempt)] * 2)
    newcomer = BLANK
    for view in (*bases([in_one, BLANK, BLANK]), attempt):
        newcomer = newcomer.attempted(view)
    assert not is_primary((B, C), [newcomer] * 2)
    assert is_primary((A, B), [in_one.attempted(attempt), newcomer])


# What is asked, and how


def test_records_may_come_as_any_iterable_and_are_read_once() -> None:
    assert not is_primary((D, E), iter([IN_FIVE, IN_FIVE]))
    assert is_primary({A, B, C}, (record for record in [IN_FIVE] * 3), leavers=frozenset({E}))


def test_a_static_quorum_replaces_the_rule() -> None:
    assert is_primary((D, E), [IN_FIVE] * 2, static_quorum=2)
    assert not is_primary((A, B, C), [IN_FIVE] * 3, static_quorum=4)
    assert is_primary((A, B, C, D), [IN_FIVE] * 4, static_quorum=4)
    assert not is_primary((A, B), [IN_FIVE] * 4, leavers=(C, D), static_quorum=3)


def test_a_static_quorum_protects_the_bootstrap() -> None:
    assert not is_primary((A, B), [BLANK] * 2, static_quorum=3)
    assert is_primary((A, B, C), [BLANK] * 3, static_quorum=3)


# One line, in worlds where anything is cut off half-way

SEEDS = range(3_000)
PLANT_SEEDS = range(6_000)

# The same histories from either source: the seeds go far, Hypothesis goes near and makes a failing one small.
histories = st.randoms(use_true_random=False).map(draw_history)


@settings(max_examples=200)
@given(history=histories)
def test_primary_views_form_one_line_in_any_history(history: History) -> None:
    World(history.size).run(history)


def test_primary_views_form_one_line_in_thousands_of_seeded_histories() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        history = draw_history(Random(seed))
        world = World(history.size)
        try:
            world.run(history)
        except BrokenLineError as broken:
            raise AssertionError(f"seed {seed}: {history}") from broken
        seen += world.seen
    assert seen["formed"] > 2 * len(SEEDS)
    assert seen["formed late"] > 10
    for name in (
        "not primary",
        "attempt over an interrupted one",
        "half with the most senior",
        "base shrunk by leavers",
        "joined",
        "left",
        "left and remembered",
        "lives again",
        "only by its chains",
        "replaced",
        "restarted",
        "called off",
        "recorded late",
    ):
        assert seen[name] > 100, name


class ForgetsItsPast(World):
    def chains(self, staying: Sequence[Process]) -> set[int]:
        return set()


def comes_to_life_again(world: World) -> bool:
    """All who live meet in the end; true if they may go on as the group that they were."""
    processes = world._processes
    records = [process.record for process in processes]
    return is_primary([process.address for process in processes], records, chains=world.chains(processes))


def remembered_worlds(kind: type[World]) -> Iterator[World]:
    """Histories in which somebody restarted and nobody ever lost its memory."""
    for seed in SEEDS[:1_000]:
        history = draw_history(Random(seed))
        world = kind(history.size)
        world.run(history)
        if world.formed and world.seen["lives again"] and not world.seen["replaced"]:
            yield world


def test_a_group_of_which_all_restarted_with_their_memory_is_primary_again() -> None:
    worlds = list(remembered_worlds(World))
    assert len(worlds) > 150
    assert all(map(comes_to_life_again, worlds))


def test_without_heirs_such_a_group_would_be_dead_for_ever() -> None:
    assert not all(map(comes_to_life_again, remembered_worlds(ForgetsItsPast)))


# A check that cannot fail is no check. Some bugs are in the rule, others in the engine that obeys it.


@dataclass(frozen=True, slots=True)
class Plant:
    name: str
    patch: Callable[[pytest.MonkeyPatch], None] = lambda patch: None
    world: type[World] = World


def forget_attempts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrimaryRecord, "attempted", lambda self, view: self)


def keep_only_the_latest_attempt(patch: pytest.MonkeyPatch) -> None:
    original = PrimaryRecord.attempted
    patch.setattr(
        PrimaryRecord, "attempted", lambda self, view: PrimaryRecord(self.last, original(self, view).attempts[-1:])
    )


def settle_later_attempts_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrimaryRecord, "installed", lambda self, view: PrimaryRecord(view) if view.is_primary else self)


def settle_attempts_by_any_view(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrimaryRecord, "installed", lambda self, view: PrimaryRecord(view if view.is_primary else self.last))


def count_any_half(patch: pytest.MonkeyPatch) -> None:
    def holds_half(
        members: Collection[Address], base: View, leavers: Iterable[Address], chains: Collection[int]
    ) -> bool:
        counted = set(base.members) - set(leavers)
        return 2 * sum(member in members or member.incarnation in chains for member in counted) >= len(counted)

    patch.setattr(primary, "_holds_majority", holds_half)


def ask_the_coordinator_only(patch: pytest.MonkeyPatch) -> None:
    original = primary.bases
    patch.setattr(primary, "bases", lambda records: original(list(records)[:1]))


def count_the_earliest_last_view(patch: pytest.MonkeyPatch) -> None:
    def earliest(records: Iterable[PrimaryRecord]) -> list[View]:
        known = list(records)
        last = min((record.last for record in known if record.last), key=lambda view: view.id, default=None)
        attempts = {attempt for record in known for attempt in record.attempts if not last or attempt.id > last.id}
        return ([last] if last else []) + sorted(attempts, key=lambda view: view.id)

    patch.setattr(primary, "bases", earliest)


def an_heir_counts_once_more(patch: pytest.MonkeyPatch) -> None:
    def holds_majority(
        members: Collection[Address], base: View, leavers: Iterable[Address], chains: Collection[int]
    ) -> bool:
        counted = set(base.members) - set(leavers)
        return 2 * (len(counted & set(members)) + len(chains)) > len(counted)

    patch.setattr(primary, "_holds_majority", holds_majority)


class RecordsAfterInstall(World):
    def may_commit(self, attempt: Attempt) -> bool:
        return not attempt.is_called_off


class CallsOffWhatWasInstalled(World):
    def may_call_off(self, attempt: Attempt) -> bool:
        return True


class CountsLeaversThatTookNoPart(World):
    def takes_part(self, leaver: Process) -> bool:
        return False


class NumbersIgnoreAttempts(World):
    def number(self, asked: Sequence[Process], coordinator: Address) -> int:
        views = [view for process in asked for view in (process.view, process.record.last) if view is not None]
        return max((view.id.number for view in views), default=0) + 1


class TellsNewcomersNothing(World):
    def teach(self, newcomer: Process, attempt: Attempt) -> None:
        pass


class CopiesAJournal(World):
    """The same memory on two machines: both stand for the one that was, and each counts elsewhere."""

    def live_again(self, process: Process) -> None:
        super().live_again(process)
        place = (self._processes.index(process) + 1) % len(self._processes)
        twin = Process(self._next_address(place), process.record, highest=process.highest, past=process.past)
        self._processes[place] = twin


class RemembersItsNamesOnly(World):
    """The record is lost, and the process still stands for those whose record it was."""

    def live_again(self, process: Process) -> None:
        super().live_again(process)
        process.record = PrimaryRecord()


PLANTS = [
    Plant("attempts forgotten", forget_attempts),
    Plant("half without the most senior counts", count_any_half),
    Plant("record after install", world=RecordsAfterInstall),
    Plant("only the latest attempt is kept", keep_only_the_latest_attempt),
    Plant("an earlier view settles later attempts", settle_later_attempts_too),
    Plant("a view that is not primary settles attempts", settle_attempts_by_any_view),
    Plant("only the coordinator's record counts", ask_the_coordinator_only),
    Plant("the earliest of the last views counts", count_the_earliest_last_view),
    Plant("called off after somebody installed", world=CallsOffWhatWasInstalled),
    Plant("leavers are counted out without being asked", world=CountsLeaversThatTookNoPart),
    Plant("the number of a view takes no account of attempts", world=NumbersIgnoreAttempts),
    Plant("newcomers are not told the bases", world=TellsNewcomersNothing),
    Plant("an heir counts for its predecessor and once more", an_heir_counts_once_more),
    Plant("two chains of one process", world=CopiesAJournal),
    Plant("an heir without the record", world=RemembersItsNamesOnly),
]


def breaks(world: World, history: History) -> bool:
    try:
        world.run(history)
    except BrokenLineError:
        return True
    return False


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_planted_bug_breaks_the_line_in_some_seeded_history(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.patch(monkeypatch)
    drawn = (draw_history(Random(seed)) for seed in PLANT_SEEDS)
    assert any(breaks(plant.world(history.size), history) for history in drawn)


@pytest.mark.parametrize("plant", [PLANTS[1], PLANTS[-3]], ids=lambda plant: plant.name)
def test_planted_bug_breaks_the_line_in_some_history_of_hypothesis(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.patch(monkeypatch)
    find(
        histories,
        lambda history: breaks(plant.world(history.size), history),
        settings=settings(max_examples=3_000, phases=WITHOUT_SHRINKING, database=None),
        random=Random(0),
    )


def test_an_older_view_does_not_move_the_record_back() -> None:
    later = PrimaryRecord(primary_view(3, A, B, C))
    assert later.installed(primary_view(2, A, B)) == later
