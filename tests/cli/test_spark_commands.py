"""`motet audit`, `pipeline` and `campaign` before any JVM is started: help, and input that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from motet.cli.app import app
from motet.errors import MotetError


@pytest.mark.parametrize("command", ["audit", "pipeline", "campaign"])
def test_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"motet {command}" in result.output
    assert "Examples" in result.output


@pytest.mark.parametrize("arguments", [["audit"], ["pipeline", "--out", "lake"]])
def test_a_directory_without_journals_is_refused_at_once(arguments: list[str], tmp_path: Path) -> None:
    """`main` turns the error into one sentence and exit code 2."""
    result = CliRunner().invoke(app, [*arguments, str(tmp_path), str(tmp_path / "gone")])
    assert isinstance(result.exception, MotetError)
    assert "has neither segments (*.seg) nor Parquet files" in str(result.exception)
    assert f"{tmp_path / 'gone'} does not exist" in str(result.exception)
