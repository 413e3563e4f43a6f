"""The output of `motet probe`, as sections of rows: tables on a terminal, otherwise aligned lines.

Names come from other processes, so control characters, which could manipulate the terminal, are removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from motet.admin.health import percent, window_fill
from motet.admin.overview import is_coordinator
from motet.log.service.validated_json import (
    Stats,
    boolean,
    counters,
    integer,
    items,
    number,
    number_or_none,
    rows,
    text,
    texts,
)
from motet.protocol.core.counters import Count

STYLES = {"good": "green", "note": "cyan", "watch": "yellow", "bad": "bold red"}
RECENT = 5
KNOWN = {str(count): count for count in Count}


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    columns: tuple[str, ...]  # empty: the rows are sentences, the first cell a level
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> Iterator[str]:
        """For a pipe: every line begins with the section's name, so that grep can select by it."""
        if not self.columns:
            yield from (f"{self.title} [{level}]: {sentence}" for level, sentence in self.rows)
            return
        table = [self.columns, *self.rows] if len(self.columns) > 2 else list(self.rows)
        widths = [max(len(row[place]) for row in table) for place in range(len(self.columns))]
        for row in table:
            cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"{self.title}: {cells}".rstrip()

    def table(self) -> Table | Text:
        if not self.columns:
            sentences = [Text(f"● {sentence}", STYLES.get(level, "")) for level, sentence in self.rows]
            return Text("\n").join(sentences)
        has_head = len(self.columns) > 2
        table = Table(title=self.title, title_justify="left", title_style="bold", show_header=has_head, box=None)
        for column in self.columns:
            is_figure = has_head and column in FIGURES
            table.add_column(column, justify="right" if is_figure else "left", header_style="dim", no_wrap=is_figure)
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table


FIGURES = frozenset({"position", "behind", "missing", "in flight", "value", "lost in", "lost out", "round trip"})


def render(found: list[Section]) -> Group:
    parts: list[Table | Text] = []
    for section in found:
        parts += [section.table(), Text("")]
    return Group(*parts[:-1])


def sections(stats: Stats, health: Stats) -> list[Section]:
    found = [
        Section("member", ("what", "value"), tuple(_who(stats))),
        Section("health", (), tuple(_health(health))),
        Section("view", VIEW_COLUMNS, tuple(_view(stats))),
        Section("log", ("what", "value"), tuple(_log(stats))),
        Section("links", LINK_COLUMNS, tuple(_links(stats))),
        Section("faults", ("rule",), tuple((plain(rule),) for rule in texts(stats, "faults"))),
        Section("views", ("ago", "view", "what"), tuple(_views(stats))),
        Section("events", ("ago", "kind", "what"), tuple(_events(stats))),
        Section("counters", ("counter", "value", "nature", "meaning"), tuple(_counters(stats))),
    ]
    return [section for section in found if section.rows]


def summary(stats: Stats, health: Stats) -> str:
    """The most important figures in one line."""
    said = next((text(remark, "text") for remark in rows(health, "remarks")), "")
    return plain(
        f"{time.strftime('%H:%M:%S')} {text(stats, 'member')} view {text(stats, 'view', 'id')} "
        f"({len(rows(stats, 'view', 'members'))}, {_primary(stats)}) position {integer(stats, 'log', 'position')} "
        f"stable {integer(stats, 'log', 'stable')} delivered {number(stats, 'rates', 'delivered_per_s'):.0f}/s "
        f"[{text(health, 'level')}] {said}"
    )


def plain(value: object) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))


def _primary(stats: Stats) -> str:
    return "primary" if boolean(stats, "view", "primary") else "NOT primary"


def _who(stats: Stats) -> Iterator[tuple[str, str]]:
    yield "group", plain(text(stats, "group"))
    yield "member", plain(f"{text(stats, 'member')} at {text(stats, 'endpoint')}")
    yield "up", f"{duration(number(stats, 'uptime_s'))}, motet {plain(text(stats, 'version'))}"
    memory, cpu = number(stats, "memory_bytes"), number(stats, "cpu_s")
    yield "process", f"{size(memory)} of memory, {cpu:.1f} s of processor time"


def _health(health: Stats) -> Iterator[tuple[str, str]]:
    for remark in rows(health, "remarks"):
        sentence = f"{text(remark, 'text')} {text(remark, 'advice')}".strip()
        yield plain(text(remark, "level")), plain(sentence)


VIEW_COLUMNS = ("member", "endpoint", "role", "position", "behind", "missing", "unicast")


def _view(stats: Stats) -> Iterator[tuple[str, ...]]:
    own, position = text(stats, "member"), integer(stats, "log", "position")
    peers = {text(row, "member"): row for row in rows(stats, "peers")}
    missing = {text(row, "member"): integer(row, "missing") for row in rows(stats, "multicast", "receivers")}
    links = {text(row, "peer"): text(row, "state") for row in rows(stats, "unicast")}
    for row in rows(stats, "view", "members"):
        member = text(row, "member")
        theirs = position if member == own else integer(peers.get(member), "position")
        is_known = member == own or member in peers
        yield (
            plain(member),
            plain(text(row, "endpoint")),
            " ".join(_roles(stats, member, own)),
            f"{theirs:,}" if is_known else "?",
            f"{max(0, position - theirs):,}" if is_known else "?",
            "" if member == own else str(missing.get(member, 0)),
            plain(links.get(member, "")).lower(),
        )


