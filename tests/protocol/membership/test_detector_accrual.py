"""What the failure detector makes of loss, round trips, pauses, and of what others have heard."""

from __future__ import annotations

from math import ceil, log

import pytest

from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import ViewId
from motet.protocol.membership import DetectorConfig, FailureDetector, MembershipConfig
from motet.protocol.membership.detector import (
    ENOUGH_DOUBT,
    MOST_PAUSE,
    MOST_REPLACED,
    MOST_VOUCHES,
    PAUSE_HALF_LIFE_NS,
    PROXIES,
    UNANSWERED_BY_CHANCE,
    Standing,
    Suspected,
)
from motet.protocol.membership.links import LEAST_LOSS, LOSS_SCALE, Link, doubt, tries
from motet.protocol.wire.frames import AreYouAlive, Heartbeat, IAmAlive, IndirectProbe, Vouched
from tests.protocol.membership.people import A, B, C, D, E, F, G
from tests.protocol.membership.watching import (
    ASK_EVERY_NS,
    CONFIG,
    START,
    SUSPECTING,
    ask,
    beat,
    run,
    verification,
    watching,
)

VIEW = ViewId(3, 1)
PRESETS = [MembershipConfig.local().detector, MembershipConfig.lan().detector, MembershipConfig.wan().detector]


def link_to(detector: FailureDetector, peer: Address) -> Link:
    return detector._peers[peer].link


def lossy(detector: FailureDetector, share: float, *peers: Address) -> None:
    """So much is lost in both directions, and is known to be."""
    detector._links.common.share = share
    for peer in peers:
        link_to(detector, peer).loss.share = link_to(detector, peer).loss_out = share


def silence(happened: list[tuple[int, Effect]], peer: Address = B) -> int:
    """When it was suspected."""
    (at,) = [at for at, effect in happened if effect == Suspected(peer)]
    return at


# What travels


def frames(effects: list[Effect]) -> list[object]:
    return [effect.frame for effect in effects if isinstance(effect, Transmit)]


