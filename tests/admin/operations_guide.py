"""Writes the tables of counters into the operations guide: python -m tests.admin.operations_guide"""

from __future__ import annotations

from pathlib import Path

from motet.protocol.core.counters import Count, Nature

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "operations.md"
BEGIN = "<!-- counters: written by `python -m tests.admin.operations_guide` -->\n"
END = "<!-- end of counters -->\n"
WHEN_IT_GROWS = {
    Nature.WORK: "**work**: grows with the traffic.",
    Nature.REPAIR: "**repair**: normal where datagrams are lost, duplicated or reordered.",
    Nature.CHANGE: "**change**: normal when members join, leave or merge, or when faults are injected.",
    Nature.REJECTED: "**rejected**: a few around a restart are normal; investigate one that keeps growing.",
}


def with_tables(guide: str) -> str:
    head, _, rest = guide.partition(BEGIN)
    return head + BEGIN + "\n".join(table(nature) for nature in Nature) + END + rest.partition(END)[2]


def table(nature: Nature) -> str:
    rows = [f"| `{count}` | {count.meaning} |" for count in Count if count.nature is nature]
    return "\n".join([WHEN_IT_GROWS[nature], "", "| counter | meaning |", "|---|---|", *rows, ""])


if __name__ == "__main__":
    GUIDE.write_text(with_tables(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
