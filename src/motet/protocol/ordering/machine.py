"""Total order: accepted messages become the log, which is the same at all members of a primary view.

    the application sends    -> the message waits in the outbox until it is sent, in a primary view only
    the head is decided      -> it gets its position and is delivered; an append that repeats another is dropped
    the log advances         -> progress is reported to the coordinator, which announces what is stable
    the view ends            -> decided frames are delivered: all survivors hold the same frames and agreed numbers
    ... a primary one follows -> undecided frames follow by sender and id, if the strategy ensures that all have them

How the messages of the algorithm travel is up to the dissemination strategy (dissemination.py).

Invariants: those of the log, the outbox and the strategy; in a view that is not primary the hold-back queue is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from motet.errors import MisuseError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Channel, Deliver, Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_VIEW, View
from motet.protocol.ordering.config import OrderingConfig
from motet.protocol.ordering.continuous_strategy import ContinuousStrategy
from motet.protocol.ordering.dissemination import Dissemination, PlainStream, Retransmission
from motet.protocol.ordering.holdback import HoldBackQueue, Pending
from motet.protocol.ordering.isis import Isis
from motet.protocol.ordering.log import LogProgress, RolledBack
from motet.protocol.ordering.outbox import Outbox
from motet.protocol.ordering.stability import Stability, StableAdvanced
from motet.protocol.ordering.window_strategy import WindowStrategy
from motet.protocol.wire.body import PACKED, Port, port_of
from motet.protocol.wire.frames import (
    AgreedNumbers,
    LogCheckpoint,
    OrderAck,
    OrderData,
    OrderSeq,
    OrderSeqAck,
    Pairs,
    Progress,
    ProposalRequest,
    Proposals,
    Stable,
)
from motet.protocol.wire.ordered import ORDERED, Ordered, Tag, unseal

__all__ = ["FRAMES", "AppendRepeated", "RolledBack", "StableAdvanced", "TotalOrder"]

FRAMES = (Proposals, ProposalRequest, Progress, Stable, OrderData, OrderAck, OrderSeq, OrderSeqAck)
_TYPES = frozenset(FRAMES)
_STRATEGIES: dict[str, type[WindowStrategy] | type[ContinuousStrategy]] = {
    "window": WindowStrategy,
    "continuous": ContinuousStrategy,
}


@dataclass(frozen=True, slots=True)
class AppendRepeated(Effect):
    """An own append was dropped: it is in the log already, or a later one of its producer is."""

    producer: int
    sequence: int
    count: int = 0  # The number of messages in it.
    last: int = field(default=0, compare=False)  # The number of its last message among all ordered ones sent here.
    position: int = field(default=0, compare=False)  # The log contains the original append up to here.


class TotalOrder:
    def __init__(
        self,
        local: Address,
        config: OrderingConfig,
        counters: Counters,
        log: LogProgress | None = None,
    ) -> None:
        """`log`: the progress that the journal of an earlier incarnation recorded, if there is one."""
        self._local = local
        self._counters = counters
        self._log = log or LogProgress()
        self._outbox = Outbox(config)
        self._strategy: Dissemination = _STRATEGIES[config.strategy](local, config, self._outbox, counters)
        self._stability = Stability(local, self._log, config)
        self._view = View(NO_VIEW, (local,), is_primary=False)
        self._ranks = {local: 0}
        self._isis = Isis(1, 0)
        self._is_paused = False
        self._plain: dict[Address, int] = {}  # Plain bodies delivered of each sender in this view.

    def run_beside(self, stream: PlainStream) -> None:
        """Send no ordered frame before a snapshot marker that waits in `stream`. Plain messages may be overtaken."""
        self._outbox.stream = stream

    def restore(self, position: int, stable: int, producers: Pairs = ()) -> None:
        """Continue the log of an earlier incarnation. Must be called before anything else."""
        self._log.restore(position, stable, producers)

    # What the application asks for

    def send(self, messages: Sequence[bytes], port: int = Port.APP) -> None:
        """Accept messages; they are sent when the view is primary and the window allows. All are accepted, or none."""
        self._outbox.send(messages, port)

    def send_tagged(self, producer: int, sequence: int, messages: Sequence[bytes], port: int = Port.APP) -> None:
        """Accept an idempotent append: however often it is sent, the log has it once, with this tag."""
        self._outbox.send_tagged(Tag(producer, sequence), messages, port)

    @property
    def append_bytes(self) -> int:
        """The largest idempotent append: the bytes of its messages, and a length for each."""
        return self._outbox.append_bytes

    def leave(self) -> list[Effect]:
        return self._outbox.leave()

    def persisted(self, position: int, now: int) -> None:
        """The local disk has the log up to `position`."""
        position = min(position, self._log.position)
        if position > self._log.persisted:
            self._log.persisted = position
            self._stability.moved(now)

    def keep(self, *, is_caught_up: bool = True) -> None:
        """A journal keeps the log. It is caught up unless a part of it is still being fetched from other members."""
        self._log.is_kept, self._log.is_caught_up = True, is_caught_up

    def allow_fast_path(self, is_fast_path_allowed: bool) -> None:
        """Only a member that the others can receive from may decide frames before the sender has confirmed them by SEQ.

        Otherwise it could deliver in an order that depends on its own proposals, which no other member has, and the
        others would continue without it in a different order.
        """
        self._strategy.is_fast_path_allowed = is_fast_path_allowed

    def pause(self) -> None:
        """Deliver nothing until `resume`: the application applies back-pressure."""
        self._is_paused = True
        self._strategy.pause()

    def resume(self, now: int) -> list[Effect]:
        self._is_paused = False
        self._strategy.resume()
        return self.advance(now)

    # Queries

    @property
    def position(self) -> int:
        """The position of the last message of the log that was delivered here."""
        return self._log.position

    @property
    def stable(self) -> int:
        return self._log.stable

    @property
    def is_caught_up(self) -> bool:
        return self._log.is_caught_up

    @property
    def producers(self) -> Pairs:
        """The highest sequence of each producer in the log; all members of a view start with the same ones."""
        return self._log.producers.pairs()

    @property
    def accepted(self) -> int:
        return self._outbox.accepted

    @property
    def admitted(self) -> int:
        return self._outbox.admitted

    @property
    def in_flight(self) -> int:
        """Own frames that were sent in this view and are not delivered yet."""
        return self._outbox.frames_in_flight

    @property
    def sent(self) -> int:
        """Own frames sent in this view."""
        return self._strategy.sent

    @property
    def members(self) -> tuple[Address, ...]:
        return self._view.members

    def delivered_ids(self) -> dict[Address, int]:
        """For each sender of this view, the id of its last frame delivered here."""
        return dict(zip(self._view.members, self._isis.delivered_ids, strict=True))

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        """Port and payload of each accepted message that was not completely sent."""
        return self._outbox.waiting()

    @property
    def is_drained(self) -> bool:
        """No own message waits or is in flight."""
        return not self._outbox and not self._outbox.frames_in_flight

    @property
    def queue(self) -> HoldBackQueue:
        return self._isis.queue

    def unproposed(self) -> dict[Address, tuple[int, int]]:
        """Members whose proposals for own frames are missing, each with the first and last such id."""
        spans = {member: self._isis.missing(rank, self.sent) for member, rank in self._ranks.items()}
        return {member: span for member, span in spans.items() if span is not None and member != self._local}

    def retransmissions(self) -> list[Retransmission]:
        """Frames that the continuous strategy resends, and to whom."""
        return self._strategy.retransmissions()

    @property
    def wall_offset_ns(self) -> int:
        """The difference between the wall clock and the monotonic clock that machines are given."""
        return self._outbox.wall_offset_ns

    @wall_offset_ns.setter
    def wall_offset_ns(self, offset_ns: int) -> None:
        self._outbox.wall_offset_ns = offset_ns

    # Bodies for the own multicast stream

    @property
    def is_eager(self) -> bool:
        """The stream should take a body at once."""
        return self._strategy.is_eager

    def next_body(self, now: int = 0) -> bytes | None:
        return self._strategy.next_body(now)

    def attach(self, body: bytes, now: int = 0) -> bytes:
        return self._strategy.attach(body, now)

    # Bodies that the streams deliver

    def take(self, sender: Address, bodies: Sequence[bytes], now: int) -> list[Effect]:
        """Bodies of one sender's stream, in order and without duplicates."""
        return self.absorb(sender, bodies) + self.advance(now)

    def absorb(self, sender: Address, bodies: Sequence[bytes]) -> list[Effect]:
        """Like `take`, without the final `advance`, which the caller does once for a batch."""
        plain: list[bytes] = []
        for body in bodies:
            inner = body if body[0] != ORDERED else self._take_ordered(sender, unseal(body))
            if inner:
                plain.append(inner)
        return self._plain_bodies(sender, tuple(plain)) if plain else []

    def _take_ordered(self, sender: Address, ordered: Ordered) -> bytes:
        """Apply an ordered body. Returns the plain body that its sequence numbers were piggybacked on, or nothing."""
        if not ordered.is_ordered and not ordered.numbers:
            pass
        elif self._view.is_primary:
            self._strategy.take(self._ranks[sender], ordered)
        else:
            self._counters[Count.FRAME_MISPLACED] += 1  # No member orders anything in a view that is not primary.
            return b""
        return b"" if ordered.is_ordered else ordered.inner

    def _plain_bodies(self, sender: Address, bodies: tuple[bytes, ...]) -> list[Effect]:
        before = self._plain.get(sender, 0)
        self._plain[sender] = before + len(bodies)
        return [Deliver(Channel.MULTICAST, sender, before + 1, bodies)]

    def advance(self, now: int) -> list[Effect]:
        """Make progress after an input: send, announce agreed numbers, deliver."""
        self._strategy.advance(now)
        ready = [] if self._is_paused else self._isis.deliverable()
        made = self._deliver(ready, now) if ready else []
        return made + self._strategy.outgoing()

    def _deliver(self, ready: Sequence[Pending], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for run in _runs(ready):
            effects += self._deliver_run(run)
        self._counters[Count.FRAME_ORDERED] += len(ready)
        self._stability.moved(now)
        return effects

    def _deliver_run(self, run: Sequence[Pending]) -> list[Effect]:
        first, is_ours = run[0], run[0].sender == self._ranks[self._local]
        position = self._log.place(first)
        if is_ours:
            self._outbox.deliver(self._log.position, first.count)
        if position is None:
            self._counters[Count.APPEND_REPEATED] += 1
            assert first.tag is not None
            repeated = AppendRepeated(*first.tag, first.count, self._outbox.delivered, self._log.position)
            return [repeated] if is_ours else []
        for pending in run[1:]:
            self._log.place(pending)
            if is_ours:
                self._outbox.deliver(self._log.position, pending.count)
        bodies, times = tuple(pending.body for pending in run), tuple(pending.sent_at for pending in run)
        return [Deliver(Channel.TOTAL, self._view.members[first.sender], first.id, bodies, position, times, first.tag)]

    def admission(self) -> list[Effect]:
        """The messages that have left the backlog since the previous call."""
        return self._outbox.admission()

    # Frames of other members

    def receive(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        return self.receive_frame(source, frame) + self.advance(now)

    def receive_frame(self, source: Address, frame: Frame) -> list[Effect]:
        """Like `receive`, without the final `advance`, which the caller does once for a batch."""
        if type(frame) not in _TYPES:
            raise MisuseError(f"{type(frame).__name__} is not a frame of total order")
        view = frame.view  # type: ignore[attr-defined]  # Every type in FRAMES has a view.
        if view != self._view.id or source not in self._ranks or source == self._local:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        if isinstance(frame, Progress | Stable):
            effects = self._stability.receive(source, frame)
            self._outbox.confirm(self._stability.confirmed)
            return effects
        return self._strategy.receive(source, frame)

    # Views

    def freeze(self) -> AgreedNumbers:
        """A flush begins: decide nothing more. Returns agreed numbers that other members may not know."""
        self._strategy.freeze()
        return self._strategy.agreed()

    def thaw(self, now: int) -> list[Effect]:
        self._strategy.thaw()
        return self.advance(now)

    def log_after(
        self, undelivered: Iterable[tuple[Address, bytes]], *, log_continues: bool, agreed: AgreedNumbers = ()
    ) -> LogCheckpoint:
        """The log's checkpoint after a flush that delivers `undelivered` and applies `agreed`, computed on a copy."""
        isis, log = self._isis.copy(), self._log.copy()
        rest = ((sender, unseal(body)) for sender, body in undelivered if body[0] == ORDERED)
        self._strategy.conclude(isis, rest, agreed)
        for pending in self._last_of(isis, log_continues=log_continues):
            log.place(pending)
        return log.end()

    def end_view(self, *, log_continues: bool, agreed: AgreedNumbers = ()) -> list[Effect]:
        """End the view; all bodies up to the cut were taken. `log_continues`: a primary view follows in this log."""
        self._strategy.conclude(self._isis, (), agreed)
        last = self._last_of(self._isis, log_continues=log_continues)
        effects = self._deliver(last, 0) if last else []
        self._stability.end_view()
        return effects + self._strategy.end_view(log_continues=log_continues)

    def _last_of(self, isis: Isis, *, log_continues: bool) -> list[Pending]:
        all_of_it = log_continues and self._strategy.delivers_undecided
        return [pending for pending in isis.queue.drain() if pending.is_decided or all_of_it]

    def take_over(self, log: LogCheckpoint) -> list[Effect]:
        """Continue the others' log from here. Called before `begin_view`, for a member that joins from another view."""
        return self._log.move_to(log)

    def begin_view(self, view: View, now: int) -> list[Effect]:
        self._view = view
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self._isis = Isis(len(view.members), self._ranks[self._local])
        self._plain = {}
        self._strategy.begin_view(view, self._isis, now)
        self._stability.begin_view(view, now)
        return []

    # Time

    def tick(self, now: int) -> list[Effect]:
        effects = self._strategy.tick(now) + self._stability.tick(now)
        self._outbox.confirm(self._stability.confirmed)
        return effects + self.advance(now)

    def next_deadline(self) -> int | None:
        strategy, report = self._strategy.next_deadline(), self._stability.report_at
        return report if strategy is None or (report is not None and report < strategy) else strategy

    def _check(self) -> None:
        self._isis._check()
        self._log._check()
        self._outbox._check()
        self._strategy._check()
        assert self._view.is_primary or not len(self._isis.queue)


def _runs(ready: Sequence[Pending]) -> Iterator[Sequence[Pending]]:
    """Neighbours that can be delivered as one batch: complete messages of one sender and one port, without tags."""
    start = 0
    for end in range(1, len(ready)):
        if not _may_join(ready[end - 1], ready[end]):
            yield ready[start:end]
            start = end
    yield ready[start:]


def _may_join(one: Pending, other: Pending) -> bool:
    is_plain = one.tag is None and other.tag is None and one.sender == other.sender
    return is_plain and one.body[0] == other.body[0] == PACKED and port_of(one.body) == port_of(other.body)
