"""Break the view change on purpose, one way at a time: the run with a fault at every step must notice each.

What it takes whole members to see, tests/sim/test_planted_membership_bugs.py plants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.member.channel import GroupChannel
from motet.protocol.membership.engine import ViewEngine
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.multicast.sender import MulticastSender
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.wire.frames import Commit, Prepared
from tests.protocol.membership import test_engine
from tests.protocol.membership.group import Group, check_agreement
from tests.protocol.membership.test_engine import CHANGES, SIZE, changed, crash_if_alive, frames_of

Plant = Callable[[pytest.MonkeyPatch], None]
RIVAL_STEPS = range(50, 60)


def a_commit_that_somebody_saw_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    original = ViewEngine._on_prepared

    def on_prepared(self: ViewEngine, source: Address, frame: Prepared, now: int) -> list[Effect]:
        return original(self, source, replace(frame, decided=None), now)

    patch.setattr(ViewEngine, "_on_prepared", on_prepared)
    patch.setattr(ViewEngine, "_on_nack", lambda self, source, frame, now: [])


def a_missed_commit_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "_ask_around", lambda self, now: [])


def a_frozen_member_goes_on_delivering(patch: pytest.MonkeyPatch) -> None:
    original = MulticastReceiver.freeze

    def freeze(self: MulticastReceiver) -> DigestEntry:
        entry = original(self)
        self._limit = None
        return entry

    patch.setattr(MulticastReceiver, "freeze", freeze)


def a_frozen_member_goes_on_sending(patch: pytest.MonkeyPatch) -> None:
    def freeze(self: MulticastSender) -> DigestEntry:
        return DigestEntry(self.window.low, self.window.delivered, self.window.high)

    patch.setattr(MulticastSender, "freeze", freeze)


def the_cut_is_what_all_have(patch: pytest.MonkeyPatch) -> None:
    def least(digests: Mapping[Any, Mapping[Any, DigestEntry]]) -> dict[Any, Cut[Any]]:
        senders = {sender for digest in digests.values() for sender in digest}
        return {s: Cut(min(d[s].received for d in digests.values() if s in d), next(iter(digests)), 0) for s in senders}

    patch.setattr("motet.protocol.membership.coordinator.cut_of", least)


def nobody_takes_over_from_a_coordinator_that_crashed(patch: pytest.MonkeyPatch) -> None:
    original = ViewEngine._reconsider

    def reconsider(self: ViewEngine, now: int) -> list[Effect]:
        return original(self, now) if self.view.coordinator == self._local else []

    patch.setattr(ViewEngine, "_reconsider", reconsider)


def a_view_waits_until_the_window_is_empty(patch: pytest.MonkeyPatch) -> None:
    original = ViewEngine._begin

    def begin(self: ViewEngine, participants: Any, leavers: Any, now: int) -> list[Effect]:
        channel = self._channel
        assert isinstance(channel, GroupChannel)
        return original(self, participants, leavers, now) if channel.multicast.sender.is_drained else []

    patch.setattr(ViewEngine, "_begin", begin)


def who_went_further_enters_the_view_after_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "_is_where_we_stand", lambda self, following, cut: True)


def a_stale_commit_is_installed(patch: pytest.MonkeyPatch) -> None:
    def on_commit(self: ViewEngine, source: Address, frame: Commit, now: int) -> list[Effect]:
        return self._install(frame, {}, now)

    patch.setattr(ViewEngine, "_on_commit", on_commit)


PLANTS: list[Plant] = [
    a_commit_that_somebody_saw_is_told_to_nobody,
    a_missed_commit_is_not_asked_for,
    a_frozen_member_goes_on_delivering,
    a_frozen_member_goes_on_sending,
    the_cut_is_what_all_have,
    nobody_takes_over_from_a_coordinator_that_crashed,
    a_view_waits_until_the_window_is_empty,
    a_stale_commit_is_installed,
]


def first_caught() -> str | None:
    """The first case, of a crash of each member at each step of each change, that ends badly."""
    for change in reversed(CHANGES):
        for victim in range(SIZE):
            for step in range(1, frames_of(change)):
                if not ends_well(changed(change), step, victim):
                    return f"{change.__name__}, {victim} crashes at {step}"
    return None


def ends_well(group: Group, step: int, victim: int) -> bool:
    group.fault_at = step
    group.fault = lambda: crash_if_alive(group, group[victim])
    try:
        group.run()
        check_agreement(group)
    except Exception:  # an engine that stumbles over the bug has caught it as well
        return False
    return True


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_caught() is not None


def test_who_went_further_and_enters_after_all_is_caught_by_a_scenario() -> None:
    scenario = test_engine.test_who_delivered_more_than_a_commit_allows_goes_on_alone
    scenario()
    with pytest.MonkeyPatch.context() as patch:
        who_went_further_enters_the_view_after_all(patch)
        with pytest.raises(AssertionError):
            scenario()
