"""Busy polling: keep the event loop from sleeping for a short time, so that a quick answer needs no wake-up.

Waking an idle processor takes longer than all that Motet does with a datagram. The price is a busy processor; other
processes that need it get it first, because the loop yields.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Awake:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], int], spin_ns: int) -> None:
        self._loop = loop
        self._clock = clock
        self._spin_ns = spin_ns
        self._until = 0
        self._is_scheduled = False

    def stay(self) -> None:
        """Poll for another `spin_ns`: something was just sent or received."""
        self._until = self._clock() + self._spin_ns
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._poll_again)

    def end(self) -> None:
        self._until = 0

    def _poll_again(self) -> None:
        """Schedule one more loop iteration: the event loop polls its sockets in each."""
        self._is_scheduled = self._clock() < self._until
        if self._is_scheduled:
            if hasattr(os, "sched_yield"):  # on Unix
                os.sched_yield()
            self._loop.call_soon(self._poll_again)
