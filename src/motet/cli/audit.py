"""`motet audit`: did the guarantees hold in the journals of a group?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """
Examples:

  motet audit data/a data/b data/c            compare three members' journals; exit code 1 if a guarantee is broken

  motet audit run/journals --report audit.html     every journal in a directory, and a page with plots

  motet audit exports/a exports/b --json      Parquet files of the log instead of journals, for a program to read
"""


def audit(
    directories: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Journals or Parquet exports of members, or a directory that has them."),
    ],
    report: Annotated[Path | None, typer.Option(help="Also write a report with plots to this HTML file.")] = None,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Check every guarantee over the journals of all members. Exit code: 0 all hold, 1 violated, 2 unusable input."""
    from motet.spark.audit import run_audit
    from motet.spark.report import to_html
    from motet.spark.session import build_session
    from motet.spark.verdict import to_text

    spark = build_session(master, "motet audit")
    try:
        verdict = run_audit(spark, directories, with_times=report is not None)
    finally:
        spark.stop()
    if report is not None:
        report.write_text(to_html(verdict), encoding="utf-8")
    typer.echo(verdict.to_json() if as_json else to_text(verdict))
    if report is not None and not as_json:
        typer.echo(f"report: {report}")
    raise typer.Exit(verdict.exit_code)


audit.__doc__ = f"{audit.__doc__}\n\n\b{EXAMPLES}"
