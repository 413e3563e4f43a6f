"""The jobs of an audit: tasks receive splits as paths and return a line per range."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from motet.audit.compare import Neighbour, RowDifference, differences
from motet.audit.digests import KEY_BYTES
from motet.audit.inputs import SEGMENT, InputSplit, MemberInput, boundaries_within, read_positions, read_split
from motet.audit.kernels import summaries
from motet.errors import MotetError
from motet.log.journal.evidence import Facts
from motet.spark.tasks import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE = 4  # more than one, so that the load of the cores evens out
ROWS_PER_TASK = 250_000  # about the least: starting a task takes as long as reading this many rows
MARGIN = 4  # rows of the neighbouring ranges in a comparison: a message moved across the boundary is found there

_LONGS = ("rows", "first_position", "last_position", "first_seqno", "last_seqno")
RANGES_DDL = (
    "member STRING, path STRING, first BIGINT, last BIGINT, rows BIGINT, digest BINARY, "
    "faults ARRAY<STRUCT<check: STRING, kind: STRING, position: BIGINT, expected: STRING, found: STRING>>, "
    "streams ARRAY<STRUCT<view: STRING, sender: STRING, epoch: BIGINT, rows: BIGINT, first_position: BIGINT, "
    "last_position: BIGINT, first_seqno: BIGINT, last_seqno: BIGINT>>, "
    "seconds ARRAY<STRUCT<second: BIGINT, rows: BIGINT, bytes: BIGINT, latency: ARRAY<BIGINT>>>, "
    "error STRING, error_position BIGINT, facts STRING"
)
_FAULT = pa.struct([(name, pa.string()) for name in ("check", "kind")] + [("position", pa.int64())]
                   + [(name, pa.string()) for name in ("expected", "found")])  # fmt: skip
_STREAM = pa.struct([("view", pa.string()), ("sender", pa.string()), ("epoch", pa.int64())]
                    + [(name, pa.int64()) for name in _LONGS])  # fmt: skip
_SECOND = pa.struct([(name, pa.int64()) for name in ("second", "rows", "bytes")] + [("latency", pa.list_(pa.int64()))])
_RANGES = pa.schema(
    [("member", pa.string()), ("path", pa.string()), ("first", pa.int64()), ("last", pa.int64()), ("rows", pa.int64()),
     ("digest", pa.binary()), ("faults", pa.list_(_FAULT)), ("streams", pa.list_(_STREAM)),
     ("seconds", pa.list_(_SECOND)), ("error", pa.string()), ("error_position", pa.int64()), ("facts", pa.string())]
)  # fmt: skip


def ranges_of(
    spark: SparkSession,
    members: Sequence[MemberInput],
    boundaries: Sequence[int],
    *,
    key: bytes | None = None,
    with_times: bool = False,
) -> DataFrame:
    """A line per range and member. Only digests made with the same `key` can be compared; without one a key is
    drawn.
    """
    key = key or token_bytes(KEY_BYTES)
    splits = [(split, boundaries_within(boundaries, split)) for member in members for split in member.splits]
    splits.sort(key=lambda one: -one[0].rows)

    def work(number: int) -> Iterator[pa.RecordBatch]:
        for split, its_boundaries in shares[number]:
            yield _sum_up(split, its_boundaries, key, with_times)

    enough = -(-sum(split.rows for split, _ in splits) // ROWS_PER_TASK)
    shares = dealt(splits, min(enough, spark.sparkContext.defaultParallelism * TASKS_PER_CORE))
    return in_tasks(spark, len(shares), work, RANGES_DDL)


def dealt(things: Sequence[Any], hands: int) -> list[list[Any]]:
    """Distribute round-robin. With the largest first, the shares are about equal."""
    hands = max(1, min(hands, len(things)))
    return [list(things[hand::hands]) for hand in range(hands)]


def in_tasks(spark: SparkSession, count: int, work: Callable[[int], Iterator[pa.RecordBatch]], ddl: str) -> DataFrame:
    """Run `work(0)` to `work(count - 1)`, each in a task of its own."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    return spark.range(0, count, 1, count).mapInArrow(each, ddl)


