"""What can be set about total order."""

from __future__ import annotations

from dataclasses import dataclass

from motet.errors import ConfigError
from motet.protocol.core.checks import require_between
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MIN_BODY_BYTES
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.wire.ordered import HEADER, NUMBER, PROPOSAL, TAG

RUN_BYTES = 24
RUNS_OVERHEAD = 26  # the view id, the length of the list, and whose frames they are about
_HEADER_BYTES = HEADER.size + TAG.size + PROPOSAL.size  # what stands before the numbers that ride on a frame
MOST_IN_FLIGHT = 4096  # frames of one sender that are held back here; no member that behaves has more under way


@dataclass(frozen=True, slots=True)
class OrderingConfig:
    body_bytes: int = 60_000  # the largest body, numbers that ride along included
    strategy: str = "window"  # rides on the reliable multicast; "continuous": the seed's sender on plain datagrams
    window: int = 64  # frames of ours that may be under way without being delivered
    in_flight_limit: int = 1024  # frames of ours that others may not have delivered yet; bounds their hold-back queues
    backlog_bytes: int = 32 << 20  # accepted but waiting; once beyond it, `send` refuses
    ask_ns: int = 50 * MILLISECOND  # proposals that are late are asked for after this, then half as often
    progress_ns: int = 10 * MILLISECOND  # how often members tell how far they are, while that changes
    most_piggybacks: int = 64  # final numbers that ride on one frame; more make a frame of their own
    fast_path_members: int = (
        0  # up to so many members all are told proposals when little is under way; 0: the sender alone
    )
    piggyback_wait_ns: int = 5 * MILLISECOND  # final numbers that all know already wait so long for a frame to ride on
    waits_for_disk: bool = False  # others hear only of what is on our disk: then stable is, at every member
    packs: bool = True  # messages that wait share a frame; False: each has a frame of its own

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
                f"most_piggybacks is {self.most_piggybacks}: that leaves no room in a body of {self.body_bytes} bytes; "
                f"allowed are at most {(self.body_bytes - MIN_BODY_BYTES - _HEADER_BYTES) // NUMBER.size}"
            )

    @property
    def most_runs(self) -> int:
        """So many runs of proposals go into one datagram: it must not be larger than one of data."""
        return max(1, (self.body_bytes - RUNS_OVERHEAD) // RUN_BYTES)

    @property
    def piggyback_bytes(self) -> int:
        """What the numbers that ride on a frame may take of it."""
        return _HEADER_BYTES + self.most_piggybacks * NUMBER.size
