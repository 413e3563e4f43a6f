"""The audit beside DuckDB: the same checks over the same Parquet files.

    PYTHONPATH=. python benchmarks/spark_audit.py --journals

Five members export the same log, cut into row groups at different positions. Both sides check: every position once and
in order, each sender's frames in order within a view, and that all members have the same content at every position.
They take turns, so that both see the same machine. What DuckDB is asked is in CHECKS; the audit does all it always
does. With --journals the audit also reads journals of the same rows.

Processor time is that of all processes together: it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb
import pyarrow.parquet as pq

from benchmarks.processor_time import processor_seconds
from motet.audit.audit import run_audit
from motet.log.journal import Fsync, JournalConfig
from motet.log.journal.reader import JournalReader
from motet.log.journal.synthetic import write_journal
from motet.spark.session import build_session

MEMBERS = 5
SHARED = "position, epoch, view, sender, seqno, sent_at, key, payload"
CHECKS = {
    "positions": """
        SELECT member, min(position), max(position), count(*), count(DISTINCT position) FROM log GROUP BY member
        HAVING count(*) <> max(position) - min(position) + 1 OR count(DISTINCT position) <> count(*)
    """,
    "fifo": """
        SELECT member, position FROM (
            SELECT member, position, seqno, lag(seqno) OVER earlier AS before FROM log
            WINDOW earlier AS (PARTITION BY member, view, sender ORDER BY position)) WHERE seqno < before LIMIT 10
    """,
    "agreement": f"""
        SELECT position FROM (SELECT position, hash({SHARED}) AS digest FROM log)
        GROUP BY position HAVING min(digest) <> max(digest) ORDER BY position LIMIT 10
    """,
}
# DuckDB with the audit's idea, a digest per chunk of positions. Sums do not see order, so the position is hashed, too.
CHUNKED = f"""
    SELECT chunk, count(DISTINCT digest) FROM (
        SELECT member, position // 65536 AS chunk, sum(hash({SHARED})::HUGEINT) AS digest FROM log GROUP BY ALL)
    GROUP BY chunk HAVING count(DISTINCT digest) > 1 LIMIT 10
"""


def main() -> None:
    options = arguments()
    data = Path(options.data)
    per_member = options.rows // MEMBERS
    if options.fresh or not (data / "exports" / f"rows-{per_member}-{options.size}").exists():
        prepare(data, per_member, options.size)
    exports = data / "exports"
    spark = build_session(f"local[{options.cores}]", "spark_audit", is_light=True)
    duck = duckdb.connect(config={"threads": options.cores})
    duck.sql(
        f"CREATE VIEW log AS SELECT *, split_part(filename, '/', -2) AS member "
        f"FROM read_parquet('{exports}/*/*.parquet', filename = true)"
    )
    runs: dict[str, Callable[[], None]] = {
        "motet audit, Parquet": lambda: audited(spark, exports),
        "duckdb, row by row": lambda: asked(duck, list(CHECKS.values())),
        "duckdb, by chunks": lambda: asked(duck, [CHECKS["positions"], CHECKS["fifo"], CHUNKED]),
    }
    if options.journals:
        runs["motet audit, journals"] = lambda: audited(spark, data / "journals")
    report(options, runs, per_member * MEMBERS)


def prepare(data: Path, rows: int, size: int) -> None:
    """A journal for each member, and its export, with row groups of different sizes."""
    shutil.rmtree(data, ignore_errors=True)
    for member in range(MEMBERS):
        journal, export = data / "journals" / f"m{member}", data / "exports" / f"m{member}"
        export.mkdir(parents=True)
        config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=(64 + 7 * member) << 20)
        write_journal(journal, "g", rows, member=member, senders=MEMBERS, views=4, payload_bytes=size, config=config)
        reader = JournalReader(journal)
        batches = reader.read(1, rows, 200_000 + 20_000 * member)
        first = next(batches)
        with pq.ParquetWriter(export / "log.parquet", first.schema, compression="zstd") as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        print(f"  m{member}: {rows} rows", flush=True)
    (data / "exports" / f"rows-{rows}-{size}").mkdir()


def audited(spark: object, where: Path) -> None:
    verdict = run_audit(spark, [str(path) for path in sorted(where.glob("m*"))])  # type: ignore[arg-type]
    assert verdict.exit_code == 0, verdict.findings[:1]


def asked(duck: duckdb.DuckDBPyConnection, questions: list[str]) -> None:
    for question in questions:
        assert duck.sql(question).fetchall() == []


def report(options: argparse.Namespace, runs: dict[str, Callable[[], None]], rows: int) -> None:
    runs["motet audit, Parquet"]()  # warms up JVM, workers and the page cache
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            began, spent = time.perf_counter(), processor_seconds()
            run()
            taken[name].append((time.perf_counter() - began, processor_seconds() - spent))
    if options.json:
        print(json.dumps({"rows": rows, "seconds": taken}))
        return
    print(f"\n{rows} rows of {options.size} B over {MEMBERS} members, {options.cores} cores, {options.rounds} rounds")
    ours = median(wall for wall, _ in taken["motet audit, Parquet"])
    for name, both in taken.items():
        wall, spent = median(wall for wall, _ in both), median(spent for _, spent in both)
        print(
            f"  {name:<24} {wall:8.2f} s   {rows / wall / 1e6:6.2f} M rows/s   {wall / ours:5.2f} x ours   "
            f"{spent / rows * 1e6:6.3f} processor s per M rows"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000, help="of all members; 100 M need 12 GB of disk")
    parser.add_argument("--size", type=int, default=100, help="bytes of a payload")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--journals", action="store_true")
    parser.add_argument("--data", default="/tmp/motet-spark-audit")
    parser.add_argument("--fresh", action="store_true", help="make the data anew")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
