"""The public face of one member: `async with motet.join(...) as group`.

Everything here runs on the application's loop. The protocols run on the driver's, in a thread of their own; between the
two go lists, one per wake-up and not one per message. Invariant: events come out in the order in which they happened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, TypeVar

from motet.aio.calls import Calls, Handler
from motet.aio.driver import Driver, Failed, Freed, LaneKey, Outgoing
from motet.aio.events import ORDERS, Batch, BatchEvent, Event, Message
from motet.aio.keys import keyed, split_keys
from motet.aio.observe import Observer
from motet.aio.receipts import Ledger, Receipt
from motet.aio.state import StateParts, StateProvider, StateReceiver
from motet.core.effects import Channel, Effect, SendFailed
from motet.core.identity import Address
from motet.core.view import View
from motet.errors import GroupFailedError, LeftGroupError, MisuseError, MotetError, NotPrimaryError
from motet.membership.engine import Left, ViewInstalled
from motet.membership.transfer import ProvideState, StateFailed, StateReceived
from motet.ordering import RolledBack, StableAdvanced
from motet.stack import Delivered
from motet.wire.body import MAX_MESSAGE_BYTES, Port
from motet.wire.ordered import Tag

logger = logging.getLogger("motet")
T = TypeVar("T")
Order = Literal["total", "fifo"]
CHANNELS = {"total": Channel.TOTAL, "fifo": Channel.MULTICAST}
LANE_BYTES = 8 << 20  # what may wait for window space before a send waits
MESSAGE_OVERHEAD = 64  # what a message costs beside its bytes, so that empty ones are not free
IDLE_CONSUMER_S = 5.0
BlockHandler = Callable[[int, Address, tuple[bytes, ...]], None]


class _Lane:
    """How much of one stream waits for window space, and who waits for that."""

    __slots__ = ("outstanding", "waiters")

    def __init__(self) -> None:
        self.outstanding = 0
        self.waiters: deque[asyncio.Future[None]] = deque()

    def free(self, size: int) -> None:
        self.outstanding -= size
        if self.outstanding <= LANE_BYTES // 2:
            while self.waiters:
                waiter = self.waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)


class Group:
    """One member of one group. Made by `motet.join`."""

    def __init__(
        self,
        name: str,
        driver: Driver,
        *,
        queue_bytes: int,
        consume: bool = True,
        on_call: Handler | None = None,
        state_provider: StateProvider | None = None,
        state_receiver: StateReceiver | None = None,
    ) -> None:
        self.name = name
        self.started_at = time.time()
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._queue_bytes = queue_bytes
        self._consumes = consume
        self._calls = Calls(self._send_call)
        self._calls.handler = on_call
        self._state = StateParts(state_provider, state_receiver, self._supply_state)
        self._ledger = Ledger()
        self._lanes: dict[LaneKey, _Lane] = {}
        self._inbox: deque[list[Effect]] = deque()
        self._is_drain_planned = False
        self._queue: deque[BatchEvent | Callable[[], None]] = deque()
        self._queued_bytes = 0
        self._is_held = False
        self._wake: asyncio.Future[None] | None = None  # of the one who iterates
        self._rest: Iterator[Message] | None = None  # of the batch that is handed out one by one
        self._in_hand = 0  # its weight
        self._idle_check: asyncio.TimerHandle | None = None
        self._view = driver.member.view
        self._view_waiters: list[tuple[Callable[[View], bool], asyncio.Future[None]]] = []
        self._left: asyncio.Future[None] = self._loop.create_future()
        self._end: MotetError | None = None
        self._blocks: dict[str, Callable[[int | None, Address, bytes], None]] = {}
        self._view_listeners: list[Callable[[View], None]] = []
        self._closers: list[Callable[[], None]] = []
        self._observer = Observer(name, driver)
        self.position = 0  # of the last message of the log that was taken from the driver

    # Who is here

    @property
    def view(self) -> View:
        return self._view

    @property
    def address(self) -> Address:
        return self._driver.member.address

    @property
    def stable_position(self) -> int:
        return self._ledger.stable

    @property
    def is_closed(self) -> bool:
        return self._end is not None

    async def until(self, is_wanted: Callable[[View], bool]) -> View:
        """Wait for a view that has what is wanted."""
        while not is_wanted(self._view):
            self._check_open()
            future: asyncio.Future[None] = self._loop.create_future()
            self._view_waiters.append((is_wanted, future))
            await future
        return self._view

    # Sending

    async def multicast(
        self, payload: bytes, *, order: Order = "total", key: bytes | None = None, wait: bool = True
    ) -> Receipt:
        """To all members, ourselves included. Waits for window space only.

        `order="total"`: all deliver it at the same place of one log; without a primary view it waits, or raises
        `NotPrimaryError` with `wait=False`. `order="fifo"`: in the order of this sender, in any view.
        """
        return await self.multicast_many((payload,), order=order, keys=None if key is None else (key,), wait=wait)

    async def multicast_many(
        self,
        payloads: Sequence[bytes],
        *,
        order: Order = "total",
        keys: Sequence[bytes] | None = None,
        wait: bool = True,
    ) -> Receipt:
        """Many at once: the fast way. They are delivered in this order, without others of this member in between."""
        port = Port.APP
        if keys is not None:
            payloads, port = keyed(keys, payloads), Port.KEYED
        return await self._multicast(payloads, CHANNELS[order], port, wait=wait)

    async def _multicast(
        self, messages: Sequence[bytes], channel: Channel, port: int, *, wait: bool = True, tag: Tag | None = None
    ) -> Receipt:
        size = self._measure(messages)
        if not wait and channel is Channel.TOTAL and not self._view.is_primary:
            raise NotPrimaryError(
                f"{self._view} is not primary: without a majority nothing can be ordered; wait for a primary view"
            )
        key = (channel, None)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        if lane.outstanding > LANE_BYTES:
            await self._space(lane)
        lane.outstanding += size
        receipt = self._ledger.issue(len(messages)) if channel is Channel.TOTAL else Receipt(self._ledger, 0, 0)
        self._driver.offer(Outgoing(key, messages, port, tag, size))
        return receipt

    async def send(self, to: Address, payload: bytes) -> None:
        """To one member, reliably and in order. Waits for window space only."""
        await self.send_many(to, (payload,))

    async def send_many(self, to: Address, payloads: Sequence[bytes]) -> None:
        lane = self._lanes.setdefault((Channel.UNICAST, to), _Lane())
        if lane.outstanding > LANE_BYTES:
            await self._space(lane)
        self._send_direct(to, payloads, Port.APP)

    def _send_direct(self, to: Address, messages: Sequence[bytes], port: int) -> None:
        size = self._measure(messages)
        if not isinstance(to, Address):
            raise MisuseError(f"{to!r} is no member; take one of group.view.members")
        self._lanes.setdefault((Channel.UNICAST, to), _Lane()).outstanding += size
        self._driver.offer(Outgoing((Channel.UNICAST, to), messages, port, None, size))

    def _measure(self, messages: Sequence[bytes]) -> int:
        self._check_open()
        try:
            size = sum(map(len, messages))
            if not all(map(_is_bytes, messages)):
                raise TypeError
        except TypeError:
            raise MisuseError("a message is bytes; encode text first, for example with text.encode()") from None
        if size > MAX_MESSAGE_BYTES and max(map(len, messages)) > MAX_MESSAGE_BYTES:
            raise MisuseError(f"a message can have {MAX_MESSAGE_BYTES} bytes at most; split it")
        return size + MESSAGE_OVERHEAD * len(messages)

    async def _space(self, lane: _Lane) -> None:
        while lane.outstanding > LANE_BYTES:
            self._check_open()
            waiter: asyncio.Future[None] = self._loop.create_future()
            lane.waiters.append(waiter)
            await waiter
        self._check_open()

    # Calls

    async def call(self, to: Address, payload: bytes, *, timeout: float | None = 5.0) -> bytes:
        """Ask one member and wait for its answer; its `on_call` handler makes it."""
        self._check_open()
        return await self._calls.call(to, payload, timeout)

    async def call_all(self, payload: bytes, *, timeout: float | None = 5.0) -> dict[Address, bytes | MotetError]:
        """Ask every member of the view, ourselves included; who fails to answer is there with its error."""
        members = self._view.members
        answers = await asyncio.gather(
            *(self.call(member, payload, timeout=timeout) for member in members), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, MotetError):
                raise answer
        return dict(zip(members, answers, strict=True))  # type: ignore[arg-type]

    def on_call(self, handler: Handler) -> Handler:
        """Set the handler of calls: `handler(sender, payload) -> bytes`, plain or async. Usable as a decorator."""
        self._calls.handler = handler
        return handler

    def _send_call(self, to: Address, message: bytes) -> None:
        if self._end is None:
            self._send_direct(to, (message,), Port.RPC)

    # Receiving

    def __aiter__(self) -> AsyncIterator[Event]:
        """Every event, one message at a time. Break off and go on as you like; two at once is one too many."""
        return _Messages(self)

    def batches(self) -> AsyncIterator[BatchEvent]:
        """The same events, messages in batches as they arrived: the fast way."""
        return _Batches(self)

    async def _next_message(self) -> Event:
        while True:
            if self._rest is not None:
                for message in self._rest:
                    return message
                self._rest = None
            event = await self._next_batch()
            if not isinstance(event, Batch):
                return event
            self._rest = event.messages()

    async def _next_batch(self) -> BatchEvent:
        self._settle_consumed()
        if self._rest is not None:  # somebody took single messages before, and changed over
            rest, self._rest = list(self._rest), None
            if rest:
                return _batch_of(rest)
        while True:
            while self._queue:
                event = self._queue.popleft()
                if not callable(event):
                    if isinstance(event, Batch):
                        self._in_hand = _weight(event)
                    return event
                self._guarded(event)
            if self._end is not None:
                if isinstance(self._end, GroupFailedError):
                    raise self._end
                raise StopAsyncIteration
            await self._until_queued()

    async def _until_queued(self) -> None:
        if self._wake is not None:
            raise MisuseError("somebody iterates over this group already; hand the events on from there")
        self._wake = self._loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _settle_consumed(self) -> None:
        """The batch that was handed out last has been dealt with: its consumer asks for the next."""
        size, self._in_hand = self._in_hand, 0
        if size:
            self._consumed(size)

    def _consumed(self, size: int) -> None:
        self._queued_bytes -= size
        if self._is_held and self._queued_bytes < self._queue_bytes // 2:
            self._is_held = False
            self._driver.do(self._driver.member.release)

    def _enqueue(self, event: BatchEvent | Callable[[], None]) -> None:
        if not self._consumes:
            if callable(event):
                self._guarded(event)
            return
        self._queue.append(event)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _enqueue_batch(self, batch: Batch) -> None:
        if not self._consumes:
            return
        self._queued_bytes += _weight(batch)
        self._enqueue(batch)
        if self._queued_bytes > self._queue_bytes and not self._is_held:
            self._is_held = True
            self._driver.post(self._driver.member.hold)
            self._idle_check = self._loop.call_later(IDLE_CONSUMER_S, self._warn_if_idle, len(self._queue))

    def _warn_if_idle(self, queued: int) -> None:
        if self._is_held and len(self._queue) >= queued and self._end is None:
            logger.warning(
                "nobody takes the events of group %r, so its senders wait for %s: iterate over the group "
                "(async for event in group), or join with consume=False",
                self.name,
                self.address,
            )

    # What the driver tells

    def listen(self, news: list[Effect]) -> None:
        """On the driver's thread."""
        self._observer.hear(news)
        self._inbox.append(news)
        if not self._is_drain_planned:
            self._is_drain_planned = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the application's loop is closed: nobody listens any more
                self._driver.post(self._driver.close)

    def _drain(self) -> None:
        self._is_drain_planned = False
        inbox = self._inbox
        while inbox:
            for effect in inbox.popleft():
                self._guarded(partial(self._take, effect))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # a callback of the application; the other deliveries go on
            logger.exception("a callback of group %r raised", self.name)

    def _take(self, effect: Effect) -> None:
        match effect:
            case Delivered():
                self._delivered(effect)
            case Freed():
                self._freed(effect)
            case StableAdvanced():
                self._ledger.advance_stable(effect.position)
            case ViewInstalled():
                self._enter(effect)
            case SendFailed():
                self._send_failed(effect)
            case RolledBack():
                self._rolled_back(effect)
            case ProvideState():
                self._provide(effect)
            case StateReceived() | StateFailed():
                self._state.received(effect, self._enqueue)
            case Left():
                self._finish(LeftGroupError("this member has left the group; join again to send"))
            case Failed():
                self._finish(GroupFailedError(f"this member stopped: {effect.error}"))

    def _delivered(self, effect: Delivered) -> None:
        messages, position = effect.messages, effect.position
        if effect.channel is Channel.TOTAL and position is not None:
            self.position = position + len(messages) - 1
            if effect.sender == self.address and messages:
                self._ledger.deliver(len(messages), position)
        if not messages:
            return
        if effect.port == Port.APP:
            self._enqueue_batch(Batch(effect.sender, messages, position, ORDERS[effect.channel]))
        elif effect.port == Port.KEYED:
            keys, payloads = split_keys(messages)
            self._enqueue_batch(Batch(effect.sender, payloads, position, ORDERS[effect.channel], keys))
        elif effect.port == Port.RPC:
            self._calls.receive(effect.sender, messages)
        elif effect.port == Port.BLOCKS:
            self._to_blocks(effect)

    def _freed(self, effect: Freed) -> None:
        lane = self._lanes.get(effect.lane)
        if lane is None:
            return
        lane.free(effect.size)
        if lane.outstanding <= 0 and not lane.waiters and effect.lane[0] is Channel.UNICAST:
            del self._lanes[effect.lane]

    def _enter(self, effect: ViewInstalled) -> None:
        gone = [member for member in self._view.members if member not in effect.view]
        self._view = effect.view
        for member in gone:
            self._calls.lost(member)
        for listener in self._view_listeners:
            listener(effect.view)
        self._enqueue(effect)
        waiters, self._view_waiters = self._view_waiters, []
        for is_wanted, future in waiters:
            if future.done():
                continue
            if is_wanted(effect.view):
                future.set_result(None)
            else:
                self._view_waiters.append((is_wanted, future))

    def _send_failed(self, effect: SendFailed) -> None:
        if effect.channel is Channel.TOTAL and effect.first:
            self._ledger.fail(effect.first, effect.last, effect.error)
        elif effect.channel is Channel.UNICAST and effect.to is not None:
            self._calls.lost(effect.to, effect.error)
        self._enqueue(effect)

    def _rolled_back(self, effect: RolledBack) -> None:
        error = LeftGroupError(
            f"positions from {effect.first} on were taken back: this member was cut off from the primary component; "
            "look into the log before sending them again"
        )
        self._ledger.roll_back(effect.first, error)
        self._enqueue(effect)

    def _provide(self, effect: ProvideState) -> None:
        self._state.provide(effect.view, self._enqueue)

    def _supply_state(self, view: Any, data: bytes, is_last: bool) -> None:
        self._driver.do(lambda now: self._driver.member.supply_state(view, data, is_last, now))

    # Building blocks: named machines on the ordered log

    def register_block(
        self,
        name: str,
        apply: Callable[[int | None, Address, bytes], None],
        on_view: Callable[[View], None],
        take: Callable[[], bytes],
        restore: Callable[[bytes], None],
    ) -> None:
        """Messages of port BLOCKS that begin with this name go to `apply`, in the order of the log."""
        if name in self._blocks:
            raise MisuseError(f"there is a block {name!r} in this group already; choose another name")
        if not 0 < len(name.encode()) < 256:
            raise MisuseError("the name of a block has 1 to 255 bytes")
        self._blocks[name] = apply
        self._view_listeners.append(on_view)
        self._state.register(name, take, restore)

    async def multicast_block(self, name: str, operation: bytes) -> Receipt:
        message = bytes([len(name.encode())]) + name.encode() + operation
        return await self._multicast((message,), Channel.TOTAL, Port.BLOCKS)

    def _to_blocks(self, effect: Delivered) -> None:
        for offset, message in enumerate(effect.messages):
            end = 1 + message[0] if message else 0
            apply = self._blocks.get(message[1:end].decode(errors="replace"))
            if apply is not None:
                apply(None if effect.position is None else effect.position + offset, effect.sender, message[end:])

    # Appends that may be repeated

    async def append(self, payloads: Sequence[bytes], keys: Sequence[bytes] | None, tag: Tag) -> Receipt:
        messages, port = (payloads, Port.APP) if keys is None else (keyed(keys, payloads), Port.KEYED)
        return await self._multicast(messages, Channel.TOTAL, port, tag=tag)

    # Operations

    async def sync(self, member: Address) -> None:
        """Bring our receive window of `member` and its send window in step; a second line of defence."""
        await self._ask(lambda now: self._driver.member.sync(member, now))

    def inject(self, rule: str) -> None:
        """A fault on purpose, such as `drop=0.2@b`; `clear` ends them."""
        from motet.aio.faults import parse_fault

        fault = parse_fault(rule)

        def add() -> None:
            self._driver.faults.add(fault)
            self._driver.transport.wants_sources = self._driver.faults.is_active

        self._driver.ask(add).result(timeout=10)

    def stats(self) -> dict[str, Any]:
        """Everything that can be seen of this member, as probe and dashboard show it; from any thread."""
        self._observer.queue = {
            "messages": sum(len(event.payloads) for event in list(self._queue) if isinstance(event, Batch)),
            "bytes": self._queued_bytes,
            "limit": self._queue_bytes,
            "held": self._is_held,
        }
        return self._driver.ask(self._observer.stats).result(timeout=10)

    def services(self) -> dict[str, str]:
        """Where admin and log are served, by name."""
        return dict(self._observer.services)

    async def _ask(self, action: Callable[[int], list[Effect]]) -> None:
        def run() -> None:
            self._driver._do(action)

        await asyncio.wrap_future(self._driver.ask(run))

    def ask(self, question: Callable[[], T]) -> Future[T]:
        return self._driver.ask(question)

    # The end

    async def leave(self, timeout: float = 10.0) -> None:
        """Go, and let the others know: no suspicion, no gap. Sends that still wait end with an error."""
        if self._end is not None:
            return
        self._driver.do(self._driver.member.leave)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._left)
        except TimeoutError:
            logger.warning("%s leaves group %r without a word from the others", self.address, self.name)
        await self.close()

    async def close(self) -> None:
        """Stop at once. The others notice by silence; `leave` is the polite way."""
        self._finish(LeftGroupError("this member has left the group; join again to send"))
        await self._calls.close(LeftGroupError("this member has left the group"))
        for closer in reversed(self._closers):
            await asyncio.to_thread(closer)
        self._closers.clear()
        if self._driver._thread is None:
            self._driver.close()
        else:
            await asyncio.to_thread(self._driver.close)

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()

    def _finish(self, error: MotetError) -> None:
        if self._end is not None:
            return
        self._end = error
        if not self._left.done():
            self._left.set_result(None)
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._ledger.close(error)
        for lane in self._lanes.values():
            lane.free(lane.outstanding)
        for _, future in self._view_waiters:
            if not future.done():
                future.set_exception(error)
        self._view_waiters.clear()
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end


class _Messages:
    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        self._group = group

    def __aiter__(self) -> _Messages:
        return self

    def __anext__(self) -> Awaitable[Event]:
        return self._group._next_message()


class _Batches(_Messages):
    __slots__ = ()

    def __anext__(self) -> Awaitable[BatchEvent]:  # type: ignore[override]
        return self._group._next_batch()


def _weight(batch: Batch) -> int:
    return sum(map(len, batch.payloads)) + MESSAGE_OVERHEAD * len(batch.payloads)


def _batch_of(messages: list[Message]) -> Batch:
    first = messages[0]
    keys = None if first.key is None else tuple(message.key or b"" for message in messages)
    return Batch(first.sender, tuple(message.payload for message in messages), first.position, first.order, keys)


def _is_bytes(message: object) -> bool:
    return type(message) is bytes
