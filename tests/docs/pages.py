"""What the tests of the documentation share: its pages, their links, headings and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int  # of its first line of code
    language: str
    code: str
    not_run: str  # why, or nothing


def pages() -> list[Path]:
    """Everything that people read, in the repository's root and under docs."""
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        _, _, info, code = found.groups()
        reason = NOT_RUN.search(text[: found.start()])
        line = text.count("\n", 0, found.start(4)) + 1
        yield Block(page, line, info.strip(), code, reason[1] if reason else "")


def prose(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"`[^`\n]*`", "``", FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    return LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """As GitHub names them; mkdocs is asked by its own build."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    made = set()
    for heading in HEADING.findall(text):
        slug = _slug(heading)
        made.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return made | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
