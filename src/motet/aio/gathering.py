"""Single messages on their way to the driver: the first leaves at once, those that follow it closely leave together.

Everything that goes to the driver passes through here, so that nothing overtakes a message that still gathers.
Invariant: whatever gathers is of one lane, and is handed over in this turn of the application's loop, or before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from motet.aio.driver import Driver, LaneKey, Outgoing
from motet.wire.body import Port

MOST_BYTES = 50_000  # about a frame; more gains nothing


class Gathering:
    def __init__(self, driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self._loop = loop
        self.lane: LaneKey | None = None
        self.messages: list[bytes] = []
        self.size = 0
        self._is_flush_planned = False

    def add(self, lane: LaneKey, message: bytes, size: int) -> None:
        """One plain message of the application. `lane` is always the same object for the same lane."""
        if lane is self.lane and self.size < MOST_BYTES:
            self.messages.append(message)
            self.size += size
            return
        self.flush()
        if self._driver.gathers:
            self._begin(lane, message, size)
        else:
            self._driver.offer(Outgoing(lane, (message,), Port.APP, None, size))

    def offer(self, outgoing: Outgoing | Callable[[], None]) -> None:
        """Anything else, behind what gathers."""
        self.flush()
        self._driver.offer(outgoing)

    def flush(self) -> None:
        if self.lane is None:
            return
        gathered = Outgoing(self.lane, self.messages, Port.APP, None, self.size)
        self.lane, self.messages, self.size = None, [], 0
        self._driver.offer(gathered)

    def _begin(self, lane: LaneKey, message: bytes, size: int) -> None:
        self.lane, self.messages, self.size = lane, [message], size
        if not self._is_flush_planned:
            self._is_flush_planned = True
            self._loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._is_flush_planned = False
        self.flush()
