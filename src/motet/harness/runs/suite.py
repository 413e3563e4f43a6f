"""The tests that the ISIS total order document describes, as named cases on real processes with default settings.

Every case runs with both dissemination strategies. How many members each has is fixed, so that 3, 4 and 5 all occur
with both. Every message is a frame of its own: many messages in one frame would test the order of a few frames only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from motet.harness.runs.perform import Outcome, perform
from motet.harness.runs.work import Plan

STRATEGIES = ("window", "continuous")
# With the start of its processes a case then ends within a minute, whatever happens. The wan preset is made for round
# trips of half a second: it repairs every two seconds, and under loss needs several times as long.
DEADLINES_S = {"local": 50.0, "lan": 50.0, "wan": 180.0}
LATE = "2000ms:0.5"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    about: str
    members: tuple[int, int]  # with the window strategy, and with the continuous one
    messages: int
    faults: tuple[str, ...] = ()  # at every member
    senders: int = 0  # 0: all members
    snapshot_after: int = 0
    kills_sender: bool = False

    def plan(self, strategy: str, preset: str) -> Plan:
        members = self.members[STRATEGIES.index(strategy)]
        return Plan(
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
    Case("one-sender", "one member sends", (3, 4), 150, senders=1),
    Case("several-senders", "all members send at once: ties are broken", (5, 3), 300),
    Case("drop-25", "a quarter of all datagrams is lost", (4, 5), 120, ("drop=0.25@*:in",)),
    # The continuous strategy retransmits every 1.24 s on average, and a try succeeds with one half times one half.
    Case("drop-50", "half of all datagrams are lost", (4, 3), 30, ("drop=0.5@*:in",)),
    Case("delay-half", "half of all datagrams are 2000 ms late", (5, 3), 90, (f"delay={LATE}@*:in",)),
    Case(
        "drop-and-delay",
        "a quarter is lost, half of the rest late",
        (3, 3),
        60,
        ("drop=0.25@*:in", f"delay={LATE}@*:in"),
    ),
    Case("acks-dropped", "half of the acknowledgements are lost", (3, 5), 120, ("drop=0.5@*:in#ack",)),
    Case("acks-delayed", "half of the acknowledgements are 2000 ms late", (4, 3), 120, (f"delay={LATE}@*:in#ack",)),
    Case("sender-killed", "a sender is killed between DATA and SEQ", (4, 5), 90, kills_sender=True),
    Case("snapshot", "a snapshot while a quarter is lost", (5, 4), 120, ("drop=0.25@*:in",), snapshot_after=40),
)


@dataclass(frozen=True, slots=True)
class Performed:
    """One case with one strategy, and what came out."""

    case: Case
    strategy: str
    outcome: Outcome

    @property
    def members(self) -> int:
        return self.outcome.plan.members

    @property
    def verdict(self) -> str:
        return "holds" if self.outcome.holds else "FAILS"

    @property
    def why(self) -> list[str]:
        """What does not hold."""
        failure = self.outcome.failure
        return [*([failure] if failure else []), *self.outcome.verdict.problems]

    @property
    def resent(self) -> int:
        return self.outcome.total("frame_resent")


async def perform_suite(
    cases: Sequence[Case],
    strategies: Sequence[str],
    preset: str,
    jobs: int,
    tell: Callable[[Performed], None] = lambda _: None,
) -> list[Performed]:
    """In the order of the cases, whichever of them end first; `jobs` of them at a time."""
    turns = asyncio.Semaphore(jobs)

    async def one(case: Case, strategy: str) -> Performed:
        async with turns:
            performed = Performed(case, strategy, await perform(case.plan(strategy, preset), keeps_failures=True))
        tell(performed)
        return performed

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(case, strategy)) for case in cases for strategy in strategies]
    return [task.result() for task in tasks]


def as_dict(performed: Performed) -> dict[str, Any]:
    outcome = performed.outcome
    return {
        "case": performed.case.name,
        "about": performed.case.about,
        "strategy": performed.strategy,
        "members": performed.members,
        "messages": performed.case.messages,
        "faults": list(outcome.plan.faults),
        "holds": outcome.holds,
        "same_sequence": outcome.verdict.is_same if outcome.reports else None,
        "accounted": outcome.verdict.is_accounted if outcome.reports else None,
        "seconds": outcome.seconds,
        "view_changes": outcome.view_changes,
        "retransmitted": performed.resent,
        "dropped": outcome.total("fault_dropped"),
        "delayed": outcome.total("fault_delayed"),
        "problems": performed.why,
        "notes": outcome.verdict.notes,
        "killed": outcome.killed,
        "kept": str(outcome.directory) if outcome.directory is not None else None,
        "results": [asdict(report) for report in outcome.reports.values()],
        "standings": outcome.standings,
        "snapshot": outcome.snapshot,
    }
