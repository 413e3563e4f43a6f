"""The failure detector against its own formula: how soon a crash is suspected, how rarely the living are."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from itertools import count
from math import log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.protocol.core.effects import Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.membership import DetectorConfig, FailureDetector, MembershipConfig
from motet.protocol.membership import detector as detectors
from motet.protocol.membership.detector import Suspected
from motet.protocol.membership.links import Link, Links
from motet.protocol.wire.frames import AreYouAlive, Heartbeat, IAmAlive
from tests.protocol.membership.people import A, B

MOST_STEPS = 400_000  # of one run; more means that time stands still


class Two:
    """A and B watch each other over a link that loses and delays. B may crash. Neither says anything else."""

    def __init__(
        self, config: DetectorConfig, rng: Random, *, loss: float = 0.0, latency_ns: tuple[int, int] = (0, 0)
    ) -> None:
        self._rng, self._loss, self._latency_ns = rng, loss, latency_ns
        self._detectors = {A: FailureDetector(A, config), B: FailureDetector(B, config)}
        self._flights: list[tuple[int, int, Address, Frame]] = []
        self._numbers = count()
        self.seen: Counter[str] = Counter()
        self.received_at = 0  # when a frame of B arrived at A last
        self.suspected_at: int | None = None
        for detector, peer in zip(self._detectors.values(), (B, A), strict=True):
            detector.watch([peer], 0)

    def crash(self) -> None:
        """What is on its way still arrives."""
        del self._detectors[B]

    def run(self, until: int) -> None:
        for _ in range(MOST_STEPS):
            if (now := self._next()) > until:
                return
            while self._flights and self._flights[0][0] <= now:
                _, _, to, frame = heappop(self._flights)
                self._arrive(to, frame, now)
            for who, detector in self._detectors.items():
                deadline = detector.next_deadline()
                if deadline is not None and deadline <= now:
                    self._perform(who, detector.tick(now), now)
        raise AssertionError("a deadline that no tick moves")

    def _next(self) -> int:
        deadlines = [detector.next_deadline() for detector in self._detectors.values()]
        flights = [flight[0] for flight in self._flights[:1]]
        return min([*flights, *(deadline for deadline in deadlines if deadline is not None)])

    def _arrive(self, to: Address, frame: Frame, now: int) -> None:
        if to not in self._detectors:
            return
        source = B if to == A else A
        if to == A:
            self.received_at = now
            self.seen["silences"] += 1  # each frame begins one
        assert isinstance(frame, AreYouAlive | IAmAlive | Heartbeat)
        self._perform(to, self._detectors[to].receive(source, frame, now), now)

    def _perform(self, who: Address, effects: list[Effect], now: int) -> None:
        for effect in effects:
            if isinstance(effect, Transmit) and self._rng.random() >= self._loss:
                arrival = now + self._rng.randint(*self._latency_ns)
                heappush(self._flights, (arrival, next(self._numbers), effect.to, effect.frame))
            elif isinstance(effect, Suspected) and who == A:
                self.suspected_at = now
                self.seen["suspicions"] += 1


@settings(max_examples=150)
@given(
    crash_ns=st.integers(2 * SECOND, 4 * SECOND),
    latency_ns=st.integers(0, 60 * MILLISECOND),
    config=st.sampled_from(
        [
            MembershipConfig.local().detector,
            MembershipConfig.lan().detector,
            DetectorConfig(heartbeat_ns=100 * MILLISECOND, suspect_ns=500 * MILLISECOND),
            DetectorConfig(verify_attempts=1),
            DetectorConfig(heartbeat_ns=200 * MILLISECOND, suspect_ns=1010 * MILLISECOND, verify_ns=50 * MILLISECOND),
        ]
    ),
)
def test_a_crash_at_any_moment_is_suspected_within_the_stated_bounds(
    crash_ns: int, latency_ns: int, config: DetectorConfig
) -> None:
    two = Two(config, Random(0), latency_ns=(latency_ns, latency_ns))
    two.run(crash_ns)
    assert two.seen["suspicions"] == 0
    two.crash()
    two.run(crash_ns + 10 * SECOND)
    assert two.suspected_at is not None
    assert two.seen["suspicions"] == 1
    silence_ns = two.suspected_at - two.received_at
    assert config.suspect_ns <= silence_ns <= config.suspect_ns + config.verify_ns + config.heartbeat_ns
    assert silence_ns == config.suspect_ns + config.verify_ns  # exactly, where every tick is in time
    since_crash_ns = two.suspected_at - crash_ns
    assert silence_ns - config.heartbeat_ns <= since_crash_ns <= silence_ns + latency_ns


@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 32), crash_ns=st.integers(20 * SECOND, 22 * SECOND))
def test_a_crash_is_suspected_within_the_longest_time_also_where_a_third_is_lost(seed: int, crash_ns: int) -> None:
    config = DetectorConfig()
    two = Two(config, Random(seed), loss=0.33, latency_ns=(MILLISECOND, 40 * MILLISECOND))
    two.run(crash_ns)
    two.crash()
    two.run(crash_ns + 2 * config.longest_ns)
    assert two.suspected_at is not None
    assert config.suspect_ns + config.verify_ns <= two.suspected_at - two.received_at <= config.longest_ns


def known(monkeypatch: pytest.MonkeyPatch, loss: float, false_positives: float) -> None:
    """The loss is known exactly, and false suspicions are frequent enough to be counted."""

    def lost(self: Links, link: Link | None) -> float:
        return loss

    def unanswered(self: Links, link: Link | None) -> float:
        return 1 - (1 - loss) ** 2

    monkeypatch.setattr(Links, "lost", lost)
    monkeypatch.setattr(Links, "unanswered", unanswered)
    monkeypatch.setattr(detectors, "ENOUGH_DOUBT", -log(false_positives))


def measured(config: DetectorConfig, loss: float) -> float:
    """The share of silences that end in a false suspicion; every frame that arrives begins one."""
    two = Two(config, Random(1), loss=loss, latency_ns=(MILLISECOND, 20 * MILLISECOND))
    two.run(20_000 * config.heartbeat_ns)
    assert two.seen["suspicions"] > 20
    return two.seen["suspicions"] / two.seen["silences"]


# The two conditions that hold on a good network are as weak as they can be, so that the formula alone decides.
EAGER = DetectorConfig(100 * MILLISECOND, 200 * MILLISECOND, 50 * MILLISECOND, 1)
PROBING = DetectorConfig(SECOND, 2 * SECOND, 300 * MILLISECOND, 6)  # most of the evidence comes from probes


@pytest.mark.parametrize("config", [EAGER, PROBING], ids=["heartbeats", "probes"])
@pytest.mark.parametrize("loss", [0.4, 0.5, 0.6, 0.7])
def test_false_suspicions_are_no_more_frequent_than_stated(
    config: DetectorConfig, loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, loss, false_positives=1e-2)
    assert measured(config, loss) <= 1e-2


@pytest.mark.parametrize("false_positives", [1e-1, 1e-2])
def test_the_bound_is_not_far_above_what_happens(false_positives: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise crashes would be noticed later than they have to be."""
    known(monkeypatch, 0.5, false_positives)
    assert false_positives / 10 < measured(EAGER, 0.5) <= false_positives


@pytest.mark.parametrize("loss", [0.3, 0.5])
def test_with_the_loss_as_measured_nobody_is_suspected_in_an_hour(loss: float) -> None:
    two = Two(DetectorConfig(), Random(1), loss=loss, latency_ns=(MILLISECOND, 20 * MILLISECOND))
    two.run(3600 * SECOND)
    assert two.seen["suspicions"] == 0
