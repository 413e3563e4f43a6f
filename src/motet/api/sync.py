"""The synchronous face, for scripts: the same group, on a loop of its own in the background.

with motet.join_sync("orders", bind="127.0.0.1:7801", seeds=["127.0.0.1:7800"]) as group:
    group.multicast(b"buy 10")
    for event in group.events(timeout=1): ...
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from motet.api.events import Batch, BatchEvent, Event
from motet.api.group import Group, Order
from motet.api.joining import Joining
from motet.errors import GroupFailedError, MotetError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

T = TypeVar("T")
MOST_WAITING = 64  # batches that were taken from the group and not by the script; beyond it senders wait


class SyncGroup:
    """One member, for code without asyncio. Made by `motet.join_sync`; any thread may use it."""

    def __init__(self, joining: Joining) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="motet sync", daemon=True)
        self._thread.start()
        self._events: queue.Queue[BatchEvent | MotetError | None] = queue.Queue(MOST_WAITING)
        self._pump: asyncio.Task[None] | None = None
        try:
            self.group: Group = self._run(self._start(joining))
        except BaseException:
            self._stop_loop()
            raise

    async def _start(self, joining: Joining) -> Group:
        group = await joining
        if joining.consume:
            self._pump = asyncio.ensure_future(self._move_events(group))
        return group

    async def _move_events(self, group: Group) -> None:
        end: MotetError | None = None
        try:
            async for event in group.batches():
                await self._put(event)
        except GroupFailedError as error:
            end = error
        await self._put(end)

    async def _put(self, event: BatchEvent | MotetError | None) -> None:
        while True:
            try:
                self._events.put_nowait(event)
                return
            except queue.Full:
                await asyncio.sleep(0.01)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    @property
    def view(self) -> View:
        return self.group.view

    @property
    def address(self) -> Address:
        return self.group.address

    def multicast(self, payload: bytes, *, order: Order = "total", key: bytes | None = None) -> int | None:
        """Waits until this member has delivered it; the answer is its position in the log (None with order="fifo")."""
        return self._run(self._multicast((payload,), order, None if key is None else (key,)))

    def multicast_many(
        self, payloads: Sequence[bytes], *, order: Order = "total", keys: Sequence[bytes] | None = None
    ) -> int | None:
        return self._run(self._multicast(payloads, order, keys))

    async def _multicast(self, payloads: Sequence[bytes], order: Order, keys: Sequence[bytes] | None) -> int | None:
        receipt = await self.group.multicast_many(payloads, order=order, keys=keys)
        return await receipt.delivered() if order == "total" else None

    def send(self, to: Address, payload: bytes) -> None:
        self._run(self.group.send(to, payload))

    def call(self, to: Address, payload: bytes, *, timeout: float | None = 5.0) -> bytes:
        return self._run(self.group.call(to, payload, timeout=timeout))

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they come; ends when nothing came for `timeout` seconds, or when the member has left."""
        while True:
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                return
            if event is None:
                return
            if isinstance(event, MotetError):
                raise event
            if isinstance(event, Batch):
                yield from event.messages()
            else:
                yield event

    def leave(self) -> None:
        if not self._thread.is_alive():
            return
        self._run(self._leave())
        self._stop_loop()

    async def _leave(self) -> None:
        await self.group.leave()
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> SyncGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        self.leave()


def join_sync(group: str, **options: Any) -> SyncGroup:
    """The options of `motet.join`."""
    return SyncGroup(Joining(group, **options))
