"""Enrich and write back: orders come in through the log, totals per customer go out into it, once each.

Messages are JSON such as {"customer": "ann", "amount": 12.5}. A message of ours is {"of": position, "total": ...}: it
names the order that it answers. The position is also its identity, so a batch that is replayed adds nothing to the log.

    python examples/spark_enrich.py 127.0.0.1:7900,127.0.0.1:7901 checkpoint
"""

from __future__ import annotations

import sys

from motet.spark import build_session


def main(members: str, checkpoint: str) -> None:
    spark = build_session(name="enrich")
    log = spark.readStream.format("motet").option("members", members).option("max_rows_per_trigger", 100_000).load()
    orders = log.selectExpr("position", "from_json(CAST(payload AS STRING), 'customer STRING, amount DOUBLE') AS o")
    answers = orders.where("o.customer IS NOT NULL").selectExpr(
        "position",
        "CAST(o.customer AS BINARY) AS key",
        "CAST(to_json(named_struct('of', position, 'total', round(o.amount * 1.19, 2))) AS BINARY) AS payload",
    )
    query = (
        answers.writeStream.format("motet")
        .option("members", members)
        .option("identity", "position")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
