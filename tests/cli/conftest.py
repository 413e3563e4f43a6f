"""What all tests of commands share."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def motet_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("COLUMNS", "120")
    return Shell(monkeypatch, capsys)
