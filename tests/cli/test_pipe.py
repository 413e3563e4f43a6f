"""Output that nobody reads any more ends a command quietly, and not with the exit code of a verdict."""

from __future__ import annotations

import os
import subprocess
import sys

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
