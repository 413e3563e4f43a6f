"""Reading all of a journal with no trust in it: every checksum, the chain, the positions, from one segment to the next.

Recovery reads what may be torn and a reader what it is asked for; this reads everything, and names the first record
that is bad. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from motet.errors import JournalCorruptError, JournalError
from motet.log.journal.disk import Disk, RealDisk
from motet.log.journal.owner import NAME, Owner, load
from motet.log.journal.records import RecordKind
from motet.log.journal.scan import Opening, Scan, ScannedRecord, intact_heads, read_opening
from motet.log.journal.segments import segment_names
from motet.log.journal.state import LogState
from motet.protocol.wire.body import flaw as flaw_of_body
from motet.protocol.wire.body import message_count

Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Flaw:
    """The first bad record."""

    segment: str
    offset: int
    position: int  # the last good one
    reason: str
    is_torn_tail: bool  # nothing says that it ever was on disk: opening the journal cuts it off

    def __str__(self) -> str:
        kind = "a torn tail" if self.is_torn_tail else "damage"
        return f"{kind} at byte {self.offset} of {self.segment}, after position {self.position}: {self.reason}"


@dataclass(slots=True)
class JournalVerdict:
    """What is good, up to the first flaw."""

    group: str = ""
    first: int = 1
    last: int = 0
    stable: int = 0
    epoch: int = 0
    chain: str = ""
    segments: int = 0
    records: int = 0
    frames: int = 0
    views: int = 0
    size: int = 0
    flaw: Flaw | None = None

    @property
    def is_good(self) -> bool:
        return self.flaw is None


def verify(directory: str | Path, disk: Disk | None = None, on_progress: Progress | None = None) -> JournalVerdict:
    return _Verifier(Path(directory), disk or RealDisk(), on_progress or (lambda done, total: None)).run()


class _Verifier:
    def __init__(self, directory: Path, disk: Disk, on_progress: Progress) -> None:
        self._directory = directory
        self._disk = disk
        self._on_progress = on_progress
        self._verdict = JournalVerdict()
        self._state: LogState | None = None
        self._end = 0  # address behind the last segment that was read
        self._owner, self._owner_flaw = Owner(), ""
        self._is_foreign = False  # the flaw is that a segment is another journal's

    def run(self) -> JournalVerdict:
        names = self._names()
        self._learn_owner()
        sizes = [self._size_of(name) for name in names]
        total = sum(sizes)
        for name in names:
            self._segment(name, total)
            if self._verdict.flaw is not None:
                self._classify_flaw(names)
                break
        self._finish()
        return self._verdict

    def _learn_owner(self) -> None:
        try:
            self._owner = load(self._directory, self._disk)
        except JournalCorruptError as error:
            self._owner_flaw = error.reason

    def _names(self) -> list[str]:
        try:
            names = segment_names(self._disk.names(self._directory))
        except (FileNotFoundError, NotADirectoryError):
            raise JournalError(f"{self._directory} is not there; a journal is a directory of segments") from None
        if not names:
            raise JournalError(f"{self._directory} holds no journal: there is no segment in it")
        return names

    def _size_of(self, name: str) -> int:
        file = self._disk.open_to_read(self._directory / name)
        try:
            return file.size()
        finally:
            file.close()

    def _segment(self, name: str, total: int) -> None:
        file = self._disk.open_to_read(self._directory / name)
        try:
            opening = read_opening(file)
            reason = opening if isinstance(opening, str) else self._flaw_of_opening(name, opening)
            if isinstance(opening, str) or reason is not None:
                self._note_flaw(name, 0, reason or "")
                return
            scan = Scan(file, opening.end)
            for found in scan:
                if (reason := self._flaw_of(found)) is not None:
                    self._note_flaw(name, found.offset, reason)
                    return
                self._on_progress(self._end + scan.end, total)
            if scan.flaw is not None:
                self._note_flaw(name, scan.end, scan.flaw)
                return
            self._end += scan.end
            self._verdict.segments += 1
            self._verdict.size += scan.end
        finally:
            file.close()

    def _flaw_of_opening(self, name: str, opening: Opening) -> str | None:
        head, state = opening.head, opening.state
        if name != f"{head.position:020}.seg":
            return f"it begins at position {head.position}, which is not what its name says"
        if (reason := self._owner.flaw_of(state.owner)) is not None:
            self._is_foreign = True
            return reason
        self._verdict.records += 1
        if self._state is None:
            self._state = LogState.begin(state, head)
            self._end = state.address
            self._verdict.group, self._verdict.first = state.group, head.position
            self._verdict.views = int(state.view is not None)
            return None
        known = self._state
        if (head.position, head.chain, state.group) != (known.position + 1, known.chain.value, known.group):
            return f"it begins at position {head.position} and does not continue the one before"
        if state.address != self._end:
            return f"it begins at byte {state.address} of the journal, and the one before ends at {self._end}"
        if (state.view, tuple(sorted(known.chain.begun.items()))) != (known.view, state.begun):
            return "what it says of the view and of unfinished messages is not what came before"
        return None

    def _flaw_of(self, found: ScannedRecord) -> str | None:
        assert self._state is not None
        if (reason := self._state.flaw(found.head, found.shared, found.body)) is not None:
            return reason
        self._verdict.records += 1
        self._verdict.views += found.head.kind == RecordKind.VIEW
        if found.head.kind != RecordKind.FRAME:
            return None
        self._verdict.frames += 1
        body = bytes(found.body)
        if (fault := flaw_of_body(body)) is not None:
            return f"a frame that is none: {fault}"
        if message_count(body) != found.head.messages:
            return f"{found.head.messages} messages are said to end in a frame, and {message_count(body)} do"
        return None

    def _note_flaw(self, name: str, offset: int, reason: str) -> None:
        position = self._state.position if self._state is not None else int(name.partition(".")[0]) - 1
        self._verdict.flaw = Flaw(name, offset, position, reason, is_torn_tail=True)

    def _classify_flaw(self, names: list[str]) -> None:
        """It is damage, and no torn tail, if what follows says that it was on disk."""
        flaw = self._verdict.flaw
        assert flaw is not None
        proven = self._state.synced if self._state is not None else 0
        for name in names[names.index(flaw.segment) :]:
            file = self._disk.open_to_read(self._directory / name)
            start = flaw.offset if name == flaw.segment else 0
            proven = max(proven, *(head.synced for head in intact_heads(file.read(start, file.size()), start)), 0)
            file.close()
        is_torn = proven <= self._end + flaw.offset and not self._is_foreign
        self._verdict.flaw = Flaw(flaw.segment, flaw.offset, flaw.position, flaw.reason, is_torn)

    def _finish(self) -> None:
        verdict, state = self._verdict, self._state
        if state is not None:
            verdict.last, verdict.stable, verdict.epoch = state.position, state.stable, state.epoch.number
            verdict.chain = state.chain.value.hex()
        if self._owner_flaw:
            verdict.flaw = verdict.flaw or Flaw(NAME, 0, verdict.last, self._owner_flaw, is_torn_tail=False)
