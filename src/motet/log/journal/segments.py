"""The files of a journal: what each one covers, and where in it a position is found."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from motet.log.journal.disk import Disk, File
from motet.log.journal.records import FILE_HEADER, MAGIC, STATE, VERSION, Head, RecordKind, parse_head, record_bytes
from motet.log.journal.scan import FIRST_RECORD_AT, Opening, Scan, ScannedRecord
from motet.log.journal.state import LogState
from motet.protocol.core.identity import Address

SUFFIX = ".seg"


def name_of(first: int) -> str:
    return f"{first:020}{SUFFIX}"


def segment_names(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(SUFFIX) and name[: -len(SUFFIX)].isdecimal()]


@dataclass(slots=True)
class Index:
    """Every so many bytes, where a frame begins. Grows with the segment."""

    positions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    step: int = 64 << 10

    def note(self, position: int, offset: int) -> None:
        if not self.offsets or offset - self.offsets[-1] >= self.step:
            self.positions.append(position)
            self.offsets.append(offset)

    def offset_before(self, position: int) -> int:
        """Where to begin to look for the frame in which `position` ends."""
        at = bisect_right(self.positions, position) - 1
        return self.offsets[at] if at >= 0 else FIRST_RECORD_AT


@dataclass(slots=True)
class Segment:
    path: Path
    base: int  # the position before its first
    address: int  # bytes of the journal before it
    size: int
    opening: Opening
    index: Index | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def end_address(self) -> int:
        return self.address + self.size

    @property
    def is_clean(self) -> bool:
        """No message began before it that ends in it or later: it can be read without those before."""
        return not self.opening.state.begun


def create(
    directory: Path, state: LogState, address: int, owner: Address | None, disk: Disk, name: str | None = None
) -> tuple[Segment, File]:
    """A new segment of `owner` that goes on from `state`."""
    summary = state.summary(address, owner)
    body = STATE.write(summary)
    record = record_bytes(RecordKind.STATE, body, state.synced, state.last_at, state.chain.value, state.position + 1)
    path = directory / (name or name_of(state.position + 1))
    file = disk.open(path, is_new=True)
    data = FILE_HEADER.pack(MAGIC, VERSION, 0) + record
    file.write([data])
    head = parse_head(record, 0)
    assert isinstance(head, Head)
    return Segment(path, state.position, address, len(data), Opening(head, summary, len(data))), file


def build_index(file: File, step: int) -> Index:
    """Walk along the heads; bodies are not looked at."""
    index = Index(step=step)
    for found in Scan(file, FIRST_RECORD_AT, heads_only=True):
        note(index, found)
    return index


def note(index: Index, found: ScannedRecord) -> None:
    if found.head.kind == RecordKind.FRAME:
        index.note(found.head.position, found.offset)


def locate(file: File, index: Index, position: int) -> tuple[int, Head] | None:
    """The offset and head of the frame in which `position` ends."""
    for found in Scan(file, index.offset_before(position), heads_only=True):
        if found.head.kind == RecordKind.FRAME and found.head.last >= position and found.head.messages:
            return (found.offset, found.head) if found.head.position <= position else None
    return None
