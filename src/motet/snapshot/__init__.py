"""Global snapshots of the group, after Chandy and Lamport: one consistent cut through all members and channels."""

from motet.snapshot.config import SnapshotConfig
from motet.snapshot.machine import RecordState, SnapshotFailed, Snapshots, SnapshotTaken
from motet.snapshot.result import FlyingMessage, SnapshotResult
from motet.wire.snapshot import Report, SnapshotId, Waiting

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
