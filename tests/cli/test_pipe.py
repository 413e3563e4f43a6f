"""Output that nobody reads any more ends a command quietly, and not with the exit code of a verdict."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("key",),
        ("node", "--group", "nobody-reads"),
        ("run", "--members", "1", "--messages", "10"),
        ("run", "--members", "1", "--messages", "10", "--json"),
    ],
)
def test_a_closed_pipe_ends_a_command_quietly(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "motet", *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_cannot_be_written_is_an_error_in_words() -> None:
    command = [sys.executable, "-m", "motet", "node", "--group", "full", "--leave-at-end"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, input=b"one\ntwo\n", stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 2
    assert b"the output cannot be written: No space left on device" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_command_that_is_started_without_an_output_runs() -> None:
    command = f"{shlex.quote(sys.executable)} -m motet node --group closed --leave-at-end >&-"
    ended = subprocess.run(["sh", "-c", command], input=b"one\n", stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
