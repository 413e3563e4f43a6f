"""Break the view change on purpose, one way at a time: the run with a fault at every step must notice each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from motet.core.counters import Count
from motet.core.effects import Effect, Frame
from motet.core.identity import Address
from motet.core.units import SECOND
from motet.core.view import NO_BALLOT
from motet.membership.detector import FailureDetector, Standing, Suspected
from motet.membership.engine import ViewEngine
from motet.membership.primary import PrimaryRecord
from motet.multicast.machine import Multicast
from motet.multicast.receiver import MulticastReceiver
from motet.multicast.sender import MulticastSender
from motet.stack.channel import GroupChannel
from motet.window.digest import Cut, DigestEntry
from motet.wire.frames import Commit, CutTo, Heartbeat, MergeRequest, Prepare, Prepared, Ready
from tests.membership import test_engine
from tests.membership import test_scenarios_traffic as traffic
from tests.membership.group import Group, check_agreement, check_one_line
from tests.membership.test_engine import CHANGES, SIZE, changed, crash_if_alive, frames_of, leave_a_member, rivals
from tests.membership.world import World

Plant = Callable[[pytest.MonkeyPatch], None]
RIVAL_STEPS = range(50, 60)


def a_commit_that_somebody_saw_is_not_adopted(patch: pytest.MonkeyPatch) -> None:
    original = ViewEngine._on_prepared

    def on_prepared(self: ViewEngine, source: Address, frame: Prepared, now: int) -> list[Effect]:
        return original(self, source, replace(frame, decided=None), now)

    patch.setattr(ViewEngine, "_on_prepared", on_prepared)
    patch.setattr(ViewEngine, "_on_nack", lambda self, source, frame, now: [])


def a_missed_commit_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "_ask_around", lambda self, now: [])


def what_is_received_is_let_go_before_it_is_stable(patch: pytest.MonkeyPatch) -> None:
    original = MulticastReceiver._deliver

    def deliver(self: MulticastReceiver) -> list[Effect]:
        effects = original(self)
        self.window.purge(self.window.delivered)
        return effects

    patch.setattr(MulticastReceiver, "_deliver", deliver)


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

    patch.setattr("motet.membership.coordinator.cut_of", least)


def commit_does_not_wait_for_all(patch: pytest.MonkeyPatch) -> None:
    original = ViewEngine._on_ready

    def on_ready(self: ViewEngine, source: Address, frame: Ready, now: int) -> list[Effect]:
        if self._round is not None:
            self._round.ready.update(self._round.participants)
        return original(self, source, frame, now)

    patch.setattr(ViewEngine, "_on_ready", on_ready)
    patch.setattr(ViewEngine, "_is_where_we_stand", lambda self, following, cut: True)
    patch.setattr(ViewEngine, "_leave_behind", lambda self, frame: self._install(frame, {}, self._frozen_since or 0))
    patch.setattr(Multicast, "end_view", lambda self, cut: self._sender.deliver_rest())


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
    a_commit_that_somebody_saw_is_not_adopted,
    a_missed_commit_is_not_asked_for,
    what_is_received_is_let_go_before_it_is_stable,
    a_frozen_member_goes_on_delivering,
    a_frozen_member_goes_on_sending,
    the_cut_is_what_all_have,
    commit_does_not_wait_for_all,
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


# Two coordinators at once


def ballots_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks last is believed."""
    original = ViewEngine._handle

    def handle(self: ViewEngine, source: Address, frame: Frame, now: int) -> list[Effect]:
        is_of_ours = isinstance(frame, Prepare | CutTo | Commit) and frame.view == self.view.id
        if is_of_ours and frame.ballot != self._promised:  # type: ignore[attr-defined]
            self._promised = NO_BALLOT if isinstance(frame, Prepare) else frame.ballot  # type: ignore[attr-defined]
            self._plan, self._is_ready = None, False
        return original(self, source, frame, now)

    patch.setattr(ViewEngine, "_handle", handle)


def test_ballots_that_are_ignored_are_caught_by_two_coordinators_at_once() -> None:
    """B takes over while A lets C go. The search starts where it is caught; the whole of it is in test_engine.py."""
    for is_planted in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if is_planted:
                ballots_are_ignored(patch)
            steps = [step for step in RIVAL_STEPS if not keeps_one_line(rivals(leave_a_member, 1, step))]
        assert bool(steps) is is_planted


def keeps_one_line(group: Group) -> bool:
    try:
        group.run(3 * SECOND)
        check_one_line(group)
    except AssertionError:
        return False
    return True


# What time hides: the group still comes together, later than it should, or changes for nothing. Named scenarios see it.


def a_merge_is_refused_by_silence(patch: pytest.MonkeyPatch) -> None:
    original = ViewEngine._on_merge_request

    def on_merge_request(self: ViewEngine, source: Address, frame: MergeRequest, now: int) -> list[Effect]:
        return [] if self._why_not(source) is not None else original(self, source, frame, now)

    patch.setattr(ViewEngine, "_on_merge_request", on_merge_request)


def a_suspect_is_acted_on_unverified(patch: pytest.MonkeyPatch) -> None:
    def examine(self: FailureDetector, peer: Address, state: Any, now: int) -> list[Effect]:
        if state.standing is Standing.SUSPECTED or now < self._deadline(state):
            return []
        state.standing = Standing.SUSPECTED
        return [Suspected(peer)]

    patch.setattr(FailureDetector, "_examine", examine)


def attempted_views_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrimaryRecord, "attempted", lambda self, view, counted=None: self)


def a_leader_that_is_refused_knows_it_at_once() -> None:
    """C is letting D go when A asks it to merge; A hears so within some round trips, not when its patience ends."""
    world = World("A")
    world.gather(*"ABCD")
    world.split("AB", "CD")
    world.heal()
    requests = world.watch(MergeRequest)
    world.once(MergeRequest, lambda _: world.leave("D"), source="A", to="C")
    world.run_until(lambda: bool(requests), 5)
    world.run_until(lambda: world["A"].count(Count.MERGE_CANCELLED) == 1, 0.1)
    world.settle("ABC", limit=5)


def a_member_whose_heartbeats_are_lost_but_who_answers_stays() -> None:
    world = World("A")
    world.gather(*"ABC")
    world.drop_next(Heartbeat, "C", "*", 1_000)
    world.run(10)
    assert world["A"].history[-1] == "ABC"
    assert world["A"].saw(Suspected) == []


@pytest.mark.parametrize(
    ("plant", "scenario"),
    [
        (a_merge_is_refused_by_silence, a_leader_that_is_refused_knows_it_at_once),
        (a_suspect_is_acted_on_unverified, a_member_whose_heartbeats_are_lost_but_who_answers_stays),
        (attempted_views_are_forgotten, traffic.TestPrimary().test_the_attempt_that_one_member_did_not_hear_the_end_of),
        (
            who_went_further_enters_the_view_after_all,
            test_engine.test_who_delivered_more_than_a_commit_allows_goes_on_alone,
        ),
    ],
    ids=lambda named: named.__name__,
)
def test_planted_bug_is_caught_by_a_scenario(plant: Plant, scenario: Callable[[], None]) -> None:
    scenario()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError):
            scenario()
