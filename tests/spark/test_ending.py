"""Ending queries that run until somebody says stop, with queries that are none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from motet.spark import ending
from motet.spark.ending import QueryFailedError, raise_failure, stop_between_batches, stop_requested


class Query:
    name = "bronze-a"

    def __init__(self, busy_polls: int = 0, error: Exception | None = None) -> None:
        self.isActive = True
        self.stopped_while_busy = False
        self._busy_polls = busy_polls
        self._error = error

    @property
    def status(self) -> dict[str, Any]:
        self._busy_polls -= 1
        return {"isTriggerActive": self._busy_polls >= 0}

    def stop(self) -> None:
        self.stopped_while_busy = self._busy_polls >= 0
        self.isActive = False

    def exception(self) -> Exception | None:
        return self._error


def as_queries(*queries: Query) -> list[StreamingQuery]:
    return [cast(StreamingQuery, query) for query in queries]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "POLL_EVERY_S", 0.0)


def test_a_signal_is_a_flag_until_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_requested() as told:
        assert not told.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # the same Ctrl-C, from whoever started us
        assert told.is_set()
        monkeypatch.setattr(ending, "AGAIN_AFTER_S", -1.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_queries_end_when_their_batch_is_written() -> None:
    busy, idle = Query(busy_polls=3), Query()
    stop_between_batches(as_queries(busy, idle))
    assert not busy.isActive
    assert not idle.isActive
    assert not busy.stopped_while_busy


def test_the_wait_for_a_batch_is_bounded() -> None:
    stuck = Query(busy_polls=1_000_000)
    stop_between_batches(as_queries(stuck), timeout_s=0.0)
    assert stuck.stopped_while_busy


@pytest.mark.parametrize("text_of", [str, lambda text: text + "\nat java.base/Thread"])
def test_a_query_that_failed_is_named_with_the_first_line_of_its_reason(text_of: Callable[[str], str]) -> None:
    raise_failure(as_queries(Query()))
    with pytest.raises(QueryFailedError, match=r"the query bronze-a failed: disk full\. Its finished batches are kept"):
        raise_failure(as_queries(Query(error=OSError(text_of("disk full")))))
