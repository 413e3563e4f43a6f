"""What can be set about reliable unicast beyond what all channels share, and why each default is what it is."""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.checks import require_between
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.window.config import ChannelConfig


@dataclass(frozen=True, slots=True)
class UnicastConfig(ChannelConfig):
    ack_min_ns: int = 5 * MILLISECOND  # no two acks closer than this, unless a quarter of the window was delivered
    ack_max_ns: int = 20 * MILLISECOND  # no ack waits longer; a sender allows its peer that much before it resends
    conn_expiry_ns: int = 60 * SECOND  # idle this long: OPEN becomes CLOSING; 0 never reaps
    conn_close_ns: int = 30 * SECOND  # CLOSING this long and flushed: CLOSED and removed
    give_up_ns: int = 60 * SECOND  # unacked and the peer silent this long: removed, and the sender is told
    sync_timeout_ns: int = 5 * SECOND  # SYNC, SYNC-OK and SYNC-ACK are resent no longer than this
    max_peers: int = 1_024  # connections in each direction; a peer beyond it is refused
    remembered_peers: int = 1_024  # closed receive windows whose end we remember, so that nothing comes twice

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
