"""Runs the demo: prepares it, runs the acts, evaluates the result, and always removes processes and temporary files."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import traceback
from collections.abc import AsyncIterator, Coroutine
from functools import partial

from motet.errors import MotetError
from motet.harness.demo.acts import Story
from motet.harness.demo.display import Display
from motet.harness.demo.evaluation import (
    AUDIT,
    NOTHING_LOST,
    ONCE,
    ONE_LOG,
    TABLE,
    DemoFailure,
    DemoVerdict,
    nothing_lost,
    numbers_by_sender,
    once_and_in_order,
    same_log,
)
from motet.harness.demo.plan import NAMES, DemoPlan
from motet.harness.demo.processes import Processes
from motet.harness.demo.status import DemoStatus

POLL_EVERY_S = 0.5
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_demo(plan: DemoPlan, status: DemoStatus, display: Display) -> DemoVerdict:
    """Run the demo. Raises CancelledError if a signal stopped it; every other failure is in the verdict."""
    plan.scratch.mkdir(parents=True)
    verdict = DemoVerdict(out=str(plan.out))
    story = Story(plan, status, Processes(plan, status), display, verdict)
    try:
        async with _stopped_by_signals(story.processes):
            await _unless_broken(story.processes, _play_and_evaluate(story))
    except Exception as error:
        verdict.failure = DemoFailure(status.act, *_reason_and_log(plan, error))
    finally:
        await asyncio.shield(story.processes.end())
        _remove(plan)
    verdict.seconds = status.elapsed_s
    return verdict


def _reason_and_log(plan: DemoPlan, error: Exception) -> tuple[str, str]:
    if isinstance(error, MotetError):
        return str(error), str(getattr(error, "log", None) or plan.logs)
    log = plan.log_of("demo")
    log.parent.mkdir(exist_ok=True)
    log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {error}; this is a bug of the demo", str(log)


async def _play_and_evaluate(story: Story) -> None:
    refreshing = asyncio.create_task(_refresh(story.display))
    try:
        await story.play()
        await story.finish(partial(_evaluate, story))
        await story.processes.end_spark()
    finally:
        refreshing.cancel()


async def _refresh(display: Display) -> None:
    while True:
        await asyncio.sleep(POLL_EVERY_S)
        display.refresh()


@contextlib.asynccontextmanager
async def _stopped_by_signals(processes: Processes) -> AsyncIterator[None]:
    """A signal kills all processes and cancels the demo; further signals do the same again."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop() -> None:
        processes.kill_all()
        task.cancel()

    for number in ENDS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in ENDS:
            loop.remove_signal_handler(number)


async def _unless_broken(processes: Processes, playing: Coroutine[None, None, None]) -> None:
    """End the demo if a process exits unexpectedly, whatever the current act waits for."""
    task = asyncio.create_task(playing)
    try:
        await asyncio.wait({task, processes.broken}, return_when=asyncio.FIRST_COMPLETED)
        done = processes.broken if processes.broken.done() else task
        done.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# Evaluation


async def _evaluate(story: Story) -> None:
    plan, verdict = story.plan, story.verdict
    story.act(
        "Did it hold?",
        "Everything above can be checked. Each of the five processes wrote a journal of its own. Do they hold the "
        "same log, does it have everything that was promised, and does Spark's table equal it?",
    )
    is_same, figure, log = await asyncio.to_thread(same_log, [plan.journals / name for name in NAMES])
    numbers = numbers_by_sender(log)
    verdict.add(ONE_LOG, is_same, figure)
    verdict.add(NOTHING_LOST, *nothing_lost(story.records, numbers))
    verdict.add(ONCE, *once_and_in_order(numbers))
    story.say(f"The five journals: {figure}.")
    if plan.with_spark:
        await _evaluate_table(story)
        await _audit(story)
    else:
        for name in (TABLE, AUDIT):
            verdict.not_shown(name, plan.no_spark_because.partition(". ")[0])


async def _evaluate_table(story: Story) -> None:
    plan, stream = story.plan, story.status.stream
    where = {"table": str(plan.table), "journals": ",".join(str(plan.journals / name) for name in NAMES)}
    story.say("Spark compares its table with the log, position by position.")
    found = (await story.processes.ask_spark("compared", do="compare", **where))["compared"]
    faults = {name: found[name] for name in ("missing", "twice", "unknown", "other") if found[name]}
    holds = not faults and found["rows"] == found["log"]
    restarts = f", query started again {stream.restarts}×" if stream.restarts else ""
    figure = f"{found['rows']:,} rows in {stream.batches} micro-batches, none missing, none twice, all equal{restarts}"
    story.verdict.add(TABLE, holds, figure if holds else f"{found['rows']:,} rows; {faults}")
    story.say(f"The table beside the log: {figure if holds else faults}.")


async def _audit(story: Story) -> None:
    plan = story.plan
    story.say("The audit reads all five journals in Spark and checks one guarantee after the other.")
    audit = (
        await story.processes.ask_spark("audit", do="audit", journals=str(plan.journals), report=str(plan.report))
    )["audit"]
    checked = [name for name, check in audit["checks"].items() if check["state"] == "ok"]
    broken = [name for name, check in audit["checks"].items() if check["state"] == "violated"]
    figure = f"{len(checked)} guarantees over {audit['rows']:,} rows: {', '.join(checked)}"
    holds = audit["verdict"] == "ok" and not broken
    story.verdict.add(AUDIT, holds, figure if holds else f"violated: {', '.join(broken) or audit['unusable']}")
    story.verdict.report = str(plan.report)


def _remove(plan: DemoPlan) -> None:
    """Remove the scratch directory, repeatedly, since a killed process may still have been writing a file."""
    for _ in range(10):
        shutil.rmtree(plan.scratch, ignore_errors=True)
        if not plan.scratch.exists():
            return
