"""The audit as one self-contained HTML file: verdict, findings side by side, and plots, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.audit.guarantees import CHECKS, MEANING
from motet.audit.kernels import BINS_PER_OCTAVE, LATENCY_BINS
from motet.audit.plots import Point, TimelineSpan, bars, lines, nothing, timeline
from motet.audit.verdict import AuditFinding, AuditVerdict
from motet.log.journal.evidence import ViewFact

MOST_POINTS = 240  # per line; more seconds than that are aggregated
MOST_FINDINGS = 20
PERCENTILES = (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999))

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1d22; --soft: #5d6470; --rule: #d9dde3; --card: #f6f7f9;
  --good: #14724a; --bad: #b3261e; --bad-paper: #fdecea; --c0: #2563a8; --c1: #b4560f; --c2: #14724a; --c3: #7a3fa0;
  --c4: #8f6a00; --c5: #0b7285; --c6: #b02a6b; --c7: #5d6470; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171b; --ink: #e7e9ed; --soft: #9aa2af; --rule: #343a43;
  --card: #1d2025; --good: #5cc790; --bad: #ff8a80; --bad-paper: #3a1d1b; --c0: #74aef0; --c1: #f0a35e; --c2: #5cc790;
  --c3: #c79be8; --c4: #d9b84a; --c5: #5cc8d8; --c6: #f08cbb; --c7: #9aa2af; } }
body { margin: 0 auto; max-width: 920px; padding: 28px 20px 60px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 34px 0 8px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 10px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
.quiet, .legend { color: var(--soft); font-size: 13px; } .ok { color: var(--good); font-weight: 600; }
.violated { color: var(--bad); font-weight: 600; } .banner { padding: 12px 16px; border-radius: 8px;
  background: var(--card); border-left: 5px solid var(--good); margin: 16px 0; overflow-wrap: anywhere; }
.banner.bad { border-color: var(--bad); background: var(--bad-paper); }
.finding { background: var(--card); border-radius: 8px; padding: 10px 14px; margin: 10px 0; font-size: 13.5px;
  overflow-x: auto; } .finding td { font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere; }
tr.differs td { background: var(--bad-paper); }
svg { width: 100%; height: auto; display: block; } .grid { stroke: var(--rule); stroke-width: 1; }
.tick, .label { fill: var(--soft); font-size: 12px; } .label { fill: var(--ink); font-size: 13px; }
.inside { fill: var(--paper); font-size: 12px; pointer-events: none; } .line { fill: none; stroke-width: 1.8; }
.key { margin-right: 16px; white-space: nowrap; } .key i { display: inline-block; width: 12px; height: 3px;
  margin-right: 6px; vertical-align: middle; }
""" + "".join(
    f".line.s{n} {{ stroke: var(--c{n}); }} .bar.s{n}, .dot.s{n} {{ fill: var(--c{n}); }} "
    f".key i.s{n} {{ background: var(--c{n}); }}\n"
    for n in range(8)
)


