"""Break total order on purpose, one way at a time: the checkers of the scenario `total-order` must see each of them.

Every bug stands with a seed that is known to catch it. If the worlds are drawn otherwise one day, any of the first 500
will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from motet.protocol.core.effects import Effect
from motet.protocol.core.view import View
from motet.protocol.ordering.continuous_strategy import ContinuousStrategy
from motet.protocol.ordering.fast_path import FastPath
from motet.protocol.ordering.holdback import HoldBackQueue, Pending
from motet.protocol.ordering.isis import Isis
from motet.protocol.ordering.log import LogProgress
from motet.protocol.ordering.machine import TotalOrder
from motet.protocol.ordering.outbox import Outbox
from motet.protocol.ordering.producers import Producers
from motet.protocol.ordering.stability import Stability
from motet.protocol.ordering.window_strategy import WindowStrategy
from motet.protocol.wire.frames import LogCheckpoint, OrderAck
from motet.protocol.wire.ordered import SequenceNumber, Tag
from motet.sim.runner import run_seed

SEEDS = range(500)
Plant = Callable[[pytest.MonkeyPatch], None]


def equal_numbers_are_ordered_as_they_came(patch: pytest.MonkeyPatch) -> None:
    key = property(lambda self: (self.number.number, self.is_decided, self.proposed, self.sender, self.id))
    patch.setattr(Pending, "key", key)


def the_smallest_proposal_is_final(patch: pytest.MonkeyPatch) -> None:
    original = Isis.receive_proposal

    def receive_proposal(self: Isis, proposer: int, frame_id: int, number: int) -> None:
        before = self._proposals.get(frame_id)
        if before is not None and number < before.number:
            before.number, before.proposer = number, proposer
        original(self, proposer, frame_id, min(number, before.number) if before is not None else number)

    patch.setattr(Isis, "receive_proposal", receive_proposal)


def a_decided_frame_does_not_wait_for_the_head(patch: pytest.MonkeyPatch) -> None:
    def pop(self: HoldBackQueue) -> Pending | None:
        decided = [pending for pending in self._pending.values() if pending.is_decided]
        first = min(decided, key=lambda pending: pending.key, default=None)
        return self._pending.pop((first.sender, first.id)) if first is not None else None

    patch.setattr(HoldBackQueue, "pop", pop)
    patch.setattr(HoldBackQueue, "_check", lambda self: None)


def numbers_do_not_raise_the_clock(patch: pytest.MonkeyPatch) -> None:
    original = Isis.receive_number

    def receive_number(self: Isis, sender: int, frame_id: int, number: SequenceNumber) -> bool:
        clock = self.clock
        is_taken = original(self, sender, frame_id, number)
        self.clock = clock
        return is_taken

    patch.setattr(Isis, "receive_number", receive_number)


def numbers_are_forgotten_at_the_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ContinuousStrategy, "agreed", lambda self: ())


def a_frozen_view_goes_on_deciding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ContinuousStrategy, "freeze", lambda self: None)


def those_who_are_gone_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    original = TotalOrder.begin_view

    def begin_view(self: TotalOrder, view: View, now: int) -> list[Effect]:
        size = len(self.members)
        effects = original(self, view, now)
        self._isis._all = (1 << max(size, len(view.members))) - 1
        return effects

    patch.setattr(TotalOrder, "begin_view", begin_view)


def a_minority_keeps_ordering(patch: pytest.MonkeyPatch) -> None:
    original = TotalOrder.begin_view

    def begin_view(self: TotalOrder, view: View, now: int) -> list[Effect]:
        return original(self, replace(view, is_primary=True), now)

    patch.setattr(TotalOrder, "begin_view", begin_view)


def the_fastest_says_what_is_stable(patch: pytest.MonkeyPatch) -> None:
    original = Stability._gather

    def gather(self: Stability) -> list[Effect]:
        self._reported = dict.fromkeys(self._view.members, max(self._reported.values(), default=0))
        return original(self)

    patch.setattr(Stability, "_gather", gather)


def the_disk_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stability, "reached", property(lambda self: self._log.position))


def data_that_comes_again_gets_a_new_number(patch: pytest.MonkeyPatch) -> None:
    def propose_again(self: ContinuousStrategy, rank: int, frame_id: int) -> None:
        pending = self._isis.queue.get(rank, frame_id)
        if pending is not None and not pending.is_decided:
            self._isis.clock += 1
            again = replace(
                pending, proposed=self._isis.clock, number=SequenceNumber(self._isis.clock, self._isis._rank)
            )
            self._isis.queue.add(again)
            self._answer(rank, OrderAck(self._view.id, frame_id, again.proposed))

    patch.setattr(ContinuousStrategy, "_propose_again", propose_again)
    patch.setattr(HoldBackQueue, "_check", lambda self: None)


def those_who_come_in_do_not_know_the_appends(patch: pytest.MonkeyPatch) -> None:
    original = LogProgress.move_to
    patch.setattr(LogProgress, "move_to", lambda self, end: original(self, LogCheckpoint(end.position)))


def appends_are_forgotten_with_the_view(patch: pytest.MonkeyPatch) -> None:
    original = TotalOrder.begin_view

    def begin_view(self: TotalOrder, view: View, now: int) -> list[Effect]:
        effects = original(self, view, now)
        self._log.producers = Producers()
        return effects

    patch.setattr(TotalOrder, "begin_view", begin_view)


def those_who_come_in_stay_where_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TotalOrder, "take_over", lambda self, log: [])


def what_was_under_way_is_lost_with_the_view(patch: pytest.MonkeyPatch) -> None:
    def put_back(self: Outbox) -> list[Effect]:
        self._end()
        return []

    patch.setattr(Outbox, "put_back", put_back)


def the_rest_of_a_view_is_delivered_as_it_came(patch: pytest.MonkeyPatch) -> None:
    def drain(self: HoldBackQueue) -> list[Pending]:
        pending = list(self._pending.values())
        self._pending.clear()
        self._heap.clear()
        return [one for one in pending if one.is_decided] + [one for one in pending if not one.is_decided]

    patch.setattr(HoldBackQueue, "drain", drain)


def early_numbers_are_forgotten_at_the_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FastPath, "agreed", lambda self, members: ())


def a_frozen_view_goes_on_deciding_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowStrategy, "freeze", lambda self: None)


def early_numbers_do_not_wait_for_the_last_proposal(patch: pytest.MonkeyPatch) -> None:
    original = FastPath.decide

    def decide(self: FastPath) -> None:
        for sender in self._senders:
            for proposed in sender.proposals.values():
                if proposed.by.bit_count() == len(self._senders) - 1:
                    proposed.by = self._all
        original(self)

    patch.setattr(FastPath, "decide", decide)


def what_was_delivered_early_is_not_proposed_again(patch: pytest.MonkeyPatch) -> None:
    """As it was at first: the sender had lost our proposal, and nobody could tell it."""
    patch.setattr(FastPath, "proposed", lambda self, rank, frame_id: None)


def a_frame_of_ours_is_told_of_before_it_is_in_our_queue(patch: pytest.MonkeyPatch) -> None:
    original = WindowStrategy._header

    def guessed(self: WindowStrategy, sent_at: int, tag: Tag | None) -> bytes:
        self._isis.clock -= 1  # as one would guess it before the last frame that came
        try:
            return original(self, sent_at, tag)
        finally:
            self._isis.clock += 1

    patch.setattr(WindowStrategy, "_header", guessed)


CAUGHT: dict[Plant, int] = {
    equal_numbers_are_ordered_as_they_came: 163,
    the_smallest_proposal_is_final: 163,
    a_decided_frame_does_not_wait_for_the_head: 163,
    numbers_do_not_raise_the_clock: 13,
    numbers_are_forgotten_at_the_flush: 23,
    a_frozen_view_goes_on_deciding: 76,
    those_who_are_gone_are_waited_for: 157,
    a_minority_keeps_ordering: 4,
    the_fastest_says_what_is_stable: 163,
    the_disk_is_not_waited_for: 65,
    data_that_comes_again_gets_a_new_number: 7,
    those_who_come_in_do_not_know_the_appends: 41,
    appends_are_forgotten_with_the_view: 38,
    those_who_come_in_stay_where_they_are: 163,
    what_was_under_way_is_lost_with_the_view: 157,
    the_rest_of_a_view_is_delivered_as_it_came: 3,
    early_numbers_are_forgotten_at_the_flush: 54,
    a_frozen_view_goes_on_deciding_early: 41,
    early_numbers_do_not_wait_for_the_last_proposal: 33,
    what_was_delivered_early_is_not_proposed_again: 86,
    a_frame_of_ours_is_told_of_before_it_is_in_our_queue: 230,
}


def first_caught(plant: Plant, seeds: Iterable[int]) -> int | None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return next((seed for seed in seeds if not run_seed("total-order", seed).is_ok), None)


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_planted_bug_is_caught(plant: Plant) -> None:
    """Caught with the bug, and fine without it: so it is the bug that was caught."""
    seed = first_caught(plant, (CAUGHT[plant], *SEEDS))
    assert seed is not None, f"{plant.__name__} went through {len(SEEDS)} seeds unseen"
    assert run_seed("total-order", seed).is_ok
