"""`motet pipeline`: turns the journals of a group into Parquet tables, in three incremental steps.

    bronze   every member's journal as it is          bronze/member=NAME/batch=N/epoch=E/
    silver   one row per position, verified           silver/batch=N/epoch=E/      and silver_ranges/batch=N/
    gold     rates, latency, senders, views           gold/rates/ gold/latency/ gold/senders/ gold/views/

Bronze and silver are streaming queries with checkpoints. A micro-batch writes one directory named after its number, and
overwrites it when it is replayed, so any Parquet reader finds every row exactly once. Gold is computed from the small
sums that each bronze batch writes to gold_parts/, and is rewritten each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.audit.inputs import (
    RANGE,
    InputSplit,
    MemberInput,
    UnusableInputError,
    boundaries_of,
    find_members,
    is_journal,
)
from motet.audit.jobs import ranges_of
from motet.audit.kernels import BINS_PER_OCTAVE, LATENCY_BINS
from motet.log.journal.reader import JournalReader
from motet.log.journal.records import ViewRecord
from motet.spark.logs import JournalLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_PER_BATCH = 5_000_000
ROWS_PER_FILE = 2_000_000

PARTS = f"""
    SELECT member, batch, date_trunc('SECOND', delivered_at) AS second, sender, count(*) AS rows,
           sum(length(payload)) AS bytes,
           least({LATENCY_BINS - 1}, greatest(0, int(log2(greatest(1, unix_micros(delivered_at) - unix_micros(sent_at)))
                 * {BINS_PER_OCTAVE}))) AS latency_bin
    FROM rows GROUP BY ALL
"""
RATES = "SELECT member, second, sum(rows) AS rows, sum(bytes) AS bytes FROM parts GROUP BY ALL ORDER BY member, second"
SENDERS = (
    "SELECT member, sender, sum(rows) AS rows, sum(bytes) AS bytes FROM parts GROUP BY ALL ORDER BY member, sender"
)
LATENCY = f"""
    SELECT member, minute, max(total) AS rows,
           min_by(ms, latency_bin) FILTER (WHERE reached >= 0.5 * total) AS p50_ms,
           min_by(ms, latency_bin) FILTER (WHERE reached >= 0.9 * total) AS p90_ms,
           min_by(ms, latency_bin) FILTER (WHERE reached >= 0.99 * total) AS p99_ms, max(ms) AS max_ms
    FROM (SELECT member, minute, latency_bin, power(2, (latency_bin + 0.5) / {BINS_PER_OCTAVE}) / 1000 AS ms,
                 sum(rows) OVER (PARTITION BY member, minute ORDER BY latency_bin) AS reached,
                 sum(rows) OVER (PARTITION BY member, minute) AS total
          FROM (SELECT member, date_trunc('MINUTE', second) AS minute, latency_bin, sum(rows) AS rows
                FROM parts GROUP BY ALL))
    GROUP BY member, minute ORDER BY member, minute
