"""An act of the demo ends, or its deadline ends it with a reason and a log; a query that always fails ends it, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

import motet.harness.demo.director as director
from motet.harness.demo.acts import Story
from motet.harness.demo.display import PlainDisplay
from motet.harness.demo.evaluation import NOT_SHOWN, PROMISES, REPAIR, DemoFailure, DemoVerdict
from motet.harness.demo.ingest import MOST_FAILURES, Ingest, IngestFailedError, cause_of
from motet.harness.demo.plan import DemoPlan
from motet.harness.demo.processes import Processes
from motet.harness.demo.status import DemoError, DemoStatus

Act = Callable[[Story], Coroutine[None, None, None]]


def run_demo(act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadline_s: float = 3600.0) -> DemoVerdict:
    """A demo whose only act is this one."""

    async def play(story: Story) -> None:
        story.act("A test", "The only act.")
        await story.finish(lambda: act(story))

    monkeypatch.setattr(director, "_play_and_evaluate", play)
    status = DemoStatus()
    plan = DemoPlan(tmp_path / "out", with_spark=False, deadline_s=deadline_s)
    return asyncio.run(director.run_demo(plan, status, PlainDisplay(Console(quiet=True), status)))


def failure_of(verdict: DemoVerdict) -> DemoFailure:
    assert verdict.failure is not None
    assert not verdict.is_good
    return verdict.failure


def test_an_act_that_does_not_finish_ends_in_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(story: Story) -> None:
        story.verdict.add(REPAIR, True, "shown before")
        await story.status.until(lambda: False, "the Spark query has its first rows", "spark")

    verdict = run_demo(act, tmp_path, monkeypatch, deadline_s=0.01)
    failure = failure_of(verdict)
    assert failure.act == "1. A test"
    assert "did not finish within 0.01 s, which --deadline sets" in failure.reason
    assert "It waited until the Spark query has its first rows." in failure.reason
    assert "ada not started; ben not started" in failure.reason
    assert failure.log == str(tmp_path / "out" / "logs" / "spark.log")
    states = {promise.name: promise.state for promise in verdict.promises if promise.name != REPAIR}
    assert states == dict.fromkeys((name for name in PROMISES if name != REPAIR), NOT_SHOWN)
    assert not verdict.is_broken
    assert verdict.as_dict()["failure"]["act"] == "1. A test"


def test_traffic_does_not_count_against_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(story: Story) -> None:
        before = story._ends_at
        story.plan = DemoPlan(story.plan.out, seconds=0.0)
        await story.keep_sending(0.5)
        assert story._ends_at == before
        story.plan = DemoPlan(story.plan.out, seconds=0.02)
        await story.keep_sending(0.5)
        assert story._ends_at == pytest.approx(before + 0.01)

    assert run_demo(act, tmp_path, monkeypatch).failure is None


def test_a_bug_of_the_demo_is_in_the_verdict_and_its_traceback_in_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(story: Story) -> None:
        raise KeyError("gone")

    failure = failure_of(run_demo(act, tmp_path, monkeypatch))
    assert failure.reason == "KeyError: 'gone'; this is a bug of the demo"
    assert "Traceback" in Path(failure.log).read_text()


def test_a_process_that_gives_up_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def died(processes: Processes) -> None:
        processes._died("spark", DemoError("spark gave up: its query failed", tmp_path / "spark.log"))

    async def act(story: Story) -> None:
        died(story.processes)
        await story.status.until(lambda: False, "it comes to an end")

    failure = failure_of(run_demo(act, tmp_path, monkeypatch))
    assert (failure.reason, failure.log) == ("spark gave up: its query failed", str(tmp_path / "spark.log"))


class FakeQuery:
    """A query that has written up to a position; then it fails."""

    def __init__(self, position: int) -> None:
        self.lastProgress = {"sources": [{"endOffset": f'{{"position": {position}}}'}], "batchId": 0}
        self._was_asked = False

    def exception(self) -> Exception | None:
        """Progress is seen before the failure is."""
        self._was_asked, before = True, self._was_asked
        return ValueError("workers die\n\tat java.lang.Thread.run\nCaused by: SyntaxError") if before else None


class FakeIngest(Ingest):
    """Starts fake queries, each of which reaches the next of some positions."""

    def __init__(self, *positions: int) -> None:
        super().__init__(cast("Any", None))
        self._given = {"members": "nobody"}
        self._positions = list(positions)
        self._start()

    def _start(self) -> None:
        self._query = cast("Any", FakeQuery(self._positions.pop(0)))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.harness.demo.ingest.PAUSE_S", 0.0)


def test_a_query_that_dies_again_and_again_is_given_up_with_its_cause() -> None:
    ingest = FakeIngest(*[7] * MOST_FAILURES)
    with pytest.raises(IngestFailedError) as raised:
        ingest.drain(8)
    assert str(raised.value) == f"its query failed {MOST_FAILURES} times in a row: workers die\nCaused by: SyntaxError"
    assert ingest._positions == []


def test_a_query_that_makes_progress_between_failures_is_started_again(capsys: pytest.CaptureFixture[str]) -> None:
    ingest = FakeIngest(*range(1, 4 * MOST_FAILURES), *[100] * 2)
    for _ in range(8 * MOST_FAILURES):
        ingest.refresh()
    assert ingest._position == 100
    assert '"restarts": 19' in capsys.readouterr().out


def test_a_cause_is_without_the_frames_of_java() -> None:
    text = "first\n\tat org.apache.spark.Some.thing(Some.scala:1)\n\t... 12 more\n\nCaused by: second"
    assert cause_of(RuntimeError(text)) == "first\nCaused by: second"
    assert len(cause_of(RuntimeError("line\n" * 1000)).splitlines()) < 20
