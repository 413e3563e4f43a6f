"""A streaming query in a process of its own, to be killed: from log services into Parquet, or into a group.

python -m tests.spark.driver MEMBERS OUT [SINK]
"""

from __future__ import annotations

import sys

from motet.spark.session import build_session

MOST_ROWS = 2_000  # of a micro-batch: small, so that a kill finds some of them done and some not


def main(members: str, out: str, sink: str = "") -> None:
    spark = build_session("local[2]", "killable", {"spark.sql.shuffle.partitions": "2"}, is_light=True)
    rows = spark.readStream.format("motet").option("members", members).option("max_rows_per_trigger", MOST_ROWS).load()
    if sink:
        rows = rows.where("substring(payload, 1, 5) != CAST('copy ' AS BINARY)")  # or it would copy its copies
        rows = rows.selectExpr("concat(CAST('copy ' AS BINARY), payload) AS payload", "position")
        writer = rows.writeStream.format("motet").option("members", sink).option("identity", "position")
    else:
        writer = rows.writeStream.format("parquet").option("path", f"{out}/rows")
    query = writer.option("checkpointLocation", f"{out}/checkpoint").trigger(processingTime="0 seconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
