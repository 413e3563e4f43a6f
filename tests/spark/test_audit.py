"""The audit over journals: sound ones pass, and each way of falsifying one is named, with member and position."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from motet.audit.audit import run_audit
from motet.audit.verdict import AuditFinding, AuditVerdict, to_text
from motet.log.journal import Fsync, JournalConfig
from motet.log.journal.owner import in_full
from motet.log.journal.reader import JournalReader
from motet.log.journal.synthetic import write_journal
from tests.spark import forge

ROWS, VIEWS = 3_000, 3
SEGMENT_BYTES = 40 << 10
NAMES = ("alice", "bob", "carol")
Journals = dict[str, Path]


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    """Three members; their segments begin at different positions, and frames have about eight messages."""
    paths = {name: tmp_path / name for name in NAMES}
    for member, path in enumerate(paths.values()):
        write(path, member, SEGMENT_BYTES + (9 * member << 10))
    return paths


def write(path: Path, member: int, segment_bytes: int) -> None:
    config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=segment_bytes)
    write_journal(path, "orders", ROWS, member=member, views=VIEWS, payload_bytes=24, frame_bytes=256, config=config)


def audit(spark: SparkSession, journals: Journals) -> AuditVerdict:
    return run_audit(spark, [str(path) for path in journals.values()])


def named(verdict: AuditVerdict, check: str, member: str, position: int) -> AuditFinding:
    """The finding of this check at this member, which must be its first one and at this position."""
    found = [one for one in verdict.of(check) if one.member == member]
    assert found, f"{check} was not named for {member}:\n{to_text(verdict)}"
    assert found[0].position == position, to_text(verdict)
    return found[0]


def only_accuses(verdict: AuditVerdict, *members: str) -> None:
    assert {finding.member for finding in verdict.findings} == set(members), to_text(verdict)


def in_one_frame(path: Path, around: int) -> int:
    """A position near `around`, neither the first nor one of the last two of a frame that another member sent."""
    owner = forge.owner_of(path)
    forgery = forge.Forgery(path)
    for position in range(around, around + 200):
        segment, place = forgery.frame_of(position)
        head = segment[place].head
        if head.position < position < head.last - 1 and head.sender != owner:
            return position
    raise LookupError(around)


def test_sound_journals_pass_every_check(spark: SparkSession, journals: Journals) -> None:
    verdict = audit(spark, journals)
    assert verdict.exit_code == 0, to_text(verdict)
    assert verdict.rows == 3 * ROWS
    assert [verdict.state_of(check) for check in ("virtual synchrony", "stability", "integrity")] == ["ok"] * 3
    assert verdict.checked["integrity"] == f"senders' own journals confirm {ROWS} of {ROWS} messages"


def test_late_joiners_and_retention_leave_prefixes_out_and_that_is_normal(
    spark: SparkSession, journals: Journals
) -> None:
    for name, missing in (("alice", 1), ("bob", 2)):
        for segment in sorted(journals[name].glob("*.seg"))[:missing]:
            segment.unlink()
    verdict = audit(spark, journals)
    assert verdict.exit_code == 0, to_text(verdict)
    assert len({member.first for member in verdict.members}) == 3


def test_two_neighbours_reordered_a_byte_changed_and_a_frame_taken_out_each_at_one_member(
    spark: SparkSession, journals: Journals
) -> None:
    reordered = in_one_frame(journals["bob"], 300)
    changed = in_one_frame(journals["carol"], 900)
    forge.exchange(journals["bob"], reordered)
    forge.change_byte(journals["carol"], changed)
    gone, last = forge.take_out(journals["alice"], in_one_frame(journals["alice"], 1_500))
    verdict = audit(spark, journals)

    finding = named(verdict, "total order", "bob", reordered)
    assert finding.kind == "neighbours exchanged"
    assert f"'{reordered:08d}" in finding.expected
    assert f"'{reordered + 1:08d}" in finding.found
    assert finding.reference == ("alice", "carol")
    assert [one.position for one in finding.neighbours] == list(range(reordered - 2, reordered + 3))
    assert named(verdict, "integrity", "carol", changed).kind == "changed"
    assert named(verdict, "no gaps", "alice", gone).expected == f"position {gone} to {last}"
    assert named(verdict, "agreement", "alice", gone).kind == "missing"
    assert named(verdict, "virtual synchrony", "alice", gone).reference == ("bob", "carol")
    assert {(one.member, one.position) for one in verdict.findings} == {
        ("bob", reordered),
        ("carol", changed),
        ("alice", gone),
    }


@pytest.mark.parametrize(
    ("forgery", "check", "kind", "shift"),
    [(forge.double, "no duplicates", "delivered twice", 1), (forge.drop, "agreement", "missing", 0)],
    ids=["doubled", "dropped"],
)
def test_one_message_doubled_or_dropped_and_everything_behind_it_renumbered(
    spark: SparkSession,
    journals: Journals,
    forgery: Callable[[Path, int], None],
    check: str,
    kind: str,
    shift: int,
) -> None:
    position = in_one_frame(journals["carol"], 2_100)
    forgery(journals["carol"], position)
    verdict = audit(spark, journals)
    assert named(verdict, check, "carol", position + shift).kind == kind
    only_accuses(verdict, "carol")


def test_two_members_segments_swapped(spark: SparkSession, journals: Journals) -> None:
    """Segments of one layout have the same rows at the same places: only what they say of themselves tells."""
    shutil.rmtree(journals["carol"])
    write(journals["carol"], NAMES.index("carol"), SEGMENT_BYTES)
    forge.swap_segments(journals["alice"], journals["carol"], 1)
    writers = {name: in_full(owner) for name in NAMES if (owner := JournalReader(journals[name]).owner)}
    verdict = audit(spark, journals)
    for name, other in (("alice", "carol"), ("carol", "alice")):
        segment = sorted(journals[name].glob("*.seg"))[1]
        finding = named(verdict, "integrity", name, int(segment.stem))
        assert (finding.kind, finding.where) == ("foreign segment", str(segment))
        assert finding.expected == f"a segment that {writers[name]} wrote"
        assert finding.found == f"one that {writers[other]} wrote"
    assert len(verdict.findings) == 2, to_text(verdict)


def test_a_stable_position_rolled_back(spark: SparkSession, journals: Journals) -> None:
    segment, place = forge.Forgery(journals["bob"]).frame_of(2_600)
    last = segment[place].head.last
    forge.cut_tail(journals["bob"], last)
    verdict = audit(spark, journals)
    finding = named(verdict, "stability", "bob", last + 1)
    assert finding.found == f"the journal ends at {last}"
    assert f"positions to {ROWS}" in finding.expected
    only_accuses(verdict, "bob")


def test_a_fifo_pair_broken_alike_at_every_member(spark: SparkSession, journals: Journals) -> None:
    broken = {name: forge.break_fifo(path, 1_200) for name, path in journals.items()}
    verdict = audit(spark, journals)
    assert len(set(broken.values())) == 1
    for name, position in broken.items():
        assert named(verdict, "fifo", name, position).kind == "sender's order broken"
    assert verdict.state_of("total order") == verdict.state_of("agreement") == "ok"


def test_a_message_that_nobody_sent_at_one_member(spark: SparkSession, journals: Journals) -> None:
    position = in_one_frame(journals["alice"], 700)
    forge.insert(journals["alice"], position, b"give it to me")
    verdict = audit(spark, journals)
    finding = named(verdict, "integrity", "alice", position)
    assert finding.kind == "inserted"
    assert "'give it to me'" in finding.found
    only_accuses(verdict, "alice")


def test_a_message_that_its_sender_does_not_know_at_all_others(spark: SparkSession, journals: Journals) -> None:
    """The others agree with each other, and outnumber the one who should have sent it: its own journal decides."""
    carol = forge.owner_of(journals["carol"])
    heads = [segment[place].head for segment, place in forge.Forgery(journals["carol"]).frames()]
    position = next(
        head.position + 1 for head in heads if head.sender == carol and head.position > 600 and head.messages > 3
    )
    for name in ("alice", "bob"):
        forge.insert(journals[name], position, b"carol never said so")
    verdict = audit(spark, journals)
    for name in ("alice", "bob"):
        assert named(verdict, "integrity", name, position).kind == "nobody sent it"


def test_a_message_removed_at_one_member_just_before_a_view(spark: SparkSession, journals: Journals) -> None:
    last = ROWS // VIEWS  # of the first view
    forge.drop(journals["bob"], last)  # alice sent it
    verdict = audit(spark, journals)
    finding = named(verdict, "virtual synchrony", "bob", last)
    assert finding.expected == f"position {last} as the last one of view {_first_view(verdict)}"
    assert finding.found == f"position {last - 1}"
    assert finding.reference == ("alice", "carol")
    only_accuses(verdict, "bob")


def _first_view(verdict: AuditVerdict) -> str:
    return str(verdict.facts["views"]["alice"][0].view)


def test_one_torn_one_missing_one_tampered_with(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    torn = sorted(journals["alice"].glob("*.seg"))[-1]
    torn.write_bytes(torn.read_bytes()[:-200])
    tampered = sorted(journals["bob"].glob("*.seg"))[0]
    data = bytearray(tampered.read_bytes())
    data[len(data) // 2] ^= 0xFF
    tampered.write_bytes(data)
    verdict = run_audit(spark, [*map(str, journals.values()), str(tmp_path / "dave")])
    assert verdict.exit_code == 1
    assert "ends inside a record" in verdict.members[0].notes[0]
    assert next(one for one in verdict.of("integrity") if one.member == "bob").kind == "damaged"
    assert verdict.unusable[0].startswith(f"{tmp_path / 'dave'} does not exist")
    assert "bob" in to_text(verdict)
    assert '"verdict": "violated"' in verdict.to_json()
