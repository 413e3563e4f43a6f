"""Reliable unicast, sending half of a connection: number bodies, buffer them until acked, resend the last on a stall.

The JGroups note UNICAST3 calls `window.low` HA (highest acked) and `window.high` HS (highest sent).

Invariants: confirmed <= admitted <= accepted (message numbers); window.low <= window.high <= window.low + capacity;
while `is_syncing`, no ack purges anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Admitted, Channel, Effect, SendFailed, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.record import record
from motet.protocol.core.serial import is_newer
from motet.protocol.core.timers import Timers
from motet.protocol.unicast.config import UnicastConfig
from motet.protocol.window.budget import RepairBudget
from motet.protocol.window.ranges import Ranges, limited
from motet.protocol.window.ring import RingWindow
from motet.protocol.wire.backlog import Backlog
from motet.protocol.wire.body import SINGLE_OVERHEAD, UNCOUNTED, Port, pack
from motet.protocol.wire.frames import Close, SyncOk, UnicastData, UnicastPurged


class ConnectionState(Enum):
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class SendTimer(Enum):
    STALL = "stall"  # The retransmission task of this connection.
    SYNC = "sync"
    REAP = "reap"

    # Every message looks up timers. Each is a single object; the default hash of an enum is Python code.
    __hash__ = object.__hash__


@record
class SentFrame:
    body: bytes
    through: int  # The number of the last message that this frame completes.


class SendConnection:
    def __init__(
        self, peer: Address, conn_id: int, base: int, config: UnicastConfig, counters: Counters, now: int
    ) -> None:
        self.peer = peer
        self.conn_id = conn_id
        self.state = ConnectionState.OPEN
        self.window: RingWindow[SentFrame] = RingWindow(config.capacity, base)
        self.accepted = self.admitted = self.confirmed = 0
        self._first = base + 1
        self._config = config
        self._counters = counters
        self._backlog = Backlog(config.body_bytes, packs=config.packs)
        self._largest = config.body_bytes - SINGLE_OVERHEAD  # The largest message that fits into one frame.
        self._round_trip = config.round_trip()
        self._budget: RepairBudget[Address] = RepairBudget(config.window_bytes, config.repair_bytes, config.repair_rate)
        self._timers: Timers[SendTimer] = Timers()
        self._seen = (0, 0)  # (HA, HS) at the last run of the retransmission task; unchanged means a stall.
        self._attempt = 0
        self._timed: tuple[int, int] | None = None  # (seqno, sent at) of the frame that measures the round trip.
        self._confirmed_id = conn_id  # The last connection id that the receiver is known to use.
        self._sync_id: int | None = None  # The id of the last SYNC answered; the receiver draws them as serials.
        self._sync_attempt = 0
        self._sync_until = 0
        self._used_at = now
        self._silent_since = now  # When the peer last sent anything, or first had something to acknowledge.
        if config.conn_expiry_ns:
            self._timers.arm(SendTimer.REAP, now + config.conn_expiry_ns)

    @property
    def is_flushed(self) -> bool:
        return self.window.low == self.window.high and not self._backlog.runs

    @property
    def is_syncing(self) -> bool:
        return self._timers.is_armed(SendTimer.SYNC)

    @property
    def waiting_bytes(self) -> int:
        return self._backlog.waiting_bytes

    def send(self, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        if self.is_flushed:
            self._silent_since = now
        if self.state is ConnectionState.CLOSING:
            self.state = ConnectionState.OPEN
        self._used_at = now
        # The reaper is not moved by every message: when it fires early, it sees `_used_at` and is armed again.
        if self._config.conn_expiry_ns:
            self._timers.arm_if_idle(SendTimer.REAP, now + self._config.conn_expiry_ns)
        self.accepted += 0 if port in UNCOUNTED else len(messages)
        if len(messages) == 1 and len(messages[0]) <= self._largest and not (self._backlog.runs or self.window.is_full):
            return self._send_now(messages, port, now)
        self._backlog.extend(messages, port)
        return self._pump(now)

    def ack(self, conn_id: int, seqno: int, now: int) -> list[Effect]:
        if conn_id != self.conn_id:
            self._counters[Count.ACK_OF_OLD_CONNECTION] += 1
            return []
        if self.is_syncing:
            self._counters[Count.ACK_DURING_SYNC] += 1
            return []
        self._confirmed_id = conn_id
        if seqno > self.window.high:
            self._counters[Count.ACK_BEYOND_SENT] += 1
            return []
        if seqno <= self.window.low:
            return []
        self._measure(seqno, now)
        newest = self.window[seqno]
        assert newest is not None, "a sender's window has every frame in (low, high]"
        self.confirmed = newest.through
        self.window.advance(seqno)
        self._used_at = now
        return self._pump(now)

    def body(self, seqno: int) -> bytes | None:
        """The body in the window under this number."""
        sent = self.window[seqno]
        return None if sent is None else sent.body

    def note_activity(self, now: int) -> None:
        """Any frame of the peer proves that it is alive."""
        self._silent_since = now

    def resend(self, conn_id: int, ranges: Ranges, now: int) -> list[Effect]:
        """Answer a retransmission request with the frames that are not acked.

        The peer asks again for frames that the repair budget does not allow.

        A late request may name acked frames, too, so UnicastPurged leaves it to the receiver whether it needs a SYNC.
        """
        if conn_id != self.conn_id:
            self._counters[Count.FRAME_OF_OLD_CONNECTION] += 1
            return []
        effects: list[Effect] = []
        if ranges[0][0] <= self.window.low:
            self._counters[Count.PURGED_ANSWERED] += 1
            effects.append(Transmit(self.peer, UnicastPurged(self.conn_id, self.window.low)))
        wanted = [
            seqno
            for first, last in limited(ranges, self._config.request_limit)
            for seqno in range(max(first, self.window.low + 1), min(last, self.window.high) + 1)
        ]
        left = self._config.repair_bytes
        for done, seqno in enumerate(wanted):
            size = len(self._frame(seqno).body)
            if left <= 0 or not self._budget.spend(self.peer, size, now):
                self._counters[Count.REPAIR_REFUSED] += len(wanted) - done
                break
            left -= size
            effects.append(self._retransmit(seqno))
        return effects

    def sync(self, seen: int, sync_id: int, fresh: int, now: int) -> list[Effect]:
        """The receiver has no window for connection `seen`: rename the connection to `fresh` and answer with its low.

        A repeated SYNC gets the same answer. A SYNC is late, and ignored, if it names neither the current connection
        nor the last one that the receiver confirmed, or if it was sent before the last one answered.
        """
        if not self.is_syncing or sync_id != self._sync_id:
            is_late = self._sync_id is not None and is_newer(self._sync_id, sync_id)
            if is_late or seen not in (self.conn_id, self._confirmed_id):
                self._counters[Count.FRAME_OF_OLD_CONNECTION] += 1
                return []
            self.conn_id = fresh
            self._sync_id = sync_id
            self._sync_attempt = 0
            self._sync_until = now + self._config.sync_timeout_ns
        return self._send_sync_ok(now)

    def sync_ack(self, conn_id: int, now: int) -> list[Effect]:
        if conn_id == self.conn_id and self.is_syncing:
            self._timers.cancel(SendTimer.SYNC)
            self._confirmed_id = conn_id
            self._attempt = 0
            self._watch_for_stall(now)
        return []

    def close(self, now: int) -> None:
        """Begin to close. Unacked messages are still flushed, and a new message reopens the connection."""
        self.state = ConnectionState.CLOSING
        self._used_at = now
        self._timers.arm(SendTimer.REAP, now + self._config.conn_close_ns)

    def fail(self, error: Exception) -> list[Effect]:
        """Close at once and report all accepted messages that are not acknowledged."""
        self.state = ConnectionState.CLOSED
        self._backlog.clear()
        effects: list[Effect] = [Transmit(self.peer, Close(self.conn_id))]
        if self.confirmed < self.accepted:
            effects.append(SendFailed(Channel.UNICAST, self.peer, self.confirmed + 1, self.accepted, error))
        return effects

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        for timer in self._timers.take_due(now):
            if timer is SendTimer.STALL:
                effects += self._run_retransmission(now)
            elif timer is SendTimer.SYNC and now < self._sync_until:
                effects += self._send_sync_ok(now)
            elif timer is SendTimer.REAP:
                effects += self._reap(now)
        return effects

    def next_deadline(self) -> int | None:
        return self._timers.next_deadline()

    def is_given_up(self, now: int) -> bool:
        return not self.is_flushed and now - self._silent_since >= self._config.give_up_ns

    def _pump(self, now: int) -> list[Effect]:
        """Move messages from the backlog into the window while there is space."""
        effects: list[Effect] = []
        admitted = self.admitted
        while self._backlog.runs and not self.window.is_full:
            effects.append(self._put(*self._backlog.take(), now))
        if self.admitted > admitted:
            effects.append(Admitted(Channel.UNICAST, self.peer, self.admitted))
        self._watch_for_stall(now)
        return effects

    def _put(self, body: bytes, completed: int, now: int) -> Transmit:
        self.admitted += completed
        seqno = self.window.append(SentFrame(body, self.admitted))
        self._budget.earn(len(body))
        self._timed = self._timed or (seqno, now)
        self._counters[Count.FRAME_SENT] += 1
        return Transmit(self.peer, UnicastData(self.conn_id, seqno == self._first, seqno, body))

    def _send_now(self, messages: Sequence[bytes], port: int, now: int) -> list[Effect]:
        """The hot path: a message that fits into a frame bypasses the empty backlog."""
        completed = 0 if port in UNCOUNTED else 1
        effects: list[Effect] = [self._put(pack(messages, port), completed, now)]
        if completed:
            effects.append(Admitted(Channel.UNICAST, self.peer, self.admitted))
        self._watch_for_stall(now)
        return effects

    def _watch_for_stall(self, now: int) -> None:
        if self.window.low == self.window.high:
            self._timers.cancel(SendTimer.STALL)
            self._attempt = 0
        elif not self._timers.is_armed(SendTimer.STALL):
            self._seen = (self.window.low, self.window.high)
            self._timers.arm(SendTimer.STALL, now + self._round_trip.timeout_ns + self._config.ack_max_ns)

    def _run_retransmission(self, now: int) -> list[Effect]:
        """Resend only the highest frame: from it the receiver sees what it misses, and requests exactly that."""
        effects: list[Effect] = []
        state = (self.window.low, self.window.high)
        if state == self._seen:
            effects.append(self._retransmit(self.window.high))
            self._attempt += 1
        else:
            self._attempt = 0
        self._seen = state
        self._timers.arm(SendTimer.STALL, now + self._round_trip.backed_off(self._attempt) + self._config.ack_max_ns)
        return effects

    def _retransmit(self, seqno: int) -> Transmit:
        self._counters[Count.FRAME_RESENT] += 1
        if self._timed is not None and self._timed[0] <= seqno:
            self._timed = None  # An ack could now answer either copy (Karn's rule), so measure another frame.
        return Transmit(self.peer, self._frame(seqno))

    def _frame(self, seqno: int) -> UnicastData:
        sent = self.window[seqno]
        assert sent is not None, f"{seqno} is not in {self.window}"
        return UnicastData(self.conn_id, seqno == self._first, seqno, sent.body)

    def _measure(self, seqno: int, now: int) -> None:
        if self._timed is not None and seqno >= self._timed[0]:
            self._round_trip.sample(now - self._timed[1])
            self._timed = None

    def _send_sync_ok(self, now: int) -> list[Effect]:
        self._timers.arm(SendTimer.SYNC, min(now + self._round_trip.backed_off(self._sync_attempt), self._sync_until))
        self._sync_attempt += 1
        assert self._sync_id is not None, "a SYNC-OK answers a SYNC"
        return [Transmit(self.peer, SyncOk(self.conn_id, self._sync_id, self.window.low))]

    def _reap(self, now: int) -> list[Effect]:
        if self.state is ConnectionState.OPEN:
            idle_until = self._used_at + self._config.conn_expiry_ns
            if now < idle_until:
                self._timers.arm(SendTimer.REAP, idle_until)
            elif self._config.conn_expiry_ns:
                self.close(now)
            return []
        if not self.is_flushed:
            self._timers.arm(SendTimer.REAP, now + self._config.xmit_interval_ns)
            return []
        self.state = ConnectionState.CLOSED
        return [Transmit(self.peer, Close(self.conn_id))]
