"""`motet journal` as its users meet it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from motet.cli.app import app
from motet.errors import MotetError
from motet.log.journal.synthetic import write_journal


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_journal(tmp_path / "a", "orders", 500, keys=2, frame_bytes=3000, views=2, stable=400)
    return tmp_path / "a"


def ask(*words: object) -> Result:
    return CliRunner().invoke(app, ["journal", *map(str, words)])


def test_verify_says_good_and_exits_with_0(directory: Path) -> None:
    answer = ask("verify", directory)
    assert answer.exit_code == 0
    assert "positions 1 to 500, stable to 400" in answer.output
    assert "good: checksums" in answer.output
    fields = json.loads(ask("verify", directory, "--json").output)
    assert (fields["ok"], fields["last"], fields["flaw"]) == (True, 500, None)


def test_verify_names_the_first_bad_record_and_exits_with_1(directory: Path) -> None:
    (segment,) = directory.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    answer = ask("verify", directory)
    assert answer.exit_code == 1
    assert f"of {segment.name}, after position" in answer.output
    fields = json.loads(ask("verify", directory, "--json").output)
    assert fields["flaw"]["segment"] == segment.name
    assert 0 < fields["flaw"]["offset"] < len(data)
    assert 0 < fields["flaw"]["position"] < 500
    lines = ask("cat", directory).output
    assert "is damaged" in lines
    assert f"{fields['flaw']['position']:08}" in lines  # what is before the damage can be read


def test_stat(directory: Path) -> None:
    fields = json.loads(ask("stat", directory, "--json").output)
    assert (fields["group"], fields["first"], fields["last"], fields["stable"]) == ("orders", 1, 500, 400)
    assert [view["position"] for view in fields["views"]] == [0, 250]
    answer = ask("stat", directory).output
    assert "group     orders" in answer
    assert "owner     alice#" in answer


def test_cat(directory: Path) -> None:
    lines = ask("cat", directory, "--from", 248, "--to", 252).output.splitlines()
    assert [line.split()[0] for line in lines] == ["248", "249", "250", "251", "252"]
    answer = ask("cat", directory, "--from", 248, "--to", 252, "--json")
    rows = [json.loads(line) for line in answer.output.splitlines()]
    assert [row["position"] for row in rows] == [248, 249, 250, 251, 252]
    assert [row["epoch"] for row in rows] == [1, 1, 1, 2, 2]
    assert rows[0]["payload"].startswith("00000248")
    assert rows[0]["key"] in ("key-0", "key-1")


def test_export(directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    assert json.loads(ask("export", directory, "--parquet", out, "--json").output)["rows"] == 500
    table = pq.read_table(out)
    assert table["position"].to_pylist() == list(range(1, 501))
    assert [payload[:8] for payload in table["payload"].to_pylist()][-1] == b"00000500"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a.parquet"]


@pytest.mark.parametrize("command", ["verify", "stat", "cat"])
def test_a_missing_directory_is_told_in_a_sentence(command: str, tmp_path: Path) -> None:
    answer = ask(command, tmp_path / "nowhere")
    assert isinstance(answer.exception, MotetError)
    assert "nowhere is not there; a journal is a directory of segments" in str(answer.exception)


def test_a_range_that_is_not_there(directory: Path) -> None:
    answer = ask("cat", directory, "--from", 400, "--to", 501)
    assert "positions 400 to 501 are not all there; the journal has 1 to 500" in str(answer.exception)


def test_help_has_examples() -> None:
    assert "motet journal verify data/a" in ask("--help").output
