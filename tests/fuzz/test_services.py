"""The fuzz of a member's services, bounded: a few hundred attacks on a real member."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.services import fuzz


def test_a_member_withstands_some_hundred_attacks_on_what_it_serves(tmp_path: Path) -> None:
    done = fuzz(tmp_path, seconds=120, seed=19, most=400)
    assert len(done.attacks) == 7
    assert done.accepted, "some batches are changed in ways that leave them sound, and these must still get in"
