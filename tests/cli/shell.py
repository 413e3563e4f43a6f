"""The entry point, run in the process of the test."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import pytest

from motet.cli.app import main


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What stands on the error stream, as one line: a terminal may have folded it anywhere."""
        return " ".join(self.err.split())


def plain(text: str) -> str:
    """Without the colours that some environments force on us."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


class Shell:
    """Runs the entry point in this process, so that a test can plant something first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Answer:
        self._monkeypatch.setattr(sys, "argv", ["motet", *arguments])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = self._capsys.readouterr()
        code = exit_info.value.code
        return Answer(code if isinstance(code, int) else 0, plain(captured.out), plain(captured.err))
