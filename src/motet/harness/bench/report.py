"""The results as a table on the terminal, or as Markdown with a plot."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from rich.table import Table

from motet.harness.bench.job import MOTET
from motet.harness.bench.plot import plot
from motet.harness.bench.results import Figure, Results
from motet.harness.bench.rows import LESS_IS_BETTER, RIVAL, UNITS, Row

HEADINGS = ("work", "median", "spread", "p99", "CPU", "RSS MB", "ratio", "goal", "")
MARKS = {True: "met", False: "MISSED", None: ""}


def table(results: Results) -> Table:
    made = Table(*HEADINGS)
    for name in HEADINGS[1:]:
        made.columns[HEADINGS.index(name)].justify = "right"
    for section, figures in groupby(results.figures, key=lambda figure: figure.row.section):
        made.add_section()
        made.add_row(f"[bold]{section}[/]")
        for figure in figures:
            made.add_row(*cells(results, figure))
    return made


def cells(results: Results, figure: Figure) -> tuple[str, ...]:
    row = figure.row
    title = row.title if figure.system == MOTET else f"  {figure.system}: {row.title}"
    if not figure.runs:
        return (title, figure.skipped or "not measured", *("",) * (len(HEADINGS) - 2))
    values = figure.values()
    return (
        title,
        shown(row, figure.value),
        f"{shown(row, min(values), unit=False)} to {shown(row, max(values), unit=False)}",
        f"{figure.p99:,.0f} µs" if figure.p99 is not None else "",
        " ".join(f"{share:.2f}" for share in _few(figure.cpu)),
        " ".join(f"{mb:.0f}" for mb in _few(figure.rss_mb)),
        _ratio(results, figure),
        _goal(row) if figure.system == MOTET else "",
        MARKS[results.is_met(figure)] + (f" {figure.missing} lost" if figure.missing else ""),
    )


def _few(values: list[float]) -> list[float]:
    """At most three values: of a large group the first, the middle one and the last."""
    return values if len(values) <= 4 else [values[0], values[len(values) // 2], values[-1]]


def shown(row: Row, value: float | None, *, unit: bool = True) -> str:
    if value is None:
        return ""
    if row.metric in ("rate", "calls"):
        text = f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:,.0f} k" if value >= 1e4 else f"{value:,.0f}"
        return f"{text}{'/s' if unit else ''}"
    text = f"{value:.2f}" if row.metric == "seconds" else f"{value:,.0f}"
    return f"{text} {UNITS[row.metric]}" if unit else text


def _ratio(results: Results, figure: Figure) -> str:
    if figure.system != MOTET:
        ours = results.of(figure.row.name)
        if ours is None or not ours.value or not figure.value:
            return ""
        return f"we: {ours.value / figure.value:.2f}"
    to_base = results.to_base(figure)
    if to_base is not None:
        return f"{to_base:.2f} of {figure.row.base}"
    ratio = results.ratio(figure)
    return f"{ratio:.2f} of {RIVAL}" if ratio is not None else ""


def _goal(row: Row) -> str:
    if row.goal is None:
        return ""
    sign = "≤" if row.metric in LESS_IS_BETTER else "≥"
    return f"{sign} {row.goal:g}{'' if row.rival or row.base else ' ' + UNITS[row.metric]}"


# Markdown


def write_markdown(results: Results, path: Path) -> None:
    """Write the tables, and a plot of the rates beside them."""
    picture = path.with_suffix(".svg")
    picture.write_text(plot(results), encoding="utf-8")
    path.write_text("\n".join(_markdown(results, picture.name)) + "\n", encoding="utf-8")


def _markdown(results: Results, picture: str) -> Iterator[str]:
    machine = results.machine
    yield "# What `motet bench` measured"
    yield ""
    yield f"`{results.command}`, {machine['at']}, on {machine['cores']} × {machine['processor']}, "
    yield f"{machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}, Motet {machine['motet']}; "
    yield f"load before the run {machine['load_before']}. Peers, and ratios to them, are of the same run."
    yield ""
    yield f"![rates of Motet and its peers]({picture})"
    for section, figures in groupby(results.figures, key=lambda figure: figure.row.section):
        yield from ("", f"## {section}", "", f"| {' | '.join(HEADINGS)} |", "|---" + "|--:" * (len(HEADINGS) - 1) + "|")
        for figure in figures:
            yield f"| {' | '.join(cells(results, figure))} |"
    yield from _about_peers(results)
    yield from _missed(results)


def _about_peers(results: Results) -> Iterator[str]:
    measured = {figure.system for figure in results.figures if figure.system != MOTET}
    if measured:
        yield from ("", "## The peers", "")
    for peer in results.peers if measured else ():
        yield f"- {peer.name}: {peer.about}{f' (not measured: {peer.why_not})' if peer.why_not else ''}"


def _missed(results: Results) -> Iterator[str]:
    missed = [figure for figure in results.figures if results.is_met(figure) is False]
    if missed:
        yield from ("", "## Goals that were missed", "")
    for figure in missed:
        yield f"- {figure.row.title} ({figure.row.name}): {_ratio(results, figure)}, wanted {_goal(figure.row)}"
