"""Reliable multicast, sending half: the own stream, whose window is also the receive window for own messages.

    low = acked by every member of the view      delivered = handed to our own application      high = highest sent

Invariants: admitted <= accepted; nothing up to `high` is missing; `low` never passes the smallest ack of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Admitted, Broadcast, Channel, Deliver, Effect, SendFailed
from motet.protocol.core.identity import Address
from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.multicast.config import MulticastConfig
from motet.protocol.window.acks import AckTable
from motet.protocol.window.budget import RepairBudget
from motet.protocol.window.digest import DigestEntry
from motet.protocol.window.ring import RingWindow
from motet.protocol.wire.backlog import Backlog
from motet.protocol.wire.body import UNCOUNTED, Port
from motet.protocol.wire.frames import Highest, MulticastData


class Piggyback(Protocol):
    """A second source of bodies for the own stream; total order implements it."""

    def next_body(self, now: int) -> bytes | None:
        """The body of the next frame; None when nothing waits."""

    def attach(self, body: bytes, now: int) -> bytes:
        """Called before a body is sent; may return it with piggybacked data."""


class MulticastSender:
    def __init__(
        self,
        local: Address,
        config: MulticastConfig,
        counters: Counters,
        round_trip: RoundTrip,
        budget: RepairBudget[Address],
    ) -> None:
        self.window: RingWindow[bytes] = RingWindow(config.capacity)
        self.acks: AckTable[Address] = AckTable({local: 0})
        self.share = config.share(1)  # Frames that may be in flight; at most the window's capacity.
        self.accepted = self.admitted = 0
        self.due: int | None = None  # When to announce the last seqno, in case the end of the stream was lost.
        self._local = local
        self._config = config
        self._counters = counters
        self._round_trip = round_trip
        self._budget = budget
        self._backlog = Backlog(config.body_bytes, packs=config.packs)
        self.piggyback: Piggyback | None = None
        self.view = 0  # names the view in every frame
        self._is_piggyback_turn = False  # Plain bodies and those of `piggyback` alternate.
        self._is_frozen = False  # During a flush, accepted messages wait for the next view.
        self._announced = 0  # The stable seqno that was last announced.
        self._attempt = 0
        self._noticed_at: int | None = None  # When the only last-seqno announcement was sent; its ack is an RTT sample.

    @property
    def waiting_bytes(self) -> int:
        return self._backlog.waiting_bytes

    @property
    def has_marker_waiting(self) -> bool:
        """A snapshot marker waits that no ordered frame may overtake."""
        return self._backlog.uncounted > 0

    @property
    def _is_full(self) -> bool:
        return self.window.high - self.window.low >= self.share

    @property
    def is_drained(self) -> bool:
        return self.window.low == self.window.high and not self._backlog

    def send(self, messages: Sequence[bytes], now: int, *, is_paused: bool, port: int = Port.APP) -> list[Effect]:
        self._backlog.extend(messages, port)
        self.accepted += 0 if port in UNCOUNTED else len(messages)
        return self.pump(now, is_paused=is_paused)

    def pump(self, now: int, *, is_paused: bool) -> list[Effect]:
        """Fill the window from the backlog and deliver own messages, until neither frees space for the other."""
        effects: list[Effect] = []
        admitted = self.admitted
        has_space = True
        while has_space:
            effects += self._fill(now)
            was_full = self._is_full  # If it is not full now, nothing is left to send.
            delivered = [] if is_paused else self._deliver_own()
            effects += delivered
            has_space = was_full and bool(delivered) and not (self._is_full or self._is_frozen)
        if self.admitted > admitted:
            effects.append(Admitted(Channel.MULTICAST, None, self.admitted))
        return effects

    def ack(self, member: Address, seqno: int, now: int, *, is_paused: bool) -> list[Effect]:
        if member not in self.acks:
            self._counters[Count.ACK_OF_NON_MEMBER] += 1
            return []
        if seqno > self.window.high:
            self._counters[Count.ACK_BEYOND_SENT] += 1
            return []
        if seqno == self.window.high and self._noticed_at is not None:
            self._round_trip.sample(now - self._noticed_at)
            self._noticed_at = None
        before, after = self.acks.ack(member, seqno)
        return self._purge(now, is_paused=is_paused) if after > before else []

    def retain(self, members: Iterable[Address], joined_at: int, now: int, *, is_paused: bool) -> list[Effect]:
        """A new view: the acks of former members no longer count; joiners have acked up to `joined_at`."""
        self.acks.retain(members, max(joined_at, self.window.low))
        return self._purge(now, is_paused=is_paused)

    def freeze(self) -> DigestEntry:
        """Send nothing new in this view; waiting messages are sent in the next one."""
        self._is_frozen = True
        return DigestEntry(self.window.low, self.window.delivered, self.window.high)

    def thaw(self, now: int, *, is_paused: bool) -> list[Effect]:
        self._is_frozen = False
        return self.pump(now, is_paused=is_paused)

    def deliver_rest(self) -> list[Effect]:
        """The end of the old view: every survivor has all frames of the own stream."""
        effects = self._deliver_own()
        self.restart_acks((self._local,))
        return effects

    def restart_acks(self, members: Iterable[Address]) -> None:
        """All members have everything that was sent, so nothing is kept for repair.

        No message spans two views, because joiners would miss its beginning: a message sent in part starts over.
        """
        self._backlog.rewind()
        self.window.advance(self.window.high)
        self.acks = AckTable(dict.fromkeys(members, self.window.high))

    def fail(self, error: Exception) -> list[Effect]:
        """Fail waiting messages. They have no seqnos yet, so this leaves no gap."""
        self._backlog.clear()
        first, last = self.admitted + 1, self.accepted
        self.accepted = self.admitted
        return [SendFailed(Channel.MULTICAST, None, first, last, error)] if first <= last else []

    def tick(self, now: int) -> list[Effect]:
        if self.due is None or now < self.due:
            return []
        if self.window.low == self.window.high:
            self.due = None
            if self._announced >= self.window.low:
                return []
        else:
            self._attempt += 1
            self._noticed_at = now if self._attempt == 1 else None
            self.due = now + self._round_trip.backed_off(self._attempt)
        self._announced = self.window.low
        self._counters[Count.LAST_SEQNO_ANNOUNCED] += 1
        return [Broadcast(Highest(self.window.high, self.window.low, self.view))]

    def repaired(self) -> None:
        """A frame was resent, so an ack may answer the repair and is no RTT sample (Karn's rule)."""
        self._noticed_at = None

    def frame(self, seqno: int) -> MulticastData | None:
        body = self.window[seqno]
        return None if body is None else MulticastData(self._local.incarnation, seqno, self.window.low, body, self.view)

    def _fill(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        while not self._is_full and not self._is_frozen and (body := self._next_body(now)) is not None:
            seqno = self.window.append(body)
            self._budget.earn(len(body))
            effects.append(Broadcast(MulticastData(self._local.incarnation, seqno, self.window.low, body, self.view)))
            self._counters[Count.FRAME_SENT] += 1
        if effects:
            self._announced = self.window.low
            self._restart_tail_timer(now)
        return effects

    def _next_body(self, now: int) -> bytes | None:
        self._is_piggyback_turn = not self._is_piggyback_turn
        if self.piggyback is None:
            return self._own_body()
        if self._is_piggyback_turn or not self._backlog:
            return self.piggyback.next_body(now) or self._own_body()
        body = self._own_body()
        return self.piggyback.attach(body, now) if body is not None else None

    def _own_body(self) -> bytes | None:
        if not self._backlog:
            return None
        body, completed = self._backlog.take()
        self.admitted += completed
        return body

    def _deliver_own(self) -> list[Effect]:
        bodies = self.window.take()
        if not bodies:
            return []
        self.acks.ack(self._local, self.window.delivered)
        self.window.purge(self.acks.minimum)
        self._counters[Count.FRAME_DELIVERED] += len(bodies)
        return [Deliver(Channel.MULTICAST, self._local, self.window.delivered - len(bodies) + 1, bodies)]

    def _purge(self, now: int, *, is_paused: bool) -> list[Effect]:
        self.window.purge(self.acks.minimum)
        self._restart_tail_timer(now)
        return self.pump(now, is_paused=is_paused)

    def _restart_tail_timer(self, now: int) -> None:
        self._attempt = 0
        self._noticed_at = None
        if self.window.low < self.window.high or self._announced < self.window.low:
            self.due = now + self._round_trip.timeout_ns
        else:
            self.due = None
