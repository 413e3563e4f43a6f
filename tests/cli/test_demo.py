"""`motet demo` as a person runs it: the short form with everything in it, and every way to break it off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import motet
from motet.cli.app import main
from motet.cli.demo import _why_no_spark
from motet.harness.demo.evaluation import AUDIT, HELD, NOT_SHOWN, TABLE
from motet.harness.demo.ingest import MOST_FAILURES
from motet.harness.demo.plan import NAMES

TIMEOUT_S = 300.0  # a bound for a test that hangs, not a measure of anything
MARK = "MOTET_TEST_OF_DEMO"
PACKAGES = str(Path(motet.__file__).parents[1])

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@contextmanager
def demo(tmp_path: Path, *options: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The command, with a mark in its environment by which all its descendants are known."""
    command = [sys.executable, "-m", "motet", "demo", "--out", str(tmp_path / "out"), *options]
    environment = os.environ | {MARK: str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": PACKAGES} | variables
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=tmp_path
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text!r} never came; it said:\n{''.join(lines)}")


def descendants(tmp_path: Path) -> list[str]:
    """Processes that live and have the mark; one that ends while we look is none."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"{MARK}={tmp_path}\0".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [command for command in found if command]


def assert_nothing_lives(tmp_path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while alive := descendants(tmp_path):
        assert time.monotonic() < deadline, f"these outlived the demo: {alive}"
        time.sleep(0.05)


@only_linux
@pytest.mark.xdist_group("spark")  # it has a Spark of its own, and two at once are slow
def test_the_whole_story_in_its_short_form(tmp_path: Path) -> None:
    with demo(tmp_path, "--quick") as process:
        story = process.communicate()[0]
    out = tmp_path / "out"
    assert process.returncode == 0, story
    verdict = json.loads((out / "verdict.json").read_text())
    states = {promise["name"]: promise["state"] for promise in verdict["promises"]}
    with_spark = not _why_no_spark()
    assert {name for name, state in states.items() if state != HELD} == (set() if with_spark else {TABLE, AUDIT}), story
    for number in range(1, 11):
        assert f"== {number}. " in story
    assert sorted(path.name for path in (out / "journals").iterdir()) == sorted(NAMES)
    if with_spark:
        assert "Motet demo: the audit" in (out / "report.html").read_text()
        assert pq.read_table(out / "table").num_rows > 0
        assert "The report, with plots, for your browser:" in story
    assert not (out / "scratch").exists()
    assert_nothing_lives(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "temporary files were left"


@only_linux
@pytest.mark.parametrize("act", ["== 1.", "== 4."])
def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path, act: str) -> None:
    with demo(tmp_path, "--quick", "--no-spark") as process:
        read_until(process, act)
        assert len(descendants(tmp_path)) >= 1
        process.send_signal(signal.SIGINT)
        rest = process.communicate()[0]
    assert process.returncode == 130, rest
    assert "Interrupted. All processes are ended and the files are removed" in rest
    assert "Traceback" not in rest
    assert_nothing_lives(tmp_path)
    assert list(tmp_path.iterdir()) == []


@only_linux
def test_members_do_not_outlive_a_demo_that_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--quick", "--no-spark") as process:
        read_until(process, "== 3.")
        commands = descendants(tmp_path)
        assert [sum(f'"name": "{name}"' in command for command in commands) for name in NAMES] == [1] * len(NAMES)
        assert any("busy_process" in command for command in commands), "members have liveness processes, too"
        process.kill()
    assert_nothing_lives(tmp_path)


@only_linux
def test_a_member_that_dies_by_itself_ends_the_demo_with_its_last_words(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--no-spark") as process:
        read_until(process, "== 2.")
        (victim,) = [entry for entry in Path("/proc").iterdir() if _is_player(entry, tmp_path, "dan")]
        os.kill(int(victim.name), signal.SIGKILL)
        rest = process.communicate()[0]
    assert process.returncode == 2
    failure = json.loads((tmp_path / "out" / "verdict.json").read_text())["failure"]
    assert failure["act"].startswith("2. ")
    assert failure["reason"].startswith(f"dan ended unexpectedly (exit code {-signal.SIGKILL}).")
    assert f"The demo could not go on. Act {failure['act']}: dan ended unexpectedly" in rest
    assert f"Its log: {tmp_path / 'out' / 'logs' / 'dan.log'}" in rest
    assert_nothing_lives(tmp_path)


@only_linux
def test_an_act_that_does_not_finish_in_time_ends_the_demo_with_a_verdict(tmp_path: Path) -> None:
    """No process starts within a tenth of a second, so the first act cannot finish."""
    with demo(tmp_path, "--quick", "--no-spark", "--deadline", "0.1") as process:
        story = process.communicate()[0]
    assert process.returncode == 2, story
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert not verdict["ok"]
    assert {promise["state"] for promise in verdict["promises"]} == {NOT_SHOWN}
    assert "it did not finish within 0.1 s, which --deadline sets. It waited until ada has started." in story
    assert f"Its log: {tmp_path / 'out' / 'logs' / 'ada.log'}" in story
    assert_nothing_lives(tmp_path)


@only_linux
@pytest.mark.skipif(bool(_why_no_spark()), reason="Spark cannot run here")
@pytest.mark.xdist_group("spark")
def test_a_query_whose_workers_always_die_ends_the_demo_and_shows_the_cause(tmp_path: Path) -> None:
    """The query was started again for ever when the workers ran a Python that could not import our packages."""
    worker = tmp_path / "python-that-fails"
    worker.write_text("#!/bin/sh\necho SyntaxError: from this worker >&2\nexit 1\n")
    worker.chmod(0o755)
    with demo(tmp_path, "--quick", PYSPARK_PYTHON=str(worker)) as process:
        story = process.communicate()[0]
    assert process.returncode == 2, story
    failure = json.loads((tmp_path / "out" / "verdict.json").read_text())["failure"]
    assert f"spark gave up: its query failed {MOST_FAILURES} times in a row" in failure["reason"]
    assert "SyntaxError: from this worker" in failure["reason"]
    assert failure["log"] == str(tmp_path / "out" / "logs" / "spark.log")
    assert failure["reason"] in story
    assert_nothing_lives(tmp_path)


@only_linux
@pytest.mark.skipif(bool(_why_no_spark()), reason="Spark cannot run here")
@pytest.mark.xdist_group("spark")
def test_ctrl_c_also_ends_spark_and_its_workers(tmp_path: Path) -> None:
    with demo(tmp_path, "--quick") as process:
        read_until(process, "A Spark streaming query now copies the log")
        assert any("pyspark" in command for command in descendants(tmp_path))
        process.send_signal(signal.SIGINT)
        rest = process.communicate()[0]
    assert process.returncode == 130, rest
    assert_nothing_lives(tmp_path)
    assert list(tmp_path.iterdir()) == []


def _is_player(entry: Path, tmp_path: Path, name: str) -> bool:
    try:
        command = (entry / "cmdline").read_text()
    except OSError:
        return False
    return f'"name": "{name}"' in command and str(tmp_path) in command


def test_a_directory_that_is_not_empty_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "something").touch()
    monkeypatch.setattr(sys, "argv", ["motet", "demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 2
    assert "is not empty; name a new directory with --out" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_without_java_it_says_what_is_missing_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("motet.spark.java.find_spec", lambda name: None)
    assert "Spark needs Java 17 or newer" in _why_no_spark()
