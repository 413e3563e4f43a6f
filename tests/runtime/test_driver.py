"""The driver by itself: when a send queue has space again, who waits for a SYNC, and what is logged."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from motet.api.send_queues import SEND_QUEUE_BYTES
from motet.errors import LeftGroupError, SendFailedError, SyncError
from motet.protocol.core.effects import Admitted, Channel, Effect, SendFailed, SyncCompleted, SyncFailed
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View, ViewId
from motet.protocol.membership import DigestsOverlapped, ReportedEntry
from motet.protocol.window.digest import DigestEntry
from motet.runtime.driver import FREED_STEP_BYTES, Driver, Freed, SendQueueKey, _SendQueue
from motet.runtime.resync import Resyncs

A, B = (Address(name, "127.0.0.1", 7801 + number, number + 1 << 48) for number, name in enumerate("AB"))
TOTAL: SendQueueKey = (Channel.TOTAL, None)
TO_A: SendQueueKey = (Channel.UNICAST, A)


class Sending:
    """Batches of these sizes, numbered from 1, are with the member."""

    def __init__(self, key: SendQueueKey, *sizes: int) -> None:
        parts = (SimpleNamespace(address=A), SimpleNamespace(group=None), lambda effects: None)
        self.driver = Driver(*cast(Any, parts), faults=cast(Any, None))
        self.key = key
        send_queue = self.driver._send_queues[key] = _SendQueue()
        send_queue.accepted.extend(enumerate(sizes, 1))

    def admit(self, through: int) -> list[Effect]:
        return self.driver._admitted(Admitted(*self.key, through))


def test_a_little_is_not_worth_a_wake_up() -> None:
    sending = Sending(TOTAL, 100, 200, 300)
    assert [sending.admit(number) for number in (1, 2, 3)] == [[], [], []]


def test_much_is_and_it_is_told_once() -> None:
    sending = Sending(TOTAL, FREED_STEP_BYTES // 2, FREED_STEP_BYTES // 2, 300)
    assert sending.admit(1) == []
    assert sending.admit(2) == [Freed(TOTAL, FREED_STEP_BYTES)]
    assert sending.admit(2) == []
    assert sending.admit(3) == []


def test_what_is_not_told_never_makes_a_send_wait() -> None:
    """A send queue wakes its waiters when half of it is free; that much must always be reported."""
    assert FREED_STEP_BYTES <= SEND_QUEUE_BYTES // 2


def test_a_connection_that_failed_frees_what_nobody_was_told_of() -> None:
    sending = Sending(TO_A, 100, 200, 300)
    assert sending.admit(1) == []
    failed = SendFailed(Channel.UNICAST, A, 2, 3, SendFailedError("gone"))
    assert sending.driver._abandoned(failed) == [Freed(TO_A, 600)]


def test_overlapping_digests_are_a_warning_with_both_entries(caplog: pytest.LogCaptureFixture) -> None:
    driver = Sending(TOTAL).driver
    driver._defers_timer = True  # there is no loop here to arm a timer on
    views = [View(ViewId(number, A.incarnation), (A,), is_primary=False) for number in (4, 5)]
    entries = (DigestEntry(7, 20, 20), DigestEntry(2, 10, 10))
    overlap = DigestsOverlapped(A, *map(ReportedEntry, views, entries))
    with caplog.at_level(logging.WARNING, logger="motet"):
        driver.perform([overlap], 0)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"7 20 (20) in {views[0]} and 2 10 (10) in {views[1]}" in record.getMessage()


# Who waits for a SYNC


def test_a_sync_that_ends_is_the_end_for_all_who_wait_for_that_peer_and_for_nobody_else() -> None:
    resyncs = Resyncs()
    one, other, of_b = resyncs.wait(A), resyncs.wait(A), resyncs.wait(B)
    resyncs.ended(SyncCompleted(A, 102, 5))
    assert (one.result(0), other.result(0), of_b.done()) == (None, None, False)
    error = SyncError("silent")
    resyncs.ended(SyncFailed(B, error))
    assert of_b.exception(0) is error
    resyncs.ended(SyncCompleted(B, 102, 5))  # nobody waits any more


def test_whoever_was_cancelled_is_not_told_and_the_others_are() -> None:
    resyncs = Resyncs()
    one, other = resyncs.wait(A), resyncs.wait(A)
    one.cancel()
    resyncs.ended(SyncCompleted(A, 102, 5))
    assert (one.cancelled(), other.result(0)) == (True, None)


def test_nobody_waits_for_a_member_that_has_stopped() -> None:
    resyncs = Resyncs()
    waiting, error = [resyncs.wait(A), resyncs.wait(B)], LeftGroupError("gone")
    resyncs.close(error)
    assert [future.exception(0) for future in waiting] == [error, error]