def _sum_up(split: InputSplit, boundaries: Sequence[int], key: bytes, with_times: bool) -> pa.RecordBatch:
    """A line per range of a split, then one for the error that ended it, and one for the metadata of a segment."""
    lines: list[dict[str, Any]] = []
    facts = Facts()
    reached = split.first - 1
    try:
        batches = read_split(split, facts, with_times=with_times)
        for range_ in summaries(batches, boundaries, key=key, with_times=with_times):
            lines.append(
                {
                    "member": split.member,
                    "path": split.path,
                    "first": range_.first,
                    "last": range_.last,
                    "rows": range_.rows,
                }
                | {"digest": range_.digest, "faults": [fault._asdict() for fault in range_.faults]}
                | {"streams": [stream._asdict() for stream in range_.streams]}
                | {"seconds": [second._asdict() for second in range_.seconds]}
            )
            reached = range_.last
    except (MotetError, OSError, pa.ArrowException) as error:
        at = getattr(error, "position", reached)
        lines.append({"member": split.member, "path": split.path, "first": reached + 1, "last": split.last}
                     | {"error": str(error), "error_position": at})  # fmt: skip
    if split.row_group == SEGMENT:
        lines.append({"member": split.member, "path": split.path, "first": split.first, "facts": facts.to_json()})
    return pa.RecordBatch.from_pylist(lines, schema=_RANGES)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A range whose digests differ, and the splits that contain it, by member.

    Rows from `low` to `high` are read: a few rows beyond the range distinguish a missing message from a moved one.
    """

    first: int
    last: int
    low: int
    high: int
    splits: tuple[tuple[str, tuple[InputSplit, ...]], ...]


def compare_ranges(spark: SparkSession, suspects: Sequence[Suspect], owners: dict[str, str]) -> list[RowDifference]:
    def work(number: int) -> Iterator[pa.RecordBatch]:
        found = [asdict(one) for suspect in shares[number] for one in _compare(suspect, owners)]
        yield pa.RecordBatch.from_pydict(
            {"found": [json.dumps(one) for one in found]}, pa.schema([("found", pa.string())])
        )

    shares = dealt(suspects, spark.sparkContext.defaultParallelism * TASKS_PER_CORE)
    rows = in_tasks(spark, len(shares), work, "found STRING").collect()
    return [_parsed(json.loads(row["found"])) for row in rows]


def _compare(suspect: Suspect, owners: dict[str, str]) -> list[RowDifference]:
    """Differences within the range. If rows before it differ already, compare only from its first position on."""
    for low in (suspect.low, suspect.first):
        tables = dict(_tables(suspect, low))
        found = differences(tables, owners) if len(tables) > 1 else []
        if all(one.position >= suspect.first for one in found):
            return [one for one in found if one.position <= suspect.last]
    return []


def _tables(suspect: Suspect, low: int) -> Iterator[tuple[str, pa.Table]]:
    for member, splits in suspect.splits:
        batches = [_plain(batch) for split in splits for batch in _tolerant(split, low, suspect.high)]
        if batches:
            yield member, pa.Table.from_batches(batches)


def _tolerant(split: InputSplit, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The readable rows; damage is reported by a finding of its own."""
    try:
        yield from read_positions(split, first, last)
    except (MotetError, OSError, pa.ArrowException):
        return


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    for name in ("view", "sender"):
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, name, batch.column(name).cast(pa.string()))
    return batch


def _parsed(fields: dict[str, Any]) -> RowDifference:
    neighbours = tuple(Neighbour(**one) for one in fields.pop("neighbours"))
    return RowDifference(**fields | {"neighbours": neighbours, "reference": tuple(fields["reference"])})
