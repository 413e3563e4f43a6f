"""The computation of a task over one split: a digest, faults and streams per range of positions.

A *range* lies between two `boundaries`. These are the same for all members (multiples of CHUNK, and every position
where a split of any member begins or ends), so a member has all of a range or nothing of it, and digests of members can
be compared. A digest covers order and content: it is equal if the same rows are at the same positions. The delivery
time differs between members and is not covered.

All code here works on whole columns. Rows of one frame have the same view, sender, seqno and send time, so these are
processed once per *run* of rows. To find the runs, each batch is compared with itself, shifted by one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from motet.audit.digests import Digest, lengths_and_bytes
from motet.audit.guarantees import FIFO, INTEGRITY, NO_DUPLICATES, NO_GAPS, TOTAL_ORDER

Ints = NDArray[np.int64]

CHUNK = 1 << 16
MOST_FAULTS = 8  # reported per range: the first ones matter
BINS_PER_OCTAVE = 4
LATENCY_BINS = 32 * BINS_PER_OCTAVE  # in microseconds: the last one begins after an hour
ANY_KEY = bytes(16)


class RowFault(NamedTuple):
    """A fault in the rows of one member alone."""

    check: str
    kind: str
    position: int
    expected: str
    found: str


class StreamSummary(NamedTuple):
    """The rows of one sender in one view within one range."""

    view: str
    sender: str
    epoch: int
    rows: int
    first_position: int
    last_position: int
    first_seqno: int
    last_seqno: int


class Second(NamedTuple):
    """The deliveries of one second, for rates and latencies."""

    second: int
    rows: int
    bytes: int
    latency: list[int]  # counts per bin, see latency_of_bin


@dataclass(slots=True)
class RangeSummary:
    first: int
    last: int
    rows: int
    digest: bytes
    faults: list[RowFault]
    streams: list[StreamSummary]
    seconds: list[Second]


class Names:
    """Integer codes for the strings of a column, the same for all batches however they are encoded."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        found = self._codes.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found

    def codes(self, dictionary: pa.Array) -> Ints:
        return np.array([self.code(text) for text in dictionary.to_pylist()], dtype=np.int64)


@dataclass(slots=True)
class _Runs:
    """Runs of rows that arrived in one frame, as columns."""

    index: Ints  # of the first row of the run, within the range
    position: Ints
    last_position: Ints
    epoch: Ints
    view: Ints  # a code of `Names`, like the sender
    sender: Ints
    seqno: Ints
    sent_at: Ints

    @property
    def contents(self) -> tuple[Ints, ...]:
        return self.epoch, self.view, self.sender, self.seqno, self.sent_at


@dataclass(slots=True)
class _BatchSlice:
    """The rows of one batch within one range."""

    positions: Ints
    is_ascending: bool
    runs: _Runs
    key: pa.Array
    payload: pa.Array
    sent_at: Ints
    delivered_at: Ints | None


def summaries(
    batches: Iterable[pa.RecordBatch], boundaries: Sequence[int], *, key: bytes = ANY_KEY, with_times: bool = False
) -> Iterator[RangeSummary]:
    """Summaries of the ranges that contain rows, in the order of the rows. `boundaries` ascend; the last is the end.

    Only digests made with the same `key` can be compared.
    """
    collector = _RangeCollector(np.asarray(boundaries, dtype=np.int64), key, with_times)
    for batch in batches:
        if batch.num_rows:
            yield from collector.add(batch)
    yield from collector.finish()


