"""The display of the demo: the story line by line, and on a terminal a live table of the group below it."""

from __future__ import annotations

import textwrap
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from motet.harness.demo.evaluation import BROKEN, HELD, DemoVerdict
from motet.harness.demo.status import DemoStatus, MemberLine

STATUS_EVERY_S = 5.0
WIDEST = 100
STYLES = {"sends": "green", "killed": "bold red", "died": "bold red", "cut off": "yellow", "starting": "cyan"}
MARKS = {HELD: "green", BROKEN: "bold red"}


class Display(Protocol):
    def act(self, number: int, title: str, why: str) -> None: ...

    def say(self, text: str) -> None: ...

    def refresh(self) -> None: ...

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def open_display(console: Console, status: DemoStatus) -> Display:
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console, status) if is_live else PlainDisplay(console, status)


class PlainDisplay:
    """For pipes and CI: lines with the elapsed time, and every few seconds the positions of all members."""

    def __init__(self, console: Console, status: DemoStatus) -> None:
        self._console = console
        self._status = status
        self._reported_s = 0.0

    def act(self, number: int, title: str, why: str) -> None:
        self._print("")
        self._print(f"== {number}. {title}")
        self.say(why)

    def say(self, text: str) -> None:
        self._print(f"[{self._status.elapsed_s:6.1f} s] {text}")

    def refresh(self) -> None:
        now = self._status.elapsed_s
        if now - self._reported_s >= STATUS_EVERY_S and any(line.is_alive for line in self._status.lines.values()):
            self._reported_s = now
            self.say(f"    {status_line(self._status)}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        pass


def status_line(status: DemoStatus) -> str:
    parts = [f"{line.name} {_position_of(line)}" for line in status.lines.values()]
    stream = status.stream
    spark = f"; table {stream.position:,}" if stream.batches else ""
    return f"{', '.join(parts)}{spark}"


def _position_of(line: MemberLine) -> str:
    if not line.is_alive:
        return line.state
    return f"{line.position:,}" + ("" if line.is_primary else " (waits)")


class LiveDisplay:
    """For terminals: the story scrolls above a live table of the group."""

    def __init__(self, console: Console, status: DemoStatus) -> None:
        self._console = console
        self._status = status
        self._live = Live(console=console, get_renderable=self._live_table, refresh_per_second=5, transient=True)

    def act(self, number: int, title: str, why: str) -> None:
        self._console.print()
        self._console.print(Text.assemble((f" {number} ", "reverse bold"), (f" {title}", "bold")))
        self._print(why, "")

    def say(self, text: str) -> None:
        self._print(text, "cyan")

    def refresh(self) -> None:
        pass  # rich refreshes the live table by itself

    def _print(self, text: str, style: str) -> None:
        width = min(WIDEST, self._console.width) - 5
        first = "  → " if style else "    "
        for index, line in enumerate(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)):
            self._console.print(Text(f"{first if index == 0 else '    '}{line}", style), soft_wrap=True)

    def _live_table(self) -> RenderableType:
        return Group(Text(), members_table(self._status), stream_line(self._status))

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        self._live.stop()


def members_table(status: DemoStatus) -> Table:
    title = f"{status.elapsed_s:.0f} s   {status.act}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("member", "does", "view"):
        table.add_column(name, style="", no_wrap=True)
    for name in ("position", "stable", "msgs/s", "lost", "resent"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in status.lines.values():
        table.add_row(*_cells(line), style="" if line.is_alive else "dim")
    return table


def _cells(line: MemberLine) -> list[RenderableType]:
    kind = "" if line.is_primary else " (not primary)"
    view = f"{line.view}: {' '.join(line.members)}{kind}" if line.is_alive else "-"
    figures = [line.position, line.stable, round(line.rate), line.figure("dropped"), line.figure("resent")]
    does = Text(line.state, STYLES.get(line.state, ""))
    return [Text(line.name), does, Text(view, "" if line.is_primary else "yellow"), *(f"{n:,}" for n in figures)]


def stream_line(status: DemoStatus) -> Text:
    line = status.stream
    if not line.batches:
        first = ", and has no rows yet" if line.state == "streams" else ""
        return Text(f"spark   {line.state}{first}", "dim")
    restarts = f", started again {line.restarts}×" if line.restarts else ""
    behind = f"{max(0, status.position - line.position):,} behind the log"
    rows = f"{line.position:,} rows in the table, {behind}, {line.batches} micro-batches{restarts}"
    return Text(f"spark   {line.state}: {rows}")


def show_verdict(console: Console, verdict: DemoVerdict) -> None:
    console.print()
    if console.is_terminal:
        console.print(_as_table(verdict), highlight=False)
        return
    for promise in verdict.promises:
        line = f"{promise.state:<9}  {promise.name}: {promise.figure}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _as_table(verdict: DemoVerdict) -> Table:
    table = Table(title="Verdict", title_justify="left", title_style="bold")
    table.add_column("promise", ratio=2)
    table.add_column("", no_wrap=True)
    table.add_column("shown by", ratio=3)
    for promise in verdict.promises:
        table.add_row(promise.name, Text(promise.state, MARKS.get(promise.state, "yellow")), promise.figure)
    return table
