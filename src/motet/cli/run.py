"""`motet run`: a measured run of real members on this machine, and a check that all delivered the same."""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from motet.aio.events import Batch
from motet.aio.faults import parse_fault
from motet.aio.group import Group
from motet.aio.joining import Joining
from motet.cli.node import load_config
from motet.config import Config
from motet.errors import ConfigError, MotetError

EXAMPLES = """
Examples:

  motet run --members 3 --senders 1 --messages 1000000 --size 100            how fast is it here

  motet run --members 5 --senders 3 --messages 20000 --drop 0.2 --json       under loss; exit code 1 if logs differ

  motet run --members 3 --messages 100000 --out runs/one                     keep journals and figures
"""
BATCH_BYTES = 50_000
TELL_EVERY_S = 0.2
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Work:
    """What one member of the run is to do."""

    index: int
    members: int
    senders: int
    messages: int  # of all senders together
    size: int
    order: Literal["total", "fifo"]
    seeds: tuple[str, ...]
    settings: tuple[str, ...]
    faults: tuple[str, ...]
    journal: str | None
    snapshot_after: int

    @property
    def own_messages(self) -> int:
        share, rest = divmod(self.messages, self.senders)
        return share + (self.index < rest) if self.index < self.senders else 0


@dataclass(slots=True)
class Result:
    """What one member saw."""

    member: str
    delivered: int = 0
    seconds: float = 0.0
    sequence: str = ""  # a digest of all that was delivered, in order
    latency_us: dict[str, Any] = field(default_factory=dict)
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    snapshot: dict[str, Any] | None = None
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.delivered / self.seconds if self.seconds else 0.0


