"""The segments of a journal as one stretch of bytes to append to, cut from, and find positions in.

Nothing here locks: the journal calls it with its lock held, except for `sync_files`, which only waits.

Invariants: each segment begins where the one before ends, in positions and in bytes; only the last one grows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from motet.log.journal.config import Fsync, JournalConfig
from motet.log.journal.disk import Buffer, Disk, File
from motet.log.journal.records import Head, RecordKind
from motet.log.journal.recovery import RESTART, finish_restart
from motet.log.journal.scan import Scan
from motet.log.journal.segments import Index, Segment, build_index, create, locate, name_of, note
from motet.log.journal.state import LogState
from motet.protocol.core.identity import Address

OVERSIZE = 4  # a segment grows to so many times its size, at most, to end where no message is unfinished


class Unsynced(NamedTuple):
    """What `sync` must wait for."""

    complete: tuple[File, ...]
    growing: File
    created: int  # segments begun so far, if the name of one may not be on disk


class Store:
    def __init__(
        self,
        directory: Path,
        config: JournalConfig,
        disk: Disk,
        segments: list[Segment],
        state: LogState,
        owner: Address | None,
    ) -> None:
        self.segments = segments
        self.owner = owner  # whose segments are begun from now on
        self._directory = directory
        self._config = config
        self._disk = disk
        self._complete: list[File] = []  # segments that are followed by another and may not be on disk
        self._created = 0  # segments that were begun here
        self._named = 0  # of them, those whose names are on disk
        self._file = disk.open(segments[-1].path) if segments else self._begin_segment(state, 0)

    @property
    def last(self) -> Segment:
        return self.segments[-1]

    @property
    def end(self) -> int:
        return self.last.end_address

    # Appending

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        self._file.write(buffers)
        self.last.size += size

    def note(self, position: int, offset: int) -> None:
        assert self.last.index is not None
        self.last.index.note(position, offset)

    def wants_roll(self, size: int, state: LogState) -> bool:
        """With `size` bytes more the last segment is full, and this is a place where the next one may begin."""
        full = self.last.size + size >= self._config.segment_bytes and state.position > self.last.base
        return full and (not state.chain.begun or self.last.size + size >= OVERSIZE * self._config.segment_bytes)

    def roll(self, state: LogState) -> None:
        """The next segment begins."""
        if self._config.fsync is Fsync.NEVER:
            self._file.close()
        else:
            self._complete.append(self._file)
        self._file = self._begin_segment(state, self.end)

    def _begin_segment(self, state: LogState, address: int) -> File:
        segment, file = create(self._directory, state, address, self.owner, self._disk)
        segment.index = Index(step=self._config.index_bytes)
        self.segments.append(segment)
        self._created += 1
        return file

    # Waiting for the disk

    def unsynced(self) -> Unsynced:
        return Unsynced(tuple(self._complete), self._file, self._created if self._created > self._named else 0)

    def sync_files(self, unsynced: Unsynced) -> None:
        for file in (*unsynced.complete, unsynced.growing):
            file.sync()
        if unsynced.created:
            self._disk.sync_directory(self._directory)

    def synced(self, unsynced: Unsynced) -> None:
        self._named = max(self._named, unsynced.created)
        for file in unsynced.complete:
            self._complete.remove(file)
            file.close()

    def is_unused(self, state: LogState) -> bool:
        """Nothing was ever appended."""
        return len(self.segments) == 1 and self.last.base == state.position and state.view is None

    def close(self) -> None:
        for file in (*self._complete, self._file):
            file.close()
        self._complete = []

    # Taking away

    def trim(self, stable: int, now: int) -> int:
        """Retention: the oldest segments go, as long as all they hold is stable. How many went."""
        count = 0
        while count < len(self.segments) - 1 and self._is_due(count, now) and self.segments[count + 1].base <= stable:
            count += 1
        while count and not self.segments[count].is_clean:
            count -= 1  # what follows needs it, to put a large message together
        for segment in self.segments[:count]:
            self._disk.remove(segment.path)
        del self.segments[:count]
        return count

    def _is_due(self, at: int, now: int) -> bool:
        config = self._config
        kept = self.end - self.segments[at].address
        newest = self.segments[at + 1].opening.head.at  # when the next one began, which is what its first record says
        is_too_much = bool(config.retention_bytes) and kept > config.retention_bytes
        return is_too_much or (bool(config.retention_ns) and newest < now - config.retention_ns)

    def truncate_behind(self, position: int, stable: int) -> LogState:
        """Only what ends at `position` or before stays, and the frame with the stable one; what is known there."""
        at = self.segment_of(position)
        segment = self.segments[at]
        with self.reading(segment) as file:
            end = _end_of(file, segment.opening.end, position, stable)
        for complete in self._complete:
            complete.sync()  # what is left is called safe afterwards
        self.close()
        for gone in reversed(self.segments[at + 1 :]):
            self._disk.remove(gone.path)
        self._disk.sync_directory(self._directory)
        del self.segments[at + 1 :]
        self._file = self._disk.open(segment.path)
        self._file.truncate(end)
        self._file.sync()
        segment.size, segment.index = end, Index(step=self._config.index_bytes)
        return self._replay(segment)

    def _replay(self, segment: Segment) -> LogState:
        assert segment.index is not None
        state = LogState.begin(segment.opening.state, segment.opening.head)
        for found in Scan(self._file, segment.opening.end, heads_only=True):
            state.flaw(found.head, found.shared, found.body)
            note(segment.index, found)
        state.synced = segment.end_address
        return state

    def restart(self, state: LogState) -> None:
        """Nothing stays; the log begins anew from `state`. The new first segment is complete before the old ones go."""
        self.close()
        segment, self._file = create(self._directory, state, 0, self.owner, self._disk, RESTART)
        self._file.sync()
        self._disk.sync_directory(self._directory)
        finish_restart(self._directory, state.position + 1, self._disk)
        self._disk.sync_directory(self._directory)
        segment.path = self._directory / name_of(state.position + 1)
        segment.index = Index(step=self._config.index_bytes)
        self.segments = [segment]

    # Finding

    def segment_of(self, position: int) -> int:
        """The index of the segment in which `position` ends; of the first one, for what lies before it."""
        return max(0, bisect_left(self.segments, position, key=lambda segment: segment.base) - 1)

    @contextmanager
    def reading(self, segment: Segment) -> Iterator[File]:
        file = self._disk.open_to_read(segment.path)
        try:
            yield file
        finally:
            file.close()

    def index_of(self, segment: Segment, file: File) -> Index:
        if segment.index is None:
            segment.index = build_index(file, self._config.index_bytes)
        return segment.index

    def frame_of(self, position: int) -> tuple[Segment, int, Head] | None:
        """Where the frame stands in which `position` ends."""
        segment = self.segments[self.segment_of(position)]
        with self.reading(segment) as file:
            place = locate(file, self.index_of(segment, file), position)
        return (segment, *place) if place is not None else None


def _end_of(file: File, start: int, position: int, stable: int) -> int:
    """Behind the last frame in which `position` or an earlier one ends, and what belongs to it."""
    end = start
    for found in Scan(file, start, heads_only=True):
        if found.head.last > position and found.head.position > stable:
            break
        if found.head.messages or found.head.kind != RecordKind.FRAME:
            end = found.offset + found.head.size
    return end
