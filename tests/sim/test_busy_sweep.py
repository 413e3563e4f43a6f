"""The scenario `busy`: seeds of each story that pass, and each promise broken on purpose."""

from __future__ import annotations

import pytest

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.membership import Membership
from motet.protocol.membership.detector import FailureDetector
from motet.protocol.wire.frames import Busy
from motet.sim.runner import run_seed
from motet.sim.scenarios.busy import STORIES, draw_busy_plan

SEEDS = range(30)


def broken(story: str, seeds: range = SEEDS) -> set[str]:
    """The rules that seeds of one story violate."""
    chosen = [seed for seed in seeds if draw_busy_plan(seed).story == story]
    return {violation.rule for seed in chosen for violation in run_seed("busy", seed).violations}


@pytest.mark.parametrize("story", STORIES)
def test_seeds_pass(story: str) -> None:
    assert broken(story) == set()


def test_a_detector_that_ignores_busy_removes_the_busy_member(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore(self: FailureDetector, peer: Address, frame: Busy, now: int) -> list[Effect]:
        return []

    monkeypatch.setattr(FailureDetector, "receive_busy", ignore)
    assert "a busy member stays" in broken("alone")


def test_a_detector_that_believes_busy_for_ever_keeps_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(self: FailureDetector, peer: Address, frame: Busy, now: int) -> list[Effect]:
        return self.heard(peer, now)

    monkeypatch.setattr(FailureDetector, "receive_busy", believe)
    assert "removed in time" in broken("hangs")


def test_a_busy_coordinator_that_is_not_bypassed_keeps_a_crashed_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "_bypassed", lambda self, distrusted, now: set())
    assert "removed in time" in broken("crash", range(100))