"""


@dataclass(slots=True)
class PipelineOutcome:
    """What one run of the pipeline wrote."""

    bronze: dict[str, int] = field(default_factory=dict)  # new rows by member
    silver: int = 0
    conflicts: int = 0  # ranges of silver that differ between members, in all batches
    first: int = 0
    last: int = 0


class Pipeline:
    def __init__(self, spark: SparkSession, directories: Sequence[str], lake: Path) -> None:
        members, self.unusable = find_members(directories)
        self._members = [member for member in members if is_journal(member)]
        if not self._members:
            raise UnusableInputError("; ".join(self.unusable) or f"no journal in {', '.join(directories)}")
        self._spark = spark
        self._lake = lake
        self._outcome = PipelineOutcome()

    def run(self) -> PipelineOutcome:
        """Process all positions that are stable now, then return."""
        if not any(member.splits for member in self._members):
            raise UnusableInputError(f"no rows yet in {', '.join(member.path for member in self._members)}")
        for query in [self._bronze(member, is_once=True) for member in self._members]:
            query.awaitTermination()
        self._silver(is_once=True).awaitTermination()
        self.write_gold()
        return self.outcome()

    def follow(self, seconds: float) -> list[StreamingQuery]:
        """Start queries that follow the growing journals; each batch of silver rewrites gold."""
        queries = [self._bronze(member, is_once=False, seconds=seconds) for member in self._members]
        return [*queries, self._silver(is_once=False, seconds=seconds)]

    # Bronze: a query per member, so that the set of members may change between runs

    def _bronze(self, member: MemberInput, *, is_once: bool, seconds: float = 0.0) -> StreamingQuery:
        rows = self._stream(member.path)
        return self._start(rows, f"bronze-{member.name}", partial(self._write_bronze, member.name), is_once, seconds)

    def _write_bronze(self, name: str, rows: DataFrame, batch: int) -> None:
        target = self._lake / "bronze" / f"member={name}" / f"batch={batch}"
        self._write(rows, target, "epoch")
        written = self._spark.read.parquet(str(target)).selectExpr("*", f"'{name}' AS member", f"{batch} AS batch")
        parts = self._spark.sql(PARTS.replace("FROM rows", "FROM {rows}"), rows=written).drop("member", "batch")
        self._write(parts.coalesce(1), self._lake / "gold_parts" / f"member={name}" / f"batch={batch}")
        self._outcome.bronze[name] = self._outcome.bronze.get(name, 0) + written.count()

    # Silver: one query over all journals

    def _silver(self, *, is_once: bool, seconds: float = 0.0) -> StreamingQuery:
        rows = self._stream(",".join(member.path for member in self._members))
        return self._start(rows, "silver", partial(self._write_silver, not is_once), is_once, seconds)

    def _write_silver(self, is_following: bool, rows: DataFrame, batch: int) -> None:
        from pyspark.sql.functions import broadcast, col

        low, high = self._extent(rows)
        ranges = self._verified(low, high)
        ranges_at = self._lake / "silver_ranges" / f"batch={batch}"
        self._write(ranges.coalesce(1), ranges_at)
        kept = broadcast(self._spark.read.parquet(str(ranges_at)).select("first", "last", "copies", "agreed"))
        joined = rows.join(kept, col("position").between(col("first"), col("last")), "left").drop("first", "last")
        self._write(joined, self._lake / "silver" / f"batch={batch}", "epoch")
        self._outcome.silver += high - low + 1
        if is_following:
            self.write_gold()

    def _extent(self, rows: DataFrame) -> tuple[int, int]:
        bounds = rows.selectExpr("min(position) AS low", "max(position) AS high").first()
        assert bounds is not None
        return bounds["low"], bounds["high"]

    def _verified(self, low: int, high: int) -> DataFrame:
        """Per range: how many journals have it, and whether they agree. Digests are compared, so no rows are
        shuffled.
        """
        members = [MemberInput(member.name, member.path, self._range(member, low, high)) for member in self._members]
        ranges = ranges_of(self._spark, members, boundaries_of(members))
        return (
            ranges.where("digest IS NOT NULL")
            .selectExpr("member", "first", "last", "digest")
            .groupBy("first", "last")
            .agg(*self._agreement())
        )

    def _agreement(self) -> list[Any]:
        from pyspark.sql.functions import expr

        return [
            expr("int(count(*)) AS copies"),
            expr("count(DISTINCT digest) = 1 AS agreed"),
            expr("sort_array(collect_list(struct(member, hex(digest) AS digest))) AS held"),
        ]

    def _range(self, member: MemberInput, low: int, high: int) -> list[InputSplit]:
        extent = JournalLog([member.path]).extent()
        first, last = max(low, extent.first), min(high, extent.stable)
        return [InputSplit(member.name, member.path, first, last, RANGE)] if first <= last else []

    # Gold

    def write_gold(self) -> None:
        parts = self._lake / "gold_parts"
        if next(parts.glob("*/*/_SUCCESS"), None) is None:
            return  # no batch of bronze is finished yet
        self._spark.read.parquet(str(parts)).createOrReplaceTempView("parts")
        for name, sql in (("rates", RATES), ("senders", SENDERS), ("latency", LATENCY)):
            self._write(self._spark.sql(sql).coalesce(1), self._lake / "gold" / name)
        self._write(self._views().coalesce(1), self._lake / "gold" / "views")

    def _views(self) -> DataFrame:
        """When each member installed each view, and the position up to which it had delivered."""
        lines = [_view_line(member.name, one) for member in self._members for one in JournalReader(member.path).views()]
        ddl = "member STRING, view STRING, epoch BIGINT, position BIGINT, at BIGINT, members ARRAY<STRING>"
        return self._spark.createDataFrame(lines, ddl).selectExpr("* EXCEPT (at)", "timestamp_micros(at) AS at")

    # Shared by all steps

    def _stream(self, path: str) -> DataFrame:
        reader = self._spark.readStream.format("motet").option("path", path)
        return reader.option("max_rows_per_trigger", ROWS_PER_BATCH).option("rows_per_partition", ROWS_PER_FILE).load()

    def _start(
        self, rows: DataFrame, name: str, write: Callable[[DataFrame, int], None], is_once: bool, seconds: float
    ) -> StreamingQuery:
        writer = rows.writeStream.queryName(name).foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self._lake / "_checkpoints" / name))
        trigger = writer.trigger(availableNow=True) if is_once else writer.trigger(processingTime=f"{seconds} seconds")
        return trigger.start()

    def _write(self, rows: DataFrame, target: Path, *partitions: str) -> None:
        writer = rows.write.mode("overwrite").option("compression", "zstd")
        (writer.partitionBy(*partitions) if partitions else writer).parquet(str(target))

    def outcome(self) -> PipelineOutcome:
        """What the queries of this run have written so far."""
        if next((self._lake / "silver_ranges").glob("*/_SUCCESS"), None) is None:
            return self._outcome
        ranges = self._spark.read.parquet(str(self._lake / "silver_ranges"))
        row = ranges.selectExpr("count_if(NOT agreed) AS bad", "min(first) AS first", "max(last) AS last").first()
        assert row is not None
        self._outcome.conflicts, self._outcome.first, self._outcome.last = row["bad"], row["first"], row["last"]
        return self._outcome


def _view_line(member: str, record: ViewRecord) -> tuple[str, str, int, int, int, list[str]]:
    view = f"{record.view.id.number}@{record.view.id.creator:016x}"
    names = [f"{who.name}#{who.incarnation:016x}" for who in record.view.members]
    return member, view, record.epoch.number, record.position, record.at // 1000, names
