"""Receipts by themselves: what a sender hears of its message, also when the log went back meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from motet.api.receipts import ReceiptTracker
from motet.errors import LeftGroupError, RepeatedAppendError
from motet.protocol.ordering import AppendRepeated
from tests.runtime.cluster import run

CUT_OFF = LeftGroupError("taken back")


def test_a_message_that_was_taken_back_before_anybody_asked_is_not_called_stable() -> None:
    """Others took its position, and that became stable."""

    async def test() -> None:
        tracker = ReceiptTracker()
        receipt = tracker.issue(1)
        tracker.deliver(1, 7)
        tracker.roll_back(6, CUT_OFF)
        tracker.advance_stable(9)
        with pytest.raises(LeftGroupError):
            await receipt.stable()
        again = tracker.issue(1)
        tracker.deliver(1, 10)
        tracker.advance_stable(10)
        assert await again.stable() == 10

    run(test)


def test_a_message_below_what_was_taken_back_is_stable() -> None:
    async def test() -> None:
        tracker = ReceiptTracker()
        receipt = tracker.issue(1)
        tracker.deliver(1, 5)
        tracker.advance_stable(5)
        tracker.roll_back(6, CUT_OFF)
        assert await receipt.stable() == 5

    run(test)


def test_a_repeated_append_is_answered_when_what_it_repeats_is_stable() -> None:
    async def test() -> None:
        tracker = ReceiptTracker()
        receipt = tracker.issue(2)
        tracker.skip(AppendRepeated(1, 1, count=2, last=2, position=4))
        waiting = asyncio.ensure_future(receipt.stable())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        tracker.advance_stable(4)
        with pytest.raises(RepeatedAppendError):
            await waiting

    run(test)


def test_a_repeated_append_fails_when_what_it_repeats_may_be_taken_back() -> None:
    async def test() -> None:
        tracker = ReceiptTracker()
        receipt = tracker.issue(2)
        tracker.skip(AppendRepeated(1, 1, count=2, last=2, position=4))
        tracker.roll_back(3, CUT_OFF)
        with pytest.raises(LeftGroupError):
            await receipt.stable()

    run(test)


def test_a_failure_that_is_told_before_an_earlier_delivery_is_of_its_own_message() -> None:
    """The delivery waits for the application's state, or for a part of the journal."""

    async def test() -> None:
        tracker = ReceiptTracker()
        first, second, third = tracker.issue(2), tracker.issue(1), tracker.issue(1)
        tracker.skip(AppendRepeated(1, 1, count=1, last=3, position=6))
        tracker.deliver(2, 5)
        tracker.deliver(1, 7)
        tracker.advance_stable(7)
        assert (await first.stable(), await third.stable()) == (6, 7)
        with pytest.raises(RepeatedAppendError):
            await second.stable()

    run(test)
