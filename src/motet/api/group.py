"""The public interface of one member: `async with motet.join(...) as group`.

Everything here runs on the application's loop. The protocols run on the driver's, in a thread of their own; between the
two go lists, one per wake-up and not one per message. Invariant: events come out in the order in which they happened.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakSet

from motet.api import events
from motet.api.block_registry import Apply, Blocks, log_failure, message_of
from motet.api.calls import Calls, Handler
from motet.api.events import ORDERS, Batch, BatchEvent, Event
from motet.api.gathering import MOST_BYTES, Gathering
from motet.api.keys import keyed, split_keys
from motet.api.payloads import Payload, plain, plain_all
from motet.api.queue import MESSAGE_OVERHEAD, Batches, EventQueue, Later, weight_of
from motet.api.receipts import Receipt, ReceiptTracker
from motet.api.send_queues import SEND_QUEUE_BYTES, SendQueues, measure
from motet.api.snapshots import SnapshotTaker
from motet.api.state import StateParts, StateProvider, StateReceiver
from motet.errors import (
    GroupFailedError,
    LeftGroupError,
    MisuseError,
    MotetError,
    NotPrimaryError,
    StateTransferError,
)
from motet.protocol.core.effects import Channel, Effect, SendFailed
from motet.protocol.core.identity import Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import NO_VIEW, View
from motet.protocol.member import Delivered, Member, Superseded
from motet.protocol.membership.engine import Left, ViewInstalled
from motet.protocol.membership.transfer import (
    ProvideState,
    StateDelayed,
    StateFailed,
    StateLost,
    StateReceived,
    StateRefused,
)
from motet.protocol.ordering import AppendRepeated, RolledBack, StableAdvanced
from motet.protocol.snapshot import RecordState, SnapshotFailed, SnapshotTaken
from motet.protocol.snapshot.result import SnapshotResult
from motet.protocol.wire.body import Port
from motet.protocol.wire.ordered import Tag
from motet.protocol.wire.seal import Keyring
from motet.protocol.wire.snapshot import SnapshotId
from motet.runtime.driver import Driver, Failed, Freed, Outgoing, SendQueueKey
from motet.runtime.faults import parse_fault
from motet.runtime.observe import Observer

if TYPE_CHECKING:
    from motet.runtime.journal_writer import JournalWriter

logger = logging.getLogger("motet")
T = TypeVar("T")
Order = Literal["total", "fifo"]
CHANNELS = {"total": Channel.TOTAL, "fifo": Channel.MULTICAST}
SEND_QUEUES: dict[str, SendQueueKey] = {name: (channel, None) for name, channel in CHANNELS.items()}
OPERATION_S = 10.0  # how long the driver may take for a question
unclosed: WeakSet[Group] = WeakSet()


@atexit.register
def _warn_of_unclosed() -> None:
    """A group whose driver still runs is held by the driver's thread, so nobody collects it before the process ends."""
    for group in tuple(unclosed):
        group._warn_if_open()


