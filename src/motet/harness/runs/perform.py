"""From a plan to its outcome: start the members, let them work, wait until all is stable, judge. It always ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.harness.runs.child import MemberReport
from motet.harness.runs.judge import RunVerdict, judge
from motet.harness.runs.party import DeadlineError, Party, Player, RunFailedError, Word
from motet.harness.runs.sequence import holds, load
from motet.harness.runs.snapshots import is_one_cut
from motet.harness.runs.work import Plan, describe_entry, entry_of, name_of

REPORT_S = 15.0
HELD_S = 15.0
EXTRA = 5  # messages that each survivor sends after the sender was killed
NO_ACKS = "drop=1.0@*:in#ack"
Watch = Callable[[list[Word]], None]


@dataclass(slots=True)
class Outcome:
    plan: Plan
    reports: dict[int, MemberReport] = field(default_factory=dict)
    standings: dict[int, Word] = field(default_factory=dict)  # where each member stood when it was last heard
    verdict: RunVerdict = field(default_factory=RunVerdict)
    failure: str = ""  # why the run did not come to its end
    said: dict[int, list[str]] = field(default_factory=dict)  # what members wrote to their error streams
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
    plan: Plan, *, journals: Path | None = None, keeps_failures: bool = False, watch: Watch = lambda _: None
) -> Outcome:
    """`keeps_failures`: journals are written in any case, and stay with the logs when the run does not hold."""
    outcome, began = Outcome(plan), time.monotonic()
    async with Party(plan, journals, keeps_journals=keeps_failures) as party:
        try:
            await _Performance(party, outcome, watch).play()
        except RunFailedError as error:
            outcome.failure = str(error)
        outcome.seconds = round(time.monotonic() - began, 2)
        await _conclude(party, outcome)
        if keeps_failures and not outcome.holds:
            party.keeps, outcome.directory = True, party.directory
    return outcome


class _Performance:
    def __init__(self, party: Party, outcome: Outcome, watch: Watch) -> None:
        self._party = party
        self._plan = party.plan
        self._outcome = outcome
        self._watch = watch
        self._has_asked = False  # for a snapshot
        self._extra = dict.fromkeys(range(party.plan.members), 0)  # messages beyond its share, by member

    async def play(self) -> None:
        party, plan = self._party, self._plan
        await party.gather()
        await party.inject(party.players, *plan.faults)
        try:
            async with asyncio.timeout(plan.deadline_s):
                party.tell(party.players, do="go")
                if plan.kills_sender:
                    await self._kill_sender()
                await party.until(self._is_over, None, "everything to be stable at all members")
        except TimeoutError:
            raise DeadlineError(f"the deadline of {plan.deadline_s:.0f} s was reached") from None

    def _is_over(self) -> bool:
        """All that was accepted is delivered or has failed, and what is delivered is stable at every member."""
        alive = self._party.alive
        self._watch([player.standing for player in self._party.players])
        if not self._has_snapshot() or not all(map(self._has_settled, alive)):
            return False
        return len({one.standing["position"] for one in alive}) == 1

    def _has_snapshot(self) -> bool:
        """m0 takes it when it has delivered so many; another one that comes there earlier is asked to take one as well.

        True also while nobody has delivered so many.
        """
        after, standings = self._plan.snapshot_after, [one.standing for one in self._party.alive]
        early = [one for one in self._party.alive if after and one.standing.get("delivered", 0) >= after]
        takers = [at for at in standings if at.get("takes_snapshot")]
        if early and not takers and not self._has_asked:
            self._has_asked = True
            early[0].say(do="snapshot")
        return not early or (bool(takers) and all(at["has_snapshot"] for at in takers))

    def _has_settled(self, player: Player) -> bool:
        at = player.standing
        if not at or not at["has_sent_all"] or not at["is_drained"]:
            return False
        if at["accepted"] < self._plan.share_of(player.index) + self._extra[player.index]:
            return False
        if self._plan.order == "fifo":
            return bool(at["delivered"] >= self._plan.messages)
        return bool(at["taken"] == at["position"] == at["stable"] and at["is_primary"])

    async def _kill_sender(self) -> None:
        """A message of the last sender is at all others, and nobody can agree on it: then its sender is killed."""
        party = self._party
        victim = party.players[self._plan.senders - 1]
        survivors = [player for player in party.players if player is not victim]
        await party.until(self._is_over, None, "the first messages")
        await party.inject(party.players, NO_ACKS)
        victim.say(do="send")
        await party.until(
            lambda: all(one.standing["held_back"] for one in survivors), HELD_S, "the message in all hold-back queues"
        )
        victim.kill()
        self._outcome.killed = victim.index
        await party.inject(survivors, "clear#ack")
        for _ in range(EXTRA):
            party.tell(survivors, do="send")
        self._extra |= {one.index: EXTRA for one in survivors}


async def _conclude(party: Party, outcome: Outcome) -> None:
    """Ask whoever still answers for what it saw."""
    party.tell(party.alive, do="report")
    with contextlib.suppress(RunFailedError):
        have_reported = lambda: all("report" in one.words for one in party.alive)  # noqa: E731
        await party.until(have_reported, REPORT_S, "the reports", minds_ends=False)
    outcome.standings = {one.index: one.standing for one in party.players}
    outcome.said = {one.index: lines for one in party.players if (lines := one.last_lines())}
    outcome.reports = {one.index: MemberReport(**one.words["report"]) for one in party.alive if "report" in one.words}
    outcome.failure = outcome.failure or _silence(party)
    if outcome.reports:
        outcome.verdict = judge(
            party.plan,
            outcome.reports,
            party.directory,
            is_over=not outcome.failure,
            has_journals=party.journals is not None,
        )
    _read_snapshot(party, outcome)
    _note_last_message(party, outcome)
    if party.plan.faults and outcome.reports and not outcome.total("fault_dropped") + outcome.total("fault_delayed"):
        outcome.verdict.notes.append("no datagram was dropped or delayed: there were too few for the faults to strike")


def _note_last_message(party: Party, outcome: Outcome) -> None:
    """What became of the message whose sender was killed; all survivors must do the same with it."""
    if outcome.killed is None or not outcome.reports:
        return
    entry = entry_of(outcome.killed, party.plan.share_of(outcome.killed))
    holders = [
        r.member for r in outcome.reports.values() if holds(load(party.directory / f"{r.member}.sequence"), entry)
    ]
    said = f"{describe_entry(entry)}, which was killed between DATA and SEQ, was delivered by"
    if len(holders) in (0, len(outcome.reports)):
        outcome.verdict.notes.append(f"{said} {'all survivors' if holders else 'none of the survivors'}")
    else:
        outcome.verdict.problems.append(f"{said} {', '.join(holders)} and not by the other survivors")


def _silence(party: Party) -> str:
    """Why a report is missing; empty if none is."""
    if ends := party.ends():
        return "; ".join(ends)
    silent = [one.name for one in party.alive if "report" not in one.words]
    return f"{', '.join(silent)} made no report within {REPORT_S:.0f} s" if silent else ""


def _read_snapshot(party: Party, outcome: Outcome) -> None:
    taken = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(party.directory.glob("*.snapshot"))]
    outcome.snapshot = min(taken, key=_place_of, default=None)
    if party.plan.snapshot_after and not (outcome.snapshot and "error" not in outcome.snapshot):
        why = outcome.snapshot["error"] if outcome.snapshot else f"{name_of(0)} took none before the run ended"
        outcome.verdict.problems.append(f"there is no snapshot: {why}")
    elif outcome.snapshot is not None and not is_one_cut(outcome.snapshot):
        outcome.verdict.problems.append("the snapshot is not one cut: its members do not add up to the same messages")


def _place_of(snapshot: dict[str, Any]) -> tuple[bool, int]:
    """A snapshot that failed comes last; of the others the earliest one is first."""
    return "error" in snapshot, sum(member["position"] for member in snapshot.get("members", ()))
