"""`motet probe`: show the figures of a running member, or operate it, over its admin port."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from motet.admin.client import AdminClient, parse_endpoint
from motet.admin.operations import OPERATIONS, check_arguments
from motet.cli.probe_report import Section, plain, render, sections, summary
from motet.errors import (
    AdminRefusedError,
    AdminUnreachableError,
    ConfigError,
    MotetError,
    NotAMemberError,
    OperationRefusedError,
)
from motet.log.service.validated_json import boolean

NOT_WELL = 1
EXIT_CODES: dict[type[MotetError], int] = {
    AdminUnreachableError: 3,
    AdminRefusedError: 4,
    NotAMemberError: 5,
    OperationRefusedError: 6,
}
EXAMPLES = """
Examples:

  motet probe 127.0.0.1:9001                      show its figures once

  motet probe 127.0.0.1:9001 --watch              show them again and again

  motet probe 127.0.0.1:9001 --json | jq .stats.log

  motet probe 127.0.0.1:9001 fault drop=0.2@b   inject a fault: drop 20 % to and from b

  motet probe 127.0.0.1:9001 fault clear          remove all faults

Operations: sync MEMBER (done when SYNC-ACK was sent), snapshot, leave, fault RULE.

Exit code: 0 well or done, 1 the member is not well, 2 invalid arguments, 3 nothing listens there, 4 the token is
missing or wrong, 5 not a Motet member, 6 the member refused the operation, or it failed or timed out there.
"""


def probe(
    address: Annotated[str, typer.Argument(help="The member's admin port.", metavar="HOST:PORT")],
    operation: Annotated[str | None, typer.Argument(help="The operation; without one, show the figures.")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="The arguments of the operation.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    token: Annotated[
        str | None, typer.Option(help="The member's admin token.", envvar="MOTET_TOKEN", show_default=False)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the figures repeatedly, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two polls with --watch.", min=0.1, max=3600)] = 1.0,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=0.1, max=3600)] = 5.0,
) -> None:
    """Show a running member's view, log, windows, connections and counters, or make it do something."""
    if watch and operation is not None:
        raise ConfigError("--watch and an operation exclude each other; give one of them")
    client = AdminClient(parse_endpoint(address), token)
    try:
        if operation is not None:
            raise typer.Exit(_operate(client, operation, arguments or [], as_json))
        raise typer.Exit(_watch(client, every, timeout, as_json) if watch else _show(client, timeout, as_json))
    except tuple(EXIT_CODES) as error:
        Console(stderr=True).print(f"motet: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_CODES[type(error)]) from None


probe.__doc__ = f"{probe.__doc__}\n\n\b{EXAMPLES}"


def _operate(client: AdminClient, name: str, given: list[str], as_json: bool) -> int:
    checked = _checked(name, given)
    answer = client.operate(name, checked)
    if as_json:
        typer.echo(json.dumps(answer))
        return 0
    said = " ".join([name, *given])
    typer.echo(f"done: {plain(said)}")
    for key, value in answer.items():
        typer.echo(f"  {plain(key)}: {plain(value if isinstance(value, str) else json.dumps(value))}")
    return 0


def _checked(name: str, given: list[str]) -> dict[str, Any]:
    operation = OPERATIONS.get(name)
    if operation is None:
        listed = "; ".join(f"{known.example}: {known.meaning}" for known in OPERATIONS.values())
        raise ConfigError(f"there is no operation {name!r}. There are: {listed}")
    wanted = [operation.argument] if operation.argument else []
    if len(given) != len(wanted):
        takes = f"takes one argument, the {operation.argument}" if wanted else "takes no arguments"
        raise ConfigError(f"{name} {takes}; for example: motet probe HOST:PORT {operation.example}")
    try:
        return check_arguments(name, dict(zip(wanted, given, strict=True)))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _show(client: AdminClient, timeout_s: float, as_json: bool) -> int:
    stats, health = client.stats(timeout_s), client.health(timeout_s)
    if as_json:
        typer.echo(json.dumps({"health": health, "stats": stats}, indent=2))
    else:
        _print(sections(stats, health))
    return _exit_code(health)


def _watch(client: AdminClient, every_s: float, timeout_s: float, as_json: bool) -> int:
    """Refresh one screen on a terminal; otherwise print one line per poll."""
    try:
        if as_json or not sys.stdout.isatty():
            return _watch_lines(client, every_s, timeout_s, as_json)
        return _watch_screen(client, every_s, timeout_s)
    except KeyboardInterrupt:
        return 0


def _watch_lines(client: AdminClient, every_s: float, timeout_s: float, as_json: bool) -> int:
    while True:
        stats, health = client.stats(timeout_s), client.health(timeout_s)
        typer.echo(json.dumps({"health": health, "stats": stats}) if as_json else summary(stats, health))
        sys.stdout.flush()
        time.sleep(every_s)


def _watch_screen(client: AdminClient, every_s: float, timeout_s: float) -> int:
    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            live.update(render(sections(client.stats(timeout_s), client.health(timeout_s))), refresh=True)
            time.sleep(every_s)


def _print(found: list[Section]) -> None:
    if sys.stdout.isatty():
        Console().print(render(found))
        return
    for section in found:
        for line in section.lines():
            typer.echo(line)


def _exit_code(health: dict[str, object]) -> int:
    return 0 if boolean(health, "well") else NOT_WELL
