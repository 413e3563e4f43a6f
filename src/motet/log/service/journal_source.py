"""A member's journal as the source of its log service.

Rows are read from the segments on disk while the writer appends. The stable position can come from the segments, too,
which are polled; a driver that knows it earlier calls `set_stable`, which wakes waiting readers at once. A position
from `set_stable` counts only as far as the files have it: rows that cannot be read yet are not offered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from motet.log.journal.reader import Bounds, JournalReader

POLL_S = 0.05  # interval of polling the disk, which bounds how late a waiting reader gets a new row
MOST_IDLE_READERS = 8  # each keeps an index of the segments that it has read


class JournalSource:
    """Thread-safe: each stream has a reader of its own, because a reader serves one thread."""

    def __init__(self, directory: str | Path, poll_s: float = POLL_S) -> None:
        self._directory = Path(directory)
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._idle = [JournalReader(self._directory)]
        self._moved = threading.Condition()
        self._reported = 0

    @property
    def group(self) -> str:
        with self._reader() as reader:
            return reader.group

    def set_stable(self, stable: int) -> None:
        """Report that everything up to `stable` is stable. Called by the driver, from any thread."""
        with self._moved:
            if stable > self._reported:
                self._reported = stable
                self._moved.notify_all()

    def bounds(self) -> Bounds:
        with self._reader() as reader:
            bounds = reader.bounds()
        return replace(bounds, stable=max(bounds.stable, min(self._reported, bounds.last)))

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with self._reader() as reader:
            yield from reader.read(first, last, batch_rows)

    def wait_stable(self, beyond: int, timeout_s: float) -> int:
        ends_at = time.monotonic() + timeout_s
        while True:
            told = self._reported  # read before polling, so that a report during the poll is not missed
            stable = self.bounds().stable
            left_s = ends_at - time.monotonic()
            if stable > beyond or left_s <= 0:
                return stable
            self._wait_for_report(told, min(left_s, self._poll_s))

    def _wait_for_report(self, told: int, timeout_s: float) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._reported > told, timeout_s)

    @contextmanager
    def _reader(self) -> Iterator[JournalReader]:
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        reader = reader or JournalReader(self._directory)
        is_sound = True
        try:
            yield reader
        except Exception:
            is_sound = False  # its index may be inconsistent, so it is not reused
            raise
        finally:
            with self._lock:
                if is_sound and len(self._idle) < MOST_IDLE_READERS:
                    self._idle.append(reader)
