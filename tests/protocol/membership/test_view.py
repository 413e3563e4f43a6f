"""Views: ids that only grow, seniority that is kept, and what nobody may make a view of."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.membership import View, ViewId
from tests.protocol.membership.people import EVERYBODY, A, B, C, D, E, F, G

PEOPLE = st.sampled_from(EVERYBODY)
CROWDS = st.lists(PEOPLE, max_size=10)  # somebody may be named twice
IDS = st.builds(ViewId, st.integers(0, 1 << 40), st.integers(1, (1 << 64) - 1))


def view(*members: Address, number: int = 1) -> View:
    return View(ViewId(number, A.incarnation), members, is_primary=True)


# Ids


def test_the_number_decides_which_id_is_later() -> None:
    assert ViewId(1, 9) < ViewId(2, 1)
    assert ViewId(9, 1) < ViewId(10, 1)


def test_two_coordinators_may_use_one_number_and_still_make_two_ids_in_one_order() -> None:
    assert ViewId(3, 1) != ViewId(3, 2)
    assert ViewId(3, 1) < ViewId(3, 2)


@given(one=IDS, other=IDS)
def test_of_two_different_ids_one_is_later_and_everybody_agrees_which(one: ViewId, other: ViewId) -> None:
    assert (one < other) + (other < one) + (one == other) == 1
    assert (one < other) == ((one.number, one.creator) < (other.number, other.creator))
    assert (hash(one) == hash(other)) or one != other


def test_an_id_reads_as_its_number_and_the_start_of_its_creator() -> None:
    assert str(ViewId(17, 0xABCD_0000_0000_0001)) == "17@abcd"
    assert str(ViewId(17, 1)) == "17@0000"


# Seniority


def test_the_first_member_is_the_coordinator_whatever_its_incarnation() -> None:
    assert view(C, A, B).coordinator == C


def test_a_view_contains_its_members_and_nobody_else() -> None:
    assert B in view(A, B)
    assert C not in view(A, B)


def test_another_life_of_a_member_is_not_a_member() -> None:
    assert replace(B, incarnation=99) not in view(A, B)


def test_without_suspects_the_coordinator_acts() -> None:
    assert view(B, A, C).acting_coordinator([]) == B


def test_the_most_senior_member_that_nobody_suspects_acts() -> None:
    assert view(B, A, C).acting_coordinator([B]) == A
    assert view(B, A, C).acting_coordinator([A, B]) == C
    assert view(B, A, C).acting_coordinator([A, C]) == B


def test_a_suspect_that_is_no_member_changes_nothing() -> None:
    assert view(A, B).acting_coordinator([G]) == A


def test_where_all_are_suspected_nobody_acts() -> None:
    assert view(A, B).acting_coordinator([B, A]) is None


def test_suspects_may_come_as_any_iterable_and_are_read_once() -> None:
    assert view(A, B, C).acting_coordinator(iter((A, B))) == C
    assert view(A, B, C).acting_coordinator(frozenset({A})) == B


# The next members


def test_those_who_stay_keep_their_seniority() -> None:
    assert view(D, B, C, A).next_members([B], []) == (D, C, A)


def test_those_who_join_come_last_in_an_order_that_everybody_computes_alike() -> None:
    for joiners in permutations((F, B, E)):
        assert view(D, C).next_members([], joiners) == (D, C, B, E, F)
        assert view(D, C).next_members([], set(joiners)) == (D, C, B, E, F)


def test_joiners_are_sorted_and_not_left_in_the_order_of_a_set() -> None:
    joiners = [replace(B, incarnation=incarnation) for incarnation in (11, 1 << 50, 19, 27, 1 << 20)]
    assert list(set(joiners)) != sorted(joiners)
    assert view(A).next_members([], joiners) == (A, *sorted(joiners))


def test_leaves_and_joins_that_wait_go_into_one_view() -> None:
    assert view(C, A, B).next_members([C], [E, D]) == (A, B, D, E)


def test_a_member_that_asks_to_join_again_keeps_its_place() -> None:
    assert view(C, A, B).next_members([], [A, D]) == (C, A, B, D)


def test_whoever_joins_and_leaves_at_once_is_out() -> None:
    assert view(A, B).next_members([B, D], [B, D, E]) == (A, E)


def test_whoever_asks_twice_is_in_once() -> None:
    assert view(A).next_members([], [B, B]) == (A, B)
    assert view(A, B).next_members([B, B], []) == (A,)


def test_a_stranger_that_leaves_changes_nothing() -> None:
    assert view(A, B).next_members([G], []) == (A, B)


def test_a_process_that_restarted_comes_in_last_and_its_old_life_goes() -> None:
    reborn = replace(A, incarnation=99)
    assert view(A, B).next_members([A], [reborn]) == (B, reborn)


def test_when_all_leave_nobody_is_next() -> None:
    assert view(A, B).next_members([A, B], []) == ()
    assert view(A, B).next_members([A, B], [C]) == (C,)


def test_leavers_and_joiners_are_read_once() -> None:
    assert view(A, B).next_members(iter([A]), iter([D, C])) == (B, C, D)


@given(
    members=st.lists(PEOPLE, min_size=1, unique=True),
    leavers=CROWDS,
    joiners=CROWDS,
    shuffle=st.randoms(use_true_random=False),
)
def test_the_next_members_agree_with_a_loop(
    members: list[Address], leavers: list[Address], joiners: list[Address], shuffle: Random
) -> None:
    expected = [member for member in members if member not in leavers]
    for candidate in EVERYBODY:  # in ascending order
        if candidate in joiners and candidate not in leavers and candidate not in expected:
            expected.append(candidate)
    answer = view(*members).next_members(leavers, joiners)
    assert answer == tuple(expected)
    shuffle.shuffle(joiners)
    assert view(*members).next_members(set(leavers), joiners) == answer


# Misuse


def test_a_view_without_members_is_refused() -> None:
    with pytest.raises(MisuseError, match="at least one member"):
        View(ViewId(1, 1), (), is_primary=True)


@pytest.mark.parametrize("members", [(A, A), (A, B, A), (A, B, replace(B, name="B"))])
def test_a_view_that_holds_somebody_twice_is_refused(members: tuple[Address, ...]) -> None:
    with pytest.raises(MisuseError, match="twice"):
        view(*members)


def test_two_lives_of_one_process_are_two_members() -> None:
    reborn = replace(A, incarnation=99)
    assert view(A, reborn).members == (A, reborn)


@pytest.mark.parametrize("name", ["id", "members", "is_primary"])
def test_a_view_cannot_be_changed(name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(view(A), name, None)


def test_two_views_are_the_same_if_id_members_order_and_kind_are() -> None:
    assert view(A, B) == view(A, B)
    assert len({view(A, B), view(A, B), view(B, A), view(A, B, number=2), replace(view(A, B), is_primary=False)}) == 4


def test_a_view_reads_as_people_would_write_it() -> None:
    old = replace(B, incarnation=0x00FF << 48)
    assert str(view(A, old, number=5)) == "5@0000 {A#0000, B#00ff} (primary)"
    assert str(replace(view(A), is_primary=False)) == "1@0000 {A#0000} (not primary)"
