"""The tests that the ISIS total order document describes, as named cases on real processes with default settings.

Every case runs with both dissemination strategies. How many members each has is fixed, so that 3, 4 and 5 all occur
with both. Every message is a frame of its own: many messages in one frame would test the order of a few frames only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from motet.harness.runs.perform import RunOutcome, perform
from motet.harness.runs.work import RunPlan

STRATEGIES = ("window", "continuous")
# With the start of its processes a case then ends within a minute, whatever happens. The wan preset is made for round
# trips of half a second: it repairs every two seconds, and under loss needs several times as long.
DEADLINES_S = {"local": 50.0, "lan": 50.0, "wan": 180.0}
LATE = "2000ms:0.5"


@dataclass(frozen=True, slots=True)
class SuiteCase:
    name: str
    about: str
    members: tuple[int, int]  # with the window strategy, and with the continuous one
    messages: int
    faults: tuple[str, ...] = ()  # at every member
    senders: int = 0  # 0: all members
    snapshot_after: int = 0
    kills_sender: bool = False

    def plan(self, strategy: str, preset: str) -> RunPlan:
        members = self.members[STRATEGIES.index(strategy)]
        return RunPlan(
            members,
            self.senders or members,
            self.messages,
            settings=(f"preset={preset}", f"strategy={strategy}", "pack_messages=false"),
            faults=self.faults,
            snapshot_after=self.snapshot_after,
            kills_sender=self.kills_sender,
            deadline_s=DEADLINES_S[preset],
        )


CASES = (
    SuiteCase("one-sender", "one member sends", (3, 4), 150, senders=1),
    SuiteCase("several-senders", "all members send at once: ties are broken", (5, 3), 300),
    SuiteCase("drop-25", "a quarter of all datagrams is lost", (4, 5), 120, ("drop=0.25@*:in",)),
    # The continuous strategy retransmits every 1.24 s on average, and a try succeeds with probability 0.25.
    SuiteCase("drop-50", "half of all datagrams are lost", (4, 3), 30, ("drop=0.5@*:in",)),
    SuiteCase("delay-half", "half of all datagrams are 2000 ms late", (5, 3), 90, (f"delay={LATE}@*:in",)),
    SuiteCase(
        "drop-and-delay",
        "a quarter is lost, half of the rest late",
        (3, 3),
        60,
        ("drop=0.25@*:in", f"delay={LATE}@*:in"),
    ),
    SuiteCase("acks-dropped", "half of the acknowledgements are lost", (3, 5), 120, ("drop=0.5@*:in#ack",)),
    SuiteCase(
        "acks-delayed", "half of the acknowledgements are 2000 ms late", (4, 3), 120, (f"delay={LATE}@*:in#ack",)
    ),
    SuiteCase("sender-killed", "a sender is killed between DATA and SEQ", (4, 5), 90, kills_sender=True),
    SuiteCase("snapshot", "a snapshot while a quarter is lost", (5, 4), 120, ("drop=0.25@*:in",), snapshot_after=40),
)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case with one strategy."""

    case: SuiteCase
    strategy: str
    outcome: RunOutcome

    @property
    def members(self) -> int:
        return self.outcome.plan.members

    @property
    def verdict(self) -> str:
        return "holds" if self.outcome.holds else "FAILS"

    @property
    def why(self) -> list[str]:
        """The failure and the problems of the run."""
        failure = self.outcome.failure
        return [*([failure] if failure else []), *self.outcome.verdict.problems]

    @property
    def resent(self) -> int:
        return self.outcome.total("frame_resent")


async def run_suite(
    cases: Sequence[SuiteCase],
    strategies: Sequence[str],
    preset: str,
    jobs: int,
    send: Callable[[CaseResult], None] = lambda _: None,
) -> list[CaseResult]:
    """Run `jobs` cases at a time. Results are in the order of the cases."""
    turns = asyncio.Semaphore(jobs)

    async def one(case: SuiteCase, strategy: str) -> CaseResult:
        async with turns:
            result = CaseResult(case, strategy, await perform(case.plan(strategy, preset), keeps_failures=True))
        send(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(case, strategy)) for case in cases for strategy in strategies]
    return [task.result() for task in tasks]


def as_dict(result: CaseResult) -> dict[str, Any]:
    outcome = result.outcome
    return {
        "case": result.case.name,
        "about": result.case.about,
        "strategy": result.strategy,
        "members": result.members,
        "messages": result.case.messages,
        "faults": list(outcome.plan.faults),
        "holds": outcome.holds,
        "same_sequence": outcome.verdict.is_same if outcome.reports else None,
        "accounted": outcome.verdict.is_accounted if outcome.reports else None,
        "seconds": outcome.seconds,
        "view_changes": outcome.view_changes,
        "retransmitted": result.resent,
        "dropped": outcome.total("fault_dropped"),
        "delayed": outcome.total("fault_delayed"),
        "problems": result.why,
        "notes": outcome.verdict.notes,
        "killed": outcome.killed,
        "kept": str(outcome.directory) if outcome.directory is not None else None,
        "results": [asdict(report) for report in outcome.reports.values()],
        "statuses": outcome.statuses,
        "snapshot": outcome.snapshot,
    }
