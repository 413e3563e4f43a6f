"""The one place that builds a Spark session: quiet, quick to start, on loopback, or on whatever `master` names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from motet.errors import MotetError
from motet.spark.environment import environment_with, import_path, python_variables
from motet.spark.java import java_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
LOOPBACK = "127.0.0.1"
# Arrow's getters check every index and every null, of which Spark has already made sure.
QUICK_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# Compiling queries and hot methods pays off after minutes; of two cores it takes one for the first half of one.
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
HEAVY_JAVA = "-XX:+UseParallelGC"  # what counts is the work done, not how long it pauses
LIGHT = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
LOG4J = Path(__file__).with_name("log4j2.properties")


class SparkMissingError(MotetError):
    """PySpark is not installed."""


def build_session(
    master: str = DEFAULT_MASTER,
    name: str = "motet",
    options: Mapping[str, str] | None = None,
    *,
    is_light: bool = False,
) -> SparkSession:
    """A session with `format("motet")` registered; the one of this process if there is one already.

    On this machine its workers run the Python of this process, or the one that PYSPARK_PYTHON names; on the nodes of a
    cluster elsewhere the one that PYSPARK_PYTHON names, or `python3`.

    A light one is for work whose weight is in Python, with little for the JVM to do: it starts in half the time.
    """
    if not find_spec("pyspark"):
        raise SparkMissingError("this command runs on PySpark, which is not installed: pip install 'motet[spark]'")
    # Said each time that Arrow is used, and of no use to us: nothing here touches pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    python = python_variables() if _is_on_this_machine(master) else {}
    with java_for_spark(), environment_with(python), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own, about versions of what it imports
        return _start(
            master, name, (LIGHT if is_light else {}) | dict(options or {}), LIGHT_JAVA if is_light else HEAVY_JAVA
        )


def _start(master: str, name: str, options: dict[str, str], java: str) -> SparkSession:
    from pyspark.sql import SparkSession

    from motet.spark.source import register

    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (_common(master, java) | options).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _common(master: str, java: str) -> dict[str, str]:
    java = f"-Dlog4j2.configurationFile={LOG4J.as_uri()} -XX:+IgnoreUnrecognizedVMOptions {QUICK_ARROW} {java}".strip()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": QUICK_ARROW,
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",  # what is shuffled here is small: digests, not rows
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        settings |= {"spark.network.timeout": "7d"}  # a machine that slept, or a job that was stopped, goes on
    if _is_on_this_machine(master):
        path = import_path()
        settings |= {"spark.executorEnv.PYTHONPATH": path} if path else {}
    if _is_on_this_machine(master) and not master.startswith("local"):
        settings |= {"spark.driver.host": LOOPBACK}
    return settings


def _is_on_this_machine(master: str) -> bool:
    """Executors beside us can use our interpreter and our packages; elsewhere Motet must be installed on the nodes."""
    return master.startswith(("local", f"spark://{LOOPBACK}:", "spark://localhost:"))
