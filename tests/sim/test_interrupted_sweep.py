"""The scenario `interrupted`: a range of seeds without violations, the drawn plans, and how triggers fire."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from motet.protocol.core.units import MILLISECOND, SECOND
from motet.sim.checkers.channels import Violation
from motet.sim.runner import SCENARIOS, run_seed
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import GroupFault, GroupFaultKind, GroupPlan
from motet.sim.scenarios.interrupted import InterruptedWorld, run_interrupted
from motet.sim.scenarios.interrupted_plan import CHANGE_FRAMES, GATHERED_NS, MERGE_FRAMES, draw_interrupted_plan
from motet.sim.scenarios.membership import run_world
from motet.sim.world.history import EnteredView
from motet.sim.world.network import NetworkProfile

CHUNK = 10
SWEEP = [range(start, start + CHUNK) for start in range(0, 60, CHUNK)]
DRAWN = range(300)


@pytest.mark.parametrize("seeds", SWEEP, ids=lambda seeds: f"{seeds.start}:{seeds.stop}")
def test_seeds_pass(seeds: range) -> None:
    outcomes = [run_seed("interrupted", seed) for seed in seeds]
    failed = [
        f"{outcome.violations[0]}\n  replay: motet sim --seed {outcome.seed} --scenario interrupted --transcript"
        for outcome in outcomes
        if not outcome.is_ok
    ]
    assert not failed, "\n" + "\n".join(failed)
    for what in ("delivered", "views", "merges", "triggered", "accusations"):  # where nothing happens nothing is proved
        assert sum(outcome.stats[what] for outcome in outcomes) > 0, what


def test_it_can_be_run_by_name() -> None:
    assert SCENARIOS["interrupted"] is run_interrupted


def test_the_same_seed_gives_the_same_run_watched_or_not() -> None:
    for seed in (1, 4):
        watched, unwatched = run_interrupted(seed, with_transcript=True), run_interrupted(seed)
        assert run_interrupted(seed, with_transcript=True) == watched
        assert (unwatched.fingerprint, unwatched.stats) == (watched.fingerprint, watched.stats)


# What the seeds draw


@cache
def plans() -> tuple[GroupPlan, ...]:
    return tuple(map(draw_interrupted_plan, DRAWN))


def triggers() -> list[GroupFault]:
    return [fault for plan in plans() for fault in plan.faults if fault.awaits]


def test_the_network_loses_nothing_and_a_round_trip_is_short() -> None:
    for plan in plans():
        network, detector = plan.network, plan.membership.detector
        lossless = replace(network, delay_ns=0, jitter="none", jitter_ns=0, reordering=0.0, reorder_ns=0)
        assert replace(lossless, duplication=0.0, late_copies=0.0, late_ns=0) == NetworkProfile(delay_ns=0)
        slowest_ns = network.delay_ns + 8 * network.jitter_ns + network.reorder_ns
        assert 2 * slowest_ns < detector.verify_ns // detector.verify_attempts


def test_groups_have_four_to_seven_members_and_two_presets() -> None:
    assert {len(plan.names) for plan in plans()} == {4, 5, 6, 7}
    assert len({plan.membership.detector for plan in plans()}) == 2
    assert all(plan.is_one_primary for plan in plans())


def test_triggers_wait_for_every_frame_of_a_change_and_of_a_merge() -> None:
    assert {trigger.awaits for trigger in triggers()} == {"MulticastData", *CHANGE_FRAMES, *MERGE_FRAMES}
    assert (
        {trigger.hits_first for trigger in triggers()} == {trigger.replaces for trigger in triggers()} == {True, False}
    )
    assert len({trigger.kind for trigger in triggers()}) >= 7


def test_rivals_cannot_reach_each_other_and_a_third_is_unreachable() -> None:
    worlds = [[fault for fault in plan.faults if fault.by_rank] for plan in plans()]
    rivals = [faults for faults in worlds if faults]
    assert len(rivals) > len(DRAWN) / 5
    for there, back, third, *_ in rivals:
        assert (there.who, there.other) == (back.other, back.who)
        assert third.who not in (there.who, there.other)
        assert third.kind in (GroupFaultKind.CRASH, GroupFaultKind.ISOLATE)


def test_some_faults_last_about_the_suspicion_time() -> None:
    lasting = [
        fault.lasts_ns / plan.membership.detector.suspect_ns
        for plan in plans()
        for fault in plan.faults
        if fault.kind is not GroupFaultKind.CRASH
    ]
    assert sum(0.5 <= share < 1 for share in lasting) > len(lasting) / 5
    assert sum(share > 2 for share in lasting) > len(lasting) / 3


# How a trigger fires


def quiet(*faults: GroupFault) -> GroupPlan:
    """Five members and nothing but these faults."""
    plan = next(plan for plan in plans() if len(plan.names) == 5)
    network = NetworkProfile(delay_ns=MILLISECOND)
    return replace(plan, network=network, faults=faults, bursts=(), duration_ns=GATHERED_NS + 5 * SECOND)


def run(*faults: GroupFault) -> tuple[InterruptedWorld, SeedOutcome]:
    worlds: list[InterruptedWorld] = []

    class Kept(InterruptedWorld):
        def run(self) -> list[Violation]:
            worlds.append(self)
            return super().run()

    outcome = run_world(Kept, quiet(*faults), with_transcript=True)
    assert outcome.is_ok, outcome.violations
    return worlds[0], outcome


def isolated(rank: int) -> GroupFault:
    return GroupFault(GATHERED_NS, GroupFaultKind.ISOLATE, rank, lasts_ns=4 * SECOND, by_rank=True)


def entered_after(world: InterruptedWorld, at: int) -> list[EnteredView]:
    return [event for event in world.history.events if isinstance(event, EnteredView) and event.at > at]


def late_frames(outcome: SeedOutcome, kind: str) -> list[str]:
    """What left after the group had gathered, by the transcript."""
    frames = [line for line in outcome.transcript if f"  {kind}(" in line]
    return [line for line in frames if float(line.split()[0]) * MILLISECOND > GATHERED_NS]


def test_who_crashes_within_a_step_sends_the_first_frames_of_it_and_does_nothing_else() -> None:
    """The coordinator dies before its second COMMIT: one other enters the view, it does not, and the rest is told."""
    gone = replace(isolated(4), kind=GroupFaultKind.CRASH)
    crash = GroupFault(GATHERED_NS, GroupFaultKind.CRASH, 0, awaits="Commit", nth=2, hits_first=True)
    world, outcome = run(gone, crash)
    entries = entered_after(world, GATHERED_NS)
    view = entries[0].view
    dead = view.coordinator
    assert dead in world.history.dead
    assert dead not in [entry.member for entry in entries]
    assert sorted(entry.member for entry in entries if entry.view == view) == sorted(set(view.members) - {dead})
    assert len([line for line in late_frames(outcome, "Commit") if f"{dead} -> " in line]) == 1


def test_a_cut_applies_to_the_frame_that_triggered_it_and_replaces_earlier_cuts() -> None:
    mend = GroupFault(GATHERED_NS, GroupFaultKind.PARTITION, 0, sides=(0,) * 5, awaits="Prepare", replaces=True)
    world, outcome = run(isolated(4), mend)
    assert not any(line.endswith("[cut]") for line in late_frames(outcome, "Prepare"))
    assert all(outage.end is not None for key in world.history.outages for outage in world.history.outages[key])
    mute = GroupFault(GATHERED_NS, GroupFaultKind.MUTE, 0, lasts_ns=SECOND, awaits="CutTo", hits_first=True)
    _, outcome = run(isolated(4), mute)
    assert late_frames(outcome, "CutTo")[0].endswith("[cut]")


def test_triggers_fire_one_after_the_other() -> None:
    late = GroupFault(GATHERED_NS, GroupFaultKind.PAUSE, 1, lasts_ns=SECOND, awaits="Prepare", by_rank=True)
    early = GroupFault(GATHERED_NS, GroupFaultKind.MUTE, 0, lasts_ns=SECOND, awaits="Commit", hits_first=True)
    world, outcome = run(isolated(4), early, late)
    assert outcome.stats["triggered"] == 2
    struck = [line.partition("fault: ")[2] for line in outcome.transcript if "fault: " in line]
    assert [kind for line in struck for kind in ("isolate", "mute", "pause") if kind in line] == [
        "isolate",
        "mute",
        "pause",
    ]
    assert any(key in world.history.outages for key in entered_after(world, 0)[0].view.members)


def test_a_pause_and_a_crash_are_written_down_as_times_in_which_a_process_did_not_run() -> None:
    pause = GroupFault(GATHERED_NS, GroupFaultKind.PAUSE, 0, lasts_ns=SECOND)
    crash = GroupFault(GATHERED_NS, GroupFaultKind.CRASH, 1)
    world, _ = run(pause, crash)
    by_name = {key.name: outages for key, outages in world.history.outages.items() if not isinstance(key, tuple)}
    assert [(outage.begin, outage.end) for outage in by_name["a"]] == [(GATHERED_NS, GATHERED_NS + SECOND)]
    assert [(outage.begin, outage.end) for outage in by_name["b"]] == [(GATHERED_NS, None)]
