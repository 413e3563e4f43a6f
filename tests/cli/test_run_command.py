"""`motet run`: a small group of real processes, its figures, and its verdict."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from motet.cli.run import Result, Work, _print, _report, brief, brief_time
from tests.cli.shell import Shell


def test_a_small_run_as_json_under_loss(motet_command: Shell, tmp_path: Path) -> None:
    out = tmp_path / "run"
    sizes = ("--members", "3", "--senders", "2", "--messages", "2001", "--size", "64")
    answer = motet_command("run", *sizes, "--drop", "0.05", "--snapshot-after", "500", "--out", str(out), "--json")
    assert answer.code == 0
    summary = json.loads(answer.out)
    assert summary["same_sequence"] is True
    assert [result["member"] for result in summary["results"]] == ["m0", "m1", "m2"]
    assert [result["delivered"] for result in summary["results"]] == [2001] * 3
    assert len({result["sequence"] for result in summary["results"]}) == 1
    assert sum(result["counters"].get("fault_dropped", 0) for result in summary["results"]) > 0
    assert summary["results"][0]["snapshot"]["members"] == 3
    assert json.loads((out / "result.json").read_text()) == summary
    assert sorted(path.name for path in out.iterdir()) == ["member-0", "member-1", "member-2", "result.json"]


def test_a_small_run_in_the_order_of_each_sender(motet_command: Shell) -> None:
    answer = motet_command("run", "--members", "2", "--senders", "2", "--messages", "300", "--order", "fifo", "--json")
    assert answer.code == 0
    summary = json.loads(answer.out)
    assert summary["same_sequence"] is None
    assert [result["delivered"] for result in summary["results"]] == [300, 300]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--members", "2", "--senders", "3"], "--senders 3 is more than --members 2"),
        (["--order", "chaos"], "--order chaos is unknown; allowed are total and fifo"),
        (["--delay", "soon"], "fault 'delay=soon' cannot be read"),
        (["--set", "windw_frames=3"], "did you mean window_frames?"),
        (["--preset", "moon"], "preset = 'moon' is outside what is allowed: local, lan, wan"),
    ],
)
def test_a_mistake_is_answered_in_words(motet_command: Shell, arguments: list[str], words: str) -> None:
    answer = motet_command("run", *arguments)
    assert answer.code == 2
    assert words in answer.said


WORK = Work(0, 3, 1, 100_000_000, 1000, "total", (), (), (), None, 0)


def result(member: str, sequence: str = "same") -> Result:
    latency = {"median_us": 123_456.7, "p99_us": 1_234_567.8}
    counters = {"frame_resent": 123_456_789}
    return Result(member, 100_000_000, 222.2, sequence, latency, 1234.56, 12_345.6, None, counters)


def test_the_table_fits_into_80_columns() -> None:
    out = io.StringIO()
    _print(WORK, [result("m0"), result("m1"), Result("m2")], True, None, Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.strip().startswith("m0")]
    assert " ".join(row.split()) == "m0 100,000,000 0.45 M 450.0 123 ms 1235 ms 1234.56 12346 123 M"
    assert "…" not in out.getvalue()
    assert "All members delivered the same sequence." in out.getvalue()


def test_logs_that_differ_are_told_and_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert _report(WORK, [result("m0"), result("m1", "other")], None, False) == 1
    assert "The logs DIFFER." in capsys.readouterr().out


def test_figures_are_brief() -> None:
    assert [brief(number) for number in (0, 7, 9_999, 12_345, 434_000, 1e7, 1e9)] == [
        *("0", "7", "9,999", "0.01 M", "0.43 M", "10.00 M", "1,000 M"),
    ]
    assert [brief_time(us) for us in (12.3, 1_860, 186_300, 12_000_000)] == ["0.01 ms", "1.86 ms", "186 ms", "12.0 s"]
