"""How fast the journal takes the log and gives it back, beside the plain way of doing either.

    append   `Journal.append` and `sync`, beside `write` of the same frames and `fdatasync` at the same moments
    read     `JournalReader.read` into Arrow batches, beside pyarrow reading the same rows from a Parquet file

Rounds of both kinds alternate, so that both see the same machine, and each ratio is taken from neighbours. Writing is
measured by the clock on the wall, for a disk works while the processor waits; reading comes from the operating system's
cache, and is measured in processor time as well. Frames are ready before the clock starts: making them is not the
journal's work. What is read is checked once, before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import monotonic_ns, process_time_ns

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from motet.log.journal import Entry, Fsync, Journal, JournalConfig, JournalReader
from motet.log.journal.schema import LOG_SCHEMA
from motet.log.journal.synthetic import write_journal
from motet.protocol.core.identity import Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.wire.body import pack

ROUNDS = 7
FRAME_BYTES = 60_000
FRAMES_PER_APPEND = 16  # what one wake-up of a driver brings
APPENDS_PER_SYNC = 4  # with Fsync.ALWAYS: while one sync runs, what arrives waits for the next
SENDER = Address("bench", "127.0.0.1", 7800, 1)
VIEW = View(ViewId(1, 1), (SENDER,), is_primary=True)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table; rates are medians."""

    what: str
    size: int
    messages_per_s: float
    mb_per_s: float
    plain_mb_per_s: float
    times_plain: float  # time taken, as a multiple of that of the plain way
    times_plain_cpu: float


@dataclass(frozen=True, slots=True)
class Spent:
    wall: int
    cpu: int

    @classmethod
    def by(cls, work: Callable[[], object]) -> Spent:
        wall, cpu = monotonic_ns(), process_time_ns()
        work()
        return cls(monotonic_ns() - wall, process_time_ns() - cpu)


def line_of(what: str, size: int, rows: int, ours: Sequence[Spent], plain: Sequence[Spent], by_cpu: bool) -> Line:
    def seconds(spent: Spent) -> float:
        return (spent.cpu if by_cpu else spent.wall) / SECOND

    mine, theirs = median(map(seconds, ours)), median(map(seconds, plain))
    pairs = list(zip(ours, plain, strict=True))
    return Line(
        what,
        size,
        rows / mine,
        rows * size / mine / 1e6,
        rows * size / theirs / 1e6,
        median(seconds(one) / seconds(other) for one, other in pairs),
        median(one.cpu / max(1, other.cpu) for one, other in pairs),
    )


# Appending


def entries_of(size: int, total_bytes: int) -> list[Entry]:
    per_frame = FRAME_BYTES // (size + 4)
    bodies = [pack([os.urandom(size) for _ in range(per_frame)]) for _ in range(32)]  # more than a cache holds
    count = total_bytes // (per_frame * size)
    return [
        Entry(1 + at * per_frame, per_frame, SENDER, at + 1, at, at, VIEW.id, None, bodies[at % len(bodies)])
        for at in range(count)
    ]


