"""The command as its users meet it: what it prints, what it exits with, and what it says when it is asked wrongly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import motet.cli.sim
from motet import __version__
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.wire.frames import MulticastData
from motet.sim.runner import SCENARIOS
from motet.sim.scenarios.channels import SeedOutcome, run_channels
from tests.cli.shell import Answer, Shell

MOTET = Path(sys.executable).with_name("motet")  # the entry point that an installation makes


@pytest.fixture
def planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that takes every gap for delivered: any lossy world with a multicast shows it."""
    original = MulticastReceiver.data

    def data(self: MulticastReceiver, frame: MulticastData) -> None:
        if frame.seqno > self.window.delivered + 1:
            self.window.advance(frame.seqno - 1)
        original(self, frame)

    monkeypatch.setattr(MulticastReceiver, "data", data)


def in_a_process(*arguments: str) -> Answer:
    """The installed command, over pipes."""
    done = subprocess.run([MOTET, *arguments], capture_output=True, text=True, timeout=60)
    return Answer(done.returncode, done.stdout, done.stderr)


# One seed


def test_one_seed_is_told_in_a_line_with_its_verdict_and_fingerprint(motet_command: Shell) -> None:
    answer = motet_command("sim", "--seed", "1")
    outcome = run_channels(1)
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 1
    assert answer.out.startswith("seed 1 (channels): ok, ")
    assert f"{outcome.stats['delivered']:,} delivered" in answer.out
    assert answer.out.endswith(f"fingerprint {outcome.fingerprint}\n")
    assert answer.err == ""


def test_a_transcript_is_printed_before_the_verdict(motet_command: Shell) -> None:
    answer = motet_command("sim", "--seed", "1", "--transcript")
    *transcript, verdict = answer.out.splitlines()
    assert tuple(transcript) == run_channels(1, with_transcript=True).transcript
    assert verdict.startswith("seed 1 (channels): ok")


def test_one_seed_as_json_is_one_object(motet_command: Shell) -> None:
    answer = motet_command("sim", "--seed", "1", "--json")
    outcome = run_channels(1)
    assert answer.code == 0
    assert json.loads(answer.out) == {
        "seed": 1,
        "ok": True,
        "violations": [],
        "stats": outcome.stats,
        "fingerprint": outcome.fingerprint,
    }


# Many seeds


def test_many_seeds_as_json_are_one_object_and_nothing_else_on_the_output(motet_command: Shell) -> None:
    answer = motet_command("sim", "--seeds", "0:4", "--json", "--workers", "1")
    summary = json.loads(answer.out)
    assert answer.code == 0
    assert summary["scenario"] == "channels"
    assert summary["seeds"] == {"from": 0, "to": 4, "count": 4}
    assert (summary["failed"], summary["failures"]) == (0, [])
    assert summary["totals"]["delivered"] == sum(run_channels(seed).stats["delivered"] for seed in range(4))
    assert summary["seconds"] >= 0
    assert "channels 0:4: 4 of 4" in answer.said  # progress goes to the error stream


def test_many_seeds_are_told_in_a_line(motet_command: Shell) -> None:
    answer = motet_command("sim", "--seeds", "0:2", "--workers", "1")
    assert answer.code == 0
    assert answer.out.startswith("2 seeds of channels: 0 failed, ")
    assert len(answer.out.splitlines()) == 1


def test_several_processes_give_the_same_totals_as_one(motet_command: Shell) -> None:
    """Nine seeds are one more than a process takes at a time."""
    alone = json.loads(motet_command("sim", "--seeds", "0:9", "--json", "--workers", "1").out)
    together = json.loads(in_a_process("sim", "--seeds", "0:9", "--json", "--workers", "2").out)
    assert together["totals"] == alone["totals"]
    assert together["failed"] == 0


# Runs that fail


def first_failing(seeds: range) -> int:
    return next(seed for seed in seeds if not run_channels(seed).is_ok)


