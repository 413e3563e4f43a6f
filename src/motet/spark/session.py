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
# Disables index and null checks in Arrow's getters, which repeat checks that Spark has made.
QUICK_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# For short jobs: the JIT compiler would occupy one of two cores for the first half minute and pay off after minutes.
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
HEAVY_JAVA = "-XX:+UseParallelGC"  # throughput matters here, not pause times
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

    A light session is for jobs that compute mostly in Python: it starts in half the time.
    """
    if not find_spec("pyspark"):
        raise SparkMissingError("this command runs on PySpark, which is not installed: pip install 'motet[spark]'")
    # PySpark warns at each use of Arrow; nothing here uses pandas.
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
        "spark.sql.shuffle.partitions": "4",  # shuffles are small here: digests, not rows
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        settings |= {"spark.network.timeout": "7d"}  # a suspended machine or a stopped job must be able to continue
    if _is_on_this_machine(master):
        path = import_path()
        settings |= {"spark.executorEnv.PYTHONPATH": path} if path else {}
    if _is_on_this_machine(master) and not master.startswith("local"):
        settings |= {"spark.driver.host": LOOPBACK}
    return settings


def _is_on_this_machine(master: str) -> bool:
    """Executors on this machine can use this interpreter and its packages; other nodes need Motet installed."""
    return master.startswith(("local", f"spark://{LOOPBACK}:", "spark://localhost:"))