def test_heartbeats_probes_and_answers_to_one_peer_share_one_count() -> None:
    detector = FailureDetector(A, CONFIG)
    detector.watch([B], START)
    (first,) = frames(detector.tick(START))
    (second,) = frames(detector.receive(B, AreYouAlive(), START))
    (third,) = frames(detector.tick(START + CONFIG.heartbeat_ns))
    _, fourth = frames(detector.tick(START + CONFIG.suspect_ns))
    assert [type(frame) for frame in (first, second, third, fourth)] == [Heartbeat, IAmAlive, Heartbeat, AreYouAlive]
    beats = [frame.beat for frame in (first, second, third)]  # type: ignore[attr-defined]
    assert beats == [START // MILLISECOND + number for number in (1, 2, 3)]
    assert fourth.beat == beats[0] + 4  # type: ignore[attr-defined]  # a heartbeat was due at that moment, too


def test_a_beat_tells_what_came_last_how_long_ago_and_how_much_was_lost() -> None:
    detector = FailureDetector(A, CONFIG)
    detector.watch([B], START)
    for number in (11, 13, 12):
        detector.receive(B, Heartbeat(beat=number), START + number)
    (frame,) = frames(detector.tick(START + 113))
    assert isinstance(frame, Heartbeat)
    assert (frame.echo, frame.echo_delay_ns) == (13, 100)
    assert frame.loss == int(link_to(detector, B).loss.share * LOSS_SCALE) > 0


def test_one_who_has_received_nothing_yet_echoes_nothing() -> None:
    detector = FailureDetector(A, CONFIG)
    detector.watch([B], START)
    (frame,) = frames(detector.tick(START))
    assert isinstance(frame, Heartbeat)
    assert (frame.echo, frame.echo_delay_ns, frame.loss) == (0, 0, 0)


def test_a_stranger_gets_an_answer_that_measures_nothing() -> None:
    detector = FailureDetector(A, CONFIG)
    assert detector.receive(G, AreYouAlive(beat=5), START) == [Transmit(G, IAmAlive())]


def test_the_round_trip_is_measured_between_two_detectors() -> None:
    ours, theirs = FailureDetector(A, CONFIG), FailureDetector(B, CONFIG)
    ours.watch([B], START)
    theirs.watch([A], START)
    for number in range(100):
        now = START + number * SECOND
        (question,) = frames(ours.tick(now))[:1]
        theirs.receive(A, question, now + 10 * MILLISECOND)  # type: ignore[arg-type]
        (answer,) = frames(theirs.tick(now + 40 * MILLISECOND))[:1]
        ours.receive(B, answer, now + 50 * MILLISECOND)  # type: ignore[arg-type]
    assert 20 * MILLISECOND <= link_to(ours, B).round_trip.timeout_ns < 21 * MILLISECOND


def test_what_the_peer_tells_of_loss_is_believed_within_reason_and_not_when_it_is_late() -> None:
    detector = watching(B)
    detector.receive(B, Heartbeat(beat=5, loss=250), START)
    assert link_to(detector, B).loss_out == 0.25
    detector.receive(B, Heartbeat(beat=4, loss=900), START)
    assert link_to(detector, B).loss_out == 0.25
    detector.receive(B, Heartbeat(beat=6, loss=1 << 40), START)
    assert link_to(detector, B).loss_out == detector.loss == 1.0


def test_a_frame_without_a_number_measures_nothing() -> None:
    detector = watching(B)
    detector.receive(B, Heartbeat(beat=5, loss=250), START)
    detector.receive(B, IAmAlive(loss=900), START)
    assert (link_to(detector, B).received, link_to(detector, B).loss_out) == (5, 0.25)


def test_an_overtaken_beat_is_told_from_a_new_one() -> None:
    detector = watching(B)
    detector.receive(B, Heartbeat(beat=5), START)
    late, same, new, none = (Heartbeat(beat=number) for number in (4, 5, 6, 0))
    assert [detector.is_late(B, frame) for frame in (late, same, new, none)] == [True, True, False, False]
    assert not detector.is_late(G, late)


def test_a_peer_that_was_removed_and_came_back_is_measured_at_once_by_one_that_kept_it() -> None:
    """B watches us without a break, we forget it for a moment. Our beats used to start at 1, and were late for B."""
    ours, theirs = FailureDetector(A, CONFIG), FailureDetector(B, CONFIG)
    theirs.watch([A], START)
    for begin in (START, START + SECOND):
        ours.watch([], begin)
        ours.watch([B], begin)
        for number in range(5):
            (frame,) = frames(ours.tick(now := begin + number * CONFIG.heartbeat_ns))[:1]
            assert isinstance(frame, Heartbeat)
            assert not theirs.is_late(A, frame)
            theirs.receive(A, frame, now)
    assert link_to(theirs, A).loss.share == 0


@pytest.mark.parametrize("share", [0.0, LEAST_LOSS - 0.01, LEAST_LOSS, 0.5])
def test_a_busy_member_sends_a_heartbeat_every_interval_while_datagrams_are_lost(share: float) -> None:
    detector = watching(B)
    lossy(detector, share, B)
    detector.spoke(START)
    told = []
    for now in range(START, START + SECOND, 10 * MILLISECOND):
        detector.spoke(now)
        detector.heard(B, now)
        told += [now] if beat(B)[0] in detector.tick(now) else []
    intervals = 1 if share >= LEAST_LOSS else MOST_REPLACED
    assert told == list(range(START + intervals * CONFIG.heartbeat_ns, START + SECOND, intervals * CONFIG.heartbeat_ns))


# The verdict


@pytest.mark.parametrize("config", [*PRESETS, CONFIG])
def test_where_nothing_is_lost_a_verdict_comes_as_soon_as_the_probes_are_over(config: DetectorConfig) -> None:
    detector = watching(B, config=config)
    happened = run(detector, START + 10 * config.suspect_ns)
    assert silence(happened) == config.suspect_ns + config.verify_attempts * config.probe_ns
    assert len([effect for _, effect in happened if effect == ask(B)]) == config.verify_attempts


def test_where_probes_are_too_few_to_be_sure_more_follow_though_nothing_is_lost() -> None:
    config = DetectorConfig(200 * MILLISECOND, 400 * MILLISECOND, 50 * MILLISECOND, 1)
    happened = run(watching(B, config=config), START + SECOND)
    by_hand = {
        probes: (400 + probes * 50) // 200 * doubt(LEAST_LOSS) + probes * doubt(1 - (1 - LEAST_LOSS) ** 2)
        for probes in range(1, 10)
    }
    enough = min(probes for probes, against in by_hand.items() if against >= ENOUGH_DOUBT)
    assert silence(happened) == (400 + enough * 50) * MILLISECOND
    assert enough > config.verify_attempts


@pytest.mark.parametrize("config", [*PRESETS, CONFIG])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_the_more_is_lost_the_longer_a_silence_is_an_accident_and_never_longer_than_the_longest(
    config: DetectorConfig, share: float
) -> None:
    times = []
    for loss in (share - 0.05, share):
        detector = watching(B, config=config)
        lossy(detector, loss, B)
        times.append(silence(run(detector, START + 2 * config.longest_ns)))
    assert times[0] <= times[1] <= config.longest_ns
    assert times[1] > config.longest_ns - config.probe_ns or share < 1


@pytest.mark.parametrize("config", [*PRESETS, CONFIG])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7])
def test_how_long_detection_takes_is_foretold(config: DetectorConfig, share: float) -> None:
    detector = watching(B, config=config)
    lossy(detector, share, B)
    foretold = detector.detection_ns
    happened = silence(run(detector, START + 2 * config.longest_ns))
    assert foretold - config.verify_attempts - config.probe_ns <= happened <= foretold + 2 * config.heartbeat_ns


