"""`motet journal`: inspect, verify and export the log that a member has on disk."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from motet.errors import ConfigError, JournalCorruptError, JournalError
from motet.log.journal.reader import JournalReader
from motet.log.journal.verify import JournalVerdict, verify

EXAMPLES = """
Examples:

  motet journal stat data/a                              show what it holds

  motet journal verify data/a                            verify every byte; exit code 1 if something is damaged

  motet journal cat data/a --from 100 --to 120           read some of it

  motet journal export data/a --parquet a.parquet        all rows, for any tool that reads Parquet
"""
BATCH_ROWS = 65_536

journal = typer.Typer(
    name="journal",
    help=f"Inspect a member's journal, the log on its disk, also while the member runs.\n\n\b{EXAMPLES}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The journal's directory.")]
First = Annotated[int | None, typer.Option("--from", help="The first position; default: the oldest.", min=1)]
Last = Annotated[int | None, typer.Option("--to", help="The last position; default: the newest.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@journal.command(name="verify")
def verify_journal(directory: Directory, as_json: AsJson = False) -> None:
    """Verify all records: checksums, the chained hash, no gaps. Exit code 1 if a record is damaged.

    Example: motet journal verify data/a
    """
    with _bytes_done(f"reading {directory}") as on_progress:
        verdict = verify(directory, on_progress=on_progress)
    if as_json:
        typer.echo(json.dumps(asdict(verdict) | {"ok": verdict.is_good}))
    else:
        _tell(verdict, directory)
    raise typer.Exit(0 if verdict.is_good else 1)


def _tell(verdict: JournalVerdict, directory: Path) -> None:
    good = f"positions {verdict.first} to {verdict.last}" if verdict.last >= verdict.first else "no positions"
    typer.echo(
        f"{directory}: group {verdict.group!r}, {good}, stable to {verdict.stable}; {verdict.segments} segments, "
        f"{verdict.frames:,} frames, {verdict.views} views, {verdict.size:,} bytes; chain {verdict.chain}"
    )
    if verdict.flaw is None:
        typer.echo("good: checksums, chained hash, no gaps, and the owner of the segments")
        return
    typer.echo(f"BAD: {verdict.flaw}")
    if verdict.flaw.is_torn_tail:
        typer.echo(
            "A write was incomplete. The member truncates the tail when it opens the journal, and fetches it again."
        )
    else:
        typer.echo(
            "The disk does not have what was written. Move the directory away and let the member fetch the log from "
            "the others; records before the damage can still be read with cat and export."
        )


@journal.command()
def stat(directory: Directory, as_json: AsJson = False) -> None:
    """Show what the journal holds: positions, segments, views, owner.

    Example: motet journal stat data/a --json
    """
    reader = JournalReader(directory)
    bounds, segments, views = reader.bounds(), reader.segments(), reader.views()
    owner = reader.owner
    fields: dict[str, Any] = {
        "group": reader.group,
        "owner": f"{owner.name}#{owner.incarnation:016x}" if owner is not None else None,
        **asdict(bounds),
        "rows": max(0, bounds.last - bounds.first + 1),
        "bytes": sum(segment.size for segment in segments),
        "segments": [asdict(segment) for segment in segments],
        "views": [
            {
                "view": f"{record.view.id.number}@{record.view.id.creator:016x}",
                "position": record.position,
                "members": [f"{member.name}#{member.incarnation:016x}" for member in record.view.members],
            }
            for record in views
        ],
    }
    if as_json:
        typer.echo(json.dumps(fields))
        return
    for name in ("group", "owner", "first", "last", "stable", "epoch", "rows", "bytes"):
        value = fields[name]
        typer.echo(f"{name:9} {value:,}" if isinstance(value, int) else f"{name:9} {value}")
    typer.echo(f"segments  {len(segments)}")
    for segment in segments:
        typer.echo(f"  {segment.name}  {segment.first} to {segment.last}, {segment.size:,} bytes")
    typer.echo(f"views     {len(views)}")
    for record in fields["views"]:
        typer.echo(f"  {record['view']}  after {record['position']}: {', '.join(record['members'])}")


@journal.command()
def cat(directory: Directory, first: First = None, last: Last = None, as_json: AsJson = False) -> None:
    """Print rows, one to a line. With --json a payload that is not UTF-8 is printed as base64, in "payload_b64".

    Example: motet journal cat data/a --from 100 --to 120
    """
    reader = JournalReader(directory)
    start, end = _range(reader, first, last)
    show = _as_json if as_json else _as_line
    for batch in reader.read(start, end):
        typer.echo("\n".join(map(show, batch.to_pylist())))


def _as_line(row: dict[str, Any]) -> str:
    key = f" {_text(row['key'])}:" if row["key"] is not None else ""
    at = row["delivered_at"].strftime("%Y-%m-%d %H:%M:%S.%f")
    return f"{row['position']:>10}  {at}  {row['sender']}{key} {_text(row['payload'])}"


def _text(data: bytes | None) -> str:
    if data is None:
        return "(never complete)"
    try:
        return data.decode() if data.decode().isprintable() else repr(data)[2:-1]
    except UnicodeDecodeError:
        return repr(data)[2:-1]


def _as_json(row: dict[str, Any]) -> str:
    fields = {name: row[name] for name in ("position", "epoch", "view", "sender", "seqno")}
    fields |= {name: row[name].isoformat() for name in ("sent_at", "delivered_at")}
    for name in ("key", "payload"):
        if row[name] is not None:
            fields |= _bytes_field(name, row[name])
    return json.dumps(fields, ensure_ascii=False)


def _bytes_field(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode()}


@journal.command()
def export(
    directory: Directory,
    parquet: Annotated[Path, typer.Option(help="The file to write; it appears when it is complete.")],
    first: First = None,
    last: Last = None,
    as_json: AsJson = False,
) -> None:
    """Write rows into a Parquet file.

    Example: motet journal export data/a --parquet a.parquet
    """
    from pyarrow.parquet import ParquetWriter

    from motet.log.journal.schema import LOG_SCHEMA

    reader = JournalReader(directory)
    start, end = _range(reader, first, last)
    fresh = parquet.with_name(parquet.name + ".part")
    try:
        bar = _rows_done(f"writing {parquet}", end - start + 1)
        with ParquetWriter(fresh, LOG_SCHEMA, compression="zstd") as writer, bar as done:
            for batch in reader.read(start, end, BATCH_ROWS):
                writer.write_batch(batch)
                done(batch.num_rows)
        fresh.replace(parquet)
    except OSError as error:
        raise JournalError(f"{parquet} cannot be written: {error.strerror or error}; choose another place") from error
    finally:
        fresh.unlink(missing_ok=True)
    told = {"rows": end - start + 1, "first": start, "last": end, "bytes": parquet.stat().st_size, "file": str(parquet)}
    line = f"{told['rows']:,} rows, positions {start} to {end}, {told['bytes']:,} bytes in {parquet}"
    typer.echo(json.dumps(told) if as_json else line)


def _range(reader: JournalReader, first: int | None, last: int | None) -> tuple[int, int]:
    oldest, newest = _bounds(reader)
    start, end = first or oldest, newest if last is None else last
    if end > newest or start < oldest:
        raise ConfigError(f"positions {start} to {end} are not all there; the journal has {oldest} to {newest}")
    return start, end


def _bounds(reader: JournalReader) -> tuple[int, int]:
    """The bounds of the journal; of a damaged one, of the records before the damage."""
    try:
        bounds = reader.bounds()
    except JournalCorruptError as error:
        typer.echo(f"motet: {error}", err=True)
        return reader.segments()[0].first, error.position
    return bounds.first, bounds.last


# Progress: a bar on a terminal, otherwise nothing; on stderr, so that stdout has only the result


@contextmanager
def _bytes_done(title: str) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def _rows_done(title: str, total: int) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
