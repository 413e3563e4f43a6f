"""Break the view change on purpose, one way at a time: the run with a fault at every step must notice each.

What it takes whole members to see, tests/sim/test_planted_membership_bugs.py plants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.member.channel import GroupChannel
from motet.protocol.membership.coordinator import Coordinator
from motet.protocol.membership.merge_part import MergePart
from motet.protocol.membership.participant import Participant, ParticipantInput
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.multicast.sender import MulticastSender
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.wire.frames import Commit, Installed, Prepared
from tests.protocol.membership import test_engine
from tests.protocol.membership.group import Group, check_agreement
from tests.protocol.membership.test_engine import CHANGES, SIZE, changed, crash_if_alive, frames_of

Plant = Callable[[pytest.MonkeyPatch], None]
RIVAL_STEPS = range(50, 60)


def a_commit_that_somebody_saw_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator.on_prepared

    def on_prepared(self: Coordinator, source: Address, frame: Prepared, now: int) -> list[Effect]:
        return original(self, source, replace(frame, decided=None), now)

    patch.setattr(Coordinator, "on_prepared", on_prepared)
    patch.setattr(Coordinator, "on_nack", lambda self, source, frame, now: [])


def a_missed_commit_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participant, "check_answer", lambda self, now: [])


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

    patch.setattr("motet.protocol.membership.round.cut_of", least)


def nobody_takes_over_from_a_coordinator_that_crashed(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator.reconsider

    def reconsider(self: Coordinator, now: int) -> list[Effect]:
        return original(self, now) if self._context.view.coordinator == self._context.local else []

    patch.setattr(Coordinator, "reconsider", reconsider)


def a_view_waits_until_the_window_is_empty(patch: pytest.MonkeyPatch) -> None:
    reconsider, why_unsuitable = Coordinator.reconsider, MergePart._why_unsuitable

    def is_empty(self: Coordinator | MergePart) -> bool:
        assert isinstance(self._context.channel, GroupChannel)
        return self._context.channel.multicast.sender.is_drained

    def only_when_empty(self: Coordinator, now: int) -> list[Effect]:
        return reconsider(self, now) if is_empty(self) else []

    def busy_until_empty(self: MergePart, leader: Address) -> str | None:
        return why_unsuitable(self, leader) if is_empty(self) else "busy"

    patch.setattr(Coordinator, "reconsider", only_when_empty)
    patch.setattr(MergePart, "_why_unsuitable", busy_until_empty)


def who_went_further_enters_the_view_after_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participant, "_is_where_we_stand", lambda self, following, cut: True)


def is_installed(effect: Effect) -> bool:
    return isinstance(effect, Transmit) and isinstance(effect.frame, Installed)


def a_stale_commit_is_installed(patch: pytest.MonkeyPatch) -> None:
    def on_commit(self: Participant, source: Address, frame: Commit, now: int) -> list[Effect]:
        is_in = self._context.local in frame.decision.following
        installed = replace(frame, decision=replace(frame.decision, cut=()))
        occurred = ParticipantInput.COMMIT if is_in else ParticipantInput.COMMIT_LEAVE
        effects = self.fire(occurred, source, installed, now)
        return [effect for effect in effects if not is_installed(effect)]  # so the COMMIT comes again

    patch.setattr(Participant, "on_commit", on_commit)


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
