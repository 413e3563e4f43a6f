"""The ack table against a dict."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import MisuseError
from motet.protocol.window.acks import AckTable

MEMBERS = st.sampled_from("abcde")
SEQNOS = st.integers(0, 20)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), MEMBERS, SEQNOS),
        st.tuples(st.just("retain"), st.sets(MEMBERS, min_size=1), SEQNOS),
    ),
    max_size=40,
)


@given(entries=st.dictionaries(MEMBERS, SEQNOS, min_size=1), operations=OPERATIONS)
def test_the_table_agrees_with_a_dict(
    entries: dict[str, int], operations: list[tuple[str, str | set[str], int]]
) -> None:
    table, model = AckTable(entries), dict(entries)
    for name, who, seqno in operations:
        before = min(model.values())
        if name == "retain":
            model = {member: model.get(member, seqno) for member in sorted(who)}
            table.retain(sorted(who), seqno)
        elif isinstance(who, str) and who in model:
            model[who] = max(model[who], seqno)
            assert table.ack(who, seqno) == (before, min(model.values()))
        assert table.minimum == min(model.values())
        assert {member: table[member] for member in "abcde" if member in table} == model


@given(acks=st.lists(st.tuples(MEMBERS, SEQNOS), max_size=40))
def test_the_minimum_never_falls_while_the_members_stay(acks: list[tuple[str, int]]) -> None:
    table = AckTable(dict.fromkeys("abcde", 0))
    minima = [table.ack(member, seqno) for member, seqno in acks]
    assert all(before <= after for before, after in minima)
    assert all(earlier[1] == later[0] for earlier, later in pairwise(minima))


def test_only_the_slowest_member_moves_the_minimum() -> None:
    table = AckTable({"a": 0, "b": 0})
    assert table.ack("a", 9) == (0, 0)
    assert table.ack("b", 4) == (0, 4)
    assert table.ack("b", 12) == (4, 9)


def test_a_late_ack_changes_nothing() -> None:
    table = AckTable({"a": 5, "b": 7})
    assert table.ack("a", 3) == (5, 5)
    assert table["a"] == 5


def test_whoever_leaves_no_longer_holds_back_the_minimum() -> None:
    table = AckTable({"a": 5, "slow": 1})
    table.retain(["a"], joined_at=5)
    assert table.minimum == 5
    assert "slow" not in table


def test_a_joiner_enters_where_it_is_told_and_is_not_waited_for_below() -> None:
    table = AckTable({"a": 5})
    table.retain(["a", "new"], joined_at=4)
    assert (table["new"], table.minimum) == (4, 4)


def test_a_table_without_members_is_refused() -> None:
    with pytest.raises(MisuseError, match="start it with the member itself"):
        AckTable({})


def test_a_table_cannot_be_emptied_and_stays_as_it_was() -> None:
    table = AckTable({"a": 5})
    with pytest.raises(MisuseError, match="keep at least the member itself"):
        table.retain([], joined_at=0)
    assert ("a" in table, table.minimum) == (True, 5)
