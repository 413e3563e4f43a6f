"""The settings of reliable unicast beyond those that all channels share, with the reason for each default."""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.checks import require_between
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.window.config import ChannelConfig


@dataclass(frozen=True, slots=True)
class UnicastConfig(ChannelConfig):
    ack_min_ns: int = 5 * MILLISECOND  # Shortest interval of acks, unless a quarter of the window was delivered.
    ack_max_ns: int = 20 * MILLISECOND  # Longest delay of an ack; a sender waits that much longer before it resends.
    conn_expiry_ns: int = 60 * SECOND  # A connection idle for this long changes from OPEN to CLOSING; 0 disables it.
    conn_close_ns: int = 30 * SECOND  # A flushed connection is removed after it was CLOSING for this long.
    give_up_ns: int = 60 * SECOND  # With messages unacked and a silent peer for this long, sending fails.
    sync_timeout_ns: int = 5 * SECOND  # SYNC, SYNC-OK and SYNC-ACK are resent for at most this long.
    max_peers: int = 1_024  # Connections in each direction; further peers are refused.
    remembered_peers: int = (
        1_024  # Closed receive windows whose last seqno is kept, so that nothing is delivered twice.
    )

    def __post_init__(self) -> None:
        ChannelConfig.__post_init__(self)
        require_between("ack_min_ns", self.ack_min_ns, 0, 10 * SECOND)
        require_between("ack_max_ns", self.ack_max_ns, self.ack_min_ns, 60 * SECOND)
        require_between("conn_expiry_ns", self.conn_expiry_ns, 0, 1 << 62)
        require_between("conn_close_ns", self.conn_close_ns, 0, 1 << 62)
        require_between("give_up_ns", self.give_up_ns, self.xmit_interval_ns, 1 << 62)
        require_between("sync_timeout_ns", self.sync_timeout_ns, self.min_repair_ns, 1 << 62)
        require_between("max_peers", self.max_peers, 1, 1 << 20)
        require_between("remembered_peers", self.remembered_peers, 0, 1 << 20)
