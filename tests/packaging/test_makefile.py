"""`make` with a Python that is missing, unsupported, or another one than built the environment: it says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="there is no make here")


FAKE = """#!/bin/sh
case "$*" in
    --version) echo Python {version} ;;
    -c*) echo {short} ;;
    "-m venv"*) mkdir -p "$4/bin" && for tool in python ruff mypy; do cp "$0" "$4/bin/$tool"; done ;;
    *pytest*) {tests} ;;
esac
"""


def make(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A dry run or one that fails at once: nothing is installed."""
    unset = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")}
    command = ["make", f"VENV={tmp_path / 'venv'}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=unset, capture_output=True, text=True, check=False)


def python(path: Path, version: str, tests: str = "true") -> Path:
    """Something that answers like a Python of this version, and copies itself where an environment is wanted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FAKE.format(version=version, short=version.rpartition(".")[0], tests=tests))
    path.chmod(0o755)
    return path


def built_with(tmp_path: Path, version: str) -> None:
    python(tmp_path / "venv" / "bin" / "python", version)
    (tmp_path / "venv" / ".stamp").touch()


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    done = make(tmp_path, "PYTHON=python9.9", "venv")
    assert done.returncode != 0
    assert "There is no 'python9.9' here that runs. Motet supports Python 3.11 3.12 3.13; name one:" in done.stderr


@pytest.mark.parametrize("version", ["3.10.13", "3.14.0"])
def test_a_python_that_is_not_supported(tmp_path: Path, version: str) -> None:
    done = make(tmp_path, f"PYTHON={python(tmp_path / 'python', version)}", "venv")
    assert done.returncode != 0
    assert f"is Python {version}. Name one: make PYTHON=python3.12 venv" in done.stderr


def test_an_environment_of_another_python_is_built_again_if_one_is_asked_for(tmp_path: Path) -> None:
    built_with(tmp_path, "3.11.7")
    other, same = python(tmp_path / "other", "3.13.0"), python(tmp_path / "same", "3.11.2")
    assert f'{other}" -m venv --clear {tmp_path / "venv"}' in make(tmp_path, "-n", f"PYTHON={other}", "venv").stdout
    for arguments in (["venv"], [f"PYTHON={same}", "venv"]):
        assert "Nothing to be done" in make(tmp_path, "-n", *arguments).stdout


def test_the_versions_are_those_that_the_package_claims() -> None:
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("SUPPORTED := ")]
    project = (ROOT / "pyproject.toml").read_text()
    claimed = [part.split('"')[0] for part in project.split("Programming Language :: Python :: ") if part[:2] == "3."]
    assert line.split()[2:] == claimed


def test_all_supported_pythons_are_tried_and_each_outcome_is_reported(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("make", "sh", "mkdir", "cp", "touch"):
        (tools / name).symlink_to(str(shutil.which(name)))
    python(tools / "python3.11", "3.11.7")
    python(tools / "python3.13", "3.13.0", tests="false")
    done = subprocess.run(
        ["make", "test-all"], cwd=tmp_path, env={"PATH": str(tools)}, capture_output=True, text=True, check=False
    )
    assert "Python: passed with 3.11; failed with 3.13; not found: 3.12" in done.stdout, done.stdout + done.stderr
    assert done.returncode != 0
    assert "Python 3.11.7, in .venv-3.11" in done.stdout
