"""The cost of an idle group, and the cost of one slow consumer to the others.

    python benchmarks/idle_and_slow.py                       both; a minute for the first, some seconds for the second
    python benchmarks/idle_and_slow.py idle --seconds 10
    python benchmarks/idle_and_slow.py slow --megabytes 500 --json

idle   three `motet node` processes in one view; their processor time over the given seconds, as the system counts it
slow   three members in processes of their own; one sends without a pause, one takes nothing from its queue until the
       others stand still, and then all; the most memory that each of them held, and how far the sender came meanwhile
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import motet

TIMEOUT_S = 600.0
MESSAGE = bytes(1_000)
BATCH = 50
STANDSTILL_S = 1.0  # without a delivery for this time, the sender is held by back-pressure
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


# Idle


@dataclass(frozen=True, slots=True)
class Idle:
    preset: str
    seconds: float
    cpu_percent: list[float]  # of one core, per member
    memory_mb: list[float]


def measure_idle(preset: str, seconds: float) -> Idle:
    nodes: list[subprocess.Popen[str]] = []
    try:
        seeds: list[str] = []
        for name in "abc":
            nodes.append(start_node(name, preset, seeds))
            seeds = seeds or [expect(nodes[0], "started")["endpoint"]]
        for node in nodes:
            while len(expect(node, "view")["members"]) < len(nodes):
                pass
        before = [cpu_seconds(node.pid) for node in nodes]
        began = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        spent = [cpu_seconds(node.pid) - was for node, was in zip(nodes, before, strict=True)]
        percent = [round(100 * cpu / passed, 2) for cpu in spent]
        return Idle(preset, round(passed, 1), percent, [round(memory_mb(node.pid), 1) for node in nodes])
    finally:
        for node in nodes:
            node.kill()
            node.wait()


def start_node(name: str, preset: str, seeds: list[str]) -> subprocess.Popen[str]:
    where = ["--seeds", seeds[0]] if seeds else []
    words = [sys.executable, "-m", "motet", "node", "--group", "idle", "--name", name, "--preset", preset, "--json"]
    return subprocess.Popen([*words, *where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def expect(node: subprocess.Popen[str], event: str) -> dict[str, Any]:
    assert node.stdout is not None
    for line in node.stdout:
        said: dict[str, Any] = json.loads(line)
        if said["event"] == event:
            return said
    raise SystemExit("a node ended before it should")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# One slow consumer


@dataclass(frozen=True, slots=True)
class Slow:
    megabytes: int
    sent_before_waiting_mb: float  # how much was sent while one member consumed nothing
    most_memory_mb: dict[str, float]
    memory_before_mb: dict[str, float]
    views_changed: int
    is_complete: bool  # all members delivered all messages at the end


class SlowMember:
    def __init__(self, group: motet.Group, megabytes: int) -> None:
        self.group = group
        self.messages = megabytes * 1_000_000 // len(MESSAGE)
        self.sent = self.seen = 0
        self.may_consume = asyncio.Event()

    async def send(self) -> None:
        while self.sent < self.messages:
            await self.group.multicast_many([MESSAGE] * BATCH)
            self.sent += BATCH

    async def consume(self) -> None:
        await self.may_consume.wait()
        async for event in self.group.batches():
            if isinstance(event, motet.Batch):
                self.seen += len(event.payloads)

    def execute(self, word: str) -> Any:
        if word == "eat":
            self.may_consume.set()
        return {"sent": self.sent, "seen": self.seen, "mb": memory_mb(os.getpid()), "view": self.group.view.id.number}


def member_process(name: str, seeds: list[str], megabytes: int, pipe: Connection) -> None:
    asyncio.run(run_member(name, seeds, megabytes, pipe))


async def run_member(name: str, seeds: list[str], megabytes: int, pipe: Connection) -> None:
    async with motet.join("slow", name=name, seeds=seeds or None) as group:
        member = SlowMember(group, megabytes)
        pipe.send(str(group.address.endpoint))
        await group.until(lambda view: len(view.members) == 3)
        tasks = [asyncio.create_task(member.consume())]
        while (word := await asyncio.to_thread(pipe.recv)) != "leave":
            if word == "send":
                tasks.append(asyncio.create_task(member.send()))
            pipe.send(member.execute(word))
        await group.leave()
        await asyncio.gather(*tasks)


class SlowMemberHandle:
    def __init__(self, name: str, seeds: list[str], megabytes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=member_process, args=(name, seeds, megabytes, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.endpoint = self._receive()

    def ask(self, word: str) -> dict[str, Any]:
        self._pipe.send(word)
        return dict(self._receive())

    def _receive(self) -> Any:
        if not self._pipe.poll(TIMEOUT_S):
            raise SystemExit(f"{self.name} does not answer any more")
        return self._pipe.recv()

    def leave(self) -> None:
        self._pipe.send("leave")
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()


def measure_slow(megabytes: int) -> Slow:
    sender = SlowMemberHandle("sender", [], megabytes)
    members = [sender, *(SlowMemberHandle(name, [sender.endpoint], megabytes) for name in ("eager", "slow"))]
    before = {member.name: member.ask("report") for member in members}
    most = {name: report["mb"] for name, report in before.items()}
    for member in members[:2]:
        member.ask("eat")
    sender.ask("send")
    watch(members, most, standstill())
    stood = sender.ask("report")["sent"]
    members[2].ask("eat")
    whole = megabytes * 1_000_000 // len(MESSAGE)
    after = watch(members, most, lambda reports: all(report["seen"] >= whole for report in reports))
    for member in reversed(members):
        member.leave()
    return Slow(
        megabytes,
        round(stood * len(MESSAGE) / 1e6, 1),
        {name: round(mb, 1) for name, mb in most.items()},
        {name: round(report["mb"], 1) for name, report in before.items()},
        max(report["view"] for report in after) - max(report["view"] for report in before.values()),
        all(report["seen"] == whole for report in after),
    )


def watch(
    members: list[SlowMemberHandle], most: dict[str, float], is_over: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """Ask all members again and again, and note the most memory that each of them held."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        reports = [member.ask("report") for member in members]
        for member, report in zip(members, reports, strict=True):
            most[member.name] = max(most[member.name], report["mb"])
        if is_over(reports):
            return reports
        if time.monotonic() > deadline:
            raise SystemExit(f"this took too long; the last reports: {reports}")
        time.sleep(0.05)


