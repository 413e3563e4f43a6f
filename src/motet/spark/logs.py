"""The log as Spark reads it: offsets and ranges of stable rows, from the journals of members or from their services.

Whatever serves a row, the same position is the same row, so a reader goes on at the exact position with the next member
when one fails. Every batch is checked for that: it must begin where the last one ended and have no hole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from motet.errors import JournalCorruptError, MotetError
from motet.spark.options import SourceOptions

if TYPE_CHECKING:
    from motet.log.journal.reader import JournalReader

MOST_KEPT = 64  # readers of a thread; each keeps an index of what it has walked along


class LogUnreadableError(MotetError):
    """No member has what was asked for; the text says what each of them said."""

    retryable = True


class StartTrimmedError(MotetError):
    """Retention has removed positions that were asked for."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What can be read now: `first` to `stable`, in the primary view number `epoch`. Empty when stable < first."""

    first: int
    stable: int
    epoch: int


class ReadableLog(Protocol):
    def extent(self) -> Extent: ...

    def starts(self) -> list[int]:
        """Positions at which a read begins without looking for its place; ascending."""

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


def open_log(options: SourceOptions) -> ReadableLog:
    if options.path:
        return JournalLog(options.path)
    return ServiceLog(options.members, options.token, options.tls_roots)


def check_start(position: int, extent: Extent) -> None:
    if position >= extent.first:
        return
    raise StartTrimmedError(
        f"position {position} was asked for, but the log begins at {extent.first}: retention has removed what was "
        f"before. There are {_range(extent)}. What to do: read what exists with option start=earliest (a streaming "
        f"query needs a new checkpoint for it, and misses positions {position} to {extent.first - 1}), or name a "
        f"member or a journal that still holds them in the options members or path. To keep it from happening again: "
        f"longer retention, or a query that runs more often."
    )


def _range(extent: Extent) -> str:
    if extent.stable < extent.first:
        return "no stable positions yet"
    return f"positions {extent.first} to {extent.stable}"


class ServiceLog:
    """The log services of members; the client does the failing over."""

    def __init__(self, members: Sequence[str], token: str | None, tls_roots: str | None) -> None:
        from motet.log.service.client import LogClient  # not needed for journals, and takes a while to load

        roots = Path(tls_roots).read_bytes() if tls_roots else None
        self._client = LogClient(list(members), token=token, tls_roots=roots)

    def extent(self) -> Extent:
        offsets = self._client.offsets()
        return Extent(offsets.first, offsets.stable, offsets.epoch)

    def starts(self) -> list[int]:
        return []

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from self._client.read(first, last, batch_rows=batch_rows)

    def close(self) -> None:
        self._client.close()


class JournalLog:
    """Journals of several members as one log. Of each only the stable part counts: the rest may yet be taken back."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = tuple(directories)

    def extent(self) -> Extent:
        found = list(self._extents({}))
        if not found:
            raise LogUnreadableError(f"no journal can be read in {', '.join(self._directories)}: {self._why({})}")
        first = min(extent.first for _, extent in found)
        return Extent(first, max(extent.stable for _, extent in found), max(extent.epoch for _, extent in found))

    def starts(self) -> list[int]:
        """Of the journal that a read tries first."""
        for directory, _ in self._extents({}):
            return [segment.first for segment in _reader_of(directory).segments()]
        return []

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        position = first
        while position <= last:
            reached = position
            failures: dict[str, str] = {}
            for directory in self._holders(position, last, failures):
                try:
                    for batch in self._read_one(directory, reached, last, batch_rows):
                        reached += batch.num_rows
                        yield batch
                except (OSError, MotetError, pa.ArrowException) as error:
                    _forget(directory)  # it may have seen half of something
                    failures[directory] = str(error)
                if reached > position:
                    break
            if reached == position:
                raise LogUnreadableError(f"no journal can give position {position}: {self._why(failures)}")
            position = reached

    def close(self) -> None:
        pass

    def _read_one(self, directory: str, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        reader = _reader_of(directory)
        last = last if reader.is_stable(last) else min(last, reader.bounds().stable)
        try:
            for batch in reader.read(first, last, batch_rows=batch_rows):
                check_batch(batch, first, directory)
                first += batch.num_rows
                yield batch
        except JournalCorruptError as error:
            yield from reader.read(first, error.position, batch_rows=batch_rows)  # what is good before the damage
            raise

    def _holders(self, position: int, last: int, failures: dict[str, str]) -> list[str]:
        """Journals that reach to the last position come first: then a range rarely needs a second one."""
        holders = []
        for directory in self._directories:
            try:
                reader = _reader_of(directory)
                if reader.first <= position and reader.is_stable(position):
                    holders.append((not reader.is_stable(last), directory))
                else:
                    bounds = reader.bounds()
                    failures[directory] = f"has {_range(Extent(bounds.first, bounds.stable, bounds.epoch))}"
            except (OSError, MotetError) as error:
                failures[directory] = str(error)
        return [directory for _, directory in sorted(holders, key=lambda one: one[0])]

    def _extents(self, failures: dict[str, str]) -> Iterator[tuple[str, Extent]]:
        for directory in self._directories:
            try:
                bounds = _reader_of(directory).bounds()
            except (OSError, MotetError) as error:
                failures[directory] = str(error)
            else:
                yield directory, Extent(bounds.first, bounds.stable, bounds.epoch)

    def _why(self, failures: dict[str, str]) -> str:
        if not failures:
            list(self._extents(failures))
        return "; ".join(f"{directory}: {said}" for directory, said in failures.items())


_kept = threading.local()  # a reader is for one thread


def _reader_of(directory: str) -> JournalReader:
    """One that knows its way already, if this process has read here before: a worker does task after task."""
    from motet.log.journal.reader import JournalReader  # not needed for services, and takes a while to load

    readers: dict[str, JournalReader] = _kept.__dict__.setdefault("readers", {})
    reader = readers.pop(directory, None) or JournalReader(directory)
    readers[directory] = reader
    while len(readers) > MOST_KEPT:
        del readers[next(iter(readers))]
    return reader


def _forget(directory: str) -> None:
    _kept.__dict__.get("readers", {}).pop(directory, None)


def check_batch(batch: pa.RecordBatch, first: int, who: str) -> None:
    """A batch has the positions from `first` on, without a hole: looked at by its ends, and by the sum in between."""
    positions = batch.column("position").to_numpy()
    last = first + len(positions) - 1
    if positions[0] != first or positions[-1] != last or int(positions.sum()) != (first + last) * len(positions) // 2:
        raise LogUnreadableError(
            f"{who} gave positions {positions[0]} to {positions[-1]} in {len(positions)} rows where {first} to {last} "
            f"were due; run `motet audit` on it"
        )
