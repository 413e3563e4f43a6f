"""Run something to its end, or until somebody interrupts it: then it cleans up behind itself, without a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 - it is no error: somebody wanted it
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        return 128 + self.signal


def run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """SIGINT, SIGTERM and SIGHUP cancel the work; when it has cleaned up, Interrupted says which of them it was."""
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    loop, received = asyncio.get_running_loop(), []
    task = asyncio.ensure_future(work)

    def interrupt(number: int) -> None:
        received.append(number)
        if len(received) == 1:  # an impatient second signal must not stop the cleaning up
            task.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: nobody sends it signals
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
