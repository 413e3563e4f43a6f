"""Reads traces of members beside their journals, for the number of retransmitted frames per second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from motet.audit.inputs import UnusableInputError

SECOND_NS = 1_000_000_000
MOST_SECONDS = 7 * 86_400  # per line in the report; bounds a trace with a corrupt time
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
    """By member: retransmitted frames per second, over the seconds since the first event of any trace."""
    tables = [_read(path) for path in paths]
    events = pa.concat_tables(tables) if tables else _SCHEMA.empty_table()
    events = events.filter(pc.and_(pc.is_valid(events["at_ns"]), pc.is_valid(events["member"])))
    if not events.num_rows:
        return {}
    start = pc.min(events["at_ns"]).as_py()
    resent = events.filter(pc.equal(events["kind"], "frame_resent"))
    counts: dict[str, dict[int, int]] = {}
    for row in resent.to_pylist():
        line = counts.setdefault(row["member"], {})
        second = (row["at_ns"] - start) // SECOND_NS
        line[second] = line.get(second, 0) + (row["count"] or 1)
    last = min(MOST_SECONDS, (pc.max(events["at_ns"]).as_py() - start) // SECOND_NS)
    return {
        member: [(float(second), float(line.get(second, 0))) for second in range(last + 1)]
        for member, line in sorted(counts.items())
    }


def _read(path: Path) -> pa.Table:
    try:
        table = _decoded(path)
        table.validate(full=True)  # a trace is untrusted input, and Arrow does not check its offsets otherwise
        columns = [_column(table, field) for field in _SCHEMA]
    except (pa.ArrowException, OSError) as error:
        raise UnusableInputError(f"{path} cannot be read as a trace ({error}); move it away") from error
    return pa.table(columns, schema=_SCHEMA)


def _decoded(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".arrow":
        with pa.ipc.open_file(path) as file:
            return file.read_all()
    return pj.read_json(path)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name in table.column_names:
        return table[field.name].cast(field.type)
    return pa.nulls(table.num_rows, field.type)
