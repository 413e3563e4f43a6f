"""The verdict on a run: what is a problem, and what is only worth a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.harness.runs.evaluation import RunVerdict, evaluate
from motet.harness.runs.member_process import RunMemberReport
from motet.harness.runs.sequence import DeliveredSequence, read_batch, save, save_numbers
from motet.harness.runs.work import RunPlan, payloads_of

SIZE = 16
PLAN = RunPlan(3, 2, 4, SIZE)
Log = list[tuple[int, int]]  # (sender, number), from position 1


def evaluated(
    directory: Path, *logs: Log, is_over: bool = True, has_journals: bool = False, **reports: RunMemberReport
) -> RunVerdict:
    found = {}
    for index, log in enumerate(logs):
        made = DeliveredSequence()
        for position, (sender, number) in enumerate(log, 1):
            made.add(position, read_batch(sender, payloads_of(sender, [number], SIZE), SIZE)[0])
        save(directory / f"m{index}.sequence", list(made.spans()))
        found[index] = reports.get(f"m{index}", RunMemberReport(f"m{index}"))
        if not (directory / f"m{index}.lost").exists():
            save_numbers(directory / f"m{index}.lost", found[index].lost)
    return evaluate(PLAN, found, directory, is_over=is_over, has_journals=has_journals)


SAME: Log = [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_equal_sequences_hold(tmp_path: Path) -> None:
    verdict = evaluated(tmp_path, SAME, SAME, SAME)
    assert verdict.holds
    assert verdict.is_same
    assert verdict.is_accounted
    assert verdict.notes == []


def test_the_first_position_that_differs_is_named(tmp_path: Path) -> None:
    verdict = evaluated(tmp_path, SAME, SAME, [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert verdict.is_same is False
    (problem,) = verdict.problems
    assert problem.endswith("position 2 is message 0 of m1 at m0, and message 1 of m0 at m2")


def test_a_shorter_stable_prefix_and_a_rollback_are_notes(tmp_path: Path) -> None:
    late = RunMemberReport("m2", position=4, stable=2, rolled_back=3, gaps=[(3, 3)], failed_sends=1, failures=["gone"])
    verdict = evaluated(tmp_path, SAME, SAME, SAME[:2], m2=late)
    assert verdict.holds
    assert [note.split(":")[0].split(" while")[0] for note in verdict.notes] == [
        "m2 was cut off from the primary component",
        "m2 missed positions 3 to 3",
        "1 sends of m2 were reported as failed",
        "m2 delivered up to 4, of which 2 are stable; the rest is not compared, for it may still be rolled back",
    ]


def test_what_was_accepted_and_is_nowhere_is_lost(tmp_path: Path) -> None:
    verdict = evaluated(tmp_path, SAME, SAME, m1=RunMemberReport("m1", lost=[2], lost_count=1))
    assert verdict.is_accounted is False
    assert verdict.problems == ["1 messages that m1 accepted were neither delivered nor reported as failed: 2"]


def test_what_another_member_holds_is_not_lost(tmp_path: Path) -> None:
    verdict = evaluated(tmp_path, SAME, SAME[:1], m1=RunMemberReport("m1", lost=[0, 1], lost_count=2))
    assert verdict.holds


def test_before_the_end_it_may_only_be_late(tmp_path: Path) -> None:
    verdict = evaluated(tmp_path, SAME, SAME, is_over=False, m1=RunMemberReport("m1", lost=[2], lost_count=1))
    assert verdict.holds
    assert verdict.is_accounted is None
    assert verdict.notes == ["1 messages that m1 accepted were not delivered yet"]


def test_all_that_was_not_delivered_is_counted_and_not_only_what_a_report_lists(tmp_path: Path) -> None:
    save_numbers(tmp_path / "m1.lost", [1, *range(5, 4_999)])  # another member holds number 1
    listed = RunMemberReport("m1", lost=[1, *range(5, 1_004)], lost_count=4_995)
    verdict = evaluated(tmp_path, SAME, SAME[:1], is_over=False, m1=listed)
    assert verdict.notes == ["4994 messages that m1 accepted were not delivered yet"]


@pytest.mark.parametrize(
    ("has_journals", "remedy"),
    [(False, "with a journal (--out) it fetches them"), (True, "it had not fetched them yet")],
)
def test_what_a_member_missed_is_told_with_what_helps(tmp_path: Path, has_journals: bool, remedy: str) -> None:
    verdict = evaluated(tmp_path, SAME, SAME, has_journals=has_journals, m1=RunMemberReport("m1", gaps=[(1, 2)]))
    told = verdict.problems if has_journals else verdict.notes  # the run is over: whoever has a journal has it all
    assert told == [f"m1 missed positions 1 to 2 while it was not in the primary view; {remedy}"]
    assert verdict.has_gaps


def test_damage_and_repetition_are_problems(tmp_path: Path) -> None:
    verdict = evaluated(tmp_path, SAME, SAME, m0=RunMemberReport("m0", damaged=1), m1=RunMemberReport("m1", repeated=2))
    assert verdict.problems == [
        "m0 delivered 1 messages that are not what was sent",
        "2 messages of m1 stand more than once in its log",
    ]
