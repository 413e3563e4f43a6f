"""The audit of a live group: checks new stable positions every few seconds, and raises an alarm at the first violation.

A streaming query over all journals triggers the rounds. Each round checks the journal of every member up to its own
stable position, in ranges of a fixed size. The digests of a range are kept until all members have passed it, and
compared as they arrive. The last frame of each sender is kept, too, so that FIFO order is checked across rounds. This
state is small and is saved beside the checkpoint of the query after each round, so a restarted audit resumes.

The stable positions after the last complete range are checked as well, as far as all members have them, so that an
alarm does not wait for a complete range. Nothing of that is kept: they are checked again with the rest of their range.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from motet.audit.digests import KEY_BYTES
from motet.audit.guarantees import INTEGRITY, STABILITY
from motet.audit.inputs import RANGE, InputSplit, MemberInput, UnusableInputError, find_members, is_journal
from motet.audit.jobs import Suspect, compare_ranges, ranges_of
from motet.audit.kernels import stream_fault
from motet.audit.metadata import as_findings, stable_differences, stranger_findings, synchrony_findings
from motet.audit.verdict import AuditFinding, sorted_findings
from motet.errors import MotetError
from motet.log.journal.evidence import ViewFact
from motet.log.journal.reader import JournalReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RANGE_SIZE = 1 << 12  # positions; smaller than in a full audit, so that an alarm comes soon
MOST_RANGES_PER_ROUND = 4096  # per member; after a long pause the rest waits for the next round
MOST_KEPT = 1 << 16  # ranges that not all members have passed; bounds memory if a member never returns

Alarm = Callable[[Sequence[AuditFinding]], None]


@dataclass(frozen=True, slots=True)
class AuditRound:
    """The progress of the audit after one round."""

    stable: dict[str, int]  # the stable position of each journal
    checked: int  # the last position that was compared between members, or checked if there is only one
    notes: tuple[str, ...]  # why a journal could not be read in this round


class LiveAudit:
    def __init__(
        self,
        spark: SparkSession,
        directories: Sequence[str],
        state: Path,
        alarm: Alarm,
        notify: Callable[[AuditRound], None] = lambda audit_round: None,
    ) -> None:
        """`alarm` is called once, with the first violations; `notify` after each round without one."""
        members, self.unusable = find_members(directories)
        self._members = [member for member in members if is_journal(member)]
        if not self._members:
            raise UnusableInputError("; ".join(self.unusable) or "no journals to follow")
        self._notify = notify
        self._is_stopping = False
        self._spark = spark
        self._state_path = state / "live-audit.json"
        self._checkpoint = state / "checkpoint"
        self._state = _State.load(self._state_path)
        self._alarm = alarm
        self.findings: tuple[AuditFinding, ...] = ()

    def start(self, seconds: float) -> StreamingQuery:
        path = ",".join(member.path for member in self._members)
        rows = self._spark.readStream.format("motet").option("path", path).load()
        writer = rows.writeStream.queryName("live-audit").foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(processingTime=f"{seconds} seconds").start()

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        if not self._is_stopping:
            self.run_round()

    def stop(self) -> None:
        """Begin no further round."""
        self._is_stopping = True

    def run_round(self) -> tuple[AuditFinding, ...]:
        """Check the new positions. After the first violation nothing more is checked."""
        if self.findings:
            return self.findings
        members = [self._now(member) for member in self._members]
        found = [*self._rolled_back(members), *self._ranges(members), *synchrony_findings(members, [])]
        reached, more = self._partial_range(members)
        self.findings = sorted_findings([*found, *more])
        self._state.save(self._state_path)
        if self.findings:
            self._alarm(self.findings)
        else:
            stable = {member.name: self._state.member(member.name).get("stable_now", 0) for member in members}
            self._notify(AuditRound(stable, reached, tuple(note for member in members for note in member.notes)))
        return self.findings

    def _now(self, member: MemberInput) -> MemberInput:
        """The member with the views that it has installed so far, and its new complete ranges as one split."""
        now = MemberInput(member.name, member.path, owners=member.owners)
        try:
            reader = JournalReader(member.path)
            bounds = reader.bounds()
            now.facts.views = [_view_fact(one) for one in reader.views()]
        except (MotetError, OSError) as error:
            now.notes.append(str(error))
            return now
        known = self._state.member(member.name)
        first = max(known["next"], -(-(bounds.first - 1) // RANGE_SIZE) * RANGE_SIZE + 1)
        count = min((bounds.stable - first + 1) // RANGE_SIZE, MOST_RANGES_PER_ROUND)
        if count > 0:
            now.splits = [InputSplit(member.name, member.path, first, first + count * RANGE_SIZE - 1, RANGE)]
        known["first_now"], known["stable_now"] = bounds.first, bounds.stable
        return now

    def _rolled_back(self, members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
        for member in members:
            known = self._state.member(member.name)
            now, before = known.get("stable_now", 0), known["stable"]
            if now < before:
                expected, found = f"stable to {before}, as in an earlier round", f"stable to {now}"
                yield AuditFinding(STABILITY, member.name, now + 1, "rolled back", expected, found)
            known["stable"] = max(before, now)

    def _ranges(self, members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
        splits = [split for member in members for split in member.splits]
        if not splits:
            return
        boundaries = range(min(split.first for split in splits), max(split.last for split in splits) + 2, RANGE_SIZE)
        rows = ranges_of(self._spark, members, boundaries, key=self._state.key).collect()
        for row in sorted(rows, key=lambda row: (row["first"], row["member"])):
            yield from self._of_range(row, members)
        yield from self._compare(members)

    def _partial_range(self, members: Sequence[MemberInput]) -> tuple[int, list[AuditFinding]]:
        """Check the positions after the last complete range, as far as all members that reached it have them."""
        known = {member.name: self._state.member(member.name) for member in members if not member.notes}
        whole = max((one["stable_now"] // RANGE_SIZE * RANGE_SIZE for one in known.values()), default=0)
        near = {name for name, one in known.items() if one["stable_now"] > whole and one["first_now"] <= whole + 1}
        last = min((known[name]["stable_now"] for name in near), default=whole)
        if not near:
            return last, []
        partial = [
            MemberInput(
                one.name, one.path, [InputSplit(one.name, one.path, whole + 1, last, RANGE)], one.owners, one.facts
            )
            for one in members
            if one.name in near
        ]
        rows = ranges_of(self._spark, partial, [whole + 1, last + 1], key=self._state.key).collect()
        found = [
            finding for row in rows for finding in self._of_rows(row, dict(known[row["member"]]["streams"]), partial)
        ]
        held = {row["member"]: row["digest"] for row in rows if row["digest"] is not None}
        if len(set(held.values())) > 1:
            found += self._differing(Suspect(whole + 1, last, whole + 1, last, _splits_of(partial)), partial)
        return last, found

    def _of_range(self, row: Any, members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
        known = self._state.member(row["member"])
        yield from self._of_rows(row, known["streams"], members)
        if row["error"] is None:
            known["next"] = row["last"] + 1
            self._state.ranges.setdefault(row["first"], {})[row["member"]] = row["digest"].hex()

    def _of_rows(
        self, row: Any, streams: dict[str, list[int]], members: Sequence[MemberInput]
    ) -> Iterator[AuditFinding]:
        """Faults in the rows of one member alone. `streams` has the last frame of each of its senders so far."""
        if row["error"] is not None:
            at = row["error_position"] + 1
            yield AuditFinding(INTEGRITY, row["member"], at, "damaged", "a journal that can be read", row["error"])
            return
        for fault in row["faults"]:
            fields = (fault["position"], fault["kind"], fault["expected"], fault["found"])
            yield AuditFinding(fault["check"], row["member"], *fields)
        for stream in row["streams"]:
            yield from self._of_stream(row["member"], streams, stream)
            place = (row["member"], stream["view"], stream["sender"], stream["first_position"])
            yield from stranger_findings([place], members)

    def _of_stream(self, member: str, streams: dict[str, list[int]], stream: Any) -> Iterator[AuditFinding]:
        name = f"{stream['view']} {stream['sender']}"
        before = streams.get(name)
        if before is not None:
            seqno, position = before
            here = (stream["first_seqno"], stream["first_position"])
            if here[0] < seqno or (here[0] == seqno and here[1] > position + 1):
                fault = stream_fault(stream["sender"], seqno, position, *here)
                yield AuditFinding(fault.check, member, fault.position, fault.kind, fault.expected, fault.found)
        streams[name] = [stream["last_seqno"], stream["last_position"]]

    def _compare(self, members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
        suspects = []
        for first, held in sorted(self._state.ranges.items()):
            if len(set(held.values())) > 1:
                last = first + RANGE_SIZE - 1
                splits = [
                    (m.name, (InputSplit(m.name, m.path, first, last, RANGE),)) for m in members if m.name in held
                ]
                suspects.append(Suspect(first, last, first, last, tuple(splits)))
        self._state.forget(self._members)
        if suspects:
            yield from self._differing(suspects[0], members)

    def _differing(self, suspect: Suspect, members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
        owners = {sender: member.name for member in members for sender in member.owners}
        differing = compare_ranges(self._spark, [suspect], owners)
        yield from as_findings(differing)
        yield from stable_differences(differing, members)
        yield from synchrony_findings(members, differing)


def _splits_of(members: Sequence[MemberInput]) -> tuple[tuple[str, tuple[InputSplit, ...]], ...]:
    return tuple((member.name, tuple(member.splits)) for member in members)


class _State:
    """What is known of each member, and the digests of ranges that not all members have passed."""

    def __init__(self, members: dict[str, dict[str, Any]], ranges: dict[int, dict[str, str]], key: bytes) -> None:
        self.key = key  # the key of the digests
        self._by_name = members
        self.ranges = ranges

    @classmethod
    def load(cls, path: Path) -> _State:
        if not path.exists():
            return cls({}, {}, token_bytes(KEY_BYTES))
        fields = json.loads(path.read_text())
        ranges = {int(first): held for first, held in fields["ranges"].items()}
        return cls(fields["members"], ranges, bytes.fromhex(fields["key"]))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"key": self.key.hex(), "members": self._by_name, "ranges": self.ranges}))
        fresh.replace(path)

    def member(self, name: str) -> dict[str, Any]:
        return self._by_name.setdefault(name, {"next": 1, "stable": 0, "streams": {}})

    def forget(self, members: Sequence[MemberInput]) -> None:
        """Drop ranges that all members have passed with equal digests; and the oldest ones, if there are too many."""
        passed = min(self.member(member.name)["next"] for member in members)
        alike = {first for first, held in self.ranges.items() if len(set(held.values())) == 1}
        gone = {first for first in alike if first + RANGE_SIZE <= passed}
        gone |= set(sorted(alike)[: max(0, len(self.ranges) - MOST_KEPT)])
        self.ranges = {first: held for first, held in self.ranges.items() if first not in gone}


def _view_fact(record: Any) -> ViewFact:
    view = record.view
    names = tuple(f"{who.name}#{who.incarnation:016x}" for who in view.members)
    text = f"{view.id.number}@{view.id.creator:016x}"
    return ViewFact(text, record.epoch.number, record.position, names, record.at // 1000, view.is_primary)
