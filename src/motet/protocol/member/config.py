"""One member's configuration: the size of a datagram, and the settings of each protocol."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from motet.errors import ConfigError
from motet.protocol.core.checks import require_between
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MIN_PACKET_BYTES
from motet.protocol.membership.config import MembershipConfig
from motet.protocol.multicast.config import MulticastConfig
from motet.protocol.ordering.config import OrderingConfig
from motet.protocol.snapshot.config import SnapshotConfig
from motet.protocol.unicast.config import UnicastConfig
from motet.protocol.wire.codec import CHUNK_OVERHEAD, DATA_OVERHEAD


@dataclass(frozen=True, slots=True)
class MemberConfig:
    frame_bytes: int = 60_000  # One datagram with its headers: large on loopback, the path MTU on a wide-area network.
    unicast: UnicastConfig = field(default_factory=UnicastConfig)
    multicast: MulticastConfig = field(default_factory=MulticastConfig)
    membership: MembershipConfig | None = None  # None: the caller installs views itself.
    ordering: OrderingConfig | None = None  # None: no total order. Total order needs membership.
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)
    # Of a segment of a larger datagram, with its header; 0: Motet never cuts datagrams into segments.
    packet_bytes: int = 1_400
    # Deliveries that a joiner buffers during state transfer; beyond it, back-pressure.
    state_buffer_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        require_between("frame_bytes", self.frame_bytes, 256, MAX_DATAGRAM_BYTES)
        if self.packet_bytes:
            require_between("packet_bytes", self.packet_bytes, MIN_PACKET_BYTES, MAX_DATAGRAM_BYTES)
        require_between("state_buffer_bytes", self.state_buffer_bytes, 0, 1 << 40)
        if self.ordering is not None and self.membership is None:
            raise ConfigError("total order needs membership: give the MemberConfig a MembershipConfig")

    @property
    def unicast_sized(self) -> UnicastConfig:
        """The unicast settings with bodies that fill a datagram of `frame_bytes`."""
        return replace(self.unicast, body_bytes=self.frame_bytes - DATA_OVERHEAD)

    @property
    def multicast_sized(self) -> MulticastConfig:
        """The multicast settings with bodies that leave space for piggybacked sequence numbers of the total order."""
        space = 0 if self.ordering is None else self.ordering_sized(self.ordering).piggyback_bytes
        return replace(self.multicast, body_bytes=self.frame_bytes - DATA_OVERHEAD - space)

    def ordering_sized(self, ordering: OrderingConfig) -> OrderingConfig:
        body_bytes = self.frame_bytes - DATA_OVERHEAD
        most_piggybacks = max(1, min(ordering.most_piggybacks, body_bytes // 100))
        return replace(ordering, body_bytes=body_bytes, most_piggybacks=most_piggybacks)

    def membership_sized(self, membership: MembershipConfig) -> MembershipConfig:
        """The settings of membership with chunks of state that fit a datagram."""
        transfer = membership.transfer
        chunk_bytes = min(transfer.chunk_bytes, self.frame_bytes - CHUNK_OVERHEAD)
        return replace(membership, transfer=replace(transfer, chunk_bytes=chunk_bytes))
