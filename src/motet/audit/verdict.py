"""The result of an audit: a state per guarantee, and findings with member, position, expected and found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from motet.audit.compare import Neighbour
from motet.audit.guarantees import CHECKS, MEANING

OK, VIOLATED, UNUSABLE = 0, 1, 2  # exit codes
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class AuditFinding:
    check: str
    member: str
    position: int
    kind: str
    expected: str
    found: str
    neighbours: tuple[Neighbour, ...] = ()
    reference: tuple[str, ...] = ()  # members that have the expected content
    where: str = ""  # the file, or the view change

    @property
    def text(self) -> str:
        at = f" at position {self.position}" if self.position else ""
        return f"{self.check} violated by {self.member}{at}: {self.kind}"


@dataclass(frozen=True, slots=True)
class MemberSummary:
    name: str
    path: str
    first: int
    last: int
    stable: int
    rows: int
    views: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    members: tuple[MemberSummary, ...]
    findings: tuple[AuditFinding, ...]
    unusable: tuple[str, ...]  # errors of inputs that could not be read
    checked: dict[str, str]  # check -> how much was checked; absent if there was nothing to check
    rows: int
    ranges: int
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict, repr=False)  # for the report

    @property
    def exit_code(self) -> int:
        if self.findings:
            return VIOLATED
        return UNUSABLE if self.unusable else OK

    def of(self, check: str) -> list[AuditFinding]:
        return [finding for finding in self.findings if finding.check == check]

    def state_of(self, check: str) -> str:
        if self.of(check):
            return "violated"
        return "ok" if check in self.checked else "nothing to check"

    def to_json(self) -> str:
        checks = {check: {"state": self.state_of(check), "on": self.checked.get(check, "")} for check in CHECKS}
        named = ("ok", "violated", "unusable")[self.exit_code]
        shown = {
            "verdict": named,
            "checks": checks,
            "findings": [asdict(finding) for finding in self.findings],
            "members": [asdict(member) for member in self.members],
            "unusable": list(self.unusable),
        }
        return json.dumps(shown | {"rows": self.rows, "ranges": self.ranges, "seconds": round(self.seconds, 3)})


def sorted_findings(findings: Iterable[AuditFinding]) -> tuple[AuditFinding, ...]:
    """Sorted by position and check, without duplicates; neighbours are shown only once per member and position."""
    unique = {(finding.check, finding.member, finding.position): finding for finding in reversed(list(findings))}
    shown: set[tuple[str, int]] = set()
    kept = []
    for one in sorted(unique.values(), key=lambda one: (one.position, CHECKS.index(one.check), one.member)):
        kept.append(replace(one, neighbours=()) if (one.member, one.position) in shown else one)
        if one.neighbours:
            shown.add((one.member, one.position))
    return tuple(kept)


def to_text(verdict: AuditVerdict) -> str:
    """The verdict as text: a line per member, a line per guarantee, then the findings."""
    return "\n".join(
        [*_member_lines(verdict), "", *_check_lines(verdict), *_finding_lines(verdict), "", _last_line(verdict)]
    )


def _member_lines(verdict: AuditVerdict) -> list[str]:
    lines = []
    for member in verdict.members:
        extent = f"positions {member.first} to {member.last}, stable to {member.stable}" if member.rows else "empty"
        lines.append(f"  {member.name:<16} {extent}; {member.rows} rows, {member.views} views  ({member.path})")
        lines += [f"  {'':<16} note: {note}" for note in member.notes]
    return lines + [f"  UNUSABLE: {text}" for text in verdict.unusable]


def _check_lines(verdict: AuditVerdict) -> list[str]:
    marks = {"ok": "ok", "violated": "VIOLATED", "nothing to check": "-"}
    return [
        f"  {marks[verdict.state_of(check)]:<9} {check:<18} {MEANING[check]}"
        + (f" ({verdict.checked[check]})" if check in verdict.checked else "")
        for check in CHECKS
    ]


def _finding_lines(verdict: AuditVerdict) -> list[str]:
    lines = []
    for finding in verdict.findings[:MOST_SHOWN]:
        lines += ["", f"  {finding.text}" + (f"  [{finding.where}]" if finding.where else "")]
        lines += [f"    expected  {finding.expected}" + _who(finding.reference), f"    found     {finding.found}"]
        lines += _side_by_side(finding)
    more = len(verdict.findings) - MOST_SHOWN
    return lines + ([f"  ... and {more} more, all in --json"] if more > 0 else [])


def _who(reference: Sequence[str]) -> str:
    return f"   (as at {', '.join(reference)})" if reference else ""


def _side_by_side(finding: AuditFinding) -> list[str]:
    lines = []
    for neighbour in finding.neighbours:
        mark = " " if neighbour.expected == neighbour.found else "!"
        lines.append(f"    {mark} {neighbour.position:>12}  expected {neighbour.expected}")
        if mark == "!":
            lines.append(f"    {mark} {'':>12}  found    {neighbour.found}")
    return lines


def _last_line(verdict: AuditVerdict) -> str:
    size = f"{verdict.rows} rows of {len(verdict.members)} members in {verdict.seconds:.1f} s"
    if verdict.findings:
        return f"VIOLATED: {verdict.findings[0].text}. {size}"
    if verdict.unusable:
        return f"UNUSABLE INPUT: {'; '.join(verdict.unusable)}. What could be read is consistent: {size}"
    return f"OK: every guarantee that could be checked holds. {size}"
