"""The sink of `format("motet")`: rows become messages of the group, each exactly once.

    df.select("key", "payload").writeStream.format("motet").option("members", ...).option("checkpointLocation", ...)

A replayed micro-batch may run a task several times and distribute rows differently. So tasks append nothing. They pass
their rows to the driver, which sorts the rows of a batch by content (the column that `identity` names, then key and
payload) and appends them in append batches with the sequence numbers batch * 2**20 + n, under a producer id of the
query. The group drops an append batch whose sequence number it has seen. A replay divides the same rows into the same
append batches, so those appended before the failure are dropped, and the others are appended.

A batch must fit into the memory of the driver; limit it with max_rows_per_trigger. Appending from the tasks would need
a partitioning that survives a replay, which Spark does not guarantee to a sink.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from motet.errors import ConfigError
from motet.spark.options import listed, number, refuse_unknown

KNOWN = {
    "members": "log services of members, HOST:PORT,HOST:PORT,...; the next one is tried when one fails",
    "identity": "column that identifies the rows of a batch, such as the source's position; it is not sent",
    "sink_id": "name under which the group deduplicates appends; default: the id of the streaming query",
    "batch_id": "number of a batch write that may be retried under one sink_id",
    "unit_bytes": "bytes per append batch; must not change while a batch may be replayed. Default: the members' limit",
    "token": "bearer token of the log service",
    "tls_roots": "PEM file of the certificates that verify the log services",
}
_PAYLOAD, _KEY, _IDENTITY = "payload", "key", "identity"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    members: tuple[str, ...]
    identity: str | None
    sink_id: str | None
    checkpoint: str | None
    batch_id: int
    unit_bytes: int | None
    token: str | None
    tls_roots: str | None

    def __repr__(self) -> str:  # without the token
        return f"SinkOptions(members={','.join(self.members)}, sink_id={self.sink_id})"


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The columns of the rows that the sink uses besides the payload."""

    key: str | None
    identity: str | None


@dataclass
class TaskRows(WriterCommitMessage):
    """The rows of one task, as an Arrow stream."""

    stream: bytes


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise ConfigError('a log only grows: write with mode("append"), not mode("overwrite")')
    return BatchWriter(parse_sink(options), _columns_of(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    parsed = parse_sink(options)
    if not parsed.sink_id and not parsed.checkpoint:
        raise ConfigError(
            "the sink must know its query again after a restart: set option checkpointLocation on the query itself, or "
            "option sink_id to a name that no other query uses"
        )
    return StreamWriter(parsed, _columns_of(options, schema))


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    given = {key.lower(): value for key, value in options.items()}
    refuse_unknown(given, KNOWN)
    members = listed(given.get("members", ""))
    if not members:
        raise ConfigError("say where to append: option members=HOST:PORT,... of members with a log service")
    return SinkOptions(
        members,
        given.get("identity"),
        given.get("sink_id"),
        given.get("checkpointlocation"),
        number(given, "batch_id", 0, 0, (1 << 44) - 1) or 0,
        number(given, "unit_bytes", None, 512, 1 << 24),
        given.get("token"),
        given.get("tls_roots"),
    )


def _columns_of(options: Mapping[str, str], schema: StructType) -> SinkColumns:
    names = schema.fieldNames()
    identity = {key.lower(): value for key, value in options.items()}.get("identity")
    allowed = {_PAYLOAD, _KEY} | ({identity} if identity else set())
    if _PAYLOAD not in names or set(names) - allowed or (identity and identity not in names):
        raise ConfigError(
            f"the sink takes a column payload (binary or string), maybe a column key, and the column that option "
            f"identity names; the rows have {', '.join(names)}. Select what is to be sent, "
            "for example df.select('key', 'payload')"
        )
    return SinkColumns(_KEY if _KEY in names else None, identity)


def packed(batches: Iterator[pa.RecordBatch], columns_of: SinkColumns) -> TaskRows:
    """Serialise the rows of a task, with the used columns only."""
    out = pa.BufferOutputStream()
    writer = None
    for batch in batches:
        rows = _selected(batch, columns_of)
        writer = writer or pa.ipc.new_stream(out, rows.schema)
        writer.write_batch(rows)
    if writer:
        writer.close()
    return TaskRows(out.getvalue().to_pybytes())


def _selected(batch: pa.RecordBatch, columns_of: SinkColumns) -> pa.RecordBatch:
    columns = {_PAYLOAD: batch.column(_PAYLOAD).cast(pa.binary())}
    if columns_of.key:
        columns[_KEY] = batch.column(columns_of.key).cast(pa.binary())
    if columns_of.identity:
        columns[_IDENTITY] = batch.column(columns_of.identity)
    return pa.RecordBatch.from_pydict(columns)


def in_order(messages: Sequence[WriterCommitMessage | None]) -> pa.Table | None:
    """The rows of all tasks, in an order that does not depend on the partitioning; None if there are none.

    Rows without an identity are ordered by content; the order of equal rows does not matter.
    """
    tables = [pa.ipc.open_stream(one.stream).read_all() for one in messages if isinstance(one, TaskRows) and one.stream]
    if not tables or not sum(table.num_rows for table in tables):
        return None
    rows = pa.concat_tables(tables)
    keys = [(name, "ascending") for name in (_IDENTITY, _KEY, _PAYLOAD) if name in rows.schema.names]
    return rows.take(pc.sort_indices(rows, sort_keys=keys)).combine_chunks()


def append(rows: pa.Table, options: SinkOptions, producer: int, batch_id: int) -> None:
    from motet.log.service.client import LogClient

    keys = rows[_KEY] if _KEY in rows.schema.names else None
    with LogClient(
        list(options.members), options.token, options.tls_roots, append_batch_bytes=options.unit_bytes
    ) as client:
        client.append_all(rows[_PAYLOAD].combine_chunks(), keys, producer=producer, batch_id=batch_id)


def producer_of(sink_id: str) -> int:
    """The producer id of a sink: a 64-bit hash, never 0."""
    return int.from_bytes(blake2b(f"motet sink {sink_id}".encode(), digest_size=8).digest(), "little") or 1


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns_of: SinkColumns) -> None:
        self._options = options
        self._columns_of = columns_of

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRows:
        return packed(iterator, self._columns_of)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the rows. Retrying a whole job is idempotent only with the options sink_id and batch_id."""
        rows = in_order(messages)
        if rows is not None:
            append(rows, self._options, producer_of(self._options.sink_id or str(uuid4())), self._options.batch_id)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns_of: SinkColumns) -> None:
        self._options = options
        self._columns_of = columns_of

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRows:
        return packed(iterator, self._columns_of)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (PySpark's name)
        rows = in_order(messages)
        if rows is not None:
            sink_id = self._options.sink_id or query_id(self._options.checkpoint or "")
            append(rows, self._options, producer_of(sink_id), batchId)


def query_id(checkpoint: str) -> str:
    """The id that Spark gave to the query when it created the checkpoint.

    The name of the directory is no substitute: after the checkpoint is deleted, a new query begins with batch 0 again,
    which the group would drop as a repetition.
    """
    try:
        system, path = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
        with system.open_input_stream(f"{path.removeprefix('file:')}/metadata") as file:
            return str(json.loads(file.readall())["id"])
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ConfigError(
            f"the query's id cannot be read from its checkpoint {checkpoint} ({error}); set option sink_id to a "
            "name that no other query uses, and to a new one whenever the checkpoint is deleted"
        ) from error
