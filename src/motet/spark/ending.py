"""Stops streaming queries on a signal, between two batches.

PySpark handles Ctrl-C within its calls to the JVM, which prints long tracebacks. Here a signal only sets a flag, and a
query is stopped between two batches, so that no batch is interrupted and repeated.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from motet.errors import MotetError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_EVERY_S = 0.25
TIMEOUT_S = 120.0  # limit for the running batch; after it the batch is interrupted, and the next run repeats it
AGAIN_AFTER_S = 1.0  # one Ctrl-C may arrive twice: from the terminal and from the parent process
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class QueryFailedError(MotetError):
    """A streaming query failed."""


@contextmanager
def stop_requested() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set. Another signal after a second or more raises KeyboardInterrupt.

    Enter it after the session was built, because the session installs its own handler.
    """
    requested = threading.Event()
    requested_at = 0.0

    def on_signal(number: int, frame: object) -> None:
        nonlocal requested_at
        if requested.is_set() and time.monotonic() - requested_at > AGAIN_AFTER_S:
            raise KeyboardInterrupt
        requested_at = requested_at if requested.is_set() else time.monotonic()
        requested.set()

    before = [signal.signal(number, on_signal) for number in _SIGNALS]
    try:
        yield requested
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def stop_between_batches(queries: Sequence[StreamingQuery], timeout_s: float = TIMEOUT_S) -> None:
    ends_at = time.monotonic() + timeout_s
    left = list(queries)
    while left:
        for query in list(left):
            if not query.isActive or not query.status["isTriggerActive"] or time.monotonic() > ends_at:
                query.stop()
                left.remove(query)
        time.sleep(POLL_EVERY_S if left else 0)


def raise_failure(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        error = query.exception()
        if error is not None:
            text = str(error).strip().splitlines()[0]
            raise QueryFailedError(
                f"the query {query.name} failed: {text}. Its finished batches are kept; start it again"
            )
