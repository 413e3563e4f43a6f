"""The verdict on a run: what is a problem, and what is only worth a note."""

from __future__ import annotations

from pathlib import Path

from motet.runs.child import MemberReport
from motet.runs.judge import RunVerdict, judge
from motet.runs.sequence import DeliveredSequence, read_batch, save
from motet.runs.work import Plan, payloads_of

SIZE = 16
PLAN = Plan(3, 2, 4, SIZE)
Log = list[tuple[int, int]]  # (sender, number), from position 1


def judged(directory: Path, *logs: Log, is_over: bool = True, **reports: MemberReport) -> RunVerdict:
    found = {}
    for index, log in enumerate(logs):
        made = DeliveredSequence()
        for position, (sender, number) in enumerate(log, 1):
            made.add(position, read_batch(sender, payloads_of(sender, [number], SIZE), SIZE)[0])
        save(directory / f"m{index}.sequence", list(made.spans()))
        found[index] = reports.get(f"m{index}", MemberReport(f"m{index}"))
    return judge(PLAN, found, directory, is_over=is_over)


SAME: Log = [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_equal_sequences_hold(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SAME, SAME, SAME)
    assert verdict.holds
    assert verdict.is_same
    assert verdict.is_accounted
    assert verdict.notes == []


def test_the_first_position_that_differs_is_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SAME, SAME, [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert verdict.is_same is False
    (problem,) = verdict.problems
    assert problem.endswith("position 2 is message 0 of m1 at m0, and message 1 of m0 at m2")


def test_a_shorter_stable_prefix_and_a_rollback_are_notes(tmp_path: Path) -> None:
    late = MemberReport("m2", position=4, stable=2, rolled_back=3, gaps=[(3, 3)], failed_sends=1, failures=["gone"])
    verdict = judged(tmp_path, SAME, SAME, SAME[:2], m2=late)
    assert verdict.holds
    assert [note.split(":")[0].split(" while")[0] for note in verdict.notes] == [
        "m2 was cut off from the primary component",
        "m2 missed positions 3 to 3",
        "1 sends of m2 were reported as failed",
        "m2 delivered up to 4, of which 2 are stable; the rest is not compared, for it may still be rolled back",
    ]


def test_what_was_accepted_and_is_nowhere_is_lost(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SAME, SAME, m1=MemberReport("m1", lost=[2], lost_count=1))
    assert verdict.is_accounted is False
    assert verdict.problems == ["1 messages that m1 accepted were neither delivered nor reported as failed: 2"]


def test_what_another_member_holds_is_not_lost(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SAME, SAME[:1], m1=MemberReport("m1", lost=[0, 1], lost_count=2))
    assert verdict.holds


def test_before_the_end_it_may_only_be_late(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SAME, SAME, is_over=False, m1=MemberReport("m1", lost=[2], lost_count=1))
    assert verdict.holds
    assert verdict.is_accounted is None
    assert verdict.notes == ["1 messages that m1 accepted were not delivered yet"]


def test_damage_and_repetition_are_problems(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SAME, SAME, m0=MemberReport("m0", damaged=1), m1=MemberReport("m1", repeated=2))
    assert verdict.problems == [
        "m0 delivered 1 messages that are not what was sent",
        "2 messages of m1 stand more than once in its log",
    ]
