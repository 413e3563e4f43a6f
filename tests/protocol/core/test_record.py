"""Records: nobody changes one. The type checker sees to it, so it is the type checker that is asked here."""

from __future__ import annotations

from pathlib import Path

from mypy import api

from motet.protocol.core.effects import Broadcast
from motet.protocol.wire.frames import MulticastAck

CHANGES = """
from motet.protocol.core.effects import Broadcast
from motet.protocol.wire.frames import MulticastAck

frame = MulticastAck(7)
effect = Broadcast(frame)
frame.seqno = 8
effect.frame = MulticastAck(9)
"""


def test_the_type_checker_forbids_to_change_one(tmp_path: Path) -> None:
    (tmp_path / "changes.py").write_text(CHANGES)
    told, _, status = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path / "changes.py")])
    assert status == 1
    assert [line.split(":")[1] for line in told.splitlines() if "read-only" in line] == ["7", "8"]


def test_two_of_the_same_kind_with_the_same_fields_are_equal_and_hash_alike() -> None:
    assert MulticastAck(7) == MulticastAck(7) != MulticastAck(8)
    assert len({Broadcast(MulticastAck(7)), Broadcast(MulticastAck(7))}) == 1
