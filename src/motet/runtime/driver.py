"""The driver of one member: it decodes nothing and decides nothing about protocols. Datagrams, commands and time are
inputs of the member; the effects that the member returns are performed here. Datagrams are sent, and all other effects
go to a listener, in order, one list per wake-up.

Everything in here runs on one event loop, either the driver's own in a thread of its own or the application's. The
exceptions are `offer`, `post`, `run`, `do` and `ask`, which any thread may call. Invariants: at most one timer is
armed; a datagram is sent only after the journal has written what the datagram promises.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from motet.errors import BacklogFullError, GroupFailedError, LeftGroupError, MisuseError, MotetError
from motet.protocol.core.effects import Admitted, Channel, Effect, SendFailed, SyncCompleted, SyncFailed
from motet.protocol.core.identity import NOBODY, Address, Endpoint
from motet.protocol.core.record import record
from motet.protocol.core.timers import earlier
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View
from motet.protocol.member import Announcement, Datagram, Delivered, Member
from motet.protocol.member.segmentation import Mode
from motet.protocol.member.trace import Tracer
from motet.protocol.membership.discovery import Consult, DnsName, SharedDirectory
from motet.protocol.membership.engine import ViewInstalled
from motet.protocol.membership.overlap import DigestsOverlapped
from motet.protocol.wire.codec import kind_name
from motet.protocol.wire.ordered import Tag
from motet.protocol.wire.seal import Keyring
from motet.protocol.wire.segments import MAGIC as SEGMENT_MAGIC
from motet.protocol.wire.segments import NUMBER_MODULUS, Assembler, Segmenter
from motet.protocol.wire.snapshot import SnapshotId, Waiting
from motet.runtime.awake import Awake
from motet.runtime.faults import Direction, Fault, FaultInjector, FaultKind
from motet.runtime.lookups import Lookups
from motet.runtime.resync import Resyncs
from motet.runtime.world import REAL_WORLD, Transport, World

logger = logging.getLogger("motet")
T = TypeVar("T")
# uvloop rounds timers to the nearest millisecond. A timer that fires early wakes the loop for nothing, so half a
# millisecond is added to each.
UVLOOP_ROUNDING_NS = MILLISECOND // 2
SEND_BATCH_BYTES = 1 << 20  # messages of one send queue that the member gets in one call
FAILURE_EVERY_NS = 10 * SECOND  # shortest interval between two log lines about frames that raised an error
MOST_LOGGED_BYTES = 512  # of a frame that raised an error
FREED_STEP_BYTES = 128 << 10  # freed send-queue bytes are reported in steps: each report wakes the application thread

SendQueueKey = tuple[Channel, Address | None]


class Outgoing(NamedTuple):
    """What the application wants to send, as one unit of accounting."""

    send_queue: SendQueueKey
    messages: Sequence[bytes]
    port: int
    tag: Tag | None
    size: int


@record
class Freed(Effect):
    """`size` bytes of a send queue entered the send window, or will never be sent."""

    send_queue: SendQueueKey
    size: int


@dataclass(slots=True)
class _SendQueue:
    """Messages of one stream that wait until the member accepts them."""

    queue: deque[Outgoing] = field(default_factory=deque)
    accepted: deque[tuple[int, int]] = field(default_factory=deque)  # (number of the last message, bytes)
    freed: int = 0  # bytes that entered the window and have not been reported to the application yet


class DatagramSealer(Protocol):
    """Seals and opens datagrams."""

    def seal(self, datagram: bytes) -> bytes: ...

    def open(self, sealed: bytes) -> bytes | None: ...

    def rekey(self, keyring: Keyring) -> None: ...


class LogWriter(Protocol):
    """Writes the log to disk. It receives all effects before they are performed, and may buffer some of them."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None: ...

    def persist(self, effects: list[Effect], now: int) -> list[Effect]: ...

    def tick(self, now: int) -> list[Effect]: ...

    def next_deadline(self) -> int | None: ...

    def close(self) -> None: ...


