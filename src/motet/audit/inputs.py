"""The inputs of an audit: journals or Parquet exports, a directory per member, and their division into splits.

A *split* is the unit that one task reads: a segment of a journal or a row group of a Parquet file. There is a
*boundary* wherever a split of any member begins or ends, and at every multiple of CHUNK. A *range* lies between two
boundaries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from motet.audit.kernels import CHUNK
from motet.errors import MotetError
from motet.log.journal.evidence import Facts, SegmentScan, StableFact, ViewFact, last_position, owners, segments_in
from motet.log.journal.reader import JournalReader

SEGMENTS, PARQUET = "*.seg", "*.parquet"
SNAPSHOT_FILES = "snapshot-*.parquet"
COLUMNS = ["position", "epoch", "view", "sender", "seqno", "sent_at", "delivered_at", "key", "payload"]
_BATCH_ROWS = CHUNK
_BATCH_BYTES = 128 << 20  # most row groups are smaller and are read whole, which is fastest
SEGMENT, RANGE = -1, -2
MOST_POSITIONS = 1 << 36  # from the first to the last of all members: there is a boundary for each CHUNK of them


class UnusableInputError(MotetError):
    """A directory that was named has nothing to audit."""


@dataclass(frozen=True, slots=True)
class InputSplit:
    member: str
    path: str
    first: int
    last: int
    row_group: int = -1  # index in a Parquet file; SEGMENT: `path` is a segment; RANGE: `path` is a journal directory

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


@dataclass(slots=True)
class MemberInput:
    name: str
    path: str
    splits: list[InputSplit] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)  # senders that this journal's process was, one life after another
    facts: Facts = field(default_factory=Facts)  # the metadata of all segments, in their order
    by_segment: dict[str, Facts] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def first(self) -> int:
        return min((split.first for split in self.splits), default=0)

    @property
    def last(self) -> int:
        return max((split.last for split in self.splits), default=0)

    @property
    def stable(self) -> int:
        return max((mark.stable for mark in self.facts.marks), default=0)

    @property
    def views(self) -> list[ViewFact]:
        """In the order in which they were installed. Segments repeat the current view; the first occurrence counts."""
        seen: dict[str, ViewFact] = {}
        for fact in self.facts.views:
            seen.setdefault(fact.view, fact)
        return list(seen.values())

    def learn(self, segment: str, facts: Facts) -> None:
        self.by_segment[segment] = facts
        self.facts.views += facts.views
        self.facts.marks += facts.marks
        self.facts.damage += facts.damage
        if facts.interrupted_at:
            self.notes.append(f"{Path(segment).name} ends inside a record at byte {facts.interrupted_at}: a torn tail")


def find_members(directories: Sequence[str]) -> tuple[list[MemberInput], list[str]]:
    """Members in the order of their names, and the errors of unusable inputs. A directory of journals means all in
    it.
    """
    found: list[MemberInput] = []
    unusable: list[str] = []
    for directory in directories:
        try:
            found += [_open(path) for path in _member_directories(Path(directory))]
        except (UnusableInputError, OSError, pa.ArrowException) as error:
            unusable.append(str(error))
    _name_apart(found)
    return sorted(found, key=lambda member: member.name), unusable


def is_journal(member: MemberInput) -> bool:
    """Whether the input is a journal, with or without rows."""
    return next(Path(member.path).glob(SEGMENTS), None) is not None


def require_some(directories: Sequence[str]) -> None:
    """Raise UnusableInputError before a JVM is started if no input can be audited."""
    said = []
    for directory in directories:
        try:
            _member_directories(Path(directory))
        except (UnusableInputError, OSError) as error:
            said.append(str(error))
        else:
            return
    raise UnusableInputError("; ".join(said))


def _member_directories(path: Path) -> list[Path]:
    if not path.exists():
        raise UnusableInputError(
            f"{path} does not exist; name directories with journals (*.seg) or exports (*.parquet)"
        )
    if path.is_file() or _kind_of(path):
        return [path]
    inside = sorted(child for child in path.iterdir() if child.is_dir() and _kind_of(child))
    if not inside:
        raise UnusableInputError(f"{path} has neither segments (*.seg) nor Parquet files, and no directory in it has")
    return inside


def _kind_of(path: Path) -> str:
    if next(path.glob(SEGMENTS), None):
        return SEGMENTS
    return PARQUET if _exports(path) else ""


def _exports(path: Path) -> list[Path]:
    """Parquet files that are exports of a log: snapshots and traces may lie beside them."""
    return sorted(file for file in path.glob(PARQUET) if not file.match(SNAPSHOT_FILES) and "trace" not in file.name)


def _open(path: Path) -> MemberInput:
    if path.is_file() or _kind_of(path) == PARQUET:
        return _open_parquet(path)
    return _open_journal(path)


def _open_journal(directory: Path) -> MemberInput:
    """Find the bounds of the segments, by name except for the last. Everything else is read by the tasks."""
    member = MemberInput(directory.name, str(directory))
    _introduce(member, directory)
    paths = segments_in(directory)
    firsts = [int(path.stem) for path in paths]
    for path, first, after in zip(paths, firsts, [*firsts[1:], None], strict=True):
        last = after - 1 if after is not None else last_position(path, first)
        if last >= first:
            member.splits.append(InputSplit(member.name, str(path), first, last))
    return member


def _introduce(member: MemberInput, directory: Path) -> None:
    """Read the file that names the owner of the segments, and the stable position at the last rollback."""
    try:
        name, member.owners, stable = owners(directory)
    except MotetError as error:
        member.notes.append(str(error))
        return
    member.name = name or member.name
    if stable:
        member.facts.marks.append(StableFact(stable, stable, str(directory), ""))


def _open_parquet(path: Path) -> MemberInput:
    member = MemberInput(path.stem if path.is_file() else path.name, str(path))
    for file in [path] if path.is_file() else _exports(path):
        member.splits += _row_groups(member.name, file)
    member.splits.sort(key=lambda split: split.first)
    return member


def _row_groups(member: str, file: Path) -> Iterator[InputSplit]:
    meta = pq.read_metadata(file)
    missing = [column for column in COLUMNS if column not in meta.schema.to_arrow_schema().names]
    if missing:
        raise UnusableInputError(f"{file} is no export of a log: it lacks {', '.join(missing)}")
    column = meta.schema.to_arrow_schema().names.index("position")
    if not pa.types.is_integer(kind := meta.schema.to_arrow_schema().field("position").type):
        raise UnusableInputError(f"{file} is no export of a log: its column position is {kind}, not a whole number")
    for group in range(meta.num_row_groups):
        statistics = meta.row_group(group).column(column).statistics
        if meta.row_group(group).num_rows and statistics is not None and statistics.has_min_max:
            yield InputSplit(member, str(file), statistics.min, statistics.max, group)


def _name_apart(members: list[MemberInput]) -> None:
    """Make the names of members unique by adding their paths."""
    names = [member.name for member in members]
    for member in members:
        if names.count(member.name) > 1:
            member.name = f"{member.name} ({member.path})"
            member.splits = [InputSplit(member.name, p.path, p.first, p.last, p.row_group) for p in member.splits]


def boundaries_of(members: Iterable[MemberInput]) -> list[int]:
    """All boundaries, ascending; the last one ends the last range."""
    splits = [split for member in members for split in member.splits]
    edges = {split.first for split in splits} | {split.last + 1 for split in splits}
    if not edges:
        return []
    low, high = min(edges), max(edges)
    if high - low > MOST_POSITIONS:
        raise UnusableInputError(
            f"positions from {low} to {high - 1} are more than one log has; leave out what is no export of this log"
        )
    return sorted(edges | set(range(-(-low // CHUNK) * CHUNK, high, CHUNK)))


def boundaries_within(boundaries: Sequence[int], split: InputSplit) -> list[int]:
    return list(boundaries[bisect_left(boundaries, split.first) : bisect_right(boundaries, split.last + 1)])


def read_split(split: InputSplit, facts: Facts | None = None, *, with_times: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of a split in their order. The metadata of a segment is added to `facts`.

    Delivery times differ between members and are rarely needed: without `with_times` they may be absent.
    """
    if split.row_group >= 0:
        yield from _read_row_group(split, [name for name in COLUMNS if with_times or name != "delivered_at"])
        return
    if split.row_group == RANGE:
        yield from JournalReader(split.path).read(split.first, split.last, _BATCH_ROWS)
        return
    walk = SegmentScan(Path(split.path))
    if facts is not None:
        walk.facts = facts
    yield from walk.rows()


