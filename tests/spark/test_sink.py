"""The sink: rows into the group, once each, however a batch is cut into tasks and however often it is tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from motet.errors import ConfigError, LogUnavailableError
from motet.log.service.flight import LogService
from motet.spark.sink import SinkColumns, StreamWriter, batch_writer, in_order, packed, query_id, stream_writer
from tests.log.service.memory import FailingDoor, FakeGroup, MemorySource

SCHEMA = StructType().add("key", "binary").add("payload", "binary").add("at", "long")


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup(MemorySource())


@pytest.fixture
def service(group: FakeGroup) -> Iterator[LogService]:
    with LogService(group.source, group) as service:
        yield service


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k%d" % (number % 3) for number in numbers], pa.binary()),
            "payload": pa.array([b"row %d" % number for number in numbers], pa.binary()),
            "at": pa.array(numbers, pa.int64()),
        }
    )


def payloads(group: FakeGroup) -> list[bytes]:
    (bounds, source) = (group.source.bounds(), group.source)
    if not bounds.last:
        return []
    return [value for batch in source.read(1, bounds.last, 10_000) for value in batch.column("payload").to_pylist()]


def write(writer: StreamWriter, *tasks: tuple[int, ...]) -> list[WriterCommitMessage | None]:
    return [writer.write(iter([rows(*numbers)] if numbers else [])) for numbers in tasks]


def writer_to(service: LogService, **options: str) -> StreamWriter:
    given = {"members": service.endpoint, "sink_id": "test", "identity": "at", **options}
    return stream_writer(given, SCHEMA)


def test_a_replayed_batch_with_other_tasks_adds_nothing(group: FakeGroup, service: LogService) -> None:
    numbers = tuple(range(200))
    writer = writer_to(service)
    writer.commit(write(writer, numbers[:70], numbers[70:]), 7)
    again = writer_to(service)
    again.commit(write(again, numbers[150:], (), numbers[:3], numbers[3:150]), 7)
    assert payloads(group) == [b"row %d" % number for number in numbers]
    assert len(group.units) > 1, "the rows are meant to need several units"


def test_a_batch_that_broke_off_in_the_middle_is_completed(group: FakeGroup) -> None:
    """Three units got in; the fourth, too, but its answer was lost. Then another driver tries the batch again."""
    door = FailingDoor(group, LogUnavailableError("gone"), after=frozenset({4}), before=frozenset(range(5, 1000)))
    numbers = tuple(range(300))
    with LogService(group.source, door) as service:
        writer = writer_to(service)
        with pytest.raises(LogUnavailableError):
            _without_timeout(writer, write(writer, numbers), 0)
    assert 0 < len(payloads(group)) < 300
    with LogService(group.source, group) as service:
        again = writer_to(service)
        again.commit(write(again, numbers[200:], numbers[:200]), 0)
    assert payloads(group) == [b"row %d" % number for number in numbers]


def _without_timeout(writer: StreamWriter, messages: list[WriterCommitMessage | None], batch: int) -> None:
    """As `commit`, but giving up at once."""
    from motet.log.service.client import LogClient
    from motet.spark.sink import producer_of

    table = in_order(messages)
    assert table is not None
    with LogClient(list(writer._options.members), timeout_s=0.0) as client:
        keys, values = table["key"].combine_chunks(), table["payload"].combine_chunks()
        client.append_all(values, keys, producer=producer_of("test"), batch_id=batch)


def test_rows_without_an_identity_are_ordered_by_content_and_equal_rows_all_count() -> None:
    columns_of = SinkColumns("key", None)
    one = [packed(iter([rows(5, 1, 1)]), columns_of), packed(iter([rows(3, 1)]), columns_of)]
    other = [packed(iter([rows(1)]), columns_of), packed(iter([rows(3), rows(1, 5, 1)]), columns_of)]
    first, second = in_order(one), in_order(other)
    assert first is not None
    assert first.equals(second)
    assert first.num_rows == 5


def test_an_empty_batch_asks_nobody() -> None:
    writer = stream_writer({"members": "127.0.0.1:1", "sink_id": "x"}, StructType().add("payload", "binary"))
    writer.commit([writer.write(iter([])), None], 0)


@pytest.mark.parametrize(
    ("options", "schema", "says"),
    [
        ({"sink_id": "x"}, SCHEMA, "say where to append"),
        ({"members": "a:1", "identity": "at"}, SCHEMA, "set option checkpointLocation"),
        ({"members": "a:1", "sink_id": "x"}, SCHEMA, "the rows have key, payload, at"),
        ({"members": "a:1", "sink_id": "x", "idenity": "at"}, SCHEMA, "there is no option 'idenity'"),
        ({"members": "a:1", "sink_id": "x"}, StructType().add("value", "string"), "a column payload"),
    ],
)
def test_what_cannot_be_written_is_refused_with_what_to_do(
    options: dict[str, str], schema: StructType, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        stream_writer(options, schema)


def test_a_log_is_not_overwritten() -> None:
    with pytest.raises(ConfigError, match="a log only grows"):
        batch_writer({"members": "a:1"}, StructType().add("payload", "binary"), overwrite=True)


def test_the_query_is_known_by_the_id_in_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "8f2a"}))
    assert query_id(str(tmp_path)) == query_id(tmp_path.as_uri()) == "8f2a"
    with pytest.raises(ConfigError, match="set option sink_id"):
        query_id(str(tmp_path / "elsewhere"))


def enriched(spark: SparkSession, where: str) -> DataFrame:
    stream = spark.readStream.format("motet").option("members", where).option("max_rows_per_trigger", 400).load()
    return stream.selectExpr("CAST(concat('seen ', position) AS BINARY) AS payload", "position")


def test_a_stream_from_one_group_into_another_and_a_batch_beside_it(
    spark: SparkSession, group: FakeGroup, service: LogService, tmp_path: Path
) -> None:
    with LogService(MemorySource(last=1_000)) as source:
        writer = enriched(spark, source.endpoint).writeStream.format("motet").option("members", service.endpoint)
        writer = writer.option("identity", "position").option("checkpointLocation", str(tmp_path))
        for _ in range(2):  # the second run finds nothing new
            writer.trigger(availableNow=True).start().awaitTermination()
    assert payloads(group) == [b"seen %d" % position for position in range(1, 1_001)]
    table = spark.createDataFrame([("k", "one more")], "key STRING, payload STRING")
    table.write.format("motet").option("members", service.endpoint).mode("append").save()
    assert payloads(group)[-1] == b"one more"
