"""`motet bench`: measure the performance on this machine, also of other systems."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from motet.harness.bench.machine import describe
from motet.harness.bench.report import table, write_markdown
from motet.harness.bench.results import Results
from motet.harness.bench.rows import all_rows, select
from motet.harness.bench.suite import Effort, measure_all

EXAMPLES = """
Examples:

  motet bench --quick                          every row once for a second, as a smoke test

  motet bench --rows fifo-1,total-1            rows by name, or by a prefix of names

  motet bench --peers --out docs/bench.md      everything, beside peers that are installed; JSON goes beside it

  motet bench --rows soak                      ten minutes, with the memory over time
"""
WIDTH = 150  # of the table; a narrower terminal wraps its lines
QUICK = Effort(runs=1, seconds=1.0, warm_up=0.5, soak_seconds=10.0)


def bench(
    rows: Annotated[str, typer.Option(help="Only these rows, comma-separated; a prefix of names will do.")] = "",
    runs: Annotated[int, typer.Option(help="How often each row is measured.", min=1, max=99)] = 3,
    seconds: Annotated[float, typer.Option(help="How long each run is measured.", min=0.1)] = 4.0,
    quick: Annotated[bool, typer.Option("--quick", help="One short run of each row.")] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="Also measure other systems that are installed; needs a checkout.")
    ] = False,
    out: Annotated[str, typer.Option(help="Write results here: .json, or .md with .svg and .json beside it.")] = "",
    show: Annotated[bool, typer.Option("--list", help="List the rows without measuring.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Measure groups of real processes on this machine: rates, latencies, memory, view changes."""
    if show:
        _list()
        return
    chosen = select([name.strip() for name in rows.split(",") if name.strip()])
    effort = QUICK if quick else Effort(runs=runs, seconds=seconds)
    results = Results(describe(), " ".join(["motet", *sys.argv[1:]]))
    console = Console(stderr=True)

    def tell(what: str) -> None:
        console.print(what, style="dim", highlight=False)
        _write(results, out)

    measure_all(chosen, results, effort, with_peers=peers, tell=tell)
    _write(results, out)
    if as_json:
        typer.echo(json.dumps(results.as_json(), indent=2))
    else:
        console = Console()
        Console(width=max(console.width, WIDTH)).print(table(results))


bench.__doc__ = f"{bench.__doc__}\n\n\b{EXAMPLES}"


def _list() -> None:
    for row in all_rows():
        typer.echo(f"{row.name:<24} {row.section}: {row.title}")


def _write(results: Results, out: str) -> None:
    """Write after every run, so that an interrupted benchmark leaves its results."""
    if not out:
        return
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(results.as_json(), indent=1), encoding="utf-8")
    if path.suffix == ".md":
        write_markdown(results, path)
