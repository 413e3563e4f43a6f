"""The acts of the demo: each one performs an action, explains why it matters, and reports what was observed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from motet.harness.demo.display import Display
from motet.harness.demo.evaluation import CRASH, MERGE, PARTITION, REPAIR, RESTART, SNAPSHOT, DemoVerdict, SenderRecord
from motet.harness.demo.plan import LOSS, LOSSY, MAJORITY, MINORITY, NAMES, RATE, SENDERS, VICTIM, DemoPlan
from motet.harness.demo.processes import Processes
from motet.harness.demo.status import DemoError, DemoStatus, MemberLine
from motet.log.journal.reader import JournalReader

REST = tuple(name for name in NAMES if name != VICTIM)
STALLED = next(name for name in MINORITY if name in SENDERS)  # its messages must wait during the partition


@dataclass(slots=True)
class Story:
    plan: DemoPlan
    status: DemoStatus
    processes: Processes
    display: Display
    verdict: DemoVerdict
    records: list[SenderRecord] = field(default_factory=list)
    _number: int = 0
    _ends_at: float = 0.0  # the deadline of the current act, by the monotonic clock
    _spark: asyncio.Task[None] | None = None

    async def play(self) -> None:
        acts: list[Callable[[], Coroutine[None, None, None]]] = [
            self.gather,
            self.start_sending,
            self.lose,
            self.crash,
            self.come_back,
            self.picture,
            self.part,
            self.merge,
            self.end,
        ]
        try:
            for act in acts:
                await self.finish(act)
        finally:
            if self._spark is not None:
                self._spark.cancel()
                await asyncio.gather(self._spark, return_exceptions=True)

    async def finish(self, act: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run one act until it ends or its deadline passes."""
        self._ends_at = time.monotonic() + self.plan.deadline_s
        playing = asyncio.create_task(act())
        try:
            while not playing.done() and (left := self._ends_at - time.monotonic()) > 0:
                await asyncio.wait({playing}, timeout=left)
            if not playing.done():
                raise self._too_late()
            playing.result()
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)

    def _too_late(self) -> DemoError:
        """The error for a missed deadline. It must be made before the act is cancelled, while its waits are known."""
        waits = self.status.waits
        processes = [wait.process for wait in waits if wait.process]
        return DemoError(
            f"it did not finish within {self.plan.deadline_s:g} s, which --deadline sets. It waited until "
            f"{' and until '.join(wait.until for wait in waits) or 'a member had executed its command'}. "
            f"Status of all processes: {self.status.in_words()}.",
            self.plan.log_of(processes[-1]) if processes else None,
        )

    def act(self, title: str, why: str) -> None:
        self._number += 1
        self.status.act = f"{self._number}. {title}"
        self.display.act(self._number, title, why)

    def say(self, text: str) -> None:
        self.display.say(text)

    async def keep_sending(self, share: float) -> None:
        """Let the senders send for a share of the time, which does not count against the deadline."""
        self._ends_at += self.plan.share(share)
        await asyncio.sleep(self.plan.share(share))

    # 1, 2

    async def gather(self) -> None:
        self.act(
            "Five processes become one group",
            "Each member is a process of its own. They find one another over UDP and agree on a view: who is here, and "
            "who coordinates. There is no broker and no server.",
        )
        first, *others = NAMES
        await self.processes.start(first)
        if self.plan.with_spark:
            self._spark = asyncio.create_task(self.processes.start_spark())
        await asyncio.gather(*map(self.processes.start, others))
        took = await self.status.until(lambda: self.status.agree_on(NAMES, primary=True), "all five are in one view")
        self.say(f"View {self.status[first].view} has all five, {took:.1f} s after the last one had started.")
        self.say(f"Their dashboard, while the demo runs: http://{self.processes.places['eve']['admin']}/")

    async def start_sending(self) -> None:
        self.act(
            "Three members send at once, five deliver one order",
            f"{_names(SENDERS)} each multicast {RATE} messages a second. Whoever sends, every member delivers the "
            "same message at the same position of one log, and keeps it in a journal on disk.",
        )
        self.processes.start_sending(SENDERS)
        await self.keep_sending(0.12)
        if self._spark is not None:
            await self._await_spark(self._spark)
        self.say(f"{self.status.position:,} messages are in the log, and all five agree on every position.")

    async def _await_spark(self, starting: asyncio.Task[None]) -> None:
        if self.status.stream.state != "streams":
            self.say("Spark is still starting (a JVM takes a few seconds). The group does not wait for it.")
        await starting
        await self.status.until(lambda: self.status.stream.position > 0, "the Spark query has its first rows", "spark")
        self.say(
            "A Spark streaming query now copies the log into a Parquet table, exactly once. It may read from any "
            f"member, and tries {VICTIM} first."
        )

    # 3

    async def lose(self) -> None:
        self.act(
            f"The network loses {LOSS * 100:.0f} % of everything",
            "From here to the end of act 8 one datagram in ten never arrives, drawn at random. Receivers see the gaps "
            "and ask again; the application notices nothing but some delay.",
        )
        dropped, resent, position = self.status.total("dropped"), self.status.total("resent"), self.status.position
        await self.processes.fault(NAMES, LOSSY)
        await self.keep_sending(0.2)
        await self._everybody_beyond(self.status.position)
        lost, again = self.status.total("dropped") - dropped, self.status.total("resent") - resent
        self.say(
            f"{lost:,} datagrams were lost and {again:,} frames sent again; {self.status.position - position:,} more "
            "messages are in all five logs, without a gap."
        )
        holds = lost > 0 and all(self.status[name].position > position for name in NAMES)
        self.verdict.add(REPAIR, holds, f"{lost:,} datagrams lost in act 3, {again:,} frames sent again")

    # 4

    async def crash(self) -> None:
        self.act(
            f"kill -9 {VICTIM}",
            f"{VICTIM} coordinates the group and sends{self._serves_spark()}. Now its process is killed. "
            "The others must detect this, agree on its last messages, and continue.",
        )
        streamed, killed_at = self.status.stream.position, await self._kill()
        await self.status.until(lambda: self.status.agree_on(REST, primary=True), "the others are in a view without it")
        took, other, position = time.monotonic() - killed_at, self.status[REST[0]], self.status.position
        self.say(f"{took:.1f} s later the other four are in view {other.view}, and {other.members[0]} coordinates.")
        await self.keep_sending(0.12)
        await self.status.until(lambda: self.status.position > position, "the log grows without it")
        grown = self.status.position - position
        self.say(f"The log continues without {VICTIM}: {grown:,} more messages.")
        await self._spark_goes_on(streamed)
        self.verdict.add(CRASH, grown > 0, f"a new view after {took:.1f} s, and {grown:,} more messages without it")

    async def _kill(self) -> float:
        victim = self.status[VICTIM]
        self.records.append(_record_of(victim, was_killed=True))
        pid, killed_at = self.processes.kill(VICTIM), time.monotonic()
        await self.processes.reap(VICTIM)
        self.say(f"Process {pid} is dead. {VICTIM} had sent {victim.figure('sent'):,} messages.")
        return killed_at

    def _serves_spark(self) -> str:
        return ", and is the one that Spark reads from" if self.plan.with_spark else ""

    async def _spark_goes_on(self, streamed: int) -> None:
        if not self.plan.with_spark:
            return
        stream = self.status.stream
        await self.status.until(
            lambda: stream.position > streamed, "the Spark query continues at another member", "spark"
        )
        self.say(
            "Spark's offset means the same at every member, so the query went on at another one, from position "
            f"{streamed:,} to {stream.position:,}."
        )

    # 5

    async def come_back(self) -> None:
        line = self.status[VICTIM]
        self.act(
            f"{VICTIM} comes back with its journal",
            "A new process opens the journal that the killed one left. It recovers the last position from it, and "
            "fetches only the missing positions from the others.",
        )
        had = JournalReader(self.plan.journals / VICTIM).bounds().last
        line.begin_incarnation()
        await self.processes.start(VICTIM)
        await self.status.until(lambda: self.status.agree_on(NAMES, primary=True), f"{VICTIM} is in the view again")
        group = self.status.position
        await self._everybody_beyond(group)
        self.processes.start_sending([VICTIM])
        await self.processes.fault([VICTIM], LOSSY)
        self.say(
            f"Its journal ended at {had:,}; the group was at {group:,}. Now it has the {group - had:,} between them, "
            f"is in view {line.view}, and sends again."
        )
        figure = f"kept {had:,} positions on disk, fetched the next {group - had:,} from the others"
        self.verdict.add(RESTART, line.position >= group > had > 0, figure)
        await self.keep_sending(0.12)

    # 6

    async def picture(self) -> None:
        self.act(
            "A snapshot of all five at one moment",
            "No member stops for it, and yet it is one consistent cut: the state of each member, and the messages that "
            "were in flight at that moment (Chandy and Lamport's algorithm).",
        )
        taken = await self.processes.snapshot("dan")
        if "error" in taken:
            self.verdict.add(SNAPSHOT, False, str(taken["error"]))
            return
        self.say(
            f"{taken['sent']:,} messages sent by the current members, {taken['in_flight']:,} deliveries in flight. For "
            f"each of the {taken['pairs']} pairs of members: sent = received + in flight."
        )
        figure = f"{taken['pairs']} pairs add up, with {taken['in_flight']:,} deliveries in flight"
        wrong = taken["wrong"]
        self.verdict.add(SNAPSHOT, not wrong, f"wrong: {', '.join(wrong[:5])}" if wrong else figure)

    # 7

    async def part(self) -> None:
        self.act(
            "A partition: three members here, two there",
            f"{_names(MAJORITY)} cannot reach {_names(MINORITY)} any more. Only the side with the majority may add to "
            "the log. The other side knows that it has no majority, and its messages wait.",
        )
        reported, parted_at = _record_of(self.status[STALLED]).reported_failed, time.monotonic()
        await self.processes.cut(MINORITY, MAJORITY)
        for name in MINORITY:
            self.status[name].state = "cut off"
        await self.status.until(lambda: self.status.agree_on(MAJORITY, primary=True), "the larger side has a view")
        await self.status.until(lambda: self.status.agree_on(MINORITY, primary=False), "the smaller side has a view")
        took = time.monotonic() - parted_at
        self.say(f"{took:.1f} s later each side has its own view. The larger one is primary, and its log continues.")
        grown, stalled = await self._growth_of_the_sides()
        self._report_sides(grown, stalled, _record_of(self.status[STALLED]).reported_failed - reported)
        figure = f"the log grew by {grown:,} on one, by {stalled:,} on the other"
        self.verdict.add(PARTITION, grown > 0 == stalled, figure)

    async def _growth_of_the_sides(self) -> tuple[int, int]:
        await self.status.fresh(NAMES)
        here, there = self._furthest(MAJORITY), self._furthest(MINORITY)
        await self.keep_sending(0.2)
        await self.status.until(lambda: self._furthest(MAJORITY) > here, "the log of the larger side grows")
        await self.status.fresh(MINORITY)
        return self._furthest(MAJORITY) - here, self._furthest(MINORITY) - there

    def _report_sides(self, grown: int, stalled: int, reported: int) -> None:
        waiting = self.status[STALLED].figure("open")
        self.say(
            f"{grown:,} more messages on the larger side and {stalled:,} on the smaller one, where {waiting:,} of "
            f"{STALLED} wait."
        )
        if reported:
            self.say(
                f"{reported:,} messages of {STALLED} were in flight when the network was cut, and too few members "
                f"agreed on them. {STALLED} was notified and could send them again: no message is lost silently."
            )

    # 8, 9

    async def merge(self) -> None:
        self.act(
            "The network is healed",
            "The two sides find each other by themselves and merge into one view. The smaller side fetches what it "
            "missed, and its waiting messages are sent now.",
        )
        waiting, healed_at = self.status[STALLED].figure("open"), time.monotonic()
        for name in MINORITY:
            await self.processes.fault([name], *(f"clear@{other}" for other in MAJORITY))
        await self.status.until(lambda: self.status.agree_on(NAMES, primary=True), "all five are in one view again")
        took = time.monotonic() - healed_at
        for name in MINORITY:
            self.status[name].state = "sends" if name in SENDERS else "receives"
        await self._everybody_beyond(self.status.position)
        self.say(
            f"{took:.1f} s later all five are in view {self.status[VICTIM].view}, and all logs are equally long again."
        )
        await self.keep_sending(0.12)
        await self.processes.fault(NAMES, "clear")
        figure = f"one view of five after {took:.1f} s; {waiting:,} messages that had waited went into the log"
        self.verdict.add(MERGE, True, figure)

    async def end(self) -> None:
        self.act(
            "The end",
            "The senders stop. Their messages become stable: every member has them, and they are never rolled back. "
            "Then all members leave.",
        )
        self.processes.stop_sending(SENDERS)
        await self.status.fresh(NAMES)
        await self.status.until(self._is_settled, "everything is stable everywhere")
        position = self.status.position
        self.say(f"All five are at position {position:,}, and all of it is stable.")
        self.records += [_record_of(self.status[name]) for name in SENDERS]
        if self.plan.with_spark:
            await self.processes.ask_spark("drained", do="drain", position=position)
            self.status.stream.state = "ended"
            self.say(f"Spark has read to the end, position {position:,}, and its query is stopped.")
        for name in reversed(NAMES):
            await self.processes.leave(name)
        self.say("All five have left.")

    # Conditions that acts wait for

    def _furthest(self, names: tuple[str, ...]) -> int:
        return max(self.status[name].position for name in names)

    async def _everybody_beyond(self, position: int) -> None:
        await self.status.until(
            lambda: all(self.status[name].position >= position for name in NAMES), f"all five are at {position}"
        )

    def _is_settled(self) -> bool:
        lines = list(self.status.lines.values())
        places = {(line.position, line.stable) for line in lines}
        is_level = len(places) == 1 and all(position == stable for position, stable in places)
        return is_level and not any(line.figure("open") for line in lines)


def _record_of(line: MemberLine, *, was_killed: bool = False) -> SenderRecord:
    failed = tuple((first, last) for first, last in line.figures.get("failed", ()))
    return SenderRecord(line.name, line.incarnation, line.figure("sent"), line.figure("settled_to"), failed, was_killed)


def _names(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
