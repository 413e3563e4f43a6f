"""Ordered events into a lake: a streaming query that copies a group's log into Parquet, exactly once.

    motet node --group orders --bind 127.0.0.1:7800 --journal data/a --serve 127.0.0.1:7900     (and more members)
    python examples/spark_lake.py 127.0.0.1:7900,127.0.0.1:7901 lake

Stop it, kill it, let members die: started again it goes on from its checkpoint, at whichever member serves.
"""

from __future__ import annotations

import sys

from motet.spark import build_session


def main(members: str, lake: str) -> None:
    spark = build_session(name="events into a lake")
    events = (
        spark.readStream.format("motet").option("members", members).option("max_rows_per_trigger", 1_000_000).load()
    )
    query = (
        events.selectExpr("*", "to_date(sent_at) AS day")
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", f"{lake}/events")
        .option("checkpointLocation", f"{lake}/_checkpoint")
        .trigger(processingTime="5 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
