"""`motet node`: one member on the command line. Lines on stdin are multicast, deliveries and views are printed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, TextIO

import typer

from motet.api.events import (
    Batch,
    BatchEvent,
    BlockFailed,
    RolledBack,
    SendFailed,
    StateLost,
    StateRefused,
    ViewInstalled,
)
from motet.api.group import Group, Order
from motet.api.joining import Joining
from motet.config import Config
from motet.errors import ConfigError, MessageTooLargeError
from motet.protocol.core.view import View
from motet.protocol.wire.body import MAX_MESSAGE_BYTES
from motet.runtime.faults import parse_fault

EXAMPLES = """
Examples:

  motet node --group chat --bind 127.0.0.1:7800                              the first member

  motet node --group chat --bind 127.0.0.1:7801 --seeds 127.0.0.1:7800       another one, in another terminal

  seq 1000 | motet node --group chat --bind 127.0.0.1:0 --seeds 127.0.0.1:7800 --leave-at-end --json
"""
LINES_AT_ONCE = 512
CHUNKS_AHEAD = 16  # read and not multicast yet; beyond it, whoever writes to stdin waits
CHUNK_BYTES = 1 << 16
Form = Literal["text", "json"]


def node(
    group: Annotated[str, typer.Option(envvar="MOTET_GROUP", help="The name of the group.")],
    bind: Annotated[
        str, typer.Option(envvar="MOTET_BIND", help="Where to listen, HOST:PORT; port 0 takes any.")
    ] = "127.0.0.1:0",
    seeds: Annotated[str, typer.Option(help="Endpoints where other members may be: HOST:PORT,...")] = "",
    name: Annotated[str, typer.Option(envvar="MOTET_NAME", help="The name of this member; default: its address.")] = "",
    advertise: Annotated[str, typer.Option(help="The host under which others reach this member.")] = "",
    journal: Annotated[str, typer.Option(envvar="MOTET_JOURNAL", help="Keep the log in this directory.")] = "",
    serve: Annotated[str, typer.Option(help="Serve the log over Arrow Flight at HOST:PORT.")] = "",
    admin: Annotated[str, typer.Option(help="Serve admin, metrics and probe at HOST:PORT.")] = "",
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Serve the dashboard, too (at --admin).")] = False,
    preset: Annotated[str, typer.Option(help="local, lan or wan.")] = "",
    config: Annotated[str, typer.Option(help="A TOML file of settings.")] = "",
    setting: Annotated[list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; repeatable.")] = None,
    fault: Annotated[list[str] | None, typer.Option(help="Inject a fault, such as drop=0.2; repeatable.")] = None,
    order: Annotated[str, typer.Option(help="total or fifo.")] = "total",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
    leave_at_end: Annotated[
        bool, typer.Option("--leave-at-end", help="Leave when stdin has ended and all messages are stable.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more, on stderr.")] = False,
) -> None:
    """Run one member. Lines on stdin are multicast; each delivery is a line: position, sender, payload."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="motet: %(message)s", stream=sys.stderr
    )
    if order not in ("total", "fifo"):
        raise ConfigError(f"--order {order} is unknown; allowed are total and fifo")
    settings = load_config(config, preset, setting or [], seeds=seeds, admin=admin or None, serve=serve or None)
    if dashboard and not settings.admin_bind:
        settings = replace(settings, admin_bind="127.0.0.1:0")
    joining = Joining(
        group,
        bind=bind,
        name=name or None,
        advertise=advertise or None,
        config=settings,
        journal=journal or None,
        wait=False,
    )
    for rule in fault or []:
        parse_fault(rule)  # invalid rules are reported before this process contacts anybody
    printer = Printer("json" if as_json else "text", sys.stdout)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(joining, printer, fault or [], order, leave_at_end))


node.__doc__ = f"{node.__doc__}\n\n\b{EXAMPLES}"


def load_config(
    path: str,
    preset: str,
    assignments: list[str],
    *,
    seeds: str = "",
    admin: str | None = None,
    serve: str | None = None,
) -> Config:
    """Preset, file, environment, then the command line. The default preset is `local`."""
    given: dict[str, Any] = {}  # checked when it is read: the names come from the command line
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(
                f"--set {assignment} is not a setting; write NAME=VALUE, for example --set heartbeat=100ms"
            )
        given[key] = value
    if seeds:
        given["seeds"] = [seed.strip() for seed in seeds.split(",") if seed.strip()]
    if admin is not None:
        given["admin_bind"] = admin
    if serve is not None:
        given["log_bind"] = serve
    if preset:
        given["preset"] = preset
    elif not (path or {"MOTET_CONFIG", "MOTET_PRESET"} & os.environ.keys()):
        given["preset"] = "local"
    return Config.load(path or None, None, **given)


