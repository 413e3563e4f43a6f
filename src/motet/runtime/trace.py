"""Where trace events go: JSON lines, an Arrow file or a Parquet file, all with the columns of `core.trace`.

    sink = open_trace("a.jsonl")        writes in the caller's thread, in batches; for the simulator
    trace = BackgroundTrace(sink)       writes on a thread of its own; for a driver, which must never wait for a disk

A JSON-lines file is readable up to the last complete batch while it is written; the two others must be closed first.
Bounds: a sink keeps at most BATCH_EVENTS in memory, a BackgroundTrace MOST_WAITING more. Events that come faster than
the disk takes them are dropped, and counted in a last event of the kind `trace_lost`.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from motet.errors import ConfigError
from motet.protocol.core.trace import TRACE_COLUMNS, TraceEvent, TraceKind

BATCH_EVENTS = 4_096
MOST_WAITING = 100_000
FLUSH_SECONDS = 0.5

TRACE_SCHEMA = pa.schema(
    [
        pa.field("at_ns", pa.int64(), nullable=False),
        pa.field("member", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("peer", pa.string()),
        pa.field("channel", pa.string()),
        pa.field("view", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("detail", pa.string()),
    ]
)


class TraceSink(Protocol):
    def emit(self, event: TraceEvent) -> None:
        """Take one event; it is on disk after `flush`, or sooner."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """One object per line, empty columns left out."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._lines: list[str] = []

    def emit(self, event: TraceEvent) -> None:
        self._lines.append(json.dumps(event.as_dict(), separators=(",", ":"), ensure_ascii=False))
        if len(self._lines) >= BATCH_EVENTS:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._file.write("\n".join(self._lines) + "\n")
            self._lines.clear()
            self._file.flush()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()


class _ArrowWriter(Protocol):
    """What Arrow's writer of files and Parquet's have in common."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class Columns:
    """Record batches of TRACE_SCHEMA."""

    def __init__(self, writer: _ArrowWriter) -> None:
        self._writer = writer
        self._events: list[TraceEvent] = []

    def emit(self, event: TraceEvent) -> None:
        self._events.append(event)
        if len(self._events) >= BATCH_EVENTS:
            self._write()

    def flush(self) -> None:
        """Small batches would make a bad file; only the end of it forces one."""

    def close(self) -> None:
        try:
            self._write()
        finally:
            self._writer.close()

    def _write(self) -> None:
        if self._events:
            self._writer.write_batch(as_batch(self._events))
            self._events.clear()


def as_batch(events: list[TraceEvent]) -> pa.RecordBatch:
    columns = [[getattr(event, name) for event in events] for name in TRACE_COLUMNS]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, TRACE_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=TRACE_SCHEMA)


def open_trace(path: str | Path) -> TraceSink:
    """The end of the name says which format: .jsonl, .arrow or .parquet."""
    path = Path(path)
    try:
        match path.suffix:
            case ".jsonl":
                return JsonLines(path)
            case ".arrow":
                return Columns(pa.ipc.new_file(str(path), TRACE_SCHEMA))
            case ".parquet":
                return Columns(pq.ParquetWriter(str(path), TRACE_SCHEMA))
    except OSError as error:
        raise ConfigError(f"the trace {path} cannot be written: {error}") from None
    raise ConfigError(f"the trace file {path} has no known format; its name must end in .jsonl, .arrow or .parquet")


class BackgroundTrace:
    """A sink behind a thread. `emit` never waits and never raises; `close` waits until all is written."""

    def __init__(self, sink: TraceSink, most_waiting: int = MOST_WAITING) -> None:
        self.lost = 0  # events that were dropped
        self.error: Exception | None = None  # why nothing is written any more
        self._sink = sink
        self._waiting: deque[TraceEvent] = deque()
        self._most_waiting = most_waiting
        self._last: TraceEvent | None = None
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="motet trace", daemon=True)
        self._thread.start()

    def emit(self, event: TraceEvent) -> None:
        if len(self._waiting) >= self._most_waiting or self.error is not None:
            self.lost += 1
            return
        self._waiting.append(event)

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closing.wait(FLUSH_SECONDS):
            self._run_or_give_up(self._drain)
        self._run_or_give_up(self._drain)
        self._run_or_give_up(self._report_lost)
        try:
            self._sink.close()
        except Exception as error:  # most likely a full disk
            self.error = self.error or error

    def _run_or_give_up(self, action: Callable[[], None]) -> None:
        """Stop tracing when a write fails: the member must not fail because its trace cannot be written."""
        if self.error is not None:
            self._waiting.clear()
            return
        try:
            action()
        except Exception as error:
            self.error = error

    def _drain(self) -> None:
        while self._waiting:
            self._last = self._waiting.popleft()
            self._sink.emit(self._last)
        self._sink.flush()

    def _report_lost(self) -> None:
        if self.lost and self._last is not None:
            self._sink.emit(TraceEvent(self._last.at_ns, self._last.member, TraceKind.TRACE_LOST, count=self.lost))
