"""The network model, feature by feature: a profile that promises loss or delay has to give just that, and no more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from statistics import mean

import pytest

from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.sim.world.network import HEALTHY, LATE_LEAST_NS, Network, NetworkProfile, draw_profile, with_late_control
from motet.sim.world.scheduler import Scheduler

A = Address("a", "127.0.0.1", 7800, 1)
B = Address("b", "127.0.0.1", 7801, 2)
C = Address("c", "127.0.0.1", 7802, 3)
A_TO_B, B_TO_A = ("a", "b"), ("b", "a")

MANY = 5_000  # so many datagrams bring a share within a few percent of its probability
FOREVER = 1_000 * SECOND


class Wire:
    """A network with a log: `arrivals` has (when, which datagram), `fates` what the network said of each."""

    def __init__(self, profile: NetworkProfile = HEALTHY, *, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(seed), profile)
        self.arrivals: list[tuple[int, int]] = []
        self.fates: list[str] = []

    def send(self, source: Address = A, to: Address = B, size: int = 100, *, control: str = "") -> str:
        number = len(self.fates)

        def arrive() -> None:
            self.arrivals.append((self.scheduler.now, number))

        fate = self.network.send(source, to, size, arrive, control=control)
        self.fates.append(fate)
        return fate

    def send_many(self, count: int) -> Counter[str]:
        for _ in range(count):
            self.send()
        self.scheduler.run_until(FOREVER)
        return Counter(self.fates)

    def delays(self, count: int) -> list[int]:
        """How long each of `count` datagrams took that all left at 0."""
        self.send_many(count)
        return [when for when, _ in self.arrivals]


def share(count: int, of: int = MANY) -> float:
    return count / of


# Loss and duplication


def test_a_healthy_network_carries_everything_once_in_order_with_a_fixed_delay() -> None:
    wire = Wire()
    assert wire.send_many(100) == {"": 100}
    assert wire.arrivals == [(HEALTHY.delay_ns, number) for number in range(100)]


@pytest.mark.parametrize("loss", [0.05, 0.3, 0.5])
def test_loss_takes_its_share(loss: float) -> None:
    wire = Wire(NetworkProfile(loss=loss))
    fates = wire.send_many(MANY)
    assert share(fates["lost"]) == pytest.approx(loss, abs=0.02)
    assert {number for _, number in wire.arrivals} == {n for n, fate in enumerate(wire.fates) if fate != "lost"}


@pytest.mark.parametrize(("size", "arrive"), [(1_472, 0.9), (1_473, 0.81), (32_000, 0.9**22)])
def test_a_large_datagram_is_lost_with_any_of_its_packets(size: int, arrive: float) -> None:
    wire = Wire(NetworkProfile(loss=0.1, packet_bytes=1_472))
    for _ in range(MANY):
        wire.send(size=size)
    assert share(wire.fates.count("")) == pytest.approx(arrive, abs=0.02)


def test_a_network_that_loses_everything_delivers_nothing() -> None:
    wire = Wire(NetworkProfile(loss=1.0))
    wire.send_many(100)
    assert wire.arrivals == []


def test_duplication_brings_its_share_twice_and_nothing_three_times() -> None:
    wire = Wire(NetworkProfile(duplication=0.2))
    fates = wire.send_many(MANY)
    assert share(fates["twice"]) == pytest.approx(0.2, abs=0.02)
    copies = Counter(number for _, number in wire.arrivals)
    assert all(copies[number] == (2 if fate == "twice" else 1) for number, fate in enumerate(wire.fates))


def test_the_two_copies_of_a_datagram_take_their_own_time() -> None:
    wire = Wire(NetworkProfile(duplication=1.0, jitter="uniform", jitter_ns=MILLISECOND))
    wire.send()
    wire.scheduler.run_until(FOREVER)
    (first, _), (second, _) = wire.arrivals
    assert first < second


def test_every_datagram_handed_over_is_counted_whatever_becomes_of_it() -> None:
    wire = Wire(NetworkProfile(loss=0.5, duplication=0.5))
    wire.network.cut([B_TO_A])
    wire.send_many(20)
    wire.send(B, A)
    assert wire.network.sent == 21


# Late control frames


LATE = NetworkProfile(late_copies=0.2, late_only=0.1, late_ns=10 * SECOND)


def test_control_frames_come_again_or_only_seconds_later() -> None:
    wire = Wire(LATE)
    for _ in range(MANY):
        wire.send(control="Prepare")
    wire.scheduler.run_until(FOREVER)
    fates = Counter(wire.fates)
    assert share(fates["late again"]) == pytest.approx(0.2, abs=0.02)
    assert share(fates["late"]) == pytest.approx(0.1, abs=0.02)
    copies = Counter(number for _, number in wire.arrivals)
    assert all(copies[number] == (2 if fate == "late again" else 1) for number, fate in enumerate(wire.fates))
    late = [when for when, _ in wire.arrivals if when > HEALTHY.delay_ns]
    assert len(late) == fates["late again"] + fates["late"]
    assert LATE_LEAST_NS <= min(late) < 2 * SECOND
    assert 9 * SECOND < max(late) <= 10 * SECOND


def test_what_carries_data_does_not_come_late() -> None:
    assert Wire(LATE).send_many(MANY) == {"": MANY}


def test_late_control_frames_still_arrive_after_cuts_and_after_healing() -> None:
    wire = Wire(replace(LATE, late_copies=1.0))
    wire.send(control="Prepare")
    wire.network.cut([A_TO_B])
    wire.network.heal()
    wire.send(control="Prepare")
    wire.scheduler.run_until(FOREVER)
    assert [number for _, number in wire.arrivals] == [0, 1, 0]
    assert wire.fates == ["late again", ""]


def test_only_some_kinds_of_control_frames_may_be_late() -> None:
    wire = Wire(replace(LATE, late_copies=1.0, late_kinds=("MergeRequest",)))
    assert [wire.send(control=kind) for kind in ("Prepare", "MergeRequest")] == ["", "late again"]


def test_a_network_that_loses_none_gets_only_second_copies() -> None:
    drawn = [with_late_control(Random(seed), HEALTHY, loses_none=True) for seed in range(100)]
    assert {profile.late_only for profile in drawn} == {0.0}
    assert {profile.late_ns for profile in drawn} == {SECOND, 3 * SECOND, 10 * SECOND}
    assert any(with_late_control(Random(seed), HEALTHY).late_only for seed in range(100))


# Cuts


def test_a_cut_is_one_way() -> None:
    wire = Wire()
    wire.network.cut([A_TO_B])
    assert wire.send(A, B) == "cut"
    assert [wire.send(B, A), wire.send(A, C), wire.send(C, B)] == ["", "", ""]
    wire.scheduler.run_until(FOREVER)
    assert [number for _, number in wire.arrivals] == [1, 2, 3]


def test_a_mended_link_carries_again() -> None:
    wire = Wire()
    wire.network.cut([A_TO_B])
    wire.send()
    wire.network.mend([A_TO_B])
    assert wire.send() == ""
    wire.scheduler.run_until(FOREVER)
    assert [number for _, number in wire.arrivals] == [1]  # what was sent into the cut stays lost


def test_two_overlapping_cuts_need_two_mends() -> None:
    wire = Wire()
    wire.network.cut([A_TO_B])
    wire.network.cut([A_TO_B, B_TO_A])
    wire.network.mend([A_TO_B])
    assert wire.send(A, B) == "cut"
    wire.network.mend([A_TO_B, B_TO_A])
    assert [wire.send(A, B), wire.send(B, A)] == ["", ""]


def test_a_mend_too_many_does_not_protect_from_the_next_cut() -> None:
    wire = Wire()
    wire.network.mend([A_TO_B])
    wire.network.cut([A_TO_B])
    assert wire.send() == "cut"


def test_what_is_under_way_when_the_link_is_cut_still_arrives() -> None:
    wire = Wire()
    wire.send()
    wire.network.cut([A_TO_B])
    wire.scheduler.run_until(FOREVER)
    assert len(wire.arrivals) == 1


def test_a_restarted_process_is_behind_the_same_cut() -> None:
    wire = Wire()
    wire.network.cut([A_TO_B])
    assert wire.send(A, replace(B, incarnation=99)) == "cut"


# Bandwidth

NARROW = NetworkProfile(delay_ns=0, bytes_per_second=1_000, queue_bytes=1_000)


def test_datagrams_leave_one_after_the_other_as_the_bandwidth_allows() -> None:
    wire = Wire(NARROW)
    for size in (100, 300, 50):
        wire.send(size=size)
    wire.scheduler.run_until(FOREVER)
    assert wire.arrivals == [(100 * MILLISECOND, 0), (400 * MILLISECOND, 1), (450 * MILLISECOND, 2)]


def test_what_finds_more_than_a_full_queue_is_dropped() -> None:
    wire = Wire(NARROW)
    fates = [wire.send(size=500) for _ in range(5)]
    assert fates == ["", "", "", "queue full", "queue full"]  # 0, 500 and 1,000 bytes wait; 1,500 are too many
    wire.scheduler.run_until(FOREVER)
    assert [number for _, number in wire.arrivals] == [0, 1, 2]


def test_a_queue_that_has_drained_takes_datagrams_again() -> None:
    wire = Wire(NARROW)
    for _ in range(4):
        wire.send(size=500)
    wire.scheduler.run_until(500 * MILLISECOND)  # the first one has left
    assert [wire.send(size=500), wire.send(size=500)] == ["", "queue full"]
    wire.scheduler.run_until(10 * SECOND)
    wire.send(size=500)
    wire.scheduler.run_until(FOREVER)
    assert wire.arrivals[-1] == (10_500 * MILLISECOND, 6)  # an idle link saves up no bandwidth


def test_each_direction_of_each_link_has_its_own_bandwidth() -> None:
    wire = Wire(NARROW)
    for _ in range(4):
        wire.send(A, B, size=500)
    assert [wire.send(B, A, size=500), wire.send(A, C, size=500)] == ["", ""]
    wire.scheduler.run_until(500 * MILLISECOND)
    assert {number for _, number in wire.arrivals} == {0, 4, 5}


def test_without_a_limit_nothing_queues() -> None:
    wire = Wire(replace(NARROW, bytes_per_second=0))
    for _ in range(100):
        assert wire.send(size=60_000) == ""
    wire.scheduler.run_until(0)
    assert len(wire.arrivals) == 100


# Delay

BASE = NetworkProfile(delay_ns=10 * MILLISECOND, jitter_ns=4 * MILLISECOND)


def extra_delays(profile: NetworkProfile) -> list[int]:
    """What a network adds to the delay that all datagrams have."""
    return [delay - profile.delay_ns for delay in Wire(profile).delays(MANY)]


def test_no_jitter_means_a_fixed_delay() -> None:
    assert set(extra_delays(replace(BASE, jitter="none"))) == {0}


def test_uniform_jitter_is_spread_evenly_up_to_its_limit() -> None:
    extra = extra_delays(replace(BASE, jitter="uniform"))
    assert min(extra) >= 0
    assert max(extra) <= BASE.jitter_ns
    for quarter in range(4):
        low, high = quarter * MILLISECOND, (quarter + 1) * MILLISECOND
        assert share(sum(low <= delay < high for delay in extra)) == pytest.approx(0.25, abs=0.03)


def test_exponential_jitter_has_its_mean_and_a_thin_tail() -> None:
    extra = extra_delays(replace(BASE, jitter="exponential"))
    assert min(extra) >= 0
    assert mean(extra) == pytest.approx(BASE.jitter_ns, rel=0.1)
    beyond = [share(sum(delay > factor * BASE.jitter_ns for delay in extra)) for factor in (1, 3, 20)]
    assert beyond == [pytest.approx(0.368, abs=0.03), pytest.approx(0.05, abs=0.02), 0]


def test_heavy_jitter_has_a_long_tail_with_an_end() -> None:
    extra = extra_delays(replace(BASE, jitter="heavy"))
    assert min(extra) >= 0
    assert share(sum(delay > 3 * BASE.jitter_ns for delay in extra)) == pytest.approx(0.125, abs=0.02)
    assert share(sum(delay > 20 * BASE.jitter_ns for delay in extra)) == pytest.approx(0.0104, abs=0.006)
    assert max(extra) <= 100 * BASE.jitter_ns


def test_jitter_lets_datagrams_overtake() -> None:
    wire = Wire(replace(BASE, jitter="uniform"))
    wire.send_many(100)
    assert [number for _, number in wire.arrivals] != list(range(100))


def test_reordering_delays_its_share_by_no_more_than_it_says() -> None:
    extra = extra_delays(NetworkProfile(reordering=0.2, reorder_ns=5 * MILLISECOND))
    late = [delay for delay in extra if delay]
    assert share(len(late)) == pytest.approx(0.2, abs=0.02)
    assert 4 * MILLISECOND < max(late) <= 5 * MILLISECOND


def test_stragglers_come_when_nobody_expects_them_any_more() -> None:
    extra = extra_delays(NetworkProfile(stragglers=0.1, straggler_ns=SECOND))
    late = [delay for delay in extra if delay]
    assert share(len(late)) == pytest.approx(0.1, abs=0.02)
    assert 900 * MILLISECOND < max(late) <= SECOND
    assert mean(late) == pytest.approx(SECOND / 2, rel=0.1)


def test_stragglers_can_all_be_late_by_the_same_time() -> None:
    profile = NetworkProfile(delay_ns=0, stragglers=0.5, straggler_ns=2 * SECOND, straggler_least_ns=2 * SECOND)
    assert set(Wire(profile).delays(100)) == {0, 2 * SECOND}


def test_only_datagrams_that_are_small_enough_straggle() -> None:
    wire = Wire(NetworkProfile(stragglers=1.0, straggler_ns=SECOND, straggler_bytes=60))
    for size in (60, 61) * 50:
        wire.send(size=size)
    wire.scheduler.run_until(FOREVER)
    late = {number for when, number in wire.arrivals if when > HEALTHY.delay_ns}
    assert late == set(range(0, 100, 2))


def test_a_datagram_can_be_reordered_and_a_straggler_at_once() -> None:
    extra = extra_delays(NetworkProfile(reordering=1.0, reorder_ns=1_000, stragglers=1.0, straggler_ns=1_000))
    assert 1_000 < max(extra) <= 2_000


# Healing


def test_a_healed_network_carries_everything_soon_and_once() -> None:
    terrible = NetworkProfile(
        loss=0.9, duplication=0.9, delay_ns=SECOND, jitter="heavy", jitter_ns=SECOND, stragglers=1.0, bytes_per_second=1
    )
    wire = Wire(terrible)
    wire.network.cut([A_TO_B])
    wire.network.cut([A_TO_B])
    wire.network.heal()
    assert wire.send_many(100) == {"": 100}
    assert {when for when, _ in wire.arrivals} == {HEALTHY.delay_ns}


def test_a_mend_that_comes_after_the_healing_changes_nothing() -> None:
    wire = Wire()
    wire.network.cut([A_TO_B])
    wire.network.heal()
    wire.network.mend([A_TO_B])
    assert wire.send() == ""


def test_healing_does_not_bring_back_what_is_under_way() -> None:
    wire = Wire(NetworkProfile(delay_ns=SECOND))
    wire.send()
    wire.network.heal()
    wire.send()
    wire.scheduler.run_until(FOREVER)
    assert wire.arrivals == [(HEALTHY.delay_ns, 1), (SECOND, 0)]


# Determinism and drawing


def test_the_same_randomness_gives_the_same_fates_and_other_randomness_others() -> None:
    profile = NetworkProfile(loss=0.3, duplication=0.3, jitter="heavy", jitter_ns=MILLISECOND, reordering=0.3)
    first, again, other = Wire(profile, seed=5), Wire(profile, seed=5), Wire(profile, seed=6)
    for wire in (first, again, other):
        wire.send_many(200)
    assert (first.fates, first.arrivals) == (again.fates, again.arrivals)
    assert first.arrivals != other.arrivals


def test_drawn_networks_stay_within_what_a_group_can_survive() -> None:
    profiles = [draw_profile(Random(seed)) for seed in range(300)]
    assert max(profile.loss for profile in profiles) <= 0.5
    shares = [s for profile in profiles for s in (profile.duplication, profile.reordering, profile.stragglers)]
    assert min(shares) >= 0
    assert max(shares) <= 0.3
    assert max(profile.delay_ns for profile in profiles) < 40 * MILLISECOND
    assert {profile.jitter for profile in profiles} == {"none", "uniform", "exponential", "heavy"}


def test_a_profile_describes_itself_to_a_reader() -> None:
    text = str(NetworkProfile(loss=0.25, duplication=0.1, jitter="heavy", stragglers=0.3, bytes_per_second=500_000))
    for part in ("loss 25%", "duplication 10%", "heavy", "stragglers 30%", "500,000 B/s"):
        assert part in text
    assert "bandwidth unlimited" in str(HEALTHY)
