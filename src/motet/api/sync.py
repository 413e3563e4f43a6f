"""The blocking twin, for scripts: the same group, on a loop of its own in the background.

with motet.join_sync("orders", bind="127.0.0.1:7801", seeds=["127.0.0.1:7800"]) as group:
    group.multicast(b"buy 10")
    for event in group.events(timeout=1): ...
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from motet.api.calls import Handler
from motet.api.events import Batch, BatchEvent, Event
from motet.api.group import Group, Order
from motet.api.joining import Joining, join
from motet.api.payloads import Payload
from motet.api.state import StateProvider, StateReceiver
from motet.config import Config
from motet.errors import GroupFailedError, MotetError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

T = TypeVar("T")
MOST_WAITING = 64  # batches that were taken from the group and not by the script; beyond it senders wait


class SyncGroup:
    """One member, for code without asyncio. Made by `motet.join_sync`; any thread may use it.

    Leave it with `group.leave()`, or enter it with `with`.
    """

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
        """Who is in the group now, as this member knows it."""
        return self.group.view

    @property
    def address(self) -> Address:
        """This member's own address."""
        return self.group.address

    def multicast(self, payload: Payload, *, order: Order = "total", key: Payload | None = None) -> int | None:
        """Waits until this member has delivered it; the answer is its position in the log (None with order="fifo")."""
        return self._run(self._multicast((payload,), order, None if key is None else (key,)))

    def multicast_many(
        self, payloads: Iterable[Payload], *, order: Order = "total", keys: Iterable[Payload] | None = None
    ) -> int | None:
        """Many at once: the fast way. The answer is the position of the last one."""
        return self._run(self._multicast(payloads, order, keys))

    async def _multicast(self, payloads: Iterable[Payload], order: Order, keys: Iterable[Payload] | None) -> int | None:
        receipt = await self.group.multicast_many(payloads, order=order, keys=keys)
        return await receipt.delivered() if order == "total" else None

    def send(self, to: Address, payload: Payload) -> None:
        """To one member, reliably and in order. Waits for window space only."""
        self._run(self.group.send(to, payload))

    def call(self, to: Address, payload: Payload, *, timeout: float | None = 5.0) -> bytes:
        """Ask one member and wait for its answer."""
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
        """Leave the group, and let the others know. Calling it again does nothing."""
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


def join_sync(
    group: str,
    *,
    bind: str = "127.0.0.1:0",
    seeds: str | Sequence[str] | None = None,
    name: str | None = None,
    advertise: str | None = None,
    config: Config | None = None,
    on_call: Handler | None = None,
    state_provider: StateProvider | None = None,
    state_receiver: StateReceiver | None = None,
    thread: bool = True,
    consume: bool = True,
    journal: str | Path | None = None,
    replay_from: int | None = None,
    stable_events: bool = False,
    wait: bool = True,
    timeout: float | None = None,
) -> SyncGroup:
    """Join a group from code without asyncio; the options are those of `motet.join`."""
    joining = join(
        group,
        bind=bind,
        seeds=seeds,
        name=name,
        advertise=advertise,
        config=config,
        on_call=on_call,
        state_provider=state_provider,
        state_receiver=state_receiver,
        thread=thread,
        consume=consume,
        journal=journal,
        replay_from=replay_from,
        stable_events=stable_events,
        wait=wait,
        timeout=timeout,
    )
    return SyncGroup(joining)
