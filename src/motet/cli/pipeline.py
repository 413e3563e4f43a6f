"""`motet pipeline`: load journals into a lake of Parquet tables incrementally, each row once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from motet.audit.pipeline import Pipeline, PipelineOutcome

EXAMPLES = """
Examples:

  motet pipeline data/a data/b data/c --out lake       all stable rows; repeat it later for new ones

  motet pipeline data/* --out lake --follow 10         load new rows every ten seconds, until Ctrl-C
"""


def pipeline(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="Journals of members.")],
    out: Annotated[Path, typer.Option(help="Directory of the tables; created if missing.")],
    follow: Annotated[float, typer.Option(help="Load new rows every so many seconds.", min=0)] = 0.0,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Bronze (journals as they are), silver (one verified row per position), gold (rates, latency, views).

    Exit code: 0 all members agree, 1 some value of silver differs between members, 2 unusable input.
    """
    from motet.audit.inputs import require_some
    from motet.audit.pipeline import Pipeline
    from motet.spark.session import build_session

    require_some(directories)
    spark = build_session(master, "motet pipeline")
    try:
        work = Pipeline(spark, directories, out.resolve())
        for text in work.unusable:
            typer.echo(f"left out: {text}", err=True)
        outcome = _follow(work, follow) if follow else work.run()
    finally:
        spark.stop()
    typer.echo(json.dumps(asdict(outcome)) if as_json else _in_words(outcome, out))
    raise typer.Exit(1 if outcome.conflicts else 0)


pipeline.__doc__ = f"{pipeline.__doc__}\n\n\b{EXAMPLES}"


def _follow(work: Pipeline, seconds: float) -> PipelineOutcome:
    from motet.spark.ending import POLL_EVERY_S, raise_failure, stop_between_batches, stop_requested

    with stop_requested() as stopping:
        queries = work.follow(seconds)
        typer.echo("following; Ctrl-C ends it after the current batches are written", err=True)
        while all(query.isActive for query in queries) and not stopping.wait(POLL_EVERY_S):
            pass
        stop_between_batches(queries)
    raise_failure(queries)
    return work.outcome()


def _in_words(outcome: PipelineOutcome, out: Path) -> str:
    bronze = ", ".join(f"{name} {rows}" for name, rows in sorted(outcome.bronze.items())) or "nothing new"
    agreed = "all members agree" if not outcome.conflicts else f"{outcome.conflicts} ranges DIFFER: run motet audit"
    return f"{out}: bronze {bronze}; silver {outcome.silver} new, positions {outcome.first} to {outcome.last}; {agreed}"