class _RangeCollector:
    """Divides batches into ranges; a range is summarised when a row of another range arrives."""

    def __init__(self, boundaries: Ints, key: bytes, with_times: bool) -> None:
        self._boundaries = boundaries
        self._key = key
        self._with_times = with_times
        self._views, self._senders = Names(), Names()
        self._range: int | None = None
        self._slices: list[_BatchSlice] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[RangeSummary]:
        positions = _ints(batch.column("position"))
        is_ascending = _is_ascending(positions)
        starts = self._starts(positions, is_ascending)
        ends = [*starts[1:], len(positions)]
        runs = self._runs(batch, positions, starts)
        first_runs = np.searchsorted(runs.index, starts).tolist()
        end_runs = [*first_runs[1:], len(runs.index)]
        for start, end, low, high in zip(starts, ends, first_runs, end_runs, strict=True):
            range_ = self._range_of(positions[start])
            if range_ != self._range:
                yield from self.finish()
                self._range = range_
            self._slices.append(
                self._batch_slice(batch, positions, is_ascending, start, end, _runs_between(runs, low, high))
            )

    def _range_of(self, position: np.int64) -> int:
        return int(np.searchsorted(self._boundaries, position, side="right")) - 1

    def _starts(self, positions: Ints, is_ascending: bool) -> list[int]:
        """Indices of the rows that are in another range than the row before."""
        if is_ascending:
            low, high = np.searchsorted(self._boundaries, positions[[0, -1]], side="right")
            return [0, *(self._boundaries[low:high] - positions[0]).tolist()]
        ranges = np.searchsorted(self._boundaries, positions, side="right")
        return [0, *(np.flatnonzero(np.diff(ranges)) + 1).tolist()]

    def _runs(self, batch: pa.RecordBatch, positions: Ints, starts: list[int]) -> _Runs:
        """The runs of a whole batch; a run also begins wherever a range begins."""
        epoch, seqno, sent_at = (_ints(batch.column(name)) for name in ("epoch", "seqno", "sent_at"))
        view, sender = _encoded(batch.column("view")), _encoded(batch.column("sender"))
        columns = (epoch, view.indices.to_numpy(), sender.indices.to_numpy(), seqno, sent_at)
        begins = np.zeros(len(positions), dtype=bool)
        begins[starts] = True
        for column in columns:
            begins[1:] |= column[1:] != column[:-1]
        index = np.flatnonzero(begins)
        lasts = np.append(index[1:], len(positions)) - 1
        views, senders = self._views.codes(view.dictionary), self._senders.codes(sender.dictionary)
        codes = views[columns[1][index]], senders[columns[2][index]]
        return _Runs(index, positions[index], positions[lasts], epoch[index], *codes, seqno[index], sent_at[index])

    def _batch_slice(
        self, batch: pa.RecordBatch, positions: Ints, is_ascending: bool, start: int, end: int, runs: _Runs
    ) -> _BatchSlice:
        runs.index = runs.index - start
        return _BatchSlice(
            positions[start:end],
            is_ascending,
            runs,
            batch.column("key").slice(start, end - start),
            batch.column("payload").slice(start, end - start),
            _ints(batch.column("sent_at"))[start:end],
            _ints(batch.column("delivered_at"))[start:end] if self._with_times else None,
        )

    def finish(self) -> Iterator[RangeSummary]:
        if self._range is None:
            return
        range_, slices = self._range, self._slices
        self._range, self._slices = None, []
        first = int(self._boundaries[max(range_, 0)])
        last = (
            int(self._boundaries[range_ + 1]) - 1
            if range_ + 1 < len(self._boundaries)
            else int(slices[-1].positions.max())
        )
        yield _summed_up(first, last, slices, Digest(self._key), self._views.texts, self._senders.texts)


def _runs_between(runs: _Runs, low: int, high: int) -> _Runs:
    return _Runs(
        runs.index[low:high],
        runs.position[low:high],
        runs.last_position[low:high],
        *(column[low:high] for column in runs.contents),
    )


def _summed_up(
    first: int, last: int, slices: Sequence[_BatchSlice], digest: Digest, views: list[str], senders: list[str]
) -> RangeSummary:
    positions, is_ascending = _positions(slices)
    runs = _joined(slices)
    streams = _Streams(runs, len(senders))
    faults = [*_position_faults(positions, is_ascending, first, last), *_run_faults(runs, streams, views, senders)]
    _feed(digest, positions, is_ascending, runs, slices, views, senders)
    return RangeSummary(
        first=first,
        last=last,
        rows=len(positions),
        digest=digest.value(),
        faults=sorted(faults, key=lambda fault: fault.position)[:MOST_FAULTS],
        streams=streams.summed_up(len(positions), views, senders),
        seconds=_seconds(slices),
    )


def _positions(slices: Sequence[_BatchSlice]) -> tuple[Ints, bool]:
    if len(slices) == 1:
        return slices[0].positions, slices[0].is_ascending
    positions = np.concatenate([slice_.positions for slice_ in slices])
    return positions, _is_ascending(positions)


def _joined(slices: Sequence[_BatchSlice]) -> _Runs:
    """The runs of all slices; a frame that two batches share becomes one run."""
    if len(slices) == 1:
        return slices[0].runs
    offset, indices = 0, []
    for slice_ in slices:
        indices.append(slice_.runs.index + offset)
        offset += len(slice_.positions)
    index = np.concatenate(indices)
    position = np.concatenate([slice_.runs.position for slice_ in slices])
    last_position = np.concatenate([slice_.runs.last_position for slice_ in slices])
    contents = [np.concatenate(column) for column in zip(*(slice_.runs.contents for slice_ in slices), strict=True)]
    begins = np.zeros(len(index), dtype=bool)
    begins[0] = True
    for column in contents:
        begins[1:] |= column[1:] != column[:-1]
    kept = np.flatnonzero(begins)
    lasts = np.append(kept[1:], len(index)) - 1
    return _Runs(index[kept], position[kept], last_position[lasts], *(column[kept] for column in contents))


def _position_faults(positions: Ints, is_ascending: bool, first: int, last: int) -> Iterator[RowFault]:
    if is_ascending and len(positions) == last - first + 1 and positions[0] == first:
        return
    around = np.concatenate(([first - 1], positions, [last + 1]))
    for index in np.flatnonzero(np.diff(around) != 1)[:MOST_FAULTS].tolist():
        before, after = int(around[index]), int(around[index + 1])
        if after > before + 1:
            missing = f"{before + 1} to {after - 1}" if after - before > 2 else str(before + 1)
            after_text = f"{after} follows {before}" if index < len(positions) else f"nothing follows {before}"
            yield RowFault(NO_GAPS, "missing", before + 1, f"position {missing}", after_text)
        elif after == before:
            yield RowFault(NO_DUPLICATES, "position twice", after, f"position {before + 1}", f"position {after} again")
        else:
            yield RowFault(TOTAL_ORDER, "positions go back", after, f"position {before + 1}", f"position {after}")


