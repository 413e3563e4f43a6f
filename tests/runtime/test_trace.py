"""Sinks of trace events: three formats with the same rows, bounded memory, and a disk that is slow, full or missing."""

import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import motet
from motet.errors import ConfigError
from motet.protocol.core.trace import TRACE_COLUMNS, TraceEvent, TraceKind
from motet.runtime import trace as trace_module
from motet.runtime.trace import BATCH_EVENTS, TRACE_SCHEMA, BackgroundTrace, TraceSink, as_batch, open_trace
from tests.runtime.cluster import cluster, join, run

EVENTS = [
    TraceEvent(1, "a#1", TraceKind.STARTED, detail="h:1"),
    TraceEvent(2, "a#1", TraceKind.DELIVERED, "b#2", "total", None, 7, None, 3, 300),
    TraceEvent(3, "ä#1", TraceKind.ROLLED_BACK, position=5, last=2**62),
    TraceEvent(4, "a#1", TraceKind.VIEW_INSTALLED, "a#1", view="7@1", count=2, detail='primary: "a", b\nc'),
]


def rows_of(path: Path) -> list[dict[str, object]]:
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        return [dict.fromkeys(TRACE_COLUMNS) | json.loads(line) for line in lines]
    if path.suffix == ".parquet":
        table = pq.read_table(path)
    else:
        with pa.ipc.open_file(str(path)) as reader:
            table = reader.read_all()
    assert table.schema.equals(TRACE_SCHEMA)
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def write(path: Path, events: list[TraceEvent]) -> None:
    sink = open_trace(path)
    for event in events:
        sink.emit(event)
    sink.close()


class SlowSink:
    """Takes nothing until it may."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.events: list[TraceEvent] = []
        self.is_closed = False

    def emit(self, event: TraceEvent) -> None:
        self.may_go.wait()
        self.events.append(event)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class FullDisk(SlowSink):
    def emit(self, event: TraceEvent) -> None:
        raise OSError(28, "No space left on device")


def test_the_columns_are_those_of_an_event() -> None:
    assert tuple(TRACE_SCHEMA.names) == TRACE_COLUMNS


@pytest.mark.parametrize("name", ["t.jsonl", "t.arrow", "t.parquet"])
def test_every_format_gives_back_the_same_rows(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, EVENTS)
    expected = [dict.fromkeys(TRACE_COLUMNS) | event.as_dict() for event in EVENTS]
    assert rows_of(tmp_path / name) == expected


@pytest.mark.parametrize("name", ["t.jsonl", "t.arrow", "t.parquet"])
def test_a_trace_of_nothing_is_a_file(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, [])
    assert rows_of(tmp_path / name) == []


@pytest.mark.parametrize("name", ["t.jsonl", "t.arrow", "t.parquet"])
def test_more_than_a_batch(tmp_path: Path, name: str) -> None:
    count = 2 * BATCH_EVENTS + 5
    write(tmp_path / name, [TraceEvent(number, "a#1", TraceKind.STABLE, position=number) for number in range(count)])
    assert [row["position"] for row in rows_of(tmp_path / name)] == list(range(count))


def test_json_lines_can_be_read_while_they_are_written(tmp_path: Path) -> None:
    sink = open_trace(tmp_path / "t.jsonl")
    sink.emit(EVENTS[0])
    assert rows_of(tmp_path / "t.jsonl") == []
    sink.flush()
    assert len(rows_of(tmp_path / "t.jsonl")) == 1
    sink.close()


def test_a_name_that_tells_no_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no known format; its name must end in \.jsonl, \.arrow or \.parquet"):
        open_trace(tmp_path / "trace.csv")


@pytest.mark.parametrize("name", ["t.jsonl", "t.arrow", "t.parquet"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be written: "):
        open_trace(tmp_path / "missing" / name)


def test_a_batch_has_the_schema() -> None:
    batch = as_batch(EVENTS)
    batch.validate(full=True)
    assert batch.schema.equals(TRACE_SCHEMA)
    assert batch.column("kind").to_pylist() == ["started", "delivered", "rolled_back", "view_installed"]


# Of real members


def test_a_real_member_writes_its_events(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"

    async def test() -> None:
        async with cluster("a", config=motet.Config.local(trace_file=str(file))) as groups:
            groups.append(await join("b", groups))
            groups[0].inject("drop=0.2@nobody")
            receipt = await groups[0].multicast(b"four")
            await receipt.stable()

    run(test)
    rows = rows_of(file)
    kinds = [row["kind"] for row in rows]
    assert kinds[0] == "started"
    assert {"datagram_sent", "datagram_received", "view_installed", "delivered", "stable", "fault", "left"} <= {*kinds}
    (delivered,) = [row for row in rows if row["kind"] == "delivered"]
    assert (delivered["channel"], delivered["position"], delivered["count"], delivered["size"]) == ("total", 1, 1, 4)
    assert {*kinds} <= {kind.value for kind in TraceKind}
    assert rows == sorted(rows, key=lambda row: row["at_ns"])  # type: ignore[arg-type, return-value]


# Behind a thread


def test_in_the_background_all_is_written_in_order(tmp_path: Path) -> None:
    trace = BackgroundTrace(open_trace(tmp_path / "t.jsonl"))
    for number in range(10_000):
        trace.emit(TraceEvent(number, "a#1", TraceKind.STABLE, position=number))
    trace.close()
    assert [row["at_ns"] for row in rows_of(tmp_path / "t.jsonl")] == list(range(10_000))
    assert (trace.lost, trace.error) == (0, None)


def test_a_slow_disk_costs_events_and_never_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FLUSH_SECONDS", 0.001)
    sink = SlowSink()
    trace = BackgroundTrace(sink, most_waiting=100)
    for number in range(1_000):
        trace.emit(TraceEvent(number, "a#1", TraceKind.STABLE, position=number))
    assert trace.lost in (899, 900)  # one may be on its way to the disk
    sink.may_go.set()
    trace.close()
    *written, last = sink.events
    assert len(written) == 1_000 - trace.lost
    assert (last.kind, last.count) == (TraceKind.TRACE_LOST, trace.lost)
    assert sink.is_closed


def test_a_full_disk_ends_the_trace_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FLUSH_SECONDS", 0.001)
    sink: TraceSink = FullDisk()
    trace = BackgroundTrace(sink)
    trace.emit(EVENTS[0])
    trace.close()
    assert str(trace.error) == "[Errno 28] No space left on device"
    trace.emit(EVENTS[1])
    assert trace.lost == 1
