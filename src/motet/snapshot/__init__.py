"""Global snapshots of the group, after Chandy and Lamport: one consistent cut through all members and channels."""

from motet.snapshot.config import SnapshotConfig
from motet.snapshot.machine import RecordState, SnapshotFailed, Snapshots, SnapshotTaken
from motet.wire.snapshot import Report, SnapshotId

__all__ = ["RecordState", "Report", "SnapshotConfig", "SnapshotFailed", "SnapshotId", "SnapshotTaken", "Snapshots"]
