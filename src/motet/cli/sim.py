"""`motet sim`: run seeds of the simulator, replay one of them, or show what a run looks like."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from motet.errors import ConfigError
from motet.runtime.trace import open_trace
from motet.sim.runner import SCENARIOS, all_seeds, run_seed, run_seeds
from motet.sim.scenarios.channels import SeedOutcome

DEMO_SEEDS = range(60)
_OF_SOME = {  # counted only by some scenarios
    "snapshots_taken": "snapshots taken",
    "snapshots_failed": "snapshots failed",
    "expulsions": "living members expelled",
    "rolled_back": "rolled back",
    "failed_sends": "sends failed",
}
EXAMPLES = """
Examples:

  motet sim --seed 42 --transcript        replay one seed and read what happened

  motet sim --seeds 0:1000 --json         a thousand worlds; exit code 1 if any fails

  motet sim --seed 42 --trace 42.jsonl    what its members did, one event per line

  motet sim --seeds 0:300 --scenario presets    members as shipped, half of all datagrams lost or 2 s late
"""


def sim(
    seed: Annotated[int | None, typer.Option(help="Run this one seed.", min=0)] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Run the seeds FROM:TO, TO not included; or 'all' of small-world.", metavar="FROM:TO"),
    ] = None,
    scenario: Annotated[
        str,
        typer.Option(
            help="The scenario to draw worlds from: busy, channels, interrupted, membership, membership-100, "
            "presets, small-world, snapshot, state, total-order."
        ),
    ] = "channels",
    transcript: Annotated[bool, typer.Option("--transcript", help="Print everything that happened.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write trace events to FILE.jsonl, .arrow or .parquet; with --seed.", metavar="FILE"),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Show the simulator at work, in half a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    workers: Annotated[int, typer.Option(help="Processes; 0 means one per core.", min=0)] = 0,
) -> None:
    """Run the protocols in a virtual world drawn from a seed: lossy network, crashes, cuts, pauses, slow readers."""
    if demo and (seed is not None or seeds is not None or as_json or transcript or trace is not None):
        raise ConfigError("--demo excludes other options; for one seed use --seed S")
    if demo:
        raise typer.Exit(_demo(scenario, _worker_count(workers)))
    if (seed is None) == (seeds is None):
        raise ConfigError("give either --seed S or --seeds FROM:TO (or --demo for a first impression)")
    if seed is not None:
        raise typer.Exit(_one(scenario, seed, transcript, as_json, trace))
    if trace is not None:
        raise ConfigError("--trace goes with --seed: the traces of many seeds in one file cannot be distinguished")
    if transcript:
        raise ConfigError("--transcript goes with --seed: nobody can read the transcripts of many seeds")
    raise typer.Exit(_many(scenario, _parse_range(str(seeds), scenario), _worker_count(workers), as_json))


sim.__doc__ = f"{sim.__doc__}\n\n\b{EXAMPLES}"


def _worker_count(workers: int) -> int:
    return workers or os.cpu_count() or 1


def _parse_range(text: str, scenario: str) -> range:
    if text == "all":
        return all_seeds(scenario)
    first, separator, end = text.partition(":")
    if not separator or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise ConfigError(f"--seeds {text} is not a range; write FROM:TO with FROM below TO, for example 0:1000")
    return range(int(first), int(end))


def _one(scenario: str, seed: int, transcript: bool, as_json: bool, trace: Path | None) -> int:
    outcome = _traced(scenario, seed, transcript, trace)
    if as_json:
        typer.echo(json.dumps(_as_dict(outcome) | ({"transcript": outcome.transcript} if transcript else {})))
    else:
        for line in outcome.transcript:
            typer.echo(line)
        verdict = "ok" if outcome.is_ok else "FAILED"
        typer.echo(
            f"seed {seed} ({scenario}): {verdict}, {_describe(outcome.stats)}, fingerprint {outcome.fingerprint}"
        )
        if not outcome.transcript:
            for violation in outcome.violations:
                typer.echo(f"  {violation}")
    return 0 if outcome.is_ok else 1


def _traced(scenario: str, seed: int, transcript: bool, trace: Path | None) -> SeedOutcome:
    if trace is None:
        return run_seed(scenario, seed, with_transcript=transcript)
    sink = open_trace(trace)
    try:
        return run_seed(scenario, seed, with_transcript=transcript, trace=sink.emit)
    finally:
        sink.close()


def _many(scenario: str, seeds: range, workers: int, as_json: bool) -> int:
    started = time.monotonic()
    failed: list[SeedOutcome] = []
    totals: Counter[str] = Counter()
    for outcome in _with_progress(
        run_seeds(scenario, seeds, workers), len(seeds), f"{scenario} {seeds.start}:{seeds.stop}"
    ):
        totals.update(outcome.stats)
        if not outcome.is_ok:
            failed.append(outcome)
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        typer.echo(json.dumps(_summary(scenario, seeds, failed, totals, seconds), indent=2))
    else:
        typer.echo(f"{len(seeds)} seeds of {scenario}: {len(failed)} failed, {_describe(totals)}, {seconds} s")
        for outcome in failed[:20]:
            typer.echo(f"  seed {outcome.seed}: {outcome.violations[0]}")
            typer.echo(f"    replay: {_replay(scenario, outcome.seed)}")
    return 1 if failed else 0


def _demo(scenario: str, workers: int) -> int:
    if scenario not in SCENARIOS:
        raise ConfigError(f"there is no scenario {scenario!r}; there are: {', '.join(sorted(SCENARIOS))}")
    console = Console()
    console.print("Each row is one virtual world: its members, its network and its faults are drawn from the seed.")
    console.print(
        "Under these faults nothing may come twice, out of order, or unsent; once healed, nothing may be missing.\n"
    )
    table = Table("seed", "members", "faults", "datagrams", "sent", "delivered", "took", "verdict")
    failed = 0
    outcomes = run_seeds(scenario, DEMO_SEEDS, workers)
    for outcome in _with_progress(outcomes, len(DEMO_SEEDS), "drawing and running worlds"):
        failed += not outcome.is_ok
        stats = outcome.stats
        if outcome.seed % 5 == 0 or not outcome.is_ok:
            columns = ("members", "faults", "datagrams", "accepted", "delivered")
            verdict = "[green]ok[/]" if outcome.is_ok else f"[red]{outcome.violations[0]}[/]"
            cells = [f"{stats.get(name, 0):,}" for name in columns]
            table.add_row(str(outcome.seed), *cells, f"{stats.get('virtual_ms', 0) / 1000:.1f} s", verdict)
    console.print(table)
    console.print(
        f"\n{len(DEMO_SEEDS)} worlds (every fifth is shown): {len(DEMO_SEEDS) - failed} passed, {failed} failed."
    )
    console.print("Next: [bold]motet sim --seed 15 --transcript[/] reads one of them line by line.")
    return 1 if failed else 0


def _with_progress(outcomes: Iterable[SeedOutcome], total: int, title: str) -> Iterator[SeedOutcome]:
    """A bar on a terminal, otherwise a line now and then; on stderr, so that stdout has only the result."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield from progress.track(outcomes, total=total, description=title)
        return
    step = max(1, total // 10)
    for done, outcome in enumerate(outcomes, start=1):
        yield outcome
        if done % step == 0:
            typer.echo(f"{title}: {done} of {total}", err=True)


def _as_dict(outcome: SeedOutcome) -> dict[str, object]:
    return {
        "seed": outcome.seed,
        "ok": outcome.is_ok,
        "violations": [str(violation) for violation in outcome.violations],
        "stats": outcome.stats,
        "fingerprint": outcome.fingerprint,
    }


def _summary(
    scenario: str, seeds: range, failed: list[SeedOutcome], totals: Counter[str], seconds: float
) -> dict[str, object]:
    return {
        "scenario": scenario,
        "seeds": {"from": seeds.start, "to": seeds.stop, "count": len(seeds)},
        "failed": len(failed),
        "failures": [_as_dict(outcome) | {"replay": _replay(scenario, outcome.seed)} for outcome in failed],
        "totals": dict(totals),
        "seconds": seconds,
    }


def _replay(scenario: str, seed: int) -> str:
    return f"motet sim --seed {seed} --scenario {scenario} --transcript"


def _describe(stats: dict[str, int] | Counter[str]) -> str:
    names = ("accepted", "delivered", "datagrams", "resent", "faults")
    words = [f"{stats.get(name, 0):,} {name}" for name in names]
    return ", ".join(words + [f"{stats[name]:,} {word}" for name, word in _OF_SOME.items() if name in stats])
