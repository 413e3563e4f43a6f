"""The failure detector alone, with a virtual clock, on a network that loses nothing.

What it makes of loss, of round trips and of pauses is in test_detector_accrual.py; test_detector_model.py compares it
with a dumb model.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import permutations

import pytest

from motet.errors import ConfigError
from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import ViewId
from motet.protocol.membership import DetectorConfig
from motet.protocol.membership.detector import MOST_REPLACED, Standing, Suspected, Trusted
from motet.protocol.wire.frames import AreYouAlive, Heartbeat, IAmAlive
from tests.protocol.membership.people import A, B, C, D, G
from tests.protocol.membership.watching import (
    ASK_EVERY_NS,
    ASKING,
    CONFIG,
    START,
    SUSPECTING,
    PlainDetector,
    ask,
    beat,
    is_by_the_way,
    run,
    verification,
    watching,
)

# Heartbeats


def test_alone_nothing_is_due_and_nothing_is_sent() -> None:
    detector = PlainDetector(A, CONFIG)
    assert detector.next_deadline() is None
    assert detector.tick(START) == []
    detector.watch([A], START)
    assert detector.next_deadline() is None
    assert detector.tick(START + SECOND) == []


def test_an_idle_member_sends_a_heartbeat_to_every_peer_at_every_interval() -> None:
    detector = watching(B, C)
    for interval in range(1, 5):
        due = START + interval * CONFIG.heartbeat_ns
        assert detector.next_deadline() == due
        assert detector.tick(due - 1) == []
        assert detector.tick(due) == beat(B, C)
        assert detector.tick(due) == []


def test_a_member_that_never_spoke_sends_a_heartbeat_at_once() -> None:
    detector = PlainDetector(A, CONFIG)
    detector.watch([B], START)
    assert detector.tick(START) == beat(B)
    assert detector.next_deadline() == START + CONFIG.heartbeat_ns


def test_speaking_postpones_the_heartbeat() -> None:
    detector = watching(B)
    for number in range(MOST_REPLACED):
        now = START + number * (CONFIG.heartbeat_ns - 1)
        detector.spoke(now)
        detector.heard(B, now)
        assert detector.tick(now + CONFIG.heartbeat_ns - 1) == []
        assert detector.next_deadline() == now + CONFIG.heartbeat_ns


def test_a_heartbeat_carries_the_view_given_to_watch() -> None:
    detector = watching(B)
    for number in range(1, 4):
        view = ViewId(number, A.incarnation)
        detector.watch([B], START, view)
        assert detector.tick(START + number * CONFIG.heartbeat_ns) == beat(B, view=view)


def test_one_who_is_asked_answers_with_the_view_given_to_watch() -> None:
    detector = watching(B)
    detector.watch([B], START, view := ViewId(3, A.incarnation))
    for asker in (B, G):
        assert detector.receive(asker, AreYouAlive(), START) == [Transmit(asker, IAmAlive(view))]


def test_a_busy_member_still_tells_its_view_every_fourth_interval() -> None:
    assert MOST_REPLACED == 4
    detector = PlainDetector(A, CONFIG)
    detector.watch([B], START, view := ViewId(3, A.incarnation))
    told = []
    for now in range(START, START + 2 * SECOND, 10 * MILLISECOND):
        detector.spoke(now)
        detector.heard(B, now)
        effects = detector.tick(now)
        assert effects in ([], beat(B, view=view))
        told += [now - START] if effects else []
        assert detector.next_deadline() == min(
            now + CONFIG.heartbeat_ns, START + (len(told) + 1) * 4 * CONFIG.heartbeat_ns
        )
    assert told == [number * 4 * CONFIG.heartbeat_ns for number in range(1, 5)]


def test_telling_the_view_when_idle_counts_for_the_busy_time_that_follows() -> None:
    detector = watching(B)
    idle = START + CONFIG.heartbeat_ns
    assert detector.tick(idle) == beat(B)
    for number in range(1, 8):
        detector.spoke(idle + number * CONFIG.heartbeat_ns // 2)
    assert detector.next_deadline() == idle + 4 * CONFIG.heartbeat_ns


def test_a_late_heartbeat_is_sent_once_and_the_next_one_an_interval_later() -> None:
    detector = watching(B)
    late = START + 4 * CONFIG.heartbeat_ns + 1
    assert detector.tick(late) == beat(B)
    detector.heard(B, late)
    assert detector.next_deadline() == late + CONFIG.heartbeat_ns


def test_asking_one_peer_is_no_heartbeat_for_the_others() -> None:
    detector = watching(B, C)
    happened = run(detector, START + ASKING[-1], is_all=True)
    beats = [at for at, effect in happened if effect == Transmit(C, Heartbeat())]
    assert beats == [number * CONFIG.heartbeat_ns for number in range(1, 7)]


def test_a_suspect_still_gets_heartbeats_so_that_it_need_not_suspect_us() -> None:
    detector = watching(B)
    run(detector, START + SUSPECTING)
    assert detector.suspects == (B,)
    due = detector.next_deadline()
    assert due == START + 800 * MILLISECOND
    assert detector.tick(due) == beat(B)


# Signs of life


@pytest.mark.parametrize("frame", [Heartbeat(), AreYouAlive(), IAmAlive()])
def test_each_frame_of_the_detector_is_a_sign_of_life(frame: AreYouAlive | IAmAlive | Heartbeat) -> None:
    detector = watching(B)
    answer: list[Effect] = [Transmit(B, IAmAlive())] if frame == AreYouAlive() else []
    assert detector.receive(B, frame, START + ASKING[0] - 1) == answer
    assert run(detector, START + 2 * ASKING[0] - 2) == []
    assert run(detector, START + 2 * ASKING[0] - 1) == [(2 * ASKING[0] - 1, ask(B))]


def test_any_traffic_is_a_sign_of_life() -> None:
    detector = watching(B)
    for now in range(START, START + 10 * SECOND, CONFIG.suspect_ns - 1):
        assert detector.heard(B, now) == []
        assert run(detector, now + CONFIG.suspect_ns - 1) == []
    assert detector.standing(B) is Standing.TRUSTED


def test_the_traffic_of_one_peer_says_nothing_about_another() -> None:
    detector = watching(B, C)
    for now in range(START, START + SUSPECTING + 1, CONFIG.heartbeat_ns):
        run(detector, now)
        detector.heard(C, now)
    assert (detector.standing(B), detector.standing(C)) == (Standing.SUSPECTED, Standing.TRUSTED)


# Silence


def test_silence_is_asked_about_evenly_and_then_believed_once() -> None:
    detector = watching(B)
    assert run(detector, START + 60 * SECOND) == verification(B)
    assert detector.suspects == (B,)


def test_standing_follows_the_silence() -> None:
    detector = watching(B)
    for at, standing in (
        (ASKING[0] - 1, Standing.TRUSTED),
        (ASKING[0], Standing.ASKED),
        (SUSPECTING - 1, Standing.ASKED),
        (SUSPECTING, Standing.SUSPECTED),
        (60 * SECOND, Standing.SUSPECTED),
    ):
        run(detector, START + at)
        assert detector.standing(B) is standing
        assert detector.suspects == ((B,) if standing is Standing.SUSPECTED else ())
    assert detector.standing(G) is None


@pytest.mark.parametrize("attempts", [1, 2, 3, 7, 100])
def test_questions_are_spread_over_the_time_to_answer_also_where_it_does_not_divide(attempts: int) -> None:
    config = DetectorConfig(
        heartbeat_ns=20 * SECOND, suspect_ns=140 * SECOND, verify_ns=1_000_003, verify_attempts=attempts
    )
    detector = watching(B, config=config)
    happened = run(detector, START + 200 * SECOND)
    asked = [at - config.suspect_ns for at, effect in happened if effect == ask(B)]
    assert asked == [number * config.probe_ns for number in range(attempts)]
    assert happened[-1] == (config.suspect_ns + attempts * config.probe_ns, Suspected(B))
    assert 0 <= config.verify_ns - attempts * config.probe_ns < attempts


def test_deadlines_are_exact_and_nothing_happens_before_them() -> None:
    detector = watching(B)
    expected = sorted({*ASKING, SUSPECTING, *range(100 * MILLISECOND, SUSPECTING + 1, 100 * MILLISECOND)})
    for at in expected:
        assert detector.next_deadline() == START + at
        assert detector.tick(START + at - 1) == []
        assert detector.tick(START + at) != []
        assert detector.tick(START + at) == []
    assert detector.next_deadline() == START + 800 * MILLISECOND  # only the heartbeat is left


@pytest.mark.parametrize("silent_for", ASKING)
def test_an_answer_at_any_time_of_the_verification_ends_it(silent_for: int) -> None:
    detector = watching(B)
    run(detector, START + silent_for)
    assert detector.standing(B) is Standing.ASKED
    answered = silent_for + ASK_EVERY_NS - 1
    assert detector.receive(B, IAmAlive(), START + answered) == []  # never suspected, so nothing to take back
    assert detector.standing(B) is Standing.TRUSTED
    pause_ns = answered - CONFIG.suspect_ns
    assert run(detector, START + answered + pause_ns + SUSPECTING) == verification(B, answered, pause_ns)


def test_false_suspicion_then_traffic_trusts_again_once() -> None:
    detector = watching(B)
    run(detector, START + SUSPECTING)
    back = SUSPECTING + 10 * MILLISECOND
    assert detector.heard(B, START + back) == [Trusted(B)]
    assert detector.heard(B, START + back) == []
    assert detector.suspects == ()
    pause_ns = back - CONFIG.suspect_ns
    assert run(detector, START + back + pause_ns + SUSPECTING) == verification(B, back, pause_ns)


def test_a_suspect_that_asks_is_trusted_and_answered() -> None:
    detector = watching(B)
    run(detector, START + SUSPECTING)
    assert detector.receive(B, AreYouAlive(), START + SECOND) == [Trusted(B), Transmit(B, IAmAlive())]


def test_a_late_tick_asks_before_anything_is_believed() -> None:
    detector = watching(B, C)
    detector.spoke(late := START + 60 * SECOND)
    assert [effect for effect in detector.tick(late) if not is_by_the_way(effect)] == [ask(B), ask(C)]
    assert detector.suspects == ()
    assert run(detector, late + CONFIG.verify_ns - 1)[-1] == (60 * SECOND + 3 * ASK_EVERY_NS, ask(C))


def test_a_pause_during_the_verification_still_leaves_time_to_answer_the_last_question() -> None:
    detector = watching(B)
    run(detector, START + ASKING[0])
    resumed = START + 60 * SECOND  # whatever B answered meanwhile still waits in a socket
    for _ in range(2 * CONFIG.verify_attempts):  # a driver ticks for as long as a deadline has passed
        assert Suspected(B) not in detector.tick(resumed)


# Strangers


def test_a_stranger_that_asks_is_answered_and_not_watched() -> None:
    detector = watching(B)
    assert detector.receive(G, AreYouAlive(), START) == [Transmit(G, IAmAlive())]
    assert detector.standing(G) is None
    assert run(detector, START + 60 * SECOND) == verification(B)


def test_a_stranger_is_answered_also_by_one_who_is_alone() -> None:
    detector = PlainDetector(A, CONFIG)
    assert detector.receive(G, AreYouAlive(), START) == [Transmit(G, IAmAlive())]
    assert detector.next_deadline() is None


@pytest.mark.parametrize("frame", [Heartbeat(), IAmAlive()])
def test_other_frames_of_a_stranger_are_dropped(frame: IAmAlive | Heartbeat) -> None:
    detector = watching(B)
    assert detector.receive(G, frame, START) == []
    assert detector.heard(G, START) == []
    assert detector.standing(G) is None


def test_strangers_leave_nothing_behind_however_many_they_are() -> None:
    detector = watching(B)
    for number in range(1_000):
        detector.receive(Address("stranger", "127.0.0.1", 9000, 1_000 + number), AreYouAlive(), START)
    assert len(detector._peers) == 1


# Whom to watch


def test_those_who_are_new_get_a_full_time_of_silence_and_the_others_keep_their_own() -> None:
    detector = watching(B)
    joined = 300 * MILLISECOND
    run(detector, START + joined)
    detector.watch([B, C], START + joined)
    happened = run(detector, START + joined + SUSPECTING)
    assert [item for item in happened if item[1] in (ask(B), Suspected(B))] == verification(B)
    assert [item for item in happened if item[1] in (ask(C), Suspected(C))] == verification(C, since=joined)


def test_those_who_are_not_watched_any_more_are_forgotten() -> None:
    detector = watching(B, C)
    run(detector, START + SUSPECTING)
    assert list(detector.suspects) == [B, C]
    detector.watch([C], START + SUSPECTING)
    assert list(detector.suspects) == [C]
    assert detector.standing(B) is None
    assert detector.heard(B, START + SUSPECTING) == []
    detector.watch([], START + SUSPECTING)
    assert detector.next_deadline() is None
    assert detector.tick(START + 60 * SECOND) == []


def test_a_peer_that_comes_back_begins_anew() -> None:
    detector = watching(B)
    run(detector, START + SUSPECTING)
    detector.watch([], START + SUSPECTING)
    detector.watch([B], START + SUSPECTING)
    assert detector.standing(B) is Standing.TRUSTED
    assert run(detector, START + 2 * SUSPECTING) == verification(B, since=SUSPECTING)


def test_a_suspect_that_is_still_watched_stays_suspected_and_is_not_reported_again() -> None:
    detector = watching(B)
    run(detector, START + SUSPECTING)
    detector.watch([B, C], START + SUSPECTING)
    assert detector.suspects == (B,)
    assert Suspected(B) not in [effect for _, effect in run(detector, START + 60 * SECOND)]


def test_nobody_watches_itself_and_nobody_is_watched_twice() -> None:
    detector = watching(B, A, B)
    assert detector.standing(A) is None
    assert detector.tick(START + CONFIG.heartbeat_ns) == beat(B)


# Order


def test_effects_come_in_the_order_in_which_the_peers_were_named() -> None:
    for order in permutations((B, C, D)):
        detector = watching(*order)
        happened = run(detector, START + SUSPECTING, is_all=True)
        assert [effect for at, effect in happened if at == CONFIG.heartbeat_ns] == beat(*order)
        assert [effect for at, effect in happened if at == ASKING[1]] == [ask(peer) for peer in order]
        assert [effect for at, effect in happened if at == SUSPECTING] == [
            *beat(*order),
            *(Suspected(peer) for peer in order),
        ]
        assert detector.suspects == order


def test_a_new_view_decides_the_order_anew() -> None:
    detector = watching(B, C)
    detector.watch([D, C, B], START)
    assert detector.tick(START + CONFIG.heartbeat_ns) == beat(D, C, B)


def test_no_order_depends_on_how_a_set_of_the_peers_would_be_iterated() -> None:
    """These four meet in one bucket of a small set, whose order would tell who came first."""
    peers = [Address("peer", "127.0.0.1", 9000, 8 * number + 1) for number in range(1, 5)]
    assert len({tuple(set(order)) for order in permutations(peers)}) > 1
    for order in permutations(peers):
        detector = watching(*order)
        happened = [effect for _, effect in run(detector, START + SUSPECTING, is_all=True)]
        for number, peer in enumerate(order):
            mine = [place for place, effect in enumerate(happened) if effect == Suspected(peer)]
            assert mine == [len(happened) - len(order) + number]
        assert happened[: len(order)] == beat(*order)
        assert detector.suspects == order


# Settings

LIMITS = {
    "heartbeat_ns": (MILLISECOND, 60 * SECOND),
    "suspect_ns": (500 * MILLISECOND, 600 * SECOND),
    "verify_ns": (4, 600 * SECOND),
    "verify_attempts": (1, 100),
    "suspect_max_ns": (1, 3600 * SECOND),
    "busy_max_ns": (0, 3600 * SECOND),
}


def test_every_setting_has_its_limits_here() -> None:
    assert {setting.name for setting in fields(DetectorConfig)} == LIMITS.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_a_setting_outside_its_limits_is_named(name: str) -> None:
    least, most = LIMITS[name]
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError) as caught:
            DetectorConfig(**{name: value})
        assert str(caught.value).startswith(f"{name} = {value} ")
        assert f"{least} to {most}" in str(caught.value)


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits_themselves_are_allowed(name: str) -> None:
    others = {"suspect_ns": 120 * SECOND} if name == "heartbeat_ns" else {}
    for value in LIMITS[name]:
        assert getattr(DetectorConfig(**{name: value, **others}), name) == value


def test_a_silence_bridges_two_heartbeats_at_least() -> None:
    with pytest.raises(ConfigError, match="suspect_ns"):
        DetectorConfig(heartbeat_ns=SECOND, suspect_ns=2 * SECOND - 1)
