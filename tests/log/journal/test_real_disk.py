"""On the machine's own disk: threads, and a process that is killed."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from motet.errors import JournalError
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.reader import JournalReader
from motet.log.journal.verify import verify
from tests.log.journal.factory import GROUP, Scribe, append_all, begun, text_of, view_of

CONFIG = JournalConfig(fsync=Fsync.ALWAYS, segment_bytes=64 << 10)


def test_append_and_sync_from_two_threads(tmp_path: Path) -> None:
    """What `sync` reports was appended, only grows, and reaches the end."""
    journal, scribe = begun(tmp_path, CONFIG)
    reported: list[int] = []

    def keep_syncing() -> None:
        while not reported or reported[-1] < 9000:
            before = journal.position
            reported.append(journal.sync())
            assert before <= reported[-1]

    syncer = Thread(target=keep_syncing)
    syncer.start()
    append_all(journal, scribe.many(9000, per_frame=10, size=100), batch=5)
    syncer.join()
    assert reported == sorted(reported)
    assert len(journal.segments) > 5
    journal.close()
    assert verify(tmp_path).is_good


KILLED = """
import sys
from pathlib import Path
from motet.log.journal import Journal
from tests.log.journal.factory import GROUP, Scribe, view_of
from tests.log.journal.test_real_disk import CONFIG

journal = Journal.open(Path(sys.argv[1]), GROUP, CONFIG)
view = view_of(journal.epoch.number + 1)
scribe = Scribe(journal.position, view)
scribe.enter(journal, view)
while True:
    for _ in range(5):
        journal.append(scribe.many(20, per_frame=7))
    print(journal.sync(), flush=True)
    journal.mark_stable(journal.durable)
"""


def test_a_process_that_is_killed_at_any_moment_loses_nothing_that_it_reported(tmp_path: Path) -> None:
    rng, reported = Random(1), 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(rng.randint(1, 20)):
                reported = int(process.stdout.readline())
            process.kill()
            reported = max([reported, *map(int, process.stdout.read().split(b"\n")[:-1])])
        verdict = verify(tmp_path)
        assert verdict.is_good or (verdict.flaw is not None and verdict.flaw.is_torn_tail)
        journal = Journal.open(tmp_path, GROUP, CONFIG)
        assert journal.position >= reported
        journal.close()
        assert verify(tmp_path).is_good
    rows = [row for batch in JournalReader(tmp_path).read(1, reported) for row in batch.column("payload").to_pylist()]
    assert rows == [text_of(row) for row in range(1, reported + 1)]


def test_a_directory_that_may_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalError, match="opening the journal failed"):
        Journal.open(tmp_path / "file" / "journal", GROUP)


def test_only_the_owner_may_read_a_journal(tmp_path: Path) -> None:
    before = os.umask(0)  # the process asks for no more than it needs, whatever its surroundings allow
    try:
        journal, scribe = begun(tmp_path / "journal", CONFIG)
        append_all(journal, scribe.many(2_000, per_frame=10, size=100), batch=5)
        journal.sync()
        journal.close()
    finally:
        os.umask(before)
    files = list((tmp_path / "journal").iterdir())
    assert len(files) >= 4  # segments, the member, the lock
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700


def test_begin_anew_and_go_on(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path, CONFIG)
    append_all(journal, scribe.many(3000, size=100))
    journal.restart_at(50_000, b"c" * 16)
    assert (journal.first, journal.position, journal.stable) == (50_001, 50_000, 50_000)
    scribe = Scribe(50_000, view_of(5))
    scribe.enter(journal, scribe.view)
    journal.append(scribe.many(10))
    with pytest.raises(JournalError, match="below 50000, which is stable"):
        journal.truncate(49_999)
    journal.close()
    again = Journal.open(tmp_path, GROUP, CONFIG)
    assert (again.first, again.position, again.chain) == (50_001, 50_010, journal.chain)
    again.close()
    assert verify(tmp_path).is_good


@pytest.mark.parametrize("content", [Random(7).randbytes(3_000), b"hi\n"], ids=["noise", "text"])
def test_a_file_that_never_was_a_segment_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    """It was taken for a torn tail and truncated, without a word."""
    file = tmp_path / "00000000000000000001.seg"
    file.write_bytes(content)
    with pytest.raises(JournalError, match="does not begin like a segment of a journal, so it is left as it is"):
        Journal.open(tmp_path, GROUP)
    assert file.read_bytes() == content


@pytest.mark.parametrize("size", [0, 5, 16, 4_096])
def test_what_a_power_cut_leaves_of_a_first_segment_is_no_hindrance(tmp_path: Path, size: int) -> None:
    (tmp_path / "00000000000000000001.seg").write_bytes(b"motetlog"[:size] + bytes(max(0, size - 8)))
    Journal.open(tmp_path, GROUP).close()
