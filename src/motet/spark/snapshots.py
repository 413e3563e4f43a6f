"""Snapshots beside the journals: is each of them a consistent cut?

Nothing that somebody had delivered by its cut may have been sent after its sender's cut. Both times are in the files,
by the same clock: the sender's time of sending in the log, and the moment at which it recorded its state in the
snapshot. What is in flight or waiting is the simulator's to check, which knows everything that was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from motet.spark.guarantees import SNAPSHOTS
from motet.spark.inputs import SNAPSHOT_FILES, MemberInput, read_positions
from motet.spark.verdict import Finding

LOOKED_BACK = 200_000  # positions before the cut in which the latest message of each sender is looked for


def find_snapshots(directories: Sequence[str]) -> list[Path]:
    found: set[Path] = set()
    for directory in map(Path, directories):
        for pattern in (
            SNAPSHOT_FILES,
            f"*/{SNAPSHOT_FILES}",
            f"../{SNAPSHOT_FILES}",
            f"../snapshots/{SNAPSHOT_FILES}",
        ):
            found |= {path.resolve() for path in directory.glob(pattern)} if directory.is_dir() else set()
    return sorted(found)


def snapshot_findings(paths: Sequence[Path], members: Sequence[MemberInput]) -> Iterator[Finding]:
    for path in paths:
        table = pq.read_table(path, columns=["kind", "member", "position", "stable", "recorded_at"])
        cuts = [row for row in table.to_pylist() if row["kind"] == "member" and row["position"] is not None]
        yield from _beyond_itself(cuts, path)
        yield from _sent_later(cuts, path, members)


def _beyond_itself(cuts: Sequence[dict[str, Any]], path: Path) -> Iterator[Finding]:
    for cut in cuts:
        if (cut["stable"] or 0) > cut["position"]:
            name, at = cut["member"].partition("#")[0], cut["position"] + 1
            expected, found = f"nothing stable behind its cut at {cut['position']}", f"stable to {cut['stable']}"
            yield Finding(SNAPSHOTS, name, at, "not consistent", expected, found, where=str(path))


def _sent_later(cuts: Sequence[dict[str, Any]], path: Path, members: Sequence[MemberInput]) -> Iterator[Finding]:
    if not cuts:
        return
    furthest = max(cuts, key=lambda cut: cut["position"])
    recorded = {cut["member"]: cut["recorded_at"] for cut in cuts}
    rows = _rows_before(furthest["position"], members)
    if rows is None:
        return
    for sender, recorded_at in sorted(recorded.items()):
        later = rows.filter(pc.and_(pc.equal(rows["sender"], sender), pc.greater(rows["sent_at"], recorded_at)))
        if later.num_rows and recorded_at is not None:
            position, sent_at = later["position"][0].as_py(), later["sent_at"][0].as_py()
            expected = f"messages of {sender} sent until {recorded_at.isoformat()}, its own cut"
            found = f"one sent {sent_at.isoformat()} within the cut of {furthest['member']}"
            name = furthest["member"].partition("#")[0]
            yield Finding(SNAPSHOTS, name, position, "not consistent", expected, found, where=str(path))


def _rows_before(position: int, members: Sequence[MemberInput]) -> pa.Table | None:
    """The last rows up to a position, of a journal that has it."""
    first = max(1, position - LOOKED_BACK)
    for member in members:
        pieces = [piece for piece in member.pieces if piece.first <= position and piece.last >= first]
        if pieces and max(piece.last for piece in pieces) >= position:
            batches = [batch for piece in pieces for batch in read_positions(piece, first, position)]
            tables = [pa.Table.from_batches([batch]).select(["position", "sender", "sent_at"]) for batch in batches]
            plain = [table.set_column(1, "sender", table["sender"].cast(pa.string())) for table in tables]
            return pa.concat_tables(plain).sort_by("position") if plain else None
    return None
