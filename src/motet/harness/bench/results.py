"""Figures of one run of the benchmark: medians, spread, ratios, and whether goals were met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from motet.harness.bench.job import MOTET, Run
from motet.harness.bench.peer import Peer
from motet.harness.bench.rows import LESS_IS_BETTER, RIVAL, UNITS, Row


@dataclass(slots=True)
class Figure:
    """The runs of one row with one system."""

    row: Row
    system: str
    runs: list[Run] = field(default_factory=list)
    skipped: str = ""  # the reason if there are no runs

    def values(self) -> list[float]:
        return [_value(self.row, run) for run in self.runs]

    @property
    def value(self) -> float | None:
        return median(self.values()) if self.runs else None

    @property
    def p99(self) -> float | None:
        times = [run.p99 for run in self.runs if run.p99 is not None]
        return median(times) if times else None

    @property
    def cpu(self) -> list[float]:
        """Cores used by each member in the median run."""
        return self._middle.cpu if self.runs else []

    @property
    def rss_mb(self) -> list[float]:
        return self._middle.rss_mb if self.runs else []

    @property
    def _middle(self) -> Run:
        return sorted(self.runs, key=lambda run: _value(self.row, run))[len(self.runs) // 2]

    @property
    def missing(self) -> int:
        return sum(run.missing for run in self.runs)


def _value(row: Row, run: Run) -> float:
    if row.metric == "memory":
        return max(run.rss_mb)
    return run.calls_per_s or 0.0 if row.metric == "calls" else run.value


@dataclass(slots=True)
class Results:
    machine: dict[str, str | float]
    command: str
    figures: list[Figure] = field(default_factory=list)
    peers: tuple[Peer, ...] = ()  # that this run was to measure, too

    def of(self, name: str, system: str = MOTET) -> Figure | None:
        found = (f for f in self.figures if f.row.name == name and f.system == system and f.runs)
        return next(found, None)

    def ratio(self, figure: Figure) -> float | None:
        """To what JGroups reached at the same work in this run."""
        rival = self.of(figure.row.rival, RIVAL) if figure.row.rival else None
        if rival is None or not rival.value or figure.value is None:
            return None
        return figure.value / rival.value

    def to_base(self, figure: Figure) -> float | None:
        base = self.of(figure.row.base, figure.system) if figure.row.base else None
        if base is None or base.value is None or figure.value is None:
            return None
        return figure.value / base.value

    def is_met(self, figure: Figure) -> bool | None:
        """None if there is no goal, or if the base row was not measured."""
        row = figure.row
        if row.goal is None or figure.value is None or figure.system != MOTET:
            return None
        reached = self.to_base(figure) if row.base else self.ratio(figure) if row.rival else figure.value
        if reached is None:
            return None
        return reached <= row.goal if row.metric in LESS_IS_BETTER else reached >= row.goal

    def peers_of(self, name: str) -> dict[str, float]:
        return {f.system: f.value for f in self.figures if f.row.name == name and f.system != MOTET and f.value}

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "command": self.command,
            "rows": [self._entry(figure) for figure in self.figures],
        }

    def _entry(self, figure: Figure) -> dict[str, Any]:
        row, values = figure.row, figure.values()
        return {
            "row": row.name,
            "system": figure.system,
            "section": row.section,
            "title": row.title,
            "unit": UNITS[row.metric],
            "median": _rounded(figure.value),
            "least": _rounded(min(values, default=None)),
            "most": _rounded(max(values, default=None)),
            "p99": _rounded(figure.p99),
            "ratio": _rounded(self.ratio(figure)),
            "base": row.base or None,
            "to_base": _rounded(self.to_base(figure)),
            "goal": row.goal,
            "is_met": self.is_met(figure),
            "skipped": figure.skipped or None,
            "runs": [_trimmed(asdict(run)) for run in figure.runs],
        }


def _trimmed(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if value not in (None, [], {})}


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value, 4) if value < 100 else round(value)


def unmet(results: Results, figures: Iterable[Figure]) -> list[Figure]:
    return [figure for figure in figures if results.is_met(figure) is False]