def test_detection_is_foretold_for_the_worst_link() -> None:
    detector = watching(B, C)
    alone = detector.detection_ns
    link_to(detector, C).loss.share = 0.5
    assert detector.detection_ns > alone == watching().detection_ns == SUSPECTING


def test_a_peer_of_which_little_is_known_is_judged_by_what_the_others_have_shown() -> None:
    detector = watching(B, C)
    lossy(detector, 0.5)
    both = run(detector, START + 20 * SECOND)
    assert silence(both, B) == silence(both, C) > SUSPECTING


def test_no_verdict_before_an_answer_could_have_come() -> None:
    detector = watching(B)
    link = link_to(detector, B)
    for number in range(100):
        link.echoed(link.next_beat(number), 0, number + 2 * SECOND)
    timeout_ns = link.round_trip.timeout_ns
    happened = silence(run(detector, START + 20 * SECOND))
    assert timeout_ns <= happened < timeout_ns + ASK_EVERY_NS


def test_while_a_silence_is_an_accident_probes_follow_at_the_same_distance() -> None:
    detector = watching(B)
    lossy(detector, 0.5, B)
    happened = run(detector, START + 20 * SECOND)
    asked = [at for at, effect in happened if effect == ask(B)]
    assert asked == list(range(CONFIG.suspect_ns, silence(happened), ASK_EVERY_NS))
    assert len(asked) > CONFIG.verify_attempts


# Through others


def indirect(detector: FailureDetector, target: Address = B) -> list[IndirectProbe]:
    happened = run(detector, START + SUSPECTING, is_all=True)
    sent = [effect.frame for _, effect in happened if isinstance(effect, Transmit)]
    return [frame for frame in sent if isinstance(frame, IndirectProbe) and frame.target == target.incarnation]


def test_a_silent_peer_is_probed_through_those_who_are_trusted_once_in_a_round() -> None:
    detector = watching(B, C, D, view=VIEW)
    happened = [*run(detector, START + CONFIG.suspect_ns - 1, is_all=True)]
    for peer in (C, D):
        detector.heard(peer, START + CONFIG.suspect_ns - 1)
    happened = run(detector, START + CONFIG.suspect_ns + CONFIG.verify_ns - 1, is_all=True)
    probes = [(at, effect) for at, effect in happened if effect not in beat(B, C, D, view=VIEW)]
    through = [(CONFIG.suspect_ns, Transmit(peer, IndirectProbe(VIEW, B.incarnation))) for peer in (C, D)]
    assert probes == [(CONFIG.suspect_ns, ask(B)), *through, *verification(B)[1:-1]]


def test_few_are_asked_to_probe_for_us() -> None:
    others = (C, D, E, F, G)
    detector = watching(B, *others)
    for peer in others:
        detector.heard(peer, START + 1)
    assert len(indirect(detector)) == PROXIES < len(others)


