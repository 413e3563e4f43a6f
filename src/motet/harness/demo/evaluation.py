"""The verdict of the demo: for each promise whether it held, and the figure that shows it.

The evaluation uses neither Spark nor the state of the protocols. It reads the five journals as tables, and the numbers
that the senders wrote into their messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from motet.log.journal.reader import JournalReader
from motet.log.journal.schema import LOG_SCHEMA

HELD, BROKEN, NOT_SHOWN = "held", "NOT HELD", "not shown"

ONE_LOG = "all five hold the same log"
NOTHING_LOST = "every message reported as stable is in it"
ONCE = "nothing is twice or out of its sender's order"
REPAIR = "lost datagrams are repaired"
CRASH = "a crash stops nobody"
RESTART = "a member that comes back has what it missed"
SNAPSHOT = "a snapshot is one consistent cut"
PARTITION = "of two sides one continues, never both"
MERGE = "sides that meet again become one group"
TABLE = "Spark's table has each message exactly once"
AUDIT = "the audit finds no broken guarantee"
PROMISES = (ONE_LOG, NOTHING_LOST, ONCE, REPAIR, CRASH, RESTART, SNAPSHOT, PARTITION, MERGE, TABLE, AUDIT)

OWN = "delivered_at"  # the only column that differs between members
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Promise:
    name: str
    state: str
    figure: str


@dataclass(frozen=True, slots=True)
class DemoFailure:
    """Why the demo ended early."""

    act: str  # its number and title, as in "4. kill -9 ada"
    reason: str
    log: str  # a file, or the directory of all logs


@dataclass(frozen=True, slots=True)
class SenderRecord:
    """What one sender knew of the messages of one incarnation at its last report to the director."""

    name: str
    incarnation: int
    sent: int  # a lower bound if it was killed
    settled_to: int  # messages up to here are settled: stable or failed
    failed: tuple[tuple[int, int], ...]  # ranges that were reported to it as failed
    was_killed: bool = False

    @property
    def reported_failed(self) -> int:
        return sum(last - first + 1 for first, last in self.failed)

    @property
    def safe(self) -> int:
        """How many messages were reported to it as stable. Messages settle in the order of sending."""
        return self.settled_to - sum(last - first + 1 for first, last in self.failed if last <= self.settled_to)

    def may_lack(self, n: int) -> bool:
        is_reported = any(first <= n <= last for first, last in self.failed)
        return is_reported or (self.was_killed and n > self.settled_to)


@dataclass(slots=True)
class DemoVerdict:
    seconds: float = 0.0
    out: str = ""
    report: str | None = None
    failure: DemoFailure | None = None
    _found: dict[str, Promise] = field(default_factory=dict)

    @property
    def promises(self) -> list[Promise]:
        return [self._found.get(name, self._not_found(name)) for name in PROMISES]

    def _not_found(self, name: str) -> Promise:
        if self.failure is not None:
            return Promise(name, NOT_SHOWN, f"the demo ended in act {self.failure.act.partition('.')[0]}")
        return Promise(name, BROKEN, "it was never evaluated")

    @property
    def is_good(self) -> bool:
        """Whether no promise is broken. Promises not shown do not count against it, but an early end does."""
        return self.failure is None and not self.is_broken

    @property
    def is_broken(self) -> bool:
        return any(promise.state == BROKEN for promise in self.promises)

    def add(self, name: str, holds: bool, figure: str) -> None:
        self._found[name] = Promise(name, HELD if holds else BROKEN, figure)

    def not_shown(self, name: str, why: str) -> None:
        self._found[name] = Promise(name, NOT_SHOWN, why)

    def as_dict(self) -> dict[str, Any]:
        head = {"ok": self.is_good, "seconds": round(self.seconds, 1), "out": self.out, "report": self.report}
        head["failure"] = asdict(self.failure) if self.failure is not None else None
        return head | {"promises": [asdict(promise) for promise in self.promises]}


def read_journal(directory: Path) -> pa.Table:
    reader = JournalReader(directory)
    bounds = reader.bounds()
    return pa.Table.from_batches(reader.read(bounds.first, bounds.last), schema=LOG_SCHEMA)


def same_log(journals: Sequence[Path]) -> tuple[bool, str, pa.Table]:
    """Whether all journals hold the same rows, a sentence about it, and the rows of the first one."""
    first = read_journal(journals[0])
    log = first.drop_columns([OWN])
    differing = [path.name for path in journals[1:] if not read_journal(path).drop_columns([OWN]).equals(log)]
    positions = first.column("position").to_pylist()
    is_complete = positions == list(range(1, len(positions) + 1))
    if differing:
        return False, f"the journals of {', '.join(differing)} differ from that of {journals[0].name}", first
    if not is_complete:
        return False, f"positions 1 to {len(positions)} are not all there, once each", first
    return True, f"{len(positions):,} positions, the same message at each in all {len(journals)} journals", first


def numbers_by_sender(log: pa.Table) -> dict[tuple[str, int], list[int]]:
    """The numbers of the messages of each sender, in the order of the log."""
    numbers: dict[tuple[str, int], list[int]] = {}
    for payload in log.column("payload").to_pylist():
        message = json.loads(payload)
        numbers.setdefault((message["from"], message["incarnation"]), []).append(message["n"])
    return numbers


def nothing_lost(records: Sequence[SenderRecord], numbers: dict[tuple[str, int], list[int]]) -> tuple[bool, str]:
    lost = [
        f"{record.name} {n}"
        for record in records
        for n in sorted(set(range(1, record.sent + 1)) - set(numbers.get((record.name, record.incarnation), ())))
        if not record.may_lack(n)
    ]
    if lost:
        return False, f"{len(lost)} are not in the log, and were not reported as failed: {', '.join(lost[:MOST_NAMED])}"
    reported, safe = sum(record.reported_failed for record in records), sum(record.safe for record in records)
    rest = f"; {reported:,} others were reported to their senders as failed" if reported else ""
    return True, f"{safe:,} of {safe:,} messages{rest}"


def once_and_in_order(numbers: dict[tuple[str, int], list[int]]) -> tuple[bool, str]:
    wrong = [
        f"{name} {n} after {before}"
        for (name, _), found in numbers.items()
        for before, n in pairwise(found)
        if n <= before
    ]
    if wrong:
        return False, f"twice or out of order: {', '.join(wrong[:MOST_NAMED])}"
    count = sum(map(len, numbers.values()))
    return (
        True,
        f"{count:,} messages of {len({name for name, _ in numbers})} senders, each once, in the order of sending",
    )
