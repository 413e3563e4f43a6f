"""What a member delivered, by position: rollbacks, gaps, damage, and where two sequences differ."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from motet.harness.runs.sequence import (
    DeliveredSequence,
    SequenceDifference,
    counts_of,
    digest,
    first_difference,
    gaps,
    holds,
    load,
    read_batch,
    save,
)
from motet.harness.runs.work import entry_of, payloads_of

SIZE = 24


def entries(*numbers: int, sender: int = 0) -> bytes:
    return read_batch(sender, payloads_of(sender, numbers, SIZE), SIZE)[0]


def sequence(*batches: tuple[int, bytes]) -> DeliveredSequence:
    made = DeliveredSequence()
    for position, batch in batches:
        made.add(position, batch)
    return made


def positions(made: DeliveredSequence, last: int | None = None) -> dict[int, int]:
    return {
        position: int(entry) for span in made.spans(last) for position, entry in enumerate(span.entries, span.first)
    }


def test_what_is_rolled_back_and_delivered_again_counts_once() -> None:
    made = sequence((1, entries(0, 1, 2)), (4, entries(3)))
    assert made.roll_back(3) == [entry_of(0, 2), entry_of(0, 3)]
    made.add(3, entries(7, sender=1))
    assert positions(made) == {1: entry_of(0, 0), 2: entry_of(0, 1), 3: entry_of(1, 7)}


def test_positions_that_were_missed_are_gaps() -> None:
    made = sequence((3, entries(0)), (4, entries(1)), (10, entries(2)))
    spans = list(made.spans())
    assert [(span.first, span.last) for span in spans] == [(3, 4), (10, 10)]
    assert gaps(spans, 10) == [(1, 2), (5, 9)]
    assert gaps(spans, 12) == [(1, 2), (5, 9), (11, 12)]
    assert gaps([], 3) == [(1, 3)]
    assert gaps([], 0) == []
    assert [(span.first, span.last) for span in made.spans(9)] == [(3, 4)]
    assert made.roll_back(4) == [entry_of(0, 1), entry_of(0, 2)]
    assert made.next_position == 4


@given(st.lists(st.one_of(st.integers(1, 4), st.tuples(st.just("back"), st.integers(1, 30))), max_size=30))
def test_it_is_a_list_that_is_cut_and_extended(steps: list[int | tuple[str, int]]) -> None:
    made, model, number = DeliveredSequence(), list[int](), 0
    for step in steps:
        if isinstance(step, int):
            made.add(len(model) + 1, entries(*range(number, number + step)))
            model += range(number, number + step)
            number += step
        else:
            assert made.roll_back(step[1]) == model[step[1] - 1 :]
            del model[step[1] - 1 :]
    assert positions(made) == dict(enumerate(model, 1))


def test_the_first_difference_is_named_with_both_entries() -> None:
    one = list(sequence((1, entries(0, 1, 2, 3))).spans())
    other = list(sequence((2, entries(1, 5, 3))).spans())
    assert first_difference(one, other) == SequenceDifference(3, entry_of(0, 2), entry_of(0, 5))
    assert first_difference(one, one) is None
    assert first_difference(one, list(sequence((9, entries(9))).spans())) is None  # nothing in common


def test_a_digest_is_of_positions_and_contents() -> None:
    made = [
        digest(list(sequence(*batches).spans()))
        for batches in (
            [(1, entries(0, 1))],
            [(1, entries(0)), (2, entries(1))],
            [(1, entries(1, 0))],
            [(2, entries(0, 1))],
            [(1, entries(0)), (2, entries(1, sender=1))],
        )
    ]
    assert made[0] == made[1]
    assert len(set(made)) == 4


def test_content_that_is_not_what_was_sent_is_seen() -> None:
    payloads = payloads_of(2, range(5), SIZE)
    assert read_batch(2, payloads, SIZE)[1] == 0
    assert read_batch(1, payloads, SIZE)[1] == 5  # of another sender
    payloads[3] = payloads[3][:-1] + b"!"
    assert read_batch(2, payloads, SIZE)[1] == 1
    payloads[3] = b"short"
    assert read_batch(2, payloads, SIZE)[1] == 1


def test_it_is_handed_over_in_a_file(tmp_path: Path) -> None:
    spans = list(sequence((1, entries(0, 1)), (5, entries(2))).spans())
    save(tmp_path / "m0", spans)
    again = load(tmp_path / "m0")
    assert digest(again) == digest(spans)
    assert [span.first for span in again] == [1, 5]
    save(tmp_path / "none", [])
    assert load(tmp_path / "none") == []


def test_messages_are_counted_by_number() -> None:
    spans = list(sequence((1, entries(0, 2, 2)), (4, entries(1, sender=1))).spans())
    assert counts_of(spans, 0, 4).tolist() == [1, 0, 2, 0]
    assert counts_of(spans, 1, 2).tolist() == [0, 1]
    assert holds(spans, entry_of(1, 1))
    assert not holds(spans, entry_of(1, 0))
