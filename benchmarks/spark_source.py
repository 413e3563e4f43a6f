"""The batch source beside spark.read.parquet, the same rows.

    PYTHONPATH=. python benchmarks/spark_source.py

Rows are read from a journal (`path`), from a log service over Arrow Flight (`members`) and from Parquet, all columns of
all rows. They are thrown away (Spark's `noop`), so that what is measured is reading; then, in a second table, every
column is summed up, which is the least that anybody does with rows. The three take turns. Processor time is that of all
processes together, the log service's included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame

from benchmarks.processor_time import processor_seconds
from motet.log.journal import Fsync, JournalConfig
from motet.log.journal.reader import JournalReader
from motet.log.journal.synthetic import write_journal
from motet.spark.session import build_session

SUMS = "count(*)", "sum(position)", "sum(epoch)", "max(view)", "max(sender)", "sum(seqno)", "max(sent_at)"
MORE = "max(delivered_at)", "sum(length(key))", "sum(length(payload))"
SERVICE = """
import sys
from motet.log.journal.reader import JournalReader
from motet.log.service.flight import LogService

class Log(JournalReader):
    def wait_stable(self, beyond, timeout_s):
        return self.bounds().stable

with LogService(Log(sys.argv[1])) as service:
    print(service.endpoint, flush=True)
    sys.stdin.read()
"""


def main() -> None:
    options = arguments()
    data = Path(options.data)
    journal = data / f"journal-{options.rows}-{options.size}"
    if not journal.exists():
        shutil.rmtree(data, ignore_errors=True)
        config = JournalConfig(fsync=Fsync.NEVER)
        write_journal(journal, "g", options.rows, payload_bytes=options.size, config=config)
    spark = build_session(f"local[{options.cores}]", "spark_source")
    parquet = data / "parquet"
    if not parquet.exists():
        spark.read.format("motet").option("path", str(journal)).load().write.parquet(str(parquet))
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(journal)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert service.stdout is not None
    endpoint = service.stdout.readline().strip()
    ours = {"batch_rows": str(options.batch_rows)}
    runs: dict[str, Callable[[], DataFrame]] = {
        "spark.read.parquet": lambda: spark.read.parquet(str(parquet)),
        "motet, journal": lambda: spark.read.format("motet").options(path=str(journal), **ours).load(),
        "motet, log service": lambda: spark.read.format("motet").options(members=endpoint, **ours).load(),
    }
    try:
        for is_summed in (False, True):
            report(options, runs, JournalReader(journal).bounds().stable, is_summed)
    finally:
        service.kill()


def report(options: argparse.Namespace, runs: dict[str, Callable[[], DataFrame]], rows: int, is_summed: bool) -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for round_ in range(options.warm_up + options.rounds):
        for name, run in runs.items():
            began, spent = time.perf_counter(), processor_seconds()
            consume(run(), rows, is_summed)
            if round_ >= options.warm_up:  # until then the JVM compiles
                taken[name].append((time.perf_counter() - began, processor_seconds() - spent))
    if options.json:
        print(json.dumps({"rows": rows, "summed": is_summed, "seconds": taken}))
        return
    action = "all columns summed up" if is_summed else "all columns read and thrown away"
    print(f"\n{rows} rows of {options.size} B, {action}, {options.cores} cores, {options.rounds} rounds")
    parquet = median(wall for wall, _ in taken["spark.read.parquet"])
    for name, both in taken.items():
        wall, spent = median(wall for wall, _ in both), median(spent for _, spent in both)
        rates = f"{rows / wall / 1e6:6.2f} M rows/s   {parquet / wall:5.2f} of Parquet's rate"
        print(f"  {name:<20} {wall:8.2f} s   {rates}   {spent / rows * 1e6:6.3f} processor s per M rows")


def consume(table: DataFrame, rows: int, is_summed: bool) -> None:
    if not is_summed:
        table.write.format("noop").mode("overwrite").save()
        return
    first = table.selectExpr(*SUMS, *MORE).first()
    assert first is not None
    assert first[0] == rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a payload")
    parser.add_argument("--batch-rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", default="/tmp/motet-spark-source")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
