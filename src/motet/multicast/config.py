"""What can be set about reliable multicast beyond what all channels share."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.checks import require_between
from motet.window.config import ChannelConfig


@dataclass(frozen=True, slots=True)
class MulticastConfig(ChannelConfig):
    """Delivered frames are acked after `ack_threshold` of them, or after `xmit_interval_ns`."""

    early_frames: int = 512  # frames kept of senders that are not in the view yet, over all of them

    def __post_init__(self) -> None:
        ChannelConfig.__post_init__(self)
        require_between("early_frames", self.early_frames, 0, 1 << 20)
