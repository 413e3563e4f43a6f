"""Plots as inline SVG: lines over time, bars, a timeline. Colours come from the page's style and follow its theme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 30
COLOURS = 8  # classes s0 to s7 of the page's style

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values to pixels; `is_log` for values of many magnitudes."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        low, high, at = (math.log10(max(x, 1e-9)) if self.is_log else x for x in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if len(powers) < 6 else (1,)
            return [at for power in powers for step in steps if self.low <= (at := step * 10.0**power) <= self.high]
        span = self.high - self.low or 1.0
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
        first = math.ceil(self.low / step)
        return [step * number for number in range(first, math.floor(self.high / step) + 1)]


def short(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def lines(series: Mapping[str, Sequence[Point]], unit: str, *, is_log: bool = False) -> str:
    """One line per name; x in seconds from the start."""
    points = [point for line in series.values() for point in line]
    if not points:
        return nothing("nothing was delivered")
    x = Axis(min(p[0] for p in points), max(p[0] for p in points), LEFT, WIDTH - RIGHT)
    low = min((p[1] for p in points if p[1] > 0), default=1.0) / 1.5 if is_log else 0.0
    y = Axis(low, max(p[1] for p in points) * 1.08 or 1.0, HEIGHT - BOTTOM, TOP, is_log)
    drawn = [_grid(x, y, unit)]
    for index, (name, line) in enumerate(series.items()):
        path = " ".join(f"{x.place(a):.1f},{y.place(b):.1f}" for a, b in line)
        shape = f'<polyline class="line s{index % COLOURS}" points="{path}"/>'
        dots = _dots(line, x, y, index) if len(line) < 3 else ""
        drawn.append(f"<g><title>{escape(name)}</title>{shape}{dots}</g>")
    return _svg("".join(drawn), HEIGHT) + _legend(list(series))


def _dots(line: Sequence[Point], x: Axis, y: Axis, index: int) -> str:
    return "".join(
        f'<circle class="dot s{index % COLOURS}" cx="{x.place(a):.1f}" cy="{y.place(b):.1f}" r="3"/>' for a, b in line
    )


def _grid(x: Axis, y: Axis, unit: str) -> str:
    drawn = []
    for value in y.ticks():
        at = y.place(value)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        drawn.append(f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{short(value)}</text>')
    for value in x.ticks():
        drawn.append(
            f'<text class="tick" x="{x.place(value):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{value:g} s</text>'
        )
    return "".join(drawn) + f'<text class="tick" x="{LEFT + 4}" y="{TOP + 8}">{escape(unit)}</text>'


def bars(values: Mapping[str, float], unit: str) -> str:
    if not values:
        return nothing("no messages")
    whole = sum(values.values()) or 1.0
    height = 26 * len(values) + 8
    widest = max(values.values())
    drawn = []
    for row, (name, value) in enumerate(values.items()):
        top, width = row * 26 + 4, (WIDTH - 430) * value / widest
        drawn.append(f'<text class="label" x="214" y="{top + 15}" text-anchor="end">{escape(name)}</text>')
        drawn.append(f'<rect class="bar s{row % COLOURS}" x="222" y="{top}" width="{width:.1f}" height="20" rx="2"/>')
        text = f"{short(value)} {unit}, {value / whole:.1%}"
        drawn.append(f'<text class="label" x="{228 + width:.1f}" y="{top + 15}">{escape(text)}</text>')
    return _svg("".join(drawn), height)


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A section of a row in a timeline. Sections with the same colour number belong together."""

    start: float
    end: float
    label: str
    title: str
    colour: int


def timeline(rows: Mapping[str, Sequence[TimelineSpan]], unit: str) -> str:
    spans = [span for row in rows.values() for span in row]
    if not spans:
        return nothing("no changes of view are recorded")
    x = Axis(min(span.start for span in spans), max(span.end for span in spans), 130, WIDTH - RIGHT)
    drawn = []
    for number, (name, row) in enumerate(rows.items()):
        top = number * 30 + 4
        drawn.append(f'<text class="label" x="122" y="{top + 16}" text-anchor="end">{escape(name)}</text>')
        drawn += [_span(span, x, top) for span in row]
    height = 30 * len(rows) + 28
    for value in x.ticks():
        at = f'x="{x.place(value):.1f}" y="{height - 8}"'
        drawn.append(f'<text class="tick" {at} text-anchor="middle">{value:g} {unit}</text>')
    return _svg("".join(drawn), height)


def _span(span: TimelineSpan, x: Axis, top: int) -> str:
    start, end = x.place(span.start), x.place(span.end)
    width = max(1.5, end - start - 1)
    text = f'<text class="inside" x="{start + 5:.1f}" y="{top + 16}">{escape(span.label)}</text>' if width > 46 else ""
    box = (
        f'<rect class="bar s{span.colour % COLOURS}" x="{start:.1f}" y="{top}" width="{width:.1f}" height="22" rx="2"/>'
    )
    return f"<g><title>{escape(span.title)}</title>{box}{text}</g>"


def nothing(why: str) -> str:
    return f'<p class="quiet">{escape(why)}</p>'


def _svg(inside: str, height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" preserveAspectRatio="xMinYMin meet">{inside}</svg>'


def _legend(names: Sequence[str]) -> str:
    marks = [
        f'<span class="key"><i class="s{index % COLOURS}"></i>{escape(name)}</span>' for index, name in enumerate(names)
    ]
    return f'<p class="legend">{"".join(marks)}</p>'
