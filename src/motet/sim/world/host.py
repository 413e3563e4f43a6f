"""One simulated process: a `Member`, its socket buffer, and the ways in which a process can fail.

Datagrams that arrive while the process is busy or paused wait in a bounded socket buffer and are passed to the member
as one batch, as the real driver does. The clock of each process has its own offset and drift.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from motet.errors import BacklogFullError
from motet.protocol.core.effects import Channel, Effect, SendFailed
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MICROSECOND
from motet.protocol.member import Datagram, Delivered, Member
from motet.protocol.member.trace import Tracer
from motet.protocol.wire.codec import kind_name
from motet.sim.world.history import DeliveredBatch, ForgotSender, History, MessageStream
from motet.sim.world.network import LOSSES, Network
from motet.sim.world.scheduler import Scheduler
from motet.sim.world.transcript import Transcript

SOCKET_BUFFER_DATAGRAMS = 512
CARRIES_DATA = ("UnicastData", "MulticastData", "OrderData", "StateChunk")  # all other frames are control frames
# Steps between two invariant checks: a broken invariant mostly stays broken, and a check costs as much as a step.
CHECK_EVERY = 4


@dataclass(frozen=True, slots=True)
class HostContext:
    """What all processes of one simulated world share."""

    scheduler: Scheduler
    network: Network
    history: History
    transcript: Transcript | None
    find: Callable[[Address], Host | None]  # the process that lives at an address, if it still does
    trace: Emit | None = None  # receives trace events; None if no trace is written


class Host:
    def __init__(self, member: Member, context: HostContext, rng: Random) -> None:
        self.member = member
        self.is_alive = True
        self.is_paused = False
        self.is_expelled = False
        self.most_buffered = 0  # the most frames buffered at any moment
        self._steps = 0
        self._world = context
        self._rng = rng
        self._inbox: list[tuple[bytes, Endpoint | None]] = []  # each with its source, where that is known
        self._is_drain_planned = False
        self._is_resume_due = False
        self._wake_at: int | None = None
        self._skew_ns = rng.randrange(0, 10**12)
        self._drift = rng.uniform(-200e-6, 200e-6)  # the clock of a poor crystal
        self._stream_base: dict[Address, int] = {}
        self._tracer = Tracer(member, context.trace) if context.trace is not None else None
        if self._tracer is not None:
            self._tracer.started(context.scheduler.now)

    @property
    def address(self) -> Address:
        return self.member.address

    @property
    def clock(self) -> int:
        """The time by the clock of this process, in nanoseconds."""
        now = self._world.scheduler.now
        return self._skew_ns + now + int(now * self._drift)

    # Faults, injected by the world

    def crash(self) -> None:
        self.is_alive = self.is_paused = False
        self._inbox.clear()
        self._world.history.dead.add(self.address)
        self.note("crashes")
        if self._tracer is not None:
            self._tracer.failed("crashes", self._world.scheduler.now)

    def expel(self) -> None:
        """The others install a view without it. It is not notified and keeps running, and no guarantee covers it any
        more.
        """
        self.is_expelled = True
        self._world.history.dead.add(self.address)
        self._suffer("is expelled")

    def pause(self) -> None:
        self.is_paused = True
        self._suffer("is paused")

    def resume(self) -> None:
        if self.is_alive and self.is_paused:
            self.is_paused = False
            self._suffer("goes on")
            self._plan_drain()
            self._wake()
            if self._is_resume_due:
                self._is_resume_due = False
                self.resume_deliveries()

    def arrive(self, data: bytes, source: Address | None = None) -> None:
        if not self.is_alive:
            return
        is_full = len(self._inbox) >= SOCKET_BUFFER_DATAGRAMS
        if self._tracer is not None:
            self._trace_arrival(self._tracer, data, source, is_full)
        if not is_full:
            self._inbox.append((data, source.endpoint if source is not None else None))
            self._plan_drain()

    def _trace_arrival(self, tracer: Tracer, data: bytes, source: Address | None, is_full: bool) -> None:
        now = self._world.scheduler.now
        if is_full:
            tracer.dropped("socket buffer full", now, source, len(data))
        else:
            tracer.received(data, now, source)

    # Actions of the application

    def do(self, action: Callable[[int], list[Effect]]) -> None:
        """Run one input of the member and perform the effects that it returns."""
        if self.is_alive and not self.is_paused:
            self._perform(action(self.clock))

    def multicast(self, messages: list[bytes]) -> None:
        self._offer(MessageStream(Channel.MULTICAST, self.address, None), messages)

    def multicast_ordered(self, messages: list[bytes]) -> None:
        self._offer(MessageStream(Channel.TOTAL, self.address, None), messages)

    def send(self, to: Address, messages: list[bytes]) -> None:
        self._offer(MessageStream(Channel.UNICAST, self.address, to), messages)

    def pause_deliveries(self) -> None:
        self._suffer("takes no deliveries")
        self.member.pause()

    def resume_deliveries(self) -> None:
        if self.is_paused:
            self._is_resume_due = True  # a paused process cannot resume deliveries now
            return
        self._suffer("takes deliveries again")
        self.do(self.member.resume)

    def forget_sender(self, sender: Address) -> None:
        """Drop the receive window for `sender`, as after an asymmetric split."""
        self.note(f"drops its receive window for {sender}")
        self._world.history.events.append(ForgotSender(self._world.scheduler.now, self.address, sender))
        remember = self._world.history.remembers
        self.do(lambda now: self.member.close_receiver(sender, now, remember=remember))

    def note(self, text: str) -> None:
        if self._world.transcript is not None:
            self._world.transcript.note(self._world.scheduler.now, f"{self.address} {text}")

    def _suffer(self, text: str) -> None:
        self.note(text)
        if self._tracer is not None:
            self._tracer.fault(text, self._world.scheduler.now)

    def _offer(self, stream: MessageStream, messages: list[bytes]) -> None:
        effects = self._accepted(stream, messages)
        if effects is not None:
            self._perform(effects)

    def _accepted(self, stream: MessageStream, messages: list[bytes]) -> list[Effect] | None:
        """Pass messages to the member. None means refused: they were never accepted, and may be sent again later."""
        if not self.is_alive or self.is_paused:
            return None
        accepted_before = len(self._world.history.accepted.get(stream, ()))
        try:
            if stream.channel is Channel.TOTAL:
                effects = self.member.multicast_ordered(messages, self.clock)
            elif stream.to is None:
                effects = self.member.multicast_messages(messages, self.clock)
            else:
                effects = self.member.send(stream.to, messages, self.clock)
        except BacklogFullError:
            return None
        self._world.history.accept(stream, messages)
        if stream.to is not None:
            accepted_now = accepted_before + len(messages)
            self._stream_base[stream.to] = accepted_now - self.member.unicast.accepted(stream.to)
        self.note(f"sends {len(messages)} to {stream.to or 'the group'}")
        return effects

    # Effects

    def _perform(self, effects: list[Effect]) -> None:
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if self._tracer is not None:
                self._tracer.record_effect(effect, self._world.scheduler.now)
            pending.extend(self._make_real(effect))
        if self._tracer is not None:
            self._tracer.record_counters(self._world.scheduler.now)
        self.most_buffered = max(self.most_buffered, self.member.buffered_frames)
        self._steps += 1
        if self._steps % CHECK_EVERY == 0:
            self.member._check()
        self._plan_wake()

    def _make_real(self, effect: Effect) -> list[Effect]:
        """Perform one effect. Returns the further effects of an answer that the effect asks of the application."""
        match effect:
            case Datagram():
                for to in effect.to:
                    self._transmit(self._home(to), effect.data)
            case Delivered():
                self._record_delivery(effect)
            case SendFailed():
                self._record_failure(effect)
            case _:
                self.note(str(effect))
        return []

    def _home(self, to: Address | Endpoint) -> Address:
        """The address at which the network delivers a datagram. Without membership, peers are known by address."""
        assert isinstance(to, Address)
        return to

    def _transmit(self, to: Address, data: bytes) -> None:
        world = self._world

        def arrive() -> None:
            host = world.find(to)
            if host is not None:
                host.arrive(data, self.address)

        kind = kind_name(data)
        control = "" if kind in CARRIES_DATA else kind
        fate = world.network.send(self.address, to, len(data), arrive, control=control)
        if self._tracer is not None and fate in LOSSES:
            self._tracer.dropped(fate, world.scheduler.now, to, len(data))
        if world.transcript is not None:
            world.transcript.datagram(world.scheduler.now, str(self.address), str(to), data, fate)

    def _record_delivery(self, effect: Delivered) -> None:
        now = self._world.scheduler.now
        self._world.history.events.append(
            DeliveredBatch(
                now, self.address, effect.channel, effect.sender, tuple(effect.messages), effect.position, effect.tag
            )
        )
        self.note(f"delivers {len(effect.messages)} of {effect.sender} ({effect.channel.value})")

    def _record_failure(self, effect: SendFailed) -> None:
        base = self._stream_base.get(effect.to, 0) if effect.to is not None else 0
        stream = MessageStream(effect.channel, self.address, effect.to)
        self._world.history.fail(stream, base + effect.first - 1, base + effect.last - 1)
        self.note(f"gives up {effect.first} to {effect.last} to {effect.to or 'the group'}: {effect.error}")

    def _plan_drain(self) -> None:
        if not self._is_drain_planned and not self.is_paused:
            self._is_drain_planned = True
            self._world.scheduler.after(self._rng.randrange(1, 200 * MICROSECOND), self._drain)

    def _drain(self) -> None:
        self._is_drain_planned = False
        if self.is_alive and not self.is_paused and self._inbox:
            batch, self._inbox = self._inbox, []
            datagrams, sources = [data for data, _ in batch], [at for _, at in batch if at is not None]
            self.do(lambda now: self.member.receive(datagrams, now, sources if len(sources) == len(batch) else None))

    def _plan_wake(self) -> None:
        deadline = self.member.next_deadline()
        if deadline is None:
            self._wake_at = None
            return
        wait = max(0, deadline - self.clock)
        when = self._world.scheduler.now + wait + wait // 1_000  # the margin of 0.1 % covers the drift of the clock
        if self._wake_at is None or when < self._wake_at:
            self._wake_at = when
            self._world.scheduler.at(when, self._wake_if_planned(when))

    def _wake_if_planned(self, when: int) -> Callable[[], None]:
        def wake() -> None:
            if self._wake_at == when:
                self._wake_at = None
                self._wake()

        return wake

    def _wake(self) -> None:
        if self.is_alive and not self.is_paused:
            self.do(self.member.tick)
