"""The settings of total order."""

from __future__ import annotations

from dataclasses import dataclass

from motet.errors import ConfigError
from motet.protocol.core.checks import require_between
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MIN_BODY_BYTES
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.wire.ordered import HEADER, NUMBER, PROPOSAL, TAG

RUN_BYTES = 24
RUNS_OVERHEAD = 26  # The view id, the number of runs, and the sender that the proposals are for.
_HEADER_BYTES = HEADER.size + TAG.size + PROPOSAL.size  # What precedes piggybacked sequence numbers.
MOST_IN_FLIGHT = 4096  # Frames of one sender in the hold-back queue; a correct sender has no more in flight.


@dataclass(frozen=True, slots=True)
class OrderingConfig:
    body_bytes: int = 60_000  # The largest body, piggybacked sequence numbers included.
    # "window" sends DATA and SEQ through the reliable multicast. "continuous" sends them as plain datagrams and resends
    # each until all members have acknowledged it.
    strategy: str = "window"
    window: int = 64  # Own frames that may be in flight, that is sent and not yet delivered here.
    # Own frames that other members may not have delivered yet. It bounds the hold-back queue of the slowest member.
    in_flight_limit: int = 1024
    backlog_bytes: int = 32 << 20  # Accepted messages that wait to be sent; beyond it `send` raises.
    ask_ns: int = 50 * MILLISECOND  # Missing proposals are requested after this, and every 100 ms from then on.
    progress_ns: int = 10 * MILLISECOND  # Interval of progress reports while the log advances.
    most_piggybacks: int = 64  # Agreed sequence numbers piggybacked on one frame; the rest follow on later frames.
    # Views of up to this many members broadcast proposals while lightly loaded, which saves one message delay. 0
    # disables it: then only the sender of a frame receives the proposals.
    fast_path_members: int = 0
    # How long agreed sequence numbers that all members know from the fast path wait for a frame to piggyback on.
    piggyback_wait_ns: int = 5 * MILLISECOND
    # Report only what is on the local disk as progress; then a stable message is on every member's disk.
    waits_for_disk: bool = False
    packs: bool = True  # Waiting messages share a frame; if False, each message gets its own frame.

    def __post_init__(self) -> None:
        require_between("body_bytes", self.body_bytes, 2 * MIN_BODY_BYTES, MAX_DATAGRAM_BYTES)
        require_between("window", self.window, 1, MOST_IN_FLIGHT)
        require_between("in_flight_limit", self.in_flight_limit, self.window, MOST_IN_FLIGHT)
        if self.strategy not in ("window", "continuous"):
            raise ConfigError(f"strategy is {self.strategy!r}; allowed are 'window' and 'continuous'")
        require_between("backlog_bytes", self.backlog_bytes, 1, 1 << 40)
        require_between("ask_ns", self.ask_ns, MILLISECOND, 60 * SECOND)
        require_between("progress_ns", self.progress_ns, MILLISECOND, 60 * SECOND)
        require_between("most_piggybacks", self.most_piggybacks, 1, 4096)
        require_between("fast_path_members", self.fast_path_members, 0, 64)
        require_between("piggyback_wait_ns", self.piggyback_wait_ns, 1, 60 * SECOND)

        if self.body_bytes - self.piggyback_bytes < MIN_BODY_BYTES:
            raise ConfigError(
                f"most_piggybacks = {self.most_piggybacks} leaves no space in a body of {self.body_bytes} bytes; "
                f"allowed are at most {(self.body_bytes - MIN_BODY_BYTES - _HEADER_BYTES) // NUMBER.size}"
            )

    @property
    def most_runs(self) -> int:
        """The most runs of proposals in one datagram, so that it is no larger than a data frame."""
        return max(1, (self.body_bytes - RUNS_OVERHEAD) // RUN_BYTES)

    @property
    def piggyback_bytes(self) -> int:
        """The bytes of a body that piggybacked sequence numbers may take."""
        return _HEADER_BYTES + self.most_piggybacks * NUMBER.size
