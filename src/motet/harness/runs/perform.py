"""Performs a run: starts the members, waits until all messages are stable, and evaluates. It always terminates."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.harness.runs.evaluation import RunVerdict, evaluate
from motet.harness.runs.member_process import RunMemberReport
from motet.harness.runs.processes import DeadlineError, ProcessMessage, RunFailedError, RunMember, RunProcesses
from motet.harness.runs.sequence import holds, load
from motet.harness.runs.snapshots import is_one_cut
from motet.harness.runs.work import RunPlan, describe_entry, entry_of, name_of

REPORT_S = 15.0
HOLD_BACK_S = 15.0
EXTRA = 5  # messages that each survivor sends after the sender was killed
NO_ACKS = "drop=1.0@*:in#ack"
Watch = Callable[[list[ProcessMessage]], None]


@dataclass(slots=True)
class RunOutcome:
    plan: RunPlan
    reports: dict[int, RunMemberReport] = field(default_factory=dict)
    statuses: dict[int, ProcessMessage] = field(default_factory=dict)  # the last status of each member
    verdict: RunVerdict = field(default_factory=RunVerdict)
    failure: str = ""  # why the run ended early
    stderr: dict[int, list[str]] = field(default_factory=dict)  # the last lines of each member's stderr
    snapshot: dict[str, Any] | None = None
    killed: int | None = None
    seconds: float = 0.0
    directory: Path | None = None  # where logs and journals are, if they were kept

    @property
    def holds(self) -> bool:
        return not self.failure and self.verdict.holds

    def total(self, counter: str) -> int:
        return sum(report.counters.get(counter, 0) for report in self.reports.values())

    @property
    def view_changes(self) -> int:
        return max((report.view_changes for report in self.reports.values()), default=0)


async def perform(
    plan: RunPlan, *, journals: Path | None = None, keeps_failures: bool = False, watch: Watch = lambda _: None
) -> RunOutcome:
    """`keeps_failures`: always write journals, and keep them with the logs if the run fails its evaluation."""
    outcome, began = RunOutcome(plan), time.monotonic()
    async with RunProcesses(plan, journals, keeps_journals=keeps_failures) as processes:
        try:
            await _Run(processes, outcome, watch).play()
        except RunFailedError as error:
            outcome.failure = str(error)
        outcome.seconds = round(time.monotonic() - began, 2)
        await _conclude(processes, outcome)
        if keeps_failures and not outcome.holds:
            processes.keeps, outcome.directory = True, processes.directory
    return outcome


class _Run:
    def __init__(self, processes: RunProcesses, outcome: RunOutcome, watch: Watch) -> None:
        self._processes = processes
        self._plan = processes.plan
        self._outcome = outcome
        self._watch = watch
        self._has_requested = False  # whether an extra snapshot was requested
        self._extra = dict.fromkeys(range(processes.plan.members), 0)  # messages beyond its share, by member

    async def play(self) -> None:
        processes, plan = self._processes, self._plan
        await processes.gather()
        await processes.inject(processes.members, *plan.faults)
        try:
            async with asyncio.timeout(plan.deadline_s):
                processes.send(processes.members, do="go")
                if plan.kills_sender:
                    await self._kill_sender()
                await processes.until(self._is_over, None, "everything to be stable at all members")
        except TimeoutError:
            raise DeadlineError(f"the deadline of {plan.deadline_s:.0f} s was reached") from None

    def _is_over(self) -> bool:
        """Whether every accepted message is delivered or failed, and every delivered one is stable at every member."""
        alive = self._processes.alive
        self._watch([member.status for member in self._processes.members])
        if not self._has_snapshot() or not all(map(self._has_settled, alive)):
            return False
        return len({one.status["position"] for one in alive}) == 1

    def _has_snapshot(self) -> bool:
        """Whether the planned snapshot is taken, or not due yet.

        m0 takes it after a number of deliveries. If another member gets there first, it is asked to take one as well.
        """
        after, statuses = self._plan.snapshot_after, [one.status for one in self._processes.alive]
        early = [one for one in self._processes.alive if after and one.status.get("delivered", 0) >= after]
        takers = [at for at in statuses if at.get("takes_snapshot")]
        if early and not takers and not self._has_requested:
            self._has_requested = True
            early[0].say(do="snapshot")
        return not early or (bool(takers) and all(at["has_snapshot"] for at in takers))

    def _has_settled(self, member: RunMember) -> bool:
        at = member.status
        if not at or not at["has_sent_all"] or not at["is_drained"]:
            return False
        if at["accepted"] < self._plan.share_of(member.index) + self._extra[member.index]:
            return False
        if self._plan.order == "fifo":
            return bool(at["delivered"] >= self._plan.messages)
        return bool(at["taken"] == at["position"] == at["stable"] and at["is_primary"])

    async def _kill_sender(self) -> None:
        """Kill the last sender when all others hold a message of it that has no agreed sequence number."""
        processes = self._processes
        victim = processes.members[self._plan.senders - 1]
        survivors = [member for member in processes.members if member is not victim]
        await processes.until(self._is_over, None, "the first messages")
        await processes.inject(processes.members, NO_ACKS)
        victim.say(do="send")
        await processes.until(
            lambda: all(one.status["held_back"] for one in survivors),
            HOLD_BACK_S,
            "the message in all hold-back queues",
        )
        victim.kill()
        self._outcome.killed = victim.index
        await processes.inject(survivors, "clear#ack")
        for _ in range(EXTRA):
            processes.send(survivors, do="send")
        self._extra |= {one.index: EXTRA for one in survivors}


async def _conclude(processes: RunProcesses, outcome: RunOutcome) -> None:
    """Collect the reports of the members that still answer, and evaluate them."""
    processes.send(processes.alive, do="report")
    with contextlib.suppress(RunFailedError):
        have_reported = lambda: all("report" in one.messages for one in processes.alive)  # noqa: E731
        await processes.until(have_reported, REPORT_S, "the reports", fails_on_exit=False)
    outcome.statuses = {one.index: one.status for one in processes.members}
    outcome.stderr = {one.index: lines for one in processes.members if (lines := one.last_lines())}
    outcome.reports = {
        one.index: RunMemberReport(**one.messages["report"]) for one in processes.alive if "report" in one.messages
    }
    outcome.failure = outcome.failure or _missing_reports(processes)
    if outcome.reports:
        outcome.verdict = evaluate(
            processes.plan,
            outcome.reports,
            processes.directory,
            is_over=not outcome.failure,
            has_journals=processes.journals is not None,
        )
    _read_snapshot(processes, outcome)
    _note_last_message(processes, outcome)
    if (
        processes.plan.faults
        and outcome.reports
        and not outcome.total("fault_dropped") + outcome.total("fault_delayed")
    ):
        outcome.verdict.notes.append("no datagram was dropped or delayed: there were too few for the faults to strike")


def _note_last_message(processes: RunProcesses, outcome: RunOutcome) -> None:
    """Note the fate of the message whose sender was killed; it must be the same at all survivors."""
    if outcome.killed is None or not outcome.reports:
        return
    entry = entry_of(outcome.killed, processes.plan.share_of(outcome.killed))
    holders = [
        r.member for r in outcome.reports.values() if holds(load(processes.directory / f"{r.member}.sequence"), entry)
    ]
    stderr = f"{describe_entry(entry)}, which was killed between DATA and SEQ, was delivered by"
    if len(holders) in (0, len(outcome.reports)):
        outcome.verdict.notes.append(f"{stderr} {'all survivors' if holders else 'none of the survivors'}")
    else:
        outcome.verdict.problems.append(f"{stderr} {', '.join(holders)} and not by the other survivors")


def _missing_reports(processes: RunProcesses) -> str:
    """Why a report is missing; empty if none is."""
    if ends := processes.ends():
        return "; ".join(ends)
    silent = [one.name for one in processes.alive if "report" not in one.messages]
    return f"{', '.join(silent)} made no report within {REPORT_S:.0f} s" if silent else ""


def _read_snapshot(processes: RunProcesses, outcome: RunOutcome) -> None:
    taken = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(processes.directory.glob("*.snapshot"))]
    outcome.snapshot = min(taken, key=_place_of, default=None)
    if processes.plan.snapshot_after and not (outcome.snapshot and "error" not in outcome.snapshot):
        why = outcome.snapshot["error"] if outcome.snapshot else f"{name_of(0)} took none before the run ended"
        outcome.verdict.problems.append(f"there is no snapshot: {why}")
    elif outcome.snapshot is not None and not is_one_cut(outcome.snapshot):
        outcome.verdict.problems.append("the snapshot is not one cut: its members do not add up to the same messages")


def _place_of(snapshot: dict[str, Any]) -> tuple[bool, int]:
    """A sort key: successful snapshots before failed ones, then by position."""
    return "error" in snapshot, sum(member["position"] for member in snapshot.get("members", ()))
