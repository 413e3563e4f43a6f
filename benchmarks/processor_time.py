"""Processor seconds of this process and of all that it started, the living and the dead: a JVM and its workers, too.

Wall time on a machine that others use says little; processor time says what the work costs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Since they began. Of descendants that were not waited for when they died nothing is known."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            _note(entry, parents, spent)
    return time.process_time() + sum(spent[one] for one in spent if _is_ours(one, parents))


def _note(entry: Path, parents: dict[int, int], spent: dict[int, float]) -> None:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return  # it is gone
    parents[int(entry.name)] = int(fields[1])
    spent[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS  # user, system, and of children that are waited for


def _is_ours(one: int, parents: dict[int, int]) -> bool:
    while one in parents:
        one = parents[one]
        if one == os.getpid():
            return True
    return False
