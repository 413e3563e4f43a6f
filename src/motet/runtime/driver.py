"""The driver of one member: it decodes nothing and decides nothing. Datagrams, commands and time go into the member,
what the member answers is performed: datagrams leave, all else is told to a listener, in order, one list per wake-up.

Everything in here runs on one event loop, the driver's own in a thread of its own or the application's, except `offer`,
`post`, `run`, `do` and `ask`, which any thread may call. Invariants: at most one timer is armed; a datagram leaves only
after what it promises is kept by the journal.
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
from motet.protocol.member.trace import Tracer
from motet.protocol.membership.discovery import Consult, DnsName, SharedDirectory
from motet.protocol.membership.engine import ViewInstalled
from motet.protocol.membership.overlap import DigestsOverlapped
from motet.protocol.wire.codec import kind_name
from motet.protocol.wire.ordered import Tag
from motet.protocol.wire.seal import Keyring
from motet.protocol.wire.snapshot import SnapshotId, Waiting
from motet.runtime.awake import Awake
from motet.runtime.faults import Direction, Fault, FaultInjector, FaultKind
from motet.runtime.lookups import Lookups
from motet.runtime.resync import Resyncs
from motet.runtime.world import REAL_WORLD, Transport, World

logger = logging.getLogger("motet")
T = TypeVar("T")
UVLOOP_ROUNDING_NS = MILLISECOND // 2  # its timers go off at the nearest millisecond, and to be early is in vain
SEND_BATCH_BYTES = 1 << 20  # what is handed to the member at once of one lane
FAILURE_EVERY_NS = 10 * SECOND  # at most one line of the log in this time tells of frames that led to an error
MOST_LOGGED_BYTES = 512  # of such a frame
FREED_STEP_BYTES = 128 << 10  # bytes: less free space of a lane is not told, for each word wakes the application

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
    """So many bytes of a lane have left for the window, or will not be sent any more."""

    send_queue: SendQueueKey
    size: int


@dataclass(slots=True)
class _SendQueue:
    """The way of one stream into the member."""

    queue: deque[Outgoing] = field(default_factory=deque)
    accepted: deque[tuple[int, int]] = field(default_factory=deque)  # (number of the last message, bytes)
    freed: int = 0  # bytes that have left, and the application does not know yet


class DatagramSealer(Protocol):
    """What turns datagrams into sealed ones and back."""

    def seal(self, datagram: bytes) -> bytes: ...

    def open(self, sealed: bytes) -> bytes | None: ...

    def rekey(self, keyring: Keyring) -> None: ...


class LogWriter(Protocol):
    """What keeps the log on disk. It may hold effects back, and it hears of everything before it is performed."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None: ...

    def persist(self, effects: list[Effect], now: int) -> list[Effect]: ...

    def tick(self, now: int) -> list[Effect]: ...

    def next_deadline(self) -> int | None: ...

    def close(self) -> None: ...


