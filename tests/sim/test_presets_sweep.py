"""The scenario `presets`: a few seeds of each preset that pass, what the seeds draw, and who counts as expelled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from motet.config import Config
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.member import Delivered, Superseded
from motet.sim.checkers.expulsions import expulsions_of
from motet.sim.runner import SCENARIOS, run_seed
from motet.sim.scenarios.group_plan import GroupFaultKind
from motet.sim.scenarios.membership import run_world
from motet.sim.scenarios.presets import PresetsHost, PresetsWorld, run_presets
from motet.sim.scenarios.presets_plan import (
    BASE_NS,
    FEWEST_PARTITIONS,
    MOST_LATE,
    MOST_LATE_NS,
    MOST_LOSS,
    PRESETS,
    PresetsPlan,
    draw_presets_plan,
)
from motet.sim.world.history import EnteredView, History

DRAWN = range(400)
CHEAP = {  # quick ones of each preset, which together lose, delay, part, restart, and send one by one
    "local": range(0, 36, 3),
    "lan": range(1, 37, 3),
    "wan": range(2, 38, 3),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_seeds_pass(preset: str) -> None:
    outcomes = [run_seed("presets", seed) for seed in CHEAP[preset]]
    failed = [
        f"{outcome.violations[0]}\n  replay: motet sim --seed {outcome.seed} --scenario presets --transcript"
        for outcome in outcomes
        if not outcome.is_ok
    ]
    assert not failed, "\n" + "\n".join(failed)
    for what in ("ordered", "delivered", "resent", "views"):  # a world in which nothing happens proves nothing
        assert sum(outcome.stats[what] for outcome in outcomes) > 0, what


def test_a_receipt_that_stays_open_for_ever_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 6 sends one by one: an application that never hears of its own message waits for ever."""
    settles = PresetsHost._settles_own_message

    def forgets_delivered(host: PresetsHost, effect: Effect) -> bool:
        return not isinstance(effect, Delivered) and settles(host, effect)

    assert not run_presets(6).violations
    monkeypatch.setattr(PresetsHost, "_settles_own_message", forgets_delivered)
    assert any("neither delivered nor reported" in str(violation) for violation in run_presets(6).violations)


def test_a_message_that_the_received_state_contains_is_settled_for_its_sender() -> None:
    """Its sender joined without the state, and the state that it then received had its own message in it."""
    host = PresetsHost.__new__(PresetsHost)  # what settles a message does not depend on the rest of a host
    assert host._settles_own_message(Superseded(4, 1))


def test_it_can_be_run_by_name_and_counts_how_the_group_fared() -> None:
    assert SCENARIOS["presets"] is run_presets
    stats = run_seed("presets", 0).stats
    assert {"expulsions", "out_ms", "rolled_back", "failed_sends", "stall_ms", "views"} <= stats.keys()


def test_the_same_seed_gives_the_same_run_watched_or_not() -> None:
    watched, unwatched = run_presets(3, with_transcript=True), run_presets(3)
    assert (unwatched.fingerprint, unwatched.stats) == (watched.fingerprint, watched.stats)
    assert list(watched.transcript[: len(draw_presets_plan(3).describe())]) == draw_presets_plan(3).describe()


def test_a_world_that_loses_everything_is_not_live() -> None:
    """The network is not healed for the verdict."""
    plan = next(plan for plan in plans() if plan.preset == "local" and plan.gathers_first and not plan.faults)
    deaf = _replaced(plan, loss=1.0)
    outcome = run_world(PresetsWorld, deaf, with_transcript=False)
    assert {violation.rule for violation in outcome.violations} == {"liveness"}
    assert outcome.stats["stall_ms"] > 0


def _replaced(plan: PresetsPlan, *, loss: float) -> PresetsPlan:
    return replace(plan, network=replace(plan.network, loss=loss, stragglers=0.0))


# What the seeds draw


@cache
def plans() -> tuple[PresetsPlan, ...]:
    return tuple(map(draw_presets_plan, DRAWN))


