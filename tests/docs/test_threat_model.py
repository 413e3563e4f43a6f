"""The threat model: every row names tests that back it, and each of them exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "design" / "threat-model.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SECTIONS = (
    "Without a key or a token",
    "With a token",
    "With the key",
    "With an old key",
    "On the machine of a member",
)


def rows() -> list[tuple[str, str]]:
    """The heading above each row of a table, and the row."""
    found, heading = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("|") and not line.startswith(("|---", "| who tries")):
            found.append((heading, line))
    return found


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_kind_of_attacker_has_rows() -> None:
    assert list(dict.fromkeys(heading for heading, _ in rows())) == list(SECTIONS)


@pytest.mark.parametrize("row", [pytest.param(row, id=row[:60]) for _, row in rows()])
def test_every_row_names_tests_that_exist(row: str) -> None:
    named = TEST.findall(row.rstrip("| ").rpartition("|")[2])
    assert named, f"no test backs this row: {row}"
    for file, name in named:
        assert (ROOT / file).is_file(), file
        assert name.startswith("test_"), name
        assert name in functions(ROOT / file), f"{file} has no {name}"
