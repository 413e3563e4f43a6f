"""Ending queries that run until somebody says stop.

PySpark answers Ctrl-C in the middle of whatever it says to the JVM, which ends in pages of traces. Here a signal only
sets a flag; a query ends between two of its batches, so nothing is cut short that would have to be done again.
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
TIMEOUT_S = 120.0  # with a batch that is under way; then it is cut short, and is done again by the next run
AGAIN_AFTER_S = 1.0  # one Ctrl-C may arrive twice: from the terminal, and from whoever started us
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class QueryFailedError(MotetError):
    """A streaming query ended by itself."""


@contextmanager
def stop_requested() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM; another one, a second later or more, interrupts at once.

    Begin it when the session is there: the session has a handler of its own.
    """
    told = threading.Event()
    told_at = 0.0

    def on_signal(number: int, frame: object) -> None:
        nonlocal told_at
        if told.is_set() and time.monotonic() - told_at > AGAIN_AFTER_S:
            raise KeyboardInterrupt
        told_at = told_at if told.is_set() else time.monotonic()
        told.set()

    before = [signal.signal(number, on_signal) for number in _SIGNALS]
    try:
        yield told
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
                f"the query {query.name} failed: {text}. What it had finished is kept; start it again"
            )
