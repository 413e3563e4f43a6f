"""The application's side of the send queues: how much of each stream waits for window space, and who waits for that."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from motet.api.queue import MESSAGE_OVERHEAD
from motet.errors import MisuseError
from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.wire.body import MAX_MESSAGE_BYTES
from motet.runtime.driver import Freed, SendQueueKey

SEND_QUEUE_BYTES = 2 << 20  # what may wait for window space before a send waits; more only gets cold in the caches


class SendQueue:
    __slots__ = ("outstanding", "waiters")

    def __init__(self) -> None:
        self.outstanding = 0
        self.waiters: deque[asyncio.Future[None]] = deque()

    def free(self, size: int) -> None:
        # Bytes that were sent before this queue was dropped may be reported as freed afterwards.
        self.outstanding = max(0, self.outstanding - size)
        if self.outstanding <= SEND_QUEUE_BYTES // 2:
            while self.waiters:
                waiter = self.waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)


class SendQueues:
    def __init__(self, check_open: Callable[[], None]) -> None:
        self._check_open = check_open
        self._send_queues: dict[SendQueueKey, SendQueue] = {}

    async def space(self, key: SendQueueKey) -> SendQueue:
        """The send queue, as soon as it has space."""
        send_queue = self.at(key)
        while send_queue.outstanding > SEND_QUEUE_BYTES:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            send_queue.waiters.append(waiter)
            await waiter
            self._check_open()
        return send_queue

    def at(self, key: SendQueueKey) -> SendQueue:
        send_queue = self._send_queues.get(key)
        if send_queue is None:
            send_queue = self._send_queues[key] = SendQueue()
        return send_queue

    def freed(self, effect: Freed) -> None:
        send_queue = self._send_queues.get(effect.send_queue)
        if send_queue is None:
            return
        send_queue.free(effect.size)

    def drop(self, member: Address) -> None:
        """Gone for good: what is still on the way to it is the driver's, which tells in time that it failed."""
        send_queue = self._send_queues.pop((Channel.UNICAST, member), None)
        if send_queue is not None:
            send_queue.free(send_queue.outstanding)

    def close(self) -> None:
        for send_queue in self._send_queues.values():
            send_queue.free(send_queue.outstanding)


def measure(messages: Sequence[bytes]) -> int:
    """What these cost a send queue; what is too large is refused."""
    size = sum(map(len, messages))
    if size > MAX_MESSAGE_BYTES and max(map(len, messages)) > MAX_MESSAGE_BYTES:
        raise MisuseError(f"a message can have {MAX_MESSAGE_BYTES} bytes at most; split it")
    return size + MESSAGE_OVERHEAD * len(messages)
