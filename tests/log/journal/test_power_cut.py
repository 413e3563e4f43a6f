"""Power cuts, lying disks, full disks, flipped bits: recovery gives a prefix of the log with all that was reported.

The word "reported" means: `sync` returned this position, so the member told others that it has it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from motet.errors import JournalCorruptError, JournalError, JournalFullError, MotetError
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.reader import JournalReader
from motet.protocol.membership.primary import PrimaryRecord
from motet.sim.world.disk import PowerCut, SimDisk
from tests.log.journal.factory import GROUP, V1, A, Scribe, begun, text_of, view_of

HERE = Path("/journal")
CONFIG = JournalConfig(fsync=Fsync.ALWAYS, segment_bytes=4096, index_bytes=1024)


def rows_of(disk: SimDisk) -> list[bytes]:
    """All rows, each at its position; whatever is wrong is an error, and never a wrong row."""
    reader = JournalReader(HERE, disk)
    bounds = reader.bounds()
    rows: list[bytes] = []
    for batch in reader.read(bounds.first, bounds.last, 11) if bounds.last else ():
        assert batch.column("position").to_pylist() == list(range(len(rows) + 1, len(rows) + 1 + batch.num_rows))
        rows += batch.column("payload").to_pylist()
    return rows


def assert_is_prefix(disk: SimDisk, reported: int, expected: list[bytes]) -> Journal:
    journal = Journal.open(HERE, GROUP, CONFIG, disk)
    rows = rows_of(disk)
    assert journal.position == len(rows) >= reported
    assert rows == expected[: len(rows)]
    return journal


def assert_goes_on(journal: Journal, disk: SimDisk) -> None:
    """What was recovered is a journal like any other."""
    scribe = Scribe(journal.position, view_of(9))
    scribe.enter(journal, scribe.view)
    journal.append(scribe.many(4))
    journal.sync()
    chain, position = journal.chain, journal.position
    journal.close()
    again = Journal.open(HERE, GROUP, CONFIG, disk.after_power_cut(0))
    assert (again.position, again.chain, again.recovery.truncated_bytes) == (position, chain, 0)


def steps(disk: SimDisk, told: list[int]) -> Iterator[None]:
    """A life of a journal, with a pause wherever something is not safe; `told` grows as positions are reported."""
    journal, scribe = begun(HERE, CONFIG, disk)
    told.append(journal.sync())
    for round_ in range(8):
        if round_ == 3:
            scribe.enter(journal, view_of(2))
        journal.append(scribe.many(9))
        journal.append(scribe.many(5, per_frame=5))
        yield
        told.append(journal.sync())
        journal.mark_stable(told[-1] - 2)
        yield
    journal.remember(PrimaryRecord(V1))
    yield
    journal.append(scribe.fragments(b"%08d" % (scribe.position + 1) + b"." * 5000, 900))
    yield
    told.append(journal.sync())
    journal.append(scribe.many(60))  # into the next segment
    yield
    journal.truncate(journal.position - 7)
    yield
    journal.close()


def expected_rows() -> list[bytes]:
    disk = SimDisk()
    for _ in steps(disk, []):
        pass
    rows = rows_of(disk)
    return [*rows, *(text_of(row) for row in range(len(rows) + 1, len(rows) + 100))]


def test_every_prefix_of_what_was_not_synced() -> None:
    """No byte of the stream of writes is a bad moment for a power cut."""
    expected = expected_rows()
    told: list[int] = [0]
    disk, cuts = SimDisk(), 0
    for moment, _ in enumerate(steps(disk, told)):
        stride = 1 if moment < 1 else 61
        for units in {*range(0, disk.pending_steps, stride), disk.pending_steps}:
            after = disk.after_power_cut(units)
            journal = assert_is_prefix(after, min(told[-1], journal_end(disk)), expected)
            cuts += bool(journal.recovery.truncated_bytes)
            if units % 123 == 0:
                assert_goes_on(journal, after)
    assert cuts > 300
    assert told[-1] > 100


def journal_end(disk: SimDisk) -> int:
    return JournalReader(HERE, disk).bounds().last


def test_recovery_says_what_it_cut() -> None:
    disk = SimDisk()
    journal, scribe = begun(HERE, CONFIG, disk)
    journal.append(scribe.many(3))
    journal.sync()
    end = disk.size_of(HERE / "00000000000000000001.seg")
    journal.append(scribe.many(6))
    after = disk.after_power_cut(disk.pending_steps - 10)
    recovery = Journal.open(HERE, GROUP, CONFIG, after).recovery
    assert (recovery.at, recovery.segment) == (6, "00000000000000000001.seg")
    assert recovery.offset > end
    assert recovery.truncated_bytes == disk.size_of(HERE / "00000000000000000001.seg") - 10 - recovery.offset
    assert recovery.truncated_records == 1
    assert recovery.reason == "the file ends inside a record"
    assert "after position 6" in str(recovery)


def test_any_sectors_of_what_was_not_synced() -> None:
    """A disk that writes in its own order leaves holes; they are in the torn tail, and so it is cut there."""
    expected = expected_rows()
    told: list[int] = [0]
    disk, rng = SimDisk(), Random(5)
    for _ in steps(disk, told):
        for _ in range(15):
            assert_is_prefix(disk.after_bad_power_cut(rng), min(told[-1], journal_end(disk)), expected)


def test_power_cut_at_every_write() -> None:
    """Also inside of recovery itself, and of the restart after it."""
    expected = expected_rows()
    for at in range(1, 200):
        disk, told = SimDisk(), [0]
        disk.cut_power_at_write = at
        try:
            for _ in steps(disk, told):
                pass
            break
        except PowerCut:
            pass
        for units in (0, disk.pending_steps // 2, disk.pending_steps):
            after = disk.after_power_cut(units)
            for again in range(1, 9):
                after.cut_power_at_write = after.writes + again
                try:
                    Journal.open(HERE, GROUP, CONFIG, after)
                    break
                except PowerCut:
                    after = after.after_power_cut(after.pending_steps // 2)
            after = after.after_crash()
            rows = rows_of(after) if after.names(HERE) else []
            assert rows == expected[: len(rows)]
            assert_goes_on(Journal.open(HERE, GROUP, CONFIG, after), after)
    else:
        pytest.fail("the story has more writes than the test tries")


def test_a_disk_that_lies_about_syncs_is_found_out_or_does_no_harm() -> None:
    expected = expected_rows()
    disk, rng = SimDisk(syncs_lie=True), Random(3)
    outcomes = set()
    for _ in steps(disk, []):
        for _ in range(10):
            after = disk.after_bad_power_cut(rng)
            try:
                assert_is_prefix(after, 0, expected)
                outcomes.add("prefix")
            except JournalCorruptError:
                outcomes.add("found out")
    assert outcomes == {"prefix", "found out"}


def closed_journal() -> tuple[SimDisk, list[bytes]]:
    disk = SimDisk()
    for _ in steps(disk, []):
        pass
    return disk, rows_of(disk)


def test_a_flipped_bit_never_yields_a_wrong_row() -> None:
    """In a journal that was closed, all is known to be on disk, so damage is an error and nothing is cut."""
    disk, rows = closed_journal()
    segments = [name for name in disk.names(HERE) if name.endswith(".seg")]
    rng = Random(9)
    for name in segments:
        size = disk.size_of(HERE / name)
        for bit in rng.sample(range(size * 8), 60):
            disk.flip(HERE / name, bit)
            with suppress(JournalError):
                found = rows_of(disk)
                assert found == rows[: len(found)]
            disk.flip(HERE / name, bit)
    assert rows_of(disk) == rows


def test_damage_where_the_disk_had_it_is_an_error_and_nothing_is_cut() -> None:
    disk, rows = closed_journal()
    name = max(name for name in disk.names(HERE) if name.endswith(".seg"))
    size = disk.size_of(HERE / name)
    disk.flip(HERE / name, 8 * (size - 200))
    with pytest.raises(JournalCorruptError, match="This is no torn tail, so nothing was truncated") as caught:
        Journal.open(HERE, GROUP, CONFIG, disk)
    assert caught.value.segment == name
    assert 0 < caught.value.offset < size
    assert 0 < caught.value.position < len(rows)
    assert disk.size_of(HERE / name) == size
    disk.flip(HERE / name, 8 * (size - 200))
    assert Journal.open(HERE, GROUP, CONFIG, disk).position == len(rows)


def test_a_full_disk_ends_writing_and_loses_nothing_that_was_reported() -> None:
    for capacity in range(600, 5000, 173):
        disk = SimDisk(capacity)
        told = [0]
        with pytest.raises(JournalFullError, match="no space left"):
            for _ in steps(disk, told):
                pass
        disk.capacity = 1 << 30
        after = disk.after_power_cut(0)
        journal = Journal.open(HERE, GROUP, CONFIG, after)
        assert journal.position >= told[-1]
        assert_goes_on(journal, after)


def test_after_a_failed_append_nothing_more_is_taken() -> None:
    disk = SimDisk()
    journal, scribe = begun(HERE, CONFIG, disk)
    journal.append(scribe.many(3))
    assert journal.sync() == 3
    disk.capacity = 0
    calls: list[Callable[[], object]] = [
        lambda: journal.append(Scribe(3).many(3)),
        lambda: journal.append(Scribe(3).many(3)),
        journal.sync,
        lambda: journal.mark_stable(2),
        lambda: journal.remember(PrimaryRecord(V1)),
    ]
    for call in calls:
        with pytest.raises(JournalFullError, match="free some space"):
            call()
    assert journal.is_failed
    assert (journal.position, journal.durable) == (3, 3)
    journal.close()


def test_a_disk_that_cannot_be_written() -> None:
    disk = SimDisk()
    disk.is_read_only = True
    with pytest.raises(JournalError, match="cannot be written"):
        Journal.open(HERE, GROUP, CONFIG, disk)


def test_restart_anew_is_all_or_nothing() -> None:
    for at in range(1, 60):
        disk = SimDisk()
        journal, scribe = begun(HERE, CONFIG, disk)
        for _ in range(12):
            journal.append(scribe.many(40))
        journal.sync()
        disk.cut_power_at_write = disk.writes + at
        try:
            journal.restart_at(9000, b"c" * 16)
        except PowerCut:
            pass
        else:
            break
        after = disk.after_power_cut(disk.pending_steps // 2)
        again = Journal.open(HERE, GROUP, CONFIG, after)
        assert (again.first, again.position) in ((1, 480), (9001, 9000))
        assert again.owner == A
    assert at > 5
    assert (journal.first, journal.position, journal.chain) == (9001, 9000, b"c" * 16)


def test_garbage_instead_of_a_journal_is_an_error() -> None:
    rng = Random(1)
    for size in (0, 1, 15, 16, 17, 100, 5000):
        disk = SimDisk()
        file = disk.open(HERE / "00000000000000000001.seg", is_new=True)
        file.write([rng.randbytes(size)])
        with pytest.raises(MotetError):
            JournalReader(HERE, disk).bounds()
