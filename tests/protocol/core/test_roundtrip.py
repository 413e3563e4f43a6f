"""The measured round trip and the timeout that follows from it: always between the floor and the ceiling."""

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.core.units import MILLISECOND, SECOND

FLOOR = 2 * MILLISECOND
CEILING = 500 * MILLISECOND
DURATIONS = st.integers(0, 100 * SECOND)


def fresh(initial: int = 10 * MILLISECOND) -> RoundTrip:
    return RoundTrip(initial, FLOOR, CEILING)


@given(initial=st.integers(1, 60 * SECOND), samples=st.lists(DURATIONS, max_size=50))
def test_the_timeout_stays_between_floor_and_ceiling(initial: int, samples: list[int]) -> None:
    round_trip = fresh(initial)
    assert FLOOR <= round_trip.timeout_ns <= CEILING
    for sample in samples:
        round_trip.sample(sample)
        assert FLOOR <= round_trip.timeout_ns <= CEILING


@given(samples=st.lists(DURATIONS, max_size=20), attempts=st.lists(st.integers(0, 1_000), min_size=2, max_size=2))
def test_backing_off_never_shortens_and_never_passes_the_ceiling(samples: list[int], attempts: list[int]) -> None:
    round_trip = fresh()
    for sample in samples:
        round_trip.sample(sample)
    fewer, more = sorted(attempts)
    assert round_trip.timeout_ns <= round_trip.backed_off(fewer) <= round_trip.backed_off(more) <= CEILING


@given(truth=st.integers(10 * MILLISECOND, 400 * MILLISECOND))
def test_the_timeout_settles_just_above_a_steady_round_trip(truth: int) -> None:
    round_trip = fresh()
    for _ in range(200):
        round_trip.sample(truth)
    assert truth - MILLISECOND <= round_trip.timeout_ns <= truth + MILLISECOND


def test_a_jittery_link_is_given_a_longer_timeout_than_a_steady_one() -> None:
    steady, jittery = fresh(), fresh()
    for number in range(100):
        steady.sample(20 * MILLISECOND)
        jittery.sample(10 * MILLISECOND if number % 2 else 30 * MILLISECOND)
    assert jittery.timeout_ns > steady.timeout_ns


def test_answers_in_no_time_at_all_end_at_the_floor() -> None:
    round_trip = fresh()
    for _ in range(500):
        round_trip.sample(0)
    assert round_trip.timeout_ns == FLOOR


def test_a_link_slower_than_the_ceiling_ends_at_the_ceiling() -> None:
    round_trip = fresh()
    for _ in range(100):
        round_trip.sample(10 * SECOND)
    assert round_trip.timeout_ns == CEILING


def test_every_second_attempt_doubles_the_timeout() -> None:
    round_trip = fresh(MILLISECOND)
    timeout = round_trip.timeout_ns
    expected = [timeout << attempt // 2 for attempt in range(6)]
    assert [round_trip.backed_off(attempt) for attempt in range(6)] == expected
    assert round_trip.backed_off(10**9) == CEILING


def test_before_the_first_measurement_the_timeout_follows_the_initial_guess() -> None:
    assert fresh(10 * MILLISECOND).timeout_ns < fresh(50 * MILLISECOND).timeout_ns