class Liveness(Protocol):
    """Tells the other members that this process is alive while the driver does not run."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None: ...

    def follow(self, view: View) -> None: ...

    def refresh(self) -> None:
        """Faults were injected or cleared."""

    def rekey(self, keyring: Keyring) -> None: ...

    def close(self) -> None: ...


Listener = Callable[[list[Effect]], None]


class Driver:
    def __init__(
        self,
        member: Member,
        transport: Transport,
        listener: Listener,
        *,
        faults: FaultInjector,
        envelope: DatagramSealer | None = None,
        world: World = REAL_WORLD,
    ) -> None:
        self.member = member
        self.transport = transport
        self.faults = faults
        self.journal_writer: LogWriter | None = None
        self.liveness: Liveness | None = None
        self.tracer: Tracer | None = None
        self.replay: Callable[[], list[Effect]] | None = None  # what the application receives before anything else
        self.failure: BaseException | None = None
        self._listener = listener
        self._envelope = envelope
        self.world = world
        self._clock = world.clock
        self._wall_offset_ns = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._outbox: deque[Outgoing | Callable[[], None]] = deque()
        self._is_send_scheduled = False
        self._dispatch: Callable[[], None] | None = None  # on the application's loop: lets it process its events
        self.is_processing_batch = False  # true while a received batch is being processed
        self._defers_timer = False  # the timer is armed once, after the received batch has been processed
        self._awake: Awake | None = None
        self.sent_messages = 0  # messages of the application that the member has accepted
        self._send_queues: dict[SendQueueKey, _SendQueue] = {}
        self._resyncs = Resyncs()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._rounding_ns = 0
        self._group_endpoint = transport.group
        if not world.raises_errors:
            member.on_frame_failed = self._frame_failed
        self._failures_not_logged = 0
        self._failures_logged_at: int | None = None
        self._segmenter = Segmenter(member.address.incarnation % NUMBER_MODULUS)
        self.assembler = Assembler()
        self._own_bytes = member.address.incarnation.to_bytes(8, "little")
        self._is_closed = False
        self._is_shut = False
        self._lookups_in_flight: set[DnsName | SharedDirectory] = set()
        self.lookups = Lookups(member.address.endpoint)

    # Start and stop

    def start_in_thread(self) -> None:
        """Run on an event loop and a thread of its own, so that the application may block."""
        loop = _new_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name=f"motet {self.member.address}", daemon=True
        )
        self._loop = loop
        self._thread.start()
        self.post(self._start)

    def start_on(
        self, loop: asyncio.AbstractEventLoop, dispatch: Callable[[], None] | None = None, spin_ns: int = 0
    ) -> None:
        """Run on the application's event loop, which must not be blocked."""
        self._loop, self._dispatch = loop, dispatch
        self._awake = Awake(loop, self._clock, spin_ns) if spin_ns else None
        self._start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _start(self) -> None:
        assert self._loop is not None
        self._rounding_ns = UVLOOP_ROUNDING_NS if type(self._loop).__module__.startswith("uvloop") else 0
        now = self._clock()
        wall_ns = self.world.wall_clock()
        self._wall_offset_ns = wall_ns - now
        self.member.set_wall_clock(wall_ns, now)
        if self.tracer is not None:
            self.tracer.started(wall_ns)
        if self.journal_writer is not None:
            self.journal_writer.start(self._loop)
        if self.replay is not None:
            self._listener(self.replay())
        self._note_sources()
        self.transport.start(self._loop, self._received)
        if self.liveness is not None:
            self.liveness.start(self._loop)
        self._run_or_stop(lambda: self.do_now(self.member.start))

    def close(self) -> None:
        """Stop at once, without leaving the group; `leave` is the orderly way. Thread-safe and idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is None:
            self._shut()
            return
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._shut_and_stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _shut_and_stop(self) -> None:
        assert self._loop is not None
        try:
            self._shut()
        finally:
            self._loop.stop()

    def _shut(self) -> None:
        if self._is_shut:
            return
        self._is_shut = True
        if self._timer is not None:
            self._timer.cancel()
        if self._awake is not None:
            self._awake.end()
        if self.liveness is not None:
            self.liveness.close()
        self.transport.close()
        self._resyncs.close(self._stopped())
        if self.journal_writer is not None:
            self.journal_writer.close()

    def _stopped(self) -> MotetError:
        if self.failure is not None:
            return GroupFailedError(f"this member stopped: {self.failure}")
        return LeftGroupError("this member has left the group; join again")

    # Thread-safe calls

    def offer(self, outgoing: Outgoing | Callable[[], None]) -> None:
        """Send `outgoing` when the window has space, in order per send queue.

        A callable runs once everything that was offered before it has been sent or queued. On the application's loop
        the first message of a loop iteration is sent at once, and those that follow in it are sent together.
        """
        self._outbox.append(outgoing)
        if self._is_send_scheduled or self._loop is None:
            return
        if self._thread is not None:
            self._is_send_scheduled = True
            self._loop.call_soon_threadsafe(self._send_scheduled)
        elif not self.is_processing_batch:
            self._is_send_scheduled = True
            self._loop.call_soon(self._send_scheduled)
            self._run_or_stop(self._send_pending)
            if self._awake is not None:
                self._awake.stay()

    @property
    def is_send_scheduled(self) -> bool:
        """True between the scheduling of a send and the send itself: whatever is offered meanwhile is sent together."""
        return self._is_send_scheduled

    def post(self, action: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._run_or_stop, action)

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Run `question` on the driver's loop; the future has its result."""
        future: Future[T] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(question())
            except BaseException as error:  # the caller gets it from the future
                future.set_exception(error)

        if self._is_closed:
            future.set_exception(MotetError("this member has been closed"))
        elif self._thread is None or threading.current_thread() is self._thread:
            answer()
        else:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(answer)
        return future

    def do(self, action: Callable[[int], list[Effect]]) -> None:
        """Give the member one input. Thread-safe."""
        self.run(lambda: self.do_now(action))

    def run(self, action: Callable[[], None]) -> None:
        """Run `action` on the driver's loop, in the order of the calls; on the application's loop at once."""
        if self._thread is None:
            self._run_or_stop(action)
        else:
            self.post(action)

    @property
    def has_thread(self) -> bool:
        return self._thread is not None

    # Inputs

    def _run_or_stop(self, action: Callable[[], None]) -> None:
        if self._is_closed or self.failure is not None:
            return
        try:
            action()
        except Exception as error:  # a bug or a failed disk: stop before the member promises what it cannot keep
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        logger.error("%s stops: %s", self.member.address, error, exc_info=not isinstance(error, MotetError))
        if self.tracer is not None:
            self.tracer.failed(str(error), self._wall(self._clock()))
        self._shut()
        self._listener([Failed(error)])

    def _frame_failed(self, datagram: bytes, error: Exception) -> None:
        """Log a peer's frame that raised an error and was dropped. Rate-limited: a flood must not fill the log."""
        now, self._failures_not_logged = self._clock(), self._failures_not_logged + 1
        if self._failures_logged_at is not None and now - self._failures_logged_at < FAILURE_EVERY_NS:
            return
        not_logged, self._failures_not_logged, self._failures_logged_at = self._failures_not_logged, 0, now
        shown = datagram[:MOST_LOGGED_BYTES].hex() + ("..." if len(datagram) > MOST_LOGGED_BYTES else "")
        logger.error(
            "%s dropped a frame (%s) that raised an error inside Motet, and continues; %d such frames since the last "
            "message of this kind. Please report it with these bytes: %s",
            *(self.member.address, kind_name(datagram), not_logged, shown),
            exc_info=error,
        )

    def do_now(self, action: Callable[[int], list[Effect]]) -> None:
        """Give the member one input. Only on the driver's loop."""
        now = self._clock()
        self.perform(action(now), now)

    def inject(self, fault: Fault) -> None:
        needs_frame_kind = fault.frames is not None and fault.kind is not FaultKind.CLEAR
        if needs_frame_kind and fault.direction is not Direction.OUT and self._envelope is not None:
            raise MisuseError(
                f"the fault {fault} depends on the frame in a datagram, and a received datagram is sealed; "
                f"inject it at the sender (@PEER:out), or leave #{fault.frames} out"
            )
        self.faults.add(fault)
        self._note_sources()
        if self.liveness is not None:
            self.liveness.refresh()
        if self.tracer is not None:
            self.tracer.fault(str(fault), self._wall(self._clock()))

    def _note_sources(self) -> None:
        """Source addresses are requested only while something needs them: they cost time per datagram."""
        self.transport.wants_sources = self.faults.is_active or self.member.wants_sources

    def rekey(self, keyring: Keyring) -> None:
        if self._envelope is None:
            raise MisuseError("this member was joined without a key and cannot take one while it runs; join with keys")
        self._envelope.rekey(keyring)
        if self.liveness is not None:
            self.liveness.rekey(keyring)

    def sync(self, peer: Address) -> Future[None]:
        """The future is done when SYNC-ACK was sent, or has the error why it was not."""
        if self._is_shut:
            raise self._stopped()
        now = self._clock()
        effects = self.member.sync(peer, now)
        future = self._resyncs.wait(peer)  # before they are performed: a SYNC to oneself is over in the same call
        self.perform(effects, now)
        return future

    def start_snapshot(self) -> SnapshotId:
        now = self._clock()
        snapshot, effects = self.member.start_snapshot(now)
        self.perform(effects, now)
        return snapshot

    def supply_snapshot(self, snapshot: SnapshotId, state: bytes) -> None:
        """Add the application's state. Messages that still wait in send queues belong to the messages in flight."""
        waiting = [
            Waiting(channel, NOBODY if to is None else to.incarnation, outgoing.port, message)
            for (channel, to), send_queue in self._send_queues.items()
            for outgoing in send_queue.queue
            for message in outgoing.messages
        ]
        self.do_now(lambda now: self.member.supply_snapshot_state(snapshot, state, now, waiting))

    def _received(self, datagrams: list[bytes], sources: list[Endpoint] | None) -> None:
        """Process the datagrams of one wake-up. On the application's loop the events that they cause are delivered in
        the same loop iteration, and so are the replies of the application sent."""
        if self._is_closed or self.failure is not None:
            return
        self.is_processing_batch = self._defers_timer = self._dispatch is not None
        try:
            now = self._clock()
            if sources is not None and self.faults.is_active:
                arrived = zip(sources, datagrams, strict=True)
                left = [(d, at) for at, data in arrived for d in self.faults.apply(Direction.IN, at, data, now)]
                datagrams, sources = [data for data, _ in left], [at for _, at in left]
            self._hand_in(datagrams, now, sources)
            if self._dispatch is not None:
                self._dispatch()
                self.is_processing_batch = False
                if self._outbox:
                    self._send_pending()
                self._defers_timer = False
                self._arm(now)
                if self._awake is not None:
                    self._awake.stay()
        except Exception as error:  # as in `_run_or_stop`
            self.is_processing_batch = self._defers_timer = False
            self._fail(error)

    def _hand_in(self, datagrams: list[bytes], now: int, sources: list[Endpoint] | None = None) -> None:
        self.transport.expects_runs = any(data.startswith(SEGMENT_MAGIC) for data in datagrams)
        if self.transport.expects_runs:
            datagrams, sources = self._assembled(datagrams, sources)
        if sources is not None:
            datagrams, sources = self._opened_with(datagrams, sources)
        elif self._envelope is not None:
            opened = map(self._envelope.open, datagrams)
            datagrams = [data for data in opened if data is not None]
        if self._group_endpoint is not None and sources is None:  # IP multicast loops our own datagrams back
            datagrams = [data for data in datagrams if data[8:16] != self._own_bytes]
        if self.tracer is not None:
            for data in datagrams:
                self.tracer.received(data, self._wall(now))
        self.perform(self.member.receive(datagrams, now, sources), now)

    def _assembled(
        self, datagrams: list[bytes], sources: list[Endpoint] | None
    ) -> tuple[list[bytes], list[Endpoint] | None]:
        """Segments put together, in the places of those that completed a datagram."""
        take = self.assembler.take
        taken = [take(data) if data.startswith(SEGMENT_MAGIC) else data for data in datagrams]
        if sources is not None:
            sources = [at for at, data in zip(sources, taken, strict=True) if data is not None]
        return [data for data in taken if data is not None], sources

    def _opened_with(self, datagrams: list[bytes], sources: list[Endpoint]) -> tuple[list[bytes], list[Endpoint]]:
        """The datagrams that could be opened, and the source of each."""
        plain = datagrams if self._envelope is None else map(self._envelope.open, datagrams)
        pairs = [(data, at) for data, at in zip(plain, sources, strict=True) if data is not None]
        if self._group_endpoint is not None:  # IP multicast loops our own datagrams back
            pairs = [(data, at) for data, at in pairs if data[8:16] != self._own_bytes]
        return [data for data, _ in pairs], [at for _, at in pairs]

    def _wall(self, now: int) -> int:
        return now + self._wall_offset_ns

    def _send_scheduled(self) -> None:
        self._is_send_scheduled = False
        if self._outbox:
            self._run_or_stop(self._send_pending)

    def _send_pending(self) -> None:
        touched: dict[SendQueueKey, _SendQueue] = {}
        outbox = self._outbox
        while outbox:
            outgoing = outbox.popleft()
            if callable(outgoing):
                self._flush_send_queues(touched)
                touched.clear()
                outgoing()
                continue
            key = outgoing.send_queue
            send_queue = self._send_queues.get(key)
            if send_queue is None:
                send_queue = self._send_queues[key] = _SendQueue()
            send_queue.queue.append(outgoing)
            if not (outbox or touched):  # the common case: one send queue, one message
                self._flush_send_queue(key, send_queue)
                return
            touched[key] = send_queue
        self._flush_send_queues(touched)

    def _flush_send_queues(self, send_queues: dict[SendQueueKey, _SendQueue]) -> None:
        for key, send_queue in send_queues.items():
            self._flush_send_queue(key, send_queue)

    def _flush_send_queue(self, key: SendQueueKey, send_queue: _SendQueue) -> None:
        while send_queue.queue:
            taken, messages, size = self._take_batch(send_queue.queue)
            now = self._clock()
            try:
                effects = self._send(key, messages, taken[0], now)
            except BacklogFullError:
                send_queue.queue.extendleft(reversed(taken))
                return
            except MotetError as error:
                self._listener([Freed(key, size), SendFailed(key[0], key[1], 0, 0, error)])
                continue
            send_queue.accepted.append((self._accepted(key), size))
            self.sent_messages += len(messages)
            self.perform(effects, now)

    def _take_batch(self, queue: deque[Outgoing]) -> tuple[list[Outgoing], Sequence[bytes], int]:
        """Take as many entries as may be sent in one call: same port, no tag, up to SEND_BATCH_BYTES."""
        head = queue.popleft()
        if not queue:
            return [head], head.messages, head.size
        taken, messages, size = [head], list(head.messages), head.size
        while queue and size < SEND_BATCH_BYTES and head.tag is None:
            follower = queue[0]
            if follower.port != head.port or follower.tag is not None:
                break
            taken.append(queue.popleft())
            messages += follower.messages
            size += follower.size
        return taken, messages, size

    def _send(self, key: SendQueueKey, messages: Sequence[bytes], head: Outgoing, now: int) -> list[Effect]:
        channel, to = key
        if channel is Channel.UNICAST:
            assert to is not None
            return self.member.send(to, messages, now, port=head.port)
        if channel is Channel.MULTICAST:
            return self.member.multicast_messages(messages, now, port=head.port)
        if head.tag is not None:
            return self.member.append_tagged(head.tag, messages, now, port=head.port)
        return self.member.multicast_ordered(messages, now, port=head.port)

    def _accepted(self, key: SendQueueKey) -> int:
        channel, to = key
        if channel is Channel.UNICAST:
            assert to is not None
            return self.member.unicast.accepted(to)
        if channel is Channel.MULTICAST:
            return self.member.multicast.sender.accepted
        assert self.member.channel.ordering is not None
        return self.member.channel.ordering.accepted

    # Effects

    def perform(self, effects: list[Effect], now: int) -> None:
        events: list[Effect] = []
        admitted: list[SendQueueKey] = []
        if self.journal_writer is not None:
            effects = self.journal_writer.persist(effects, now)
        if self.tracer is not None:
            self.tracer.performed(effects, self._wall(now))
        for effect in effects:
            if type(effect) is Datagram:
                self._transmit(effect, now)
            elif type(effect) is Delivered:
                events.append(effect)
            elif isinstance(effect, Admitted):
                events += self._admitted(effect)
                admitted.append((effect.channel, effect.to))
            elif isinstance(effect, SendFailed):
                events += [effect, *self._abandoned(effect)]
            elif isinstance(effect, Announcement):
                self._announce(effect, now)
            elif isinstance(effect, Consult):
                self._consult(effect.source)
            elif isinstance(effect, ViewInstalled):
                self._learn_names(effect)
                self._note_sources()
                self._learn_path(effect.view)
                if self.liveness is not None:
                    self.liveness.follow(effect.view)
                events.append(effect)
            elif isinstance(effect, SyncCompleted | SyncFailed):
                self._resyncs.ended(effect)
            elif isinstance(effect, DigestsOverlapped):
                logger.warning("%s: %s", self.member.address, effect)
            else:
                events.append(effect)
        if events:
            self._listener(events)
        for key in admitted:
            send_queue = self._send_queues.get(key)
            if send_queue is not None and send_queue.queue:
                self._flush_send_queue(key, send_queue)
        if not self._defers_timer:
            self._arm(now)

    def _learn_path(self, view: View) -> None:
        """The narrowest path to any member decides what goes in one packet."""
        others = [member.endpoint for member in view.members if member != self.member.address]
        places = others if self._group_endpoint is None or len(others) < 2 else [*others, self._group_endpoint]
        known = [size for place in places if (size := self.transport.packet_bytes(place))]
        self.member.segmentation.know_path(min(known, default=0))

    def _learn_names(self, installed: ViewInstalled) -> None:
        """Fault rules may name members, so the injector needs to know their endpoints."""
        for member in installed.view.members:
            self.faults.learn(member.endpoint, member.name)

    def _admitted(self, effect: Admitted) -> list[Effect]:
        key = (effect.channel, effect.to)
        send_queue = self._send_queues.get(key)
        if send_queue is None:
            return []
        while send_queue.accepted and send_queue.accepted[0][0] <= effect.through:
            send_queue.freed += send_queue.accepted.popleft()[1]
        if send_queue.freed < FREED_STEP_BYTES:
            return []
        size, send_queue.freed = send_queue.freed, 0
        return [Freed(key, size)]

    def _abandoned(self, effect: SendFailed) -> list[Effect]:
        """Free all bytes of a send queue whose connection failed: nothing of it is in flight any more."""
        if effect.channel is not Channel.UNICAST:
            return self._admitted(Admitted(effect.channel, effect.to, effect.last))
        send_queue = self._send_queues.pop((effect.channel, effect.to), _SendQueue())
        size = (
            send_queue.freed
            + sum(size for _, size in send_queue.accepted)
            + sum(outgoing.size for outgoing in send_queue.queue)
        )
        return [Freed((effect.channel, effect.to), size)]

    def _transmit(self, datagram: Datagram, now: int) -> None:
        head, tail = datagram.head, datagram.tail
        if self._envelope is not None:
            head, tail = self._envelope.seal(datagram.data), b""
        if self._group_endpoint is not None and len(datagram.to) > 1:
            self._transmit_to(head, self._group_endpoint, now, tail, datagram.head)
            return
        segments = self._segments(head, tail) if not self.faults.is_active else []
        for to in datagram.to:
            place = to.endpoint if type(to) is Address else Endpoint(to.host, to.port)
            if self.faults.is_active:
                self._transmit_to(head, place, now, tail, datagram.head)
            elif segments:
                self.transport.send_all(segments, place)
            else:
                self.transport.send(head, place, tail)

    def _segments(self, data: bytes, tail: bytes) -> list[bytes]:
        """What a datagram is cut into; nothing where it leaves in one piece."""
        segmentation = self.member.segmentation
        if segmentation.mode is Mode.WHOLE or not segmentation.cuts(len(data) + len(tail)):
            return []
        mode, size = segmentation.mode, segmentation.packet_bytes
        made = self._segmenter.cut(b"".join((data, tail)), size, mode.column, has_rows=mode.has_rows)
        return made * mode.copies

    def _put(self, data: bytes, to: Endpoint, tail: bytes = b"") -> None:
        if segments := self._segments(data, tail):
            self.transport.send_all(segments, to)
        else:
            self.transport.send(data, to, tail)

    def _transmit_to(self, data: bytes, to: Endpoint, now: int, tail: bytes, plain: bytes) -> None:
        """`plain` is the header before sealing, from which fault rules know which frame the datagram carries."""
        if not self.faults.is_active:
            self._put(data, to, tail)
            return
        for copy in self.faults.apply(Direction.OUT, to, b"".join((data, tail)), now, kind_name(plain)):
            self._put(copy, to)

    def _announce(self, announcement: Announcement, now: int) -> None:
        group = Endpoint(announcement.to.host, announcement.to.port)
        self.transport.listen_to(group)
        data = self._envelope.seal(announcement.data) if self._envelope is not None else announcement.data
        self._transmit_to(data, group, now, b"", announcement.data)

    # Discovery look-ups

    def _consult(self, source: DnsName | SharedDirectory) -> None:
        """Resolve a name or list a directory in a thread, because both may block. One look-up per source at a time."""
        if source in self._lookups_in_flight:
            return
        self._lookups_in_flight.add(source)
        assert self._loop is not None
        found = self._loop.run_in_executor(None, self.lookups.look_up, source)
        found.add_done_callback(lambda future: self._run_or_stop(lambda: self._looked_up(source, future)))

    def _looked_up(self, source: DnsName | SharedDirectory, future: asyncio.Future[list[Endpoint]]) -> None:
        self._lookups_in_flight.discard(source)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self.lookups.failed(source, error)
            self.do_now(lambda now: self.member.not_found(source, now))
            return
        self.lookups.succeeded(source)
        self.do_now(lambda now: self.member.found(source, future.result(), now))

    # Time

    def _arm(self, now: int) -> None:
        """Arm the timer for the next deadline. A timer that is already armed for an earlier time stays: traffic moves
        deadlines back all the time, and a wake-up without work is cheaper than arming anew for each datagram."""
        if self._timer_at is not None and self._timer_at - now <= self._rounding_ns:
            return  # no timer could fire earlier
        deadline = self.member.next_deadline()
        if self.faults.is_active:
            deadline = earlier(deadline, self.faults.next_deadline())
        if self.journal_writer is not None:
            deadline = earlier(deadline, self.journal_writer.next_deadline())
        if deadline is None or (self._timer_at is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if not self._is_closed:
            assert self._loop is not None
            self._timer = self._loop.call_later((max(0, deadline - now) + self._rounding_ns) / SECOND, self._on_time)

    def _on_time(self) -> None:
        self._timer = self._timer_at = None
        self._run_or_stop(self._tick)

    def _tick(self) -> None:
        now = self._clock()
        if self.faults.is_active:
            self._pass_delayed(now)
        if self.journal_writer is not None:
            self.perform(self.journal_writer.tick(now), now)
        self.perform(self.member.tick(now), now)

    def _pass_delayed(self, now: int) -> None:
        """Pass on the datagrams whose injected delay is over."""
        arrived: list[bytes] = []
        sources: list[Endpoint] = []
        for delayed in self.faults.take_due(now):
            if delayed.direction is Direction.OUT:
                self._put(delayed.data, delayed.peer)
            else:
                arrived.append(delayed.data)
                sources.append(delayed.peer)
        if arrived:
            self._hand_in(arrived, now, sources)


@record
class Failed(Effect):
    """The driver stopped because of `error`."""

    error: BaseException


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # uvloop is not on this platform; the standard loop is slower and otherwise equal
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
