"""The code of the guide to Spark, and the examples, run as they stand, against a group that fits into memory."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from motet.log.journal.synthetic import write_journal
from motet.log.service.flight import LogService
from tests.docs.pages import DOCS, ROOT, blocks
from tests.log.service.memory import FakeGroup, MemorySource

EXAMPLES = ROOT / "examples" / "spark"


def example(name: str) -> ModuleType:
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def payloads(log: MemorySource) -> list[bytes]:
    batches = log.read(1, log.bounds().last, 1_000)
    return [value for batch in batches for value in batch.column("payload").to_pylist()]


def test_the_code_of_the_guide_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Paths are made absolute: the JVM of the tests was started in another directory."""
    for name in ("a", "b"):
        write_journal(tmp_path / "data" / name, "g", 100)
    group = FakeGroup(MemorySource(last=30))
    with LogService(group.source, group) as one, LogService(group.source, group) as other:
        names: dict[str, Any] = {}
        for block in blocks(DOCS / "guide" / "spark.md"):
            if block.language.split(" ")[0] == "python":
                code = block.code.replace("127.0.0.1:7900", one.endpoint).replace("127.0.0.1:7901", other.endpoint)
                code = code.replace("data/", f"{tmp_path}/data/").replace("checkpoints/", f"{tmp_path}/")
                code = code.replace(".start()", ".trigger(availableNow=True).start()")
                exec(compile(code, "spark.md", "exec"), names)
                if "table" in names and "answers" not in names:
                    assert names["table"].count() == 30
                    names["answers"] = names["stream"].selectExpr("position", "payload")
        names["query"].awaitTermination()
        assert group.source.bounds().last == 130


def test_events_into_a_lake_and_a_dashboard(spark: SparkSession, tmp_path: Path) -> None:
    with LogService(MemorySource(last=40)) as service:
        writer = example("lake").into_the_lake(spark, service.endpoint, str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert spark.read.parquet(str(tmp_path / "events")).count() == 40
        writer = example("dashboard").rates(spark, service.endpoint, "earliest").format("memory").queryName("rates")
        writer.trigger(availableNow=True).start().awaitTermination()
        assert spark.table("rates").selectExpr("sum(messages)").first() == (40,)


def test_orders_are_answered_once(spark: SparkSession, tmp_path: Path) -> None:
    log = MemorySource()
    log.add([b'{"customer": "ann", "amount": 10}', b"hello", b'{"customer": "bob", "amount": 1}'])
    group = FakeGroup(log)
    with LogService(log, group) as service:
        for _ in range(2):
            writer = example("enrich").answers(spark, service.endpoint, str(tmp_path))
            writer.trigger(availableNow=True).start().awaitTermination()
    assert payloads(log)[3:] == [b'{"of":1,"total":11.9}', b'{"of":3,"total":1.19}']
