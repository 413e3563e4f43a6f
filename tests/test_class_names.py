"""One name, one class: a name in two files has two meanings, and a reader has to find out which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "motet"

# What users see of an effect of the protocol has the effect's name, and is a class of its own in api/events.py.
EVENTS = {"RolledBack", "SendFailed", "StableAdvanced", "StateLost", "StateRefused", "ViewInstalled"}


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(file.relative_to(PACKAGE).as_posix())
    shared = {name: files for name, files in places.items() if len(files) > 1}
    assert {name for name, files in shared.items() if "api/events.py" in files} == EVENTS
    assert set(shared) == EVENTS, {name: files for name, files in shared.items() if name not in EVENTS}
