"""The map names functions and files that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import DOCS, ROOT, blocks

PAGE = DOCS / "design" / "overview.md"
SOURCE = ROOT / "src" / "motet"
BOX = re.compile(r'\["([\w.]+)<br/>([\w/]+\.py)"\]')
NODE = re.compile(r'\["[^"]*<br/>')
DIAGRAMS = [block for block in blocks(PAGE) if block.language == "mermaid"]
BOXES = [box for diagram in DIAGRAMS for box in BOX.findall(diagram.code)]
PATH = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|js))?)`|`([a-z_]+(?:/[a-z_]+)+)`")


@cache
def functions(file: str) -> frozenset[str]:
    """`function`, and `Class.method`, of one file."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for one in tree.body:
        if isinstance(one, ast.ClassDef):
            methods = (node for node in one.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{one.name}.{node.name}" for node in methods}
    return frozenset(found)


def test_there_are_three_walks_and_each_box_is_read() -> None:
    assert len(DIAGRAMS) == 3
    assert [len(BOX.findall(diagram.code)) for diagram in DIAGRAMS] == [
        len(NODE.findall(diagram.code)) for diagram in DIAGRAMS
    ]


@pytest.mark.parametrize(("name", "file"), sorted(set(BOXES)))
def test_a_function_of_a_walk_exists(name: str, file: str) -> None:
    assert (SOURCE / file).is_file(), f"docs/design/overview.md names {file}, which does not exist"
    assert name in functions(file), f"docs/design/overview.md names {name}, and {file} has no such function"


def paths() -> set[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## Where do I change")[2].partition("\n## ")[0]
    table = PAGE.read_text(encoding="utf-8").partition("## Packages")[2].partition("\n## ")[0]
    return {"".join(found) for text in (section, table) for found in PATH.findall(text)}


@pytest.mark.parametrize("path", sorted(paths()))
def test_a_path_of_the_map_exists(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists(), f"docs/design/overview.md names {path}"
