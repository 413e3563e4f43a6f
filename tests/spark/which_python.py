"""A driver that uses each kind of Python worker and prints the interpreter that ran a function.

A data source is planned by one worker, read by others, and as a stream followed by a third kind; a function runs in a
fourth. `tests/spark/test_python.py` starts it: python -m tests.spark.which_python JOURNAL OUT
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from motet.spark.session import build_session


def interpreters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})


def stream(spark: SparkSession, journal: str, out: Path) -> int:
    source = spark.readStream.format("motet").option("path", journal).load()
    sink = source.writeStream.format("parquet").option("path", str(out / "rows"))
    sink.option("checkpointLocation", str(out / "offsets")).trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(str(out / "rows")).count()


def main(journal: str, out: Path) -> None:
    options = {"spark.sql.warehouse.dir": str(out / "warehouse"), "spark.local.dir": str(out)}
    spark = build_session("local[1]", "which python", options, is_light=True)
    log = spark.read.format("motet").option("path", journal).load()
    pythons = {row["python"] for row in log.mapInArrow(interpreters, "python STRING").collect()}
    sys.stdout.write(f"{stream(spark, journal, out)} rows streamed, functions ran in {' and '.join(sorted(pythons))}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
