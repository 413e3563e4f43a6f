"""What a task computes over the rows of one piece of a journal: per cell of positions a digest, faults and streams.

A *cell* is a range of positions that begins at one of the `cuts`. The cuts are the same for all members (multiples of
CHUNK, and every place where some member's piece begins or ends), so two members that hold a cell hold all of it, and
their digests can be compared. A digest sees order and content: two cells have the same one if they have the same rows
at the same positions. What differs from member to member by nature, the time of delivery, is not in it.

Everything here works on whole columns. Rows of one frame share view, sender, seqno and time of sending, so those are
looked at once per *run* of rows, not once per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from motet.spark.guarantees import FIFO, INTEGRITY, NO_DUPLICATES, NO_GAPS, TOTAL_ORDER

Ints = NDArray[np.int64]

CHUNK = 1 << 16
MOST_FAULTS = 8  # told of one cell: the first ones matter
BINS_PER_OCTAVE = 4
LATENCY_BINS = 32 * BINS_PER_OCTAVE  # in microseconds: the last one begins after an hour


class Fault(NamedTuple):
    """Something wrong with one member's rows on their own."""

    check: str
    kind: str
    position: int
    expected: str
    found: str


class Stream(NamedTuple):
    """What one cell has of one sender in one view."""

    view: str
    sender: str
    epoch: int
    rows: int
    first_position: int
    last_position: int
    first_seqno: int
    last_seqno: int


class Second(NamedTuple):
    """What was delivered in one second: for rates and latencies."""

    second: int
    rows: int
    bytes: int
    latency: list[int]  # counts per bin, see latency_of_bin


@dataclass(slots=True)
class CellSummary:
    first: int
    last: int
    rows: int
    digest: bytes
    faults: list[Fault]
    streams: list[Stream]
    seconds: list[Second]


@dataclass(slots=True)
class Columns:
    """The rows of one cell, as far as they have come. Strings are codes into `Names`."""

    position: list[Ints] = field(default_factory=list)
    epoch: list[Ints] = field(default_factory=list)
    view: list[Ints] = field(default_factory=list)
    sender: list[Ints] = field(default_factory=list)
    seqno: list[Ints] = field(default_factory=list)
    sent_at: list[Ints] = field(default_factory=list)
    delivered_at: list[Ints] = field(default_factory=list)
    key: list[pa.Array] = field(default_factory=list)
    payload: list[pa.Array] = field(default_factory=list)


