"""What is measured of a link: loss from gaps, round trips from echoes, and what others wait by."""

from __future__ import annotations

from math import exp, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.membership.links import (
    BEAT_NS,
    COMMON_WEIGHT,
    LATE_BEATS,
    LEAST_LOSS,
    MOST_BEATS,
    MOST_GAP,
    MOST_LOSS,
    OWN_WEIGHT,
    Link,
    Links,
    Loss,
    doubt,
    tries,
)


def arrivals(link: Link, *beats: int) -> list[int | None]:
    return [link.arrived(beat, 0) for beat in beats]


# Gaps


def test_the_first_beat_says_nothing_about_loss_wherever_the_count_begins() -> None:
    assert arrivals(Link(), 12_345, 12_346) == [0, 0]


def test_missing_beats_are_counted_when_a_later_one_arrives() -> None:
    assert arrivals(Link(), 1, 2, 5, 6, 8) == [0, 0, 2, 0, 1]


def test_a_beat_that_was_overtaken_stays_lost_and_a_repeated_one_is_no_news() -> None:
    link = Link()
    assert arrivals(link, 1, 4, 2, 3, 4, 5) == [0, 2, None, None, None, 0]
    assert link.received == 5


def test_a_gap_counts_for_a_few_beats_however_long_it_is() -> None:
    assert arrivals(Link(), 1, 2 + MOST_GAP, 2 + MOST_GAP + MOST_BEATS) == [0, MOST_GAP, MOST_GAP]


def test_a_jump_by_more_than_any_gap_is_a_new_count() -> None:
    link = Link()
    assert arrivals(link, 1, 2 + MOST_BEATS, 3 + MOST_BEATS) == [0, 0, 0]
    assert link.received == 3 + MOST_BEATS


@pytest.mark.parametrize("before", [1, 5, MOST_BEATS, 1_000])
def test_a_peer_that_forgot_the_link_is_measured_again_at_once(before: int) -> None:
    """Its beats were below the highest one before, and the first 64 of them were taken for late ones."""
    peer, ours = Link.begun(7 * SECOND), Link()
    for _ in range(before):
        ours.arrived(peer.next_beat(0), 0)
    again = Link.begun(7 * SECOND + (before + 2 * MOST_BEATS) * BEAT_NS)
    assert not ours.is_late(again.beat + 1)
    assert arrivals(ours, *(again.next_beat(0) for _ in range(3))) == [0, 0, 0]


def test_a_beat_of_the_count_before_is_late() -> None:
    ours = Link()
    arrivals(ours, 10, 10_000)
    assert ours.is_late(11)
    assert ours.arrived(11, 0) is None


def test_a_nonsense_number_does_not_stay_for_ever() -> None:
    ours = Link()
    assert arrivals(ours, 7, (1 << 64) - 1, 8, 9) == [0, 0, 0, 0]
    assert ours.received == 9
    assert not Link(received=LATE_BEATS + 5).is_late(5)
    assert Link(received=LATE_BEATS + 5).is_late(6)


def test_when_a_late_beat_comes_the_time_of_the_highest_one_stands() -> None:
    link = Link()
    link.arrived(5, 100)
    link.arrived(4, 200)
    assert (link.received, link.received_at) == (5, 100)


# The estimate


def test_the_estimate_is_a_moving_average_of_lost_and_arrived() -> None:
    loss = Loss(OWN_WEIGHT)
    loss.count(0)
    assert loss.share == 0
    loss.count(1)
    assert loss.share == pytest.approx(OWN_WEIGHT * (1 - OWN_WEIGHT))
    loss.count(2)
    expected = 1 - (1 - OWN_WEIGHT * (1 - OWN_WEIGHT)) * (1 - OWN_WEIGHT) ** 2
    assert loss.share == pytest.approx(expected * (1 - OWN_WEIGHT))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7])
def test_the_estimate_follows_the_loss(share: float) -> None:
    rng, loss, lost, seen = Random(1), Loss(COMMON_WEIGHT), 0, []
    for _ in range(20_000):
        if rng.random() < share:
            lost += 1
        else:
            loss.count(min(lost, MOST_GAP))
            lost = 0
            seen.append(loss.share)
    # An estimate is looked at when a beat arrives, which itself lowers it by its weight.
    assert share - 2 * COMMON_WEIGHT < sum(seen) / len(seen) < share + COMMON_WEIGHT


def test_after_the_loss_has_ended_the_estimate_falls_below_what_is_assumed_anyway() -> None:
    loss = Loss(OWN_WEIGHT)
    loss.count(MOST_GAP)
    arrived = 0
    while loss.share >= LEAST_LOSS:
        loss.count(0)
        arrived += 1
    assert arrived < 24