def batches_of(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    return (entries[start : start + FRAMES_PER_APPEND] for start in range(0, len(entries), FRAMES_PER_APPEND))


def append(directory: Path, entries: Sequence[Entry], fsync: Fsync) -> Spent:
    journal = Journal.open(directory, "bench", JournalConfig(fsync=fsync))
    journal.enter_view(VIEW, VIEW.id, 0, (), 0)
    spent = Spent.by(lambda: drive(batches_of(entries), journal.append, journal.sync, fsync))
    journal.close()
    shutil.rmtree(directory)
    return spent


def write_plainly(path: Path, entries: Sequence[Entry], fsync: Fsync) -> Spent:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def write(batch: Sequence[Entry]) -> None:
        for entry in batch:
            os.write(descriptor, entry.body)

    spent = Spent.by(lambda: drive(batches_of(entries), write, lambda: os.fdatasync(descriptor), fsync))
    os.close(descriptor)
    path.unlink()
    return spent


def drive(
    batches: Iterable[Sequence[Entry]],
    write: Callable[[Sequence[Entry]], object],
    sync: Callable[[], object],
    fsync: Fsync,
) -> None:
    """Both ways sync at the same moments; what is not synced at the end stays with the operating system."""
    due = monotonic_ns() + JournalConfig().interval_ns
    for number, batch in enumerate(batches, start=1):
        write(batch)
        if fsync is Fsync.ALWAYS and number % APPENDS_PER_SYNC == 0:
            sync()
        elif fsync is Fsync.INTERVAL and monotonic_ns() >= due:
            sync()
            due = monotonic_ns() + JournalConfig().interval_ns


def measure_append(scratch: Path, size: int, fsync: Fsync, total_bytes: int) -> Line:
    entries = entries_of(size, total_bytes)
    ours, plain = [], []
    for number in range(ROUNDS + 1):
        one = append(scratch / f"journal-{number}", entries, fsync)
        other = write_plainly(scratch / f"plain-{number}", entries, fsync)
        if number:  # the first round warms up
            ours.append(one)
            plain.append(other)
    rows = entries[-1].position + entries[-1].count - 1
    return line_of(f"append, {fsync.value}", size, rows, ours, plain, by_cpu=False)


# Reading


def measure_read(scratch: Path, size: int, total_bytes: int) -> Line:
    rows = total_bytes // size
    directory, parquet = scratch / "log", scratch / "log.parquet"
    write_journal(directory, "bench", rows, payload_bytes=size)
    with pq.ParquetWriter(parquet, LOG_SCHEMA) as writer:
        for batch in JournalReader(directory).read(1, rows, 100_000):
            writer.write_batch(batch)
    check_equal(directory, parquet, rows)
    ours, plain = [], []
    for number in range(ROUNDS + 1):
        one = Spent.by(lambda: count_rows(JournalReader(directory).read(1, rows)))
        other = Spent.by(lambda: count_rows(read_parquet(parquet)))
        if number:
            ours.append(one)
            plain.append(other)
    shutil.rmtree(directory)
    parquet.unlink()
    return line_of("read as Arrow (beside Parquet)", size, rows, ours, plain, by_cpu=True)


def read_parquet(path: Path) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(path).iter_batches(batch_size=20_000, use_threads=False)


def count_rows(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def check_equal(directory: Path, parquet: Path, rows: int) -> None:
    ours = pa.Table.from_batches(JournalReader(directory).read(1, rows))
    assert ours.equals(pq.read_table(parquet).cast(LOG_SCHEMA)), "the two do not hold the same rows"


# Telling


def table_of(lines: Sequence[Line]) -> Table:
    table = Table("what", "bytes", "M msgs/s", "MB/s", "plain MB/s", "time : plain", "cpu : plain")
    for line in lines:
        table.add_row(
            line.what,
            str(line.size),
            f"{line.messages_per_s / 1e6:.2f}",
            f"{line.mb_per_s:,.0f}",
            f"{line.plain_mb_per_s:,.0f}",
            f"{line.times_plain:.2f}",
            f"{line.times_plain_cpu:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure appending to the journal and reading it back.")
    parser.add_argument("--megabytes", type=int, default=200, help="payload of one round (default 200)")
    parser.add_argument("--directory", type=Path, help="where to write; a temporary place on the same disk as here")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    options = parser.parse_args()
    total_bytes = options.megabytes * 1_000_000
    scratch = Path(tempfile.mkdtemp(prefix="motet-bench-", dir=options.directory or Path.cwd()))
    console = Console(stderr=True)
    lines: list[Line] = []
    try:
        for size in (100, 1000):
            for fsync in Fsync:
                console.print(f"append, {size} B, {fsync.value} ...")
                lines.append(measure_append(scratch, size, fsync, total_bytes))
            console.print(f"read, {size} B ...")
            lines.append(measure_read(scratch, size, total_bytes))
    finally:
        shutil.rmtree(scratch)
    if options.json:
        print(json.dumps({"lines": [asdict(line) for line in lines], "megabytes": options.megabytes}))
    else:
        Console().print(table_of(lines))


if __name__ == "__main__":
    main()
