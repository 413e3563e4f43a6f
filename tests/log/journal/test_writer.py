"""The journal alone: what goes in comes out, and it says no where it must."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from motet.errors import JournalError, JournalLockedError, MisuseError
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.reader import JournalReader
from motet.log.journal.records import FILE_HEADER, MAGIC, STATE, STATE_1, Head, RecordKind, parse_head, record_bytes
from motet.log.journal.scan import FIRST_RECORD_AT
from motet.log.journal.verify import verify
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.wire.fields import Reader
from tests.log.journal.factory import GROUP, NEVER, V1, A, B, C, Scribe, append_all, begun, text_of, view_of


def payloads(directory: Path) -> list[bytes]:
    reader = JournalReader(directory)
    bounds = reader.bounds()
    return [
        payload
        for batch in reader.read(bounds.first, bounds.last, 7)
        for payload in batch.column("payload").to_pylist()
    ]


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path)
    append_all(journal, scribe.many(25))
    assert journal.position == 25
    assert journal.sync() == 25 == journal.durable
    assert payloads(tmp_path) == [text_of(row) for row in range(1, 26)]
    journal.close()


def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path)
    append_all(journal, scribe.many(25))
    journal.append([scribe.packed(b"tagged", tag=(7, 3))])
    journal.mark_stable(20)
    journal.remember(PrimaryRecord(V1))
    known = (journal.position, journal.stable, journal.epoch, journal.chain, journal.producers, journal.record)
    journal.close()
    again = Journal.open(tmp_path, GROUP)
    assert (again.position, again.stable, again.epoch, again.chain, again.producers, again.record) == known
    assert not again.recovery.truncated_bytes
    assert again.producers == ((7, 3),)
    assert (again.owner, again.past_incarnations) == (A, ())
    again.begin(B)
    again.begin(C)
    assert (again.owner, again.past_incarnations) == (C, (A.incarnation, B.incarnation))
    again.close()


def test_who_must_not_found_a_group_must_not_in_any_later_life(tmp_path: Path) -> None:
    for may_bootstrap, expected in ((True, True), (False, False), (True, False)):
        with Journal.open(tmp_path, GROUP) as journal:
            journal.begin(A, may_bootstrap=may_bootstrap)
            assert journal.may_bootstrap is expected
    with Journal.open(tmp_path, GROUP) as journal:
        assert not journal.may_bootstrap


def test_segments_follow_one_another(tmp_path: Path) -> None:
    config = JournalConfig(fsync=Fsync.ALWAYS, segment_bytes=4096)
    journal, scribe = begun(tmp_path, config)
    append_all(journal, scribe.many(600))
    journal.mark_stable(600)
    chain = journal.chain
    journal.close()
    assert len(list(tmp_path.glob("*.seg"))) > 3
    assert payloads(tmp_path) == [text_of(row) for row in range(1, 601)]
    again = Journal.open(tmp_path, GROUP, config)
    assert (again.position, again.stable, again.chain) == (600, 600, chain)
    again.close()


def test_a_journal_of_version_1_goes_on(tmp_path: Path) -> None:
    """Its segments do not say whose they are; those that follow do."""
    journal, scribe = begun(tmp_path, NEVER)
    append_all(journal, scribe.many(30))
    journal.close()
    (segment,) = sorted(tmp_path.glob("*.seg"))
    segment.write_bytes(as_version_1(segment.read_bytes()))
    journal = Journal.open(tmp_path, GROUP, replace(NEVER, segment_bytes=4096))
    journal.begin(A)
    append_all(journal, scribe.many(200))
    journal.close()
    assert [one.opening.state.owner for one in journal.segments][:2] == [None, A]
    assert verify(tmp_path).is_good


def as_version_1(data: bytes) -> bytes:
    """Only the opening of a segment was another."""
    head = parse_head(data, FIRST_RECORD_AT)
    assert isinstance(head, Head)
    state = STATE.read(Reader(data[FIRST_RECORD_AT + head.head_bytes :][: head.body_bytes]))
    body = STATE_1.write(state)
    opening = record_bytes(RecordKind.STATE, body, 0, head.at, head.chain, head.position)
    return FILE_HEADER.pack(MAGIC, 1, 0) + opening + data[FIRST_RECORD_AT + head.size :]


def test_only_one_writer(tmp_path: Path) -> None:
    with begun(tmp_path)[0], pytest.raises(JournalLockedError, match="one journal has one writer"):
        Journal.open(tmp_path, GROUP)


def test_a_journal_belongs_to_one_group(tmp_path: Path) -> None:
    begun(tmp_path)[0].close()
    with pytest.raises(JournalError, match="is the journal of group 'orders'"):
        Journal.open(tmp_path, "payments")


def test_entries_must_follow_one_another(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path)
    with journal:
        scribe.position = 3
        with pytest.raises(MisuseError, match="expects position 1, not 4"):
            journal.append(scribe.many(3))
        with pytest.raises(MisuseError, match="call enter_view"):
            journal.append(Scribe(view=view_of(2)).many(3))
        with pytest.raises(MisuseError, match="fetch what is missing"):
            journal.enter_view(view_of(2), view_of(2).id, 9, (), 0)
        assert journal.position == 0
    with pytest.raises(MisuseError, match="closed"):
        journal.sync()


def test_the_chain_is_the_same_at_all_members(tmp_path: Path) -> None:
    """It does not cover when a member delivered something, nor how it got its batches."""
    here, scribe = begun(tmp_path / "a")
    there, other = begun(tmp_path / "b")
    with here, there:
        append_all(here, scribe.many(30), batch=1)
        for entry in other.many(30):
            there.append([type(entry)(**{**{f: getattr(entry, f) for f in entry.__slots__}, "delivered_at": 5})])
        assert here.chain == there.chain
        there.append(other.many(3))
        assert here.chain != there.chain
        assert there.chain_at(30) == here.chain


def test_frames_of_a_message_that_a_view_cut_short_do_not_count(tmp_path: Path) -> None:
    here, scribe = begun(tmp_path / "a")
    there, other = begun(tmp_path / "b")
    with here, there:
        here.append(scribe.many(3) + scribe.fragments(b"x" * 200, 64)[:2])
        there.append(other.many(3))
        scribe.position = 3
        for journal, one in ((here, scribe), (there, other)):
            one.enter(journal, view_of(2))
            journal.append(one.many(3))
        assert here.chain == there.chain


def test_writing_needs_no_pyarrow() -> None:
    code = "import sys, motet.log.journal; sys.exit('pyarrow' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_journal_that_lost_the_file_of_its_owner_still_opens(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path, NEVER)
    append_all(journal, scribe.many(30))
    journal.close()
    (tmp_path / "member").unlink()
    for owner in (B, C):
        journal = Journal.open(tmp_path, GROUP, NEVER)
        journal.begin(owner)
        journal.close()
    assert journal.past_incarnations == (A.incarnation, B.incarnation)
