"""`motet log`: read, follow and append to the log that members serve, from a terminal or a script."""

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from random import SystemRandom
from typing import Annotated, Any, TextIO

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from motet.errors import ConfigError, MotetError
from motet.log.service.client import LogClient
from motet.log.service.link import Offsets

MOST_LINES = 5000  # lines of one append; lines that arrived meanwhile are appended together
MOST_WAITING = 50_000  # lines read ahead of the group

EXAMPLES = """
Examples:

  motet log offsets 127.0.0.1:7900 127.0.0.1:7901         which positions each member has

  motet log read 127.0.0.1:7900 --from 100 --to 120       some rows

  motet log follow 127.0.0.1:7900 127.0.0.1:7901          rows as they come

  echo "buy 10" | motet log append 127.0.0.1:7900         one more
"""

log = typer.Typer(
    name="log",
    help="Read, follow and append to the log that members serve, with failover between the given members."
    f"\n\n\b{EXAMPLES}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Members = Annotated[list[str], typer.Argument(metavar="HOST:PORT...", help="Log services of members.")]
Token = Annotated[str | None, typer.Option(envvar="MOTET_TOKEN", help="The services' token.", show_default=False)]
Roots = Annotated[str | None, typer.Option("--tls-roots", help="PEM file to trust; given, TLS is spoken.")]
Timeouts = Annotated[float, typer.Option(help="Seconds without progress after which to give up.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


@log.command()
def offsets(
    members: Members, token: Token = None, tls_roots: Roots = None, timeout: Timeouts = 10.0, as_json: AsJson = False
) -> None:
    """Show which positions each member has. Exit code 1 if a member does not answer.

    \b
    Example:
      motet log offsets 127.0.0.1:7900 127.0.0.1:7901
    """
    with LogClient(members, token, tls_roots, timeout_s=timeout) as client:
        answers = client.survey()
    if as_json:
        typer.echo(json.dumps({member: _as_dict(answer) for member, answer in answers.items()}))
    else:
        _show(answers)
    raise typer.Exit(1 if any(isinstance(answer, MotetError) for answer in answers.values()) else 0)


@log.command()
def read(
    members: Members,
    first: Annotated[
        int | None, typer.Option("--from", help="First position; default: the first there is.", min=1)
    ] = None,
    last: Annotated[int | None, typer.Option("--to", help="Last position; default: the stable one.", min=1)] = None,
    token: Token = None,
    tls_roots: Roots = None,
    timeout: Timeouts = 10.0,
    as_json: AsJson = False,
) -> None:
    """Print rows of the log: position, sender, key and payload; with --json all columns, one object per line.

    \b
    Examples:
      motet log read 127.0.0.1:7900 --from 100 --to 120
      motet log read 127.0.0.1:7900 127.0.0.1:7901 --json | jq .payload
    """
    with LogClient(members, token, tls_roots, timeout_s=timeout) as client:
        bounds = client.offsets()
        start = bounds.first if first is None else first
        _print_rows(client.read(start, bounds.stable if last is None else last), as_json)


@log.command()
def follow(
    members: Members,
    first: Annotated[
        int | None, typer.Option("--from", help="First position; default: the next to come.", min=1)
    ] = None,
    count: Annotated[int | None, typer.Option(help="Stop after so many rows.", min=1)] = None,
    token: Token = None,
    tls_roots: Roots = None,
    timeout: Timeouts = 30.0,
    as_json: AsJson = False,
) -> None:
    """Print rows as they become stable, until Ctrl-C or --count.

    \b
    Examples:
      motet log follow 127.0.0.1:7900 127.0.0.1:7901
      motet log follow 127.0.0.1:7900 --from 1 --count 100 --json
    """
    with LogClient(members, token, tls_roots, timeout_s=timeout) as client:
        start = client.offsets().stable + 1 if first is None else first
        try:
            _print_rows(_at_most(client.follow(start), count), as_json)
        except KeyboardInterrupt:
            return


@log.command()
def append(
    members: Members,
    producer: Annotated[
        int | None, typer.Option(help="Who appends; default: drawn. With --batch, a repeated call adds nothing.", min=1)
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Number of the first batch; higher than this producer's last one.", min=0)
    ] = 0,
    key_separator: Annotated[str | None, typer.Option(help="What is before it in a line is the key.")] = None,
    token: Token = None,
    tls_roots: Roots = None,
    timeout: Timeouts = 30.0,
    as_json: AsJson = False,
) -> None:
    """Append each line of standard input as one message; they are in the log, and stable, when this ends.

    \b
    Examples:
      echo "buy 10" | motet log append 127.0.0.1:7900 127.0.0.1:7901
      motet log append 127.0.0.1:7900 --key-separator , < orders.csv
    """
    if key_separator == "":
        raise ConfigError("--key-separator is empty; give the text between key and payload, for example ,")
    who = SystemRandom().getrandbits(63) or 1 if producer is None else producer
    rows, first, last = 0, 0, 0
    with LogClient(members, token, tls_roots, timeout_s=timeout) as client:
        for number, lines in enumerate(_gathered(sys.stdin), start=batch):
            payloads, keys = _split(lines, key_separator)
            new = [
                unit for unit in client.append_all(payloads, keys, producer=who, batch_id=number) if not unit.is_repeat
            ]
            rows += sum(unit.last - unit.first + 1 for unit in new)
            first, last = first or next((unit.first for unit in new), 0), max([last, *(unit.last for unit in new)])
    _tell(rows, first, last, who, as_json)


def _tell(rows: int, first: int, last: int, producer: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"rows": rows, "first": first, "last": last, "producer": producer}))
    elif rows:
        typer.echo(f"{rows} rows appended, at positions {first} to {last}, by producer {producer}")
    else:
        typer.echo("nothing appended: no lines, or all were in the log already")


def _show(answers: dict[str, Offsets | MotetError]) -> None:
    table = Table("member", "first", "last", "stable", "epoch", "")
    for member, answer in answers.items():
        if isinstance(answer, Offsets):
            table.add_row(member, *map(str, answer), "")
        else:
            table.add_row(member, "", "", "", "", str(answer))
    Console().print(table, markup=False)


def _as_dict(answer: Offsets | MotetError) -> dict[str, object]:
    return answer._asdict() if isinstance(answer, Offsets) else {"error": type(answer).__name__, "text": str(answer)}


def _at_most(batches: Iterator[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    left = count
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        if left is not None and (left := left - batch.num_rows) <= 0:
            return


def _print_rows(batches: Iterable[pa.RecordBatch], as_json: bool) -> None:
    for batch in batches:
        for row in batch.to_pylist():
            typer.echo(json.dumps(_row_as_dict(row)) if as_json else _row_as_text(row))


def _row_as_dict(row: dict[str, Any]) -> dict[str, Any]:
    """Bytes that are text are told as text, others in base64 under another name."""
    document = {name: value for name, value in row.items() if not isinstance(value, bytes)}
    document |= {name: document[name].isoformat() for name in ("sent_at", "delivered_at")}
    for name in ("key", "payload"):
        if isinstance(value := row[name], bytes):
            try:
                document[name] = value.decode()
            except UnicodeDecodeError:
                document[f"{name}_base64"] = base64.b64encode(value).decode()
    return document


def _row_as_text(row: dict[str, Any]) -> str:
    key = "" if row["key"] is None else f" [{_readable(row['key'])}]"
    return f"{row['position']:>10} {row['sender'].partition('#')[0]:<12}{key} {_readable(row['payload'] or b'')}"


def _readable(value: bytes) -> str:
    """No control character reaches the terminal."""
    text = value.decode(errors="backslashreplace")
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def _split(lines: list[str], separator: str | None) -> tuple[list[bytes], list[bytes] | None]:
    if separator is None:
        return [line.encode(errors="surrogateescape") for line in lines], None
    parts = [line.partition(separator) for line in lines]
    if missing := next((line for line, part in zip(lines, parts, strict=True) if not part[1]), None):
        raise ConfigError(f"the line {missing[:60]!r} has no {separator!r}, so it has no key")
    return [payload.encode() for _, _, payload in parts], [key.encode() for key, _, _ in parts]


def _gathered(source: TextIO) -> Iterator[list[str]]:
    """Lines as they come, those together that have come meanwhile: a pipe is fast, and a person is not kept waiting."""
    waiting: queue.Queue[str | None] = queue.Queue(MOST_WAITING)

    def listen() -> None:
        for line in source:
            waiting.put(line.rstrip("\r\n"))
        waiting.put(None)

    threading.Thread(target=listen, name="motet-log-append-input", daemon=True).start()
    while (line := waiting.get()) is not None:
        lines = [line]
        while len(lines) < MOST_LINES and not waiting.empty():
            if (line := waiting.get()) is None:
                yield lines
                return
            lines.append(line)
        yield lines
