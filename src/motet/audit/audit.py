"""`motet audit`: checks the guarantees over the journals of all members, by digests first, by rows where they differ.

Tasks receive splits of journals as paths, and each returns a line per range of positions (jobs.py, kernels.py). Spark
SQL joins the ranges of all members. Rows are read again and compared only where digests differ (compare.py). The
metadata of journals (views, stable marks, damage) is small and is checked on the driver (metadata.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from motet.audit.compare import UNSENT, RowDifference
from motet.audit.guarantees import (
    AGREEMENT,
    FIFO,
    INTEGRITY,
    NO_DUPLICATES,
    NO_GAPS,
    SNAPSHOTS,
    STABILITY,
    TOTAL_ORDER,
    VIRTUAL_SYNCHRONY,
)
from motet.audit.inputs import InputSplit, MemberInput, UnusableInputError, boundaries_of, find_members
from motet.audit.jobs import MARGIN, Suspect, compare_ranges, ranges_of
from motet.audit.kernels import stream_fault
from motet.audit.metadata import (
    as_findings,
    journal_findings,
    stable_differences,
    stranger_findings,
    synchrony_findings,
)
from motet.audit.snapshots import find_snapshots, snapshot_findings
from motet.audit.traces import find_traces, retransmissions
from motet.audit.verdict import AuditFinding, AuditVerdict, MemberSummary, sorted_findings
from motet.log.journal.evidence import Facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_RANGES_IN_DETAIL = 16  # per member; the first differing ranges show what happened

# One query each, all run in one job: see _Auditor. The table `ranges` has a line per member and range.
QUESTIONS = {
    "differing": """
        SELECT first, last, collect_list(struct(member, hex(digest) AS digest)) AS held FROM ranges
        WHERE digest IS NOT NULL GROUP BY first, last HAVING count(DISTINCT digest) > 1
    """,
    "faults": """
        SELECT member, path, fault.* FROM (SELECT member, path, explode(faults) AS fault FROM ranges) LIMIT 1000
    """,
    "stream steps": """
        SELECT * FROM (
            SELECT member, path, stream.sender AS sender, stream.first_seqno AS seqno,
                   stream.first_position AS position, lag(stream.last_seqno) OVER earlier AS seqno_before,
                   lag(stream.last_position) OVER earlier AS position_before
            FROM (SELECT member, path, first, explode(streams) AS stream FROM ranges)
            WINDOW earlier AS (PARTITION BY member, stream.view, stream.sender ORDER BY first)
        ) WHERE seqno < seqno_before OR (seqno = seqno_before AND position > position_before + 1) LIMIT 1000
    """,
    "epoch steps": """
        SELECT * FROM (
            SELECT member, path, first AS position, lowest, view, lag(highest) OVER earlier AS before
            FROM (SELECT member, path, first, array_min(transform(streams, s -> s.epoch)) AS lowest,
                         array_max(transform(streams, s -> s.epoch)) AS highest, streams[0].view AS view
                  FROM ranges WHERE digest IS NOT NULL)
            WINDOW earlier AS (PARTITION BY member ORDER BY first)
        ) WHERE lowest < before LIMIT 1000
    """,
    "totals": """
        SELECT member, stream.view AS view, stream.epoch AS epoch, stream.sender AS sender, sum(stream.rows) AS rows,
               min(stream.first_position) AS first, max(stream.last_position) AS last
        FROM (SELECT member, explode(streams) AS stream FROM ranges) GROUP BY ALL
    """,
    "counts": """
        SELECT member, sum(rows) AS rows, count(*) AS ranges FROM ranges WHERE digest IS NOT NULL GROUP BY member
    """,
    "shared": """
        SELECT count(*) AS ranges, coalesce(sum(last - first + 1), 0) AS positions
        FROM (SELECT first, last FROM ranges WHERE digest IS NOT NULL GROUP BY first, last HAVING count(*) > 1)
    """,
    "facts": "SELECT member, path, first, facts FROM ranges WHERE facts IS NOT NULL",
    "errors": "SELECT member, path, error, error_position FROM ranges WHERE error IS NOT NULL",
}
SECONDS = """
    SELECT member, s.second AS second, sum(s.rows) AS rows, sum(s.bytes) AS bytes, collect_list(s.latency) AS latency
    FROM (SELECT member, explode(seconds) AS s FROM ranges) GROUP BY member, s.second
