"""What can be set about reliable unicast, and why each default is what it is."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.checks import require_between
from motet.core.units import MILLISECOND, SECOND
from motet.wire.body import MIN_BODY_BYTES
from motet.wire.codec import MAX_DATAGRAM_BYTES


@dataclass(frozen=True, slots=True)
class UnicastConfig:
    capacity: int = 256  # frames in flight per peer; times body_bytes it bounds the memory of a connection
    body_bytes: int = 60_000  # the largest body; a datagram on loopback holds 65 507 bytes with its headers
    backlog_bytes: int = 32 << 20  # accepted but waiting for space, per peer; beyond it `send` refuses
    ack_min_ns: int = 5 * MILLISECOND  # no two acks closer than this, unless a quarter of the window was delivered
    ack_max_ns: int = 20 * MILLISECOND  # no ack waits longer; a sender allows its peer that much before it resends
    xmit_interval_ns: int = 500 * MILLISECOND  # the slowest pace of the retransmission task, when nothing moves
    initial_rtt_ns: int = 10 * MILLISECOND  # believed until the first measurement
    min_repair_ns: int = 2 * MILLISECOND  # the fastest pace of repair: twice a scheduling quantum, not a busy loop
    repair_burst: int = 128  # frames asked for in one look: half a window, so that repair does not overflow a socket
    request_limit: int = 64  # frames asked for in one request
    conn_expiry_ns: int = 60 * SECOND  # idle this long: OPEN becomes CLOSING; 0 never reaps
    conn_close_ns: int = 30 * SECOND  # CLOSING this long and flushed: CLOSED and removed
    give_up_ns: int = 60 * SECOND  # unacked and the peer silent this long: removed, and the sender is told
    sync_timeout_ns: int = 5 * SECOND  # SYNC, SYNC-OK and SYNC-ACK are resent no longer than this
    max_peers: int = 1_024  # connections in each direction; a peer beyond it is refused
    remembered_peers: int = 1_024  # closed receive windows whose end we remember, so that nothing comes twice

    def __post_init__(self) -> None:
        require_between("capacity", self.capacity, 1, 1 << 20)
        require_between("body_bytes", self.body_bytes, MIN_BODY_BYTES, MAX_DATAGRAM_BYTES)
        require_between("backlog_bytes", self.backlog_bytes, 1, 1 << 40)
        require_between("ack_min_ns", self.ack_min_ns, 0, 10 * SECOND)
        require_between("ack_max_ns", self.ack_max_ns, self.ack_min_ns, 60 * SECOND)
        require_between("xmit_interval_ns", self.xmit_interval_ns, MILLISECOND, 60 * SECOND)
        require_between("min_repair_ns", self.min_repair_ns, 1, self.xmit_interval_ns)
        require_between("initial_rtt_ns", self.initial_rtt_ns, 1, 60 * SECOND)
        require_between("repair_burst", self.repair_burst, 1, 1 << 20)
        require_between("request_limit", self.request_limit, 1, 512)
        require_between("conn_expiry_ns", self.conn_expiry_ns, 0, 1 << 62)
        require_between("conn_close_ns", self.conn_close_ns, 0, 1 << 62)
        require_between("give_up_ns", self.give_up_ns, self.xmit_interval_ns, 1 << 62)
        require_between("sync_timeout_ns", self.sync_timeout_ns, self.min_repair_ns, 1 << 62)
        require_between("max_peers", self.max_peers, 1, 1 << 20)
        require_between("remembered_peers", self.remembered_peers, 0, 1 << 20)

    @property
    def request_spans(self) -> int:
        """So many spans, of 16 bytes each, go into one request: it must not be larger than a datagram of data."""
        return min(self.request_limit, self.body_bytes // 16)

    @property
    def ack_threshold(self) -> int:
        """So many deliveries are acked at once: a quarter of the window, so no fast sender waits for a timer."""
        return max(1, self.capacity // 4)