class Names:
    """Codes for the strings of a column: a dictionary that grows, however the batches are encoded."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        found = self._codes.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found

    def codes(self, column: pa.Array) -> Ints:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        table = np.array([self.code(text) for text in encoded.dictionary.to_pylist()], dtype=np.int64)
        return table[encoded.indices.to_numpy()] if len(table) else np.zeros(0, np.int64)


def summaries(
    batches: Iterable[pa.RecordBatch], cuts: Sequence[int], *, with_times: bool = False
) -> Iterator[CellSummary]:
    """Summaries of the cells that the rows fall into, in the order of the rows. `cuts` ascend; the last is the end."""
    gathering = _Gathering(np.asarray(cuts, dtype=np.int64), with_times)
    for batch in batches:
        if batch.num_rows:
            yield from gathering.add(batch)
    yield from gathering.finish()


class _Gathering:
    """Cuts batches into cells; a cell is summed up when a row of another cell comes."""

    def __init__(self, cuts: Ints, with_times: bool) -> None:
        self._cuts = cuts
        self._with_times = with_times
        self._views, self._senders = Names(), Names()
        self._cell: int | None = None
        self._columns = Columns()

    def add(self, batch: pa.RecordBatch) -> Iterator[CellSummary]:
        positions = _ints(batch.column("position"))
        cells = np.searchsorted(self._cuts, positions[[0, -1]], side="right") - 1
        if cells[0] == cells[1] and (len(positions) < 2 or _is_ascending(positions)):
            starts = [0]
        else:
            every = np.searchsorted(self._cuts, positions, side="right") - 1
            starts = [0, *(np.flatnonzero(np.diff(every)) + 1).tolist()]
        ends = [*starts[1:], len(positions)]
        views, senders = self._views.codes(batch.column("view")), self._senders.codes(batch.column("sender"))
        for start, end in zip(starts, ends, strict=True):
            cell = int(np.searchsorted(self._cuts, positions[start], side="right")) - 1
            if cell != self._cell:
                yield from self.finish()
                self._cell = cell
            self._keep(batch.slice(start, end - start), positions[start:end], views[start:end], senders[start:end])

    def _keep(self, rows: pa.RecordBatch, positions: Ints, views: Ints, senders: Ints) -> None:
        kept = self._columns
        kept.position.append(positions)
        kept.view.append(views)
        kept.sender.append(senders)
        kept.epoch.append(_ints(rows.column("epoch")))
        kept.seqno.append(_ints(rows.column("seqno")))
        kept.sent_at.append(_ints(rows.column("sent_at")))
        kept.key.append(rows.column("key"))
        kept.payload.append(rows.column("payload"))
        if self._with_times:
            kept.delivered_at.append(_ints(rows.column("delivered_at")))

    def finish(self) -> Iterator[CellSummary]:
        if self._cell is None:
            return
        cell, columns = self._cell, self._columns
        self._cell, self._columns = None, Columns()
        first = int(self._cuts[max(cell, 0)])
        last = int(self._cuts[cell + 1]) - 1 if cell + 1 < len(self._cuts) else int(columns.position[-1].max())
        yield _summed_up(first, last, columns, self._views.texts, self._senders.texts)


def _summed_up(first: int, last: int, columns: Columns, views: list[str], senders: list[str]) -> CellSummary:
    positions = np.concatenate(columns.position)
    runs = _runs(columns)
    faults = [*_position_faults(positions, first, last), *_run_faults(runs, views, senders)]
    return CellSummary(
        first=first,
        last=last,
        rows=len(positions),
        digest=_digest(positions, runs, columns, views, senders),
        faults=sorted(faults, key=lambda fault: fault.position)[:MOST_FAULTS],
        streams=_streams(runs, views, senders),
        seconds=_seconds(columns) if columns.delivered_at else [],
    )


@dataclass(slots=True)
class _Runs:
    """Runs of rows that came in one frame."""

    index: Ints  # of the first row in the cell
    length: Ints
    position: Ints
    last_position: Ints
    epoch: Ints
    view: Ints
    sender: Ints
    seqno: Ints
    sent_at: Ints


def _runs(columns: Columns) -> _Runs:
    parts = [
        np.concatenate(part) for part in (columns.epoch, columns.view, columns.sender, columns.seqno, columns.sent_at)
    ]
    changes = np.zeros(len(parts[0]), dtype=bool)
    changes[0] = True
    for part in parts:
        changes[1:] |= part[1:] != part[:-1]
    index = np.flatnonzero(changes).astype(np.int64)
    ends = np.append(index[1:], len(changes))
    positions = np.concatenate(columns.position)
    return _Runs(index, ends - index, positions[index], positions[ends - 1], *(part[index] for part in parts))


def _position_faults(positions: Ints, first: int, last: int) -> Iterator[Fault]:
    if len(positions) == last - first + 1 and positions[0] == first and _is_ascending(positions):
        return
    around = np.concatenate(([first - 1], positions, [last + 1]))
    for index in np.flatnonzero(np.diff(around) != 1)[:MOST_FAULTS].tolist():
        before, after = int(around[index]), int(around[index + 1])
        if after > before + 1:
            missing = f"{before + 1} to {after - 1}" if after - before > 2 else str(before + 1)
            after_text = f"{after} follows {before}" if index < len(positions) else f"nothing follows {before}"
            yield Fault(NO_GAPS, "missing", before + 1, f"position {missing}", after_text)
        elif after == before:
            yield Fault(NO_DUPLICATES, "position twice", after, f"position {before + 1}", f"position {after} again")
        else:
            yield Fault(TOTAL_ORDER, "positions go back", after, f"position {before + 1}", f"position {after}")


def _run_faults(runs: _Runs, views: list[str], senders: list[str]) -> Iterator[Fault]:
    for index in (np.flatnonzero(np.diff(runs.epoch) < 0) + 1)[:MOST_FAULTS].tolist():
        expected = f"a view of epoch {runs.epoch[index - 1]} or later"
        yield Fault(TOTAL_ORDER, "views go back", int(runs.position[index]), expected, views[runs.view[index]])
    stream = runs.view * len(senders) + runs.sender
    order = np.argsort(stream, kind="stable")
    same = np.diff(stream[order]) == 0
    step = np.diff(runs.seqno[order])
    for place in np.flatnonzero(same & (step <= 0))[:MOST_FAULTS].tolist():
        yield _stream_fault(runs, int(order[place]), int(order[place + 1]), senders)


def _stream_fault(runs: _Runs, before: int, after: int, senders: list[str]) -> Fault:
    sender, seqno, earlier = senders[runs.sender[after]], int(runs.seqno[after]), int(runs.seqno[before])
    return stream_fault(sender, earlier, int(runs.last_position[before]), seqno, int(runs.position[after]))


def stream_fault(sender: str, earlier: int, at: int, seqno: int, position: int) -> Fault:
    """Of two neighbours in one sender's stream of a view, of which the second does not come later in it."""
    found = f"{sender}'s frame {seqno} after its frame {earlier} at position {at}"
    if seqno < earlier:
        return Fault(FIFO, "sender's order broken", position, f"{sender}'s frames in the order they were sent", found)
    if position == at + 1:
        return Fault(
            INTEGRITY, "frame torn", position, f"one time of sending for {sender}'s frame {seqno}", "two times"
        )
    return Fault(NO_DUPLICATES, "frame twice", position, f"a frame of {sender} later than {earlier}", found)


