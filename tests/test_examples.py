"""Every example runs by itself, ends by itself, and shows what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMEOUT_S = 120  # a bound for one that hangs, not a measure of anything
LAST_LINES = {
    "chat.py": "All three saw this conversation.",
    "leader_duty.py": "Every report was written once.",
    "replicated_counter.py": "All counted the same.",
    "replicated_dict.py": "All 24 seats were sold, each once, under numbers 1 to 24.",
    "request_reply.py": "no answer: bob",
}


def run_example(name: str, *arguments: str, stdin: str = "") -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_left_out() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(LAST_LINES)


@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_example(name: str) -> None:
    shown = run_example(name)
    assert shown.splitlines()[-1].startswith(LAST_LINES[name])


@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_every_example_says_how_to_run_it(name: str) -> None:
    assert f"python examples/{name}" in (EXAMPLES / name).read_text(encoding="utf-8").split('"""')[1]


def test_one_person_can_chat_from_the_keyboard() -> None:
    shown = run_example("chat.py", "--name", "ann", stdin="hello\nis anybody there?\n")
    assert "  1  ann: hello\n  2  ann: is anybody there?\n" in shown