def test_where_a_round_of_probes_was_no_proof_others_are_asked_again() -> None:
    detector = watching(B, C)
    lossy(detector, 0.5, B)
    asked = 0
    until = CONFIG.suspect_ns + 3 * CONFIG.verify_ns
    for now in range(START, START + until, ASK_EVERY_NS):
        detector.heard(C, now)
        asked += Transmit(C, IndirectProbe(detector._view, B.incarnation)) in detector.tick(now)
    assert asked == 3
    assert detector.standing(B) is Standing.ASKED


def asked_watcher() -> FailureDetector:
    """It watches B and C in VIEW, and B is silent and being asked."""
    detector = watching(B, C, view=VIEW)
    run(detector, START + CONFIG.suspect_ns)
    detector.heard(C, START + CONFIG.suspect_ns)
    assert detector.standing(B) is Standing.ASKED
    return detector


def vouch(detector: FailureDetector, at: int, source: Address = C, target: Address = B, view: ViewId = VIEW) -> None:
    assert detector.receive_indirect(source, Vouched(view, target.incarnation), START + at) == []


def test_one_who_is_vouched_for_is_given_a_full_time_of_probes_again_twice_at_most() -> None:
    detector = asked_watcher()
    vouched = 0
    for at in range(CONFIG.suspect_ns, 5 * SECOND, ASK_EVERY_NS):
        detector.heard(C, START + at)
        if detector.standing(B) is Standing.ASKED and detector._peers[B].asked == CONFIG.verify_attempts:
            vouch(detector, at - 1)
            vouched += 1
        if Suspected(B) in detector.tick(START + at):
            break
    assert vouched >= MOST_VOUCHES + 1
    assert detector._peers[B].vouches == MOST_VOUCHES
    rounds_ns = CONFIG.suspect_ns + (MOST_VOUCHES + 1) * CONFIG.verify_ns
    assert at == rounds_ns + 2 * ASK_EVERY_NS  # what was missed before the last vouch does not count: two more probes


def test_several_vouches_at_once_count_as_one() -> None:
    """All proxies answer the same question; only the next round of probes asks a new one."""
    detector = asked_watcher()
    for _ in range(10):
        vouch(detector, CONFIG.suspect_ns)
    assert detector._peers[B].vouches == 1
    assert silence(run(detector, START + 5 * SECOND), B) <= SUSPECTING + CONFIG.verify_ns


@pytest.mark.parametrize(
    ("source", "target", "view"),
    [(G, B, VIEW), (C, B, ViewId(2, 1)), (B, B, VIEW), (C, G, VIEW), (C, A, VIEW)],
    ids=["of a stranger", "of another view", "about itself", "about a stranger", "about us"],
)
def test_some_vouches_are_ignored(source: Address, target: Address, view: ViewId) -> None:
    detector = asked_watcher()
    run(detector, START + SUSPECTING - 1)
    if source != B:
        vouch(detector, SUSPECTING - 1, source, target, view)
        assert Suspected(B) in detector.tick(START + SUSPECTING)
    else:
        assert detector.receive_indirect(B, Vouched(view, B.incarnation), START + SUSPECTING - 1) == []
        assert detector.standing(B) is Standing.TRUSTED  # because it was heard, and not because of what it said


def test_a_vouch_does_not_clear_a_suspect_nor_does_it_count_for_one_who_is_trusted() -> None:
    detector = watching(B, C, view=VIEW)
    vouch(detector, 0)
    assert detector._peers[B].vouches == 0
    run(detector, START + SUSPECTING - 1)
    detector.heard(C, START + SUSPECTING - 1)
    run(detector, START + SUSPECTING)
    vouch(detector, SUSPECTING)
    assert detector.standing(B) is Standing.SUSPECTED


def test_no_vouch_makes_a_silence_longer_than_the_longest() -> None:
    config = DetectorConfig(100 * MILLISECOND, 500 * MILLISECOND, 200 * MILLISECOND, 4, 1_000 * MILLISECOND)
    for at in range(500, 1_000, 10):
        detector = watching(B, C, config=config, view=VIEW)
        lossy(detector, 0.5, B)
        run(detector, START + at * MILLISECOND)
        if detector.standing(B) is Standing.ASKED:
            vouch(detector, at * MILLISECOND)
        assert silence(run(detector, START + 5 * SECOND), B) <= config.longest_ns


# For others


