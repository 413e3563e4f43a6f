"""`motet run`: small groups of real processes, their figures, their verdict, and that nothing is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, plain

TIMEOUT_S = 60.0
MAIN = "from motet.cli.app import main; main()"


def test_a_small_run_as_json_under_loss(motet_command: Shell, tmp_path: Path) -> None:
    out = tmp_path / "run"
    sizes = ("--members", "3", "--senders", "2", "--messages", "2001", "--size", "64")
    answer = motet_command("run", *sizes, "--drop", "0.05", "--snapshot-after", "500", "--out", str(out), "--json")
    summary = json.loads(answer.out)
    assert answer.code == 0, summary
    assert summary["same_sequence"] is True
    assert summary["accounted"] is True
    assert [result["member"] for result in summary["results"]] == ["m0", "m1", "m2"]
    assert [result["stable"] for result in summary["results"]] == [2001] * 3
    assert len({result["digest"] for result in summary["results"]}) == 1
    assert summary["faults"] == ["drop=0.05@*:in"]
    assert sum(result["counters"].get("fault_dropped", 0) for result in summary["results"]) > 0
    assert len(summary["snapshot"]["members"]) == 3
    assert json.loads((out / "result.json").read_text()) == summary
    assert sorted(path.name for path in out.iterdir()) == ["member-0", "member-1", "member-2", "result.json"]


def test_a_small_run_in_the_order_of_each_sender(motet_command: Shell) -> None:
    answer = motet_command("run", "--members", "2", "--senders", "2", "--messages", "300", "--order", "fifo", "--json")
    assert answer.code == 0
    summary = json.loads(answer.out)
    assert summary["same_sequence"] is None
    assert [result["delivered"] for result in summary["results"]] == [300, 300]


@pytest.mark.parametrize("strategy", ["window", "continuous"])
def test_one_by_one_every_message_is_a_frame(motet_command: Shell, strategy: str) -> None:
    sizes = ("--members", "2", "--senders", "2", "--messages", "90")
    answer = motet_command("run", *sizes, "--one-by-one", "--strategy", strategy, "--json")
    summary = json.loads(answer.out)
    assert answer.code == 0, summary
    assert sum(result["counters"]["frame_sent"] for result in summary["results"]) >= 90
    assert [result["counters"]["frame_ordered"] for result in summary["results"]] == [90, 90]


def test_a_snapshot_is_printed_with_what_the_continuous_strategy_retransmits(motet_command: Shell) -> None:
    sizes = ("--members", "2", "--senders", "2", "--messages", "60", "--one-by-one", "--strategy", "continuous")
    answer = motet_command("run", *sizes, "--snapshot-after", "10")
    assert answer.code == 0, answer
    lines = answer.out.splitlines()
    assert sum(line.startswith("Snapshot ") for line in lines) == 1
    names = [line.partition(" position")[0] for line in lines if ": position" in line]
    assert sorted(names) == ["m0:", "m1:"]  # in the order of the view, which either of them may have made
    for part in ("hold-back queue:", "still retransmitted:", "accepted and not sent:"):
        assert sum(line.strip().startswith(part) for line in lines) == 2
    assert sum(line.startswith("in flight:") for line in lines) == 1
    assert "All members have the same stable sequence, by content." in answer.out


def test_at_the_deadline_it_says_who_stood_where(motet_command: Shell) -> None:
    """With every datagram ten seconds late nothing can become stable in one."""
    sizes = ("--members", "2", "--messages", "50", "--delay", "10s", "--deadline", "1s")
    answer = motet_command("run", *sizes)
    assert answer.code == 1
    assert "The run was not completed: the deadline of 1 s was reached." in answer.out
    (standing,) = [line for line in answer.out.splitlines() if line.startswith("m0: view")]
    for part in ("position", "stable", "hold-back queue", "accepted", "waits for"):
        assert part in standing
    assert "Traceback" not in answer.out + answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--members", "2", "--senders", "3"], "--senders 3 is more than --members 2"),
        (["--order", "chaos"], "--order chaos is unknown; allowed are total and fifo"),
        (["--strategy", "hope"], "--strategy hope is unknown; allowed are window and continuous"),
        (["--order", "fifo", "--strategy", "continuous"], "--strategy continuous is for messages in total order"),
        (["--drop", "1.5"], "--drop 1.5 is no share that a run can lose; allowed are 0 to 0.9"),
        (["--messages", "10", "--snapshot-after", "100"], "--snapshot-after 100 never comes: there are only 10"),
        (["--delay", "soon"], "fault 'delay=soon@*:in' cannot be read"),
        (["--deadline", "soon"], "deadline = 'soon' cannot be read"),
        (["--set", "windw_frames=3"], "did you mean window_frames?"),
        (["--preset", "moon"], "preset = 'moon' is outside what is allowed: local, lan, wan"),
    ],
)
def test_a_mistake_is_answered_in_words(motet_command: Shell, arguments: list[str], words: str) -> None:
    answer = motet_command("run", *arguments)
    assert answer.code == 2
    assert words in answer.said


def test_the_journals_of_another_run_are_not_continued(motet_command: Shell, tmp_path: Path) -> None:
    (tmp_path / "member-0").mkdir()
    answer = motet_command("run", "--messages", "10", "--out", str(tmp_path))
    assert answer.code == 2
    assert "already holds the journals of a run, and a run begins with new ones; name another directory" in answer.said
    assert [path.name for path in tmp_path.iterdir()] == ["member-0"]


# What is left when it is disturbed


class Running:
    """The command in a process of its own, with a directory for whatever it makes."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        environment = os.environ | {"TMPDIR": str(directory), "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def members(self) -> list[int]:
        """Processes of members that this run has started."""
        return [pid for pid, words in _processes() if words[1:4] == ["-m", "motet.harness.runs", str(self.process.pid)]]

    def until_there_are(self, members: int) -> None:
        until = time.monotonic() + TIMEOUT_S
        while len(self.members()) < members or not list(self.directory.glob("*/m*.log")):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, plain(out + err)


