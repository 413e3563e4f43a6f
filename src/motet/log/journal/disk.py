"""The few things that a journal wants from a disk, so that a simulated one can stand in its place."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from motet.errors import JournalError, JournalFullError, JournalLockedError

MOST_BUFFERS = 1024  # of one gathered write: IOV_MAX on Linux and macOS
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700  # a journal holds what the group said, which a key hides on the network
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
Buffer = bytes | memoryview


class File(Protocol):
    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append all of it, or raise OSError; then any prefix of it may be in the file."""

    def read(self, offset: int, count: int) -> bytes:
        """Fewer bytes than asked for only at the end of the file."""

    def size(self) -> int: ...

    def sync(self) -> None:
        """When it returns, what was written is on the disk."""

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def make_directory(self, directory: Path) -> None: ...

    def names(self, directory: Path) -> list[str]:
        """Of the files in it, sorted. A directory that is not there raises FileNotFoundError."""

    def open(self, path: Path, *, is_new: bool = False) -> File:
        """To append and read."""

    def open_to_read(self, path: Path) -> File: ...

    def rename(self, path: Path, to: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def sync_directory(self, directory: Path) -> None:
        """When it returns, names that came or went have come or gone on the disk, too."""

    def lock(self, path: Path) -> DirectoryLock:
        """Raises JournalLockedError when another holds it."""


class RealFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size

    def write(self, buffers: Sequence[Buffer]) -> None:
        for start in range(0, len(buffers), MOST_BUFFERS):
            part = buffers[start : start + MOST_BUFFERS]
            wanted = sum(map(len, part))
            written = os.pwritev(self._descriptor, part, self._end)
            self._end += written
            if written < wanted:
                self._write_rest(b"".join(part)[written:])

    def _write_rest(self, data: bytes) -> None:
        """A write is cut short by a signal, or because the disk is nearly full: then the next one says so."""
        while data:
            written = os.pwrite(self._descriptor, data, self._end)
            self._end += written
            data = data[written:]

    def read(self, offset: int, count: int) -> bytes:
        data = os.pread(self._descriptor, count, offset)
        while 0 < len(data) < count:
            more = os.pread(self._descriptor, count - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._end = size

    def close(self) -> None:
        os.close(self._descriptor)


class RealLock:
    """Held by the open file, so the operating system releases it when the process dies, however it dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


class RealDisk:
    def make_directory(self, directory: Path) -> None:
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    def open(self, path: Path, *, is_new: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if is_new else 0)
        return RealFile(os.open(path, flags, FILE_MODE))

    def open_to_read(self, path: Path) -> RealFile:
        return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_directory(self, directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> RealLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise JournalLockedError(
                    f"{path.parent} is in use by process {owner}: one journal has one writer; stop that process, or "
                    f"give this one a directory of its own. Reading needs no lock"
                ) from None
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return RealLock(descriptor)


def as_journal_error(error: OSError, what: str, directory: Path) -> JournalError:
    """A failure of the disk as an error that says what to do."""
    if error.errno in _FULL:
        return JournalFullError(
            f"{what} failed: no space left for {directory}. What was acknowledged is on disk; free some space, or set "
            f"retention_bytes, and start the member again"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return JournalError(
            f"{what} failed: {directory} cannot be written ({error.strerror}); mount it for writing, or choose a "
            f"directory that this user may write"
        )
    return JournalError(
        f"{what} failed: {error.strerror or error} in {directory}; check the disk, then start the member again"
    )
