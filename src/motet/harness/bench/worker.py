"""A worker process of a measurement. It sends to its parent an address, "ready", and the results of its kind."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from random import Random
from struct import Struct
from typing import Any

from motet.api.events import ViewInstalled
from motet.api.group import Group
from motet.errors import MotetError
from motet.harness.bench.job import Job, Load, MeasurementKind, Sample, WorkerOutcome
from motet.harness.bench.member import MotetSystem
from motet.harness.bench.system_under_test import SystemUnderTest, Tally, open_system
from motet.runtime.observe import memory_bytes

STAMP = Struct("<q")
BATCH_BYTES = 50_000  # the bytes that the application sends in one call
POOL_BYTES = 1 << 20  # a pool of different messages that is sent repeatedly, so that creating them is not measured
SAMPLES = 10  # samples per measurement
TIMEOUT_S = 30.0  # for the last messages


def work(job: Job, pipe: Connection) -> None:
    """The main function of the process."""
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_work(job, pipe))
    except MotetError as error:
        pipe.send(error)
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _work(job: Job, pipe: Connection) -> None:
    system = await open_system(job)
    pipe.send(system.address)
    await system.connect(await _from_parent(pipe))
    pipe.send("ready")
    pipe.send(await _KINDS[job.kind](job, system, pipe))
    await _from_parent(pipe)
    await system.close()


async def _from_parent(pipe: Connection) -> Any:
    return await asyncio.to_thread(pipe.recv)


# Rates


async def _rate(job: Job, system: SystemUnderTest, pipe: Connection) -> WorkerOutcome:
    begin, end = await _from_parent(pipe)
    tally, outcome = Tally(), WorkerOutcome(job.index)
    sampling = asyncio.create_task(asyncio.to_thread(_sample, tally, begin, end, outcome))
    counting = asyncio.create_task(system.count(tally))
    if job.load.sends(job.index):
        outcome.sent = await _send_until(system, job.load, end)
    await sampling
    pipe.send(outcome.sent)
    expected = await _from_parent(pipe)
    outcome.missing = await _until_all_came(tally, expected)
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    outcome.counters = system.counters()
    return outcome


def _sample(tally: Tally, begin: float, end: float, outcome: WorkerOutcome) -> None:
    """Sample in a thread, so that a busy loop does not delay the samples."""
    step = (end - begin) / SAMPLES
    for number in range(SAMPLES + 1):
        time.sleep(max(0.0, begin + number * step - time.monotonic()))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = usage.ru_utime + usage.ru_stime
        outcome.samples.append(Sample(time.monotonic(), tally.delivered, cpu_s, memory_bytes()))


async def _send_until(system: SystemUnderTest, load: Load, end: float) -> int:
    pool, sent = _pool(load.size), 0
    while time.monotonic() < end:
        batch = pool[sent % len(pool)] if load.size > BATCH_BYTES else pool[(sent // len(pool[0])) % len(pool)]
        await system.send(batch)
        sent += len(batch)
    return sent


def _pool(size: int) -> list[list[bytes]]:
    rng = Random(size)
    per_batch = max(1, BATCH_BYTES // size)
    batches = max(1, POOL_BYTES // (per_batch * size))
    return [[rng.randbytes(size) for _ in range(per_batch)] for _ in range(batches)]


async def _until_all_came(tally: Tally, expected: int) -> int:
    timeout = time.monotonic() + TIMEOUT_S
    before = -1
    while tally.delivered < expected and time.monotonic() < timeout:
        if tally.delivered > before:
            before, timeout = tally.delivered, time.monotonic() + TIMEOUT_S
        await asyncio.sleep(0.02)
    return expected - tally.delivered


# Latencies


async def _latency(job: Job, system: SystemUnderTest, pipe: Connection) -> WorkerOutcome:
    begin, end = await _from_parent(pipe)
    tally, outcome = Tally(), WorkerOutcome(job.index)
    sampling = asyncio.create_task(asyncio.to_thread(_sample, tally, begin, end, outcome))
    taking = asyncio.create_task(_take_times(system, int(begin * 1e9), tally, outcome))
    if job.load.sends(job.index):
        outcome.sent = await _send_paced(system, job.load, end)
        outcome.latencies_ns.clear()  # only latencies at other members count
        taking.cancel()
    await sampling
    await asyncio.sleep(0.2)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    if job.load.sends(job.index):
        outcome.latencies_ns.clear()
    outcome.counters = system.counters()
    return outcome


async def _take_times(system: SystemUnderTest, begin_ns: int, tally: Tally, outcome: WorkerOutcome) -> None:
    while True:
        messages = await system.receive()
        now = time.monotonic_ns()
        for message in messages:
            (sent_ns,) = STAMP.unpack_from(message)
            if sent_ns >= begin_ns:
                outcome.latencies_ns.append(now - sent_ns)
        tally.delivered += len(messages)


async def _send_paced(system: SystemUnderTest, load: Load, end: float) -> int:
    filler, sent = bytes(load.size - STAMP.size), 0
    interval = 1 / load.rate
    due = time.monotonic()
    while due < end:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await system.send([STAMP.pack(time.monotonic_ns()) + filler])
        sent += 1
        due += interval
    return sent


# Calls


async def _calls(job: Job, system: SystemUnderTest, pipe: Connection) -> WorkerOutcome:
    begin, end = await _from_parent(pipe)
    tally, outcome = Tally(), WorkerOutcome(job.index)
    sampling = asyncio.create_task(asyncio.to_thread(_sample, tally, begin, end, outcome))
    if job.load.sends(job.index):
        await asyncio.gather(*(_ask(system, job.load, begin, end, tally, outcome) for _ in range(job.load.callers)))
    await sampling
    return outcome


async def _ask(
    system: SystemUnderTest, load: Load, begin: float, end: float, tally: Tally, outcome: WorkerOutcome
) -> None:
    assert isinstance(system, MotetSystem)
    group, to, question = system.group, system.group.view.members[0], bytes(load.size)
    asked = time.monotonic()
    while asked < end:
        await group.call(to, question)
        answered = time.monotonic()
        tally.delivered += 1
        if asked >= begin:
            outcome.latencies_ns.append(int((answered - asked) * 1e9))
        asked = answered


# View changes: the parent injects faults and receives every view


async def _views(job: Job, system: SystemUnderTest, pipe: Connection) -> WorkerOutcome:
    assert isinstance(system, MotetSystem)
    watching = asyncio.create_task(_tell_views(system.group, pipe))
    while (message := await _from_parent(pipe)) != "end":
        system.group.inject(message)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return WorkerOutcome(job.index)


async def _tell_views(group: Group, pipe: Connection) -> None:
    async for event in group.batches():
        if isinstance(event, ViewInstalled):
            pipe.send((time.monotonic(), len(event.view.members)))


_KINDS: dict[MeasurementKind, Callable[[Job, SystemUnderTest, Connection], Awaitable[WorkerOutcome]]] = {
    "rate": _rate,
    "latency": _latency,
    "calls": _calls,
    "kill": _views,
    "heal": _views,
}
