"""Reliable unicast, receiving half of one connection: reorder, deliver once, delay acks, request what is missing.

Invariants: every seqno up to window.delivered was delivered exactly once; no ack exceeds window.delivered.
"""

from __future__ import annotations

from enum import Enum

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Channel, Deliver, Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.timers import Timers, earlier
from motet.protocol.unicast.config import UnicastConfig
from motet.protocol.unicast.sender import ConnectionState
from motet.protocol.window.gaps import GapWatch
from motet.protocol.window.ranges import parts
from motet.protocol.window.ring import RingWindow
from motet.protocol.wire.frames import UnicastAck, UnicastData, UnicastXmitRequest


class ReceiveTimer(Enum):
    ACK = "ack"
    REAP = "reap"

    __hash__ = object.__hash__  # Each timer is a single object; the default hash of an enum is Python code.


class ReceiveConnection:
    def __init__(
        self, peer: Address, conn_id: int, low: int, config: UnicastConfig, counters: Counters, now: int
    ) -> None:
        self.peer = peer
        self.conn_id = conn_id
        self.state = ConnectionState.OPEN
        self.window: RingWindow[bytes] = RingWindow(config.capacity, low)
        self._config = config
        self._counters = counters
        round_trip = config.round_trip()
        self._gaps = GapWatch(self.window, round_trip, config.repair_burst)
        self._timers: Timers[ReceiveTimer] = Timers()
        self._acked_at: int | None = None
        self._since_ack = 0  # Frames delivered since the last ack.
        self._owes_ack = False
        self._used_at = now
        self._arm_reaper(now)

    def data(self, frame: UnicastData, now: int) -> None:
        """Insert one frame of this connection. Call `settle` after the last one of a batch."""
        self.state = ConnectionState.OPEN
        self._used_at = now
        if self.window.offer(frame.seqno, frame.body):
            return
        if frame.seqno > self.window.delivered and not self.window.fits(frame.seqno):
            self._gaps.claim(frame.seqno)
            self._counters[Count.FRAME_OUTSIDE_WINDOW] += 1
        else:
            self._counters[Count.FRAME_DUPLICATE] += 1
        self._owes_ack = True  # The sender repeats a frame only if it has not received the ack.

    def rename(self, conn_id: int, low: int) -> None:
        """SYNC-OK: continue under a new connection id. What the sender knows to be acked is not delivered again."""
        self.conn_id = conn_id
        self.state = ConnectionState.OPEN
        self.window.advance(low)
        self._owes_ack = True

    def settle(self, now: int, *, is_paused: bool) -> list[Effect]:
        """End a batch: deliver, then send one ack for all of it, now or within `ack_max_ns`."""
        effects = self._deliver() if not is_paused else []
        if self._since_ack or self._owes_ack:
            effects += self._ack_if_due(now)
        self._gaps.settle(now)
        return effects

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        for timer in self._timers.take_due(now):
            effects += self._send_ack(now) if timer is ReceiveTimer.ACK else self._reap(now)
        if self._gaps.due is not None and now - self._used_at >= self._config.give_up_ns:
            # A live sender would have resent its highest frame. Give up, so that requests for the gap end.
            self.state = ConnectionState.CLOSED
            return effects + self.final_ack(now)
        asked = self._gaps.poll(now)
        for part in parts(asked, self._config.request_limit, self._config.request_spans):
            self._counters[Count.REPAIR_ASKED] += 1
            effects.append(Transmit(self.peer, UnicastXmitRequest(self.conn_id, part)))
        return effects

    def next_deadline(self) -> int | None:
        return earlier(self._timers.next_deadline(), self._gaps.due)

    def close(self, now: int) -> None:
        self.state = ConnectionState.CLOSING
        self._used_at = now
        self._timers.arm(ReceiveTimer.REAP, now + self._config.conn_close_ns)

    def final_ack(self, now: int) -> list[Effect]:
        """The pending ack, if any, before the window is dropped."""
        return self._send_ack(now) if self._since_ack else []

    def _deliver(self) -> list[Effect]:
        bodies = self.window.take()
        if not bodies:
            return []
        first = self.window.delivered - len(bodies) + 1
        self.window.purge(self.window.delivered)
        self._since_ack += len(bodies)
        self._counters[Count.FRAME_DELIVERED] += len(bodies)
        return [Deliver(Channel.UNICAST, self.peer, first, bodies)]

    def _ack_if_due(self, now: int) -> list[Effect]:
        earliest = now if self._acked_at is None else self._acked_at + self._config.ack_min_ns
        if self._since_ack >= self._config.ack_threshold or earliest <= now:
            return self._send_ack(now)
        self._timers.arm_if_idle(ReceiveTimer.ACK, min(earliest, now + self._config.ack_max_ns))
        return []

    def _send_ack(self, now: int) -> list[Effect]:
        self._acked_at = now
        self._since_ack = 0
        self._owes_ack = False
        self._timers.cancel(ReceiveTimer.ACK)
        self._counters[Count.ACK_SENT] += 1
        return [Transmit(self.peer, UnicastAck(self.conn_id, self.window.delivered))]

    def _arm_reaper(self, now: int) -> None:
        if self._config.conn_expiry_ns:
            self._timers.arm(ReceiveTimer.REAP, now + self._config.conn_expiry_ns)

    def _reap(self, now: int) -> list[Effect]:
        wait = self._config.conn_expiry_ns if self.state is ConnectionState.OPEN else self._config.conn_close_ns
        idle_until = self._used_at + wait
        if now < idle_until:
            self._timers.arm(ReceiveTimer.REAP, idle_until)
        elif self.state is ConnectionState.CLOSING:
            self.state = ConnectionState.CLOSED
            return self.final_ack(now)
        elif self._config.conn_expiry_ns:
            self.close(now)
        return []
