from __future__ import annotations

from tests.aio import kills


def test_killed_under_load_every_journal_verifies_and_all_are_equal_after_the_return() -> None:
    """The long form is `python -m tests.aio.kills`."""
    assert kills.run(3, seed=1) > 0
