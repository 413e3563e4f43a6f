"""Help is there for every command, with an example."""

from __future__ import annotations

import re

import pytest

from motet.cli.app import COMMANDS
from tests.cli.shell import Shell


def test_the_help_lists_every_command(motet_command: Shell) -> None:
    answer = motet_command("--help")
    assert answer.code == 0
    assert COMMANDS
    for command in COMMANDS:
        assert re.search(rf"^\W*{command}\b", answer.out, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_shows_an_example(motet_command: Shell, command: str) -> None:
    answer = motet_command(command, "--help")
    assert answer.code == 0
    assert "Examples:" in answer.out
    assert re.search(rf"^\s*motet {command} ", answer.out, re.MULTILINE)
