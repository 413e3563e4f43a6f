"""Killed at any moment, and started again from its checkpoint: every stable position is in the output exactly once.

The small form: the driver is killed once, in the middle of its work, and the member that served it dies with it. The
form with real members, loss, and more kills is benchmarks/spark_exactly_once.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from motet.log.service.flight import LogService
from tests.log.service.memory import MemorySource, wait_for
from tests.spark.driver import MOST_ROWS

ROWS = 12 * MOST_ROWS


def test_a_killed_query_goes_on_from_its_checkpoint_at_another_member(spark: SparkSession, tmp_path: Path) -> None:
    log = MemorySource(last=ROWS)
    with LogService(log) as one, LogService(log) as other:
        members = f"{one.endpoint},{other.endpoint}"
        command = [sys.executable, "-m", "tests.spark.driver", members, str(tmp_path)]
        driver = subprocess.Popen(command, start_new_session=True, cwd=Path(__file__).parents[2])
        try:
            wait_for(lambda: len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) >= 2, 240.0)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # with its JVM and its Python workers
            driver.wait()
        committed = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
        assert committed < ROWS // MOST_ROWS, "it was meant to be killed before the end"
        one.close()
        log.grow(100)
        stream = spark.readStream.format("motet").option("members", members).load()
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "rows"))
    asked = ("count(*)", "count(DISTINCT position)", "min(position)", "max(position)")
    assert rows.selectExpr(*asked).first() == (ROWS + 100, ROWS + 100, 1, ROWS + 100)
