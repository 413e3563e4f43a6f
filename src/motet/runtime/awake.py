"""A loop that does not go to sleep at once: an answer that comes soon is then seen without being woken for it.

To be woken takes an idle processor longer than all that Motet does with a datagram. The price is that the processor is
busy meanwhile; whoever else needs it has it first.
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
        """Something was just said or heard."""
        self._until = self._clock() + self._spin_ns
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._poll_again)

    def end(self) -> None:
        self._until = 0

    def _poll_again(self) -> None:
        """A loop looks at its sockets in every turn, so one more turn is all that it takes."""
        self._is_scheduled = self._clock() < self._until
        if self._is_scheduled:
            if hasattr(os, "sched_yield"):  # on Unix
                os.sched_yield()
            self._loop.call_soon(self._poll_again)