@pytest.mark.usefixtures("planted_bug")
def test_a_failing_seed_exits_with_1_and_says_which_rule_was_broken(motet_command: Shell) -> None:
    seed = first_failing(range(20))
    answer = motet_command("sim", "--seed", str(seed))
    assert answer.code == 1
    assert f"seed {seed} (channels): FAILED" in answer.out
    assert re.search(r"^  (fifo|liveness): .+", answer.out, re.MULTILINE)


@pytest.mark.usefixtures("planted_bug")
def test_the_transcript_of_a_failing_seed_ends_with_its_violations(motet_command: Shell) -> None:
    seed = first_failing(range(20))
    answer = motet_command("sim", "--seed", str(seed), "--transcript")
    *_, last, verdict = answer.out.splitlines()
    assert answer.code == 1
    assert last.startswith("VIOLATION ")
    assert "FAILED" in verdict


@pytest.mark.usefixtures("planted_bug")
def test_a_failing_range_exits_with_1_and_names_each_seed_and_how_to_replay_it(motet_command: Shell) -> None:
    seed = first_failing(range(20))
    answer = motet_command("sim", "--seeds", f"{seed}:{seed + 1}", "--workers", "1")
    assert answer.code == 1
    assert "1 seeds of channels: 1 failed" in answer.out
    assert f"  seed {seed}: " in answer.out
    (command,) = re.findall(r"replay: motet (.+)", answer.out)
    replay = motet_command(*command.split())
    assert replay.code == 1
    assert f"seed {seed} (channels): FAILED" in replay.out
    assert len(replay.out.splitlines()) > 100  # and it is the transcript that the command shows


@pytest.mark.usefixtures("planted_bug")
def test_a_failing_range_as_json_lists_the_failures(motet_command: Shell) -> None:
    seed = first_failing(range(20))
    answer = motet_command("sim", "--seeds", f"{seed}:{seed + 1}", "--workers", "1", "--json")
    summary = json.loads(answer.out)
    (failure,) = summary["failures"]
    assert (answer.code, summary["failed"]) == (1, 1)
    assert (failure["seed"], failure["ok"]) == (seed, False)
    assert failure["violations"]
    assert failure["replay"] == f"motet sim --seed {seed} --scenario channels --transcript"


def break_the_simulation(seed: int, *, with_transcript: bool = False) -> SeedOutcome:
    raise RuntimeError(f"the simulation of seed {seed} broke")


