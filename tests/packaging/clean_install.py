"""Tries a wheel as a stranger would: python -m tests.packaging.clean_install [WHEEL]

Makes an empty virtual environment, installs the wheel with the extra `spark` into it from the package index, and runs
what a newcomer runs first. Takes a minute or two, and so is no part of `make test`; `make package` runs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST_STEPS = (
    ("motet", "--version"),
    ("motet", "doctor"),
    ("motet", "sim", "--seed", "1"),
    ("motet", "run", "--members", "2", "--messages", "1000", "--size", "100"),
    ("python", "-c", "import pyspark, pyspark_motet, motet.spark; print('pyspark', pyspark.__version__)"),
)


def newest_wheel() -> Path:
    wheels = sorted((ROOT / "dist").glob("motet-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels:
        sys.exit("there is no wheel in dist; build one first: make package")
    return wheels[-1]


def try_wheel(wheel: Path, home: Path) -> None:
    environment = home / "venv"
    venv.create(environment, with_pip=True)
    tools = environment / "bin"
    subprocess.run([tools / "python", "-m", "pip", "install", "--quiet", f"{wheel}[spark]"], check=True, cwd=home)
    for tool, *arguments in FIRST_STEPS:
        sys.stderr.write(f"$ {tool} {' '.join(arguments)}\n")
        subprocess.run([tools / tool, *arguments], check=True, cwd=home)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        try_wheel(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else newest_wheel(), Path(made))
