"""One Spark session for the whole run: starting it costs more than all the tests that use it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from motet.spark.session import build_session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` all of Spark runs in one worker, and so in one JVM."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            # PySpark warns of the versions it finds beside it, and leaves sockets of its own to the collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    options = {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "1",  # all data here is tiny
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.driver.memory": "1g",
    }
    session = build_session("local[2]", "motet tests", options, is_light=True)
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()
