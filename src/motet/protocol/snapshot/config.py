"""The settings of global snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.checks import require_between
from motet.protocol.core.units import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    timeout_ns: int = 10 * SECOND  # A snapshot incomplete after this fails; other members drop it after twice as long.
    most_bytes: int = 32 << 20  # One member's state and messages in flight; a report must fit into one message.
    most_gathered_bytes: int = 256 << 20  # All reports of one snapshot, at its initiator.
    most_running: int = 16  # Snapshots that a member records at the same time; further ones are refused.

    def __post_init__(self) -> None:
        require_between("timeout_ns", self.timeout_ns, MILLISECOND, 3_600 * SECOND)
        require_between("most_bytes", self.most_bytes, 1, 48 << 20)
        require_between("most_gathered_bytes", self.most_gathered_bytes, 1, 1 << 40)
        require_between("most_running", self.most_running, 1, 1 << 10)
