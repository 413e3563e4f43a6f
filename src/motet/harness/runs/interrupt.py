"""Runs a coroutine to its end or until a signal interrupts it; then it cleans up, without a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 - an intended interruption is no error
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        return 128 + self.signal


def run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """SIGINT, SIGTERM and SIGHUP cancel the work. After its clean-up, Interrupted is raised with the signal."""
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    loop, received = asyncio.get_running_loop(), []
    task = asyncio.ensure_future(work)

    def interrupt(number: int) -> None:
        received.append(number)
        if len(received) == 1:  # a second signal must not interrupt the clean-up
            task.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with contextlib.suppress(ValueError, RuntimeError):  # outside the main thread no signal handlers can be set
        for number in numbers:
            loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise Interrupted(received[0]) from None
        raise
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
