"""Break membership on purpose, one way at a time: the checkers of the scenario `membership` must see each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from motet.core.effects import Effect
from motet.core.view import ViewId
from motet.membership import coordinator
from motet.membership.discovery import Discovery
from motet.membership.engine import ViewEngine
from motet.membership.machine import Membership
from motet.membership.primary import PrimaryRecord
from motet.multicast.machine import Multicast
from motet.multicast.receiver import MulticastReceiver
from motet.multicast.sender import MulticastSender
from motet.sim.runner import run_seed

SEEDS = range(80)
Plant = Callable[[pytest.MonkeyPatch], None]


def every_view_is_primary(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinator, "is_primary", lambda *_: True)


def nobody_remembers_the_last_primary_view(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrimaryRecord, "installed", lambda self, view: PrimaryRecord())
    patch.setattr(PrimaryRecord, "attempted", lambda self, view, counted=None: PrimaryRecord())


def anybody_founds_a_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "may_found", lambda self, members: True)


def the_rest_of_a_view_is_not_fetched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Multicast, "is_complete", lambda self, cut: True)


def a_frozen_receiver_goes_on_delivering(patch: pytest.MonkeyPatch) -> None:
    original = MulticastReceiver.freeze

    def freeze(self: MulticastReceiver) -> object:
        entry = original(self)
        self._limit = None
        return entry

    patch.setattr(MulticastReceiver, "freeze", freeze)


def a_frozen_sender_goes_on_sending(patch: pytest.MonkeyPatch) -> None:
    original = MulticastSender.freeze

    def freeze(self: MulticastSender) -> object:
        entry = original(self)
        self._is_frozen = False
        return entry

    patch.setattr(MulticastSender, "freeze", freeze)


def a_new_view_takes_a_number_that_was_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "_next_id", lambda self, known: ViewId(2, self._local.incarnation))


def views_are_never_merged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "lead_merge", lambda self, coordinators, now: [])


def nobody_is_ever_suspected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "suspect", lambda self, suspects, now: [])


def a_restart_at_the_same_place_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Discovery, "replaced", property(lambda self: ()))
    patch.setattr(ViewEngine, "suspect", lambda self, suspects, now: [])


def a_leaver_is_never_let_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "_on_leave_request", lambda self, source, frame, now: [])


def a_sender_stays_frozen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MulticastSender, "thaw", lambda self, now, is_held: [])


def the_view_is_told_after_its_first_deliveries(patch: pytest.MonkeyPatch) -> None:
    original = ViewEngine._enter

    def enter(self: ViewEngine, decision: object, now: int) -> list[Effect]:
        installed, *rest = original(self, decision, now)  # type: ignore[arg-type]
        return [*rest, installed]

    patch.setattr(ViewEngine, "_enter", enter)


PLANTS = [
    every_view_is_primary,
    nobody_remembers_the_last_primary_view,
    anybody_founds_a_group,
    the_rest_of_a_view_is_not_fetched,
    a_frozen_receiver_goes_on_delivering,
    a_frozen_sender_goes_on_sending,
    a_restart_at_the_same_place_is_not_noticed,
    a_new_view_takes_a_number_that_was_used,
    views_are_never_merged,
    nobody_is_ever_suspected,
    a_leaver_is_never_let_go,
    a_sender_stays_frozen,
    the_view_is_told_after_its_first_deliveries,
]


def first_caught(seeds: range) -> int | None:
    return next((seed for seed in seeds if not run_seed("membership", seed).is_ok), None)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_caught(plant: Plant) -> None:
    """Caught with the bug, and fine without it: so it is the bug that was caught."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        seed = first_caught(SEEDS)
    assert seed is not None, f"{plant.__name__} went through {len(SEEDS)} seeds unseen"
    assert run_seed("membership", seed).is_ok