class Liveness(Protocol):
    """What tells the others that this process is alive while the driver does not run."""

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
        self.replay: Callable[[], list[Effect]] | None = None  # what the application hears before anything else
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
        self._dispatch: Callable[[], None] | None = None  # on its loop, the application takes what it was told
        self.is_processing_batch = False  # in this turn it will
        self._defers_timer = False  # the timer, at the end of this turn
        self._awake: Awake | None = None
        self.sent_messages = 0  # what the application wanted sent, and the member has accepted
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
        self._own_bytes = member.address.incarnation.to_bytes(8, "little")
        self._is_closed = False
        self._is_shut = False
        self._lookups_in_flight: set[DnsName | SharedDirectory] = set()
        self.lookups = Lookups(member.address.endpoint)

    # Life

    def start_in_thread(self) -> None:
        """On a loop and a thread of its own: the application may block as long as it likes."""
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
        """On the application's loop, which must stay free."""
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
        """Stop at once; `leave` is the polite way. May be called from any thread, and twice."""
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

    # What other threads may call

    def offer(self, outgoing: Outgoing | Callable[[], None]) -> None:
        """Send this when there is space, in order per lane; or do this when all before it is on its way, or queued.

        On the application's loop the first of a turn leaves at once, and what follows in the same turn leaves together.
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
        """It has been told that something waits, and has not looked yet: whatever comes now leaves together."""
        return self._is_send_scheduled

    def post(self, action: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._run_or_stop, action)

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Run on the driver's loop, and answer."""
        future: Future[T] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(question())
            except BaseException as error:  # goes to whoever asked
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
        """One input of the member; from any thread."""
        self.run(lambda: self.do_now(action))

    def run(self, action: Callable[[], None]) -> None:
        """From any thread; what is asked for first is done first. On the application's loop it is done at once."""
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
        except Exception as error:  # a bug of ours, or a disk that failed: stop before anything wrong is promised
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        logger.error("%s stops: %s", self.member.address, error, exc_info=not isinstance(error, MotetError))
        if self.tracer is not None:
            self.tracer.failed(str(error), self._wall(self._clock()))
        self._shut()
        self._listener([Failed(error)])

    def _frame_failed(self, datagram: bytes, error: Exception) -> None:
        """A bug of ours that a peer's frame has led to: the frame is dropped. A flood of them must not fill the log."""
        now, self._failures_not_logged = self._clock(), self._failures_not_logged + 1
        if self._failures_logged_at is not None and now - self._failures_logged_at < FAILURE_EVERY_NS:
            return
        not_logged, self._failures_not_logged, self._failures_logged_at = self._failures_not_logged, 0, now
        shown = datagram[:MOST_LOGGED_BYTES].hex() + ("..." if len(datagram) > MOST_LOGGED_BYTES else "")
        logger.error(
            "%s dropped a frame (%s) that led to an error inside Motet, and goes on; %d such since the last line like "
            "this. Please report it with these bytes: %s",
            *(self.member.address, kind_name(datagram), not_logged, shown),
            exc_info=error,
        )

    def do_now(self, action: Callable[[int], list[Effect]]) -> None:
        """One input of the member; on the driver's loop."""
        now = self._clock()
        self.perform(action(now), now)

    def inject(self, fault: Fault) -> None:
        needs_frame_kind = fault.frames is not None and fault.kind is not FaultKind.CLEAR
        if needs_frame_kind and fault.direction is not Direction.OUT and self._envelope is not None:
            raise MisuseError(
                f"the fault {fault} asks which frame a datagram carries, and with a key it arrives sealed; inject it "
                f"where datagrams are sent (@PEER:out), or leave #{fault.frames} away"
            )
        self.faults.add(fault)
        self._note_sources()
        if self.liveness is not None:
            self.liveness.refresh()
        if self.tracer is not None:
            self.tracer.fault(str(fault), self._wall(self._clock()))

    def _note_sources(self) -> None:
        """Where datagrams come from is asked for only while somebody looks at it: it costs time for each of them."""
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
        self.do_now(lambda now: self.member.sync(peer, now))  # asks the network, so it never ends within this call
        return self._resyncs.wait(peer)

    def start_snapshot(self) -> SnapshotId:
        now = self._clock()
        snapshot, effects = self.member.start_snapshot(now)
        self.perform(effects, now)
        return snapshot

    def supply_snapshot(self, snapshot: SnapshotId, state: bytes) -> None:
        """What the application has sent before and no window has taken yet is part of what is on its way."""
        waiting = [
            Waiting(channel, NOBODY if to is None else to.incarnation, outgoing.port, message)
            for (channel, to), send_queue in self._send_queues.items()
            for outgoing in send_queue.queue
            for message in outgoing.messages
        ]
        self.do_now(lambda now: self.member.supply_snapshot_state(snapshot, state, now, waiting))

    def _received(self, datagrams: list[bytes], sources: list[Endpoint] | None) -> None:
        """A wake-up. On the application's loop all that it leads to is done in the same turn: the application takes
        what it is told, and what it answers leaves."""
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
        if sources is not None:
            datagrams, sources = self._opened_with(datagrams, sources)
        elif self._envelope is not None:
            opened = map(self._envelope.open, datagrams)
            datagrams = [data for data in opened if data is not None]
        if self._group_endpoint is not None and sources is None:  # by IP multicast we hear ourselves
            datagrams = [data for data in datagrams if data[8:16] != self._own_bytes]
        if self.tracer is not None:
            for data in datagrams:
                self.tracer.received(data, self._wall(now))
        self.perform(self.member.receive(datagrams, now, sources), now)

    def _opened_with(self, datagrams: list[bytes], sources: list[Endpoint]) -> tuple[list[bytes], list[Endpoint]]:
        """What remains of the datagrams, and where each of these came from."""
        plain = datagrams if self._envelope is None else map(self._envelope.open, datagrams)
        pairs = [(data, at) for data, at in zip(plain, sources, strict=True) if data is not None]
        if self._group_endpoint is not None:  # by IP multicast we hear ourselves
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
            if not (outbox or touched):  # as it is most often
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
        """As many as may go together."""
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

    def _learn_names(self, installed: ViewInstalled) -> None:
        """Rules of faults may name members."""
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
        """Of a connection that failed, nothing is under way any more."""
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
        for to in datagram.to:
            place = to.endpoint if type(to) is Address else Endpoint(to.host, to.port)
            if self.faults.is_active:
                self._transmit_to(head, place, now, tail, datagram.head)
            else:
                self.transport.send(head, place, tail)

    def _transmit_to(self, data: bytes, to: Endpoint, now: int, tail: bytes, plain: bytes) -> None:
        """`plain`: how the datagram began before it was sealed, so that faults can tell which frame it carries."""
        if not self.faults.is_active:
            self.transport.send(data, to, tail)
            return
        for copy in self.faults.apply(Direction.OUT, to, b"".join((data, tail)), now, kind_name(plain)):
            self.transport.send(copy, to)

    def _announce(self, announcement: Announcement, now: int) -> None:
        group = Endpoint(announcement.to.host, announcement.to.port)
        self.transport.listen_to(group)
        data = self._envelope.seal(announcement.data) if self._envelope is not None else announcement.data
        self._transmit_to(data, group, now, b"", announcement.data)

    # Looking for others

    def _consult(self, source: DnsName | SharedDirectory) -> None:
        """Names are resolved, and directories read, beside the loop; one look at a time."""
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
        """A timer that is early stays: traffic puts deadlines off all the time, and to wake once in vain is cheaper."""
        if self._timer_at is not None and self._timer_at - now <= self._rounding_ns:
            return  # none can be had that is earlier
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
        """What a fault on purpose has delayed back."""
        arrived: list[bytes] = []
        sources: list[Endpoint] = []
        for delayed in self.faults.take_due(now):
            if delayed.direction is Direction.OUT:
                self.transport.send(delayed.data, delayed.peer)
            else:
                arrived.append(delayed.data)
                sources.append(delayed.peer)
        if arrived:
            self._hand_in(arrived, now, sources)


@record
class Failed(Effect):
    """The driver has stopped."""

    error: BaseException


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on this platform: the standard loop does the same, more slowly
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