def test_one_who_heard_the_target_a_moment_ago_vouches_at_once() -> None:
    detector = watching(B, C, view=VIEW)
    now = START + CONFIG.heartbeat_ns
    vouched = Transmit(C, Vouched(VIEW, B.incarnation))
    assert detector.receive_indirect(C, IndirectProbe(VIEW, B.incarnation), now) == [vouched]
    assert detector.receive_indirect(C, IndirectProbe(VIEW, B.incarnation), now + 1) == [ask(B)]


def test_one_who_did_not_probes_the_target_and_vouches_when_it_is_heard() -> None:
    detector = watching(B, C, D, view=VIEW)
    now = START + 2 * CONFIG.heartbeat_ns
    for asker in (C, D, C):
        assert detector.receive_indirect(asker, IndirectProbe(VIEW, B.incarnation), now) == [ask(B)]
    vouched = [Transmit(asker, Vouched(VIEW, B.incarnation)) for asker in (C, D)]
    assert detector.heard(B, now + CONFIG.verify_ns) == vouched
    assert detector.heard(B, now + CONFIG.verify_ns) == []


def test_an_asker_that_has_waited_too_long_is_not_answered() -> None:
    detector = watching(B, C, view=VIEW)
    now = START + 2 * CONFIG.heartbeat_ns
    detector.receive_indirect(C, IndirectProbe(VIEW, B.incarnation), now)
    assert detector.heard(B, now + CONFIG.verify_ns + 1) == []


def test_askers_are_members_and_are_forgotten_with_their_view() -> None:
    """Three had asked about B in a view of five; the next view had two members, and the table was larger than it."""
    detector = watching(B, C, D, E, view=VIEW)
    now = START + 2 * CONFIG.heartbeat_ns
    for asker in (C, D, E):
        detector.receive_indirect(asker, IndirectProbe(VIEW, B.incarnation), now)
    for number in range(100, 200):
        stranger = Address("stranger", "127.0.0.1", 9000, number)
        assert detector.receive_indirect(stranger, IndirectProbe(VIEW, B.incarnation), now) == []
    assert len(detector._peers[B].askers) == 3
    detector.watch([B], now, ViewId(4, 1))
    detector._check()
    assert detector.heard(B, now) == []


@pytest.mark.parametrize(
    ("source", "target", "view"),
    [(G, B, VIEW), (C, B, ViewId(2, 1)), (B, B, VIEW), (C, G, VIEW), (C, A, VIEW)],
    ids=["of a stranger", "of another view", "about itself", "about a stranger", "about us"],
)
def test_some_indirect_probes_are_ignored(source: Address, target: Address, view: ViewId) -> None:
    detector = watching(B, C, view=VIEW)
    now = START + 2 * CONFIG.heartbeat_ns
    assert detector.receive_indirect(source, IndirectProbe(view, target.incarnation), now) == []


# Pauses


def paused(for_ns: int, config: DetectorConfig = CONFIG) -> tuple[FailureDetector, int]:
    """B was silent for so long, and is heard again at the time that is returned."""
    detector = watching(B, config=config)
    run(detector, START + for_ns)
    detector.heard(B, START + for_ns)
    return detector, for_ns


@pytest.mark.parametrize("excess_ns", [0, 100 * MILLISECOND, SECOND, 60 * SECOND])
def test_who_paused_is_asked_only_after_as_long_a_silence_again(excess_ns: int) -> None:
    detector, back = paused(CONFIG.suspect_ns + excess_ns)
    begin = back + min(CONFIG.suspect_ns + excess_ns, MOST_PAUSE * CONFIG.suspect_ns)
    assert run(detector, START + begin) == [(begin, ask(B))]
    assert silence(run(detector, START + begin + CONFIG.verify_ns)) == begin + CONFIG.verify_ns


def test_a_pause_is_forgotten_by_halves() -> None:
    excess_ns = 400 * MILLISECOND
    detector, back = paused(CONFIG.suspect_ns + excess_ns)
    for halves in range(4):
        last = back + halves * PAUSE_HALF_LIFE_NS
        detector.heard(B, START + last)
        (begin, _), *_ = run(detector, START + last + CONFIG.suspect_ns + (excess_ns >> halves))
        assert begin == last + CONFIG.suspect_ns + (excess_ns >> halves)
        detector._peers[B].standing = Standing.TRUSTED  # as if it had not been asked: a shorter pause is not learned


