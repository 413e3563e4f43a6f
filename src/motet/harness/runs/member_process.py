"""One member of a run in its own process. It executes commands, one per line, and reports its status.

    in:   {"do": "go"}  {"do": "inject", "rule": ...}  {"do": "send"}  {"do": "snapshot"}
          {"do": "report"}
    out:  {"endpoint": ...}  {"ready": true}  {"status": ...}  {"injected": rule}  {"report": ...}  {"error": ...}

`send` multicasts one message beyond its share. The process exits at the end of its input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from motet.api.events import Batch, BatchEvent, RolledBack, SendFailed, ViewInstalled
from motet.api.group import Group
from motet.api.joining import Joining
from motet.config import Config
from motet.errors import MotetError
from motet.harness.child_link import say, tie_to_parent
from motet.harness.runs.member_status import MemberStatus
from motet.harness.runs.sequence import DeliveredSequence, counts_of, digest, gaps, read_batch, save, save_numbers
from motet.harness.runs.work import NUMBER_BITS, Work, entry_of, name_of, payloads_of

GROUP = "run"
BATCH_BYTES = 50_000
STATUS_EVERY_S = 0.1
SNAPSHOT_S = 30.0
MOST_LOST = 1_000
FAILED = 3  # exit code of a member that failed and has reported the reason


@dataclass(slots=True)
class RunMemberReport:
    """The results of one member."""

    member: str
    delivered: int = 0  # messages that were delivered and not rolled back
    stable: int = 0
    position: int = 0
    rolled_back: int = 0
    views: int = 0  # number of installed views
    view_changes: int = 0  # views installed after the start command
    damaged: int = 0  # messages whose content differs from what was sent
    # Positions that it missed while it was not in the primary view.
    gaps: list[tuple[int, int]] = field(default_factory=list)
    digest: str = ""  # digest of positions, senders and contents of the stable prefix
    accepted: int = 0  # its own messages that were accepted
    failed_sends: int = 0  # accepted messages that were reported as failed
    # The first accepted messages that were neither delivered here nor reported.
    lost: list[int] = field(default_factory=list)
    lost_count: int = 0
    repeated: int = 0  # accepted messages that were delivered more than once
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0  # from the first delivery to the last
    latency_us: dict[str, Any] = field(default_factory=dict)
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)


def main(parent: int, work: str) -> None:
    tie_to_parent(parent)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        asyncio.run(_live(Work.from_json(work)))
    except MotetError as error:
        say(error=str(error))
        sys.exit(FAILED)


async def _live(work: Work) -> None:
    given: dict[str, Any] = dict(assignment.split("=", 1) for assignment in work.settings)
    joining = Joining(
        GROUP,
        name=name_of(work.index),
        seeds=work.seeds,
        config=Config.load(None, {}, **given),
        journal=work.journal,
        wait=False,
    )
    group = await joining
    try:
        say(endpoint=str(group.address.endpoint))
        await MemberOfRun(group, work).live()
    finally:
        await group.close()


class MemberOfRun:
    def __init__(self, group: Group, work: Work) -> None:
        self._group = group
        self._work = work
        self._sequence = DeliveredSequence()
        self._report = RunMemberReport(group.address.name)
        self._failed: set[int] = set()  # own messages that were reported as failed
        self._reported: set[int] = set()  # own messages that were rolled back
        self._reached = 0  # the position up to which the log was delivered or skipped
        self._view_position = 0  # the position of the log at the start of the current view
        self._views_before = 0
        self._sent_all = asyncio.Event()
        self._began = self._ended = 0.0
        self._snapshot: asyncio.Task[None] | None = None

    async def live(self) -> None:
        """Run until the commands end or a task fails; the failure is raised."""
        tasks = [
            asyncio.create_task(step) for step in (self._deliver(), self._report_status(), self._execute_commands())
        ]
        waiting_for_view = asyncio.create_task(self._await_full_view())
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, waiting_for_view):
            task.cancel()
        await asyncio.gather(*tasks, waiting_for_view, return_exceptions=True)
        for task in done:
            task.result()

    async def _await_full_view(self) -> None:
        await self._group.until(lambda view: view.is_primary and len(view.members) == self._work.members)
        say(ready=True)

    # Commands

    async def _execute_commands(self) -> None:
        lines = await _lines()
        sending: asyncio.Task[None] | None = None
        while line := await lines.readline():
            command = json.loads(line)
            match command["do"]:
                case "go":
                    self._views_before = self._report.views
                    sending = asyncio.create_task(self._send())
                    sending.add_done_callback(_report_failure)
                case "inject":
                    self._group.inject(command["rule"])
                    say(injected=command["rule"])
                case "snapshot":
                    self._begin_snapshot()
                case "send":
                    await self._send_one()
                case "report":
                    say(report=asdict(self._build_report()))

    # Sending

    async def _send(self) -> None:
        work, per_batch = self._work, max(1, BATCH_BYTES // self._work.size)
        for start in range(0, work.messages, per_batch):
            await self._multicast(range(start, min(start + per_batch, work.messages)))
        self._sent_all.set()

    async def _send_one(self) -> None:
        await self._multicast(range(self._report.accepted, self._report.accepted + 1))

    async def _multicast(self, numbers: range) -> None:
        await self._group.multicast_many(
            payloads_of(self._work.index, numbers, self._work.size), order=self._work.order
        )
        self._report.accepted += len(numbers)

    # Delivery

    async def _deliver(self) -> None:
        async for event in self._group.batches():
            if isinstance(event, Batch):
                self._on_batch(event)
            else:
                self._on_event(event)

    def _on_batch(self, batch: Batch) -> None:
        self._ended = time.perf_counter()
        self._began = self._began or self._ended
        sender = int(batch.sender.name.removeprefix("m"))
        entries, damaged = read_batch(sender, batch.payloads, self._work.size)
        self._report.damaged += damaged
        self._report.delivered += len(batch.payloads)
        if batch.position is not None:
            self._sequence.add(batch.position, entries)
            self._reached = batch.position + len(batch.payloads) - 1
        if self._work.snapshot_after and self._report.delivered >= self._work.snapshot_after:
            self._begin_snapshot()

    def _on_event(self, event: BatchEvent) -> None:
        if isinstance(event, RolledBack):
            self._roll_back(event.first)
        elif isinstance(event, ViewInstalled):
            self._report.views += 1
            self._view_position = event.position
            # Without a journal, missed positions are not fetched, and the log continues here.
            if self._work.journal is None:
                self._reached = max(self._reached, event.position)
        elif isinstance(event, SendFailed) and event.order != "direct":
            self._failed.update(range(event.first - 1, event.last) if event.first else ())
            self._report.failures.append(str(event.error))

    def _roll_back(self, first: int) -> None:
        """Forget rolled-back deliveries. The event reports to the sender that its own messages among them may be
        lost.
        """
        forgotten = self._sequence.roll_back(first)
        self._reached = min(self._reached, first - 1)
        if (
            self._work.journal is None
        ):  # the view event comes before the rollback, and the log continues at its position
            self._reached = max(self._reached, self._view_position)
        self._report.rolled_back += len(forgotten)
        self._report.delivered -= len(forgotten)
        own = entry_of(self._work.index, 0)
        self._reported.update(entry ^ own for entry in forgotten if entry >> NUMBER_BITS == self._work.index)

    def _begin_snapshot(self) -> None:
        if self._snapshot is None:
            self._snapshot = asyncio.create_task(self._take_snapshot())

    async def _take_snapshot(self) -> None:
        """Take a snapshot and write it to a file, because the result may be large."""
        try:
            result: dict[str, Any] = (await self._group.snapshot(SNAPSHOT_S)).as_dict()
        except MotetError as error:
            result = {"error": str(error)}
        path = Path(self._work.directory) / f"{self._report.member}.snapshot"
        path.write_text(json.dumps(result), encoding="utf-8")

    # Reports

    async def _report_status(self) -> None:
        while True:
            # Read before the member's status, so that the status covers every message counted here.
            progress = self._progress()
            status = await asyncio.wrap_future(self._group._look(MemberStatus.of))
            say(status=status.as_dict() | progress)
            await asyncio.sleep(STATUS_EVERY_S)

    def _progress(self) -> dict[str, Any]:
        return {
            "delivered": self._report.delivered,
            "taken": self._reached,  # the position that the application has reached
            "accepted": self._report.accepted,
            "has_sent_all": self._sent_all.is_set(),
            "has_snapshot": self._snapshot is not None and self._snapshot.done(),
            "takes_snapshot": self._snapshot is not None,
        }

    def _build_report(self) -> RunMemberReport:
        report, stats = self._report, self._group.stats()
        report.position, report.stable = stats["log"]["position"], stats["log"]["stable"]
        report.view_changes = report.views - self._views_before
        stable = list(self._sequence.spans(report.stable))
        save(Path(self._work.directory) / f"{report.member}.sequence", stable)
        report.digest, report.gaps = digest(stable), gaps(stable, report.stable)
        self._account()
        report.seconds = round(self._ended - self._began, 3)
        report.latency_us = stats["latency"]
        usage = resource.getrusage(resource.RUSAGE_SELF)
        report.cpu_s = round(usage.ru_utime + usage.ru_stime, 3)
        report.rss_mb = round(stats["memory_bytes"] / 1e6, 1)
        report.counters = {name: value for name, value in stats["counters"].items() if value}
        return report

    def _account(self) -> None:
        """Count accepted messages that are neither in this log nor reported as failed."""
        report = self._report
        report.failed_sends = len(self._failed)
        if self._work.order != "total" or not report.accepted:
            return
        counts = counts_of(list(self._sequence.spans()), self._work.index, report.accepted)
        reported = self._failed | self._reported
        lost = [int(number) for number in (counts == 0).nonzero()[0] if int(number) not in reported]
        report.lost, report.lost_count = lost[:MOST_LOST], len(lost)
        save_numbers(Path(self._work.directory) / f"{report.member}.lost", lost)
        report.repeated = int((counts > 1).sum())


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        say(error=f"sending failed: {error}")


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader
