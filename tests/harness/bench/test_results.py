"""Rows, figures and goals of `motet bench`: arithmetic only, nothing is measured here."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

import motet
from benchmarks.peers.field import PEERS, why_not
from motet.errors import ConfigError
from motet.harness.bench import peer
from motet.harness.bench.job import MOTET, Run, Sample, WorkerOutcome
from motet.harness.bench.member import config_of
from motet.harness.bench.plot import plot
from motet.harness.bench.report import table, write_markdown
from motet.harness.bench.results import Figure, Results
from motet.harness.bench.rows import RIVAL, Row, all_rows, select

MACHINE: dict[str, str | float] = {
    "processor": "one",
    "cores": 2,
    "memory_gb": 8.0,
    "system": "Linux",
    "python": "3",
    "motet": "0",
    "load_before": 0.1,
    "at": "now",
}


def named(name: str) -> Row:
    return next(row for row in all_rows() if row.name == name)


def results_of(**values: float) -> Results:
    """Figures of rows by name, a `_` standing for `-`."""
    results = Results(MACHINE, "motet bench")
    for name, value in values.items():
        row = named(name.replace("_", "-"))
        run = Run(value, rss_mb=[value], calls_per_s=value)
        results.figures.append(Figure(row, MOTET, [run]))
    return results


def test_names_are_unique_and_rows_are_compared_with_rows_that_there_are() -> None:
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    assert all(not row.base or named(row.base) for row in rows)
    rival = next(peer for peer in PEERS if peer.name == RIVAL)
    assert all(not row.rival or (named(row.rival).has_peers and rival.does(named(row.rival))) for row in rows)


def test_every_row_of_ours_has_a_configuration_that_can_be_used() -> None:
    for row in all_rows():
        assert (config_of(row.load).keyring() is not None) is row.load.is_sealed


def test_rows_are_chosen_by_name_beginning_or_pattern() -> None:
    assert [row.name for row in select(["kill"])] == ["kill", "kill-coordinator"]
    assert [row.name for row in select(["heal", "loss-1"])] == ["loss-1", "loss-1-total", "heal"]
    assert {row.name for row in select(["*-all-1000"])} == {"fifo-all-1000", "total-all-1000"}
    with pytest.raises(ConfigError, match=r"no row is called speed; there are: fifo-1-100, "):
        select(["speed"])


def test_what_takes_long_must_be_named() -> None:
    assert "soak" not in {row.name for row in select([])}
    assert [row.name for row in select(["soak"])] == ["soak"]


@pytest.mark.parametrize(
    ("name", "value", "is_met"),
    [
        ("kill", 1.5, True),
        ("kill", 1.6, False),
        ("heal", 4.0, True),
        ("heal", 4.1, False),
        ("memory_fifo", 120, True),
        ("memory_fifo", 121, False),
        ("latency_total_100", 499, True),
        ("latency_total_100", 501, False),
        ("growth_fifo_8", 1, None),
        ("fifo_1_100", 1_000_000, None),  # JGroups was not measured in this run
        ("loss_1", 400_000, None),  # the row that it is compared with was not measured
    ],
)
def test_a_goal_is_met_or_not_or_unknown(name: str, value: float, is_met: bool | None) -> None:
    results = results_of(**{name: value})
    assert results.is_met(results.figures[0]) is is_met


@pytest.mark.parametrize(
    ("name", "rival", "value", "is_met"),
    [
        ("fifo-1-100", 587_000, 587_000, True),
        ("fifo-1-100", 587_000, 586_000, False),
        ("fifo-1-100-message", 1_000_000, 700_000, True),
        ("fifo-1-100-inloop", 587_000, 586_000, False),
        ("total-1-1000", 300_000, 450_000, True),
        ("total-1-1000", 300_000, 449_000, False),
        ("call-100", 200, 200, True),
        ("call-100-spin", 200, 201, False),
    ],
)
def test_a_goal_names_what_jgroups_reached_in_the_same_run(name: str, rival: float, value: float, is_met: bool) -> None:
    row = named(name)
    ours = Figure(row, MOTET, [Run(value, calls_per_s=value)])
    results = Results(MACHINE, "", [ours, Figure(named(row.rival), RIVAL, [Run(rival)])])
    assert results.is_met(ours) is is_met


@pytest.mark.parametrize(("value", "is_met"), [(350_000, True), (349_000, False)])
def test_loss_is_compared_with_the_same_work_without_loss(value: float, is_met: bool) -> None:
    results = results_of(fifo_1_1000=700_000, loss_1=value)
    assert results.is_met(results.figures[1]) is is_met


def test_the_median_and_the_spread_are_shown() -> None:
    results = results_of(fifo_1_100=1)
    results.figures[0].runs = [Run(value) for value in (1_500_000.0, 900_000.0, 1_600_000.0)]
    entry = results.as_json()["rows"][0]
    assert (entry["median"], entry["least"], entry["most"]) == (1_500_000, 900_000, 1_600_000)
    assert entry["ratio"] is None
    assert json.loads(json.dumps(results.as_json()))["machine"] == MACHINE


def test_the_report_has_every_row_and_names_what_was_missed(tmp_path: Path) -> None:
    results = results_of(fifo_1_100=2_000_000, fifo_1_1000=100_000, kill=1.0)
    results.figures.insert(1, Figure(named("fifo-1-100"), "zmq", [Run(500_000.0, missing=3)]))
    results.figures.insert(2, Figure(named("fifo-1-100"), "nats", skipped="not installed: program nats-server"))
    results.figures.append(Figure(named("fifo-1-1000"), RIVAL, [Run(700_000.0)]))
    results.peers = PEERS
    path = tmp_path / "bench.md"
    write_markdown(results, path)
    text = path.read_text()
    assert "| 3 members, 1 sender, 100 B | 2.00 M/s |" in text
    assert "we: 4.00" in text
    assert "3 lost" in text
    assert "not installed: program nats-server" in text
    assert "(fifo-1-1000): 0.14 of jgroups, wanted ≥ 1" in text
    assert "- zmq: pyzmq PUB/SUB over TCP" in text
    console = Console(width=200, record=True, quiet=True)
    console.print(table(results))
    ElementTree.parse(tmp_path / "bench.svg")


def test_a_plot_of_nothing_is_empty_and_still_a_picture() -> None:
    ElementTree.fromstring(plot(Results(MACHINE, "")))


def test_an_outcome_is_what_happened_between_its_first_and_its_last_sample() -> None:
    outcome = WorkerOutcome(
        0, [Sample(10.0, 1_000, 1.0, 50), Sample(11.0, 3_000, 1.5, 80), Sample(12.0, 5_000, 2.0, 70)]
    )
    assert (outcome.rate, outcome.cpu_share, outcome.rss_bytes) == (2_000, 0.5, 80)


def test_a_peer_that_is_not_there_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("MOTET_PEERS", raising=False)
    nats = next(peer for peer in PEERS if peer.name == "nats")
    assert "program nats-server" in why_not(nats)


def test_an_installed_wheel_says_where_the_peers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(motet, "__file__", str(tmp_path / "site-packages" / "motet" / "__init__.py"))
    with pytest.raises(ConfigError, match=r"clone the repository, run `make venv` there, and then `\.venv/bin/motet"):
        peer.all_peers()


@pytest.mark.parametrize("name", [peer.name for peer in PEERS])
def test_every_peer_has_a_module_in_the_checkout(name: str) -> None:
    (module,) = (peer.module for peer in PEERS if peer.name == name)
    source = (peer.checkout() / "benchmarks" / "peers" / f"{module}.py").read_text()
    assert "async def open_system(" in source or "def work(" in source
