"""The scenario `channels`: a stretch of seeds that passes, and proof that the seeds draw what they promise."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from motet.protocol.core.units import MILLISECOND
from motet.sim.runner import run_seed
from motet.sim.world.plan import FORGETS, ChannelsPlan, PlannedFaultKind, draw_plan

CHUNK = 10  # seeds per test, so that the workers of a parallel run share them evenly
SWEEP = [range(start, start + CHUNK) for start in range(0, 80, CHUNK)]
DRAWN = range(300)


@pytest.mark.parametrize("seeds", SWEEP, ids=lambda seeds: f"{seeds.start}:{seeds.stop}")
def test_seeds_pass(seeds: range) -> None:
    outcomes = [run_seed("channels", seed) for seed in seeds]
    failed = [
        f"{outcome.violations[0]}\n  replay: motet sim --seed {outcome.seed} --transcript"
        for outcome in outcomes
        if not outcome.is_ok
    ]
    assert not failed, "\n" + "\n".join(failed)
    for what in ("delivered", "resent", "faults"):  # a world in which nothing happens proves nothing
        assert sum(outcome.stats[what] for outcome in outcomes) > 0, what


# What the seeds draw


@cache
def plans() -> tuple[ChannelsPlan, ...]:
    return tuple(map(draw_plan, DRAWN))


def test_drawing_the_same_seed_again_gives_the_same_plan() -> None:
    assert tuple(map(draw_plan, DRAWN)) == plans()
    assert len({str(plan) for plan in plans()}) == len(DRAWN)


@pytest.mark.parametrize("kind", PlannedFaultKind, ids=lambda kind: kind.value)
def test_every_kind_of_fault_is_drawn_in_more_than_one_world(kind: PlannedFaultKind) -> None:
    """Crash, restart, expel, pause, cut, isolate, slow reader, close, forget, sync."""
    assert sum(any(fault.kind is kind for fault in plan.faults) for plan in plans()) >= 5


def test_some_networks_lose_more_than_forty_percent_and_some_nothing() -> None:
    assert sum(plan.network.loss > 0.4 for plan in plans()) >= 5
    assert sum(plan.network.loss == 0 for plan in plans()) >= 5


@pytest.mark.parametrize("share", ["duplication", "reordering", "stragglers"])
def test_some_networks_have_plenty_of_it_and_some_none(share: str) -> None:
    assert sum(getattr(plan.network, share) > 0.2 for plan in plans()) >= 5
    assert sum(getattr(plan.network, share) == 0 for plan in plans()) >= 5


def test_some_networks_are_wide_and_some_narrow() -> None:
    assert {plan.network.jitter for plan in plans()} == {"none", "uniform", "exponential", "heavy"}
    assert any(plan.network.bytes_per_second for plan in plans())
    assert any(not plan.network.bytes_per_second for plan in plans())


def test_groups_have_two_to_six_members() -> None:
    assert {len(plan.names) for plan in plans()} == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("channel", ["unicast", "multicast"])
def test_in_some_groups_every_window_holds_one_frame_and_in_some_many(channel: str) -> None:
    windows = [{getattr(config, channel).capacity for config in plan.configs} for plan in plans()]
    assert windows.count({1}) >= 5
    assert windows.count({64}) >= 5


def test_in_some_groups_one_member_has_a_smaller_window_than_another() -> None:
    assert any(len({config.multicast.capacity for config in plan.configs}) > 1 for plan in plans())


def test_some_worlds_remember_dropped_windows_and_those_that_do_not_drop_many() -> None:
    drops: dict[bool, list[int]] = {True: [], False: []}
    for plan in plans():
        drops[plan.remembers].append(sum(fault.kind is PlannedFaultKind.FORGET for fault in plan.faults))
    assert min(len(worlds) for worlds in drops.values()) >= 20
    assert mean(drops[False]) > 2 * mean(drops[True]) > 0


def test_some_idle_connections_are_reaped_while_the_world_runs() -> None:
    assert any(0 < config.unicast.conn_expiry_ns < plan.duration_ns for plan in plans() for config in plan.configs)


def test_faults_strike_during_the_run_one_process_and_another() -> None:
    faults = [(fault, plan) for plan in plans() for fault in plan.faults]
    for fault, plan in faults:
        assert 0 <= fault.at < plan.duration_ns
        assert fault.who != fault.other
        assert {fault.who, fault.other} <= set(range(len(plan.names)))
        assert fault.lasts_ns > 0


def test_some_worlds_have_no_fault_and_some_have_many() -> None:
    counts = {len(plan.faults) for plan in plans()}
    assert min(counts) == 0
    assert max(counts) >= 8


def test_some_cuts_overlap() -> None:
    assert any(
        first.at < second.at < first.at + first.lasts_ns
        for plan in plans()
        for first in plan.faults
        for second in plan.faults
        if first.kind is PlannedFaultKind.CUT and second.kind is PlannedFaultKind.ISOLATE and first.who == second.who
    )


def test_the_workload_has_multicasts_unicasts_full_bursts_and_messages_that_need_fragments() -> None:
    bursts = [(burst, plan) for plan in plans() for burst in plan.bursts]
    assert any(burst.to is None for burst, _ in bursts)
    assert any(burst.to not in (None, burst.who) for burst, _ in bursts)
    assert any(burst.to == burst.who for burst, _ in bursts)  # a message to oneself
    assert any(len(burst.sizes) == 20 for burst, _ in bursts)
    assert any(max(burst.sizes) > 2 * plan.configs[0].frame_bytes for burst, plan in bursts)


def test_whoever_drops_a_window_is_sent_messages_around_each_drop() -> None:
    for plan in plans():
        for fault in (fault for fault in plan.faults if fault.kind is PlannedFaultKind.FORGET):
            first, end = fault.at - 50 * MILLISECOND, fault.at + fault.lasts_ns
            around = [burst for burst in plan.bursts if first <= burst.at <= end]
            to_it = [burst for burst in around if (burst.who, burst.to) == (fault.other, fault.who)]
            assert len(to_it) > FORGETS


def test_a_plan_describes_its_network_and_each_of_its_faults() -> None:
    plan = next(plan for plan in plans() if len(plan.faults) >= 4)
    lines = plan.describe()
    assert f"seed {plan.seed}: {len(plan.names)} members" in lines[0]
    assert str(plan.network) in lines[1]
    assert lines[-len(plan.faults) :] == [f"fault at {fault}" for fault in plan.faults]


@pytest.mark.parametrize("seed", [11991, 17002])
def test_a_receiver_with_a_gap_does_not_ask_a_dead_sender_for_ever(seed: int) -> None:
    """Found by a campaign: nobody told the receiver that the sender was gone, and idle windows were not reaped."""
    assert run_seed("channels", seed).violations == ()
