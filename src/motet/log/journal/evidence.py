"""Segments as an auditor reads them: everything that is there, also where it should not be.

The journal's reader refuses what does not fit together; an auditor wants to say what exactly does not fit. So a segment
is indexed record by record. Rows come out with the positions that the records claim; views, marks of stability and
damage are noted in passing. A record whose body is damaged is passed over, since the next one can still be found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from motet.errors import JournalError
from motet.log.journal import owner
from motet.log.journal.columns import FrameRows, RowBatch
from motet.log.journal.disk import RealDisk
from motet.log.journal.reader import JournalReader
from motet.log.journal.records import INCOMPLETE, VIEW_FIELDS, HashChain, RecordKind
from motet.log.journal.scan import DAMAGED_BODY, Opening, Readable, Scan, ScannedRecord, read_opening
from motet.log.journal.segments import segment_names
from motet.protocol.core.view import ViewId
from motet.protocol.wire.fields import U64, MalformedError, Reader

BATCH_ROWS = 1 << 16
_DISK = RealDisk()


@dataclass(frozen=True, slots=True)
class ViewFact:
    """A member entered this view after `position`."""

    view: str
    epoch: int
    position: int
    members: tuple[str, ...]  # as senders are written; empty when the source does not say
    at_us: int
    is_primary: bool = True
    is_repeated: bool = False  # at the head of a segment, of the view that was entered in an earlier one


@dataclass(frozen=True, slots=True)
class StableFact:
    """A mark in a journal: when `position` was its last one, in this view, everything to `stable` was stable."""

    position: int
    stable: int
    where: str
    view: str


@dataclass(frozen=True, slots=True)
class Damage:
    position: int  # the last one before it
    where: str
    reason: str


@dataclass(slots=True)
class Facts:
    """What a segment has beside its rows."""

    views: list[ViewFact] = field(default_factory=list)
    marks: list[StableFact] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    interrupted_at: int = 0  # byte at which the file ends inside a record
    address: int = -1  # bytes of the journal before this segment, as it says itself
    size: int = 0
    chain_before: str = ""  # the chained hash that it goes on from
    chain: str = ""  # and at its end
    owner: str = ""  # who wrote it, as senders are written; empty where it does not say

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Facts:
        fields = json.loads(text)
        views = [ViewFact(**one | {"members": tuple(one["members"])}) for one in fields.pop("views")]
        marks = [StableFact(**one) for one in fields.pop("marks")]
        return cls(views, marks, [Damage(**one) for one in fields.pop("damage")], **fields)


def segments_in(directory: Path) -> list[Path]:
    return [directory / name for name in sorted(segment_names(_DISK.names(directory)))]


def owners(directory: Path) -> tuple[str, list[str], int]:
    """The name of the member, all its lives as senders are written, and what was stable before a rollback."""
    known = owner.load(directory, _DISK)
    if known.address is None:
        return "", [], known.stable
    lives = [f"{known.address.name}#{one:016x}" for one in (*known.past_incarnations, known.address.incarnation)]
    return known.address.name, lives, known.stable


def last_position(path: Path, first: int) -> int:
    """Of a segment, by the heads of its records. `first` where it cannot be read, so that somebody looks at it."""
    file = _DISK.open_to_read(path)
    try:
        opening = read_opening(file)
        if isinstance(opening, str):
            return first
        last = opening.head.position - 1
        for found in Scan(file, opening.end, heads_only=True):
            last = max(last, found.head.last if found.head.kind == RecordKind.FRAME else last)
        return last
    finally:
        file.close()


class SegmentScan(JournalReader):
    """The rows of one segment, and in `facts` what else was in it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self._path = path
        self._position = 0  # the last one met
        self._view = ""
        self.facts = Facts()

    def rows(self) -> Iterator[pa.RecordBatch]:
        names = self._names()
        names = names[: names.index(self._path.name) + 1]
        file = _DISK.open_to_read(self._path)
        try:
            opening = read_opening(file)
            if isinstance(opening, str):
                self._note_damage(int(self._path.stem) - 1, opening)
                return
            self._open(opening)
            yield from self._batches(self._records(file, opening), names)
            self.facts.size = file.size()
        finally:
            file.close()

    def _open(self, opening: Opening) -> None:
        state = opening.state
        self._position = opening.head.position - 1
        self.facts.address = state.address
        self.facts.chain_before = opening.head.chain.hex()
        self.facts.owner = owner.in_full(state.owner) if state.owner is not None else ""
        if state.view is not None:
            self._learn(state.view)
            self._view = _view_text(state.view.id)
            names = tuple(owner.in_full(member) for member in state.view.members)
            self.facts.views.append(
                ViewFact(
                    self._view, state.epoch.number, self._position, names, opening.head.at // 1000, is_repeated=True
                )
            )
        self._mark(state.stable)

    def _records(self, file: Readable, opening: Opening) -> Iterator[ScannedRecord]:
        """All records that are whole, in the order of the file; the chained hash is checked along the way."""
        offset, chain = opening.end, HashChain(opening.head.chain, opening.state.begun)
        while True:
            scan = Scan(file, offset)
            for found in scan:
                chain = self._follow(chain, found)
                yield found
            if scan.flaw is None:
                break
            offset = self._beyond(file, scan)
            if not offset:
                break
        self.facts.chain = chain.value.hex()

    def _beyond(self, file: Readable, scan: Scan) -> int:
        """Where to go on behind damage; 0 for nowhere. A record that the file's end cuts off is no damage."""
        if scan.flaw == DAMAGED_BODY:
            head = next(iter(Scan(file, scan.end, heads_only=True))).head
            self._note_damage(head.position - 1, f"{scan.flaw} (byte {scan.end}, {head.messages} messages)")
            return scan.end + head.size
        if scan.flaw == INCOMPLETE:
            self.facts.interrupted_at = scan.end
        else:
            self._note_damage(self._position, f"{scan.flaw} (byte {scan.end}); nothing behind it can be read")
        return 0

    def _follow(self, chain: HashChain, found: ScannedRecord) -> HashChain:
        head = found.head
        if head.kind == RecordKind.VIEW:
            chain.begun.clear()
        if head.kind == RecordKind.FRAME and chain.take(head.sender, head.messages, found.shared) != head.chain:
            reason = "the chained hash does not continue: a frame is missing, doubled, moved or another"
            self._note_damage(head.position - 1, f"{reason} (byte {found.offset})")
            return HashChain(head.chain)
        return chain

    def _batches(self, records: Iterator[ScannedRecord], names: list[str]) -> Iterator[pa.RecordBatch]:
        batch = RowBatch()
        due = 0
        begun: dict[int, list[bytes]] = {}
        for found in records:
            frame = self._taken(found, names, begun)
            if frame is None:
                continue
            if batch.frames and (frame.first != due or not batch.fits(frame, BATCH_ROWS)):
                yield batch.build(self._senders, is_encoded=True)  # which numbers its rows from the first one on
                batch = RowBatch()
            batch.add(frame)
            due = frame.first + frame.rows
            self._position = due - 1
        if batch.frames:
            yield batch.build(self._senders, is_encoded=True)

    def _taken(self, found: ScannedRecord, names: list[str], begun: dict[int, list[bytes]]) -> FrameRows | None:
        try:
            if found.head.kind == RecordKind.STABLE:
                self._mark(U64.read(Reader(bytes(found.body))))
            elif found.head.kind == RecordKind.VIEW:
                self._enter(found)
            return self._rows_of(found, names, begun)
        except (MalformedError, JournalError) as error:
            self._note_damage(found.head.position - 1, f"{error} (byte {found.offset})")
            return None

    def _enter(self, found: ScannedRecord) -> None:
        view, epoch, _ = VIEW_FIELDS.read(Reader(bytes(found.body)))
        self._view = _view_text(view.id)
        names = tuple(owner.in_full(member) for member in view.members)
        self.facts.views.append(
            ViewFact(self._view, epoch.number, found.head.position - 1, names, found.head.at // 1000, view.is_primary)
        )

    def _mark(self, stable: int) -> None:
        self.facts.marks.append(StableFact(self._position, stable, str(self._path), self._view))

    def _note_damage(self, position: int, reason: str) -> None:
        self.facts.damage.append(Damage(position, str(self._path), reason))


def _view_text(view: ViewId) -> str:
    return f"{view.number}@{view.creator:016x}"