def test_a_shorter_pause_does_not_replace_a_longer_one() -> None:
    detector, back = paused(CONFIG.suspect_ns + 400 * MILLISECOND)
    state = detector._peers[B]
    state.standing = Standing.ASKED
    detector.heard(B, START + back + CONFIG.suspect_ns + 10 * MILLISECOND)
    assert state.pause_ns == 400 * MILLISECOND


def test_a_silence_in_which_others_heard_the_peer_is_no_pause() -> None:
    detector = asked_watcher()
    vouch(detector, CONFIG.suspect_ns)
    detector.heard(B, START + CONFIG.suspect_ns + 150 * MILLISECOND)
    assert detector._peers[B].pause_ns == 0


def test_an_earlier_pause_makes_no_silence_longer_than_the_longest() -> None:
    config = DetectorConfig(100 * MILLISECOND, 500 * MILLISECOND, 200 * MILLISECOND, 4, 1_000 * MILLISECOND)
    detector, back = paused(10 * SECOND, config)
    assert silence(run(detector, START + back + 10 * SECOND)) - back == config.longest_ns


# What others wait by


def test_an_answer_is_waited_for_as_often_as_it_has_to_be_asked_for() -> None:
    detector = watching(B)
    retry_ns = 50 * MILLISECOND
    for share in (0.0, 0.1, 0.5, 0.8):
        lossy(detector, share, B)
        unanswered = 1 - (1 - max(share, LEAST_LOSS)) ** 2
        wanted = tries(unanswered, UNANSWERED_BY_CHANCE)
        assert detector.answer_ns(retry_ns, 1, 3600 * SECOND) == wanted * retry_ns
        assert wanted == ceil(log(1e-6) / log(unanswered))


def test_the_wait_for_an_answer_has_bounds_and_the_least_one_wins() -> None:
    detector = watching(B)
    lossy(detector, 0.5, B)
    retry_ns = 50 * MILLISECOND
    wanted_ns = detector.answer_ns(retry_ns, 1, 3600 * SECOND)
    assert detector.answer_ns(retry_ns, wanted_ns + 1, 3600 * SECOND) == wanted_ns + 1
    assert detector.answer_ns(retry_ns, 1, wanted_ns - 1) == wanted_ns - 1
    assert detector.answer_ns(retry_ns, 5 * SECOND, SECOND) == 5 * SECOND


def test_the_round_trip_of_the_slowest_link_is_added() -> None:
    detector = watching(B, C)
    retry_ns = 50 * MILLISECOND
    before = detector.answer_ns(retry_ns, 1, 3600 * SECOND)
    link = link_to(detector, C)
    link.echoed(link.next_beat(0), 0, SECOND)
    assert detector.answer_ns(retry_ns, 1, 3600 * SECOND) == before  # of C nothing has arrived yet
    link.arrived(1, START)
    assert detector.answer_ns(retry_ns, 1, 3600 * SECOND) == before + link.round_trip.timeout_ns


def test_the_worst_link_decides_how_long_an_answer_takes() -> None:
    detector = watching(B, C)
    link_to(detector, B).loss_out = 0.5
    both = detector.answer_ns(50 * MILLISECOND, 1, 3600 * SECOND)
    detector.watch([C], START)
    assert detector.answer_ns(50 * MILLISECOND, 1, 3600 * SECOND) < both
    assert detector.loss == 0.0


def test_one_who_is_alone_waits_by_what_it_measured_before() -> None:
    detector, retry_ns = watching(), 50 * MILLISECOND
    for share, unanswered in ((0.0, 0.0975), (0.5, 0.75)):
        lossy(detector, share)
        assert detector.loss == share
        assert detector.answer_ns(retry_ns, 1, 3600 * SECOND) == tries(unanswered, UNANSWERED_BY_CHANCE) * retry_ns


def test_what_is_repeated_may_be_missing_for_three_intervals_or_as_many_as_chance_explains() -> None:
    detector = watching(B)
    assert detector.lapse_ns == 3 * CONFIG.heartbeat_ns
    lossy(detector, 0.5)
    assert detector.lapse_ns == tries(0.5, 1e-3) * CONFIG.heartbeat_ns == 10 * CONFIG.heartbeat_ns
