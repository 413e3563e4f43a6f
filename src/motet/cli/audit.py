"""`motet audit`: check whether the guarantees held, over the journals of a group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from motet.audit.follow import AuditRound
    from motet.audit.verdict import AuditFinding

EXAMPLES = """
Examples:

  motet audit data/a data/b data/c            compare three members' journals; exit code 1 if a guarantee is broken

  motet audit run/journals --report audit.html     every journal in a directory, and a page with plots

  motet audit data/a data/b data/c --follow 5     audit a live group, until Ctrl-C or the first violation

  motet audit exports/a exports/b --json      Parquet files of the log instead of journals, for a program to read
"""


def audit(
    directories: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Journals or Parquet exports of members, or a directory that has them."),
    ],
    report: Annotated[Path | None, typer.Option(help="Also write a report with plots to this HTML file.")] = None,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    follow: Annotated[float, typer.Option(help="Audit a live group, every so many seconds.", min=0)] = 0.0,
    state: Annotated[Path | None, typer.Option(help="With --follow: where to store what was audited.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Check every guarantee over the journals of all members. Exit code: 0 all hold, 1 violated, 2 unusable input."""
    from motet.audit.inputs import require_some

    require_some(directories)
    if follow:
        raise typer.Exit(_follow(directories, follow, state, master, as_json))
    from motet.audit.audit import run_audit
    from motet.audit.report import to_html
    from motet.audit.verdict import to_text
    from motet.spark.session import build_session

    spark = build_session(master, "motet audit", is_light=True)
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


def _follow(directories: list[str], seconds: float, state: Path | None, master: str, as_json: bool) -> int:
    from motet.audit.follow import LiveAudit
    from motet.spark.ending import POLL_EVERY_S, raise_failure, stop_between_batches, stop_requested
    from motet.spark.session import build_session

    spark = build_session(master, "motet audit, live", is_light=True)
    with TemporaryDirectory(prefix="motet-audit-") as scratch, stop_requested() as stopping:
        try:
            live = LiveAudit(spark, directories, (state or Path(scratch)).resolve(), partial(_raise, as_json), _tell)
            for text in live.unusable:
                typer.echo(f"left out: {text}", err=True)
            query = live.start(seconds)
            while query.isActive and not live.findings and not stopping.wait(POLL_EVERY_S):
                pass
            live.stop()
            stop_between_batches([query])
            raise_failure([query])
        finally:
            spark.stop()
    return 1 if live.findings else 0


def _tell(audit_round: AuditRound) -> None:
    """Print a line for people whenever new positions were audited."""
    stable = ", ".join(f"{name} {position}" for name, position in sorted(audit_round.stable.items()))
    typer.echo(f"{datetime.now():%H:%M:%S} audited to position {audit_round.checked}; stable: {stable}", err=True)
    for note in audit_round.notes:
        typer.echo(f"         {note}", err=True)


def _raise(as_json: bool, findings: Sequence[AuditFinding]) -> None:
    for finding in findings:
        line = json.dumps(asdict(finding)) if as_json else f"{finding.text}: {finding.expected}; found {finding.found}"
        typer.echo(line)