class Group:
    """One member of one group. Made by `motet.join`.

    Leave it with `await group.leave()`, or enter it with `async with`. A group that was neither left nor closed gives a
    ResourceWarning when it is collected, or when the process ends.
    """

    _is_open = False  # it was started, and has not ended

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
        stable_events: bool = False,
    ) -> None:
        self.name = name
        self.position = 0  # of the last message of the log that was taken from the driver
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._view = driver.member.view
        self._end: MotetError | None = None
        self._consumes = consume
        self._queue = EventQueue(queue_bytes, self._pause, self._resume, self._warn_of_idleness, self._guarded)
        self._send_queues = SendQueues(self._check_open)
        self._streams = {name: (key, self._send_queues.at(key)) for name, key in SEND_QUEUES.items()}
        self._gathering = Gathering(driver, self._loop)
        self._receipts = ReceiptTracker()
        self._blocks = Blocks(self._block_failed)
        self._requests = count(1)  # of operations that are sent without a number of their own
        self._gives_stable = stable_events
        self._state = StateParts(state_provider, state_receiver, self._blocks, self._enqueue, self._fail_state)
        self._calls = Calls(self._send_call)
        self._calls.handler = on_call
        self._observer = Observer(name, driver)
        self._inbox: deque[list[Effect]] = deque()
        self._is_drain_planned = False
        self._view_waiters: list[tuple[Callable[[View], bool], asyncio.Future[None]]] = []
        self._snapshots = SnapshotTaker(self._loop, self._start_snapshot)
        self._left: asyncio.Future[None] = self._loop.create_future()
        self._closers: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Group {self.name!r}: {self.address} in view {self._view.id}>"

    # Who is here

    @property
    def view(self) -> View:
        """Who is in the group now, as this member knows it."""
        return self._view

    @property
    def address(self) -> Address:
        """This member's own address, as the others have it in their views."""
        return self._driver.member.address

    @property
    def stable_position(self) -> int:
        """Every member of the primary view has delivered the log up to here."""
        return self._receipts.stable

    @property
    def failing_lookups(self) -> str:
        """Which look-ups of `discovery_dns` and `discovery_directory` fail, and why; empty if none does."""
        return self._driver.lookups.describe_failures()

    @property
    def is_closed(self) -> bool:
        """Whether this member has left, or has failed."""
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
        self, payload: Payload, *, order: Order = "total", key: Payload | None = None, wait: bool = True
    ) -> Receipt:
        """To all members, ourselves included. Waits for window space only.

        `order="total"`: all deliver it at the same place of one log; without a primary view it waits, or raises
        `NotPrimaryError` with `wait=False`. `order="fifo"`: in the order of this sender, in any view.
        """
        if type(payload) is not bytes or len(payload) >= MOST_BYTES or key is not None or not wait:
            payload = plain(payload)
            return await self.multicast_many((payload,), order=order, keys=None if key is None else (key,), wait=wait)
        gathering = self._gathering
        if gathering.stream is order:  # a message that follows another one: little may be done for each of them
            gathering.put(payload)
            gathering.space -= len(payload) + MESSAGE_OVERHEAD
            if gathering.space < 0:
                gathering.flush()
            return self._receipts.unordered if order == "fifo" else self._receipts.issue(1)
        stream = self._streams.get(order)
        if stream is None or self._end is not None or stream[1].outstanding > SEND_QUEUE_BYTES:
            return await self.multicast_many((payload,), order=order)
        gathering.add(order, *stream, payload)
        return self._receipts.unordered if order == "fifo" else self._receipts.issue(1)

    async def multicast_many(
        self,
        payloads: Iterable[Payload],
        *,
        order: Order = "total",
        keys: Iterable[Payload] | None = None,
        wait: bool = True,
    ) -> Receipt:
        """Many at once: the fast way. They are delivered in this order, without others of this member in between."""
        if order not in CHANNELS:
            raise MisuseError(f'order={order!r} is unknown; it is "total" or "fifo"')
        messages, port = _with_keys(plain_all(payloads), keys)
        if not wait and order == "total" and not self._view.is_primary:
            raise NotPrimaryError(
                f"{self._view} is not primary: without a majority nothing can be ordered; wait for a primary view"
            )
        return await self._multicast(messages, CHANNELS[order], port)

    async def _multicast(
        self, messages: Sequence[bytes], channel: Channel, port: int, tag: Tag | None = None
    ) -> Receipt:
        self._check_open()
        size = measure(messages)
        send_queue = await self._send_queues.space((channel, None))
        send_queue.outstanding += size
        receipt = self._receipts.issue(len(messages)) if channel is Channel.TOTAL else self._receipts.unordered
        self._gathering.offer(Outgoing((channel, None), messages, port, tag, size))
        return receipt

    async def append(
        self, payloads: Iterable[Payload], *, producer: int, sequence: int, keys: Iterable[Payload] | None = None
    ) -> Receipt:
        """One unit that may be sent again, through any member, and is in the log once. It must fit into a frame.

        `producer` names who writes, `sequence` counts its units upwards. The receipt of a repetition ends with
        `RepeatedAppendError`.
        """
        messages, port = _with_keys(plain_all(payloads), keys)
        return await self._multicast(messages, Channel.TOTAL, port, Tag(producer, sequence))

    @property
    def append_bytes(self) -> int:
        """How large one unit of `append` may be."""
        return self._driver.member.append_bytes

    async def send(self, to: Address, payload: Payload) -> None:
        """To one member, reliably and in order. Waits for window space only."""
        is_plain = type(payload) is bytes and len(payload) < MOST_BYTES
        gathering = self._gathering
        if is_plain and gathering.stream is to:  # as in `multicast`
            gathering.put(payload)
            gathering.space -= len(payload) + MESSAGE_OVERHEAD
            if gathering.space < 0:
                gathering.flush()
            return None
        if type(to) is not Address or not is_plain or self._end is not None:
            return await self.send_many(to, (plain(payload),))
        send_queue = self._send_queues.at((Channel.UNICAST, to))
        if send_queue.outstanding > SEND_QUEUE_BYTES:
            return await self.send_many(to, (payload,))
        gathering.add(to, (Channel.UNICAST, to), send_queue, payload)
        return None

    async def send_many(self, to: Address, payloads: Iterable[Payload]) -> None:
        """Many to one member; they are delivered in this order."""
        self._check_open()
        messages = plain_all(payloads)
        if not isinstance(to, Address):
            raise _no_member(to)
        await self._send_queues.space((Channel.UNICAST, to))
        self._send_direct(to, messages, Port.APP)

    def _send_direct(self, to: Address, messages: Sequence[bytes], port: int) -> None:
        size = measure(messages)
        self._send_queues.at((Channel.UNICAST, to)).outstanding += size
        self._gathering.offer(Outgoing((Channel.UNICAST, to), messages, port, None, size))

    # Calls

    async def call(self, to: Address, payload: Payload, *, timeout: float | None = 5.0) -> bytes:
        """Ask one member and wait for its answer; its `on_call` handler makes it."""
        self._check_open()
        if not isinstance(to, Address):
            raise _no_member(to)
        return await self._calls.call(to, plain(payload, "a question"), timeout)

    async def call_all(self, payload: Payload, *, timeout: float | None = 5.0) -> dict[Address, bytes | MotetError]:
        """Ask every member of the view, ourselves included; who fails to answer is there with its error."""
        members = self._view.members
        calls = (self.call(member, payload, timeout=timeout) for member in members)
        answers: dict[Address, bytes | MotetError] = {}
        for member, answer in zip(members, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, MotetError):
                raise answer
            answers[member] = answer
        return answers

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
        self._check_consumes()
        return self._queue.messages()

    def batches(self) -> AsyncIterator[BatchEvent]:
        """The same events, messages in batches as they arrived: the fast way."""
        self._check_consumes()
        return Batches(self._queue)

    def _check_consumes(self) -> None:
        if not self._consumes:
            raise MisuseError("this member joined with consume=False, so it has no events; leave that out to get them")

    def _enqueue(self, event: BatchEvent | Later, weight: int = 0) -> None:
        if self._consumes:
            self._queue.put(event, weight)
        elif callable(event):
            self._guarded(event)

    def _pause(self) -> None:
        self._driver.run(self._driver.member.pause)

    def _resume(self) -> None:
        self._driver.do(self._driver.member.resume)

    def _warn_of_idleness(self) -> None:
        logger.warning(
            "nobody takes the events of group %r, so its senders wait for %s: iterate over the group "
            "(async for event in group), or join with consume=False",
            self.name,
            self.address,
        )

    # What the driver tells

    def _listen(self, effects: list[Effect]) -> None:
        """Pass effects on to the application's loop. Called on the driver's thread."""
        self._observer.observe(effects)
        self._inbox.append(effects)
        if not self._is_drain_planned and not self._driver.is_processing_batch:
            self._is_drain_planned = True
            try:
                if self._driver.has_thread:
                    self._loop.call_soon_threadsafe(self._drain)
                else:
                    self._loop.call_soon(self._drain)
            except RuntimeError:  # the application's loop is closed: nobody listens any more
                self._driver.post(self._driver.close)

    def _drain(self) -> None:
        self._is_drain_planned = False
        self._take_effects()

    def _take_effects(self) -> None:
        """Handle all effects that the driver has passed on. Called on the application's loop."""
        inbox = self._inbox
        while inbox:
            for effect in inbox.popleft():
                try:
                    self._take(effect)
                except Exception:  # as in `_guarded`
                    self._log_callback()

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # a callback of the application; the other deliveries go on
            self._log_callback()

    def _log_callback(self) -> None:
        logger.exception("a callback of group %r raised", self.name)

    def _take(self, effect: Effect) -> None:
        match effect:
            case Delivered():
                self._delivered(effect)
            case Superseded():
                self._receipts.deliver(effect.count, effect.position)
            case Freed():
                self._send_queues.freed(effect)
            case StableAdvanced():
                self._stable_advanced(effect.position)
            case ViewInstalled():
                self._enter(effect)
            case SendFailed():
                self._send_failed(effect)
            case AppendRepeated():
                self._receipts.skip(effect)
            case RolledBack():
                self._rolled_back(effect)
            case ProvideState():
                self._state.provide(partial(self._supply_state, effect), partial(self._refuse_state, effect))
            case StateReceived():
                self._state.received(effect)
            case StateFailed():
                self._state_failed(effect)
            case StateLost():
                self._state_lost(effect)
            case StateRefused():
                self._state_refused(effect)
            case StateDelayed():
                self._warn_of_delay(effect)
            case RecordState():
                refuse = partial(self._refuse_snapshot, effect.snapshot)
                self._state.provide(partial(self._supply_snapshot, effect.snapshot), refuse)
            case SnapshotTaken() | SnapshotFailed():
                self._snapshots.ended(effect)
            case Left():
                self._finish(LeftGroupError("this member has left the group; join again to send"))
            case Failed():
                self._finish(GroupFailedError(f"this member stopped: {effect.error}"))

    def _delivered(self, effect: Delivered) -> None:
        messages, position = effect.messages, effect.position
        if not messages:  # a part of a large message
            return
        if effect.channel is Channel.TOTAL and position is not None:
            self.position = position + len(messages) - 1
            if effect.sender == self.address and not effect.is_replayed:
                self._receipts.deliver(len(messages), position)
        if effect.port == Port.APP:
            batch = Batch(effect.sender, messages, position, ORDERS[effect.channel])
            self._enqueue(batch, weight_of(messages, effect.bodies))
        elif effect.port == Port.KEYED:
            keys, payloads = split_keys(messages)
            batch = Batch(effect.sender, payloads, position, ORDERS[effect.channel], keys)
            self._enqueue(batch, weight_of(messages, effect.bodies))
        elif effect.port == Port.RPC:
            self._calls.receive(effect.sender, messages)
        elif effect.port == Port.BLOCKS and position is not None:
            self._blocks.apply(position, effect.sender, messages)
        elif effect.port == Port.NOTICE:
            self._observer.receive_notice(effect.sender, messages[-1])

    def _enter(self, effect: ViewInstalled) -> None:
        installed = _view_event(self._view, effect)
        gone = installed.left
        self._view = effect.view
        for member in gone:
            self._calls.lost(member)
            self._send_queues.drop(member)
        self._blocks.on_view(effect.view)
        self._tell_services()
        self._enqueue(installed)
        waiters, self._view_waiters = self._view_waiters, []
        for is_wanted, future in waiters:
            if not future.done() and is_wanted(effect.view):
                future.set_result(None)
            elif not future.done():
                self._view_waiters.append((is_wanted, future))

    def _send_failed(self, effect: SendFailed) -> None:
        if effect.channel is Channel.TOTAL and effect.first:
            self._receipts.fail(effect.first, effect.last, effect.error)
        elif effect.channel is Channel.UNICAST and effect.to is not None:
            self._calls.lost(effect.to, effect.error)
        order = ORDERS[effect.channel]
        self._enqueue(events.SendFailed(order, effect.to, effect.first, effect.last, effect.error))

    def _stable_advanced(self, position: int) -> None:
        self._receipts.advance_stable(position)
        if self._gives_stable:
            self._enqueue(events.StableAdvanced(position), MESSAGE_OVERHEAD)

    def _block_failed(self, name: str, position: int | None, sender: Address | None, error: Exception) -> None:
        """The other blocks, and the events of the group, go on."""
        log_failure(name, position, sender, error)
        self._enqueue(events.BlockFailed(name, position, sender, error))

    def _rolled_back(self, effect: RolledBack) -> None:
        error = LeftGroupError(
            f"positions from {effect.first} on were rolled back: this member was cut off from the primary component; "
            "look into the log before sending them again"
        )
        self._receipts.roll_back(effect.first, error)
        self._enqueue(events.RolledBack(effect.first, effect.last))

    # The state of the application

    @property
    def has_state(self) -> bool:
        """Whether this member has the group's state; one that joins does not until its receiver was called."""
        return not self._driver.member.membership.is_waiting_for_state

    async def begin_state_anew(self) -> None:
        """Where nobody has the state (`StateLost`): what this member's application holds now is the group's state.

        All others receive it. Whatever a member that is away has beyond it is replaced when that member comes back, so
        call it only when no holder can come back, and at one member. Raises `MisuseError` where the state is not lost.
        """
        self._check_open()
        await asyncio.wrap_future(self._driver.ask(lambda: self._driver.do_now(self._driver.member.begin_state_anew)))

    def _supply_state(self, effect: ProvideState, data: bytes) -> None:
        self._driver.do(lambda now: self._driver.member.supply_state(effect.view, data, True, now))

    def _refuse_state(self, effect: ProvideState, reason: str) -> None:
        self._driver.do(lambda now: self._driver.member.refuse_state(effect.view, reason, now))

    def _state_refused(self, effect: StateRefused) -> None:
        """The traceback was logged where the provider raised."""
        whose = "this member's application" if effect.by == self.address else str(effect.by)
        logger.warning("%s did not give the state of group %r: %s", whose, self.name, effect.reason)
        self._enqueue(events.StateRefused(effect.by, effect.reason))

    def _state_lost(self, effect: StateLost) -> None:
        self._state.void()
        logger.error(
            "nobody in view %s of group %r has its state: nothing is ordered until a member that has it comes back; "
            "if none can, call begin_state_anew() at the member whose state is to be the group's",
            effect.view,
            self.name,
        )
        self._enqueue(events.StateLost(effect.view, had_it=effect.lineage != NO_VIEW))

    def _warn_of_delay(self, effect: StateDelayed) -> None:
        logger.warning(
            "%s has waited %.0f s for the state of group %r: %s has given nothing; its application may be busy, or "
            "does not take its events",
            self.address,
            effect.waited_ns / SECOND,
            self.name,
            effect.provider,
        )

    def _state_failed(self, effect: StateFailed) -> None:
        self._state.void()
        if effect.is_final:
            self._fail_state(f"no member could give it: {effect.reason}")

    def _fail_state(self, reason: str) -> None:
        """Leave rather than go on without the state; the events that wait are of a state that is not here."""
        if self._end is not None:
            return
        error = StateTransferError(f"{self.address} did not get the state of group {self.name!r}: {reason}; join again")
        logger.error("%s", error)
        self._gathering.flush()
        self._driver.do(self._driver.member.leave)
        self._queue.fail(error)
        self._finish(error)

    # Snapshots

    async def snapshot(self, timeout: float = 30.0) -> SnapshotResult:
        """One consistent cut through all members and all channels: their states, and what is on its way.

        One that a passing thing hinders (a view change, a member that lacks its state yet) is taken again.
        """
        return await self._snapshots.take(timeout)

    def _start_snapshot(self) -> Future[SnapshotId]:
        self._check_open()
        return self._driver.ask(self._driver.start_snapshot)

    def _supply_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """Behind all that the application has sent so far, and before all that it sends from now on."""
        self._gathering.offer(lambda: self._driver.supply_snapshot(snapshot, data))

    def _refuse_snapshot(self, snapshot: SnapshotId, reason: str) -> None:
        self._driver.do(lambda now: self._driver.member.refuse_snapshot_state(snapshot, reason, now))

    # Building blocks: named machines on the ordered log

    def register_block(
        self,
        name: str,
        apply: Apply,
        on_view: Callable[[View], None],
        take: Callable[[], bytes],
        restore: Callable[[bytes], None],
    ) -> None:
        """Operations under this name go to `apply`, in the order of the log, at every member that registers it.

        `apply(position, sender, request, operation)`: `request` tells the operations of one sender apart. What it
        returns is ignored here; `ReplicatedState` hands it to whoever asked. What it raises is logged with its
        traceback and comes as the event `BlockFailed`. `take` makes the snapshot that `restore` takes elsewhere.
        """
        self._blocks.register(name, apply, on_view, take, restore)
        self._driver.do(self._driver.member.require_state)

    async def multicast_block(self, name: str, operation: Payload, *, request: int | None = None) -> Receipt:
        """An operation for the block of this name, at every member; numbered by the group unless `request` is given."""
        number = next(self._requests) if request is None else request
        message = message_of(name, number, plain(operation, "an operation"))
        return await self._multicast((message,), Channel.TOTAL, Port.BLOCKS)

    # Operations

    async def sync(self, member: Address) -> None:
        """Bring our unicast receive window of `member` and its send window in step; a second line of defence.

        Returns when SYNC-ACK was sent. Raises `SyncError` if `member` does not answer in time, leaves, or has closed
        its connection, and `MisuseError` if it has sent us nothing by unicast (`send`, `call`): then there is no
        window, and nothing to do. Multicasts do not count; their windows repair themselves. For this member itself it
        is `MisuseError` as well, unless it has sent to itself.
        """
        self._check_open()
        if not isinstance(member, Address):
            raise _no_member(member)
        ended = await asyncio.wrap_future(self._driver.ask(lambda: self._driver.sync(member)))
        await asyncio.wrap_future(ended)

    def inject(self, rule: str) -> None:
        """A fault on purpose, such as `drop=0.2@b`; `clear` ends them."""
        fault = parse_fault(rule)
        self._driver.ask(lambda: self._driver.inject(fault)).result(OPERATION_S)

    def rekey(self, keys: Sequence[str]) -> None:
        """Open with these keys from now on, and seal with the first: how a group changes its key while it runs."""
        keyring = Keyring.of(keys)
        self._driver.ask(lambda: self._driver.rekey(keyring)).result(OPERATION_S)

    def stats(self) -> dict[str, Any]:
        """Everything that can be seen of this member, as probe and dashboard show it; from any thread."""
        queue = self._queue
        self._observer.queue = {
            "messages": queue.waiting_messages,
            "bytes": queue.weight,
            "limit": queue.limit,
            "paused": queue.is_paused,
        }
        return self._driver.ask(self._observer.stats).result(OPERATION_S)

    def _ask(self, question: Callable[[], T]) -> Future[T]:
        """Run something on the driver's loop, where the member can be looked at."""
        return self._driver.ask(question)

    def _look(self, question: Callable[[Member], T]) -> Future[T]:
        """Ask something about the member; the question runs on the driver's loop, and must change nothing."""
        return self._driver.ask(lambda: question(self._driver.member))

    # Services

    def _observe_journal(self, journal_writer: JournalWriter | None) -> None:
        if journal_writer is not None:
            self._observer.first = lambda: journal_writer.journal.first

    def _serves(self, name: str, place: str, close: Callable[[], None]) -> None:
        """Something is served beside the group; it is closed with it."""
        self._observer.services[name] = place
        self._on_close(close)

    def _on_close(self, close: Callable[[], None]) -> None:
        """Call this, in a thread, when the group is closed; last come, first called."""
        self._closers.append(close)

    def _tell_services(self) -> None:
        """So that anybody's dashboard finds all members."""
        if self._observer.services and len(self._view.members) > 1:
            notice = json.dumps(self._observer.services).encode()
            size = measure((notice,))
            self._send_queues.at((Channel.MULTICAST, None)).outstanding += size
            self._gathering.offer(Outgoing((Channel.MULTICAST, None), (notice,), Port.NOTICE, None, size))

    def services(self) -> dict[str, str]:
        """Where admin and log are served, by name."""
        return dict(self._observer.services)

    # The end

    async def leave(self, timeout: float = 10.0) -> None:
        """Go, and let the others know: no suspicion, no gap. Sends that still wait end with an error."""
        if self._end is None:
            self._gathering.flush()
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
        closers, self._closers = self._closers, []
        for closer in reversed(closers):
            await asyncio.to_thread(closer)
        if self._driver.has_thread:
            await asyncio.to_thread(self._driver.close)
        else:
            self._driver.close()

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()

    def _opened(self) -> None:
        """It runs from now on, so it has to be left."""
        self._is_open = True
        unclosed.add(self)

    def _warn_if_open(self) -> None:
        if self._is_open:
            self._is_open = False  # once is enough
            warnings.warn(
                f"{self._driver.member.address} was never taken out of group {self.name!r}; "
                "use `async with motet.join(...)`, or await group.leave()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __del__(self) -> None:
        self._warn_if_open()

    def _finish(self, error: MotetError) -> None:
        if self._end is not None:
            return
        self._end = error
        self._is_open = False
        unclosed.discard(self)
        if not self._left.done():
            self._left.set_result(None)
        self._gathering.drop()
        self._receipts.close(error)
        self._send_queues.close()
        waiting: list[asyncio.Future[Any]] = [future for _, future in self._view_waiters]
        for future in [*waiting, *self._snapshots.waiting]:
            if not future.done():
                future.set_exception(error)
        self._view_waiters.clear()
        self._queue.close(error if isinstance(error, GroupFailedError) else StopAsyncIteration())

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end


def _no_member(to: object) -> MisuseError:
    return MisuseError(f"{to!r:.80} is no member; take one of group.view.members")


def _with_keys(messages: Sequence[bytes], keys: Iterable[Payload] | None) -> tuple[Sequence[bytes], Port]:
    """As they travel: a message with a key has the key in front."""
    return (messages, Port.APP) if keys is None else (keyed(plain_all(keys, "a key"), messages), Port.KEYED)


def _view_event(before: View, effect: ViewInstalled) -> events.ViewInstalled:
    """What changed from one view to the next, with addresses where the protocol counts incarnations."""
    view = effect.view
    return events.ViewInstalled(
        view,
        joined=tuple(member for member in view.members if member not in before),
        left=tuple(member for member in before.members if member not in view),
        subviews=effect.subviews,
        lacking=tuple(member for member in view.members if member.incarnation in effect.lacking),
        position=effect.position,
    )
