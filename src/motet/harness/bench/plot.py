"""Rates as bars, in one SVG without any library: Motet beside the peers of the same run."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from motet.harness.bench.job import MOTET
from motet.harness.bench.results import Results

LEFT, WIDTH, BAR, GAP, TOP = 340, 1000, 14, 12, 50
COLOUR = "#1f6f8b"
PEER_COLOUR = "#d9a441"


def plot(results: Results) -> str:
    groups = [group for group in _groups(results) if group[1]]
    if not groups:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>'
    most = max(value for _, bars in groups for _, value in bars)
    parts, y = list(_legend()), TOP
    for title, bars in groups:
        parts.append(_text(LEFT - 8, y + len(bars) * BAR / 2 + 4, title, "end"))
        for system, value in bars:
            parts += _bar(y, system, value, (WIDTH - LEFT - 130) * value / most)
            y += BAR
        y += GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" font-family="sans-serif">'
    return "\n".join((head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"))


def _groups(results: Results) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    for figure in results.figures:
        row = figure.row
        if figure.system != MOTET or row.metric != "rate" or not row.has_peers:
            continue
        bars = [(MOTET, figure.value)] if figure.value else []
        yield f"{row.section}: {row.title}", bars + sorted(results.peers_of(row.name).items())


def _bar(y: float, system: str, value: float, width: float) -> tuple[str, str]:
    colour = COLOUR if system == MOTET else PEER_COLOUR
    bar = f'<rect x="{LEFT}" y="{y}" width="{max(width, 1):.1f}" height="{BAR - 2}" fill="{colour}"/>'
    return bar, _text(LEFT + width + 5, y + BAR - 4, f"{_short(value)} {system}", "start")


def _short(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e5 else f"{rate / 1e3:.1f} k"


def _legend() -> Iterator[str]:
    yield _text(LEFT, 22, "Messages per second, delivered at each member", "start", 14)


def _text(x: float, y: float, text: str, anchor: str, size: int = 10) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'