def standstill() -> Callable[[list[dict[str, Any]]], bool]:
    """Whether the sender has made no progress for a while."""
    last, since = -1, time.monotonic()

    def is_still(reports: list[dict[str, Any]]) -> bool:
        nonlocal last, since
        sent = reports[0]["sent"]
        if sent != last:
            last, since = sent, time.monotonic()
        return time.monotonic() - since > STANDSTILL_S

    return is_still


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("idle", "slow", "both"), nargs="?", default="both")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the idle group is watched")
    parser.add_argument("--megabytes", type=int, default=500, help="what the sender wants to send, in messages of 1 kB")
    parser.add_argument("--json", action="store_true", help="for a program to read")
    options = parser.parse_args()
    idle = [measure_idle(preset, options.seconds) for preset in ("local", "lan")] if options.which != "slow" else []
    slow = [measure_slow(options.megabytes)] if options.which != "idle" else []
    if options.json:
        print(json.dumps({"idle": [asdict(one) for one in idle], "slow": [asdict(one) for one in slow]}, indent=2))
        return
    for quiet in idle:
        shares = ", ".join(f"{percent} %" for percent in quiet.cpu_percent)
        print(f"idle, preset {quiet.preset}, {quiet.seconds} s: {shares} of a core; memory {quiet.memory_mb} MB")
    for held in slow:
        print(
            f"slow consumer, {held.megabytes} MB to send: the sender waits after {held.sent_before_waiting_mb} MB; "
            f"memory before {held.memory_before_mb}, at most {held.most_memory_mb} MB; "
            f"views changed: {held.views_changed}; all delivered in the end: {held.is_complete}"
        )


if __name__ == "__main__":
    main()
