"""The JGroups peer: the command that is run, and the lines that come back. What needs the jar is skipped without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.peers.field import PEERS, why_not
from benchmarks.peers.jgroups_java import PROGRAM, SOURCE, command, enter, stack
from motet.harness.bench.job import Job, Load, MeasurementKind, Sample, WorkerOutcome
from motet.harness.bench.measure import measure
from motet.harness.bench.rows import all_rows

JGROUPS = next(peer for peer in PEERS if peer.name == "jgroups")
PORT = "7800"  # of the group


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with the jar and the programs in it, none of which could be run."""
    for place in ("usr/bin/java", "usr/bin/javac", "usr/share/java/jgroups.jar"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    monkeypatch.setenv("MOTET_PEERS", str(tmp_path))
    return tmp_path


def job(kind: MeasurementKind = "rate", load: Load | None = None, index: int = 2) -> Job:
    return Job("jgroups", kind, load or Load(), index, 1.0, 1.0, (PORT,), "/run")


def test_the_command_names_the_jar_the_stack_and_the_load(unpacked: Path) -> None:
    load = Load(senders=1, size=1000, order="total", rate=5, callers=7)
    made = command(job(load=load))
    assert made[0] == str(unpacked / "usr/bin/java")
    assert made[made.index("-cp") + 1] == f"/run{os.pathsep}{unpacked}/usr/share/java/jgroups.jar"
    after = made[made.index(PROGRAM) + 1 :]
    assert after == [stack(job(load=load)), "rate", "3", "true", "1000", "total", "5", "7"]
    assert command(job(load=load, index=1))[-5] == "false"  # the last one is the only sender


def test_total_order_has_a_sequencer_and_nothing_else_has_it() -> None:
    stacks = {order: stack(job(load=Load(order=order))) for order in ("fifo", "total", "direct")}
    assert [order for order, made in stacks.items() if ":SEQUENCER:" in made] == ["total"]


@pytest.mark.parametrize(("kind", "is_bundled"), [("rate", "true"), ("latency", "false"), ("calls", "false")])
def test_what_is_timed_singly_does_not_wait_for_a_bundle(kind: MeasurementKind, is_bundled: str) -> None:
    assert f"enable_bundling={is_bundled};enable_unicast_bundling={is_bundled};" in stack(job(kind))


def test_many_callers_share_bundles_and_all_members_one_port() -> None:
    made = stack(job("calls", Load(members=2, callers=100)))
    assert "max_bundle_timeout=1;enable_bundling=true;" in made
    assert f"mcast_port={PORT};ip_ttl=0;" in made


def test_lines_of_the_program_become_an_outcome() -> None:
    outcome = WorkerOutcome(2)
    lines = (
        "look 10000000000 1000 500000000 300",
        "look 12000000000 5000 1500000000 200",
        "sent 6000",
        "missing 4",
        "times 30 10",
        "times 20",
        "done",
    )
    for line in lines:
        enter(line, outcome)
    assert outcome.samples == [Sample(10.0, 1_000, 0.5, 300), Sample(12.0, 5_000, 1.5, 200)]
    assert (outcome.sent, outcome.missing, outcome.latencies_ns) == (6_000, 4, [30, 10, 20])
    assert (outcome.rate, outcome.cpu_share, outcome.rss_bytes) == (2_000, 0.5, 300)


def test_it_is_asked_for_calls_and_unicast_and_others_are_not() -> None:
    asked = {row.name for row in all_rows() if row.has_peers and JGROUPS.does(row)}
    assert {"fifo-1-100", "total-all-1000", "latency-total-1000", "direct-100", "call-100", "callers-100"} <= asked
    others = (
        row.name for row in all_rows() for peer in PEERS if peer is not JGROUPS and row.has_peers and peer.does(row)
    )
    assert {"direct-100", "call-100", "callers-100"}.isdisjoint(others)


def test_without_the_jar_it_is_skipped_with_a_sentence(unpacked: Path) -> None:
    assert why_not(JGROUPS) == ""
    (unpacked / "usr/share/java/jgroups.jar").unlink()
    if Path("/usr/share/java/jgroups.jar").exists():
        pytest.skip("JGroups is installed here")
    assert why_not(JGROUPS) == "not installed: Java library jgroups.jar"


def test_its_source_stands_beside_its_module() -> None:
    assert f"class {PROGRAM} " in SOURCE.read_text()


@pytest.mark.skipif(bool(why_not(JGROUPS)), reason="JGroups is not here")
@pytest.mark.parametrize(("kind", "load"), [("rate", Load(members=2, order="total")), ("latency", Load(rate=100))])
def test_a_real_group_is_measured(kind: MeasurementKind, load: Load) -> None:
    run = measure("jgroups", kind, load, seconds=0.3, warm_up=0.1)
    assert run.value > 0
    assert run.missing == 0
    assert len(run.cpu) == len(run.rss_mb) == load.members
