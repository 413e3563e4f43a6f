"""The source in a session: batch and stream, from services and from journals; failover; restart; a trimmed start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from motet.log.service.flight import LogService
from tests.log.service.memory import SENDER, MemorySource


@pytest.fixture
def log() -> MemorySource:
    return MemorySource(last=60_000)


@pytest.fixture
def services(log: MemorySource) -> Iterator[list[LogService]]:
    """Two members with one log."""
    with LogService(log) as one, LogService(log) as other:
        yield [one, other]


def members(services: list[LogService]) -> str:
    return ",".join(service.endpoint for service in services)


def run_available(spark: SparkSession, where: str, out: Path, max_rows: int = 25_000) -> None:
    """Stream all that is stable now into Parquet, from the checkpoint if there is one."""
    stream = spark.readStream.format("motet").option("members", where).option("max_rows_per_trigger", max_rows).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def positions(table: DataFrame) -> list[int]:
    return sorted(row["position"] for row in table.select("position").collect())


def test_a_batch_read_gives_every_stable_row_once_with_all_columns(
    spark: SparkSession, services: list[LogService], log: MemorySource
) -> None:
    log.grow(10, is_stable=False)
    table = spark.read.format("motet").option("members", members(services)).option("partitions", 3).load()
    assert table.rdd.getNumPartitions() == 3
    rows = table.where(col("position") > 59_998).orderBy("position").collect()
    assert [row["position"] for row in rows] == [59_999, 60_000]
    assert rows[0].asDict() | {"sent_at": 0, "delivered_at": 0} == {
        "position": 59_999,
        "epoch": 3,
        "view": "3@00000000000000aa",
        "sender": SENDER,
        "seqno": 14_999,
        "sent_at": 0,
        "delivered_at": 0,
        "key": None,
        "payload": b"row 59999",
    }
    assert table.selectExpr("count(*)", "count(DISTINCT position)", "max(position)").first() == (60_000,) * 3


def test_a_schema_that_names_few_columns_and_a_filter_on_the_sender(
    spark: SparkSession, services: list[LogService]
) -> None:
    reader = spark.read.format("motet").schema("payload BINARY, sender STRING").option("members", members(services))
    table = reader.option("start", 11).option("end", 20).option("pushdown", True).load()
    assert [row["payload"] for row in table.where(col("sender") == SENDER).collect()] == [
        b"row %d" % position for position in range(11, 21)
    ]


def test_two_queries_of_one_table_do_not_disturb_each_other(spark: SparkSession, services: list[LogService]) -> None:
    """They would if filters were handed down: PySpark 4.3 keeps the plan of the last filter."""
    table = spark.read.format("motet").option("members", members(services)).load()
    late, early = table.where("position > 59990"), table.where("position <= 5")
    assert late.union(early).count() == 15
    assert table.count() == 60_000


def test_a_stream_goes_on_at_another_member_and_from_its_checkpoint_with_nothing_twice(
    spark: SparkSession, services: list[LogService], log: MemorySource, tmp_path: Path
) -> None:
    run_available(spark, members(services), tmp_path)
    log.grow(20_000)
    services[0].close()  # the member that served dies; the offset in the checkpoint means the same at the other one
    run_available(spark, members(services), tmp_path)
    assert positions(spark.read.parquet(str(tmp_path / "rows"))) == list(range(1, 80_001))


def test_a_start_that_retention_has_removed_fails_with_what_exists_and_what_to_do(
    spark: SparkSession, services: list[LogService], log: MemorySource
) -> None:
    log.trim(1_001)
    reader = spark.read.format("motet").option("members", members(services))
    with pytest.raises(PySparkException) as caught:
        reader.option("start", 5).load().count()
    text = str(caught.value)
    assert "position 5 was asked for, but the log begins at 1001" in text
    assert "There are positions 1001 to 60000" in text
    assert "start=earliest" in text
    assert spark.read.format("motet").option("members", members(services)).load().count() == 59_000


def test_an_unknown_option_is_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="there is no option 'membrs' of format motet"):
        spark.read.format("motet").option("membrs", "127.0.0.1:1").load().count()
