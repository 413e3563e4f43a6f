"""The settings that both reliable channels share: windows and repair, with the reason for each default."""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.checks import require_between
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MIN_BODY_BYTES, RANGE_BYTES
from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.core.units import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    capacity: int = 256  # Frames in the window of a stream; times body_bytes it bounds the stream's memory.
    body_bytes: int = 60_000  # The largest body; a datagram on loopback holds 65 507 bytes with its headers.
    backlog_bytes: int = 32 << 20  # Accepted messages that wait for window space, per stream; beyond it `send` raises.
    xmit_interval_ns: int = 500 * MILLISECOND  # The longest interval between repair requests, after full back-off.
    initial_rtt_ns: int = 10 * MILLISECOND  # The round trip assumed before the first measurement.
    min_repair_ns: int = 2 * MILLISECOND  # The shortest repair interval: twice a scheduling quantum, not a busy loop.
    repair_burst: int = 128  # Frames requested in one poll: half a window, so that repairs do not overflow a socket.
    request_limit: int = 64  # Frames requested in one datagram.
    repair_bytes: int = 1 << 20  # Bytes resent for one request, and a peer's initial repair budget; see budget.py.
    repair_rate: int = 8 << 20  # Bytes a second that one peer may have resent while nothing new is sent.
    packs: bool = True  # Waiting messages share a frame; if False, each message gets its own frame.

    def __post_init__(self) -> None:
        require_between("capacity", self.capacity, 1, 1 << 20)
        require_between("body_bytes", self.body_bytes, MIN_BODY_BYTES, MAX_DATAGRAM_BYTES)
        require_between("backlog_bytes", self.backlog_bytes, 1, 1 << 40)
        require_between("xmit_interval_ns", self.xmit_interval_ns, MILLISECOND, 60 * SECOND)
        require_between("min_repair_ns", self.min_repair_ns, 1, self.xmit_interval_ns)
        require_between("initial_rtt_ns", self.initial_rtt_ns, 1, 60 * SECOND)
        require_between("repair_burst", self.repair_burst, 1, 1 << 20)
        require_between("repair_bytes", self.repair_bytes, 1, 1 << 40)
        require_between("repair_rate", self.repair_rate, 1, 1 << 40)
        require_between("request_limit", self.request_limit, 1, 512)

    @property
    def request_spans(self) -> int:
        """The most ranges in one request, so that it is no larger than a data frame."""
        return min(self.request_limit, self.body_bytes // RANGE_BYTES)

    @property
    def ack_threshold(self) -> int:
        """Deliveries that trigger an ack at once: a quarter of the window, so that no fast sender waits for a timer."""
        return max(1, self.capacity // 4)

    @property
    def window_bytes(self) -> int:
        """The bytes in a full window."""
        return self.capacity * self.body_bytes

    def round_trip(self) -> RoundTrip:
        """A new estimator for one link."""
        return RoundTrip(self.initial_rtt_ns, self.min_repair_ns, self.xmit_interval_ns)