def run(
    members: Annotated[int, typer.Option(help="How many processes.", min=1, max=64)] = 3,
    senders: Annotated[int, typer.Option(help="How many of them send.", min=1)] = 1,
    messages: Annotated[int, typer.Option(help="Messages in all.", min=1)] = 100_000,
    size: Annotated[int, typer.Option(help="Bytes per message.", min=16, max=1 << 24)] = 100,
    order: Annotated[str, typer.Option(help="total or fifo.")] = "total",
    drop: Annotated[float, typer.Option(help="Share of datagrams that every member drops.", min=0, max=0.9)] = 0.0,
    delay: Annotated[str, typer.Option(help="Delay datagrams, TIME:SHARE, for example 20ms:0.5.")] = "",
    snapshot_after: Annotated[int, typer.Option(help="Take a snapshot after so many deliveries.", min=0)] = 0,
    out: Annotated[str, typer.Option(help="Keep journals and result.json in this directory.")] = "",
    preset: Annotated[str, typer.Option(help="local, lan or wan.")] = "local",
    setting: Annotated[list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run a group of real processes over UDP on this machine, measure it, and compare what they delivered."""
    if order not in ("total", "fifo"):
        raise ConfigError(f"--order {order} is unknown; allowed are total and fifo")
    if senders > members:
        raise ConfigError(f"--senders {senders} is more than --members {members}")
    faults = [f"drop={drop}"] if drop else []
    faults += [f"delay={delay}"] if delay else []
    for fault in faults:
        parse_fault(fault)  # say now what is wrong, and not in every process
    settings = (f"preset={preset}", *(setting or ()))
    load_config("", preset, list(setting or ()))
    works = [
        Work(
            index,
            members,
            senders,
            messages,
            size,
            "fifo" if order == "fifo" else "total",
            (),
            settings,
            tuple(faults),
            str(Path(out) / f"member-{index}") if out else None,
            snapshot_after if index == 0 else 0,
        )
        for index in range(members)
    ]
    results = _run_all(works, is_quiet=as_json)
    raise typer.Exit(_report(works[0], results, Path(out) if out else None, as_json))


run.__doc__ = f"{run.__doc__}\n\n\b{EXAMPLES}"


# The parent


def _run_all(works: list[Work], *, is_quiet: bool) -> list[Result]:
    """Start the members one after the other's address is known, let them go at once, and gather what they saw."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes = []
    try:
        seeds: tuple[str, ...] = ()
        for work in works:
            ours, theirs = context.Pipe()
            process = context.Process(target=_child, args=(_seeded(work, seeds), theirs), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
            if not seeds:
                seeds = (str(_receive(ours)),)
        for pipe in pipes:
            assert _receive(pipe) == "ready"
        for pipe in pipes:
            pipe.send("go")
        results = _gather(pipes, works[0].messages, is_quiet=is_quiet)
        for pipe in pipes:
            pipe.send("leave")
        for process in processes:
            process.join(30)
        return results
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()


def _seeded(work: Work, seeds: tuple[str, ...]) -> Work:
    from dataclasses import replace

    return replace(work, seeds=seeds)


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(PATIENCE_S):
        raise MotetError("a member of the run did not answer; look above for what it said")
    try:
        word = pipe.recv()
    except EOFError:
        raise MotetError("a member of the run has died; look above for what it said") from None
    if isinstance(word, BaseException):
        raise word
    return word


def _gather(pipes: list[Connection], messages: int, *, is_quiet: bool) -> list[Result]:
    results: list[Result] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    is_shown = not is_quiet and sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_shown) as progress:
        tasks: list[TaskID] = [progress.add_task(f"member {i}", total=messages) for i in range(len(pipes))]
        for index, pipe in enumerate(pipes):
            while not isinstance(word := _receive(pipe), Result):
                progress.update(tasks[index], completed=int(word))
            progress.update(tasks[index], completed=messages)
            results.append(word)
    return results


def _report(work: Work, results: list[Result], out: Path | None, as_json: bool) -> int:
    is_same = len({result.sequence for result in results}) == 1
    summary = {
        "members": work.members,
        "senders": work.senders,
        "messages": work.messages,
        "size": work.size,
        "order": work.order,
        "same_sequence": is_same if work.order == "total" else None,
        "messages_per_s": round(min(result.rate for result in results)),
        "results": [asdict(result) | {"messages_per_s": round(result.rate)} for result in results],
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_text(json.dumps(summary, indent=2))
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(work, results, is_same, out, Console())
    return 0 if is_same or work.order == "fifo" else 1


def _print(work: Work, results: list[Result], is_same: bool, out: Path | None, console: Console) -> None:
    """80 columns are enough for it."""
    table = Table(box=None, padding=(0, 1))
    for number, name in enumerate(("member", "messages", "per s", "MB/s", "median", "p99", "CPU s", "MB", "resent")):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for result in results:
        latency = [result.latency_us.get(name) for name in ("median_us", "p99_us")]
        table.add_row(
            result.member,
            f"{result.delivered:,}",
            brief(result.rate),
            f"{result.rate * work.size / 1e6:,.1f}",
            *("-" if value is None else brief_time(value) for value in latency),
            f"{result.cpu_s:.2f}",
            f"{result.rss_mb:.0f}",
            brief(result.counters.get("frame_resent", 0)),
        )
    console.print(table)
    console.print("median and p99 are from sending to delivery; MB is memory at the end", style="dim", soft_wrap=True)
    if work.order == "total":
        console.print("[green]All members delivered the same sequence.[/]" if is_same else "[red]The logs DIFFER.[/]")
    if out is not None:
        console.print(f"Journals and result.json are in {out}. Next: motet audit {out}/member-*", soft_wrap=True)


def brief(number: float) -> str:
    """In seven columns at most, below 100 000 million."""
    if number < 10_000:
        return f"{number:,.0f}"
    millions = number / 1e6
    return f"{millions:.2f} M" if millions < 100 else f"{millions:,.0f} M"


def brief_time(microseconds: float) -> str:
    milliseconds = microseconds / 1000
    if milliseconds < 10:
        return f"{milliseconds:.2f} ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"


# A member


def _child(work: Work, pipe: Connection) -> None:
    try:
        asyncio.run(_member(work, pipe))
    except MotetError as error:
        pipe.send(error)
    except KeyboardInterrupt:
        pass


def _config(work: Work) -> Config:
    given = dict(assignment.split("=", 1) for assignment in work.settings)
    return Config.load(None, {}, **given)


async def _member(work: Work, pipe: Connection) -> None:
    joining = Joining(
        "run",
        name=f"m{work.index}",
        seeds=work.seeds,
        config=_config(work),
        journal=work.journal,
    )
    async with joining as group:
        if work.index == 0:
            pipe.send(str(group.address.endpoint))
        await group.until(lambda view: len(view.members) == work.members)
        for fault in work.faults:
            group.inject(fault)
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        sending = asyncio.create_task(_send(group, work))
        result = await _deliver(group, work, pipe)
        await sending
        pipe.send(result)
        await asyncio.to_thread(pipe.recv)


async def _send(group: Group, work: Work) -> None:
    per_batch = max(1, BATCH_BYTES // work.size)
    filler = bytes(work.size - 16)
    for start in range(0, work.own_messages, per_batch):
        numbers = range(start, min(start + per_batch, work.own_messages))
        batch = [b"%02d%014d" % (work.index, number) + filler for number in numbers]
        await group.multicast_many(batch, order=work.order)


async def _deliver(group: Group, work: Work, pipe: Connection) -> Result:
    result = Result(group.address.name)
    digest = hashlib.sha256()
    told = begun = 0.0
    async for event in group.batches():
        if not isinstance(event, Batch):
            continue
        now = time.perf_counter()
        begun = begun or now
        digest.update(b"".join(event.payloads))
        result.delivered += len(event.payloads)
        if work.snapshot_after and result.snapshot is None and result.delivered >= work.snapshot_after:
            result.snapshot = (await group.snapshot()).summary()
        if result.delivered >= work.messages:
            break
        if now - told > TELL_EVERY_S:
            told = now
            pipe.send(result.delivered)
    result.seconds = time.perf_counter() - begun
    result.sequence = digest.hexdigest()
    return _measured(group, result)


def _measured(group: Group, result: Result) -> Result:
    stats = group.stats()
    result.latency_us = stats["latency"]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result.cpu_s = round(usage.ru_utime + usage.ru_stime, 3)
    result.rss_mb = round(stats["memory_bytes"] / 1e6, 1)
    result.counters = {name: value for name, value in stats["counters"].items() if value}
    return result
