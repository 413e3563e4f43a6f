"""Traces of members beside their journals: how often frames had to be sent again, second by second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

SECOND_NS = 1_000_000_000
ENDINGS = (".jsonl", ".arrow", ".parquet")
_SCHEMA = pa.schema([("at_ns", pa.int64()), ("member", pa.string()), ("kind", pa.string()), ("count", pa.int64())])


def find_traces(directories: Sequence[str]) -> list[Path]:
    """Files with "trace" in their names, in the directories, in those below, and beside them."""
    found: set[Path] = set()
    for directory in map(Path, directories):
        if directory.is_dir():
            candidates = [*directory.glob("*trace*"), *directory.glob("*/*trace*"), *directory.glob("../*trace*")]
            found |= {path.resolve() for path in candidates if path.suffix in ENDINGS and path.is_file()}
    return sorted(found)


def retransmissions(paths: Sequence[Path]) -> dict[str, list[tuple[float, float]]]:
    """By member: frames sent again per second, over the seconds since the first event of any trace."""
    tables = [_read(path) for path in paths]
    events = pa.concat_tables(tables) if tables else _SCHEMA.empty_table()
    if not events.num_rows:
        return {}
    start = pc.min(events["at_ns"]).as_py()
    resent = events.filter(pc.equal(events["kind"], "frame_resent"))
    counts: dict[str, dict[int, int]] = {}
    for row in resent.to_pylist():
        line = counts.setdefault(row["member"], {})
        second = (row["at_ns"] - start) // SECOND_NS
        line[second] = line.get(second, 0) + (row["count"] or 1)
    last = (pc.max(events["at_ns"]).as_py() - start) // SECOND_NS
    return {
        member: [(float(second), float(line.get(second, 0))) for second in range(last + 1)]
        for member, line in sorted(counts.items())
    }


def _read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        table = pq.read_table(path)
    elif path.suffix == ".arrow":
        with pa.ipc.open_file(path) as file:
            table = file.read_all()
    else:
        table = pj.read_json(path)
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in _SCHEMA
    ]
    return pa.table(columns, schema=_SCHEMA)
