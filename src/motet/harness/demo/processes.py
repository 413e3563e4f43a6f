"""The processes of the demo, five members and Spark: starts them, kills them, and injects network faults."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from functools import partial

from motet.admin.client import AdminClient, parse_endpoint
from motet.harness.demo.child_process import ChildProcess, ProcessMessage
from motet.harness.demo.member_process import MemberArguments
from motet.harness.demo.plan import ASKED_BY_SPARK, NAMES, DemoPlan
from motet.harness.demo.status import DemoError, DemoStatus

ANY_PORT = "127.0.0.1:0"


class Processes:
    def __init__(self, plan: DemoPlan, status: DemoStatus) -> None:
        self.plan = plan
        self.status = status
        self.places: dict[str, dict[str, str]] = {}  # name -> its endpoints: member, log, admin
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.spark: ChildProcess | None = None
        self._members: dict[str, ChildProcess] = {}

    # Members

    async def start(self, name: str) -> ProcessMessage:
        """Start a member, or restart it at its previous endpoints."""
        line, places = self.status[name], self.places.get(name, {})
        part = MemberArguments(
            name=name,
            incarnation=line.incarnation,
            bind=places.get("member", ANY_PORT),
            seeds=tuple(place["member"] for other, place in self.places.items() if other != name),
            journal=str(self.plan.journals / name),
            log_bind=places.get("log", ANY_PORT),
            admin_bind=places.get("admin", ANY_PORT),
            parent=os.getpid(),
        )
        line.state = "starting"
        child = self._child(name, line.on_message)
        self._members[name] = child
        with self.status.waiting(f"{name} has started", name):
            await child.start("member", part.as_json(), self._environment())
            started = await child.receive("started")
        self.places[name] = {"member": started["started"], **started["services"]}
        line.state, line.is_alive = "receives", True
        return started

    def kill(self, name: str) -> int:
        """Send SIGKILL. Returns the pid of the killed process."""
        child, line = self._members[name], self.status[name]
        child.kill()
        line.state, line.is_alive, line.members = "killed", False, ()
        return child.pid

    async def reap(self, name: str) -> None:
        await self._members[name].ended()

    def start_sending(self, names: Iterable[str]) -> None:
        for name in names:
            self._members[name].say(do="start_sending")
            self.status[name].state = "sends"

    def stop_sending(self, names: Iterable[str]) -> None:
        for name in names:
            self._members[name].say(do="stop_sending")
            self.status[name].state = "receives"

    async def snapshot(self, name: str) -> ProcessMessage:
        with self.status.waiting(f"{name} has a snapshot", name):
            answer = await self._members[name].ask("snapshot", do="snapshot", directory=str(self.plan.snapshots))
        return dict(answer["snapshot"])

    async def leave(self, name: str) -> None:
        child = self._members[name]
        child.may_end = True
        child.say(do="leave")
        await child.ended()
        self.status[name].state, self.status[name].is_alive = "left", False

    # Faults, as `motet probe HOST:PORT fault RULE` makes them

    async def fault(self, names: Iterable[str], *rules: str) -> None:
        for name in names:
            client = AdminClient(parse_endpoint(self.places[name]["admin"]))
            for rule in rules:
                await asyncio.to_thread(client.operate, "fault", {"rule": rule})

    async def cut(self, here: tuple[str, ...], there: tuple[str, ...]) -> None:
        """Cut all links between the sides. A rule cuts both directions, so it is set on one side only."""
        await asyncio.gather(*(self.fault([name], *(f"cut@{other}" for other in there)) for name in here))

    # Spark

    async def start_spark(self) -> None:
        """Start Spark early, since a JVM starts slowly; begin the query when all members have started."""
        self.status.stream.state = "starting"
        self.spark = self._child("spark", self._on_spark_message)
        given = {"parent": os.getpid(), "scratch": str(self.plan.scratch)}
        with self.status.waiting("Spark has started", "spark"):
            await self.spark.start("ingest", json.dumps(given), self._environment())
            await self.spark.receive("ready")
        await self.status.until(lambda: len(self.places) == len(NAMES), "all members are started")
        members = ",".join(self.places[name]["log"] for name in ASKED_BY_SPARK)
        where = {"members": members, "table": str(self.plan.table), "checkpoint": str(self.plan.checkpoint)}
        await self.ask_spark("streaming", do="stream", **where)
        self.status.stream.state = "streams"

    def _on_spark_message(self, message: ProcessMessage) -> None:
        stream = self.status.stream
        for name, value in message.get("stream", {}).items():
            setattr(stream, name, value)

    async def ask_spark(self, answer: str, **command: str | int) -> ProcessMessage:
        assert self.spark is not None
        with self.status.waiting(f"Spark answers '{answer}'", "spark"):
            return dict(await self.spark.ask(answer, **command))

    async def end_spark(self) -> None:
        if self.spark is not None:
            self.spark.may_end = True
            self.spark.say(do="leave")
            await self.spark.ended()

    # All processes

    def _child(self, name: str, on_message: Callable[[ProcessMessage], None]) -> ChildProcess:
        return ChildProcess(name, self.plan.log_of(name), on_message, partial(self._died, name))

    def _died(self, name: str, error: DemoError) -> None:
        if name in NAMES:
            self.status[name].state = "died"
        if not self.broken.done():
            self.broken.set_exception(error)

    def _environment(self) -> dict[str, str]:
        return os.environ | {"TMPDIR": str(self.plan.scratch), "PYTHONUNBUFFERED": "1"}

    @property
    def children(self) -> list[ChildProcess]:
        return [*self._members.values(), *([self.spark] if self.spark is not None else [])]

    def kill_all(self) -> None:
        """Kill all processes; safe in a signal handler, and when the loop is no longer running."""
        for child in self.children:
            child.kill()

    async def end(self) -> None:
        self.kill_all()
        await asyncio.gather(*(child.ended() for child in self.children), return_exceptions=True)
        if self.broken.done():
            self.broken.exception()  # retrieved, since it was reported already
