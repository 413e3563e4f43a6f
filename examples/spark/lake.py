"""Ordered events into a lake: a streaming query that copies a group's log into Parquet, exactly once.

    motet node --group orders --bind 127.0.0.1:7800 --journal data/a --serve 127.0.0.1:7900     (and more members)
    python examples/spark/lake.py 127.0.0.1:7900,127.0.0.1:7901 lake

Stop it, kill it, let members die: started again it goes on from its checkpoint, at whichever member serves.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from motet.spark import build_session


def into_the_lake(spark: SparkSession, members: str, lake: str) -> DataStreamWriter:
    log = spark.readStream.format("motet").option("members", members).option("max_rows_per_trigger", 1_000_000).load()
    return (
        log.selectExpr("*", "to_date(sent_at) AS day")
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", f"{lake}/events")
        .option("checkpointLocation", f"{lake}/_checkpoint")
    )


def main(members: str, lake: str) -> None:
    spark = build_session(name="events into a lake")
    into_the_lake(spark, members, lake).trigger(processingTime="5 seconds").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
