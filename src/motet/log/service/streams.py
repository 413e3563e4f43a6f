"""Streams of rows to one reader: a range, or new rows as the log grows; bounded in number, size and time.

Invariants: rows of one stream have consecutive positions; none is beyond the stable position unless the reader asked
for that; a position that retention has deleted raises LogTrimmedError instead of being skipped; a waiting stream ends
within `SLICE_S` when the service closes or the reader disconnects.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TypeAlias

import pyarrow as pa

from motet.errors import LogBehindError, LogBusyError, LogTrimmedError, LogUnavailableError
from motet.log.journal.reader import Bounds
from motet.log.journal.schema import LOG_SCHEMA
from motet.log.service.requests import ReadRequest
from motet.log.service.source import LogSource

SLICE_S = 0.25  # longest wait before a stream checks for a closing service and a disconnected reader
MOST_BATCH_BYTES = 16 << 20  # one Flight message; small ones are slow, and a huge one occupies memory at both ends
UNSTABLE_SLICE_S = 0.02  # a source notifies of stable positions only, so unstable rows are polled
EMPTY = pa.RecordBatch.from_pylist([], schema=LOG_SCHEMA)

Item: TypeAlias = pa.RecordBatch | tuple[pa.RecordBatch, bytes]  # a batch, or a batch with metadata


class Slots:
    """Limits concurrent calls of one kind, because each occupies a thread of the server."""

    def __init__(self, kind: str, most: int) -> None:
        self._kind = kind
        self._most = most
        self._lock = threading.Lock()
        self.used = 0

    def take(self) -> None:
        with self._lock:
            if self.used >= self._most:
                raise LogBusyError(f"{self._most} {self._kind} are served already; ask another member, or retry later")
            self.used += 1

    def free(self) -> None:
        with self._lock:
            self.used -= 1

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.take()
        try:
            yield
        finally:
            self.free()


class LogStream:
    """Streams the log to one reader."""

    def __init__(
        self, source: LogSource, request: ReadRequest, is_closing: threading.Event, is_gone: Callable[[], bool]
    ) -> None:
        self._source = source
        self._request = request
        self._is_closing = is_closing
        self._is_gone = is_gone
        self._waits_since: float | None = None  # since when this reader has all available rows
        self._heartbeat_at: float | None = None
        bounds = source.bounds()
        self._position = request.follow_from or request.first or bounds.first  # the next row to send
        self._last = self._last_of(request, bounds)
        self._refuse(bounds)

    def _last_of(self, request: ReadRequest, bounds: Bounds) -> int | None:
        if request.is_follow:
            return None
        return self._edge(bounds) if request.last is None else request.last

    def _edge(self, bounds: Bounds) -> int:
        """The last position that this reader may get now."""
        return bounds.last if self._request.unstable else bounds.stable

    def _refuse(self, bounds: Bounds) -> None:
        """Raise before any row is sent if the request cannot be served."""
        if self._last is not None and self._last < self._position:
            return  # an empty range is valid: a reader that is up to date asks for one
        self._refuse_trimmed(bounds)
        if self._last is not None and self._last > self._edge(bounds) and not self._request.wait_s:
            raise self._behind(bounds)

    def _refuse_trimmed(self, bounds: Bounds) -> None:
        if self._position < bounds.first:
            raise trimmed(self._position, bounds)

    def _behind(self, bounds: Bounds) -> LogBehindError:
        asked, edge = self._last or self._position, self._edge(bounds)
        kind = "there" if self._request.unstable else "stable"
        return LogBehindError(
            f"position {asked} is not {kind} at this member, whose log goes to {bounds.last} and is stable to "
            f"{bounds.stable}; ask for at most {edge}, wait (wait_s), or ask another member",
            asked=asked,
            **fields_of(bounds),
        )

    def items(self) -> Iterator[Item]:
        """All requested rows. Ends early without an error only when the reader has disconnected."""
        while self._last is None or self._position <= self._last:
            bounds = self._source.bounds()
            self._refuse_trimmed(bounds)
            end = self._edge(bounds) if self._last is None else min(self._edge(bounds), self._last)
            if self._position <= end:
                yield from self._rows(end)
                self._waits_since = self._heartbeat_at = None
                continue
            if self._is_gone():
                return
            now = time.monotonic()
            self._refuse_waiting(bounds, now)
            if self._is_heartbeat_due(now):
                yield EMPTY, json.dumps(asdict(bounds)).encode()
            self._pause()

    def _rows(self, end: int) -> Iterator[pa.RecordBatch]:
        start = self._position
        try:
            for batch in self._source.read(start, end, self._request.batch_rows):
                self._position += batch.num_rows
                yield from within(batch, MOST_BATCH_BYTES)
                self._refuse_closing()
        except Exception:
            self._refuse_trimmed(
                self._source.bounds()
            )  # retention may have deleted rows that this reader was about to read
            raise
        if self._position == start:
            raise LogUnavailableError(f"this member cannot read position {start} of its own log; ask another member")

    def _refuse_closing(self) -> None:
        if self._is_closing.is_set():
            raise LogUnavailableError("this member's log service is closing; continue at another member")

    def _refuse_waiting(self, bounds: Bounds, now: float) -> None:
        self._refuse_closing()
        self._waits_since = now if self._waits_since is None else self._waits_since
        if self._last is not None and now - self._waits_since >= self._request.wait_s:
            raise self._behind(bounds)

    def _is_heartbeat_due(self, now: float) -> bool:
        interval = self._request.heartbeat_s
        if not interval or (self._heartbeat_at is not None and now - self._heartbeat_at < interval):
            return False
        self._heartbeat_at = now
        return True

    def _pause(self) -> None:
        longest = UNSTABLE_SLICE_S if self._request.unstable else SLICE_S
        limits = [limit for limit in (self._request.heartbeat_s, self._request.wait_s) if limit]
        self._source.wait_stable(self._position - 1, min(longest, *limits, longest))


def trimmed(asked: int, bounds: Bounds) -> LogTrimmedError:
    return LogTrimmedError(
        f"position {asked} was deleted by retention: this member's log begins at {bounds.first} and goes to "
        f"{bounds.last}. Start at "
        f"{bounds.first}, if you can do without earlier rows, or ask a member with a longer retention",
        asked=asked,
        **fields_of(bounds),
    )


def fields_of(bounds: Bounds) -> dict[str, int]:
    return {"first": bounds.first, "last": bounds.last, "stable": bounds.stable}


def within(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `most_bytes`; only a single larger row exceeds that."""
    if batch.nbytes <= most_bytes or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from within(batch.slice(0, half), most_bytes)
    yield from within(batch.slice(half), most_bytes)
