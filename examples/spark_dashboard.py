"""A dashboard query: messages per sender and second, and how long they took, as they come.

python examples/spark_dashboard.py 127.0.0.1:7900,127.0.0.1:7901
"""

from __future__ import annotations

import sys

from pyspark.sql.functions import avg, col, count, expr, max, sum, window

from motet.spark import build_session


def main(members: str) -> None:
    spark = build_session(name="dashboard")
    events = spark.readStream.format("motet").option("members", members).option("start", "latest").load()
    latency = expr("(unix_micros(delivered_at) - unix_micros(sent_at)) / 1000")
    rates = (
        events.withColumn("latency_ms", latency)
        .withWatermark("delivered_at", "2 seconds")
        .groupBy(window("delivered_at", "1 second"), "sender")
        .agg(
            count("*").alias("messages"),
            sum(expr("length(payload)")).alias("bytes"),
            avg("latency_ms").alias("mean_ms"),
            max("latency_ms").alias("max_ms"),
        )
        .select(col("window.start").alias("second"), "sender", "messages", "bytes", "mean_ms", "max_ms")
    )
    query = rates.writeStream.outputMode("update").format("console").option("truncate", False).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
