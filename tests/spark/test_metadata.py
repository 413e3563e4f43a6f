"""What journals say beside their rows, without Spark."""

from __future__ import annotations

from pathlib import Path

from motet.audit.inputs import MemberInput, find_members
from motet.audit.metadata import journal_findings
from motet.log.journal import Fsync, JournalConfig
from motet.log.journal.evidence import SegmentScan, segments_in
from motet.log.journal.synthetic import write_journal
from tests.log.journal.factory import append_all, begun
from tests.spark import forge


def checked(directory: Path, *, has_owners: bool = True) -> MemberInput:
    """Without owners: as if its segments were of a version that does not say whose they are."""
    (member,), unusable = find_members([str(directory)])
    assert not unusable
    for path in segments_in(directory):
        walk = SegmentScan(path)
        list(walk.rows())
        walk.facts.owner = walk.facts.owner if has_owners else ""
        member.learn(str(path), walk.facts)
    return member


def test_segments_that_do_not_say_whose_they_are_are_told_by_where_they_begin(tmp_path: Path) -> None:
    """Unless both journals are cut at the same places: then nothing tells."""
    paths = [tmp_path / "alice", tmp_path / "bob"]
    for member, path in enumerate(paths):
        config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=(10 + 3 * member) << 10)
        write_journal(path, "g", 1_000, member=member, payload_bytes=24, frame_bytes=256, config=config)
    forge.swap_segments(paths[0], paths[1], 1)
    for path in paths:
        segment = segments_in(path)[1]
        found = [one for one in journal_findings([checked(path, has_owners=False)]) if one.where == str(segment)]
        assert {(one.check, one.kind) for one in found} >= {("integrity", "foreign segment")}
        (named,) = (one for one in journal_findings([checked(path)]) if one.where == str(segment))
        assert (named.kind, named.position) == ("foreign segment", int(segment.stem))


def test_a_member_that_was_cut_off_took_back_what_was_not_stable_and_that_is_no_fault(tmp_path: Path) -> None:
    """Found by `motet demo`: the mark of the rollback was taken for one that came before all others."""
    journal, scribe = begun(tmp_path / "cut-off")
    for _ in range(3):
        append_all(journal, scribe.many(30))
        journal.mark_stable(scribe.position - 10)
    scribe.position = journal.truncate(journal.stable)
    append_all(journal, scribe.many(30))
    journal.mark_stable(scribe.position)
    journal.close()
    member = checked(tmp_path / "cut-off")
    assert any(not mark.view and mark.stable for mark in member.facts.marks), "the rollback left its mark"
    assert list(journal_findings([member])) == []


def test_a_mark_that_is_lower_than_one_before_it(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path / "odd")
    append_all(journal, scribe.many(30))
    journal.mark_stable(20)
    journal.close()
    member = checked(tmp_path / "odd")
    member.facts.marks = [*member.facts.marks, member.facts.marks[-1].__class__(30, 10, "later", "1@x")]
    (finding,) = journal_findings([member])
    assert (finding.check, finding.position, finding.found) == ("stability", 11, "a later mark says 10")
