"""What a person sees: the story line by line, and on a terminal a live picture of the group below it."""

from __future__ import annotations

import textwrap
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from motet.harness.demo.board import Board, MemberLine
from motet.harness.demo.judge import BROKEN, HELD, Verdict

STATUS_EVERY_S = 5.0
WIDEST = 100
STYLES = {"speaks": "green", "killed": "bold red", "died": "bold red", "cut off": "yellow", "starting": "cyan"}
MARKS = {HELD: "green", BROKEN: "bold red"}


class Stage(Protocol):
    def act(self, number: int, title: str, why: str) -> None: ...

    def say(self, text: str) -> None: ...

    def look(self) -> None: ...

    def __enter__(self) -> Stage: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def open_stage(console: Console, board: Board) -> Stage:
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveStage(console, board) if is_live else PlainStage(console, board)


class PlainStage:
    """Over a pipe and in CI: lines with the time since the start, and now and then how far everybody is."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._looked_s = 0.0

    def act(self, number: int, title: str, why: str) -> None:
        self._print("")
        self._print(f"== {number}. {title}")
        self.say(why)

    def say(self, text: str) -> None:
        self._print(f"[{self._board.elapsed_s:6.1f} s] {text}")

    def look(self) -> None:
        now = self._board.elapsed_s
        if now - self._looked_s >= STATUS_EVERY_S and any(line.is_alive for line in self._board.lines.values()):
            self._looked_s = now
            self.say(f"    {status(self._board)}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()

    def __enter__(self) -> PlainStage:
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        pass


def status(board: Board) -> str:
    parts = [f"{line.name} {_place(line)}" for line in board.lines.values()]
    stream = board.stream
    spark = f"; table {stream.position:,}" if stream.batches else ""
    return f"{', '.join(parts)}{spark}"


def _place(line: MemberLine) -> str:
    if not line.is_alive:
        return line.state
    return f"{line.position:,}" + ("" if line.is_primary else " (waits)")


class LiveStage:
    """On a terminal: the story scrolls, and below it stands the group as it is now."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=5, transient=True)

    def act(self, number: int, title: str, why: str) -> None:
        self._console.print()
        self._console.print(Text.assemble((f" {number} ", "reverse bold"), (f" {title}", "bold")))
        self._print(why, "")

    def say(self, text: str) -> None:
        self._print(text, "cyan")

    def look(self) -> None:
        pass  # the picture is drawn by itself

    def _print(self, text: str, style: str) -> None:
        width = min(WIDEST, self._console.width) - 5
        first = "  → " if style else "    "
        for index, line in enumerate(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)):
            self._console.print(Text(f"{first if index == 0 else '    '}{line}", style), soft_wrap=True)

    def _picture(self) -> RenderableType:
        return Group(Text(), members(self._board), stream(self._board))

    def __enter__(self) -> LiveStage:
        self._live.start()
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        self._live.stop()


def members(board: Board) -> Table:
    title = f"{board.elapsed_s:.0f} s   {board.act}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("member", "does", "view"):
        table.add_column(name, style="", no_wrap=True)
    for name in ("position", "stable", "msgs/s", "lost", "sent again"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in board.lines.values():
        table.add_row(*_cells(line), style="" if line.is_alive else "dim")
    return table


def _cells(line: MemberLine) -> list[RenderableType]:
    kind = "" if line.is_primary else " (not primary)"
    view = f"{line.view}: {' '.join(line.members)}{kind}" if line.is_alive else "-"
    figures = [line.position, line.stable, round(line.rate), line.figure("dropped"), line.figure("resent")]
    does = Text(line.state, STYLES.get(line.state, ""))
    return [Text(line.name), does, Text(view, "" if line.is_primary else "yellow"), *(f"{n:,}" for n in figures)]


def stream(board: Board) -> Text:
    line = board.stream
    if not line.batches:
        first = ", and has no rows yet" if line.state == "streams" else ""
        return Text(f"spark   {line.state}{first}", "dim")
    restarts = f", started again {line.restarts}×" if line.restarts else ""
    behind = f"{max(0, board.position - line.position):,} behind the log"
    rows = f"{line.position:,} rows in the table, {behind}, {line.batches} micro-batches{restarts}"
    return Text(f"spark   {line.state}: {rows}")


def show_verdict(console: Console, verdict: Verdict) -> None:
    console.print()
    if console.is_terminal:
        console.print(_as_table(verdict), highlight=False)
        return
    for promise in verdict.promises:
        line = f"{promise.state:<9}  {promise.name}: {promise.figure}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _as_table(verdict: Verdict) -> Table:
    table = Table(title="Verdict", title_justify="left", title_style="bold")
    table.add_column("promise", ratio=2)
    table.add_column("", no_wrap=True)
    table.add_column("shown by", ratio=3)
    for promise in verdict.promises:
        table.add_row(promise.name, Text(promise.state, MARKS.get(promise.state, "yellow")), promise.figure)
    return table
