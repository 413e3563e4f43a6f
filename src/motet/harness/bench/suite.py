"""Measures the rows one after the other; the runs of Motet and of its peers alternate within a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.errors import MotetError
from motet.harness.bench.job import MOTET, Run
from motet.harness.bench.measure import measure
from motet.harness.bench.peer import Peer, absences, all_peers
from motet.harness.bench.results import Figure, Results
from motet.harness.bench.rows import Row

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """The duration and the number of runs."""

    runs: int = 3
    seconds: float = 4.0
    warm_up: float = 1.5
    soak_seconds: float = 600.0

    def seconds_for(self, row: Row) -> float:
        return self.soak_seconds if row.is_long else self.seconds

    def runs_for(self, row: Row) -> int:
        return 1 if row.is_long else self.runs


def measure_all(rows: Sequence[Row], results: Results, effort: Effort, *, with_peers: bool, tell: Tell) -> None:
    """Fill the results, row by row, so that whoever looks on sees those that are done."""
    results.peers = all_peers() if with_peers else ()
    absent = absences(results.peers) if with_peers else {}
    for number, row in enumerate(rows, start=1):
        figures = [Figure(row, MOTET)]
        if row.has_peers:
            asked = (peer for peer in results.peers if peer.does(row) and not peer.why_not)
            figures += [_figure(row, peer, absent[peer.name]) for peer in asked]
        results.figures += figures
        for run in range(effort.runs_for(row)):
            for figure in figures:
                tell(f"{number}/{len(rows)} {row.name}, run {run + 1}, {figure.system}")
                _add_run(figure, effort, results.peers)


def _figure(row: Row, peer: Peer, reason: str) -> Figure:
    return Figure(row, peer.name, skipped=reason)


def _add_run(figure: Figure, effort: Effort, peers: Sequence[Peer]) -> None:
    if figure.skipped:
        return
    try:
        figure.runs.append(_measured(figure, effort, peers))
    except MotetError as error:
        figure.skipped = str(error)


def _measured(figure: Figure, effort: Effort, peers: Sequence[Peer]) -> Run:
    row = figure.row
    warm_up = max([effort.warm_up, *(peer.warm_up for peer in peers if peer.name == figure.system)])
    return measure(figure.system, row.kind, row.load, effort.seconds_for(row), warm_up)
