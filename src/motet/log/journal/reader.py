"""Reads a journal as columns, without a lock, also while its writer appends in this or another process.

Only complete records with valid checksums are used. An incomplete record at the end of the last segment is being
written and is ignored; anywhere else it is damage, and an error. Retention may delete segments and a rollback may
truncate the tail meanwhile; the reader detects both, and raises if the requested positions are gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from motet.errors import JournalCorruptError, JournalError, JournalTrimmedError, MisuseError
from motet.log.journal.columns import FrameRows, RowBatch, packed_rows
from motet.log.journal.disk import Disk, File, RealDisk
from motet.log.journal.owner import load
from motet.log.journal.records import HEAD_BYTES, INCOMPLETE, VIEW_FIELDS, RecordKind, ViewRecord
from motet.log.journal.scan import FIRST_RECORD_AT, Opening, Scan, ScannedRecord, intact_heads, read_opening
from motet.log.journal.segments import Index, note, segment_names
from motet.log.journal.state import LogState
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.wire.body import FRAGMENT, FRAGMENT_HEADER, HEADER, PACKED
from motet.protocol.wire.body import flaw as body_flaw
from motet.protocol.wire.fields import Reader

INDEX_BYTES = 64 << 10
MOST_INDEXED = 256  # segments whose index is kept


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a journal holds: positions `first` to `last`, of which those up to `stable` are never rolled back."""

    first: int
    last: int
    stable: int
    epoch: int  # number of the primary view that the log was last delivered in


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    name: str
    first: int  # the position that it begins with
    last: int
    size: int


@dataclass(slots=True)
class _IndexedSegment:
    """A segment as far as it was indexed."""

    name: str
    opening: Opening
    state: LogState
    end: int
    index: Index = field(default_factory=lambda: Index(step=INDEX_BYTES))
    views: list[ViewRecord] = field(default_factory=list)
    flaw: str | None = None
    is_damaged: bool = False  # the flaw is in bytes that were safely on disk
    size_at_flaw: int = -1
    last_head: tuple[int, bytes] = (0, b"")  # offset and bytes of the last record's head

    @classmethod
    def begin(cls, name: str, opening: Opening) -> _IndexedSegment:
        return cls(name, opening, LogState.begin(opening.state, opening.head), opening.end)

    def is_still_in(self, file: File) -> bool:
        """Whether the file was not truncated since. One that has grown again has another record at our position."""
        offset, head = self.last_head
        return file.read(offset, len(head)) == head and file.size() >= self.end


