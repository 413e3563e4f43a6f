"""Global snapshots of the group by the Chandy-Lamport algorithm: one consistent state of all members and channels."""

from motet.protocol.snapshot.config import SnapshotConfig
from motet.protocol.snapshot.machine import RecordState, SnapshotFailed, Snapshots, SnapshotTaken
from motet.protocol.snapshot.result import FlyingMessage, SnapshotResult
from motet.protocol.wire.snapshot import Report, SnapshotId, Waiting

__all__ = [
    "FlyingMessage",
    "RecordState",
    "Report",
    "SnapshotConfig",
    "SnapshotFailed",
    "SnapshotId",
    "SnapshotResult",
    "SnapshotTaken",
    "Snapshots",
    "Waiting",
]
