"""Detects silent streams: a host that loses power closes no connection, and a read from it would wait for ever.

Services send a heartbeat while there are no rows, so a stream on which nothing comes for `silence_s` is dead. One
thread per client, started with the first stream, cancels such streams; a read that is cancelled fails over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class WatchedStream:
    """One stream. `waits_since` is set only while its reader waits, because a slow consumer is not a silent member."""

    cancel: Callable[[], None]
    waits_since: float | None = None
    was_cancelled: bool = False


class Watchdog:
    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._streams: set[WatchedStream] = set()
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    def watch(self, cancel: Callable[[], None]) -> WatchedStream:
        watched = WatchedStream(cancel)
        with self._lock:
            self._streams.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="motet-log-client-watchdog", daemon=True)
                self._thread.start()
        return watched

    def unwatch(self, watched: WatchedStream) -> None:
        with self._lock:
            self._streams.discard(watched)

    def close(self) -> None:
        """Cancel what is open; the thread has ended when this returns."""
        self._is_closed.set()
        self._cancel(lambda watched: True)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(self._silence_s / 4):
            self._cancel(self._is_silent)

    def _is_silent(self, watched: WatchedStream) -> bool:
        since = watched.waits_since
        return since is not None and time.monotonic() - since > self._silence_s

    def _cancel(self, is_due: Callable[[WatchedStream], bool]) -> None:
        with self._lock:
            due = [watched for watched in self._streams if is_due(watched)]
            self._streams.difference_update(due)
        for watched in due:
            watched.was_cancelled = True
            watched.cancel()
