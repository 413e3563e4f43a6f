"""Virtual time: an event loop that never sleeps. When nothing is left to do, its clock jumps to the next timer.

Invariant: the clock advances only while the loop has nothing to run. So a test takes only the time of its computation,
and its result does not depend on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from math import ceil
from typing import Any, TypeVar

from motet.errors import MisuseError
from motet.protocol.core.units import SECOND

T = TypeVar("T")
EPOCH_NS = 1_767_225_600 * SECOND  # 1 January 2026: the wall clock at the start of every simulation


class FakeClock:
    """The time of a simulation. It has the functions of the module `time`, so it can stand in for it."""

    def __init__(self) -> None:
        self._now = 0

    def monotonic_ns(self) -> int:
        return self._now

    def time_ns(self) -> int:
        return EPOCH_NS + self._now

    def monotonic(self) -> float:
        return self._now / SECOND

    perf_counter = monotonic

    def time(self) -> float:
        return self.time_ns() / SECOND

    async def advance(self, seconds: float) -> None:
        """Advance virtual time by `seconds` and run everything that is due in it."""
        await asyncio.sleep(seconds)

    def _jump(self, seconds: float) -> None:
        self._now += ceil(seconds * SECOND)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Made for simulations: one thread, no network, and a clock of its own."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._home = threading.get_ident()
        super().__init__(_JumpingSelector(self.clock))

    def time(self) -> float:
        return self.clock.monotonic()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() == self._home:  # the loop never sleeps, so it needs no wake-up
            return self.call_soon(callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the function synchronously: a thread would take real time and end at an unpredictable virtual time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _JumpingSelector(selectors.BaseSelector):
    """Where another selector would wait, this one moves the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._files = selectors.DefaultSelector()  # the loop keeps a pipe to itself

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._files.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise MisuseError("nothing is in flight and no timer is set, so what the test waits for will never happen")
        self._clock._jump(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._files.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files.get_map()

    def close(self) -> None:
        self._files.close()