LINK_COLUMNS = ("peer", "lost in", "lost out", "round trip", "suspected after")


def _links(stats: Stats) -> Iterator[tuple[str, ...]]:
    """Loss and round trip of each link, as heartbeats measure them, and the resulting time until suspicion."""
    for row in rows(stats, "links"):
        round_trip = number_or_none(row, "round_trip_us")
        yield (
            plain(text(row, "peer")),
            percent(number(row, "loss_in")),
            percent(number(row, "loss_out")),
            "not measured" if round_trip is None else f"{round_trip / 1000:,.2f} ms",
            f"{number(row, 'suspected_after_s'):.2f} s",
        )


def _roles(stats: Stats, member: str, own: str) -> Iterator[str]:
    if is_coordinator(stats, member):
        yield "coordinator"
    if member == own:
        yield "this one"
    if member in texts(stats, "suspects"):
        yield "suspected"
    if member in texts(stats, "busy"):
        yield "busy"


def _state(stats: Stats) -> str:
    if boolean(stats, "state", "lost"):
        return "LOST: nobody in the view has it"
    return "present" if boolean(stats, "state", "present") else f"waits for {text(stats, 'state', 'provider')}"


def _log(stats: Stats) -> Iterator[tuple[str, str]]:
    log, window = stats.get("log"), stats.get("multicast")
    yield "view", plain(f"{text(stats, 'view', 'id')}, {_primary(stats)}")
    position, stable = integer(log, "position"), integer(log, "stable")
    yield (
        "position",
        f"{position:,} ({position - stable:,} of them not stable yet), in the journal from {integer(log, 'first'):,}",
    )
    yield (
        "being ordered",
        f"{integer(log, 'holdback'):,} frames in the hold-back queue, {integer(log, 'in_flight'):,} own in flight",
    )
    yield "state", plain(_state(stats))
    used = integer(window, "high") - integer(window, "low")
    waiting = size(number(window, "waiting_bytes"))
    yield (
        "send window",
        f"{used} of {integer(window, 'capacity')} frames ({percent(window_fill(stats))}), {waiting} wait",
    )
    yield "frames", _frames(stats)
    paused = (
        ", back-pressure: the application is too slow and senders wait" if boolean(stats, "queue", "paused") else ""
    )
    yield "queue", f"{integer(stats, 'queue', 'messages'):,} messages, {size(number(stats, 'queue', 'bytes'))}{paused}"
    rates = stats.get("rates")
    sent, delivered = number(rates, "sent_per_s"), number(rates, "delivered_per_s")
    yield "rates", f"{sent:,.0f} sent/s, {delivered:,.0f} delivered/s, {size(number(rates, 'bytes_per_s'))}/s"
    yield "latency", f"median {_latency(stats, 'median_us')}, p99 {_latency(stats, 'p99_us')}"


def _frames(stats: Stats) -> str:
    frames = stats.get("frames")
    how = f"in segments of {size(number(frames, 'segment_bytes'))} ({plain(text(frames, 'segments'))})"
    whole_ones = text(frames, "segments") in ("", "whole")
    return (
        f"up to {size(number(frames, 'bytes'))}, {'in one piece' if whole_ones else how}; "
        f"{percent(number(frames, 'resent_share'))} sent again"
    )


def _latency(stats: Stats, name: str) -> str:
    value = number_or_none(stats, "latency", name)
    return "not measured" if value is None else f"{value / 1000:,.2f} ms"


def _views(stats: Stats) -> Iterator[tuple[str, str, str]]:
    for row in rows(stats, "views")[-RECENT:]:
        kind = "primary" if boolean(row, "primary") else "not primary"
        merged = items(row, "merged_from")
        parts = f", merged from {', '.join(map(str, merged))}" if merged else ""
        yield ago(row), plain(text(row, "id")), plain(f"{len(items(row, 'members'))} members, {kind}{parts}")


def _events(stats: Stats) -> Iterator[tuple[str, str, str]]:
    for row in rows(stats, "events")[-RECENT:]:
        yield ago(row), plain(text(row, "kind")), plain(text(row, "text"))


def _counters(stats: Stats) -> Iterator[tuple[str, str, str, str]]:
    for name, value in counters(stats).items():
        known = KNOWN.get(name)
        if value:
            yield plain(name), f"{value:,}", known.nature if known else "", known.meaning if known else ""


def ago(row: Stats) -> str:
    return f"{duration(max(0.0, time.time() - number(row, 'at')))} ago"


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(count: float) -> str:
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count:.0f} B"
