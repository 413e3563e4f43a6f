"""Checks that each snapshot is a consistent cut of the log.

A snapshot records for every member q the position of its state in the log (its cut), and the messages in flight to q.
The log has the delivery order. For each sender p, the ordered messages must satisfy:

- The messages of p up to the cut of q and those in flight from p to q are equally many at every q. One more at q means
  that the state of q is from the future; one less means that a message is lost.
- The messages in flight from p to q are those that q delivered next from p, in that order, byte by byte.
- None of them was sent after p recorded its state, by the clock of p.

Other channels (unicast, plain multicast) leave no trace in journals; the simulator checks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from motet.audit.compare import show_bytes
from motet.audit.guarantees import SNAPSHOTS
from motet.audit.inputs import SNAPSHOT_FILES, MemberInput, UnusableInputError, read_positions
from motet.audit.verdict import AuditFinding

LOOKED_BACK = 100_000  # positions before the cuts that are searched for the latest message of each sender
LOOKED_AHEAD = 400_000  # positions after the cuts that are searched for the messages in flight
COLUMNS = ["kind", "member", "sender", "receiver", "channel", "index", "payload", "position", "stable", "recorded_at"]
HIGHEST = 1 << 62
_NEEDED = ["position", "sender", "sent_at", "key", "payload"]

Cuts = dict[str, dict[str, Any]]  # the record of each member about itself
Messages = dict[tuple[str, str], list[bytes]]  # by sender and receiver


def find_snapshots(directories: Sequence[str]) -> list[Path]:
    found: set[Path] = set()
    for directory in map(Path, directories):
        for pattern in (
            SNAPSHOT_FILES,
            f"*/{SNAPSHOT_FILES}",
            f"../{SNAPSHOT_FILES}",
            f"../snapshots/{SNAPSHOT_FILES}",
        ):
            found |= {path.resolve() for path in directory.glob(pattern)} if directory.is_dir() else set()
    return sorted(found)


def snapshot_findings(paths: Sequence[Path], members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
    for path in paths:
        table = _read(path)
        states = table.filter(pc.equal(table["kind"], "member")).to_pylist()
        cuts = {row["member"]: row for row in states if row["position"] is not None}
        if not cuts:
            continue
        yield from _beyond_itself(cuts, path)
        log = _LogExcerpt.around([cut["position"] for cut in cuts.values()], members)
        if log is not None:
            in_flight = _in_flight(table)
            for sender in sorted(cuts):
                yield from _SenderChecks(sender, cuts, in_flight, log, str(path)).findings()


def _read(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path, columns=COLUMNS)
        table.validate(full=True)  # a file may come from anywhere
    except (pa.ArrowException, OSError) as error:
        raise UnusableInputError(f"{path} cannot be read as a snapshot ({error}); move it away") from error
    return table


def _in_flight(table: pa.Table) -> Messages:
    """By sender and receiver, the oldest first."""
    is_ordered = pc.and_(pc.equal(table["kind"], "in_flight"), pc.equal(table["channel"], "total"))
    found: Messages = {}
    for row in table.filter(is_ordered).sort_by("index").to_pylist():
        found.setdefault((row["sender"], row["receiver"]), []).append(row["payload"])
    return found


def _beyond_itself(cuts: Cuts, path: Path) -> Iterator[AuditFinding]:
    for name, cut in cuts.items():
        if (cut["stable"] or 0) > cut["position"]:
            expected, found = f"nothing stable after its cut at {cut['position']}", f"stable to {cut['stable']}"
            yield _finding(name, cut["position"] + 1, expected, found, str(path))


def _finding(member: str, position: int, expected: str, found: str, path: str) -> AuditFinding:
    return AuditFinding(SNAPSHOTS, member.partition("#")[0], position, "not consistent", expected, found, where=path)


@dataclass(frozen=True, slots=True)
class _LogExcerpt:
    """The rows of the log around the cuts of a snapshot."""

    rows: pa.Table
    senders: NDArray[np.object_]

    @classmethod
    def around(cls, cuts: Sequence[int], members: Sequence[MemberInput]) -> _LogExcerpt | None:
        """From the longest journal that contains all cuts; after the cuts, stable positions only."""
        stable = max((member.stable for member in members), default=0) or HIGHEST
        first, last = max(1, min(cuts) - LOOKED_BACK), max(max(cuts), min(max(cuts) + LOOKED_AHEAD, stable))
        fit = [one for one in members if one.splits and one.first <= min(cuts) + 1 and one.last >= max(cuts)]
        for member in sorted(fit, key=lambda one: -one.last):
            splits = [split for split in member.splits if split.first <= last and split.last >= first]
            batches = [batch for split in splits for batch in read_positions(split, first, last)]
            tables = [pa.Table.from_batches([batch]).select(_NEEDED) for batch in batches]
            plain = [table.set_column(1, "sender", table["sender"].cast(pa.string())) for table in tables]
            if plain:
                rows = pa.concat_tables(plain).sort_by("position").combine_chunks()
                return cls(rows, rows["sender"].to_numpy())
        return None

    def of(self, sender: str) -> pa.Table:
        return self.rows.filter(pa.array(self.senders == sender))


class _SenderChecks:
    """The messages of one sender, in the log and in a snapshot."""

    def __init__(self, sender: str, cuts: Cuts, in_flight: Messages, log: _LogExcerpt, path: str) -> None:
        self._sender = sender
        self._cuts = cuts
        self._path = path
        self._rows = log.of(sender)
        self._positions = self._rows["position"].to_numpy()
        self._in_flight_to = {name: in_flight.get((sender, name), []) for name in cuts}
        # How many of its messages are within each cut, from the beginning of what was read of the log.
        self._within = {name: int((self._positions <= cut["position"]).sum()) for name, cut in cuts.items()}
        self._sent = {name: count + len(self._in_flight_to[name]) for name, count in self._within.items()}

    def findings(self) -> Iterator[AuditFinding]:
        usual = max(self._sent.values(), key=list(self._sent.values()).count)
        for name, count in sorted(self._sent.items()):
            if count != usual:
                yield self._of_count(name, count, usual)
            else:
                yield from self._of_bytes(name)
        yield from self._of_times(usual)

    def _of_count(self, name: str, count: int, usual: int) -> AuditFinding:
        others = ", ".join(sorted(other.partition("#")[0] for other, sent in self._sent.items() if sent == usual))
        other, at = self._first_other(name), min(count, usual)
        at = at if other is None else min(at, self._within[name] + other)
        position = int(self._positions[at]) if at < len(self._positions) else self._cuts[name]["position"] + 1
        due, here = usual - self._within[name], len(self._in_flight_to[name])
        if due < 0:
            expected = f"the first {usual} of what {self._sender} sent, as at {others}"
            return _finding(
                name, position, expected, f"{-due} more within its cut: sent after its sender's", self._path
            )
        expected = f"{due} messages of {self._sender} in flight to it, as the cuts of {others} say"
        return _finding(name, position, expected, f"{here}", self._path)

    def _of_bytes(self, name: str) -> Iterator[AuditFinding]:
        index = self._first_other(name)
        if index is not None:
            at = self._within[name] + index
            expected = f"{show_bytes(_message(self._rows, at))} in flight from {self._sender}: it delivered that next"
            yield _finding(
                name, int(self._positions[at]), expected, show_bytes(self._in_flight_to[name][index]), self._path
            )

    def _first_other(self, name: str) -> int | None:
        """The index of the first message in flight to a member that differs from the one delivered next."""
        first = self._within[name]
        for index, payload in enumerate(self._in_flight_to[name][: max(0, self._rows.num_rows - first)]):
            if payload != _message(self._rows, first + index):
                return index
        return None

    def _of_times(self, sent: int) -> Iterator[AuditFinding]:
        recorded_at = self._cuts[self._sender]["recorded_at"]
        times = self._rows["sent_at"].slice(0, sent)
        if recorded_at is None or not len(times):
            return
        index = pc.index(pc.greater(times, recorded_at), value=True).as_py()
        if index >= 0:
            expected = f"messages of {self._sender} sent until {recorded_at.isoformat()}, its own cut"
            found = f"one sent {times[index].as_py().isoformat()} that counts as sent before"
            yield _finding(self._sender, int(self._positions[index]), expected, found, self._path)


def _message(rows: pa.Table, index: int) -> bytes:
    """The message in its wire format: the key, if any, comes first."""
    key, payload = rows["key"][index].as_py(), rows["payload"][index].as_py() or b""
    return bytes(payload) if key is None else len(key).to_bytes(2, "little") + key + payload
