"""What a run prints: the figures, the verdict, where members stood, and the snapshot."""

from __future__ import annotations

import io
from base64 import b64encode
from typing import Any

from rich.console import Console

from motet.harness.runs.evaluation import RunVerdict
from motet.harness.runs.member_process import RunMemberReport
from motet.harness.runs.perform import RunOutcome
from motet.harness.runs.report import brief, brief_time, print_outcome, summary
from motet.harness.runs.snapshots import is_one_cut, snapshot_lines
from motet.harness.runs.work import RunPlan, payloads_of

PLAN = RunPlan(3, 1, 100_000_000, 1000)
STATUS = {
    "view": "4@12ab",
    "view_members": ["m0", "m1"],
    "is_primary": False,
    "position": 17,
    "stable": 12,
    "held_back": 3,
    "accepted": 20,
    "has_sent_all": False,
    "waits_for": ["a primary view", "frames 3 to 5 of m1's stream"],
}


def report(member: str, seconds: float = 222.2) -> RunMemberReport:
    return RunMemberReport(
        member,
        100_000_000,
        100_000_000,
        digest="0123456789abcdef",
        seconds=seconds,
        latency_us={"median_us": 123_456.7, "p99_us": 1_234_567.8},
        cpu_s=1234.56,
        rss_mb=12_345.6,
        counters={"frame_resent": 123_456_789, "frame_sent": 1_000_000},
    )


def printed(outcome: RunOutcome) -> str:
    out = io.StringIO()
    print_outcome(outcome, Console(file=out, width=80))
    return out.getvalue()


def test_the_tables_fit_into_80_columns() -> None:
    text = printed(RunOutcome(PLAN, {i: report(f"m{i}") for i in range(3)}, verdict=RunVerdict(is_same=True)))
    tables = text.split("median and p99 are")[0].splitlines()
    assert max(map(len, tables)) <= 80
    first, second = [" ".join(line.split()) for line in tables if line.strip().startswith("m0")]
    assert first == "m0 100,000,000 100,000,000 0 0 0 0123456789abcdef"
    assert second == "m0 0.45 M 450.0 123 ms 1235 ms 1234.56 12346 1.00 M 123 M"
    assert "…" not in text
    assert "All members have the same stable sequence, by content." in text
    assert "Everything that was accepted was delivered." in text


def test_a_rate_is_told_only_if_it_lasted_a_second() -> None:
    outcome = RunOutcome(PLAN, {0: report("m0"), 1: report("m1", 0.9)}, verdict=RunVerdict(is_same=True))
    rows = [line.split() for line in printed(outcome).splitlines() if line.strip().startswith("m1")]
    assert rows[1][1:3] == ["-", "-"]
    assert "send more messages for one" in printed(outcome)
    made = summary(outcome)
    assert made["messages_per_s"] is None
    assert [result["messages_per_s"] for result in made["results"]] == [450_045, None]


def test_sequences_that_differ_are_told() -> None:
    verdict = RunVerdict(is_same=False, problems=["the stable sequences DIFFER: position 2 is this, and that"])
    outcome = RunOutcome(PLAN, {0: report("m0")}, verdict=verdict)
    assert not outcome.holds
    assert "the stable sequences DIFFER: position 2 is this, and that." in printed(outcome)
    assert "Everything that was accepted" not in printed(outcome)


def test_a_run_that_was_ended_says_who_stood_where_and_what_the_members_wrote() -> None:
    outcome = RunOutcome(
        PLAN, {}, {0: STATUS, 1: {}}, failure="the deadline of 5 s was reached", stderr={1: ["[red] a b"]}
    )
    text = printed(outcome)
    assert "The run was not completed: the deadline of 5 s was reached." in text
    assert (
        "m0: view 4@12ab (m0, m1; not primary); position 17, stable 12, hold-back queue 3; accepted 20 of its own, and "
        "has more to send; waits for a primary view, frames 3 to 5 of m1's stream"
    ) in text
    assert "m1: no status was received" in text
    assert "m1 wrote:\n  [red] a b" in text


def test_a_member_that_waits_for_nothing_may_be_waited_for() -> None:
    text = printed(RunOutcome(PLAN, {}, {0: STATUS | {"waits_for": []}}, failure="the deadline of 5 s was reached"))
    assert "; waits for nothing that it knows of (others may wait for it: " in text


def snapshot(in_flight: int) -> dict[str, Any]:
    messages = [{"port": 0, "payload": b64encode(p).decode()} for p in payloads_of(1, range(in_flight), 16)]
    windows = [{"stream": "multicast", "peer": "m1#0a", "low": 1, "delivered": 2, "high": 3}]
    held = [{"sender": "m1#0a", "id": 4, "number": 9, "proposer": 0, "is_decided": False, "size": 16}]
    rest = {"stable": 0, "windows": windows, "waiting": []}
    return {
        "snapshot": "0a/1",
        "initiator": "m0#0b",
        "view": {"id": "3@0b", "is_primary": True, "members": ["m0#0b", "m1#0a"]},
        "members": [
            {
                "member": "m0#0b",
                "position": 2,
                "held_back": held,
                "retransmitted": [],
                "in_flight": [{"channel": "total", "sender": "m1#0a", "messages": messages}],
                **rest,
            },
            {
                "member": "m1#0a",
                "position": 9,
                "held_back": [],
                "retransmitted": [{"frame": "DATA", "id": 4, "to": ["m0#0b", "m1#0a"]}],
                "in_flight": [],
                **rest,
            },
        ],
    }


def test_a_snapshot_is_told_member_by_member_and_channel_by_channel() -> None:
    assert list(snapshot_lines(snapshot(7))) == [
        "Snapshot 0a/1 by m0 in view 3@0b of m0, m1",
        "m0: position 2, stable 0",
        "  window multicast m1: low 1, delivered 2, high 3",
        "  hold-back queue: 1 frames: m1/4 proposed 9",
        "  still retransmitted: 0 frames",
        "  accepted and not sent: 0 messages",
        "m1: position 9, stable 0",
        "  window multicast m1: low 1, delivered 2, high 3",
        "  hold-back queue: 0 frames",
        "  still retransmitted: 1 frames: DATA 4 to m0, m1",
        "  accepted and not sent: 0 messages",
        "in flight:",
        "  m1 -> m0 (total): 7 messages: message 0 of m1; message 1 of m1; message 2 of m1; message 3 of m1; "
        "message 4 of m1; message 5 of m1; 1 more",
    ]


def test_a_snapshot_is_one_cut_if_all_members_add_up_to_the_same() -> None:
    assert is_one_cut(snapshot(7))
    assert not is_one_cut(snapshot(6))


def test_figures_are_brief() -> None:
    assert [brief(number) for number in (0, 7, 9_999, 12_345, 434_000, 1e7, 1e9)] == [
        *("0", "7", "9,999", "0.01 M", "0.43 M", "10.00 M", "1,000 M"),
    ]
    assert [brief_time(us) for us in (12.3, 1_860, 186_300, 12_000_000)] == ["0.01 ms", "1.86 ms", "186 ms", "12.0 s"]
