"""Every link within the documentation leads somewhere, and the pages can be built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, anchors, links, pages

OUTSIDE = ("http://", "https://", "mailto:")


def flaw(page: Path, link: str) -> str:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{link}: there is no {target}"
    if not target.is_relative_to(ROOT):
        return f"{link}: leads out of the repository"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: no heading of {path or page.name} is called that"
    return ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    flaws = [flaw(page, link) for link in links(page) if not link.startswith(OUTSIDE)]
    assert not [text for text in flaws if text]


def test_the_pages_can_be_built(tmp_path: Path) -> None:
    """`make docs`, where every warning is an error: dead links and anchors, names that no module has."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "index.html").is_file()
    for page in DOCS.rglob("*.md"):
        assert (tmp_path / page.relative_to(DOCS).with_suffix(".html")).is_file()


def test_no_page_that_is_built_asks_another_host_for_anything(tmp_path: Path) -> None:
    """Words may link to elsewhere; scripts, styles, fonts and pictures come from here."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in config
    assert "class: mermaid" not in config  # the theme would fetch a script for it
    for page in pages():
        pictures = [link for link in links(page) if link.endswith((".png", ".svg", ".js", ".css"))]
        assert not [link for link in pictures if link.startswith(OUTSIDE)]