def _streams(runs: _Runs, views: list[str], senders: list[str]) -> list[Stream]:
    stream = runs.view * len(senders) + runs.sender
    order = np.argsort(stream, kind="stable")
    starts = np.append(0, np.flatnonzero(np.diff(stream[order])) + 1)
    ends = np.append(starts[1:], len(order))
    rows = np.add.reduceat(runs.length[order], starts)
    found = []
    for start, end, count in zip(starts.tolist(), ends.tolist(), rows.tolist(), strict=True):
        one, last = order[start], order[end - 1]
        names = (views[runs.view[one]], senders[runs.sender[one]], int(runs.epoch[one]))
        places = (int(runs.position[one]), int(runs.last_position[last]))
        found.append(Stream(*names, count, *places, int(runs.seqno[one]), int(runs.seqno[last])))
    return found


def _digest(positions: Ints, runs: _Runs, columns: Columns, views: list[str], senders: list[str]) -> bytes:
    whole = sha256()
    if not _is_ascending(positions):
        whole.update(positions.tobytes())
    whole.update(positions[:1].tobytes())
    for part in (runs.index, runs.epoch, runs.seqno, runs.sent_at):
        whole.update(part.tobytes())
    for codes, texts in ((runs.view, views), (runs.sender, senders)):
        table = np.array([_name_hash(text) for text in texts], dtype=np.uint64)
        whole.update(table[codes].tobytes())
    for column in (columns.key, columns.payload):
        _digest_binary(whole, column)
    return whole.digest()


def _digest_binary(whole: Any, pieces: Sequence[pa.Array]) -> None:
    """Lengths (-1 for none), then bytes: the same however the rows were cut into batches."""
    lengths, texts = zip(*(lengths_and_bytes(piece) for piece in pieces), strict=True)
    for length in lengths:
        whole.update(length)
    for text in texts:
        whole.update(text)


def lengths_and_bytes(column: pa.Array) -> tuple[NDArray[np.int32], memoryview]:
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    _, offsets_buffer, data = column.buffers()
    count = len(column)
    if column.null_count == count or data is None:
        return np.where(np.asarray(column.is_null()), -1, 0).astype(np.int32), memoryview(b"")
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, column.offset * 4)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[np.asarray(column.is_null())] = -1
    return lengths, memoryview(data)[int(offsets[0]) : int(offsets[-1])]


@lru_cache(maxsize=4096)
def _name_hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _seconds(columns: Columns) -> list[Second]:
    delivered = np.concatenate(columns.delivered_at)
    latency = np.maximum(delivered - np.concatenate(columns.sent_at), 1)
    bins = np.minimum((np.log2(latency) * BINS_PER_OCTAVE).astype(np.int64), LATENCY_BINS - 1)
    sizes = np.concatenate([lengths_and_bytes(piece)[0] for piece in columns.payload])
    second = delivered // 1_000_000
    found = []
    for value in np.unique(second).tolist():
        here = second == value
        counts = np.bincount(bins[here], minlength=LATENCY_BINS)
        found.append(Second(value, int(here.sum()), int(sizes[here].sum()), counts.tolist()))
    return found


def latency_of_bin(index: float) -> float:
    """The latency in microseconds at which a bin begins."""
    return float(2.0 ** (index / BINS_PER_OCTAVE))


def _ints(column: pa.Array) -> Ints:
    """A column of numbers or times as int64, without copying."""
    if not pa.types.is_int64(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return column.to_numpy()  # type: ignore[no-any-return]


def _is_ascending(positions: Ints) -> bool:
    """By exactly one each: looked at without a second array of the same length where possible."""
    return bool(positions[-1] - positions[0] == len(positions) - 1 and (np.diff(positions) == 1).all())
