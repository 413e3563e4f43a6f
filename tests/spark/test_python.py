"""Workers run the driver's interpreter whatever `python3` is on the PATH, unless PYSPARK_PYTHON names another one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from motet.log.journal.synthetic import write_journal
from motet.spark.environment import environment_with, import_path, python_variables, worker_python
from motet.spark.session import _common

PYTHONPATH = "spark.executorEnv.PYTHONPATH"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write_journal(str(tmp_path / "journal"), "orders", 2, senders=1)
    return tmp_path / "journal"


def script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def run_driver(tmp_path: Path, journal: Path, **variables: str) -> str:
    unset = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment = unset | {"PYTHONPATH": os.pathsep.join(["src", "."])} | variables
    command = [sys.executable, "-m", "tests.spark.which_python", str(journal), str(tmp_path / "out")]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_python3_that_stands_first_on_the_path_is_never_started(tmp_path: Path, journal: Path) -> None:
    note = tmp_path / "started"
    other = script(tmp_path / "bin" / "python3", f'echo "$@" >> {shlex.quote(str(note))}', "exit 1")
    path = os.pathsep.join([str(other.parent), os.environ["PATH"]])
    said = run_driver(tmp_path, journal, PATH=path, PYSPARK_DRIVER_PYTHON="jupyter")
    assert said == f"2 rows streamed, functions ran in {sys.executable}\n"
    assert not note.exists(), note.read_text()


def test_a_python_that_the_user_names_runs_the_workers_without_our_path(tmp_path: Path, journal: Path) -> None:
    note = tmp_path / "path"
    log = f'echo "$PYTHONPATH" >> {shlex.quote(str(note))}'
    mine = script(tmp_path / "bin" / "mine", log, f'exec {shlex.quote(sys.executable)} "$@"')
    assert "2 rows streamed" in run_driver(tmp_path, journal, PYSPARK_PYTHON=str(mine))
    paths = {path for line in note.read_text().splitlines() for path in line.split(os.pathsep)}
    assert str(Path(os.__file__).parent) not in paths


def test_workers_import_what_the_driver_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert worker_python() == sys.executable
    assert python_variables() == {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert import_path() == os.pathsep.join(path for path in sys.path if path)
    assert _common("local[1]", "")[PYTHONPATH] == import_path()
    assert PYTHONPATH not in _common("spark://elsewhere:7077", "")


def test_an_interpreter_of_another_directory_gets_no_path_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual environments of one Python link to one file, and have different packages."""
    other = tmp_path / Path(sys.executable).name
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    assert (worker_python(), import_path()) == (str(other), None)
    assert PYTHONPATH not in _common("local[1]", "")
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "gone"))
    assert import_path() is None


def test_the_environment_is_afterwards_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_SET", "before")
    monkeypatch.delenv("MOTET_UNSET", raising=False)
    with environment_with({"MOTET_SET": "inside", "MOTET_UNSET": "inside"}):
        assert (os.environ["MOTET_SET"], os.environ["MOTET_UNSET"]) == ("inside", "inside")
    assert os.environ["MOTET_SET"] == "before"
    assert "MOTET_UNSET" not in os.environ
