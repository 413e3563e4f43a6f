"""The commands. Each has an example in its help, a form for programs, and an exit code that means something."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from motet import __version__
from motet.cli.audit import audit
from motet.cli.campaign import campaign
from motet.cli.journal import journal
from motet.cli.log import log
from motet.cli.node import node
from motet.cli.pipeline import pipeline
from motet.cli.probe import probe
from motet.cli.run import run
from motet.cli.sim import sim
from motet.errors import MotetError

app = typer.Typer(
    name="motet",
    help="Reliable, totally ordered group messaging for Python processes, without a broker.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command(name="audit")(audit)
app.command(name="campaign")(campaign)
app.command(name="node")(node)
app.command(name="pipeline")(pipeline)
app.command(name="probe")(probe)
app.command(name="run")(run)
app.command(name="sim")(sim)
app.add_typer(journal, name="journal")
app.add_typer(log, name="log")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"motet {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Many voices, one piece, the same order for everyone."""


def main() -> None:
    """Errors that we raise on purpose are told in one sentence; anything else is a bug and keeps its traceback."""
    try:
        app()
    except MotetError as error:
        Console(stderr=True).print(f"motet: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
