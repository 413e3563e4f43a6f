"""The scenario `snapshot`: a stretch of seeds that passes, and proof that something happens in them."""

from __future__ import annotations

import pytest

from motet.sim.runner import SCENARIOS, run_seed
from motet.sim.scenarios.snapshot import draw_snapshot_plan, run_snapshot

SEEDS = (2, 5, 8, 14, 15, 18, 24, 25, 29, 30, 34, 37, 39)  # small worlds, which are quick


def test_seeds_pass() -> None:
    outcomes = [run_seed("snapshot", seed) for seed in SEEDS]
    failed = [
        f"{outcome.violations[0]}\n  replay: motet sim --seed {outcome.seed} --scenario snapshot --transcript"
        for outcome in outcomes
        if not outcome.is_ok
    ]
    assert not failed, "\n" + "\n".join(failed)
    for what in ("snapshots_taken", "snapshots_failed", "in_flight", "waiting", "views"):
        assert sum(outcome.stats[what] for outcome in outcomes) > 0, what
    for outcome in outcomes:
        stats = outcome.stats
        assert stats["snapshots_taken"] + stats["snapshots_failed"] <= stats["snapshots"]
        assert stats["snapshots_taken"] > 0, "a group at rest takes one of every member"


def test_it_can_be_run_by_name() -> None:
    assert SCENARIOS["snapshot"] is run_snapshot


@pytest.mark.parametrize("seed", [2, 24])
def test_the_same_seed_gives_the_same_run_watched_or_not(seed: int) -> None:
    watched, unwatched = run_snapshot(seed, with_transcript=True), run_snapshot(seed)
    assert (unwatched.fingerprint, unwatched.stats) == (watched.fingerprint, watched.stats)
    for what in ("starts snapshot", "has snapshot", "owns"):
        assert any(what in line for line in watched.transcript), what


def test_timeouts_differ() -> None:
    assert len({draw_snapshot_plan(seed).config.snapshot.timeout_ns for seed in range(20)}) == 3
