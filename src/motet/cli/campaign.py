"""`motet campaign`: run thousands of simulated worlds on Spark."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from motet.audit.campaign import Campaign, Summary

MOST_SHOWN = 20
EXAMPLES = """
Examples:

  motet campaign --runs 10000 --scenario total-order --out campaign         repeat it to continue after Ctrl-C

  motet campaign --runs 10000 --scenario membership --out /mnt/lake/campaign --master spark://host:7077
"""


def campaign(
    out: Annotated[Path, typer.Option(help="Where outcomes and traces go; all executors must reach it.")],
    runs: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1000,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    scenario: Annotated[str, typer.Option(help="The scenario to draw worlds from.")] = "total-order",
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    traces: Annotated[bool, typer.Option(help="Keep trace events, and audit the order over them.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run many seeds of the simulator on Spark's executors. Exit code: 0 none failed, 1 some failed, 2 cannot run."""
    from motet.audit.campaign import Campaign
    from motet.spark.session import build_session

    seeds = range(first, first + runs)
    spark = build_session(master, "motet campaign", is_light=True)
    try:
        work = Campaign(spark, scenario, seeds, out.resolve(), with_traces=traces)
        summary = _with_progress(work, scenario)
    finally:
        spark.stop()
    if as_json:
        failures = [asdict(failure) | {"replay": failure.replay} for failure in summary.failures]
        typer.echo(json.dumps(asdict(summary) | {"scenario": scenario, "failures": failures}))
    else:
        _print(summary, scenario, out)
    raise typer.Exit(1 if summary.failures else 0)


campaign.__doc__ = f"{campaign.__doc__}\n\n\b{EXAMPLES}"


def _with_progress(work: Campaign, scenario: str) -> Summary:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task(scenario, total=None)
        return work.run(lambda done, total: progress.update(bar, completed=min(done, total), total=total))


def _print(summary: Summary, scenario: str, out: Path) -> None:
    speed = f"{summary.ran} seeds in {summary.seconds:.0f} s" if summary.ran else "nothing left to run"
    earlier = f", {summary.found_done} were done before" if summary.found_done else ""
    audited = f"; order audited over the traces of {summary.audited}" if summary.audited else ""
    typer.echo(
        f"{scenario}: {len(summary.failures)} of {summary.wanted} failed; {speed}{earlier}{audited}. Tables in {out}"
    )
    for failure in summary.failures[:MOST_SHOWN]:
        typer.echo(f"  seed {failure.seed}: {'; '.join(failure.violations)[:300]}\n    {failure.replay}")
    if len(summary.failures) > MOST_SHOWN:
        typer.echo(f"  ... and {len(summary.failures) - MOST_SHOWN} more, in {out}/outcomes")
