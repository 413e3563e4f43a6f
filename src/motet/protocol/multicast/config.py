"""What can be set about reliable multicast beyond what all channels share."""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.checks import require_between
from motet.protocol.window.config import ChannelConfig

FRAME_COST = 4_096  # of a datagram in a socket, beside its bytes: the system counts whole pages and its own notes
LEAST_SHARE = 8  # frames; with fewer a sender would wait for every single ack


@dataclass(frozen=True, slots=True)
class MulticastConfig(ChannelConfig):
    """Delivered frames are acked after `ack_threshold` of them, or after `xmit_interval_ns`."""

    early_frames: int = 512  # frames kept of senders that are not in the view yet, over all of them
    receive_bytes: int = 0  # what a receiver's socket holds; all senders of a view share it. 0: no limit is known

    def __post_init__(self) -> None:
        ChannelConfig.__post_init__(self)
        require_between("early_frames", self.early_frames, 0, 1 << 20)
        require_between("receive_bytes", self.receive_bytes, 0, 1 << 40)

    def share(self, members: int) -> int:
        """How many frames one member may have under way, so that all of them at once overflow no socket."""
        if not self.receive_bytes:
            return self.capacity
        room = self.receive_bytes * 3 // 4  # the rest is for acks, repairs and whatever else comes
        frames = room // ((self.body_bytes + FRAME_COST) * max(1, members - 1))
        return min(self.capacity, max(LEAST_SHARE, frames))
