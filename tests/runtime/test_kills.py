"""Members with journals that are killed under load. Long forms: python -m tests.runtime.kills, tests.runtime.stalls."""

from __future__ import annotations

from tests.runtime import kills, stalls


def test_killed_under_load_every_journal_verifies_and_all_are_equal_after_the_return() -> None:
    assert kills.run(3, seed=1) > 0


def test_killed_and_stopped_with_losses_the_log_goes_on_and_all_that_it_lacks_was_told_to_have_failed() -> None:
    assert stalls.run(2, 5_000, seed=1) > 0
