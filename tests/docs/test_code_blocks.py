"""The Python code of README and guide runs as it stands.

The blocks of one page run one after the other and share their names, on one event loop, in an empty directory; `await`
may stand outside of a function, as in `python -m asyncio`. A block that has none runs like a script. A block that
cannot run here says why in a comment before it: `<!-- not run: the reason -->`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks

TIMEOUT_S = 60.0  # a bound for a page that hangs
PAGES = [ROOT / "README.md", DOCS / "index.md", *sorted((DOCS / "guide").glob("*.md"))]
ELSEWHERE = {  # pages whose blocks need more around them than an empty directory
    "log-service.md": "tests/log/service/test_guide.py",
    "testing.md": "tests/testing/test_guide.py",
    "pipeline.md": "tests/spark",
    "spark.md": "tests/spark/test_guide.py",
}
MOST_NOT_RUN = 4


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language.split(" ")[0] == "python"]


def run(page: Path) -> None:
    names: dict[str, Any] = {"__name__": f"docs_{page.stem}"}
    with asyncio.Runner() as runner:
        for block in python_blocks(page):
            if not block.not_run:
                code = "\n" * (block.line - 1) + block.code  # so that a traceback names the line of the page
                made = eval(compile(code, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.iscoroutine(made):
                    runner.run(asyncio.wait_for(made, TIMEOUT_S))


RUN_HERE = [page for page in PAGES if page.name not in ELSEWHERE and python_blocks(page)]


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page)


def test_few_blocks_are_left_out() -> None:
    left_out = [block for page in PAGES for block in python_blocks(page) if block.not_run]
    assert len(left_out) <= MOST_NOT_RUN, [f"{block.page.name}:{block.line}" for block in left_out]


def test_pages_that_are_left_to_others_are_run_by_them() -> None:
    for name, test in ELSEWHERE.items():
        if (DOCS / "guide" / name).exists():
            assert (ROOT / test).exists(), f"{name} is to be run by {test}"
