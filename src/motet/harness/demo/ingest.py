"""The Spark side of the demo, in a process of its own: a streaming query into Parquet, then the audit.

Commands arrive on stdin, messages go to stdout. A query that fails is restarted from its checkpoint, and the number of
restarts is reported. If it fails repeatedly without a new row, the process reports the cause and exits. The thread that
reads stdin ends the process when the director is gone, and the JVM ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.errors import MotetError
from motet.harness.child_link import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_EVERY_S = 0.25
PAUSE_S = 1.0  # before a query is restarted
MOST_FAILURES = 5  # in a row; Spark gives a Python worker ten seconds to start, which a busy machine may exceed
MOST_LINES = 12  # of the cause of a failure
COMPARED = ("epoch", "view", "sender", "seqno", "sent_at", "key", "payload")  # delivered_at differs between members


class IngestFailedError(MotetError):
    """The streaming query failed repeatedly without progress."""


class Ingest:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._given: dict[str, str] = {}  # where the query reads and writes; empty: there is none
        self._query: StreamingQuery | None = None
        self._failure: Exception | None = None
        self._position = 0
        self._restarts = 0
        self._failures = 0  # since the table last grew
        self._reported: tuple[int, int] | None = None

    def stream(self, command: dict[str, Any]) -> None:
        self._given = command
        self._start()
        say(streaming=True)

    def _start(self) -> None:
        source = self._spark.readStream.format("motet").option("members", self._given["members"])
        try:
            sink = source.load().writeStream.format("parquet").option("path", self._given["table"])
            sink = sink.option("checkpointLocation", self._given["checkpoint"]).trigger(processingTime="1 second")
            self._query, self._failure = sink.start(), None
        except Exception as error:  # an error of PySpark, or an exception of the JVM
            self._query, self._failure = None, error

    def refresh(self) -> int:
        """Report the progress of the table, and restart a failed query. Returns the last position of the table."""
        if not self._given:
            return 0
        failure = self._failure or (self._query.exception() if self._query is not None else None)
        if failure is not None:
            self._start_again(failure)
        elif self._query is not None:
            self._report(*_progress(self._query))
        return self._position

    def _report(self, position: int, batches: int) -> None:
        if position > self._position:  # a restarted query reports no position at first
            self._position, self._failures = position, 0
        if (self._position, self._restarts) != self._reported:
            self._reported = (self._position, self._restarts)
            say(stream={"position": self._position, "batches": batches, "restarts": self._restarts})

    def _start_again(self, failure: Exception) -> None:
        self._failures += 1
        if self._failures == MOST_FAILURES:
            raise IngestFailedError(
                f"its query failed {MOST_FAILURES} times in a row: {cause_of(failure)}"
            ) from failure
        sys.stderr.write(f"the query failed and is started again from its checkpoint: {failure}\n")
        self._restarts += 1
        time.sleep(PAUSE_S)
        self._start()

    def drain(self, position: int) -> None:
        while self.refresh() < position:
            time.sleep(POLL_EVERY_S)
        if self._query is not None:
            self._query.stop()
        self._given, self._query = {}, None
        say(drained=position)

    def compare(self, command: dict[str, Any]) -> None:
        """Compare the table with the log in the journals, position by position."""
        table = self._spark.read.parquet(command["table"])
        counted = table.selectExpr("count(*) AS rows", "count(DISTINCT position) AS positions").first()
        assert counted is not None
        self._spark.read.format("motet").option("path", command["journals"]).load().createOrReplaceTempView("log")
        table.createOrReplaceTempView("ingested")
        same = " AND ".join(f"i.{column} <=> l.{column}" for column in COMPARED)
        found = self._spark.sql(
            f"SELECT count(l.position) AS log, count_if(i.position IS NULL) AS missing,"
            f" count_if(l.position IS NULL) AS unknown,"
            f" count_if(i.position IS NOT NULL AND l.position IS NOT NULL AND NOT ({same})) AS other"
            f" FROM ingested i FULL OUTER JOIN log l ON i.position = l.position"
        ).first()
        assert found is not None
        say(compared={**found.asDict(), "rows": counted["rows"], "twice": counted["rows"] - counted["positions"]})

    def audit(self, command: dict[str, Any]) -> None:
        from motet.audit.audit import run_audit
        from motet.audit.report import to_html

        verdict = run_audit(self._spark, [command["journals"]], with_times=True)
        Path(command["report"]).write_text(to_html(verdict, "Motet demo: the audit"), encoding="utf-8")
        say(audit=json.loads(verdict.to_json()))

    def execute(self, command: dict[str, Any]) -> bool:
        match command["do"]:
            case "stream":
                self.stream(command)
            case "drain":
                self.drain(int(command["position"]))
            case "compare":
                self.compare(command)
            case "audit":
                self.audit(command)
            case "leave":
                return False
        return True


def cause_of(error: Exception) -> str:
    """The text of an error without Java stack frames, which are most of the text of a Spark error."""
    lines = [line.strip() for line in str(error).splitlines()]
    reported = [line for line in lines if line and not line.startswith(("at ", "... "))]
    return "\n".join(reported[:MOST_LINES])


def _progress(query: StreamingQuery) -> tuple[int, int]:
    progress = query.lastProgress
    if progress is None:
        return 0, 0
    offset = progress["sources"][0]["endOffset"]
    return (json.loads(offset)["position"] if offset else 0), progress["batchId"] + 1


def _commands() -> queue.Queue[dict[str, Any]]:
    found: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            found.put(json.loads(line))
        os._exit(1)  # the director is gone; the JVM exits when this process does

    threading.Thread(target=read, name="commands", daemon=True).start()
    return found


def _session(scratch: str) -> SparkSession:
    from motet.spark.session import build_session

    options = {
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData",
        "spark.driver.memory": "1g",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.shuffle.partitions": "2",
    }
    return build_session("local[2,4]", "motet demo", options)  # two cores; a failed task is retried


def _stop(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM, which must be gone before the director removes the scratch directory."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait()


def ingest(given: dict[str, Any]) -> None:
    try:
        _work(given)
    except Exception as error:
        traceback.print_exc()
        say(failed=str(error) if isinstance(error, MotetError) else f"{type(error).__name__}: {cause_of(error)}")
        os._exit(1)


def _work(given: dict[str, Any]) -> None:
    commands = _commands()
    spark = _session(given["scratch"])
    say(ready=True)
    work = Ingest(spark)
    goes_on = True
    while goes_on:
        with contextlib.suppress(queue.Empty):
            goes_on = work.execute(commands.get(timeout=POLL_EVERY_S))
        work.refresh()
    _stop(spark)
    say(left=True)
