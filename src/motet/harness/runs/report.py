"""The report of a run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from motet.harness.runs.member_process import RunMemberReport
from motet.harness.runs.perform import RunOutcome
from motet.harness.runs.snapshots import snapshot_lines
from motet.harness.runs.work import name_of

# A member cannot tell what was lost on the way to it before its sender repeats or announces it.
UNKNOWN_WAIT = "nothing that it knows of (others may wait for it: it does not know which datagrams to it were lost)"
SUSTAINED_S = 1.0  # a rate over a shorter time is not meaningful


def rate_of(report: RunMemberReport) -> float | None:
    """Messages per second; None if the deliveries took less than SUSTAINED_S."""
    return report.delivered / report.seconds if report.seconds >= SUSTAINED_S else None


def summary(outcome: RunOutcome) -> dict[str, Any]:
    plan, verdict = outcome.plan, outcome.verdict
    rates = [rate_of(report) for report in outcome.reports.values()]
    sustained = [rate for rate in rates if rate is not None]
    return {
        "members": plan.members,
        "senders": plan.senders,
        "messages": plan.messages,
        "size": plan.size,
        "order": plan.order,
        "settings": list(plan.settings),
        "faults": list(plan.faults),
        "deadline_s": round(plan.deadline_s, 1),
        "seconds": outcome.seconds,
        "holds": outcome.holds,
        "same_sequence": verdict.is_same if outcome.reports else None,
        "accounted": verdict.is_accounted if outcome.reports else None,
        "failure": outcome.failure or None,
        "problems": verdict.problems,
        "notes": verdict.notes,
        "messages_per_s": round(min(sustained)) if sustained and len(sustained) == len(rates) else None,
        "results": [_result(report) for report in outcome.reports.values()],
        "statuses": {name_of(index): status for index, status in outcome.statuses.items()},
        "stderr": {name_of(index): lines for index, lines in outcome.stderr.items()},
        "snapshot": outcome.snapshot,
    }


def _result(report: RunMemberReport) -> dict[str, Any]:
    rate = rate_of(report)
    return asdict(report) | {"messages_per_s": None if rate is None else round(rate)}


# For people, in 80 columns


def print_outcome(outcome: RunOutcome, console: Console) -> None:
    if outcome.reports:
        console.print(_sequences(outcome))
        console.print()
        console.print(_figures(outcome))
        _print_remarks(outcome, console)
    if outcome.snapshot is not None and "error" not in outcome.snapshot:
        console.print()
        for line in snapshot_lines(outcome.snapshot):
            _say(console, line)
    console.print()
    _print_verdict(outcome, console)
    if outcome.failure:
        print_statuses(outcome, console)
    _print_stderr(outcome, console)


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 1))
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    return table


def _sequences(outcome: RunOutcome) -> Table:
    table = _table("member", "delivered", "stable", "rolled back", "failed", "views", "digest")
    for report in outcome.reports.values():
        figures = (report.delivered, report.stable, report.rolled_back, report.failed_sends, report.views)
        table.add_row(report.member, *(f"{figure:,}" for figure in figures), report.digest or "-")
    return table


def _figures(outcome: RunOutcome) -> Table:
    table = _table("member", "per s", "MB/s", "median", "p99", "CPU s", "MB", "frames", "resent")
    for report in outcome.reports.values():
        rate = rate_of(report)
        latency = [report.latency_us.get(name) for name in ("median_us", "p99_us")]
        table.add_row(
            report.member,
            "-" if rate is None else brief(rate),
            "-" if rate is None else f"{rate * outcome.plan.size / 1e6:,.1f}",
            *("-" if value is None else brief_time(value) for value in latency),
            f"{report.cpu_s:.2f}",
            f"{report.rss_mb:.0f}",
            brief(report.counters.get("frame_sent", 0)),
            brief(report.counters.get("frame_resent", 0)),
        )
    return table


def _print_remarks(outcome: RunOutcome, console: Console) -> None:
    remark = "median and p99 are from sending to delivery; MB is memory at the end"
    if any(rate_of(report) is None for report in outcome.reports.values()):
        remark += "; no rate where the deliveries took less than a second: send more messages for one"
    console.print(remark, style="dim", soft_wrap=True)


def _print_verdict(outcome: RunOutcome, console: Console) -> None:
    verdict = outcome.verdict
    if outcome.failure:
        _say(console, f"The run was not completed: {outcome.failure}.", "red")
    for problem in verdict.problems:
        _say(console, problem + ".", "red")
    for note in verdict.notes:
        _say(console, f"Note: {note}.")
    if outcome.reports and verdict.is_same and not outcome.failure:
        partial = "Wherever members have a stable position, it is the same message; not all have every position."
        _say(
            console, partial if verdict.has_gaps else "All members have the same stable sequence, by content.", "green"
        )
    if outcome.holds:
        _say(console, f"Everything that was accepted was {_fate(outcome)}.", "green")


def _fate(outcome: RunOutcome) -> str:
    had_failures = any(report.failed_sends or report.rolled_back for report in outcome.reports.values())
    return "delivered, or reported as failed or rolled back" if had_failures else "delivered"


def print_statuses(outcome: RunOutcome, console: Console) -> None:
    """Print the last status of each member."""
    for index, status in outcome.statuses.items():
        _say(console, f"{name_of(index)}: {'; '.join(_status(status))}")


def _status(status: dict[str, Any]) -> Iterator[str]:
    if not status:
        yield "no status was received"
        return
    primary = "primary" if status["is_primary"] else "not primary"
    yield f"view {status['view']} ({', '.join(status['view_members'])}; {primary})"
    yield f"position {status['position']}, stable {status['stable']}, hold-back queue {status['held_back']}"
    yield f"accepted {status['accepted']} of its own" + ("" if status["has_sent_all"] else ", and has more to send")
    yield "waits for " + (", ".join(status["waits_for"]) or UNKNOWN_WAIT)


def _print_stderr(outcome: RunOutcome, console: Console) -> None:
    """Print the last lines of the stderr of each process."""
    for index, lines in outcome.stderr.items():
        _say(console, f"{name_of(index)} wrote:")
        for line in lines:
            _say(console, f"  {line}", "dim")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(escape(text), style=style, soft_wrap=True, highlight=False)


def brief(number: float) -> str:
    """In seven columns at most, below 100 000 million."""
    if number < 10_000:
        return f"{number:,.0f}"
    millions = number / 1e6
    return f"{millions:.2f} M" if millions < 100 else f"{millions:,.0f} M"


def brief_time(microseconds: float) -> str:
    milliseconds = microseconds / 1000
    if milliseconds < 10:
        return f"{milliseconds:.2f} ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