@dataclass(slots=True)
class Printer:
    """One line per event, one write per batch."""

    form: Form
    out: TextIO

    def show(self, event: BatchEvent) -> None:
        lines = self._json(event) if self.form == "json" else self._text(event)
        text = "".join(f"{line}\n" for line in lines)
        if text:
            self.out.write(text)
            self.out.flush()

    def note(self, kind: str, **fields: Any) -> None:
        if self.form == "json":
            self.out.write(json.dumps({"event": kind, **fields}) + "\n")
        else:
            self.out.write(f"{kind} {' '.join(f'{key}={value}' for key, value in fields.items())}\n")
        self.out.flush()

    def _text(self, event: BatchEvent) -> Iterable[str]:
        match event:
            case Batch():
                start = event.position if event.position is not None else None
                for offset, payload in enumerate(event.payloads):
                    place = "-" if start is None else start + offset
                    yield f"{place} {event.sender.name} {payload.decode(errors='backslashreplace')}"
            case ViewInstalled():
                yield f"view {describe_view(event.view)}"
            case RolledBack():
                yield f"rolled-back {event.first} {event.last}"
            case SendFailed():
                yield f"failed {event.error}"
            case StateLost():
                yield f"state-lost {describe_view(event.view)}"
            case StateRefused():
                yield f"state-refused {event.by.name} {event.reason}"
            case BlockFailed():
                yield f"block-failed {event.block} {type(event.error).__name__}: {event.error}"

    def _json(self, event: BatchEvent) -> Iterator[str]:
        match event:
            case Batch():
                for offset, payload in enumerate(event.payloads):
                    place = None if event.position is None else event.position + offset
                    key = event.keys[offset] if event.keys is not None else None
                    fields = {"event": "message", "position": place, "sender": event.sender.name, "order": event.order}
                    yield json.dumps(fields | _payload(payload) | ({} if key is None else {"key": _text_or_64(key)}))
            case ViewInstalled():
                yield json.dumps({"event": "view", **view_as_dict(event.view), "merged": len(event.subviews) > 1})
            case RolledBack():
                yield json.dumps({"event": "rolled_back", "first": event.first, "last": event.last})
            case SendFailed():
                yield json.dumps({"event": "failed", "error": str(event.error)})
            case StateLost():
                yield json.dumps({"event": "state_lost", **view_as_dict(event.view)})
            case StateRefused():
                yield json.dumps({"event": "state_refused", "by": event.by.name, "reason": event.reason})
            case BlockFailed():
                error = f"{type(event.error).__name__}: {event.error}"
                yield json.dumps(
                    {"event": "block_failed", "block": event.block, "position": event.position, "error": error}
                )


def describe_view(view: View) -> str:
    names = " ".join(member.name for member in view.members)
    return f"{view.id} {'primary' if view.is_primary else 'not-primary'} {names}"


def view_as_dict(view: View) -> dict[str, object]:
    members = [{"name": m.name, "endpoint": str(m.endpoint), "member": str(m)} for m in view.members]
    return {"id": str(view.id), "primary": view.is_primary, "coordinator": view.coordinator.name, "members": members}


def _payload(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def _text_or_64(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


async def _run(joining: Joining, printer: Printer, faults: list[str], order: str, leave_at_end: bool) -> None:
    async with joining as group:
        printer.note("started", member=str(group.address), endpoint=str(group.address.endpoint), **group.services())
        for fault in faults:
            group.inject(fault)
        asked_to_stop = _stop_signal()
        tasks = [
            asyncio.create_task(_show(group, printer)),
            asyncio.create_task(asked_to_stop.wait()),
            asyncio.create_task(_multicast_lines(group, order, leave_at_end)),
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks[1:]:
            task.cancel()
        for task in done:
            task.result()
        await group.leave()
        await tasks[0]
        printer.note("left", member=str(group.address))


def _stop_signal() -> asyncio.Event:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, asked.set)
    return asked


async def _show(group: Group, printer: Printer) -> None:
    async for event in group.batches():
        printer.show(event)


async def _multicast_lines(group: Group, order: str, leave_at_end: bool) -> None:
    """Multicast lines in the batches in which they arrive. At the end of stdin, wait until all are stable."""
    receipt, rest = None, bytearray()
    kind: Order = "fifo" if order == "fifo" else "total"
    async for chunk in _stdin_chunks():
        rest += chunk
        if b"\n" not in chunk:  # a long line: it is searched once, when it is complete
            if len(rest) > MAX_MESSAGE_BYTES:
                raise MessageTooLargeError(f"a line on stdin has more than {MAX_MESSAGE_BYTES} bytes; split it")
            continue
        *lines, rest = rest.split(b"\n")
        for start in range(0, len(lines), LINES_AT_ONCE):
            at_once = lines[start : start + LINES_AT_ONCE]
            receipt = await group.multicast_many(
                list(map(bytes, at_once)), order="fifo" if order == "fifo" else "total"
            )
    if rest:
        receipt = await group.multicast(bytes(rest), order=kind)
    if receipt is not None and order == "total":
        await receipt.stable()
    if not leave_at_end:
        await asyncio.Event().wait()


async def _stdin_chunks() -> AsyncIterator[bytes]:
    """What arrives on stdin, to its end.

    A thread reads it. An event loop refuses files and /dev/null, and would make a terminal non-blocking for everybody
    who has it open, so that output to it is lost.
    """
    if sys.stdin is None or sys.stdin.closed:
        return
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    space = threading.Semaphore(CHUNKS_AHEAD)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read_stdin, args=(chunks, space, loop), name="motet stdin", daemon=True).start()
    while chunk := await chunks.get():
        yield chunk
        space.release()


def _read_stdin(chunks: asyncio.Queue[bytes], space: threading.Semaphore, loop: asyncio.AbstractEventLoop) -> None:
    """Runs in the thread; an empty chunk is the end. A thread that is still reading at the end of the process ends with
    it, for which it must not hold the lock of `sys.stdin`: so it reads the descriptor where there is one."""
    try:
        read: Callable[[int], bytes] = partial(os.read, sys.stdin.fileno())
    except (OSError, ValueError):
        read = sys.stdin.buffer.read
    chunk = b"begin"
    while chunk:
        space.acquire()
        try:
            chunk = read(CHUNK_BYTES)
        except OSError:  # a terminal that was closed
            chunk = b""
        try:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        except RuntimeError:  # the loop is closed, so the member has left
            return
