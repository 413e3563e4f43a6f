"""Break snapshots on purpose, one way at a time: the checkers of the scenario `snapshot` must see each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.member import Member
from motet.protocol.member.channel import _Stream
from motet.protocol.member.snapshots import SnapshotAdapter
from motet.protocol.snapshot import RecordState, SnapshotId, Snapshots
from motet.protocol.snapshot.machine import SendMarker
from motet.protocol.snapshot.participation import LocalState, Participation
from motet.protocol.wire.backlog import Backlog
from motet.protocol.wire.body import Port
from motet.protocol.wire.ordered import Tag
from motet.protocol.wire.snapshot import Marker, Waiting, encode
from motet.sim.runner import run_seed

MOST_SEEDS = 500
Plant = Callable[[pytest.MonkeyPatch], None]


def a_marker_overtakes_a_message(patch: pytest.MonkeyPatch) -> None:
    original = Backlog.extend

    def extend(self: Backlog, messages: Sequence[bytes], port: int = Port.APP, tag: Tag | None = None) -> None:
        waiting = list(self.messages())
        if port != Port.SNAPSHOT or self._fragment_offset:
            original(self, messages, port, tag)
            return
        self.clear()
        original(self, messages, port, tag)
        for waiting_port, message in waiting:
            original(self, [message], waiting_port)

    patch.setattr(Backlog, "extend", extend)


def an_ordered_message_overtakes_a_marker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Stream, "is_barred", property(lambda self: False))


def an_ordered_datagram_does_not_wait_for_a_marker(patch: pytest.MonkeyPatch) -> None:
    """Of the strategy that does not piggyback on the stream."""
    patch.setattr(_Stream, "sent", property(lambda self: 0))


def the_state_is_recorded_after_the_marker_went_out(patch: pytest.MonkeyPatch) -> None:
    make_concrete, supply = Member._make_concrete, Snapshots.supply

    def mark_at_once(self: Member, effect: Effect, now: int) -> list[Effect]:
        if not isinstance(effect, RecordState):
            return make_concrete(self, effect, now)
        assert self.channel.ordering is not None
        marker = encode(Marker(effect.snapshot, self.view.id, self.channel.ordering.sent))
        to_itself = self.unicast.sender(self.address) is not None
        return [effect, *self._made(self._snapshot_adapter.mark(SendMarker(marker, to_itself), self.members, now), now)]

    def supply_without_marker(
        self: Snapshots, snapshot: SnapshotId, state: bytes, local: LocalState, now: int
    ) -> list[Effect]:
        effects = supply(self, snapshot, state, local, now)
        return [effect for effect in effects if not isinstance(effect, SendMarker)]

    patch.setattr(Member, "_make_concrete", mark_at_once)
    patch.setattr(Snapshots, "supply", supply_without_marker)


def recording_begins_when_the_application_has_answered(patch: pytest.MonkeyPatch) -> None:
    original = Participation.record

    def record(
        self: Participation, channel: Channel, sender: Address, port: int, messages: Sequence[bytes], first: int
    ) -> None:
        if self.is_supplied:
            original(self, channel, sender, port, messages, first)

    patch.setattr(Participation, "record", record)


def recording_ends_with_the_first_marker_of_a_sender(patch: pytest.MonkeyPatch) -> None:
    original = Participation.close

    def close(self: Participation, channel: Channel, sender: Address, marker: Marker) -> bool:
        self._open.discard((Channel.UNICAST, sender))
        self._open.discard((Channel.MULTICAST, sender))
        self._open.add((channel, sender))
        self._last_ordered[sender] = marker.ordered
        return original(self, channel, sender, marker)

    patch.setattr(Participation, "close", close)


def ordered_messages_that_are_held_back_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    original = Participation.close

    def close(self: Participation, channel: Channel, sender: Address, marker: Marker) -> bool:
        is_closed = original(self, channel, sender, marker)
        self._open.discard((Channel.TOTAL, sender))
        return is_closed

    patch.setattr(Participation, "close", close)


def a_message_that_waits_is_counted_in_its_channel_as_well(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotAdapter._local_state

    def local_state(
        self: SnapshotAdapter, unsent: Sequence[Waiting], members: Sequence[Address], now: int
    ) -> LocalState:
        local = original(self, unsent, members, now)
        return replace(local, ordered=local.ordered + bool(local.waiting))

    patch.setattr(SnapshotAdapter, "_local_state", local_state)


def a_view_change_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    original = Snapshots._fail

    def fail(self: Snapshots, reason: str, *, tells: bool = True) -> list[Effect]:
        return original(self, reason, tells=tells) if tells else []

    patch.setattr(Snapshots, "_fail", fail)
    patch.setattr(Snapshots, "tick", lambda self, now: [])  # the second line of defence
    patch.setattr(Snapshots, "next_deadline", lambda self: None)


PLANTS: dict[Plant, int] = {  # the seed to begin with: worlds that are small, and quick
    a_marker_overtakes_a_message: 14,
    an_ordered_message_overtakes_a_marker: 14,
    an_ordered_datagram_does_not_wait_for_a_marker: 23,
    the_state_is_recorded_after_the_marker_went_out: 14,
    recording_begins_when_the_application_has_answered: 14,
    recording_ends_with_the_first_marker_of_a_sender: 14,
    ordered_messages_that_are_held_back_are_not_awaited: 14,
    a_message_that_waits_is_counted_in_its_channel_as_well: 14,
    a_view_change_is_not_noticed: 14,
}


def first_caught(seeds: range) -> int | None:
    return next((seed for seed in seeds if not run_seed("snapshot", seed).is_ok), None)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_caught(plant: Plant) -> None:
    """Caught with the bug, and fine without it: so it is the bug that was caught."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        seed = first_caught(range(PLANTS[plant], MOST_SEEDS))
    assert seed is not None, f"{plant.__name__} went through {MOST_SEEDS} seeds unseen"
    assert run_seed("snapshot", seed).is_ok
