"""Evaluates a run: stable sequences must be equal, and every accepted message delivered or reported as failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from motet.harness.runs.member_process import RunMemberReport
from motet.harness.runs.sequence import SequenceSpan, first_difference, load, load_numbers
from motet.harness.runs.work import RunPlan, describe_entry, entry_of

SHOWN = 5


@dataclass(slots=True)
class RunVerdict:
    is_same: bool | None = None  # whether stable positions are equal at all members; None for fifo
    # Whether every accepted message was delivered, or reported as failed or rolled back. None if the run ended early.
    is_accounted: bool | None = True
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # permitted events that users should know
    has_gaps: bool = False  # a member lacks a part of the stable log; the other parts were compared

    @property
    def holds(self) -> bool:
        return not self.problems


def evaluate(
    plan: RunPlan, reports: Mapping[int, RunMemberReport], directory: Path, *, is_over: bool, has_journals: bool = False
) -> RunVerdict:
    """`is_over`: the run was not ended early. Otherwise messages that are not delivered may only be late."""
    verdict = RunVerdict(is_accounted=True if is_over else None)
    sequences = {index: load(directory / f"{report.member}.sequence") for index, report in reports.items()}
    if plan.order == "total":
        _compare(reports, sequences, verdict)
    elif is_over:
        _count(plan, reports, verdict)
    for index, report in reports.items():
        _evaluate_contents(report, verdict)
        _account(index, report, load_numbers(directory / f"{report.member}.lost"), sequences, verdict)
        _note(report, verdict, has_journals=has_journals)
    return verdict


def _compare(
    reports: Mapping[int, RunMemberReport], sequences: Mapping[int, Sequence[SequenceSpan]], verdict: RunVerdict
) -> None:
    """Compare each sequence with the longest one; agreement with it is agreement with all others, per position."""
    verdict.is_same = True
    longest = max(sequences, key=lambda index: sum(len(span.entries) for span in sequences[index]), default=0)
    for index in (index for index in sequences if index != longest):
        found = first_difference(sequences[longest], sequences[index])
        if found is None:
            continue
        verdict.is_same = False
        one, other = reports[longest].member, reports[index].member
        verdict.problems.append(
            f"the stable sequences DIFFER: position {found.position} is {describe_entry(found.one)} at {one}, and "
            f"{describe_entry(found.other)} at {other}"
        )


def _count(plan: RunPlan, reports: Mapping[int, RunMemberReport], verdict: RunVerdict) -> None:
    for report in reports.values():
        if report.delivered < plan.messages:
            verdict.problems.append(f"{report.member} delivered {report.delivered} of {plan.messages} messages")


def _evaluate_contents(report: RunMemberReport, verdict: RunVerdict) -> None:
    if report.damaged:
        verdict.problems.append(f"{report.member} delivered {report.damaged} messages that are not what was sent")
    if report.repeated:
        verdict.problems.append(f"{report.repeated} messages of {report.member} stand more than once in its log")


def _account(
    index: int,
    report: RunMemberReport,
    missing: npt.NDArray[np.uint64],
    sequences: Mapping[int, Sequence[SequenceSpan]],
    verdict: RunVerdict,
) -> None:
    """Account for the messages that a member accepted. If it missed a part of the log, another member may hold them."""
    held = [span.entries for other, spans in sequences.items() if other != index for span in spans]
    is_held = np.isin(missing | np.uint64(entry_of(index, 0)), np.concatenate(held)) if held else np.zeros_like(missing)
    lost = missing[is_held == 0].tolist()
    if not lost:
        return
    if verdict.is_accounted is None:
        verdict.notes.append(f"{len(lost)} messages that {report.member} accepted were not delivered yet")
        return
    verdict.is_accounted = False
    shown = ", ".join(map(str, lost[:SHOWN])) + (", ..." if len(lost) > SHOWN else "")
    verdict.problems.append(
        f"{len(lost)} messages that {report.member} accepted were neither delivered nor reported as failed: {shown}"
    )


def _note(report: RunMemberReport, verdict: RunVerdict, *, has_journals: bool) -> None:
    name = report.member
    if report.rolled_back:
        verdict.notes.append(
            f"{name} was cut off from the primary component: {report.rolled_back} messages that it had delivered and "
            f"that were not stable were rolled back"
        )
    for first, last in report.gaps:
        verdict.has_gaps = True
        remedy = "it had not fetched them yet" if has_journals else "with a journal (--out) it fetches them"
        text = f"{name} missed positions {first} to {last} while it was not in the primary view; {remedy}"
        is_late = has_journals and verdict.is_accounted is not None
        (verdict.problems if is_late else verdict.notes).append(text)
    if report.failed_sends:
        verdict.notes.append(f"{report.failed_sends} sends of {name} were reported as failed: {report.failures[0]}")
    if report.position > report.stable:
        verdict.notes.append(
            f"{name} delivered up to {report.position}, of which {report.stable} are stable; the rest is not compared, "
            f"for it may still be rolled back"
        )
