"""The commands. Each has examples in its help, JSON output for programs, and documented exit codes.

A command is imported when it is called: `motet node` must neither wait for the import of Spark nor keep it in memory.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from motet import __version__
from motet.cli.pipe import quiet_when_closed
from motet.errors import MotetError

COMMANDS = {  # in the order in which the help shows them
    "demo": "motet.cli.demo:demo",
    "node": "motet.cli.node:node",
    "run": "motet.cli.run:run",
    "suite": "motet.cli.suite:suite",
    "bench": "motet.cli.bench:bench",
    "probe": "motet.cli.probe:probe",
    "log": "motet.cli.log:log",
    "journal": "motet.cli.journal:journal",
    "audit": "motet.cli.audit:audit",
    "pipeline": "motet.cli.pipeline:pipeline",
    "sim": "motet.cli.sim:sim",
    "campaign": "motet.cli.campaign:campaign",
    "key": "motet.cli.key:key",
    "doctor": "motet.cli.doctor:doctor",
}


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        return _as_command(cmd_name, getattr(import_module(module), attribute))


def _as_command(name: str, target: Any) -> Any:
    if not isinstance(target, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name=name)(target)
        target = alone
    command = typer.main.get_command(target)
    command.name = name
    return command


app = typer.Typer(
    name="motet",
    cls=_Commands,
    help="Reliable, totally ordered group messaging for Python processes, without a broker.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


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
    """Print a MotetError as one sentence. Any other exception is a bug and keeps its traceback."""
    try:
        with quiet_when_closed():
            app()
    except MotetError as error:
        Console(stderr=True).print(f"motet: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
