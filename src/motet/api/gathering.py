"""Single messages on their way to the driver: the first leaves at once, those that follow it closely leave together.

Everything that goes to the driver passes through here, so that nothing overtakes a message that still gathers.
Invariants: all messages that gather are of one stream, and are handed over in the same turn of the application's loop
at the latest; nothing gathers for a send queue that has no space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from motet.api.queue import MESSAGE_OVERHEAD
from motet.api.send_queues import SEND_QUEUE_BYTES, SendQueue
from motet.protocol.core.identity import Address
from motet.protocol.wire.body import Port
from motet.runtime.driver import Driver, Outgoing, SendQueueKey

MOST_BYTES = 50_000  # about a frame; more gains nothing

Stream = str | Address | None  # an order, or one member


class Gathering:
    def __init__(self, driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self._loop = loop
        self.stream: Stream = None  # of what gathers; whoever passes the same object may call `put` and lower `space`
        self.space = 0  # bytes that may still gather; below zero it is time to `flush`
        self._send_queue: tuple[SendQueueKey, SendQueue] | None = None
        self._messages: list[bytes] = []
        self.put: Callable[[bytes], None] = self._messages.append
        self._is_flush_planned = False

    def add(self, stream: Stream, send_queue_key: SendQueueKey, send_queue: SendQueue, message: bytes) -> None:
        """One plain message of the application that does not join what gathers."""
        self.flush()
        size = len(message) + MESSAGE_OVERHEAD
        if self._driver.is_send_scheduled and send_queue.outstanding <= SEND_QUEUE_BYTES:
            self._begin(stream, (send_queue_key, send_queue))
            self.put(message)
            self.space -= size
        else:
            send_queue.outstanding += size
            self._driver.offer(Outgoing(send_queue_key, (message,), Port.APP, None, size))

    def offer(self, outgoing: Outgoing | Callable[[], None]) -> None:
        """Anything else, behind what gathers."""
        self.flush()
        self._driver.offer(outgoing)

    def flush(self) -> None:
        if self._send_queue is None:
            return
        (send_queue_key, send_queue), size = self._send_queue, MOST_BYTES - self.space
        send_queue.outstanding += size
        gathered = Outgoing(send_queue_key, self._messages, Port.APP, None, size)
        self.drop()
        self._driver.offer(gathered)

    def drop(self) -> None:
        """Nothing gathers any more."""
        self._send_queue = self.stream = None
        self._messages = []

    def _begin(self, stream: Stream, send_queue: tuple[SendQueueKey, SendQueue]) -> None:
        self.stream, self.space, self._send_queue = stream, MOST_BYTES, send_queue
        self.put = self._messages.append
        if not self._is_flush_planned:
            self._is_flush_planned = True
            self._loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._is_flush_planned = False
        self.flush()
