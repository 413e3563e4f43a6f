"""`verify` finds whatever is not as it was written, and says where."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from motet.errors import JournalError
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.owner import MOST_INCARNATIONS, Owner, in_full
from motet.log.journal.records import FRAME_HEAD_BYTES
from motet.log.journal.scan import Scan
from motet.log.journal.synthetic import members_of, write_journal
from motet.log.journal.verify import verify
from motet.sim.world.disk import SimDisk
from tests.log.journal.factory import GROUP, A, B, append_all, begun, view_of

HERE = Path("/journal")
CONFIG = JournalConfig(fsync=Fsync.ALWAYS, segment_bytes=4096)


def story() -> SimDisk:
    disk = SimDisk()
    journal, scribe = begun(HERE, CONFIG, disk)
    append_all(journal, scribe.many(100))
    scribe.enter(journal, view_of(2))
    journal.append(scribe.fragments(b"x" * 900, 200))
    append_all(journal, scribe.many(200))
    journal.mark_stable(250)
    journal.close()
    return disk


def test_a_good_journal() -> None:
    seen: list[tuple[int, int]] = []
    verdict = verify(HERE, story(), lambda done, total: seen.append((done, total)))
    assert verdict.is_good
    assert (verdict.first, verdict.last, verdict.stable, verdict.epoch, verdict.views) == (1, 301, 250, 2, 2)
    assert verdict.segments > 2
    assert seen[-1][0] == seen[-1][1] == verdict.size


def test_every_flipped_bit_is_found() -> None:
    """Any bit of any file; a bit of the very last record may look like a torn tail, all others are damage."""
    disk, rng = story(), Random(7)
    good = verify(HERE, disk)
    for name in disk.names(HERE):
        size = disk.size_of(HERE / name)
        for bit in rng.sample(range(size * 8), min(size * 8, 120)):
            disk.flip(HERE / name, bit)
            verdict = verify(HERE, disk)
            assert verdict.flaw is not None, f"bit {bit} of {name}"
            assert verdict.flaw.segment == name
            assert verdict.flaw.offset <= bit >> 3
            assert verdict.last <= good.last
            disk.flip(HERE / name, bit)
    assert verify(HERE, disk) == good


def test_damage_is_told_from_a_torn_tail() -> None:
    disk = story()
    name = max(name for name in disk.names(HERE) if name.endswith(".seg"))
    size = disk.size_of(HERE / name)
    disk.flip(HERE / name, 8 * 500)
    flaw = verify(HERE, disk).flaw
    assert flaw is not None
    assert not flaw.is_torn_tail
    assert str(flaw).startswith(f"damage at byte {flaw.offset} of {name}, after position {flaw.position}")
    disk.flip(HERE / name, 8 * 500)
    disk.open(HERE / name).truncate(size - 5)
    flaw = verify(HERE, disk).flaw
    assert flaw is not None
    assert flaw.is_torn_tail
    assert "a torn tail" in str(flaw)


@pytest.mark.parametrize("gone", [1, 2])
def test_a_missing_segment_is_found(gone: int) -> None:
    disk = story()
    names = [name for name in disk.names(HERE) if name.endswith(".seg")]
    disk.remove(HERE / names[gone])
    flaw = verify(HERE, disk).flaw
    assert flaw is not None
    assert (flaw.segment, flaw.offset) == (names[gone + 1], 0)
    assert not flaw.is_torn_tail


def test_frames_that_change_places_are_found(tmp_path: Path) -> None:
    """Each record by itself is whole: only the chain and the positions know."""
    write_journal(tmp_path, GROUP, 400, frame_bytes=1500)
    (segment,) = tmp_path.glob("*.seg")
    data = segment.read_bytes()
    scan = Scan(_Uncached(data), 16)
    frames = [found for found in scan if found.head.head_bytes == FRAME_HEAD_BYTES]
    pairs = [(a, b) for a, b in pairwise(frames) if a.head.size + a.offset == b.offset]
    one, two = pairs[3]
    swapped = data[: one.offset] + bytes(two.raw) + bytes(one.raw) + data[two.offset + two.head.size :]
    segment.write_bytes(swapped)
    flaw = verify(tmp_path).flaw
    assert flaw is not None
    assert (flaw.offset, flaw.position) == (one.offset, one.head.position - 1)
    segment.write_bytes(data[: one.offset] + data[two.offset :])
    assert verify(tmp_path).flaw is not None
    segment.write_bytes(data)
    assert verify(tmp_path).is_good


class _Uncached:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, count: int) -> bytes:
        return self._data[offset : offset + count]

    def size(self) -> int:
        return len(self._data)


def test_a_segment_of_another_member_is_found(tmp_path: Path) -> None:
    """It fits in every other way: the members of a group have the same log."""
    for number, name in enumerate(("a", "b")):
        write_journal(tmp_path / name, GROUP, 400, payload_bytes=24, frame_bytes=256, member=number, config=CONFIG)
    mine, theirs = (sorted((tmp_path / name).glob("*.seg"))[2] for name in ("a", "b"))
    assert mine.name == theirs.name
    mine.write_bytes(theirs.read_bytes())
    flaw = verify(tmp_path / "a").flaw
    assert flaw is not None
    assert (flaw.segment, flaw.is_torn_tail) == (mine.name, False)
    alice, bob = (in_full(member) for member in members_of(3)[:2])
    assert flaw.reason == f"it was written by {bob}, and this is the journal of {alice}"
    with pytest.raises(JournalError, match=f"does not belong here: it was written by {bob}"):
        Journal.open(tmp_path / "a", GROUP, CONFIG)


def test_lives_that_are_forgotten_are_known_by_their_name() -> None:
    owner = Owner()
    for incarnation in range(1, 3 + MOST_INCARNATIONS):
        owner = owner.taken_over(replace(A, incarnation=incarnation))
    assert owner.flaw_of(replace(A, incarnation=1)) is None
    assert owner.flaw_of(replace(B, incarnation=1)) is not None


def test_what_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is not there"):
        verify(tmp_path / "nowhere")
    with pytest.raises(JournalError, match="holds no journal"):
        verify(tmp_path)