@given(gaps=st.lists(st.integers(0, MOST_GAP), max_size=200))
def test_a_share_lies_between_none_and_all(gaps: list[int]) -> None:
    loss = Loss(OWN_WEIGHT)
    for gap in gaps:
        loss.count(gap)
        assert 0 <= loss.share <= 1


# All links together


def test_every_link_counts_for_itself_and_for_all() -> None:
    links, one, other = Links(), Link(), Link()
    for beat in (1, 4, 7, 10):
        links.arrived(one, beat, 0)
    links.arrived(other, 1, 0)
    assert other.loss.share == 0
    assert 0 < links.common.share < one.loss.share
    assert links.lost(one) == one.loss.share
    assert links.lost(other) == links.lost(None) == links.common.share


def test_late_beats_change_no_estimate() -> None:
    links, link = Links(), Link()
    for beat in (1, 4, 7):
        links.arrived(link, beat, 0)
    before = (link.loss.share, links.common.share)
    for beat in (2, 3, 5, 6):
        links.arrived(link, beat, 0)
    assert (link.loss.share, links.common.share) == before


def test_some_loss_is_assumed_even_where_none_was_seen_and_never_that_all_is_lost() -> None:
    links, link = Links(), Link()
    assert links.lost(None) == links.lost(link) == LEAST_LOSS
    assert links.unanswered(link) == pytest.approx(1 - (1 - LEAST_LOSS) ** 2)
    link.loss.share = link.loss_out = 1.0
    assert links.lost(link) == MOST_LOSS
    assert links.unanswered(link) == pytest.approx(1 - (1 - MOST_LOSS) ** 2)


def test_a_question_is_lost_on_either_way() -> None:
    links, link = Links(), Link(loss_out=0.5)
    link.loss.share = 0.2
    assert links.unanswered(link) == pytest.approx(1 - 0.8 * 0.5)


# Round trips


def sampled(*samples: tuple[int, int, int]) -> Link:
    """(beat, how long the peer kept it, when the echo came), of beats that all left at 0."""
    link = Link()
    for _ in range(10):
        link.next_beat(0)
    for beat, echo_delay_ns, now in samples:
        link.echoed(beat, echo_delay_ns, now)
    return link


def test_the_time_that_the_peer_kept_a_beat_is_no_round_trip() -> None:
    before = Link().round_trip.timeout_ns
    short, long = sampled((1, 90 * MILLISECOND, 100 * MILLISECOND)), sampled((1, 0, 100 * MILLISECOND))
    assert short.round_trip.timeout_ns < before < long.round_trip.timeout_ns


def test_a_round_trip_is_what_is_left_of_many_echoes() -> None:
    link = Link()
    for number in range(200):
        sent = number * SECOND
        link.echoed(link.next_beat(sent), 300 * MILLISECOND, sent + 320 * MILLISECOND)
    assert 20 * MILLISECOND <= link.round_trip.timeout_ns < 21 * MILLISECOND


def test_an_echo_is_used_once_and_those_that_it_overtook_not_at_all() -> None:
    once = sampled((5, 0, 100 * MILLISECOND))
    more = sampled((5, 0, 100 * MILLISECOND), (5, 0, 900 * MILLISECOND), (3, 0, 900 * MILLISECOND))
    assert once.round_trip.timeout_ns == more.round_trip.timeout_ns


def test_the_echo_of_a_beat_that_was_never_sent_says_nothing() -> None:
    assert sampled((0, 0, SECOND), (11, 0, SECOND)).round_trip.timeout_ns == Link().round_trip.timeout_ns


def test_a_peer_that_claims_to_have_kept_a_beat_for_longer_than_it_was_away_is_taken_for_near() -> None:
    assert sampled((1, 60 * SECOND, SECOND)).round_trip.timeout_ns < SECOND


def test_few_beats_wait_for_their_echo() -> None:
    link = Link()
    for _ in range(3 * MOST_BEATS):
        link.next_beat(0)
    assert len(link._sent_at) == MOST_BEATS
    link.echoed(1, 0, SECOND)
    assert link.round_trip.timeout_ns == Link().round_trip.timeout_ns


# Doubt


@given(share=st.floats(LEAST_LOSS, MOST_LOSS), times=st.integers(0, 50))
def test_doubts_add_where_chances_multiply(share: float, times: int) -> None:
    assert exp(-times * doubt(share)) == pytest.approx(share**times)


@given(share=st.floats(LEAST_LOSS, 0.99), chance=st.floats(1e-12, 0.5))
def test_so_many_tries_make_silence_rare_enough_and_one_less_does_not(share: float, chance: float) -> None:
    number = tries(share, chance)
    assert number * log(share) <= log(chance) + 1e-9
    assert (number - 1) * log(share) > log(chance) - 1e-9
