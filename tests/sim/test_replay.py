"""A seed names a run: the same one gives the same run to the byte, in this process and in any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256

import pytest

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.sim.scenarios.channels import SeedOutcome, run_channels
from motet.sim.world.history import DeliveredBatch, ForgotSender, History
from motet.sim.world.plan import PlannedFaultKind, draw_plan


def smallest_world_with(kind: PlannedFaultKind) -> int:
    plans = [plan for plan in map(draw_plan, range(80)) if kind in {fault.kind for fault in plan.faults}]
    return min(plans, key=lambda plan: len(plan.names) * len(plan.bursts)).seed


# Faults that bring in or throw out a process or a window are the ones that change what a world iterates over.
SEEDS = sorted({smallest_world_with(kind) for kind in PlannedFaultKind})
PRINT_RUNS = """
import json, sys
from hashlib import sha256
from motet.sim.scenarios.channels import run_channels
for seed in map(int, sys.argv[1:]):
    outcome = run_channels(seed, with_transcript=True)
    print(json.dumps([seed, outcome.fingerprint, sha256("\\n".join(outcome.transcript).encode()).hexdigest()]))
"""

A = Address("a", "127.0.0.1", 7800, 1)
B = Address("b", "127.0.0.1", 7801, 2)


def essence(outcome: SeedOutcome) -> list[object]:
    return [outcome.seed, outcome.fingerprint, sha256("\n".join(outcome.transcript).encode()).hexdigest()]


def runs_in_another_process(hash_seed: str) -> list[list[object]]:
    """Sets and dicts of strings have another order there."""
    answer = subprocess.run(
        [sys.executable, "-c", PRINT_RUNS, *map(str, SEEDS)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.fixture(scope="module")
def runs() -> list[SeedOutcome]:
    return [run_channels(seed, with_transcript=True) for seed in SEEDS]


def test_the_same_seed_gives_the_same_run_twice_in_one_process(runs: list[SeedOutcome]) -> None:
    for first in runs:
        again = run_channels(first.seed, with_transcript=True)
        assert again.transcript == first.transcript
        assert again == first  # verdict, statistics and fingerprint


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_same_seed_gives_the_same_run_in_another_process(runs: list[SeedOutcome], hash_seed: str) -> None:
    assert runs_in_another_process(hash_seed) == [essence(outcome) for outcome in runs]


def test_a_run_does_not_depend_on_the_runs_before_it(runs: list[SeedOutcome]) -> None:
    for first in reversed(runs):
        assert run_channels(first.seed).fingerprint == first.fingerprint


def test_different_seeds_give_different_runs() -> None:
    outcomes = [run_channels(seed) for seed in range(8)]
    assert len({outcome.fingerprint for outcome in outcomes}) == len(outcomes)


def test_watching_a_run_does_not_change_it(runs: list[SeedOutcome]) -> None:
    for watched in runs:
        unwatched = run_channels(watched.seed)
        assert (unwatched.fingerprint, unwatched.stats) == (watched.fingerprint, watched.stats)
        assert unwatched.transcript == ()


def test_a_transcript_begins_with_the_plan_and_tells_the_rest_in_order_of_time(runs: list[SeedOutcome]) -> None:
    for outcome in runs:
        plan = draw_plan(outcome.seed).describe()
        assert list(outcome.transcript[: len(plan)]) == plan
        times = [float(line.partition(" ms  ")[0]) for line in outcome.transcript[len(plan) :]]
        assert times == sorted(times)
        assert len(times) > outcome.stats["datagrams"] > 0  # a line for each, and more


# The fingerprint itself


def history(*events: DeliveredBatch | ForgotSender) -> History:
    return History(events=list(events))


ONE = DeliveredBatch(1, B, Channel.UNICAST, A, (b"one",))
TWO = DeliveredBatch(1, B, Channel.UNICAST, A, (b"two",))


def test_equal_histories_have_equal_fingerprints() -> None:
    same = DeliveredBatch(1, B, Channel.UNICAST, A, (b"one",))
    assert history(ONE, TWO).fingerprint() == history(same, TWO).fingerprint()


@pytest.mark.parametrize(
    "other",
    [
        history(),
        history(ONE),
        history(TWO, ONE),
        history(ONE, TWO, TWO),
        history(ONE, DeliveredBatch(2, B, Channel.UNICAST, A, (b"two",))),
        history(ONE, DeliveredBatch(1, A, Channel.UNICAST, A, (b"two",))),
        history(ONE, DeliveredBatch(1, B, Channel.MULTICAST, A, (b"two",))),
        history(ONE, DeliveredBatch(1, B, Channel.UNICAST, A, (b"t", b"wo"))),
        history(ONE, TWO, ForgotSender(1, B, A)),
    ],
    ids=["nothing", "less", "order", "twice", "time", "receiver", "channel", "batches", "forgot"],
)
def test_any_difference_between_two_histories_shows_in_the_fingerprint(other: History) -> None:
    assert other.fingerprint() != history(ONE, TWO).fingerprint()
