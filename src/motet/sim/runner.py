"""Runs one seed, or a range of seeds in several processes. Results arrive in the order of the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain

from motet.errors import ConfigError
from motet.protocol.core.trace import Emit
from motet.sim.checkers.channels import violation_of
from motet.sim.scenarios.busy import run_busy
from motet.sim.scenarios.channels import SeedOutcome, run_channels
from motet.sim.scenarios.interrupted import run_interrupted
from motet.sim.scenarios.membership import run_membership, run_membership_100
from motet.sim.scenarios.presets import run_presets
from motet.sim.scenarios.small_world import case_count, run_small_world
from motet.sim.scenarios.snapshot import run_snapshot
from motet.sim.scenarios.state import run_state
from motet.sim.scenarios.total_order import run_total_order

SCENARIOS: dict[str, Callable[..., SeedOutcome]] = {
    "busy": run_busy,
    "channels": run_channels,
    "membership": run_membership,
    "membership-100": run_membership_100,
    "presets": run_presets,
    "small-world": run_small_world,
    "snapshot": run_snapshot,
    "state": run_state,
    "interrupted": run_interrupted,
    "total-order": run_total_order,
}
_CHUNK = 8  # seeds per task: small enough for a smooth progress bar


def all_seeds(scenario: str) -> range:
    """All seeds of a scenario that enumerates its cases, which only small-world does."""
    if scenario != "small-world":
        raise ConfigError(f"{scenario} has a world for every number; say which: --seeds FROM:TO")
    return range(case_count())


def run_seed(scenario: str, seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    """Run one seed. An exception inside the simulation is a violation. `trace` receives the trace events of members."""
    if scenario not in SCENARIOS:
        raise ConfigError(f"there is no scenario {scenario!r}; there are: {', '.join(sorted(SCENARIOS))}")
    try:
        watched = {} if trace is None else {"trace": trace}
        return SCENARIOS[scenario](seed, with_transcript=with_transcript, **watched)
    except ConfigError:  # the seed does not exist
        raise
    except Exception as error:  # the outcome names the seed that reproduces it
        return SeedOutcome(seed, (violation_of(error),), {}, "")


def run_seeds(scenario: str, seeds: range, workers: int) -> Iterator[SeedOutcome]:
    if scenario not in SCENARIOS:
        raise ConfigError(f"there is no scenario {scenario!r}; there are: {', '.join(sorted(SCENARIOS))}")
    if workers <= 1:
        yield from map(partial(run_seed, scenario), seeds)
        return
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    with ProcessPoolExecutor(max_workers=workers) as pool:
        yield from chain.from_iterable(pool.map(partial(_run_chunk, scenario), chunks))


def _run_chunk(scenario: str, seeds: range) -> list[SeedOutcome]:
    return [run_seed(scenario, seed) for seed in seeds]