def to_html(verdict: AuditVerdict, title: str = "Motet audit") -> str:
    body = [
        f"<h1>{escape(title)}</h1>",
        _banner(verdict),
        "<h2>Guarantees</h2>",
        _checks(verdict),
        *([f"<h2>Findings</h2>{''.join(map(_finding, verdict.findings[:MOST_FINDINGS]))}"] if verdict.findings else []),
        "<h2>Members</h2>",
        _members(verdict),
        *_plots(verdict),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _banner(verdict: AuditVerdict) -> str:
    size = f"{verdict.rows:,} rows of {len(verdict.members)} members, read in {verdict.seconds:.1f} s."
    if verdict.findings:
        text = f"<b>Violated.</b> {escape(verdict.findings[0].text)}. {size}"
    elif verdict.unusable:
        text = f"<b>Not all could be read.</b> {escape('; '.join(verdict.unusable))}. {size}"
    else:
        text = f"<b>All guarantees that could be checked hold.</b> {size}"
    return f'<div class="banner{" bad" if verdict.exit_code else ""}">{text}</div>'


def _checks(verdict: AuditVerdict) -> str:
    rows = [
        f'<tr><td>{escape(check)}</td><td class="{verdict.state_of(check).split()[0]}">{verdict.state_of(check)}</td>'
        f"<td>{escape(MEANING[check])}</td><td>{escape(verdict.checked.get(check, ''))}</td></tr>"
        for check in CHECKS
    ]
    return f"<table><tr><th>guarantee<th>result<th>it says<th>looked at</tr>{''.join(rows)}</table>"


def _members(verdict: AuditVerdict) -> str:
    rows = [
        f'<tr><td>{escape(member.name)}</td><td class="n">{member.first:,} to {member.last:,}</td>'
        f'<td class="n">{member.stable:,}</td><td class="n">{member.rows:,}</td><td class="n">{member.views}</td>'
        f"<td>{escape('; '.join((member.path, *member.notes)))}</td></tr>"
        for member in verdict.members
    ]
    return f"<table><tr><th>member<th>positions<th>stable<th>rows<th>views<th>where</tr>{''.join(rows)}</table>"


def _finding(finding: AuditFinding) -> str:
    rows = "".join(
        f'<tr{" class=differs" if one.expected != one.found else ""}><td class="n">{one.position}</td>'
        f"<td>{escape(one.expected)}</td><td>{escape(one.found)}</td></tr>"
        for one in finding.neighbours
    )
    reference = f" (as at {', '.join(finding.reference)})" if finding.reference else ""
    table = f"<table><tr><th>position<th>expected{escape(reference)}<th>found</tr>{rows}</table>" if rows else ""
    return (
        f'<div class="finding"><b class="violated">{escape(finding.text)}</b><br>expected: {escape(finding.expected)}'
        f"{escape(reference)}<br>found: {escape(finding.found)}<br>"
        f'<span class="quiet">{escape(finding.where)}</span>{table}</div>'
    )


def _plots(verdict: AuditVerdict) -> list[str]:
    seconds = verdict.facts.get("seconds", [])
    senders: dict[str, float] = {}
    for total in verdict.facts.get("totals", []):
        if total["member"] == _fullest(verdict):
            senders[total["sender"]] = senders.get(total["sender"], 0) + total["rows"]
    return [
        "<h2>Delivery rate</h2>" + lines(_rates(seconds), "messages per second"),
        "<h2>Latency, from sending to delivery</h2>" + _latency(seconds),
        "<h2>Messages by sender</h2>" + bars(dict(sorted(senders.items(), key=lambda one: -one[1])), "messages"),
        "<h2>Views</h2>" + _views(verdict.facts.get("views", {}), verdict),
        "<h2>Retransmissions</h2>" + _retransmissions(verdict.facts.get("retransmissions", {})),
    ]


def _fullest(verdict: AuditVerdict) -> str:
    return max(verdict.members, key=lambda member: member.rows).name


def _step(seconds: Sequence[Any]) -> int:
    """The number of seconds per point."""
    span: int = seconds[-1]["second"] - seconds[0]["second"] + 1
    return max(1, -(-span // MOST_POINTS))


def _rates(seconds: Sequence[Any]) -> dict[str, list[Point]]:
    if not seconds:
        return {}
    step, start = _step(seconds), seconds[0]["second"]
    sums: dict[str, dict[int, int]] = {}
    for row in seconds:
        slot = (row["second"] - start) // step
        line = sums.setdefault(row["member"], {})
        line[slot] = line.get(slot, 0) + row["rows"]
    return {
        member: [(float(slot * step), line.get(slot, 0) / step) for slot in range(max(line) + 1)]
        for member, line in sorted(sums.items())
    }


def _latency(seconds: Sequence[Any]) -> str:
    if not seconds:
        return nothing("nothing was delivered")
    step, start = _step(seconds), seconds[0]["second"]
    counts: dict[int, NDArray[np.int64]] = {}
    for row in seconds:
        slot = (row["second"] - start) // step
        histogram = np.sum(np.array(row["latency"], dtype=np.int64), axis=0)
        counts[slot] = counts.get(slot, np.zeros(LATENCY_BINS, np.int64)) + histogram
    series = {
        name: [(float(slot * step), quantile(counts[slot], share)) for slot in sorted(counts)]
        for name, share in PERCENTILES
    }
    return lines(series, "milliseconds", is_log=True)


def quantile(histogram: NDArray[np.int64], share: float) -> float:
    """The quantile in milliseconds: the middle of its bin."""
    index = int(np.searchsorted(np.cumsum(histogram), share * histogram.sum()))
    return float(2.0 ** ((index + 0.5) / BINS_PER_OCTAVE)) / 1000


def _views(views: dict[str, list[ViewFact]], verdict: AuditVerdict) -> str:
    """A timeline over positions, which are comparable between members, unlike clocks."""
    numbers: dict[str, int] = {}
    rows = {}
    for member in verdict.members:
        facts = views.get(member.name, [])
        spans = []
        for fact, following in zip(facts, [*facts[1:], None], strict=True):
            colour = numbers.setdefault(fact.view, len(numbers))
            end = following.position if following else max(member.last, fact.position)
            title = f"{fact.view}: {len(fact.members)} members, after position {fact.position}\n" + ", ".join(
                fact.members
            )
            spans.append(TimelineSpan(fact.position, end, fact.view.partition("@")[0], title, colour))
        rows[member.name] = spans
    return timeline(rows, "")


def _retransmissions(found: dict[str, list[Point]]) -> str:
    if not found:
        return nothing("no traces of members were given, and journals do not record how often a datagram was sent")
    return lines(found, "retransmitted frames per second")
