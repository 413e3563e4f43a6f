"""The scenario `state`: a stretch of seeds that passes, and old bugs of state transfer, planted, that it catches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from motet.protocol.core.identity import Address
from motet.protocol.core.view import ViewId
from motet.protocol.membership import coordinator, merge
from motet.protocol.membership.coordinator import Coordinator
from motet.protocol.membership.participant import Participant
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.membership.transfer import StateLost, StateTransfer
from motet.protocol.wire.frames import MergeResponse, StateNeed
from motet.sim.runner import SCENARIOS, run_seed
from motet.sim.scenarios.state import run_state

SEEDS = (*range(20), 115)  # in the last one the state is lost for good, and begins anew
MOST_SEEDS = 300
Plant = Callable[[pytest.MonkeyPatch], None]


def test_seeds_pass() -> None:
    outcomes = [run_seed("state", seed) for seed in SEEDS]
    failed = [
        f"{outcome.violations[0]}\n  replay: motet sim --seed {outcome.seed} --scenario state --transcript"
        for outcome in outcomes
        if not outcome.is_ok
    ]
    assert not failed, "\n" + "\n".join(failed)
    for what in ("states", "losses", "lost_views", "views", "merges", "delivered"):
        assert sum(outcome.stats[what] for outcome in outcomes) > 0, what


def test_it_can_be_run_by_name() -> None:
    assert SCENARIOS["state"] is run_state


def test_the_same_seed_gives_the_same_run_watched_or_not() -> None:
    watched, unwatched = run_state(3, with_transcript=True), run_state(3)
    assert (unwatched.fingerprint, unwatched.stats) == (watched.fingerprint, watched.stats)
    assert any("is asked for its state" in line for line in watched.transcript)


def where_all_lack_the_state_the_most_senior_counts_as_having_it(patch: pytest.MonkeyPatch) -> None:
    """As it was: a member that was cut off before its state arrived gave its emptiness to others."""

    def lacking_of(needs: Mapping[int, StateNeed]) -> tuple[int, ...]:
        lacking = tuple(member for member, need in needs.items() if need is not StateNeed.HELD)
        return lacking[1:] if len(lacking) == len(needs) else lacking

    def lacking_in_merge(responses: Sequence[MergeResponse], members: Sequence[Address]) -> tuple[int, ...]:
        first, *others = responses
        lacking = set(first.lacking).union(*(response.wanting for response in others))
        named = tuple(member.incarnation for member in members if member.incarnation in lacking)
        return named[1:] if len(named) == len(members) else named

    patch.setattr(coordinator, "lacking_of", lacking_of)
    patch.setattr(merge, "lacking_in_merge", lacking_in_merge)


def who_is_cut_off_forgets_that_it_lacks_the_state(patch: pytest.MonkeyPatch) -> None:
    """As it was: alone in a view, a member counted as having the state."""
    original = Participant._go_on_alone

    def go_on_alone(self: Participant, now: int) -> object:
        with pytest.MonkeyPatch.context() as alone:
            alone.setattr(type(self._surroundings), "need", StateNeed.HELD)
            return original(self, now)

    patch.setattr(Participant, "_go_on_alone", go_on_alone)


def a_view_without_the_state_is_primary(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator.is_primary_with

    def is_primary_with(
        self: Coordinator,
        members: Sequence[Address],
        record: PrimaryRecord,
        leavers: Sequence[Address],
        bootstrap_voters: Sequence[Address],
        heirs: Sequence[int],
        lacking: Sequence[int],
    ) -> bool:
        return original(self, members, record, leavers, bootstrap_voters, heirs, ())

    patch.setattr(Coordinator, "is_primary_with", is_primary_with)


def a_loss_is_not_told(patch: pytest.MonkeyPatch) -> None:
    original = StateTransfer._begin_taking

    def begin_taking(self: StateTransfer, *view_and_now: object) -> object:
        return [effect for effect in original(self, *view_and_now) if not isinstance(effect, StateLost)]  # type: ignore[arg-type]

    patch.setattr(StateTransfer, "_begin_taking", begin_taking)


def an_older_state_counts_as_all_of_the_log(patch: pytest.MonkeyPatch) -> None:
    original = StateTransfer.begin_view

    def begin_view(self: StateTransfer, *args: object, covered: int | None, lineage: ViewId, **more: object) -> object:
        position = more["position"]
        had = position if lineage != ViewId(0, 0) else None
        return original(self, *args, covered=had, lineage=lineage, **more)  # type: ignore[arg-type]

    patch.setattr(StateTransfer, "begin_view", begin_view)


PLANTS: dict[Plant, int] = {  # the seed to begin with
    where_all_lack_the_state_the_most_senior_counts_as_having_it: 10,
    who_is_cut_off_forgets_that_it_lacks_the_state: 90,
    a_view_without_the_state_is_primary: 110,
    a_loss_is_not_told: 0,
    an_older_state_counts_as_all_of_the_log: 10,
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_caught(plant: Plant) -> None:
    """Caught with the bug, and fine without it: so it is the bug that was caught."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        seeds = range(PLANTS[plant], MOST_SEEDS)
        seed = next((seed for seed in seeds if not run_seed("state", seed).is_ok), None)
    assert seed is not None, f"{plant.__name__} went through {MOST_SEEDS} seeds unseen"
    assert run_seed("state", seed).is_ok
