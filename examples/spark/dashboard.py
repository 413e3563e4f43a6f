"""A dashboard query: messages per sender and second, and how long they took, as they come.

python examples/spark/dashboard.py 127.0.0.1:7900,127.0.0.1:7901
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, count, expr, max, sum, window
from pyspark.sql.streaming.readwriter import DataStreamWriter

from motet.spark import build_session


def rates(spark: SparkSession, members: str, start: str = "latest") -> DataStreamWriter:
    log = spark.readStream.format("motet").option("members", members).option("start", start).load()
    latency = expr("(unix_micros(delivered_at) - unix_micros(sent_at)) / 1000")
    by_second = (
        log.withColumn("latency_ms", latency)
        .withWatermark("delivered_at", "2 seconds")
        .groupBy(window("delivered_at", "1 second"), "sender")
        .agg(
            count("*").alias("messages"),
            sum(expr("length(payload)")).alias("bytes"),
            avg("latency_ms").alias("mean_ms"),
            max("latency_ms").alias("max_ms"),
        )
    )
    shown = by_second.select(col("window.start").alias("second"), "sender", "messages", "bytes", "mean_ms", "max_ms")
    return shown.writeStream.outputMode("update")


def main(members: str) -> None:
    spark = build_session(name="dashboard")
    rates(spark, members).format("console").option("truncate", False).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
