"""Words that the glossary lists as not used stand nowhere in source and documentation.

The list is the last section of docs/glossary.md, which also says how an entry is matched. `ALLOWED` has the few places
where a listed word has its ordinary meaning, each with the text around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

GLOSSARY = DOCS / "glossary.md"
SECTION = "## Words not used here"
ROOTS = ("src", "docs", "examples", "deploy", "README.md", "CONTRIBUTING.md", "SECURITY.md")
KINDS = frozenset({".py", ".md", ".html", ".js", ".css", ".toml", ".yml", ".yaml", ".svg"})
ROW = re.compile(r"^\| (`.+`) \| (.+?) \|$", re.MULTILINE)
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
NAME_OF_TEST = re.compile(r"(?<=::)test_\w+")  # pages name tests, which are not searched
ALLOWED = (  # exactly this text, wherever it stands
    "ZooKeeper",
    'Random(f"torn plan {seed}")',  # the seed of a random generator: another text would draw other worlds
)


@dataclass(frozen=True, slots=True)
class Refused:
    entry: str
    instead: str
    pattern: re.Pattern[str]

    @property
    def first_word(self) -> str:
        return re.split(r"[^A-Za-z]", self.entry)[0].lower()


@cache
def refused() -> tuple[Refused, ...]:
    section = GLOSSARY.read_text(encoding="utf-8").partition(f"\n{SECTION}\n")[2]
    rows = [(re.findall(r"`([^`]+)`", entries), instead) for entries, instead in ROW.findall(section)]
    return tuple(Refused(entry, instead, pattern_of(entry)) for entries, instead in rows for entry in entries)


def pattern_of(entry: str) -> re.Pattern[str]:
    """Matches the entry in a text whose class names were split at their humps."""
    words = re.escape(re.sub(HUMP, "_", entry)).replace(r"\ ", r"(?:[\s_-]|\s+#\s+)+")
    flags = 0 if re.search("[A-Z]", entry) else re.IGNORECASE
    return re.compile(rf"(?<![A-Za-z]){words}s?(?![A-Za-z])", flags)


def offences(text: str) -> Iterator[tuple[int, Refused]]:
    """Lines of a text, and what stands there."""
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    text = NAME_OF_TEST.sub("", text)
    split = HUMP.sub("_", text)
    lowered = split.lower()
    for one in refused():
        if one.first_word not in lowered:  # much faster than to search for each pattern
            continue
        for match in one.pattern.finditer(split):
            yield split.count("\n", 0, match.start()) + 1, one


def files() -> list[Path]:
    roots = [ROOT / name for name in ROOTS if (ROOT / name).exists()]
    found = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*"))]
    return sorted(path for path in found if path.suffix in KINDS and path != GLOSSARY)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_refused_word_stands_in_a_file_or_its_name(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = [(0, one) for _, one in offences(name)] + sorted(offences(path.read_text("utf-8")), key=lambda it: it[0])
    told = [f"{name}:{line}: '{one.entry}': write {one.instead}" for line, one in found]
    assert not told, "\n" + "\n".join(told)


def test_the_list_is_read() -> None:
    assert len(refused()) > 100
    assert {"lane", "tail notice", "class Walk"} <= {one.entry for one in refused()}


@pytest.mark.parametrize(
    "text",
    [
        "the lane is full",
        "LANE_BYTES = 2",
        "self._send_lanes[key]",
        "class LaneFull:",
        "the first\n    # tail notice",
        "is_told = True",
        "class Walk:",
        "def run(surroundings: Surroundings)",
    ],
)
def test_a_refused_word_is_found(text: str) -> None:
    assert list(offences(text))


@pytest.mark.parametrize(
    "text",
    [
        "the hold-back queue",
        "ZooKeeper",
        'Random(f"torn plan {seed}")',  # the seed of a random generator: another text would draw other worlds
        "`tests/x.py::test_it_is_told_once`",
        "the whole log was found",
        "walk the directory",
        "whoever asks is told why",
        "class Walker:",
        "buffers are flushed",
        "the headroom",
        "a lifetime",
    ],
)
def test_ordinary_words_are_welcome(text: str) -> None:
    assert not list(offences(text))
