"""`motet suite`: a few of its cases, in a small form, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from motet.harness.runs.suite import CASES, DEADLINES_S, STRATEGIES
from tests.cli.shell import Shell


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Cases with fewer messages; the directory is where runs put what they make."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    small = tuple(replace(case, messages=30, snapshot_after=min(case.snapshot_after, 10)) for case in CASES)
    monkeypatch.setattr("motet.cli.suite.CASES", small)
    return tmp_path


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_cases_hold(motet_command: Shell, small: Path, strategy: str) -> None:
    names = ("several-senders", "drop-25", "acks-dropped", "sender-killed", "snapshot")
    chosen = [word for name in names for word in ("--case", name)]
    answer = motet_command("suite", *chosen, "--strategy", strategy, "--jobs", "2", "--json")
    found = json.loads(answer.out)
    assert answer.code == 0, found
    assert [(case["case"], case["strategy"]) for case in found["cases"]] == [(name, strategy) for name in names]
    assert all(case["same_sequence"] and case["accounted"] for case in found["cases"])
    assert found["cases"][-1]["snapshot"]["members"]
    assert found["cases"][3]["killed"] is not None
    assert "killed between DATA and SEQ, was delivered by" in found["cases"][3]["notes"][0]
    assert list(small.iterdir()) == []
    assert answer.err.count("holds") == len(names)


def test_a_table_is_printed_and_a_case_that_is_named_twice_runs_once(motet_command: Shell, small: Path) -> None:
    answer = motet_command("suite", "--case", "one-sender", "--case", "one-sender")
    assert answer.code == 0
    head, *rows = answer.out.splitlines()
    assert head.split() == ["case", "strategy", "members", "verdict", "seconds", "view", "changes", "resent"]
    assert [row.split()[:4] for row in rows[:2]] == [
        ["one-sender", "window", "3", "holds"],
        ["one-sender", "continuous", "4", "holds"],
    ]
    assert sum("one-sender" in row for row in rows) == 2
    assert "All hold" in answer.out


def test_of_a_case_that_fails_journals_and_logs_are_kept(
    motet_command: Shell, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every datagram ten seconds late nothing can become stable in one."""
    monkeypatch.setitem(DEADLINES_S, "local", 1.0)
    late = replace(CASES[0], faults=("delay=10s@*:in",), messages=30)
    monkeypatch.setattr("motet.cli.suite.CASES", (late,))
    answer = motet_command("suite", "--strategy", "window")
    assert answer.code == 1
    assert "one-sender with window FAILS:" in answer.out
    assert "the deadline of 1 s was reached" in answer.out
    assert "waits for" in answer.out
    (kept,) = small.iterdir()
    assert f"Journals and logs are in {kept}" in answer.out
    assert {"member-0", "member-1", "member-2", "m0.log", "m1.log", "m2.log"} <= {path.name for path in kept.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--case", "hope"], "--case hope is unknown; allowed are one-sender, several-senders"),
        (["--strategy", "hope"], "--strategy hope is unknown; allowed are window and continuous"),
        (["--preset", "moon"], "preset = 'moon' is outside what is allowed: local, lan, wan"),
    ],
)
def test_a_mistake_is_answered_in_words(motet_command: Shell, arguments: list[str], words: str) -> None:
    answer = motet_command("suite", *arguments)
    assert answer.code == 2
    assert words in answer.said


def test_the_cases_cover_three_to_five_members_with_both_strategies() -> None:
    for column in range(len(STRATEGIES)):
        assert {case.members[column] for case in CASES} == {3, 4, 5}
    assert len({case.name for case in CASES}) == len(CASES)
