"""Access to the log for Spark: extents and ranges of stable rows, from journals or from the log services of members.

A position is the same row at every member, so a reader that fails over to the next member continues at the exact
position. Every batch is checked: it must begin where the previous one ended and have no gap.
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

MOST_KEPT = 64  # readers per thread; each caches an index of what it has read


class LogUnreadableError(MotetError):
    """No member can serve the requested positions; the text has the answer of each."""

    retryable = True


class StartTrimmedError(MotetError):
    """Retention has removed requested positions."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The readable positions: `first` to `stable`, in the primary view `epoch`. Empty if stable < first."""

    first: int
    stable: int
    epoch: int


class ReadableLog(Protocol):
    def extent(self) -> Extent: ...

    def starts(self) -> list[int]:
        """Ascending positions at which a read can begin without searching."""

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
    """The log through the log services of members; the client fails over between them."""

    def __init__(self, members: Sequence[str], token: str | None, tls_roots: str | None) -> None:
        from motet.log.service.client import LogClient  # imported lazily: journals do not need it, and it loads slowly

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
    """Journals of several members as one log. Only stable positions are read; later ones may be rolled back."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = tuple(directories)

    def extent(self) -> Extent:
        found = list(self._extents({}))
        if not found:
            raise LogUnreadableError(f"no journal can be read in {', '.join(self._directories)}: {self._why({})}")
        first = min(extent.first for _, extent in found)
        return Extent(first, max(extent.stable for _, extent in found), max(extent.epoch for _, extent in found))

    def starts(self) -> list[int]:
        """The first positions of the segments of the journal that is read first."""
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
                    _forget(directory)  # the reader may have cached an incomplete state
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
            yield from reader.read(first, error.position, batch_rows=batch_rows)  # the valid rows before the damage
            raise

    def _holders(self, position: int, last: int, failures: dict[str, str]) -> list[str]:
        """Journals that contain `position`, those that also contain `last` first, so that one of them mostly
        suffices.
        """
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


_kept = threading.local()  # a reader must not be shared between threads


def _reader_of(directory: str) -> JournalReader:
    """The cached reader of this thread, so that later tasks of a worker reuse its index."""
    from motet.log.journal.reader import JournalReader  # imported lazily: services do not need it, and it loads slowly

    readers: dict[str, JournalReader] = _kept.__dict__.setdefault("readers", {})
    reader = readers.pop(directory, None) or JournalReader(directory)
    readers[directory] = reader
    while len(readers) > MOST_KEPT:
        del readers[next(iter(readers))]
    return reader


def _forget(directory: str) -> None:
    _kept.__dict__.get("readers", {}).pop(directory, None)


def check_batch(batch: pa.RecordBatch, first: int, who: str) -> None:
    """Check that a batch has consecutive positions from `first` on, by its first and last position and their sum."""
    positions = batch.column("position").to_numpy()
    last = first + len(positions) - 1
    if positions[0] != first or positions[-1] != last or int(positions.sum()) != (first + last) * len(positions) // 2:
        raise LogUnreadableError(
            f"{who} gave positions {positions[0]} to {positions[-1]} in {len(positions)} rows where {first} to {last} "
            f"were expected; run `motet audit` on it"
        )
