"""What journals say beside their rows, without Spark."""

from __future__ import annotations

from pathlib import Path

from motet.journal.evidence import SegmentWalk, segments_in
from motet.spark.inputs import MemberInput, find_members
from motet.spark.witness import journal_findings
from tests.journal.factory import append_all, begun


def looked_at(directory: Path) -> MemberInput:
    (member,), unusable = find_members([str(directory)])
    assert not unusable
    for path in segments_in(directory):
        walk = SegmentWalk(path)
        list(walk.rows())
        member.learn(str(path), walk.facts)
    return member


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
    member = looked_at(tmp_path / "cut-off")
    assert any(not mark.view and mark.stable for mark in member.facts.marks), "the rollback left its mark"
    assert list(journal_findings([member])) == []


def test_a_mark_that_is_lower_than_one_before_it(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path / "odd")
    append_all(journal, scribe.many(30))
    journal.mark_stable(20)
    journal.close()
    member = looked_at(tmp_path / "odd")
    member.facts.marks = [*member.facts.marks, member.facts.marks[-1].__class__(30, 10, "later", "1@x")]
    (finding,) = journal_findings([member])
    assert (finding.check, finding.position, finding.found) == ("stability", 11, "a later mark says 10")
