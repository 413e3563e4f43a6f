"""`motet bench` with real processes, as briefly as can be: that figures come back, not what they are."""

from __future__ import annotations

from motet.harness.bench.job import MOTET, Load
from motet.harness.bench.measure import measure


def test_a_rate_is_measured_and_everything_arrives() -> None:
    run = measure(MOTET, "rate", Load(members=2, order="total"), seconds=0.2, warm_up=0.1)
    assert run.value > 0
    assert run.missing == 0
    assert len(run.cpu) == len(run.rss_mb) == 2


def test_calls_are_timed() -> None:
    run = measure(MOTET, "calls", Load(members=2, has_thread=False), seconds=0.2, warm_up=0.1)
    assert run.p99 is not None
    assert 0 < run.value <= run.p99
