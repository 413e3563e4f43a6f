"""`motet doctor`: check whether a member will run well on this machine, and what to do if not."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from motet.cli.checkup import CheckResult, CheckVerdict, Examination, examine
from motet.config import Config, parse_endpoint

STYLES = {
    CheckVerdict.OK: "green",
    CheckVerdict.NOTE: "cyan",
    CheckVerdict.WARN: "yellow",
    CheckVerdict.FAIL: "bold red",
}
EXAMPLES = """
Examples:

  motet doctor                                      check this machine

  motet doctor --journal data/a --bind 10.0.0.5:0   with the directory and the address that a member will use

  motet doctor --json                               for programs

Exit code: 0 all that a member needs works (there may be advice), 1 something does not, 2 invalid arguments.
"""


def doctor(
    bind: Annotated[str, typer.Option(help="The address that a member will use.", metavar="HOST:PORT")] = "127.0.0.1:0",
    journal: Annotated[str, typer.Option(help="The directory of a member's journal.", metavar="DIR")] = "",
    config: Annotated[str, typer.Option(help="A TOML file with the settings of the member.", metavar="FILE")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Check sockets, buffers, multicast, Java, Spark, the journal's directory, limits and the clock of this machine."""
    settings = Config.load(config) if config else Config.local()
    findings = examine(Examination(parse_endpoint(bind, "--bind"), journal or None, settings))
    is_fit = all(finding.verdict is not CheckVerdict.FAIL for finding in findings)
    if as_json:
        typer.echo(json.dumps({"fit": is_fit, "findings": [finding.as_dict() for finding in findings]}, indent=2))
    else:
        _print(findings)
        typer.echo(_summary(findings))
    raise typer.Exit(0 if is_fit else 1)


doctor.__doc__ = f"{doctor.__doc__}\n\n\b{EXAMPLES}"


def _print(findings: list[CheckResult]) -> None:
    if not sys.stdout.isatty():
        for finding in findings:
            remedy = f" What to do: {finding.remedy}" if finding.remedy else ""
            typer.echo(f"{finding.verdict:<4}  {finding.name}: {finding.text}{remedy}")
        return
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for finding in findings:
        said = Text(finding.text)
        if finding.remedy:
            said.append(f"\n→ {finding.remedy}", STYLES[finding.verdict])
        table.add_row(Text(finding.verdict, STYLES[finding.verdict]), Text(finding.name), said)
    Console().print(table)


def _summary(findings: list[CheckResult]) -> str:
    failed = [finding.name for finding in findings if finding.verdict is CheckVerdict.FAIL]
    advised = sum(finding.verdict is CheckVerdict.WARN for finding in findings)
    if failed:
        return f"A member will not run well here: {', '.join(failed)}."
    return f"A member will run here{f'; {advised} things could be improved' if advised > 1 else ''}" + (
        "; one thing could be improved." if advised == 1 else "."
    )
