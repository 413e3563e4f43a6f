"""Enrich and write back: orders come in through the log, totals with tax go out into it, once each.

Messages are JSON such as {"customer": "ann", "amount": 12.5}. A message of ours is {"of": position, "total": ...}: it
names the order that it answers. The position is also its identity, so a batch that is replayed adds nothing to the log.

    python examples/spark/enrich.py 127.0.0.1:7900,127.0.0.1:7901 checkpoint
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from motet.spark import build_session


def answers(spark: SparkSession, members: str, checkpoint: str) -> DataStreamWriter:
    log = spark.readStream.format("motet").option("members", members).option("max_rows_per_trigger", 100_000).load()
    orders = log.selectExpr("position", "from_json(CAST(payload AS STRING), 'customer STRING, amount DOUBLE') AS o")
    totals = orders.where("o.customer IS NOT NULL").selectExpr(
        "position",
        "CAST(o.customer AS BINARY) AS key",
        "CAST(to_json(named_struct('of', position, 'total', round(o.amount * 1.19, 2))) AS BINARY) AS payload",
    )
    writer = totals.writeStream.format("motet").option("members", members).option("identity", "position")
    return writer.option("checkpointLocation", checkpoint)


def main(members: str, checkpoint: str) -> None:
    answers(build_session(name="enrich"), members, checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