class _Streams:
    """The runs ordered by (view, sender), and then by arrival."""

    def __init__(self, runs: _Runs, senders: int) -> None:
        self._runs = runs
        stream = runs.view * senders + runs.sender
        self.order = np.argsort(stream, kind="stable")
        self.is_same = np.diff(stream[self.order]) == 0  # whether a run is in the same stream as the one before

    def summed_up(self, rows: int, views: list[str], senders: list[str]) -> list[StreamSummary]:
        runs, order = self._runs, self.order
        lengths = np.diff(np.append(runs.index, rows))
        starts = np.append(0, np.flatnonzero(~self.is_same) + 1)
        counts = np.add.reduceat(lengths[order], starts)
        ones, lasts = order[starts], order[np.append(starts[1:], len(order)) - 1]
        return [
            StreamSummary(views[view], senders[sender], *numbers)
            for view, sender, *numbers in zip(
                runs.view[ones].tolist(),
                runs.sender[ones].tolist(),
                runs.epoch[ones].tolist(),
                counts.tolist(),
                runs.position[ones].tolist(),
                runs.last_position[lasts].tolist(),
                runs.seqno[ones].tolist(),
                runs.seqno[lasts].tolist(),
                strict=True,
            )
        ]


def _run_faults(runs: _Runs, streams: _Streams, views: list[str], senders: list[str]) -> Iterator[RowFault]:
    for index in (np.flatnonzero(np.diff(runs.epoch) < 0) + 1)[:MOST_FAULTS].tolist():
        expected = f"a view of epoch {runs.epoch[index - 1]} or later"
        yield RowFault(TOTAL_ORDER, "views go back", int(runs.position[index]), expected, views[runs.view[index]])
    order = streams.order
    step = np.diff(runs.seqno[order])
    for place in np.flatnonzero(streams.is_same & (step <= 0))[:MOST_FAULTS].tolist():
        yield _stream_fault(runs, int(order[place]), int(order[place + 1]), senders)


def _stream_fault(runs: _Runs, before: int, after: int, senders: list[str]) -> RowFault:
    sender, seqno, earlier = senders[runs.sender[after]], int(runs.seqno[after]), int(runs.seqno[before])
    return stream_fault(sender, earlier, int(runs.last_position[before]), seqno, int(runs.position[after]))


def stream_fault(sender: str, earlier: int, at: int, seqno: int, position: int) -> RowFault:
    """The fault of two neighbouring frames in a sender's stream of a view whose seqnos do not increase."""
    found = f"{sender}'s frame {seqno} after its frame {earlier} at position {at}"
    if seqno < earlier:
        return RowFault(
            FIFO, "sender's order broken", position, f"{sender}'s frames in the order they were sent", found
        )
    if position == at + 1:
        return RowFault(
            INTEGRITY, "frame torn", position, f"one time of sending for {sender}'s frame {seqno}", "two times"
        )
    return RowFault(NO_DUPLICATES, "frame twice", position, f"a frame of {sender} later than {earlier}", found)


def _feed(
    digest: Digest, positions: Ints, is_ascending: bool, runs: _Runs, slices: Sequence[_BatchSlice], views: list[str],
    senders: list[str],
) -> None:  # fmt: skip
    """Feed the digest with values that do not depend on batch boundaries or on codes."""
    digest.numbers(np.array([len(positions), len(runs.index), is_ascending, positions[0]], dtype=np.int64))
    if not is_ascending:
        digest.numbers(positions)
    for column in (runs.index, runs.epoch, runs.seqno, runs.sent_at):
        digest.numbers(column)
    digest.names(runs.view, views)
    digest.names(runs.sender, senders)
    digest.binary([slice_.key for slice_ in slices])
    digest.binary([slice_.payload for slice_ in slices])


def _seconds(slices: Sequence[_BatchSlice]) -> list[Second]:
    times = [slice_.delivered_at for slice_ in slices if slice_.delivered_at is not None]
    if not times:
        return []
    delivered = np.concatenate(times)
    latency = np.maximum(delivered - np.concatenate([slice_.sent_at for slice_ in slices]), 1)
    bins = np.minimum((np.log2(latency) * BINS_PER_OCTAVE).astype(np.int64), LATENCY_BINS - 1)
    sizes = np.maximum(np.concatenate([lengths_and_bytes(slice_.payload)[0] for slice_ in slices]), 0)
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


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _ints(column: pa.Array) -> Ints:
    """A column of numbers or times as int64, without copying."""
    if not pa.types.is_int64(column.type):
        unit = pa.timestamp("us", tz="UTC")
        column = (column if column.type == unit else column.cast(unit)).view(pa.int64())
    return column.to_numpy()  # type: ignore[no-any-return]


def _is_ascending(positions: Ints) -> bool:
    """Whether each position is the successor of the one before."""
    return bool(positions[-1] - positions[0] == len(positions) - 1 and (positions[1:] - positions[:-1] == 1).all())
