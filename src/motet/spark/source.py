"""`format("motet")`: the group's log as a table and as a stream.

    spark.read.format("motet").option("members", "127.0.0.1:7900,127.0.0.1:7901").load()
    spark.readStream.format("motet").option("path", "data/a,data/b").load()

An offset is {"epoch": number of the primary view, "position": last position that was read}. Positions are the same at
every member, so an offset stays valid when the member that served it is gone. Only stable positions are read, which are
never rolled back. If the caller gives a schema with some of the columns, only these are sent to the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from motet.errors import ConfigError, MotetError
from motet.spark.logs import Extent, ReadableLog, check_start, open_log
from motet.spark.options import SourceOptions, parse_source
from motet.spark.pushdown import HIGHEST, Wanted, bounds_of_in, push
from motet.spark.tasks import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Offset = dict[str, int]

SCHEMA = (
    "position BIGINT, epoch BIGINT, view STRING, sender STRING, seqno BIGINT, sent_at TIMESTAMP, "
    "delivered_at TIMESTAMP, key BINARY, payload BINARY"
)
_ARROW = {
    "position": (pa.int64(), "bigint"),
    "epoch": (pa.int64(), "bigint"),
    "view": (pa.string(), "string"),
    "sender": (pa.string(), "string"),
    "seqno": (pa.int64(), "bigint"),
    "sent_at": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "delivered_at": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "key": (pa.binary(), "binary"),
    "payload": (pa.binary(), "binary"),
}


class OffsetAheadError(MotetError):
    """A checkpoint is ahead of the log, although no member lags behind."""


def register(spark: SparkSession) -> None:
    """Make the format known to a session. Where Motet is installed, sessions find it by themselves."""
    spark.dataSource.register(MotetSource)


class MotetSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "motet"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source(self.options)
        return (PushingReader if options.pushdown else MotetReader)(options, _arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (PySpark's name)
        return MotetStreamReader(parse_source(self.options), _arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from motet.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from motet.spark.sink import stream_writer

        return stream_writer(self.options, schema)


def _arrow_schema(schema: StructType) -> pa.Schema:
    fields = []
    for field in schema.fields:
        arrow, spark_type = _ARROW.get(field.name, (None, ""))
        if arrow is None or field.dataType.simpleString() != spark_type:
            raise ConfigError(
                f"the log has no column {field.name} of type {field.dataType.simpleString()}; it has: {SCHEMA}"
            )
        fields.append(pa.field(field.name, arrow, field.nullable))
    return pa.schema(fields)


@dataclass
class Range(InputPartition):
    """Positions `first` to `last`, both included."""

    first: int
    last: int


def split(first: int, last: int, options: SourceOptions, starts: Sequence[int] = ()) -> list[Range]:
    """Divide positions evenly, into the requested number of ranges or by `rows_per_partition`.

    A range begins at one of `starts` if one is near, because reading is faster from there.
    """
    rows = last - first + 1
    if rows <= 0:
        return []
    parts = min(rows, options.partitions or -(-rows // options.rows_per_partition))
    boundaries = [first + rows * part // parts for part in range(parts + 1)]
    boundaries[1:-1] = [_moved(boundary, starts, rows // parts // 4) for boundary in boundaries[1:-1]]
    return [Range(low, high - 1) for low, high in pairwise(boundaries)]


def _moved(boundary: int, starts: Sequence[int], most: int) -> int:
    """The nearest start, if it is at most `most` positions away."""
    nearest = min(starts, key=lambda start: abs(start - boundary), default=boundary)
    return nearest if abs(nearest - boundary) <= most else boundary


def read_range(part: Range, options: SourceOptions, schema: pa.Schema, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    settle_worker()
    log = open_log(options)
    try:
        picked = (wanted.pick(batch) for batch in log.read(part.first, part.last, options.batch_rows))
        for batch in _gathered(picked, options.batch_rows):
            yield pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)
    finally:
        log.close()


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Join batches that a filter made small, since each batch costs a round trip to the JVM."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
        if count >= rows // 2:
            yield _joined(waiting)
            waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class MotetReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted()

    def partitions(self) -> list[Range]:
        log = open_log(self._options)
        try:
            extent, starts = log.extent(), log.starts()
        finally:
            log.close()
        first, last = self._bounds(extent)
        parts = split(max(first, self._wanted.low), min(last, self._wanted.high), self._options, starts)
        return parts or [Range(1, 0)]  # PySpark treats an empty list as one partition without a value

    def _bounds(self, extent: Extent) -> tuple[int, int]:
        start, end = self._options.start, self._options.end
        first = extent.first if start == "earliest" else extent.stable + 1 if start == "latest" else start
        check_start(max(first, self._wanted.low) if extent.stable else extent.first, extent)
        if isinstance(end, int):
            return first, min(end, extent.stable)
        return first, extent.stable if end == "latest" else extent.first

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        if partition.last < partition.first:
            return iter(())
        return read_range(partition, self._options, self._schema, self._wanted)


class PushingReader(MotetReader):
    """Accepts filters pushed down by Spark, on request only.

    PySpark 4.3 keeps one plan of reading per DataFrame: after df.where(x), a plain df.count() reads what x let through,
    and a union of df.where(x) and df.where(y) reads the rows of y twice. So the caller must ask for this, and promise
    by it to use the DataFrame for one query only. The options start and end narrow a range without any such danger.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        self._wanted, left = push(filters, self._wanted)
        self._wanted = bounds_of_in(left, self._wanted)
        return left


class MotetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._target: int | None = None  # the last position that Trigger.AvailableNow reads

    @cached_property
    def _log(self) -> ReadableLog:
        return open_log(self._options)

    def initialOffset(self) -> Offset:  # noqa: N802
        extent = self._log.extent()
        start = self._options.start
        if isinstance(start, int):
            check_start(start, extent)
            return {"epoch": extent.epoch, "position": start - 1}
        return {"epoch": extent.epoch, "position": extent.stable if start == "latest" else extent.first - 1}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        extent = self._log.extent()
        self._check(start, extent)
        reach = self._reach(extent)
        position = _limited(start["position"], reach, limit)
        if position <= start["position"]:  # an offset never goes back, even if the member that answers lags behind
            return start
        return {"epoch": max(start["epoch"], extent.epoch), "position": position}

    def _reach(self, extent: Extent) -> int:
        end = self._options.end if isinstance(self._options.end, int) else HIGHEST
        return min(extent.stable, end, HIGHEST if self._target is None else self._target)

    def _check(self, start: Offset, extent: Extent) -> None:
        if start["position"] < extent.stable:
            check_start(start["position"] + 1, extent)
        if start["epoch"] > extent.epoch and start["position"] > extent.stable:
            return  # every member that answered lags behind; a later poll may reach one that does not
        if start["epoch"] == extent.epoch and extent.stable == 0 < start["position"]:
            raise OffsetAheadError(
                f"the checkpoint says that position {start['position']} was read, but this log is empty: it is another "
                f"group's, or its journals are gone. Point the query at the right members, or use a new checkpoint."
            )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        extent = self._log.extent()
        return {"epoch": extent.epoch, "position": extent.stable} if extent.stable else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._log.extent().stable

    def partitions(self, start: Offset, end: Offset) -> list[Range]:
        return split(start["position"] + 1, end["position"], self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return read_range(partition, self._options, self._schema, Wanted())

    def stop(self) -> None:
        if "_log" in self.__dict__:
            self._log.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the options for tasks; each task opens the log itself."""
        return {key: value for key, value in self.__dict__.items() if key != "_log"}


def _limited(position: int, reach: int, limit: ReadLimit) -> int:
    if isinstance(limit, ReadMaxRows):
        return min(reach, position + limit.max_rows)
    if isinstance(limit, ReadMinRows) and reach - position < limit.min_rows:
        return position
    return reach
