"""The guide's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from motet.log.journal.synthetic import write_journal
from motet.log.service.flight import LogService
from tests.log.service.memory import FakeGroup, MemorySource

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "log-service.md"


def test_examples_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(examples) == 5
    monkeypatch.chdir(tmp_path)
    write_journal("data/a", "orders", 100)
    source = MemorySource(100)
    with LogService(source, FakeGroup(source), group="orders") as service:
        names: dict[str, object] = {"endpoint": service.endpoint}
        for example in examples:
            exec(example, names)
        names["client"].close()  # type: ignore[attr-defined]
    printed = capsys.readouterr().out
    assert "1 to 100, epoch 3" in printed
    assert "Appended(first=0, last=0)" in printed
    assert '"is_read_only": True' in printed.replace("'", '"')
