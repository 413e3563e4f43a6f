"""How fast rows come out of a log service. Run: python benchmarks/flight.py [--rows N] [--bytes B] [--json]

One process serves, this one reads, over loopback. Three ways take turns, so that all see the same machine:

    journal     JournalReader in this process: what reading costs without any service
    flight      a Flight server that sends the same batches from memory: what Flight itself can do here
    service     LogService over the journal, read with LogClient, which checks the positions

Seconds are those of the wall clock, for two processes work at once. Megabytes are those of the Arrow buffers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyarrow import flight

from motet.log.journal.reader import JournalReader
from motet.log.journal.schema import LOG_SCHEMA
from motet.log.journal.synthetic import write_journal
from motet.log.service.client import LogClient
from motet.log.service.flight import LogService
from motet.log.service.journal_source import JournalSource

BATCH_ROWS = (10_000, 20_000, 50_000)


class Prebuilt(flight.FlightServerBase):  # type: ignore[misc]
    """Nothing but Flight: batches that are there already."""

    def __init__(self, journal: Path, rows: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batches = {size: list(JournalReader(journal).read(1, rows, size)) for size in BATCH_ROWS}

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.GeneratorStream:
        return flight.GeneratorStream(LOG_SCHEMA, iter(self._batches[int(ticket.ticket)]))


def serve(journal: Path, rows: int, pipe: Connection) -> None:
    with LogService(JournalSource(journal)) as service, Prebuilt(journal, rows) as prebuilt:
        pipe.send((service.endpoint, prebuilt.port))
        pipe.recv()


@contextmanager
def servers(journal: Path, rows: int) -> Iterator[tuple[str, int]]:
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(journal, rows, there))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join()


def drain(batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Rows and bytes; each batch is let go before the next comes."""
    rows = size = 0
    for batch in batches:
        rows += batch.num_rows
        size += batch.nbytes
    return rows, size


def timed(read: Callable[[], Iterator[pa.RecordBatch]], expected: int) -> tuple[float, int]:
    started = time.perf_counter()
    rows, size = drain(read())
    seconds = time.perf_counter() - started
    assert rows == expected, f"{rows} rows came, {expected} are there"
    return seconds, size


def measure(journal: Path, rows: int, rounds: int) -> Iterator[dict[str, object]]:
    with servers(journal, rows) as (endpoint, port), LogClient([endpoint]) as client:
        plain = flight.connect(f"grpc://127.0.0.1:{port}")
        for batch_rows in BATCH_ROWS:
            ways = {
                "journal": lambda size=batch_rows: JournalReader(journal).read(1, rows, size),
                "flight": lambda size=batch_rows: (chunk.data for chunk in plain.do_get(flight.Ticket(str(size)))),
                "service": lambda size=batch_rows: client.read(1, rows, size),
            }
            for read in ways.values():
                timed(read, rows)  # once for warmth
            taken: dict[str, list[tuple[float, int]]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, read in ways.items():
                    taken[way].append(timed(read, rows))
            for way, runs in taken.items():
                yield line(way, batch_rows, rows, runs, taken["flight"])
        plain.close()


def line(
    way: str, batch_rows: int, rows: int, runs: list[tuple[float, int]], beside: list[tuple[float, int]]
) -> dict[str, object]:
    seconds = median(taken for taken, _ in runs)
    return {
        "way": way,
        "batch_rows": batch_rows,
        "million_rows_per_s": round(rows / seconds / 1e6, 2),
        "best": round(rows / min(taken for taken, _ in runs) / 1e6, 2),
        "mb_per_s": round(runs[0][1] / seconds / 1e6),
        "to_flight": round(median(taken for taken, _ in beside) / seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        write_journal(Path(directory) / "a", "bench", options.rows, payload_bytes=options.bytes)
        lines = list(measure(Path(directory) / "a", options.rows, options.rounds))
    if options.json:
        json.dump(lines, sys.stdout, indent=2)
        return
    print(f"{options.rows} rows of {options.bytes} B; load of the machine {os.getloadavg()[0]:.1f}")
    print("| rows per batch | way | M rows/s | best | MB/s | to flight |\n|--:|---|--:|--:|--:|--:|")
    for one in lines:
        print(
            f"| {one['batch_rows']} | {one['way']} | {one['million_rows_per_s']} | {one['best']} "
            f"| {one['mb_per_s']} | {one['to_flight']} |"
        )


if __name__ == "__main__":
    main()
