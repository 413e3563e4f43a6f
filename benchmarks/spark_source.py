"""The batch source beside spark.read.parquet, the same rows. Run: python benchmarks/spark_source.py

Rows are read from a journal (`path`), from a log service over Arrow Flight (`members`) and from Parquet. Each read
touches every column: it sums up lengths and numbers, so nothing can be skipped. The three take turns.
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

from motet.journal import Fsync, JournalConfig
from motet.journal.reader import JournalReader
from motet.journal.synthetic import write_journal
from motet.spark.session import build_session

SUMS = "count(*)", "sum(position)", "sum(epoch)", "max(view)", "max(sender)", "sum(seqno)", "max(sent_at)"
MORE = "max(delivered_at)", "sum(length(key))", "sum(length(payload))"
SERVICE = """
import sys
from motet.journal.reader import JournalReader
from motet.serve.flight import LogService

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
    ours = spark.read.format("motet").option("batch_rows", options.batch_rows)
    runs: dict[str, Callable[[], DataFrame]] = {
        "spark.read.parquet": lambda: spark.read.parquet(str(parquet)),
        "motet, journal": lambda: ours.option("path", str(journal)).load(),
        "motet, log service": lambda: spark.read.format("motet").option("members", endpoint).load(),
    }
    try:
        report(options, runs, JournalReader(journal).bounds().stable)
    finally:
        service.kill()


def report(options: argparse.Namespace, runs: dict[str, Callable[[], DataFrame]], rows: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(options.rounds + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            first = run().selectExpr(*SUMS, *MORE).first()
            assert first is not None
            assert first[0] == rows
            if round_:
                seconds[name].append(time.perf_counter() - began)
    medians = {name: median(taken) for name, taken in seconds.items()}
    if options.json:
        print(json.dumps({"rows": rows, "seconds": seconds}))
        return
    print(f"\n{rows} rows of {options.size} B, all columns, {options.cores} cores, {options.rounds} rounds")
    for name, taken in medians.items():
        share = medians["spark.read.parquet"] / taken
        print(f"  {name:<20} {taken:8.2f} s   {rows / taken / 1e6:6.2f} M rows/s   {share:5.2f} of Parquet's rate")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a payload")
    parser.add_argument("--batch-rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", default="/tmp/motet-spark-source")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
