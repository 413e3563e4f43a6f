"""The directory of a run goes with the run: by its own hand, or, after a kill -9, by the hand of the next one.

Nobody can clean up after SIGKILL: the members are killed with the run. So every run holds a lock on a file in its
directory, which the kernel releases however the run ends, and begins by removing directories of this user whose lock
nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "motet-run-"
LOCK = "running"  # a directory without it was kept on purpose


class Scratch:
    """A new directory, and the lock that says that somebody uses it."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def keep(self) -> None:
        """Leave it for a person to look into."""
        (self.path / LOCK).unlink(missing_ok=True)
        os.close(self._lock)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another user's, or removed by another run at this moment
            _remove_unless_used(lock)


def _remove_unless_used(lock: Path) -> None:
    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock.stat().st_uid == os.getuid():
            shutil.rmtree(lock.parent, ignore_errors=True)
    finally:
        os.close(descriptor)
