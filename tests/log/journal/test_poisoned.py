"""A journal that holds a number which no group can reach: an earlier version persisted a forged frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.errors import JournalCorruptError, MisuseError
from motet.log.journal.disk import RealDisk
from motet.log.journal.owner import NAME, OWNER, Owner, load, save
from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MOST_COUNT
from motet.protocol.core.view import View, ViewId
from motet.protocol.membership.primary import PrimaryRecord

A = Address("a", "127.0.0.1", 7800, 5)
CREATOR = 0x1122334455667788


def owner_with(number: int) -> Owner:
    return Owner(address=A, record=PrimaryRecord(View(ViewId(number, CREATOR), (A,), is_primary=True)))


def test_a_poisoned_record_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = OWNER.write(owner_with(7))
    tail = CREATOR.to_bytes(8, "little")
    poisoned = good.replace((7).to_bytes(8, "little") + tail, b"\xff" * 8 + tail)
    assert poisoned != good
    monkeypatch.setattr("motet.log.journal.owner.OWNER", type(OWNER)(lambda owner: poisoned, OWNER.read))
    save(Owner(), tmp_path, RealDisk(), is_synced=False)
    with pytest.raises(JournalCorruptError, match="Move the whole directory away and join again"):
        load(tmp_path, RealDisk())
    assert (tmp_path / NAME).exists()


def test_such_a_number_is_never_written() -> None:
    with pytest.raises(MisuseError, match="no member would accept it"):
        OWNER.write(owner_with(MOST_COUNT + 1))
