"""How many delivered messages are rolled back, with the fast path and without it. Run: python benchmarks/rollbacks.py

The same worlds of the scenario `presets` run twice: as shipped (proposals are broadcast in small groups, so a member
delivers one message delay earlier), and with order_fast_path_members = 0. Time is that of the simulator, so the figures
do not depend on the machine. `python benchmarks/rollbacks.py SEEDS` runs so many worlds (300); `--json` prints figures.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from motet.sim.scenarios.membership import run_world
from motet.sim.scenarios.presets import PresetsWorld
from motet.sim.scenarios.presets_plan import draw_presets_plan

SEEDS = 300
FAST_PATHS: dict[str, dict[str, object]] = {"on": {}, "off": {"order_fast_path_members": 0}}
COLUMNS = ("delivered", "rolled_back", "worlds_with_rollbacks", "views", "expulsions", "failed")


def figures(seed: int) -> dict[str, Counter[str]]:
    return {name: _figures(seed, settings) for name, settings in FAST_PATHS.items()}


def _figures(seed: int, settings: dict[str, object]) -> Counter[str]:
    outcome = run_world(PresetsWorld, draw_presets_plan(seed, **settings), with_transcript=False)
    told = Counter({name: outcome.stats.get(name, 0) for name in COLUMNS})
    told["worlds_with_rollbacks"] = int(told["rolled_back"] > 0)
    told["failed"] = int(not outcome.is_ok)
    return told


def measure(seeds: range) -> dict[str, Counter[str]]:
    totals: dict[str, Counter[str]] = {name: Counter() for name in FAST_PATHS}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for told in pool.map(figures, seeds, chunksize=8):
            for name, counted in told.items():
                totals[name].update(counted)
    return totals


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    seeds = range(numbers[0] if numbers else SEEDS)
    totals = measure(seeds)
    if "--json" in sys.argv:
        print(json.dumps({"seeds": len(seeds), "fast_path": totals}, indent=2))
        return
    print(f"{len(seeds)} worlds of presets, the same with the fast path and without it")
    print(f"| fast path | {' | '.join(name.replace('_', ' ') for name in COLUMNS)} |")
    print(f"|---|{'--:|' * len(COLUMNS)}")
    for name, told in totals.items():
        print(f"| {name} | {' | '.join(f'{told[column]:,}' for column in COLUMNS)} |")


if __name__ == "__main__":
    main()