"""


def run_audit(spark: SparkSession, directories: Sequence[str], *, with_times: bool = False) -> AuditVerdict:
    """`with_times` also collects the figures that the report plots."""
    began = time.perf_counter()
    members, unusable = find_members(directories)
    if not any(member.splits for member in members):
        raise UnusableInputError("; ".join(unusable) or f"nothing to audit in {', '.join(directories)}: no rows")
    ranges = ranges_of(spark, members, boundaries_of(members), with_times=with_times).persist()
    try:
        ranges.count()  # Runs all tasks. The queries after it are small, and faster over one partition than shuffled.
        ranges.coalesce(1).createOrReplaceTempView("ranges")
        return _Auditor(spark, members, tuple(unusable), directories, with_times).verdict(began)
    finally:
        spark.catalog.dropTempView("ranges")
        ranges.unpersist()


class _Auditor:
    """Runs the queries over the ranges and combines their results into a verdict."""

    def __init__(
        self,
        spark: SparkSession,
        members: Sequence[MemberInput],
        unusable: tuple[str, ...],
        directories: Sequence[str],
        with_times: bool,
    ) -> None:
        self._snapshots = find_snapshots(directories)
        self._traces = find_traces(directories) if with_times else []
        self._spark = spark
        self._members = members
        self._unusable = unusable
        self._answers = self._ask(QUESTIONS | ({"seconds": SECONDS} if with_times else {}))

    def _ask(self, questions: dict[str, str]) -> dict[str, list[Any]]:
        """Run all queries in one job: their results are short, and a job for each would cost more than the query."""
        asked = [f"SELECT '{name}' AS name, to_json(struct(*)) AS line FROM ({sql})" for name, sql in questions.items()]
        answers: dict[str, list[Any]] = {name: [] for name in questions}
        for row in self._spark.sql(" UNION ALL ".join(asked)).collect():
            answers[row["name"]].append(json.loads(row["line"]))
        return answers

    def verdict(self, began: float) -> AuditVerdict:
        self._learn()
        counts = {row["member"]: row for row in self._answers["counts"]}
        totals = sorted(self._answers["totals"], key=lambda row: (row["member"], row["epoch"], row["sender"]))
        differing = self._differences(totals)
        findings = sorted_findings(
            [
                *journal_findings(self._members),
                *self._read_errors(),
                *self._faults(),
                *stranger_findings(((t["member"], t["view"], t["sender"], t["first"]) for t in totals), self._members),
                *as_findings(differing),
                *stable_differences(differing, self._members),
                *synchrony_findings(self._members, differing),
                *snapshot_findings(self._snapshots, self._members),
            ]
        )
        facts = {"totals": totals, "views": {member.name: member.views for member in self._members}}
        facts |= {"retransmissions": retransmissions(self._traces)}
        facts |= {"seconds": sorted(self._answers.get("seconds", []), key=lambda row: row["second"])}
        return AuditVerdict(
            members=tuple(self._summary(member, counts) for member in self._members),
            findings=findings,
            unusable=self._unusable,
            checked=self._checked(counts, totals),
            rows=sum(row["rows"] for row in counts.values()),
            ranges=sum(row["ranges"] for row in counts.values()),
            seconds=time.perf_counter() - began,
            facts=facts,
        )

    def _learn(self) -> None:
        """Add the metadata of the segments to their members, in the order of the segments."""
        by_name = {member.name: member for member in self._members}
        for row in sorted(self._answers["facts"], key=lambda row: (row["member"], row["first"])):
            by_name[row["member"]].learn(row["path"], Facts.from_json(row["facts"]))

    def _summary(self, member: MemberInput, counts: dict[str, Any]) -> MemberSummary:
        rows = counts[member.name]["rows"] if member.name in counts else 0
        extent = (member.first, member.last, member.stable)
        return MemberSummary(member.name, member.path, *extent, rows, len(member.views), tuple(member.notes))

    def _read_errors(self) -> Iterator[AuditFinding]:
        for row in self._answers["errors"]:
            at, expected = row["error_position"] + 1, "a file that can be read"
            yield AuditFinding(INTEGRITY, row["member"], at, "damaged", expected, row["error"], where=row["path"])

    def _faults(self) -> Iterator[AuditFinding]:
        """Faults in the rows of one member alone: within ranges, and from one range to the next."""
        for row in self._answers["faults"]:
            where = row["path"]
            yield AuditFinding(
                row["check"], row["member"], row["position"], row["kind"], row["expected"], row["found"], where=where
            )
        for row in self._answers["stream steps"]:
            before = (row["seqno_before"], row["position_before"])
            fault = stream_fault(row["sender"], *before, row["seqno"], row["position"])
            yield AuditFinding(
                fault.check, row["member"], fault.position, fault.kind, fault.expected, fault.found, where=row["path"]
            )
        for row in self._answers["epoch steps"]:
            expected = f"a view of epoch {row['before']} or later"
            yield AuditFinding(
                TOTAL_ORDER, row["member"], row["position"], "views go back", expected, row["view"], where=row["path"]
            )

    def _differences(self, totals: Sequence[Any]) -> list[RowDifference]:
        suspects = list(self._suspects(sorted(self._answers["differing"], key=lambda row: row["first"])))
        owners = owners_of(self._members, {total["sender"] for total in totals})
        return without_echoes(compare_ranges(self._spark, suspects, owners)) if suspects else []

    def _suspects(self, rows: Sequence[Any]) -> Iterator[Suspect]:
        """The first differing ranges of each member. After a shift every range differs, which adds no information."""
        looked: dict[str, int] = {}
        for row in rows:
            held = [(one["member"], one["digest"]) for one in row["held"]]
            common = max((digest for _, digest in held), key=[digest for _, digest in held].count)
            odd = {member for member, digest in held if digest != common}
            if any(looked.get(member, 0) < MOST_RANGES_IN_DETAIL for member in odd):
                looked |= {member: looked.get(member, 0) + 1 for member in odd}
                yield self._suspect({member for member, _ in held}, row["first"], row["last"])

    def _suspect(self, holders: set[str], first: int, last: int) -> Suspect:
        members = [member for member in self._members if member.name in holders]
        low = max(first - MARGIN, *(member.first for member in members))
        high = min(last + MARGIN, *(member.last for member in members))
        low, high = min(low, first), max(high, last)
        splits = tuple((member.name, _overlapping(member.splits, low, high)) for member in members)
        return Suspect(first, last, low, high, splits)

    def _checked(self, counts: dict[str, Any], totals: Sequence[Any]) -> dict[str, str]:
        shared = self._answers["shared"][0]
        rows = sum(row["rows"] for row in counts.values())
        own = f"{rows} rows"
        together = f"{shared['positions']} positions at more than one member, {shared['ranges']} ranges"
        looked = {NO_DUPLICATES: own, FIFO: f"{len(totals)} streams of senders", NO_GAPS: own}
        if shared["ranges"]:
            looked |= {TOTAL_ORDER: together, AGREEMENT: together}
        looked |= self._confirmed_by_senders(totals)
        steps = sum(max(0, len(member.views) - 1) for member in self._members)
        if steps and len(self._members) > 1:
            looked[VIRTUAL_SYNCHRONY] = f"{steps} changes of view"
        marks = sum(len(member.facts.marks) for member in self._members)
        looked |= {SNAPSHOTS: f"{len(self._snapshots)} snapshots"} if self._snapshots else {}
        return looked | ({STABILITY: f"{marks} marks"} if marks else {})

    def _confirmed_by_senders(self, totals: Sequence[Any]) -> dict[str, str]:
        """How many of the messages are in the journal of the member that sent them."""
        owners = owners_of(self._members, {total["sender"] for total in totals})
        most: dict[tuple[str, str], int] = {}
        own: dict[tuple[str, str], int] = {}
        for total in totals:
            stream = (total["view"], total["sender"])
            most[stream] = max(most.get(stream, 0), total["rows"])
            if owners.get(total["sender"]) == total["member"]:
                own[stream] = total["rows"]
        if not own:
            return {}
        return {INTEGRITY: f"senders' own journals confirm {sum(own.values())} of {sum(most.values())} messages"}


def _overlapping(splits: Sequence[InputSplit], first: int, last: int) -> tuple[InputSplit, ...]:
    return tuple(split for split in splits if split.first <= last and split.last >= first)


def owners_of(members: Sequence[MemberInput], senders: set[str]) -> dict[str, str]:
    """The member of each sender: by the owner recorded in its journal, else by its name."""
    by_owner = {sender: member.name for member in members for sender in member.owners}
    names = {member.name for member in members}
    by_name = {sender: sender.partition("#")[0] for sender in senders if sender.partition("#")[0] in names}
    return by_name | by_owner


def without_echoes(differing: Sequence[RowDifference]) -> list[RowDifference]:
    """Report a shift of rows once: every later position differs as well."""
    reported: list[RowDifference] = []
    shifted: dict[str, int] = {}
    for one in sorted(differing, key=lambda difference: difference.position):
        members = (one.member, *one.reference) if one.kind == UNSENT else (one.member,)
        if all(shifted.get(name, one.position) >= one.position for name in members):
            reported.append(one)
        if one.is_shifted:
            shifted.setdefault(one.member, one.position)
    return reported