@pytest.mark.parametrize("options", [(), ("--transcript",), ("--json",)], ids=["plain", "transcript", "json"])
def test_an_exception_inside_a_run_is_a_finding_and_is_shown(
    motet_command: Shell, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setitem(SCENARIOS, "channels", break_the_simulation)
    answer = motet_command("sim", "--seed", "7", *options)
    assert answer.code == 1
    assert "exception: " in answer.out
    assert "the simulation of seed 7 broke" in answer.out


# Asked wrongly

WRONG: list[tuple[list[str], str]] = [
    (["--seeds", "10"], "--seeds 10 is not a range; write FROM:TO with FROM below TO, for example 0:1000"),
    (["--seeds", "5:5"], "--seeds 5:5 is not a range; write FROM:TO"),
    (["--seeds", "9:3"], "--seeds 9:3 is not a range; write FROM:TO"),
    (["--seeds", "a:b"], "--seeds a:b is not a range; write FROM:TO"),
    (["--seeds", ":5"], "--seeds :5 is not a range; write FROM:TO"),
    (["--seeds", "all"], "channels has a world for every number; say which: --seeds FROM:TO"),
    (["--seeds", "1:2:3"], "--seeds 1:2:3 is not a range; write FROM:TO"),
    (["--seed", "1", "--scenario", "nope"], "there is no scenario 'nope'; there are: busy, channels"),
    (["--seeds", "0:2", "--scenario", "nope"], "there is no scenario 'nope'; there are: busy, channels"),
    (["--seed", "1", "--seeds", "0:2"], "give either --seed S or --seeds FROM:TO"),
    ([], "give either --seed S or --seeds FROM:TO (or --demo for a first impression)"),
    (["--seeds", "0:2", "--transcript"], "--transcript goes with --seed"),
    (["--seed", "one"], "Invalid value for '--seed'"),
    (["--seed", "-1"], "Invalid value for '--seed'"),
    (["--seed", "1", "--workers", "-1"], "Invalid value for '--workers'"),
    (["--sed", "1"], "No such option: --sed"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG, ids=lambda value: " ".join(value) or "nothing")
def test_a_wrong_question_exits_with_2_and_says_what_to_do(
    motet_command: Shell, arguments: list[str], sentence: str
) -> None:
    answer = motet_command("sim", *arguments)
    assert answer.code == 2
    assert sentence in answer.said
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_the_installed_command_answers_a_wrong_question_with_one_sentence() -> None:
    answer = in_a_process("sim", "--seeds", "0:2", "--scenario", "nope")
    names = (
        "busy, channels, interrupted, membership, membership-100, presets, small-world, snapshot, state, total-order"
    )
    assert answer == Answer(2, "", f"motet: there is no scenario 'nope'; there are: {names}\n")


def test_an_unknown_command_exits_with_2(motet_command: Shell) -> None:
    answer = motet_command("sing")
    assert answer.code == 2
    assert "No such command 'sing'" in answer.said
    assert "Traceback" not in answer.err


# Help and version


def test_the_version_is_printed(motet_command: Shell) -> None:
    assert motet_command("--version") == Answer(0, f"motet {__version__}\n", "")


def test_the_examples_in_the_help_are_commands_that_parse(
    motet_command: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(motet.cli.sim, "_one", lambda *_: 0)
    monkeypatch.setattr(motet.cli.sim, "_many", lambda *_: 0)
    examples = re.findall(r"^ *motet (sim .+?)  +", motet.cli.sim.EXAMPLES, re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        assert motet_command(*example.split()).code == 0, example


# The demo


def demo_over_a_pipe(seeds: int) -> Answer:
    """The whole command in a process of its own; only the number of worlds is cut down, for the sake of time."""
    script = f"import motet.cli.sim as s; s.DEMO_SEEDS = range({seeds}); from motet.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "sim", "--demo", "--workers", "1"],
        env={name: value for name, value in os.environ.items() if name != "FORCE_COLOR"} | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def test_the_demo_works_over_a_pipe() -> None:
    answer = demo_over_a_pipe(6)
    assert answer.code == 0
    assert "6 worlds (every fifth is shown): 6 passed, 0 failed." in answer.out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in answer.out.splitlines() if "│" in line]
    assert [(row[0], row[-1]) for row in rows] == [("0", "ok"), ("5", "ok")]
    assert "motet sim --seed 15 --transcript" in answer.out
    assert "\x1b" not in answer.out + answer.err  # no colours and no moving bar where nobody sees them
    assert "drawing and running worlds: 6 of 6" in answer.err


@pytest.mark.usefixtures("planted_bug")
def test_the_demo_exits_with_1_when_a_world_fails(motet_command: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = first_failing(range(20))
    monkeypatch.setattr(motet.cli.sim, "DEMO_SEEDS", range(seed, seed + 1))
    answer = motet_command("sim", "--demo", "--workers", "1")
    assert answer.code == 1
    assert "0 passed, 1 failed" in answer.out


def test_a_reader_that_has_seen_enough_causes_no_traceback() -> None:
    with subprocess.Popen(
        [MOTET, "sim", "--seed", "1", "--transcript"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("seed 1: ")
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("end", ["jsonl", "arrow", "parquet"])
def test_a_trace_is_written(motet_command: Shell, tmp_path: Path, end: str) -> None:
    file = tmp_path / f"trace.{end}"
    answer = motet_command("sim", "--seed", "3", "--trace", str(file))
    assert (answer.code, answer.out) == (0, motet_command("sim", "--seed", "3").out)
    assert file.stat().st_size > 1_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", "0:3", "--trace", "t.jsonl"), "--trace goes with --seed"),
        (("--seed", "3", "--trace", "t.csv"), "has no known format; its name must end in .jsonl, .arrow or .parquet"),
        (("--demo", "--trace", "t.jsonl"), "--demo excludes other options"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused(motet_command: Shell, options: tuple[str, ...], message: str) -> None:
    answer = motet_command("sim", *options)
    assert answer.code == 2
    assert message in answer.err
