"""Request and reply over reliable unicast.

    kind u8  call u64  payload        kind 1: request, 2: reply, 3: the handler failed (the payload says how)

Calls are named by their caller; a reply from anybody but the one who was asked is ignored. Bounds: `most_running`
handlers at once (more are answered with "busy"), and as many open calls as the application makes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from struct import Struct
from typing import NamedTuple

from motet.api.payloads import plain
from motet.errors import CallTimeoutError, PeerUnreachableError, RemoteError
from motet.protocol.core.identity import Address

HEADER = Struct("<BQ")
REQUEST, REPLY, FAILURE = 1, 2, 3
MOST_RUNNING = 4_096
MOST_ERROR_BYTES = 2_000

Handler = Callable[[Address, bytes], bytes | Awaitable[bytes]]
Send = Callable[[Address, bytes], None]


class _Call(NamedTuple):
    """One that was not answered yet."""

    to: Address
    future: asyncio.Future[bytes]
    timeout: float | None
    until: float  # on the loop's clock


class Calls:
    def __init__(self, send: Send) -> None:
        self.handler: Handler | None = None
        self._send = send
        self._next = 0
        self._open: dict[int, _Call] = {}
        self._expiry: asyncio.TimerHandle | None = None  # one for all calls: it is early for most, and rarely needed
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, to: Address, payload: bytes, timeout: float | None) -> bytes:
        self._next += 1
        number = self._next
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        call = self._open[number] = _Call(to, future, timeout, inf if timeout is None else loop.time() + timeout)
        if self._expiry is None or call.until < self._expiry.when():
            self._expire_at(call.until, loop)
        try:
            self._send(to, HEADER.pack(REQUEST, number) + payload)
            return await future
        finally:
            del self._open[number]

    def _expire_at(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = loop.call_at(due, self._expire, loop) if due < inf else None

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for call in self._open.values():
            if call.until <= now and not call.future.done():
                call.future.set_exception(
                    CallTimeoutError(
                        f"{call.to} did not answer within {call.timeout} s; it may still do so: raise the timeout, "
                        "or ask again"
                    )
                )
        self._expiry = None
        self._expire_at(min((call.until for call in self._open.values() if call.until > now), default=inf), loop)

    def receive(self, source: Address, messages: Sequence[bytes]) -> None:
        for message in messages:
            if len(message) >= HEADER.size:
                kind, number = HEADER.unpack_from(message)
                self._handle(source, kind, number, message[HEADER.size :])

    def _handle(self, source: Address, kind: int, number: int, payload: bytes) -> None:
        if kind == REQUEST:
            self._serve(source, number, payload)
            return
        call = self._open.get(number)
        if call is None or call.to != source or call.future.done():
            return
        if kind == REPLY:
            call.future.set_result(payload)
        elif kind == FAILURE:
            call.future.set_exception(RemoteError(f"{source}: {payload.decode(errors='replace')}"))

    def _serve(self, source: Address, number: int, payload: bytes) -> None:
        if self.handler is None:
            self._answer(source, FAILURE, number, b"this member answers no calls; it has no handler (on_call)")
            return
        if len(self._tasks) >= MOST_RUNNING:
            self._answer(source, FAILURE, number, b"this member is busy with other calls; ask again later")
            return
        try:
            result = self.handler(source, payload)
            if not inspect.isawaitable(result):
                self._answer(source, REPLY, number, plain(result, "an answer"))
                return
        except Exception as error:  # the caller hears of it
            self._fail(source, number, error)
            return
        task = asyncio.ensure_future(self._finish(source, number, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, source: Address, number: int, result: Awaitable[bytes]) -> None:
        try:
            self._answer(source, REPLY, number, plain(await result, "an answer"))
        except asyncio.CancelledError:
            self._answer(source, FAILURE, number, b"the handler was cancelled")
            raise
        except Exception as error:  # the caller hears of it
            self._fail(source, number, error)

    def _fail(self, source: Address, number: int, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self._answer(source, FAILURE, number, text.encode()[:MOST_ERROR_BYTES])

    def _answer(self, to: Address, kind: int, number: int, payload: bytes) -> None:
        self._send(to, HEADER.pack(kind, number) + payload)

    def lost(self, peer: Address, error: Exception | None = None) -> None:
        """The peer is gone, or what was sent to it is."""
        error = error or PeerUnreachableError(f"{peer} left the group before it answered; the call may have been done")
        for call in self._open.values():
            if call.to == peer and not call.future.done():
                call.future.set_exception(error)

    async def close(self, error: Exception) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for call in self._open.values():
            if not call.future.done():
                call.future.set_exception(error)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
