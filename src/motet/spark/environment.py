"""The environment of Spark's processes: which Python its workers run, and which packages they can import.

PySpark takes the interpreter from environment variables alone, in two places. SparkContext reads PYSPARK_PYTHON when it
is made and sends the name with every function. The JVM reads PYSPARK_DRIVER_PYTHON, then PYSPARK_PYTHON, of the
environment that it was started with, and looks for data sources with that. Both fall back to the `python3` of the PATH,
which may be any version. `spark.pyspark.python` is read by spark-submit and by nothing that starts here.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

WORKERS_RUN = "PYSPARK_PYTHON"
DRIVER_RUNS = "PYSPARK_DRIVER_PYTHON"


def worker_python() -> str:
    """The interpreter of this process, unless the user named another one."""
    return os.environ.get(WORKERS_RUN) or sys.executable


def import_path() -> str | None:
    """Our sys.path as a PYTHONPATH for workers; None if they run another interpreter than this process.

    It holds a standard library and compiled packages. An interpreter of another version cannot import those, and one of
    another virtual environment has packages of its own.
    """
    return os.pathsep.join(path for path in sys.path if path) if _is_this_interpreter(worker_python()) else None


def _is_this_interpreter(python: str) -> bool:
    """The same file reached in the same directory: virtual environments link to one file from several directories."""
    found = shutil.which(python)
    return found is not None and _place(found) == _place(sys.executable)


def _place(python: str) -> tuple[Path, Path]:
    return Path(python).parent.resolve(), Path(python).resolve()


def python_variables() -> dict[str, str]:
    """Variables for Spark on this machine. The driver is this process, whatever the user's environment names."""
    return {WORKERS_RUN: worker_python(), DRIVER_RUNS: sys.executable}


@contextmanager
def environment_with(values: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables within the block, and restore the previous values after it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            _restore(name, value)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
