"""Who cannot hear whom, and what the coordinator makes of it."""

from __future__ import annotations

from dataclasses import replace

from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.membership.detector import DetectorConfig
from motet.protocol.membership.reports import MOST_AWAY, MOST_DOUBLINGS, Reports
from tests.protocol.membership.people import A, B, C, D, E

CONFIG = DetectorConfig()
GRACE_NS = CONFIG.suspect_ns + CONFIG.verify_ns + 2 * CONFIG.heartbeat_ns
STEP_NS = CONFIG.heartbeat_ns
MEMBERS = (A, B, C, D, E)


def told(*pairs: tuple[object, object], lasts_ns: int = GRACE_NS, begin: int = 0) -> Reports:
    """A is the coordinator, and is told of these pairs again and again."""
    reports = Reports(A, CONFIG)
    for now in range(begin, begin + lasts_ns + 1, STEP_NS):
        for reporter, suspect in pairs:
            reports.tell(reporter, suspect, now)  # type: ignore[arg-type]
    return reports


def test_the_junior_of_two_has_to_go_when_it_has_lasted_long_enough() -> None:
    reports = told((B, D))
    assert reports.chosen(MEMBERS, (), GRACE_NS - 1) == ()
    assert reports.chosen(MEMBERS, (), GRACE_NS) == (D,)


def test_who_reports_does_not_matter() -> None:
    assert told((D, B)).chosen(MEMBERS, (), GRACE_NS) == (D,)


def test_one_whom_several_cannot_hear_goes_instead_of_them() -> None:
    assert told((C, B), (B, D)).chosen(MEMBERS, (), GRACE_NS) == (B,)


def test_two_pairs_that_have_nobody_in_common_cost_two_members() -> None:
    assert set(told((B, C), (D, E)).chosen(MEMBERS, (), GRACE_NS)) == {C, E}


def test_the_coordinator_never_chooses_itself() -> None:
    assert set(told((B, A), (C, A)).chosen(MEMBERS, (), GRACE_NS)) == {B, C}


def test_nobody_has_to_go_for_not_hearing_one_who_has_crashed() -> None:
    assert told((D, B)).chosen(MEMBERS, (B,), GRACE_NS) == ()


def test_a_report_that_is_not_repeated_lapses() -> None:
    reports = told((B, D))
    assert reports.chosen(MEMBERS, (), GRACE_NS + 3 * STEP_NS) == (D,)
    assert reports.chosen(MEMBERS, (), GRACE_NS + 3 * STEP_NS + 1) == ()


def test_after_a_lapse_the_time_begins_anew() -> None:
    reports = told((B, D), lasts_ns=STEP_NS)
    later = 10 * SECOND
    reports.tell(B, D, later)
    assert reports.chosen(MEMBERS, (), later) == ()
    for now in range(later, later + GRACE_NS + 1, STEP_NS):
        reports.tell(B, D, now)
    assert reports.chosen(MEMBERS, (), later + GRACE_NS) == (D,)


def test_whoever_had_to_go_is_left_alone_for_longer_each_time() -> None:
    reports = told((B, D))
    now, waits = GRACE_NS, []
    for _ in range(MOST_DOUBLINGS + 3):
        assert reports.chosen(MEMBERS, (), now) == (D,)
        reports.begin_view((A, B, C, E), now)
        assert len(reports) == 0
        begin = now
        while reports.is_away(D, now):
            now += MILLISECOND
        waits.append(now - begin)
        reports.begin_view(MEMBERS, now)  # it comes in again
        for at in range(now, now + GRACE_NS + 1, STEP_NS):
            reports.tell(B, D, at)
        now += GRACE_NS
    doublings = [min(time, MOST_DOUBLINGS) for time in range(len(waits))]
    assert waits == [GRACE_NS << doubling for doubling in doublings]


def test_whoever_stayed_in_for_long_starts_afresh() -> None:
    reports = told((B, D))
    reports.chosen(MEMBERS, (), GRACE_NS)
    reports.begin_view((A, B, C, E), GRACE_NS)
    later = 600 * SECOND
    for at in range(later, later + GRACE_NS + 1, STEP_NS):
        reports.tell(B, D, at)
    now = later + GRACE_NS
    reports.chosen(MEMBERS, (), now)
    reports.begin_view((A, B, C, E), now)
    assert reports.is_away(D, now + GRACE_NS - 1)
    assert not reports.is_away(D, now + GRACE_NS)


def test_one_who_was_to_go_and_stayed_is_not_left_alone() -> None:
    reports = told((B, D))
    reports.chosen(MEMBERS, (), GRACE_NS)
    reports.begin_view(MEMBERS, GRACE_NS)
    assert not reports.is_away(D, GRACE_NS)


def test_the_table_of_those_who_are_left_alone_is_bounded() -> None:
    reports = Reports(A, CONFIG)
    for number in range(MOST_AWAY + 10):
        reports._send_away(replace(D, incarnation=1000 + number), 0)
    assert len(reports._away) == MOST_AWAY
