"""Reliable unicast: the connections of one member to and from all its peers.

Connection ids are serial numbers drawn from one counter. Seqnos of a member never restart: a new connection begins
above everything that an earlier one used, so that a seqno identifies the same body over all connections.
docs/design/unicast.md has the state table.

Invariants: at most `max_peers` connections in each direction and as many pending SYNCs; at most `remembered_peers`
closed windows are remembered; a pending SYNC buffers at most one window of frames. A SYNC that the application
requested ends with exactly one `SyncCompleted` or `SyncFailed`, within `sync_timeout_ns` after the last request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.errors import (
    BacklogFullError,
    MisuseError,
    PeerUnreachableError,
    SyncError,
    TooManyPeersError,
)
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect, Frame, SyncCompleted, SyncFailed, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.serial import is_newer, next_serial
from motet.protocol.core.timers import earlier
from motet.protocol.core.units import format_ns
from motet.protocol.unicast.config import UnicastConfig
from motet.protocol.unicast.receiver import ReceiveConnection
from motet.protocol.unicast.sender import ConnectionState, SendConnection
from motet.protocol.wire.backlog import require_small
from motet.protocol.wire.body import UNCOUNTED, Port
from motet.protocol.wire.frames import (
    Close,
    Sync,
    SyncAck,
    SyncOk,
    UnicastAck,
    UnicastData,
    UnicastPurged,
    UnicastXmitRequest,
)

FRAMES = (UnicastData, UnicastAck, UnicastXmitRequest, UnicastPurged, Close, Sync, SyncOk, SyncAck)
_TYPES = frozenset(FRAMES)


@dataclass(slots=True)
class PendingSync:
    """The receiver's side of a SYNC that is not answered yet."""

    sync_id: int
    seen: int  # The newest connection id of the peer for which there is no window.
    until: int
    due: int
    attempt: int = 0
    is_asked: bool = False  # Requested by the application, which is notified of the outcome.
    buffered: dict[int, UnicastData] = field(default_factory=dict)  # By seqno, until there is a window for them.


