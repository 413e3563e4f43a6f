"""What both reliable channels can be told about their windows and their repair, and why each default is what it is."""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.checks import require_between
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MIN_BODY_BYTES, RANGE_BYTES
from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.core.units import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    capacity: int = 256  # frames in the window of a stream; times body_bytes it bounds the memory of the stream
    body_bytes: int = 60_000  # the largest body; a datagram on loopback holds 65 507 bytes with its headers
    backlog_bytes: int = 32 << 20  # accepted but waiting for space, per stream; once beyond it, `send` refuses
    xmit_interval_ns: int = 500 * MILLISECOND  # the slowest pace of repair, when nothing moves
    initial_rtt_ns: int = 10 * MILLISECOND  # believed until the first measurement
    min_repair_ns: int = 2 * MILLISECOND  # the fastest pace of repair: twice a scheduling quantum, not a busy loop
    repair_burst: int = 128  # frames asked for in one look: half a window, so that repair does not overflow a socket
    request_limit: int = 64  # frames asked for in one request
    repair_bytes: int = 1 << 20  # resent for one request, and for one peer in a burst; budget.py has the rule
    repair_rate: int = 8 << 20  # bytes a second that one peer may have resent when nothing new is sent
    packs: bool = True  # messages that wait share a frame; False: each has a frame of its own

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
        """So many spans go into one request: it must not be larger than a datagram of data."""
        return min(self.request_limit, self.body_bytes // RANGE_BYTES)

    @property
    def ack_threshold(self) -> int:
        """So many deliveries are acked at once: a quarter of the window, so no fast sender waits for a timer."""
        return max(1, self.capacity // 4)

    @property
    def window_bytes(self) -> int:
        """What a full window holds."""
        return self.capacity * self.body_bytes

    def round_trip(self) -> RoundTrip:
        """A fresh estimate for one link."""
        return RoundTrip(self.initial_rtt_ns, self.min_repair_ns, self.xmit_interval_ns)
