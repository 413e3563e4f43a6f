"""Recovery, when a journal is opened: find the last complete record, and truncate the torn tail after it.

A write that was in progress when the power failed is torn. It was never reported as being on disk, so it is truncated
and reported in `Recovery`. A flaw in bytes that were on disk is damage: nothing is truncated, and the journal does not
open. Later records distinguish the two, because each one carries how far the journal was known to be on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from motet.errors import JournalCorruptError, JournalError
from motet.log.journal.disk import Disk
from motet.log.journal.owner import Owner
from motet.log.journal.records import FILE_HEADER, MAGIC
from motet.log.journal.scan import Opening, Scan, intact_heads, read_opening
from motet.log.journal.segments import Index, Segment, name_of, note, segment_names
from motet.log.journal.state import LogState

RESTART = "restart.new"  # the first segment of a restarted log, before the old segments are deleted
MOST_SCANNED = 8  # segments that are read at opening, at most; `verify` reads all, and readers check what they read


@dataclass(frozen=True, slots=True)
class Recovery:
    """What recovery truncated: nothing if `truncated_bytes` is 0."""

    truncated_bytes: int = 0
    truncated_records: int = 0  # of those bytes, records whose heads were still legible
    at: int = 0  # the position at which the log ends now
    segment: str = ""
    offset: int = 0
    reason: str = ""

    def __str__(self) -> str:
        if not self.truncated_bytes:
            return f"nothing was truncated; the log ends at position {self.at}"
        return (
            f"truncated {self.truncated_bytes} bytes ({self.truncated_records} legible records) after position "
            f"{self.at}, from byte {self.offset} of {self.segment} on: {self.reason}"
        )


@dataclass(slots=True)
class Recovered:
    segments: list[Segment]
    state: LogState
    recovery: Recovery


@dataclass(frozen=True, slots=True)
class _Flaw:
    at: int  # index of the segment
    offset: int
    reason: str


def recover(directory: Path, group: str, owner: Owner, disk: Disk, index_bytes: int) -> Recovered:
    _finish_restart(directory, disk)
    names = segment_names(disk.names(directory))
    segments, flaw = _openings(directory, names, disk)
    for segment in segments:
        if segment.opening.state.group != group:
            raise JournalError(
                f"{directory} is the journal of group {segment.opening.state.group!r}, not of {group!r}; give each "
                f"group a directory of its own"
            )
        if (reason := owner.flaw_of(segment.opening.state.owner)) is not None:
            raise JournalError(
                f"{segment.path} does not belong here: {reason}. Files were exchanged: restore the right one, or "
                f"move the directory away and let the member fetch the log from the others"
            )
    state = LogState(group)
    if segments:
        state, torn = _replay(segments, disk, index_bytes)
        flaw = torn or flaw
    if flaw is None:
        return Recovered(segments, state, Recovery(at=state.position))
    return _truncate_tail(directory, names, segments, state, flaw, disk)


def _finish_restart(directory: Path, disk: Disk) -> None:
    """Finish an interrupted restart: once the first segment of the new log is complete, the old ones are deleted."""
    names = disk.names(directory)
    if RESTART not in names:
        return
    file = disk.open_to_read(directory / RESTART)
    opening = read_opening(file)
    file.close()
    if isinstance(opening, str):
        disk.remove(directory / RESTART)  # it is incomplete, so the old log is still valid
    else:
        finish_restart(directory, opening.head.position, disk)
    disk.sync_directory(directory)


def finish_restart(directory: Path, first: int, disk: Disk) -> None:
    for name in reversed(segment_names(disk.names(directory))):
        disk.remove(directory / name)
    disk.rename(directory / RESTART, directory / name_of(first))


def _openings(directory: Path, names: Sequence[str], disk: Disk) -> tuple[list[Segment], _Flaw | None]:
    """The segments up to the first one without a valid first record."""
    segments: list[Segment] = []
    for at, name in enumerate(names):
        file = disk.open_to_read(directory / name)
        opening, size = read_opening(file), file.size()
        file.close()
        if isinstance(opening, str):
            _require_own(directory / name, disk)
            return segments, _Flaw(at, 0, opening)
        if segments and segments[-1].end_address != opening.state.address:
            return segments, _Flaw(
                at, 0, f"it begins at byte {opening.state.address} of the journal, not where the one before ends"
            )
        segments.append(Segment(directory / name, opening.head.position - 1, opening.state.address, size, opening))
    return segments, None


def _require_own(path: Path, disk: Disk) -> None:
    """Refuse a file that is no torn segment. A write that power cut short leaves zeros or the beginning of a segment;
    anything else is somebody's data under a segment's name, and truncating it would destroy it."""
    file = disk.open_to_read(path)
    begin = file.read(0, len(MAGIC))
    file.close()
    if any(begin) and not MAGIC.startswith(begin.rstrip(b"\0")):
        raise JournalError(
            f"{path} does not begin like a segment of a journal, so it is left as it is: move it away if it does not "
            f"belong here; if it does, it was damaged: restore it, or move the directory away and let the member fetch "
            f"the log from the others"
        )


def _replay(segments: list[Segment], disk: Disk, index_bytes: int) -> tuple[LogState, _Flaw | None]:
    """Read all segments that are not known to be on disk, and the last one in any case."""
    synced = segments[-1].opening.head.synced
    suspect = next(at for at, segment in enumerate(segments) if segment.end_address > synced)
    start = max(min(suspect, len(segments) - 1), len(segments) - MOST_SCANNED)
    state = LogState.begin(segments[start].opening.state, segments[start].opening.head)
    for at in range(start, len(segments)):
        segment = segments[at]
        if (reason := _discontinuity(state, segment.opening)) is not None:
            return state, _Flaw(at, 0, reason)
        if (flaw := _replay_segment(segment, at, state, disk, index_bytes)) is not None:
            return state, flaw
    return state, None


def _discontinuity(state: LogState, opening: Opening) -> str | None:
    if opening.head.position != state.position + 1:
        return f"it begins at position {opening.head.position}, the one before ends at {state.position}"
    return None if opening.head.chain == state.chain.value else "it does not continue the chain of the one before"


def _replay_segment(segment: Segment, at: int, state: LogState, disk: Disk, index_bytes: int) -> _Flaw | None:
    file = disk.open_to_read(segment.path)
    segment.index = Index(step=index_bytes)
    try:
        scan = Scan(file, segment.opening.end)
        for found in scan:
            if (reason := state.flaw(found.head, found.shared, found.body)) is not None:
                return _Flaw(at, found.offset, reason)
            note(segment.index, found)
    finally:
        file.close()
    return _Flaw(at, scan.end, scan.flaw) if scan.flaw is not None else None


# The torn tail


def _truncate_tail(
    directory: Path, names: Sequence[str], segments: list[Segment], state: LogState, flaw: _Flaw, disk: Disk
) -> Recovered:
    truncated_bytes = truncated_records = 0
    proven = state.synced
    for at in range(flaw.at, len(names)):
        start = flaw.offset if at == flaw.at else 0
        file = disk.open_to_read(directory / names[at])
        data = file.read(start, file.size() - start)
        file.close()
        heads = list(intact_heads(data, start))
        truncated_bytes += len(data)
        truncated_records += len(heads)
        proven = max(proven, *(head.synced for head in heads), 0)
    address = segments[flaw.at].address if flaw.at < len(segments) else _end_of(segments)
    name = names[flaw.at]
    if proven > address + flaw.offset:
        raise JournalCorruptError(name, flaw.offset, state.position, flaw.reason)
    _remove_tail(directory, names, segments, flaw, disk)
    del segments[flaw.at + (1 if flaw.offset else 0) :]
    if segments and flaw.offset:
        segments[-1].size = flaw.offset
    return Recovered(
        segments, state, Recovery(truncated_bytes, truncated_records, state.position, name, flaw.offset, flaw.reason)
    )


def _end_of(segments: Sequence[Segment]) -> int:
    return segments[-1].end_address if segments else 0


def _remove_tail(directory: Path, names: Sequence[str], segments: Sequence[Segment], flaw: _Flaw, disk: Disk) -> None:
    """Delete from the end, so that the rest is consistent at any moment."""
    first_gone = flaw.at + (1 if flaw.offset else 0)
    for name in reversed(names[first_gone:]):
        disk.remove(directory / name)
    if flaw.offset:
        file = disk.open(segments[flaw.at].path)
        try:
            file.truncate(max(flaw.offset, FILE_HEADER.size))
            file.sync()
        finally:
            file.close()
    disk.sync_directory(directory)
