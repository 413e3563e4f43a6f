"""What a journal wants to know: how big its files get, how long they stay, and when bytes must be on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

from motet.protocol.core.checks import require_between
from motet.protocol.core.units import MILLISECOND


@unique
class Fsync(Enum):
    """When appended bytes are forced to the disk. The value says what a power cut can take."""

    ALWAYS = "always"  # nothing that was reported: the member tells the group only what is on disk
    INTERVAL = "interval"  # the last `interval_ns`, and only if all members lose power at once is it gone for good
    NEVER = "never"  # whatever the operating system had not written; the death of the process alone loses nothing


@dataclass(frozen=True, slots=True)
class JournalConfig:
    fsync: Fsync = Fsync.INTERVAL
    interval_ns: int = 50 * MILLISECOND  # how often `sync` is due with Fsync.INTERVAL
    segment_bytes: int = 64 << 20  # a segment that is larger is followed by the next; retention removes whole ones
    retention_bytes: int = 0  # the oldest segments go while there is more than this; 0 keeps everything
    retention_ns: int = 0  # segments whose newest row is older than this go; 0 keeps them however old
    index_bytes: int = 64 << 10  # one entry of the index in memory for so many bytes of a segment

    def __post_init__(self) -> None:
        require_between("interval_ns", self.interval_ns, MILLISECOND, 3600_000 * MILLISECOND)
        require_between("segment_bytes", self.segment_bytes, 4 << 10, 1 << 30)
        require_between("retention_bytes", self.retention_bytes, 0, 1 << 60)
        require_between("retention_ns", self.retention_ns, 0, 1 << 62)
        require_between("index_bytes", self.index_bytes, 1 << 10, 1 << 30)

    @property
    def waits_for_disk(self) -> bool:
        """Whether a member may tell others only about positions that `sync` has reported."""
        return self.fsync is Fsync.ALWAYS
