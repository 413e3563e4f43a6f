"""The events that wait for the application, in order, and the back-pressure that applies when there are too many.

Invariant: the weight of what waits, and of the batch in the consumer's hands, is `weight`; while it is beyond the limit
the member delivers nothing, so that its windows fill and the senders wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from motet.api.events import Batch, BatchEvent, Event, Message
from motet.errors import MisuseError
from motet.protocol.wire.body import PACKED

MESSAGE_OVERHEAD = 64  # what a message costs beside its bytes, so that empty ones are not free
IDLE_CONSUMER_S = 5.0

Later = Callable[[], None]


class EventQueue:
    def __init__(self, limit: int, pause: Later, resume: Later, warn: Later, run: Callable[[Later], None]) -> None:
        """`pause` and `resume` stop and continue deliveries; `run` calls the application and logs what it raises."""
        self.limit = limit
        self.weight = 0
        self.is_paused = False
        self._pause = pause
        self._resume = resume
        self._warn = warn
        self._run = run
        self._events: deque[tuple[BatchEvent | Later, int]] = deque()  # each with its weight
        self._wake: asyncio.Future[None] | None = None  # of the one who iterates
        self._rest: Iterator[Message] = iter(())  # of the batch that is handed out one by one
        self._in_hand = 0  # the weight of the batch that was handed out last
        self._idle_check: asyncio.TimerHandle | None = None
        self._end: Exception | None = None

    def put(self, event: BatchEvent | Later, weight: int = 0) -> None:
        self._events.append((event, weight))
        self.weight += weight
        if self.weight > self.limit and not self.is_paused:
            self._apply_back_pressure()
        if self._wake is not None:
            self._wake_up()

    def close(self, end: Exception) -> None:
        """What waits is still handed out; then comes `end`."""
        self._end = end
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._wake_up()

    def fail(self, end: Exception) -> None:
        """Nothing that waits is handed out any more: it would be taken for what it is not."""
        self._events.clear()
        self._rest = iter(())
        self.close(end)

    @property
    def waiting_messages(self) -> int:
        return sum(len(event.payloads) for event, _ in list(self._events) if isinstance(event, Batch))

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _apply_back_pressure(self) -> None:
        self.is_paused = True
        self._pause()
        loop = asyncio.get_running_loop()
        self._idle_check = loop.call_later(IDLE_CONSUMER_S, self._warn_if_idle, len(self._events))

    def _warn_if_idle(self, waiting: int) -> None:
        if self.is_paused and len(self._events) >= waiting:
            self._warn()

    # The consumer

    async def messages(self) -> AsyncIterator[Event]:
        """Every event, one message at a time. Whoever breaks off leaves the rest of a batch to the next who asks.

        A generator, because to resume one costs a third of a new coroutine for each message.
        """
        while True:
            for message in self._rest:
                yield message
            try:
                event = await self.next_batch()
            except StopAsyncIteration:
                return
            if isinstance(event, Batch):
                self._rest = event.messages()
            else:
                yield event

    async def next_batch(self) -> BatchEvent:
        self._settle()
        if rest := list(self._rest):  # somebody took single messages before, and changed over
            return _batch_of(rest)
        while True:
            while self._events:
                event, self._in_hand = self._events.popleft()
                if not callable(event):
                    return event
                self._run(event)
            if self._end is not None:
                raise self._end
            await self._until_more()

    async def _until_more(self) -> None:
        if self._wake is not None:
            raise MisuseError("somebody iterates over this group already; hand the events on from there")
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _settle(self) -> None:
        """The batch that was handed out last has been dealt with: its consumer asks for the next."""
        self.weight -= self._in_hand
        self._in_hand = 0
        if self.is_paused and self.weight < self.limit // 2:
            self.is_paused = False
            self._resume()


class Batches:
    """The same events, messages as they arrived."""

    __slots__ = ("_queue",)

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue

    def __aiter__(self) -> AsyncIterator[BatchEvent]:
        return self

    def __anext__(self) -> Awaitable[BatchEvent]:
        return self._queue.next_batch()


def weight_of(messages: Sequence[bytes], bodies: Sequence[bytes] = ()) -> int:
    """What messages weigh. Packed bodies hold nothing but messages, and are fewer, so their sizes are added up."""
    is_packed = bool(bodies) and all(body[0] == PACKED for body in bodies)
    return sum(map(len, bodies if is_packed else messages)) + MESSAGE_OVERHEAD * len(messages)


def _batch_of(messages: list[Message]) -> Batch:
    first = messages[0]
    keys = None if first.key is None else tuple(message.key or b"" for message in messages)
    return Batch(first.sender, tuple(message.payload for message in messages), first.position, first.order, keys)
