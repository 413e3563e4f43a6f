"""Words about figures: each sentence has figures that call for it, and a group that is well is said to be well."""

from __future__ import annotations

from typing import Any

import pytest

from motet.admin.health import STALLED_AFTER_S, Growth, Health, Level, StallDetector, health
from motet.protocol.core.counters import Count
from tests.admin.fakes import stats_of


def changed(**sections: Any) -> dict[str, Any]:
    stats = stats_of()
    for name, value in sections.items():
        stats[name] = {**stats[name], **value} if isinstance(value, dict) else value
    return stats


def grown(seconds: float = 10, **counts: int) -> Growth:
    return Growth(seconds, counts)


def remark(found: Health, part: str) -> str:
    (text,) = [str(remark) for remark in found.remarks if part in str(remark)]
    return text


def test_a_group_that_is_well() -> None:
    found = health(stats_of())
    assert found.is_well
    assert [remark.level for remark in found.remarks] == [Level.GOOD]
    assert "primary view of 5 members" in found.remarks[0].text


def test_not_primary_says_what_it_means_and_what_to_do() -> None:
    found = health(changed(view={"primary": False}))
    assert not found.is_well
    said = remark(found, "not primary")
    assert "Total-order messages wait" in said
    assert "merge by themselves" in said


def test_in_no_view_yet() -> None:
    found = health(changed(view={"members": [], "primary": False}))
    assert not found.is_well
    assert "same group name and key" in remark(found, "in no view")


@pytest.mark.parametrize(("segments", "level"), [("light", Level.GOOD), ("grid", Level.WATCH)])
def test_datagrams_that_are_cut_because_packets_are_lost(segments: str, level: Level) -> None:
    found = health(changed(frames={"segments": segments, "segment_bytes": 1_400, "lost_share": 0.034}))
    assert found.level is level
    assert found.is_well
    assert f"segments of 1,400 bytes with parity ({segments}); 3.4 % of them" in remark(found, "Packets are lost")


def test_repairs_under_loss_are_normal() -> None:
    found = health(stats_of(), growth=grown(frame_sent=900, frame_resent=100))
    assert found.level is Level.GOOD
    assert "10 % of frames were retransmitted. Normal where datagrams are lost" in remark(found, "retransmitted")


def test_very_many_repairs_are_a_warning_and_no_failure() -> None:
    found = health(stats_of(), growth=grown(frame_sent=100, frame_resent=100))
    assert found.level is Level.WATCH
    assert found.is_well
    assert "motet doctor" in remark(found, "50 % of frames")


def test_a_lost_datagram_now_and_then_is_not_worth_a_word() -> None:
    assert len(health(stats_of(), growth=grown(frame_sent=100_000, frame_resent=3)).remarks) == 1


def test_a_rejected_counter_that_keeps_growing_is_named_with_its_meaning() -> None:
    found = health(stats_of(), growth=grown(datagram_rejected=500))
    assert found.level is Level.WATCH
    said = remark(found, "datagram_rejected +500")
    assert Count.DATAGRAM_REJECTED.meaning in said
    assert "wrong key" in said


def test_a_few_anomalies_are_normal() -> None:
    assert health(stats_of(), growth=grown(datagram_rejected=5)).level is Level.GOOD


def test_a_member_that_is_behind_is_named() -> None:
    late = {"member": "drum#000d", "admin": None, "position": 100_000, "stable": 100_000}
    elsewhere = {**late, "member": "gone#0001"}
    said = remark(health(changed(peers=[late, elsewhere])), "Behind")
    assert "gone" not in said, "whoever is in another view is behind for another reason"
    assert "drum#000d by 20,500 positions" in said
    assert "catches up after a join" in said


def test_a_slow_application_is_told_apart_from_a_slow_network() -> None:
    found = health(changed(queue={"paused": True, "messages": 1234}))
    assert found.is_well
    assert "1,234 wait" in remark(found, "Back-pressure: the application reads messages")
    stalled = health(changed(queue={"paused": True}), stalled_s=20)
    assert not stalled.is_well
    assert "because the application of this member reads no messages" in remark(stalled, "20 s")


def test_a_full_window_is_normal_under_load() -> None:
    found = health(changed(multicast={"low": 0, "high": 256}))
    assert found.level is Level.GOOD
    assert "Normal under full load" in remark(found, "window is full")


def test_faults_made_on_purpose_are_said_to_be() -> None:
    found = health(changed(faults=["drop=0.2@bass"]))
    assert found.is_well
    assert "fault clear" in remark(found, "drop=0.2@bass")


def test_suspects_are_named() -> None:
    assert "bass#000b" in remark(health(changed(suspects=["bass#000b"])), "Suspected because")


def test_the_worst_stands_first() -> None:
    found = health(changed(view={"primary": False}, suspects=["x"], faults=["cut@x"]))
    assert [remark.level for remark in found.remarks] == [Level.BAD, Level.WATCH, Level.NOTE]


@pytest.mark.parametrize("stats", [{}, {"view": 7, "log": [], "counters": "x", "peers": [1, None], "suspects": {}}])
def test_figures_of_any_shape_break_nothing(stats: dict[str, Any]) -> None:
    assert not health(stats).is_well


def test_one_sample_never_reports_a_stall() -> None:
    assert StallDetector().stalled_s(changed(log={"holdback": 5}), now=1000.0) == 0


def test_the_log_stands_when_something_waits_and_the_position_stays() -> None:
    detector, waiting = StallDetector(), changed(log={"holdback": 5})
    detector.stalled_s(waiting, now=10.0)
    stalled_s = detector.stalled_s(waiting, now=10.0 + STALLED_AFTER_S)
    found = health(waiting, stalled_s)
    assert not found.is_well
    assert "5 frames in the hold-back queue" in remark(found, "has not grown for 5 s")


def test_an_idle_log_does_not_stand() -> None:
    detector = StallDetector()
    detector.stalled_s(stats_of(), now=0.0)
    assert detector.stalled_s(stats_of(), now=9000.0) == 0
    assert detector.stalled_s(changed(log={"in_flight": 1}), now=9001.0) == 0, "it has waited only since now"


def test_a_log_that_moves_does_not_stand() -> None:
    detector = StallDetector()
    detector.stalled_s(changed(log={"holdback": 5, "position": 1}), now=0.0)
    assert detector.stalled_s(changed(log={"holdback": 5, "position": 2}), now=60.0) == 0


def test_a_standing_log_outside_the_primary_view_is_no_second_fault() -> None:
    found = health(changed(view={"primary": False}, log={"holdback": 5}), stalled_s=100)
    assert len(found.remarks) == 1


def test_counters_that_began_anew_do_not_shrink() -> None:
    growth = Growth.between({"frame_sent": 900}, {"frame_sent": 5}, 1.0)
    assert growth.of(Count.FRAME_SENT) == 0
    assert growth.repair_share == 0
