"""The settings of reliable multicast beyond those that all channels share."""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.checks import require_between
from motet.protocol.window.config import ChannelConfig

FRAME_COST = 4_096  # Overhead of a datagram in a socket buffer: the kernel charges whole pages and its metadata.
LEAST_SHARE = 8  # Frames; with fewer in flight, a sender would wait for every single ack.


@dataclass(frozen=True, slots=True)
class MulticastConfig(ChannelConfig):
    """Delivered frames are acked after `ack_threshold` of them, or after `xmit_interval_ns`."""

    early_frames: int = 512  # Frames of later views that are buffered until the view is installed, over all senders.
    receive_bytes: int = 0  # The receive buffer of a socket, which all senders of a view share. 0: unknown, no limit.

    def __post_init__(self) -> None:
        ChannelConfig.__post_init__(self)
        require_between("early_frames", self.early_frames, 0, 1 << 20)
        require_between("receive_bytes", self.receive_bytes, 0, 1 << 40)

    def share(self, members: int) -> int:
        """The frames that one member may have in flight, so that all of them together overflow no socket buffer."""
        if not self.receive_bytes:
            return self.capacity
        space = self.receive_bytes * 3 // 4  # A quarter stays free for acks, repairs and control frames.
        frames = space // ((self.body_bytes + FRAME_COST) * max(1, members - 1))
        return min(self.capacity, max(LEAST_SHARE, frames))
