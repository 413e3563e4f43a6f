"""One member's configuration: the size of a datagram, and what each protocol wants to know."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from motet.errors import ConfigError
from motet.protocol.core.checks import require_between
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES
from motet.protocol.membership.config import MembershipConfig
from motet.protocol.multicast.config import MulticastConfig
from motet.protocol.ordering.config import OrderingConfig
from motet.protocol.snapshot.config import SnapshotConfig
from motet.protocol.unicast.config import UnicastConfig
from motet.protocol.wire.codec import CHUNK_OVERHEAD, DATA_OVERHEAD


@dataclass(frozen=True, slots=True)
class MemberConfig:
    frame_bytes: int = 60_000  # one datagram with its headers: large on loopback, MTU-sized on a wide-area network
    unicast: UnicastConfig = field(default_factory=UnicastConfig)
    multicast: MulticastConfig = field(default_factory=MulticastConfig)
    membership: MembershipConfig | None = None  # None: views are handed to the member
    ordering: OrderingConfig | None = None  # None: no total order; it needs membership
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)
    state_buffer_bytes: int = 64 << 20  # what a joiner keeps back while it gets the state; beyond it senders wait

    def __post_init__(self) -> None:
        require_between("frame_bytes", self.frame_bytes, 256, MAX_DATAGRAM_BYTES)
        require_between("state_buffer_bytes", self.state_buffer_bytes, 0, 1 << 40)
        if self.ordering is not None and self.membership is None:
            raise ConfigError("total order needs membership: give the MemberConfig a MembershipConfig")

    @property
    def unicast_sized(self) -> UnicastConfig:
        """The unicast settings with bodies that fill a datagram of `frame_bytes`."""
        return replace(self.unicast, body_bytes=self.frame_bytes - DATA_OVERHEAD)

    @property
    def multicast_sized(self) -> MulticastConfig:
        """Numbers of the total order ride on frames of the plain stream, too; they get their room."""
        room = 0 if self.ordering is None else self.ordering_sized(self.ordering).piggyback_bytes
        return replace(self.multicast, body_bytes=self.frame_bytes - DATA_OVERHEAD - room)

    def ordering_sized(self, ordering: OrderingConfig) -> OrderingConfig:
        body_bytes = self.frame_bytes - DATA_OVERHEAD
        most_piggybacks = max(1, min(ordering.most_piggybacks, body_bytes // 100))
        return replace(ordering, body_bytes=body_bytes, most_piggybacks=most_piggybacks)

    def membership_sized(self, membership: MembershipConfig) -> MembershipConfig:
        """The settings of membership with chunks of state that fit a datagram."""
        transfer = membership.transfer
        chunk_bytes = min(transfer.chunk_bytes, self.frame_bytes - CHUNK_OVERHEAD)
        return replace(membership, transfer=replace(transfer, chunk_bytes=chunk_bytes))
