"""The README's lines about Spark run as they stand, on the journal that its first lines leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from motet.log.journal.synthetic import write_journal
from tests.docs.pages import ROOT, blocks


def test_the_log_in_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [block for block in blocks(ROOT / "README.md") if "build_session" in block.code]
    monkeypatch.chdir(tmp_path)
    write_journal("data/a", "orders", 100, senders=1)
    monkeypatch.setattr("motet.spark.session.build_session", lambda: spark)
    code = block.code.replace('"data/a"', f'"{tmp_path / "data/a"}"').replace('"lake/', f'"{tmp_path}/lake/')
    exec(compile(code, "README.md", "exec"), {})
    assert "|  100|" in capsys.readouterr().out
    assert spark.read.parquet(str(tmp_path / "lake/orders")).count() == 100