@pytest.mark.parametrize("preset", PRESETS)
def test_members_have_the_shipped_settings(preset: str) -> None:
    for plan in plans():
        ordering = plan.config.ordering
        if plan.preset != preset or ordering is None:
            continue
        given: dict[str, Any] = {"preset": preset, "strategy": ordering.strategy}
        config = Config.load(environ={}, **given)
        shipped = config.member_config(plan.seeds, wants_state=True, waits_for_disk=ordering.waits_for_disk)
        assert plan.config == shipped
        assert all(plan.config_of(index, may_bootstrap=True) == shipped for index in range(len(plan.names)))


def test_half_of_everything_is_lost_or_late_at_worst() -> None:
    networks = [plan.network for plan in plans()]
    assert max(network.loss for network in networks) == MOST_LOSS
    assert max(network.stragglers for network in networks) == MOST_LATE
    assert max(network.straggler_ns for network in networks) == MOST_LATE_NS == 2 * SECOND
    kinds = {(network.loss > 0, network.stragglers > 0) for network in networks}
    assert kinds == {(False, False), (False, True), (True, False), (True, True)}
    assert sum(network.late_copies > 0 for network in networks) > len(networks) / 2


def test_most_worlds_have_no_faults_and_some_are_parted_again_and_again() -> None:
    faults = [plan.faults for plan in plans()]
    assert sum(not drawn for drawn in faults) > len(faults) / 2
    churned = [plan for plan in plans() if plan.churn_network is not None]
    assert len(churned) > len(faults) / 20
    assert all(len(plan.faults) >= FEWEST_PARTITIONS for plan in churned)
    kinds = {fault.kind for drawn in faults for fault in drawn}
    assert kinds >= {GroupFaultKind.CRASH, GroupFaultKind.RESTART, GroupFaultKind.PARTITION, GroupFaultKind.LEAVE}
    assert all(f.keeps_durable_state for drawn in faults for f in drawn if f.kind is GroupFaultKind.RESTART)


def test_both_strategies_starts_and_ways_of_sending_are_drawn() -> None:
    strategies = {plan.config.ordering.strategy for plan in plans() if plan.config.ordering is not None}
    assert strategies == {"window", "continuous"}
    assert {plan.gathers_first for plan in plans()} == {True, False}
    assert {bool(plan.chains) for plan in plans()} == {True, False}
    assert {len(plan.names) for plan in plans()} == {3, 4, 5}
    assert any(len(plan.ordered) < len(plan.bursts) for plan in plans())


def test_the_bound_follows_the_preset_and_the_network() -> None:
    for plan in plans():
        shares = plan.network.loss + plan.network.stragglers
        assert plan.bound_ns == int(BASE_NS[plan.preset] * (0.5 + shares))
        assert plan.bound_ns <= 1.5 * BASE_NS[plan.preset]


# Who counts as expelled

A, B, C = (Address(name, "127.0.0.1", 7800 + index, (index + 1) << 48) for index, name in enumerate("abc"))


def view(number: int, *members: Address, is_primary: bool = True) -> View:
    return View(ViewId(number, members[0].incarnation), members, is_primary)


def expelled(*entered: tuple[int, Address, View], dead: Iterable[Address] = ()) -> list[tuple[Address, int, int]]:
    history = History(events=[EnteredView(*entry, ()) for entry in entered], dead=set(dead))
    return [(one.member, one.begin, one.end) for one in expulsions_of(history, end=100)]


def test_who_lives_and_is_not_in_the_next_primary_view_was_expelled_until_it_is_back() -> None:
    all_three, two, again = view(1, A, B, C), view(2, A, B), view(4, A, B, C)
    gone = [(1, A, all_three), (1, B, all_three), (1, C, all_three), (5, A, two), (6, B, two)]
    assert expelled(*gone) == [(C, 5, 100)]
    back = [(7, C, view(3, C, is_primary=False)), (8, A, again), (9, C, again)]
    assert expelled(*gone, *back) == [(C, 5, 9)]


def test_the_dead_and_those_outside_the_primary_part_were_not_expelled() -> None:
    all_three, two = view(1, A, B, C), view(2, A, B)
    assert expelled((1, A, all_three), (5, A, two), dead=[C]) == []
    assert expelled((1, A, all_three), (5, C, view(2, C, is_primary=False))) == []
