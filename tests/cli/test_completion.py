"""Completion in a shell: commands, their options, and what stands below them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALL = "import sys; sys.argv[0] = 'motet'; from motet.cli.app import main; main()"


def motet(*arguments: str, **environ: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", CALL, *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("motet jour", ["journal"]), ("motet node --jour", ["--journal"]), ("motet journal ver", ["verify"])],
)
def test_what_is_begun_is_completed(typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    found = motet(_MOTET_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1))
    assert found.split() == offered


def test_the_script_is_put_where_the_shell_looks(tmp_path: Path) -> None:
    told = motet("--install-completion", "bash", HOME=str(tmp_path), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert str(script) in told
    assert "_MOTET_COMPLETE" in script.read_text(encoding="utf-8")
