"""A journal behind a log service: rows as written, the stable position as told, readers beside the writer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from motet.errors import LogTrimmedError
from motet.log.journal import JournalConfig
from motet.log.journal.reader import JournalReader
from motet.log.journal.synthetic import write_journal
from motet.log.service.flight import LogService
from motet.log.service.journal_source import JournalSource
from tests.log.service.memory import client_of, payloads_of, positions_of, wait_for


def test_rows_are_those_of_the_journal(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", "orders", 3000, keys=5, large_messages=2)
    expected = list(JournalReader(tmp_path / "a").read(1, 3000))
    source = JournalSource(tmp_path / "a")
    with LogService(source, group=source.group) as service, client_of(service) as client:
        assert client.offsets()[:3] == (1, 3000, 3000)
        for first, last, batch_rows in [(1, 3000, 20_000), (1, 3000, 70), (999, 2001, 128), (3000, 3000, 1)]:
            batches = list(client.read(first, last, batch_rows=batch_rows))
            assert positions_of(batches) == list(range(first, last + 1))
            assert payloads_of(batches) == payloads_of(expected)[first - 1 : last]


def test_only_what_is_stable_is_offered_until_the_driver_says_more(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", "orders", 3000, stable=1000)
    source = JournalSource(tmp_path / "a", poll_s=60)
    with LogService(source) as service, client_of(service) as client:
        assert client.offsets()[:3] == (1, 3000, 1000)
        stream = client.follow(991)
        assert positions_of([next(stream)]) == list(range(991, 1001))
        source.set_stable(1500)
        assert positions_of([next(stream)]) == list(range(1001, 1501))
        source.set_stable(1400)  # a late notification changes nothing
        assert client.offsets().stable == 1500


def test_what_is_told_beyond_the_end_of_the_files_is_not_offered_yet(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", "orders", 100, stable=50)
    source = JournalSource(tmp_path / "a")
    source.set_stable(1000)
    assert source.bounds().stable == 100
    assert source.wait_stable(99, 10) == 100
    assert source.wait_stable(100, 0.01) == 100


def test_waiting_without_a_driver_looks_at_the_disk(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", "orders", 100)
    source = JournalSource(tmp_path / "a", poll_s=0.001)
    assert source.wait_stable(50, 10) == 100
    assert source.wait_stable(100, 0) == 100


def test_streams_in_parallel_have_readers_of_their_own(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", "orders", 20_000)
    source = JournalSource(tmp_path / "a")
    found: dict[int, list[int]] = {}

    def read(part: int) -> None:
        found[part] = positions_of(list(client.read(part * 2000 + 1, (part + 1) * 2000, batch_rows=300)))

    with LogService(source) as service, client_of(service) as client:
        threads = [threading.Thread(target=read, args=(part,)) for part in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [position for part in range(10) for position in found[part]] == list(range(1, 20_001))
        wait_for(lambda: service.health()["calls"]["reads"] == 0)


def test_a_segment_that_retention_took_is_told_as_trimmed(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", "orders", 20_000, config=JournalConfig(segment_bytes=400_000))
    segments = JournalReader(tmp_path / "a").segments()
    assert len(segments) > 3
    source = JournalSource(tmp_path / "a")
    with LogService(source) as service, client_of(service) as client:
        stream = client.read(1, 20_000, batch_rows=100)
        batches = [next(stream)]
        for segment in segments[:-1]:
            (tmp_path / "a" / segment.name).unlink()
        with pytest.raises(LogTrimmedError) as error:
            batches.extend(stream)
        assert error.value.first == segments[-1].first
        assert positions_of(batches) == list(range(1, len(positions_of(batches)) + 1))
        assert positions_of(list(client.read(segments[-1].first, 20_000)))[-1] == 20_000
