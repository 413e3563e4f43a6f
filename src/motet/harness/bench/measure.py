"""The parent process of a measurement: starts the workers, sets their start time, and combines their results."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from motet.errors import MotetError
from motet.harness.bench.job import MOTET, Job, Load, MeasurementKind, Run, WorkerOutcome
from motet.harness.bench.peer import module_of, server_of
from motet.harness.bench.worker import work

TIMEOUT_S = 20.0  # a system that says nothing for so long will not say anything
HEAD_START_S = 0.3  # from the word to the first message


@dataclass(slots=True)
class WorkerProcess:
    process: BaseProcess
    pipe: Connection

    def receive(self, timeout: float = TIMEOUT_S) -> Any:
        if not self.pipe.poll(timeout):
            raise MotetError("a process of the benchmark did not answer; see its output above")
        try:
            message = self.pipe.recv()
        except EOFError:
            raise MotetError("a process of the benchmark has died; see its output above") from None
        if isinstance(message, BaseException):
            raise message
        return message


def measure(system: str, kind: MeasurementKind, load: Load, seconds: float, warm_up: float) -> Run:
    """One measurement, from starting the processes to their end."""
    with tempfile.TemporaryDirectory(prefix="motet-bench-") as directory, _server(system, directory) as place:
        job = Job(system, kind, load, 0, seconds, warm_up, (place,) if place else (), directory)
        with _children(job) as children:
            for child in children:
                assert child.receive() == "ready"
            if kind == "kill":
                return _kill(children, load)
            if kind == "heal":
                return _heal(children)
            return _timed(children, job)


@contextlib.contextmanager
def _server(system: str, directory: str) -> Iterator[str]:
    """What a system needs beside its members: a broker, in most cases."""
    server = server_of(system) if system != MOTET else None
    if server is None:
        yield ""
        return
    with server(directory) as place:
        yield place


@contextlib.contextmanager
def _children(job: Job) -> Iterator[list[WorkerProcess]]:
    """All workers of a measurement, which know each other's addresses. The first one starts before the others."""
    children: list[WorkerProcess] = []
    try:
        first = _start(job)
        children.append(first)
        addresses = [str(first.receive())]
        seeds = job.seeds or tuple(filter(None, addresses))
        children += [_start(replace(job, index=index, seeds=seeds)) for index in range(1, job.load.members)]
        addresses += [str(child.receive()) for child in children[1:]]
        for child in children:
            child.pipe.send(addresses)
        yield children
        for child in children:
            with contextlib.suppress(OSError):
                child.pipe.send("leave")
        for child in children:
            child.process.join(15)
    finally:
        for child in children:
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
            child.pipe.close()


def _start(job: Job) -> WorkerProcess:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker_of(job.system), args=(job, theirs), daemon=True)
    process.start()
    theirs.close()
    return WorkerProcess(process, ours)


def _worker_of(system: str) -> Callable[[Job, Connection], None]:
    """What a process of it runs: ours, unless the system is not driven from Python."""
    if system == MOTET:
        return work
    worker: Callable[[Job, Connection], None] = getattr(module_of(system), "work", work)
    return worker


# What takes its time


def _timed(children: list[WorkerProcess], job: Job) -> Run:
    begin = time.monotonic() + HEAD_START_S + job.warm_up
    end = begin + job.seconds
    for child in children:
        child.pipe.send((begin, end))
    timeout = HEAD_START_S + job.warm_up + job.seconds + TIMEOUT_S
    if job.kind == "rate":
        sent = sum(int(child.receive(timeout)) for child in children)
        for child in children:
            child.pipe.send(_expected(job.load, sent, child is children[0]))
    outcomes = [child.receive(timeout) for child in children]
    return _rate_of(outcomes, job.load) if job.kind == "rate" else _latency_of(outcomes, job)


def _expected(load: Load, sent: int, is_first: bool) -> int:
    return sent if load.order != "direct" or is_first else 0


def _rate_of(outcomes: list[WorkerOutcome], load: Load) -> Run:
    receivers = outcomes[:1] if load.order == "direct" else outcomes
    slowest = min(receivers, key=lambda outcome: outcome.rate)
    samples = slowest.samples
    steps = [(b.delivered - a.delivered) / (b.at - a.at) for a, b in pairwise(samples)]
    run = Run(slowest.rate, low=min(steps), missing=sum(outcome.missing for outcome in outcomes))
    run.memory_mb = [[round(s.rss_bytes / 1e6, 1) for s in outcome.samples] for outcome in outcomes]
    _add_costs(run, outcomes)
    return run


def _latency_of(outcomes: list[WorkerOutcome], job: Job) -> Run:
    times = sorted(ns for outcome in outcomes for ns in outcome.latencies_ns)
    if not times:
        raise MotetError("no message came back, so there is no latency; see the output of the processes above")
    run = Run(times[len(times) // 2] / 1e3, p99=times[len(times) * 99 // 100] / 1e3)
    if job.kind == "calls":
        run.calls_per_s = round(len(times) / job.seconds, 1)
    _add_costs(run, outcomes)
    return run


def _add_costs(run: Run, outcomes: list[WorkerOutcome]) -> None:
    run.cpu = [round(outcome.cpu_share, 3) for outcome in outcomes]
    run.rss_mb = [round(outcome.rss_bytes / 1e6, 1) for outcome in outcomes]
    rate = max(outcome.rate for outcome in outcomes)
    run.cpu_us_per_message = round(sum(run.cpu) / rate * 1e6, 4) if rate else None
    for outcome in outcomes:
        for name, value in outcome.counters.items():
            run.counters[name] = run.counters.get(name, 0) + value


# View changes


def _kill(children: list[WorkerProcess], load: Load) -> Run:
    """The time from SIGKILL until the last survivor installs the view without the killed member."""
    victim = children[load.victim]
    survivors = [child for child in children if child is not victim]
    time.sleep(0.5)  # a steady state of heartbeats
    begin = time.monotonic()
    assert victim.process.pid is not None
    os.kill(victim.process.pid, signal.SIGKILL)
    end = _until_view(survivors, len(survivors), begin)
    _end_views(survivors)
    return Run(end - begin)


def _heal(children: list[WorkerProcess]) -> Run:
    """Partition the group in halves; the time from healing until the last member installs the view of all."""
    half, begin = len(children) // 2, time.monotonic()
    for index, child in enumerate(children):
        others = range(half, len(children)) if index < half else range(half)
        for other in others:
            child.pipe.send(f"cut@m{other}")
    _until_view(children, half, begin)
    time.sleep(1.0)
    begin = time.monotonic()
    for child in children:
        child.pipe.send("clear")
    end = _until_view(children, len(children), begin)
    _end_views(children)
    return Run(end - begin)


def _until_view(children: list[WorkerProcess], size: int, since: float) -> float:
    """The time at which the last of these members installed a view of this size; views before `since` do not count."""
    waiting, last = {child.pipe: child for child in children}, 0.0
    timeout = time.monotonic() + TIMEOUT_S
    while waiting:
        ready = wait(list(waiting), timeout=max(0.0, timeout - time.monotonic()))
        if not ready:
            raise MotetError(f"no view of {size} members within {TIMEOUT_S:.0f} s")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            at, members = waiting[pipe].receive()
            if members == size and at >= since:
                last = max(last, at)
                del waiting[pipe]
    return last


def _end_views(children: list[WorkerProcess]) -> None:
    for child in children:
        child.pipe.send("end")
    for child in children:
        while not isinstance(child.receive(), WorkerOutcome):
            pass
