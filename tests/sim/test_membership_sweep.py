"""The scenario `membership`: a stretch of seeds that passes, and proof that the seeds draw what they promise."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from motet.protocol.core.units import MILLISECOND, SECOND
from motet.sim.runner import SCENARIOS, run_seed
from motet.sim.scenarios.group_plan import (
    CLUSTER_NS,
    KEEPING_STATE,
    LARGE_GROUP,
    MID_CHANGE,
    GroupFaultKind,
    GroupPlan,
    draw_group_plan,
    draw_large_plan,
    endpoint_of,
)
from motet.sim.scenarios.membership import run_membership

CHUNK = 5  # seeds per test, so that the workers of a parallel run share them evenly
SWEEP = [range(start, start + CHUNK) for start in range(0, 60, CHUNK)]
DRAWN = range(400)
KINDS = [kind for kind in GroupFaultKind if kind is not GroupFaultKind.BUSY]  # each world of the scenario `busy` has it


@pytest.mark.parametrize("seeds", SWEEP, ids=lambda seeds: f"{seeds.start}:{seeds.stop}")
def test_seeds_pass(seeds: range) -> None:
    outcomes = [run_seed("membership", seed) for seed in seeds]
    failed = [
        f"{outcome.violations[0]}\n  replay: motet sim --seed {outcome.seed} --scenario membership --transcript"
        for outcome in outcomes
        if not outcome.is_ok
    ]
    assert not failed, "\n" + "\n".join(failed)
    for what in ("delivered", "views", "merges"):  # a world in which nothing happens proves nothing
        assert sum(outcome.stats[what] for outcome in outcomes) > 0, what


def test_both_scenarios_can_be_run_by_name() -> None:
    assert {"membership", "membership-100"} <= SCENARIOS.keys()


def test_the_same_seed_gives_the_same_run_watched_or_not() -> None:
    for seed in (2, 7, 11):
        watched, unwatched = run_membership(seed, with_transcript=True), run_membership(seed)
        assert run_membership(seed, with_transcript=True) == watched
        assert (unwatched.fingerprint, unwatched.stats) == (watched.fingerprint, watched.stats)
        assert unwatched.transcript == ()


def test_a_transcript_begins_with_the_plan_and_tells_of_faults_and_views() -> None:
    seed = next(seed for seed in DRAWN if len(draw_group_plan(seed).faults) >= 3)
    plan, outcome = draw_group_plan(seed), run_membership(seed, with_transcript=True)
    assert list(outcome.transcript[: len(plan.describe())]) == plan.describe()
    for fault in plan.faults:
        assert any(line.endswith(f"fault: {fault}") for line in outcome.transcript)
    for what in ("enters view", "a merge of", "starts", "all is healed"):
        assert any(what in line for line in outcome.transcript), what


# What the seeds draw


@cache
def plans() -> tuple[GroupPlan, ...]:
    return tuple(map(draw_group_plan, DRAWN))


def test_drawing_the_same_seed_again_gives_the_same_plan() -> None:
    assert tuple(map(draw_group_plan, DRAWN)) == plans()
    assert len({str(plan) for plan in plans()}) == len(DRAWN)


def test_groups_have_one_to_fifteen_members_and_mostly_three_to_seven() -> None:
    sizes = [len(plan.names) for plan in plans()]
    assert min(sizes) == 1
    assert max(sizes) == 15
    assert sum(3 <= size <= 7 for size in sizes) > len(sizes) / 2


def test_seeds_are_one_three_or_all_of_the_members() -> None:
    for plan in plans():
        homes = {endpoint_of(index) for index in range(len(plan.names))}
        assert set(plan.seeds) <= homes
        assert len(plan.seeds) in (1, 3, len(plan.names))


def test_some_start_all_at_once_and_some_over_two_seconds() -> None:
    spreads = [max(plan.starts) - min(plan.starts) for plan in plans() if len(plan.names) > 2]
    assert spreads.count(0) >= 5
    assert max(spreads) > SECOND
    assert max(spreads) <= 2 * SECOND


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_every_kind_of_fault_is_drawn_in_more_than_one_world(kind: GroupFaultKind) -> None:
    assert sum(any(fault.kind is kind for fault in plan.faults) for plan in plans()) >= 5


def test_faults_come_in_clusters_that_hit_inside_one_view_change() -> None:
    gaps = [
        after.at - before.at for plan in plans() for before, after in zip(plan.faults, plan.faults[1:], strict=False)
    ]
    assert sum(gap < CLUSTER_NS for gap in gaps) >= 50
    assert sum(gap > SECOND for gap in gaps) >= 50


def test_every_fifth_world_lies_in_wait_for_view_changes() -> None:
    for plan in plans():
        ambushes = [fault for fault in plan.faults if fault.after_change_ns is not None]
        assert bool(ambushes) == (plan.seed % MID_CHANGE == MID_CHANGE - 1)
    waiting = [fault for plan in plans() for fault in plan.faults if fault.after_change_ns is not None]
    assert {fault.hits_first for fault in waiting} == {True, False}


def test_an_ambush_strikes_in_the_middle_of_a_view_change() -> None:
    seed = next(plan.seed for plan in plans() if plan.seed % MID_CHANGE == MID_CHANGE - 1 and len(plan.names) > 2)
    transcript = run_membership(seed, with_transcript=True).transcript
    faults = [line.partition("fault: ")[2] for line in transcript if "fault: " in line]
    planned = {str(fault) for fault in draw_group_plan(seed).faults}
    assert any("into a view change" in fault for fault in planned)
    assert any(fault not in planned for fault in faults), "none was sprung"


def test_some_groups_are_restarted_one_after_the_other() -> None:
    rolling = [
        plan
        for plan in plans()
        if {fault.who for fault in plan.faults if fault.kind is GroupFaultKind.RESTART} == set(range(len(plan.names)))
    ]
    assert sum(len(plan.names) >= 3 for plan in rolling) >= 5


def test_some_processes_restart_with_their_memory_and_some_groups_as_a_whole() -> None:
    modulus, remainders = KEEPING_STATE
    for plan in plans():
        assert plan.seed % modulus in remainders or not any(fault.keeps_durable_state for fault in plan.faults)
    remembering = [plan for plan in plans() if any(fault.keeps_durable_state for fault in plan.faults)]
    assert len(remembering) > len(DRAWN) / 5
    assert sum(not plan.is_durable_state_lost for plan in remembering) > len(remembering) / 3
    blackouts = [plan for plan in remembering if _most_at_once(plan) == len(plan.names) > 2]
    assert len(blackouts) > len(DRAWN) / 10


def _most_at_once(plan: GroupPlan) -> int:
    return max(Counter(fault.at for fault in plan.faults if fault.keeps_durable_state).values())


def test_partitions_have_two_or_three_sides() -> None:
    partitions = [f for plan in plans() for f in plan.faults if f.kind is GroupFaultKind.PARTITION]
    assert {len(set(fault.sides)) for fault in partitions} >= {2, 3}
    assert all(300 * MILLISECOND <= fault.lasts_ns <= 6 * SECOND for fault in partitions)


def test_networks_are_such_that_a_detector_can_live_with_them() -> None:
    losses = [plan.network.loss for plan in plans()]
    assert max(losses) <= 0.35
    assert sum(loss > 0.2 for loss in losses) >= 5
    assert sum(loss <= 0.2 for loss in losses) > len(losses) / 2


def test_some_worlds_let_all_partitions_go_on_and_some_have_a_static_quorum() -> None:
    assert sum(not plan.is_one_primary for plan in plans()) >= 20
    quorums = [(plan.membership.engine.static_quorum, len(plan.names)) for plan in plans()]
    assert sum(quorum > 0 for quorum, _ in quorums) >= 20
    assert all(quorum == members // 2 + 1 for quorum, members in quorums if quorum)


def test_windows_are_small_and_large_and_differ_within_a_group() -> None:
    assert {window for plan in plans() for window in plan.windows} >= {1, 2, 4, 16, 64}
    assert any(len(set(plan.windows)) > 1 for plan in plans())


def test_a_process_that_lost_its_memory_must_not_found() -> None:
    plan = plans()[0]
    for may_bootstrap in (True, False):
        membership = plan.config_of(0, may_bootstrap=may_bootstrap).membership
        assert membership is not None
        assert membership.may_bootstrap is may_bootstrap


def test_the_large_plan_is_a_hundred_members_a_partition_and_a_crash() -> None:
    plan = draw_large_plan(1)
    assert len(plan.names) == LARGE_GROUP == 100
    assert set(plan.starts) == {0}
    assert sorted(fault.kind.value for fault in plan.faults) == ["crash", "partition"]