class JournalReader:
    """Reads the journal in a directory, also while a member writes it."""

    def __init__(self, directory: str | Path, disk: Disk | None = None) -> None:
        self.directory = Path(directory)
        self._disk = disk or RealDisk()
        self._indexed: dict[str, _IndexedSegment] = {}
        self._senders: dict[int, bytes] = {}
        self._names()  # raises if there is no journal

    # Contents

    @property
    def group(self) -> str:
        return self._index(self._names()[-1]).state.group

    @property
    def owner(self) -> Address | None:
        """The member whose journal this is."""
        return load(self.directory, self._disk).address

    def bounds(self) -> Bounds:
        """The bounds of the log. Damage in bytes that were safely on disk raises, because the end is unknown then."""
        names = self._names()
        indexed = self._index(names[-1])
        if indexed.is_damaged:
            raise JournalCorruptError(indexed.name, indexed.end, indexed.state.position, indexed.flaw or "")
        return Bounds(_first_of(names[0]), indexed.state.position, indexed.state.stable, indexed.state.epoch.number)

    @property
    def first(self) -> int:
        """The oldest position, from the name of the first segment."""
        return _first_of(self._names()[0])

    def is_stable(self, position: int) -> bool:
        """Whether everything up to `position` is stable. The first record of the last segment usually answers that."""
        if position <= self._opening(self._names()[-1]).state.stable:
            return True
        return position <= self.bounds().stable

    def views(self) -> list[ViewRecord]:
        """The primary views in which the log was delivered, as far as it reaches back; the oldest first."""
        found: list[ViewRecord] = []
        for name in self._names():
            indexed = self._index(name)
            state, head = indexed.opening.state, indexed.opening.head
            if not found and state.view is not None:
                found.append(ViewRecord(state.view, state.epoch, head.position - 1, head.at, state.producers))
            found += indexed.views
        return found

    def segments(self) -> list[SegmentInfo]:
        names = self._names()
        starts = [_first_of(name) for name in names]
        ends = [start - 1 for start in starts[1:]] + [self._index(names[-1]).state.position]
        sizes = [self._size_of(name) for name in names]
        return [SegmentInfo(*one) for one in zip(names, starts, ends, sizes, strict=True)]

    def _size_of(self, name: str) -> int:
        with _OpenSegment(self, name) as file:
            return file.size()

    # Rows

    def read(self, first: int, last: int, batch_rows: int = 20_000) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `last`, both included, in batches of at most `batch_rows`."""
        if batch_rows < 1 or first < 1:
            raise MisuseError(f"positions count from 1 and a batch has at least one row; not {first}, {batch_rows}")
        if first > last:
            return
        self._require(first, last)
        batch = RowBatch()
        for frame in self._frame_rows(first, last):
            if not batch.fits(frame, batch_rows):
                yield from self._built(batch, batch_rows)
                batch = RowBatch()
            batch.add(frame)
        yield from self._built(batch, batch_rows)

    def _built(self, batch: RowBatch, batch_rows: int) -> Iterator[pa.RecordBatch]:
        built = batch.build(self._senders)
        for start in range(0, built.num_rows, batch_rows):
            yield built.slice(start, batch_rows)

    def _require(self, first: int, last: int) -> None:
        names = self._names()
        oldest = _first_of(names[0])
        if first < oldest:
            raise JournalTrimmedError(
                f"position {first} is no longer in {self.directory}, which begins at {oldest}: retention deleted what "
                f"was before; read from there, or ask a member with a longer retention"
            )
        if last >= _first_of(names[-1]) and last > self._index(names[-1]).state.position:
            raise JournalError(
                f"position {last} is not in {self.directory}, which ends at {self.bounds().last}; ask bounds() first"
            )

    def _frame_rows(self, first: int, last: int) -> Iterator[FrameRows]:
        """The rows of each frame, in order, from `first` to `last`."""
        names = self._names()
        begun: dict[int, list[bytes]] = {}
        expected = first
        for at in range(max(0, bisect_right([_first_of(name) for name in names], first) - 1), len(names)):
            with _OpenSegment(self, names[at]) as file:
                scan = Scan(file, self._start(names[at], expected))
                for found in scan:
                    frame = self._rows_of(found, names[: at + 1], begun)
                    if frame is None or frame.first + frame.rows <= expected:
                        continue
                    if frame.first > expected:
                        raise self._rolled_back(expected)
                    yield frame.cut(expected, last)
                    expected = frame.first + frame.rows
                    if expected > last:
                        return
            if scan.flaw is not None:
                raise JournalCorruptError(names[at], scan.end, expected - 1, scan.flaw)
        raise self._rolled_back(expected)

    def _start(self, name: str, position: int) -> int:
        """The offset from which to search for a position. A segment that is read from its beginning needs no index."""
        opening = self._opening(name)
        return opening.end if opening.head.position == position else self._index(name).index.offset_before(position)

    def _missing_segment(self, name: str) -> JournalError:
        """The error for a segment that has disappeared: retention deletes the oldest ones, a rollback the newest."""
        if name > self._names()[0]:
            return self._rolled_back(_first_of(name))
        return JournalTrimmedError(
            f"{name} was deleted from {self.directory} by retention while it was read; call bounds() again"
        )

    def _rolled_back(self, position: int) -> JournalError:
        return JournalError(
            f"position {position} of {self.directory} was rolled back while it was being read; stable "
            f"positions never are: read up to bounds().stable"
        )

    def _rows_of(self, found: ScannedRecord, names: list[str], begun: dict[int, list[bytes]]) -> FrameRows | None:
        head = found.head
        if head.kind == RecordKind.VIEW:
            self._learn(VIEW_FIELDS.read(Reader(bytes(found.body)))[0])
            begun.clear()  # no message spans two views
        if head.kind != RecordKind.FRAME:
            return None
        if len(found.body) and found.body[0] == PACKED and len(found.body) >= HEADER.size:
            begun.pop(head.sender, None)
            frame = packed_rows(head, found.body)
            if frame is None:
                raise JournalCorruptError(names[-1], found.offset, head.position - 1, "a frame's lengths do not add up")
            return frame if frame.rows else None
        if (reason := _flaw_of_fragment(found)) is not None:
            raise JournalCorruptError(names[-1], found.offset, head.position - 1, reason)
        return self._fragment(found, names, begun)

    def _fragment(self, found: ScannedRecord, names: list[str], begun: dict[int, list[bytes]]) -> FrameRows | None:
        head = found.head
        _, port, total, offset = FRAGMENT_HEADER.unpack_from(found.body)
        chunk = bytes(found.body[FRAGMENT_HEADER.size :])
        chunks = begun.setdefault(head.sender, [])
        if not offset:
            chunks.clear()
        chunks.append(chunk)
        if not head.messages:
            return None
        del begun[head.sender]
        if sum(map(len, chunks)) != total:
            chunks = [*self._begun_before(found, names), chunk]
        message = b"".join(chunks)
        is_null = len(message) != total
        data = b"" if is_null else message
        return FrameRows(head.position, head, port, np.array([len(data)], np.uint32), data, is_null)

    def _begun_before(self, found: ScannedRecord, names: list[str]) -> list[bytes]:
        """Fragments of the message that ends here, from before the place where reading began."""
        chunks: list[bytes] = []
        start = len(names) - 1
        while start > 0 and any(
            sender == found.head.sender for sender, _ in self._index(names[start]).opening.state.begun
        ):
            start -= 1
        for name in names[start:]:
            with _OpenSegment(self, name) as file:
                for earlier in Scan(file, self._opening(name).end):
                    if name == names[-1] and earlier.offset >= found.offset:
                        return chunks
                    if earlier.head.kind == RecordKind.VIEW:
                        chunks.clear()
                    elif earlier.head.kind == RecordKind.FRAME and earlier.head.sender == found.head.sender:
                        _collect(chunks, earlier)
        return chunks

    # Indexing segments

    def _names(self) -> list[str]:
        """The names of the segments, without one that is just being created."""
        try:
            names = segment_names(self._disk.names(self.directory))
        except (FileNotFoundError, NotADirectoryError):
            raise JournalError(f"{self.directory} is not there; a journal is a directory of segments") from None
        if len(names) > 1 and names[-1] not in self._indexed:
            with _OpenSegment(self, names[-1]) as file:
                if isinstance(read_opening(file), str):
                    names.pop()
        if not names:
            raise JournalError(f"{self.directory} holds no journal: there is no segment in it")
        return names

    def _opening(self, name: str) -> Opening:
        if (indexed := self._indexed.get(name)) is not None:
            return indexed.opening
        with _OpenSegment(self, name) as file:
            return self._begin(name, file).opening

    def _index(self, name: str) -> _IndexedSegment:
        """The index of a segment, extended to its current end. The last one may have grown, or been rolled back."""
        indexed = self._indexed.get(name)
        with _OpenSegment(self, name) as file:
            size = file.size()
            if indexed is None or not indexed.is_still_in(file):
                indexed = self._begin(name, file)
            if size > indexed.end and size != indexed.size_at_flaw:
                self._extend(indexed, file)
                indexed.size_at_flaw = size if indexed.flaw is not None else -1
                indexed.is_damaged = indexed.flaw not in (None, INCOMPLETE) and _was_safe(indexed, file, size)
        self._indexed[name] = indexed
        while len(self._indexed) > MOST_INDEXED:
            del self._indexed[next(iter(self._indexed))]
        return indexed

    def _begin(self, name: str, file: File) -> _IndexedSegment:
        opening = read_opening(file)
        if isinstance(opening, str):
            raise JournalCorruptError(name, 0, _first_of(name) - 1, opening)
        if opening.state.view is not None:
            self._learn(opening.state.view)
        indexed = _IndexedSegment.begin(name, opening)
        indexed.last_head = (FIRST_RECORD_AT, file.read(FIRST_RECORD_AT, HEAD_BYTES))
        return indexed

    def _extend(self, indexed: _IndexedSegment, file: File) -> None:
        scan = Scan(file, indexed.end, heads_only=indexed.name != self._names()[-1])  # the last may be half written
        indexed.flaw = None
        for found in scan:
            indexed.flaw = indexed.state.flaw(found.head, found.shared, found.body)
            if indexed.flaw is not None:
                return
            indexed.end = found.offset + found.head.size
            indexed.last_head = (found.offset, bytes(found.raw[: found.head.head_bytes]))
            note(indexed.index, found)
            if found.head.kind == RecordKind.VIEW:
                self._note_view(indexed, found)
        indexed.flaw = scan.flaw

    def _note_view(self, indexed: _IndexedSegment, found: ScannedRecord) -> None:
        view, epoch, producers = VIEW_FIELDS.read(Reader(bytes(found.body)))
        indexed.views.append(ViewRecord(view, epoch, found.head.position - 1, found.head.at, producers))
        self._learn(view)

    def _learn(self, view: View) -> None:
        for member in view.members:
            self._senders[member.incarnation] = f"{member.name}#{member.incarnation:016x}".encode()


class _OpenSegment:
    """Opens a segment's file; one that has disappeared raises the error that says why."""

    def __init__(self, reader: JournalReader, name: str) -> None:
        self._reader, self._name = reader, name

    def __enter__(self) -> File:
        try:
            self._file = self._reader._disk.open_to_read(self._reader.directory / self._name)
        except FileNotFoundError:
            raise self._reader._missing_segment(self._name) from None
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _was_safe(indexed: _IndexedSegment, file: File, size: int) -> bool:
    """Whether later records prove that the flawed bytes were on disk."""
    address = indexed.opening.state.address + indexed.end
    return any(head.synced > address for head in intact_heads(file.read(indexed.end, size - indexed.end), indexed.end))


def _first_of(name: str) -> int:
    return int(name.partition(".")[0])


def _flaw_of_fragment(found: ScannedRecord) -> str | None:
    """Validate a fragment: a checksum proves that a record is what was written, not that the writer was correct."""
    if found.head.messages > 1:
        return f"a fragment that ends {found.head.messages} messages"
    reason = body_flaw(found.body)
    return reason if reason is not None or found.body[0] == FRAGMENT else "a frame that is no fragment"


def _collect(chunks: list[bytes], found: ScannedRecord) -> None:
    if found.head.messages or _flaw_of_fragment(found) is not None:
        chunks.clear()
        return
    _, _, _, offset = FRAGMENT_HEADER.unpack_from(found.body)
    if not offset:
        chunks.clear()
    chunks.append(bytes(found.body[FRAGMENT_HEADER.size :]))
