"""Fuzz whole members with datagrams: `python -m tests.fuzz.datagrams --frames 2000000`.

Unsealed members of the shipped presets, with journals, total order and state transfer, get mutated, forged, replayed,
reflected, cut and random datagrams, in the name of members and of strangers. A world takes --world of them; then a
fresh one begins. Exit code 1 if a member stopped or hung. The seed of a world in which one did is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import count
from pathlib import Path
from random import Random

import motet
from motet.testing import SimNetwork, run
from tests.hostile.arena import Arena, AttackOutcome, memory_mb

PRESETS = (motet.Config.local, motet.Config.lan, motet.Config.wan)
LONGEST_S = 1e9  # of virtual time


def config_of(seed: int) -> motet.Config:
    preset = PRESETS[seed % len(PRESETS)]
    return preset(strategy="continuous") if seed // len(PRESETS) % 2 else preset(strategy="window")


def one_world(seed: int, frames: int, outcome: AttackOutcome, config: motet.Config | None = None) -> None:
    async def scenario(network: SimNetwork) -> None:
        with tempfile.TemporaryDirectory(prefix="motet-fuzz-") as home:
            arena = Arena(network, Random(seed), config or config_of(seed), outcome, Path(home))
            await arena.open()
            attacker = arena.attacker
            await arena.attack((*attacker.known, *attacker.unknown, *attacker.again), frames)
            await arena.close()

    run(scenario, seed=seed, within=LONGEST_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--world", type=int, default=2_000, help="frames for one world")
    parser.add_argument("--seed", type=int, default=0, help="of the first world")
    options = parser.parse_args()
    total, early_mb = AttackOutcome(), 0.0
    for seed in count(options.seed):
        outcome = AttackOutcome()
        one_world(seed, min(options.world, options.frames - total.frames), outcome)
        for what in (*outcome.stops, *outcome.hangs):
            print(f"seed {seed}: {what}", flush=True)
        total.stops += outcome.stops
        total.hangs += outcome.hangs
        before, total.frames = total.frames, total.frames + outcome.frames
        total.most_sent = max(total.most_sent, outcome.most_sent)
        if not early_mb and total.frames * 10 >= options.frames:
            early_mb = memory_mb()
        if total.frames >= options.frames or total.frames == before:
            break
    print(
        f"{total.frames:,} frames, {len(total.stops)} stops, {len(total.hangs)} hangs, at most {total.most_sent:,} "
        f"datagrams after one batch; peak RSS {early_mb:.0f} MB at 10 %, {memory_mb():.0f} MB at 100 %"
    )
    sys.exit(1 if total.stops or total.hangs else 0)


if __name__ == "__main__":
    main()
