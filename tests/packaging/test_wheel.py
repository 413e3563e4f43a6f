"""What is packed: everything that a user needs, and nothing else."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = (".html", ".css", ".js", ".properties", ".typed")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the sdist, built as `pip` and `python -m build` would, without a package index."""
    out = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return out


@pytest.fixture
def wheel(packages: Path) -> Iterator[zipfile.ZipFile]:
    (path,) = packages.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def content(wheel: zipfile.ZipFile, ending: str) -> str:
    (name,) = [name for name in wheel.namelist() if name.endswith(ending)]
    return wheel.read(name).decode()


def test_every_module_and_every_file_beside_them_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", *DATA)]
    wanted = {str(path.relative_to(ROOT / "src")) for path in sources if "__pycache__" not in path.parts}
    assert {"motet/py.typed", "motet/admin/dashboard.html", "pyspark_motet/__init__.py"} <= wanted
    assert wanted <= set(wheel.namelist())


def test_nothing_else_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"motet", "pyspark_motet"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_the_metadata_tells_what_it_is(wheel: zipfile.ZipFile) -> None:
    about = email.message_from_string(content(wheel, "METADATA"))
    assert about["Name"] == "motet"
    assert about["Requires-Python"] == ">=3.11"
    assert about["License-Expression"] == "Apache-2.0"
    assert {"spark", "spark-jvm", "dev"} <= set(about.get_all("Provides-Extra", []))
    assert "motet = motet.cli.app:main" in content(wheel, "entry_points.txt")
    assert not [line for line in about.get_all("Requires-Dist", []) if "pyspark" in line and "extra" not in line]


def test_the_sdist_can_be_tested_and_built(packages: Path) -> None:
    (path,) = packages.glob("*.tar.gz")
    with tarfile.open(path) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "mkdocs.yml", "deploy/Containerfile"}
    assert wanted <= names
    assert {"docs/index.md", "tests/packaging/test_wheel.py"} <= names
    assert not [name for name in names if name.startswith((".venv", "build", "dist"))]