def read_positions(split: InputSplit, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Only the rows at positions `first` to `last`."""
    for batch in read_split(split):
        positions = batch.column("position").to_numpy()
        picked = batch.filter(pa.array((positions >= first) & (positions <= last)))
        if picked.num_rows:
            yield picked


def _read_row_group(split: InputSplit, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in _decoded(split, columns):
        batch.validate(full=True)  # an export is untrusted input: invalid offsets must raise an error, not crash
        yield batch


def _decoded(split: InputSplit, columns: list[str]) -> Iterator[pa.RecordBatch]:
    stat = Path(split.path).stat()
    meta = _metadata(split.path, stat.st_mtime_ns, stat.st_size)
    group = meta.row_group(split.row_group)
    with pq.ParquetFile(split.path, metadata=meta, read_dictionary=["view", "sender"]) as file:
        if group.total_byte_size <= _BATCH_BYTES:
            yield from file.read_row_group(split.row_group, columns, use_threads=False).to_batches()
            return
        rows = max(1024, group.num_rows * _BATCH_BYTES // group.total_byte_size)
        yield from file.iter_batches(rows, row_groups=[split.row_group], columns=columns, use_threads=False)


@lru_cache(maxsize=16)
def _metadata(path: str, _changed_at: int, _size: int) -> pq.FileMetaData:
    """Metadata of the current file. Cached: reading it takes as long as a small row group, of which a task reads
    many.
    """
    return pq.read_metadata(path)
