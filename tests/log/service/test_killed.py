"""kill -9 of the process that serves, in the middle of streams: another takes over at the exact row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import flight

from motet.log.journal.synthetic import write_journal
from motet.log.service.flight import LogService
from motet.log.service.journal_source import JournalSource
from tests.log.service.memory import client_of, payloads_of, positions_of

ROWS = 200_000


@contextmanager
def member(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, str(Path(__file__).with_name("member_process.py")), str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_another_member_takes_over_from_one_that_was_killed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_journal(tmp_path / name, "orders", ROWS, member="ab".index(name))
    with (
        member(tmp_path / "a") as (process, endpoint),
        LogService(JournalSource(tmp_path / "b")) as survivor,
        client_of(endpoint, survivor, timeout_s=30) as client,
    ):
        reading, following = client.read(1, ROWS, batch_rows=5000), client.follow(1, batch_rows=5000)
        read, followed = [next(reading), next(reading)], [next(following)]
        process.kill()
        read += reading
        while positions_of(followed[-1:])[-1] < ROWS:
            followed.append(next(following))
    assert positions_of(read) == positions_of(followed) == list(range(1, ROWS + 1))
    assert payloads_of(read) == payloads_of(followed)


def test_a_process_that_ends_without_closing_its_service_does_end(tmp_path: Path) -> None:
    """Though one reader follows for ever and another does not read."""
    write_journal(tmp_path / "a", "orders", ROWS)
    with member(tmp_path / "a") as (process, endpoint), flight.connect(f"grpc://{endpoint}") as client:
        tickets = [{"follow_from": ROWS}, {"first": 1, "last": ROWS, "batch_rows": 1000}]
        readers = [client.do_get(flight.Ticket(json.dumps(ticket))) for ticket in tickets]
        assert all(reader.read_chunk().data.num_rows for reader in readers)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 0