class Unicast:
    def __init__(self, local: Address, config: UnicastConfig, counters: Counters, first_conn_id: int) -> None:
        self._local = local
        self._config = config
        self._counters = counters
        self._last_conn_id = first_conn_id
        self._highest_used = 0  # The highest seqno that a closed connection used.
        self._senders: dict[Address, SendConnection] = {}
        self._receivers: dict[Address, ReceiveConnection] = {}
        self._syncs: dict[Address, PendingSync] = {}
        self._remembered: OrderedDict[Address, tuple[int, int]] = (
            OrderedDict()
        )  # (conn_id, delivered) of closed windows
        self._is_paused = False
        self._due: int | None = None  # The next deadline or an earlier time, never a later one.
        self._is_due_known = False
        self._sync_pace = config.round_trip()

    # What the application asks for

    def send(self, to: Address, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        """Accept messages for `to`; they are sent as the window allows, in order. All are accepted, or none."""
        if not messages:
            return []
        connection = self._senders.get(to)
        if connection is None:
            if len(self._senders) >= self._config.max_peers:
                raise TooManyPeersError(f"{self._config.max_peers} connections are open; close some or raise max_peers")
            require_small(messages)
            connection = self._open_sender(to, now)
        if connection.waiting_bytes > self._config.backlog_bytes and port not in UNCOUNTED:
            raise BacklogFullError(
                f"{connection.waiting_bytes} bytes wait for {to} already; wait for Admitted before sending more"
            )
        effects = connection.send(messages, now, port)
        self._due = earlier(self._due, connection.next_deadline())
        return effects

    def sync(self, peer: Address, now: int) -> list[Effect]:
        """Resynchronize the receive window with the peer's send window, at an operator's request.

        `SyncCompleted` or `SyncFailed` reports the outcome. A call while a SYNC is pending joins it and renews its
        timeout.
        """
        connection, pending = self._receivers.get(peer), self._syncs.get(peer)
        if pending is None:
            if connection is None:
                raise self._nothing_to_sync(peer)
            pending = self._pend_sync(peer, connection.conn_id, now)
        pending.is_asked, pending.until = True, now + self._config.sync_timeout_ns
        return self._send_sync(peer, pending, now)

    def _nothing_to_sync(self, peer: Address) -> MisuseError:
        if peer == self._local:
            return MisuseError(
                f"{peer} is this member itself, and it has sent itself nothing by unicast; sync is for the connection "
                "with another member, so name one of the others"
            )
        return MisuseError(
            f"nothing was received from {peer} by unicast (send, call), so there is no receive window to synchronize "
            "and no message is missing; multicasts repair themselves and need no sync. "
            f"Try again once {peer.name} has sent to this member"
        )

    def close(self, peer: Address, now: int) -> list[Effect]:
        """Begin to close both directions. Unacked messages are flushed first, and new traffic reopens them."""
        self._is_due_known = False
        if peer in self._senders:
            self._senders[peer].close(now)
        if peer in self._receivers:
            self._receivers[peer].close(now)
        return []

    def close_receiver(self, peer: Address, now: int, *, remember: bool = True) -> list[Effect]:
        """Drop the receive window, as a member does whose view excludes `peer`.

        With `remember`, its last seqno is kept, so that nothing is delivered twice.
        """
        self._is_due_known = False
        effects = self._fail_sync(peer, f"the receive window for {peer} was closed before it answered SYNC; try again")
        connection = self._receivers.pop(peer, None)
        if connection is None:
            return effects
        if remember:
            self._remember(connection)
        return effects + connection.final_ack(now)

    def remove(self, peer: Address, now: int) -> list[Effect]:
        """The peer has left: fail the messages and the SYNC that wait for it."""
        effects = self._fail_sync(peer, f"{peer} left the view before it answered SYNC; check whether it is running")
        effects += self.close_receiver(peer, now)
        if peer in self._senders:
            effects += self._fail(peer, PeerUnreachableError(f"{peer} left before it had acknowledged all messages"))
        return effects

    def pause(self) -> None:
        """Deliver nothing until `resume`: the windows fill up, which applies back-pressure to the senders."""
        self._is_paused = True

    def resume(self, now: int) -> list[Effect]:
        self._is_paused = self._is_due_known = False
        return self._settle(list(self._receivers.values()), now)

    # Frames from the network

    def receive(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        """One batch of frames of one peer. A connection's first message is handled before those that overtook it."""
        for frame in frames:
            if type(frame) not in _TYPES:
                raise MisuseError(f"{type(frame).__name__} is not a frame of reliable unicast")
        sender = self._senders.get(source)
        if sender is not None:
            sender.note_activity(now)
        effects: list[Effect] = []
        for frame in sorted(frames, key=_first_first) if len(frames) > 1 else frames:
            if type(frame) is UnicastData:
                self._on_data(source, frame, now)
            else:
                effects += self._handle(source, frame, now)
        receiver = self._receivers.get(source)
        if receiver is not None:
            effects += receiver.settle(now, is_paused=self._is_paused)
            self._due = earlier(self._due, receiver.next_deadline())
        if sender is not None:
            self._due = earlier(self._due, sender.next_deadline())
        return effects

    def tick(self, now: int) -> list[Effect]:
        self._is_due_known = False
        effects: list[Effect] = []
        for peer in list(self._senders):
            effects += self._tick_sender(peer, now)
        for peer in list(self._receivers):
            effects += self._tick_receiver(peer, now)
        for peer in list(self._syncs):
            effects += self._tick_sync(peer, now)
        return effects

    def next_deadline(self) -> int | None:
        if not self._is_due_known:
            self._due, self._is_due_known = self._reckon_deadline(), True
        return self._due

    def _reckon_deadline(self) -> int | None:
        due: int | None = None
        for sender in self._senders.values():
            due = earlier(due, sender.next_deadline())
        for receiver in self._receivers.values():
            due = earlier(due, receiver.next_deadline())
        for pending in self._syncs.values():
            due = earlier(due, pending.due)
        return due

    # Queries

    def accepted(self, to: Address) -> int:
        """How many messages were accepted for `to` on the current connection."""
        return self._senders[to].accepted if to in self._senders else 0

    def sender(self, peer: Address) -> SendConnection | None:
        return self._senders.get(peer)

    def receiver(self, peer: Address) -> ReceiveConnection | None:
        return self._receivers.get(peer)

    def is_syncing(self, peer: Address) -> bool:
        return peer in self._syncs

    @property
    def buffered_frames(self) -> int:
        """The frames in memory, bounded by 2 * max_peers * capacity plus one window per pending SYNC."""
        return (
            sum(connection.window.occupied for connection in self._senders.values())
            + sum(connection.window.occupied for connection in self._receivers.values())
            + sum(len(pending.buffered) for pending in self._syncs.values())
        )

    # Frames

    def _handle(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        match frame:
            case Sync():
                return self._on_sync(source, frame, now)
            case SyncOk():
                return self._on_sync_ok(source, frame, now)
            case Close():
                return self._on_close(source, frame)
            case UnicastPurged():
                return self._on_purged(source, frame, now)
        connection = self._senders.get(source)
        if connection is None:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        match frame:
            case UnicastAck():
                return connection.ack(frame.conn_id, frame.seqno, now)
            case UnicastXmitRequest():
                return connection.resend(frame.conn_id, frame.ranges, now)
            case SyncAck():
                return connection.sync_ack(frame.conn_id, now)
        raise AssertionError(f"{type(frame).__name__} is in FRAMES and has no handler")

    def _on_data(self, source: Address, frame: UnicastData, now: int) -> None:
        connection = self._receivers.get(source)
        if connection is not None and frame.conn_id == connection.conn_id:
            connection.data(frame, now)
        elif self._is_stale(source, frame.conn_id):
            self._counters[Count.FRAME_OF_OLD_CONNECTION] += 1
        elif frame.first:
            self._open_receiver(source, frame.conn_id, frame.seqno - 1, now)
            if source in self._receivers:
                self._receivers[source].data(frame, now)
                self._continue_sync(source, frame.conn_id, self._insert_buffered(source, now))
        else:
            self._buffer_for_sync(source, frame, now)

    def _is_stale(self, source: Address, conn_id: int) -> bool:
        connection = self._receivers.get(source)
        if connection is not None:
            return not is_newer(conn_id, connection.conn_id)
        known = self._remembered.get(source)
        return known is not None and is_newer(known[0], conn_id)

    def _buffer_for_sync(self, source: Address, frame: UnicastData, now: int) -> None:
        """Buffer a message of an unknown connection: its first message is late or lost, or the window was dropped."""
        if not self._has_space_for(source):
            self._counters[Count.CONNECTION_REFUSED] += 1
            return
        pending = self._pend_sync(source, frame.conn_id, now)
        if is_newer(frame.conn_id, pending.seen):
            pending.seen = frame.conn_id
        if len(pending.buffered) < self._config.capacity:
            pending.buffered[frame.seqno] = frame

    def _on_sync(self, source: Address, frame: Sync, now: int) -> list[Effect]:
        connection = self._senders.get(source)
        if connection is None:
            return [Transmit(source, Close(frame.conn_id))]  # Without a sender nothing will follow on that connection.
        return connection.sync(frame.conn_id, frame.sync_id, self._next_conn_id(), now)

    def _on_sync_ok(self, source: Address, frame: SyncOk, now: int) -> list[Effect]:
        connection, pending = self._receivers.get(source), self._syncs.get(source)
        if pending is None or pending.sync_id != frame.sync_id:
            if connection is not None and connection.conn_id == frame.conn_id:
                return [Transmit(source, SyncAck(frame.conn_id))]  # The first SYNC-ACK was lost.
            self._counters[Count.FRAME_MISPLACED] += 1  # It answers a SYNC that is no longer pending.
            return []
        if connection is None:
            self._open_receiver(source, frame.conn_id, frame.low, now)
        elif is_newer(connection.conn_id, frame.conn_id):
            self._counters[Count.FRAME_OF_OLD_CONNECTION] += 1  # A later connection was opened since it was sent.
            return []
        else:
            connection.rename(frame.conn_id, frame.low)
        self._insert_buffered(source, now)
        completed = [SyncCompleted(source, frame.conn_id, frame.low)] if pending.is_asked else []
        return [Transmit(source, SyncAck(frame.conn_id)), *completed]

    def _on_purged(self, source: Address, frame: UnicastPurged, now: int) -> list[Effect]:
        """The requested frames were acked earlier, so the window was reopened too low. Resynchronize it by SYNC."""
        connection = self._receivers.get(source)
        if connection is None or connection.conn_id != frame.conn_id or connection.window.delivered >= frame.low:
            return []
        if source in self._syncs:
            return []
        return self._send_sync(source, self._pend_sync(source, connection.conn_id, now), now)

    def _on_close(self, source: Address, frame: Close) -> list[Effect]:
        effects: list[Effect] = []
        if source in self._syncs and self._syncs[source].seen == frame.conn_id:
            reason = "has closed its connection to this member, so there is nothing to sync; its next message opens one"
            effects = self._fail_sync(source, f"{source} {reason}")
        connection = self._receivers.get(source)
        if connection is not None and connection.conn_id == frame.conn_id:
            connection.state = ConnectionState.CLOSED
            self._remember(self._receivers.pop(source))
        return effects

    # Connections

    def _next_conn_id(self) -> int:
        self._last_conn_id = next_serial(self._last_conn_id)
        return self._last_conn_id

    def _open_sender(self, to: Address, now: int) -> SendConnection:
        connection = SendConnection(to, self._next_conn_id(), self._highest_used, self._config, self._counters, now)
        self._senders[to] = connection
        return connection

    def _drop_sender(self, peer: Address) -> None:
        self._highest_used = max(self._highest_used, self._senders.pop(peer).window.high)

    def _fail(self, peer: Address, error: Exception) -> list[Effect]:
        effects = self._senders[peer].fail(error)
        self._drop_sender(peer)
        return effects

    def _open_receiver(self, source: Address, conn_id: int, low: int, now: int) -> None:
        """Open a receive window, never below what an earlier one has delivered."""
        if not self._has_space_for(source):
            self._counters[Count.CONNECTION_REFUSED] += 1
            return
        _, delivered = self._remembered.pop(source, (0, 0))
        if source in self._receivers:
            delivered = self._receivers[source].window.delivered
        low = max(low, delivered)
        self._receivers[source] = ReceiveConnection(source, conn_id, low, self._config, self._counters, now)

    def _has_space_for(self, source: Address) -> bool:
        """Whether the bound on peers admits `source`; a peer with a window or a pending SYNC is counted already."""
        peers = self._receivers.keys() | self._syncs.keys()
        return source in peers or len(peers) < self._config.max_peers

    def _insert_buffered(self, source: Address, now: int) -> PendingSync | None:
        """End the pending SYNC of a peer whose window is open now; insert its frames and return it."""
        pending = self._syncs.pop(source, None)
        if pending is not None and source in self._receivers:
            for frame in pending.buffered.values():
                self._receivers[source].data(frame, now)
            pending.buffered.clear()
        return pending

    def _continue_sync(self, source: Address, conn_id: int, pending: PendingSync | None) -> None:
        """A first message makes a SYNC unnecessary, but one that the application requested runs to its SYNC-ACK."""
        if pending is not None and pending.is_asked:
            pending.seen = conn_id
            self._syncs[source] = pending

    def _remember(self, connection: ReceiveConnection) -> None:
        self._remembered[connection.peer] = (connection.conn_id, connection.window.delivered)
        self._remembered.move_to_end(connection.peer)
        while len(self._remembered) > self._config.remembered_peers:
            self._remembered.popitem(last=False)

    def _settle(self, connections: Sequence[ReceiveConnection], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for connection in connections:
            effects += connection.settle(now, is_paused=self._is_paused)
        return effects

    # The retransmission task

    def _tick_sender(self, peer: Address, now: int) -> list[Effect]:
        connection = self._senders[peer]
        effects = connection.tick(now)
        if connection.is_given_up(now):
            self._counters[Count.CONNECTION_GIVEN_UP] += 1
            silence = format_ns(self._config.give_up_ns)
            effects += self._fail(
                peer, PeerUnreachableError(f"{peer} was silent for {silence}; is it up, and reachable?")
            )
        elif connection.state is ConnectionState.CLOSED:
            self._drop_sender(peer)
        return effects

    def _tick_receiver(self, peer: Address, now: int) -> list[Effect]:
        connection = self._receivers[peer]
        effects = connection.tick(now)
        if connection.state is ConnectionState.CLOSED:
            self._remember(self._receivers.pop(peer))
        return effects

    def _pend_sync(self, peer: Address, seen: int, now: int) -> PendingSync:
        pending = self._syncs.get(peer)
        if pending is None:
            due = now + self._sync_pace.timeout_ns  # Wait first: the connection's first message may merely be late.
            until = now + self._config.sync_timeout_ns
            pending = self._syncs[peer] = PendingSync(self._next_conn_id(), seen, until, due)
            self._due = earlier(self._due, due)
        return pending

    def _tick_sync(self, peer: Address, now: int) -> list[Effect]:
        pending = self._syncs[peer]
        if now >= pending.until:  # The next message of the peer starts another SYNC.
            within = format_ns(self._config.sync_timeout_ns)
            return self._fail_sync(
                peer, f"{peer} did not answer SYNC within {within}; check that it is up and reachable, then try again"
            )
        return self._send_sync(peer, pending, now) if now >= pending.due else []

    def _fail_sync(self, peer: Address, reason: str) -> list[Effect]:
        pending = self._syncs.pop(peer, None)
        return [SyncFailed(peer, SyncError(reason))] if pending is not None and pending.is_asked else []

    def _send_sync(self, peer: Address, pending: PendingSync, now: int) -> list[Effect]:
        self._is_due_known = False
        pending.due = min(now + self._sync_pace.backed_off(pending.attempt), pending.until)
        pending.attempt += 1
        self._counters[Count.SYNC_SENT] += 1
        return [Transmit(peer, Sync(pending.seen, pending.sync_id))]

    def _check(self) -> None:
        if self._is_due_known:
            due = self._reckon_deadline()
            assert due is None or (self._due is not None and self._due <= due), "the cached deadline is too late"
        assert len(self._senders) <= self._config.max_peers
        assert len(self._receivers) <= self._config.max_peers
        assert len(self._remembered) <= self._config.remembered_peers
        for sender in self._senders.values():
            sender.window._check()
            assert sender.confirmed <= sender.admitted <= sender.accepted
        for receiver in self._receivers.values():
            receiver.window._check()


def _first_first(frame: Frame) -> bool:
    return not (isinstance(frame, UnicastData) and frame.first)