def _processes() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        yield int(entry.parent.name), words


LONG = ("--members", "3", "--senders", "3", "--messages", "2000000", "--one-by-one", "--drop", "0.3")
on_linux = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")


@on_linux
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, members: int, number: signal.Signals) -> None:
    running = Running(tmp_path, *LONG)
    running.until_there_are(members)
    running.process.send_signal(number)
    code, said = running.end()
    assert code == 128 + number
    assert f"interrupted ({number.name})" in said
    assert "Traceback" not in said
    assert running.members() == []
    assert list(tmp_path.iterdir()) == []


@on_linux
def test_an_interrupted_run_says_where_its_journals_are(tmp_path: Path) -> None:
    made, out = tmp_path / "made", tmp_path / "out"
    made.mkdir()
    running = Running(made, *LONG, "--out", str(out))
    running.until_there_are(3)
    running.process.send_signal(signal.SIGINT)
    code, said = running.end()
    assert code == 128 + signal.SIGINT
    assert f"all members were ended, the journals stay in {out}" in " ".join(said.split())
    assert list(made.iterdir()) == []
    assert any(out.glob("member-*"))


@on_linux
def test_a_member_that_is_killed_ends_the_run_which_says_so(tmp_path: Path) -> None:
    running = Running(tmp_path, *LONG)
    running.until_there_are(3)
    os.kill(running.members()[0], signal.SIGKILL)
    code, said = running.end()
    assert code == 1
    assert "died of SIGKILL" in said
    assert "Traceback" not in said
    assert running.members() == []
    assert list(tmp_path.iterdir()) == []


@on_linux
def test_members_do_not_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    running = Running(tmp_path, *LONG)
    running.until_there_are(3)
    running.process.kill()
    running.process.communicate()
    until = time.monotonic() + TIMEOUT_S
    while running.members():
        assert time.monotonic() < until
        time.sleep(0.02)
