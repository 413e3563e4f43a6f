"""Break the machines on purpose, one way at a time: a checker that catches none of it is no checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.multicast.machine import Multicast
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.multicast.sender import MulticastSender
from motet.protocol.unicast.machine import Unicast
from motet.protocol.unicast.receiver import ReceiveConnection
from motet.protocol.unicast.sender import ConnectionState, SendConnection
from motet.protocol.window.acks import AckTable
from motet.protocol.window.gaps import GapWatch
from motet.protocol.window.ranges import Ranges
from motet.protocol.window.ring import RingWindow
from motet.protocol.wire.frames import MulticastAck, MulticastData, SyncOk, UnicastAck, UnicastData
from motet.sim.runner import run_seed

SEEDS = range(300)
Plant = Callable[[pytest.MonkeyPatch], None]


def no_second_line_of_defence(patch: pytest.MonkeyPatch) -> None:
    """A receiver that is out of step is never told; what SYNC alone must ensure then shows."""
    patch.setattr(Unicast, "_on_purged", lambda self, source, frame, now: [])


def late_ack_of_an_old_connection_purges(patch: pytest.MonkeyPatch) -> None:
    no_second_line_of_defence(patch)
    original = SendConnection.ack
    patch.setattr(SendConnection, "is_syncing", False)
    patch.setattr(SendConnection, "ack", lambda self, conn_id, seqno, now: original(self, self.conn_id, seqno, now))


def sync_keeps_the_old_connection_id(patch: pytest.MonkeyPatch) -> None:
    no_second_line_of_defence(patch)
    original = SendConnection.sync
    patch.setattr(SendConnection, "is_syncing", property(lambda self: False))
    patch.setattr(
        SendConnection, "sync", lambda self, seen, sync_id, fresh, now: original(self, seen, sync_id, self.conn_id, now)
    )


def a_message_that_overtakes_the_first_opens_the_window(patch: pytest.MonkeyPatch) -> None:
    def open_at_once(self: Unicast, source: Address, frame: UnicastData, now: int) -> None:
        self._open_receiver(source, frame.conn_id, frame.seqno - 1, now)
        self._receivers[source].data(frame, now)

    patch.setattr(Unicast, "_buffer_for_sync", open_at_once)


def close_without_flush(patch: pytest.MonkeyPatch) -> None:
    def reap(self: SendConnection, now: int) -> list[Effect]:
        if self.state is ConnectionState.OPEN:
            self.close(now)
        else:
            self.state = ConnectionState.CLOSED
        return []

    patch.setattr(SendConnection, "_reap", reap)


def the_highest_is_never_resent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SendConnection, "_run_retransmission", lambda self, now: [])


def unicast_acks_what_was_received_and_not_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    def send_ack(self: ReceiveConnection, now: int) -> list[Effect]:
        self._since_ack, self._owes_ack = 0, False
        return [Transmit(self.peer, UnicastAck(self.conn_id, self.window.high))]

    patch.setattr(ReceiveConnection, "_send_ack", send_ack)


def one_less_than_capacity_fits(patch: pytest.MonkeyPatch) -> None:
    original = RingWindow.offer

    def offer(self: RingWindow[Any], seqno: int, item: Any) -> bool:
        return False if seqno >= self.low + self.capacity else original(self, seqno, item)

    patch.setattr(RingWindow, "offer", offer)


def one_more_than_capacity_fits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RingWindow, "is_full", property(lambda self: self.high - self.low > self.capacity))


def what_is_received_again_is_delivered_again(patch: pytest.MonkeyPatch) -> None:
    original = Unicast._open_receiver

    def forgetful(self: Unicast, source: Address, conn_id: int, low: int, now: int) -> None:
        self._remembered.clear()
        self._receivers.pop(source, None)
        original(self, source, conn_id, low, now)

    patch.setattr(Unicast, "_open_receiver", forgetful)


def sync_ok_skips_one(patch: pytest.MonkeyPatch) -> None:
    original = Unicast._on_sync_ok

    def skip(self: Unicast, source: Address, frame: SyncOk, now: int) -> list[Effect]:
        return original(self, source, SyncOk(frame.conn_id, frame.sync_id, frame.low + 1), now)

    patch.setattr(Unicast, "_on_sync_ok", skip)


def the_seqnos_of_a_new_connection_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unicast, "_drop_sender", lambda self, peer: self._senders.pop(peer))


def a_message_on_a_closing_connection_does_not_open_it_again(patch: pytest.MonkeyPatch) -> None:
    original = SendConnection.send

    def send(self: SendConnection, messages: list[bytes], now: int) -> list[Effect]:
        if self.state is ConnectionState.CLOSING:
            self.accepted += len(messages)
            return []
        return original(self, messages, now)

    patch.setattr(SendConnection, "send", send)


def ack_of_a_non_member_counts(patch: pytest.MonkeyPatch) -> None:
    original = AckTable.ack

    def ack(self: AckTable[Any], member: Any, seqno: int) -> tuple[int, int]:
        self._acks.setdefault(member, 0)
        return original(self, member, seqno)

    patch.setattr(AckTable, "__contains__", lambda self, member: True)
    patch.setattr(AckTable, "ack", ack)


def the_largest_ack_purges(patch: pytest.MonkeyPatch) -> None:
    def ack(self: AckTable[Any], member: Any, seqno: int) -> tuple[int, int]:
        before, self.minimum = self.minimum, max(self.minimum, seqno)
        return before, self.minimum

    patch.setattr(AckTable, "ack", ack)


def no_last_seqno_announcement(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MulticastSender, "tick", lambda self, now: [])
    patch.setattr(MulticastSender, "_restart_tail_timer", lambda self, now: None)


def a_gap_is_asked_for_once_only(patch: pytest.MonkeyPatch) -> None:
    original = GapWatch.poll

    def poll(self: GapWatch, now: int) -> Ranges:
        asked = original(self, now)
        return asked if self._attempt <= 1 else ()

    patch.setattr(GapWatch, "poll", poll)


def a_lost_ack_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    original = MulticastReceiver._send_ack

    def send_once(self: MulticastReceiver) -> list[Effect]:
        is_new = bool(self._since_ack)
        effects = original(self)
        return effects if is_new else []

    patch.setattr(MulticastReceiver, "_send_ack", send_once)


def multicast_acks_what_was_received_and_not_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    def send_ack(self: MulticastReceiver) -> list[Effect]:
        self._since_ack, self._owes_ack, self._ack_due = 0, False, None
        return [Transmit(self.sender, MulticastAck(self.window.high))]

    patch.setattr(MulticastReceiver, "_send_ack", send_ack)


def a_joiner_enters_the_ack_table_at_zero(patch: pytest.MonkeyPatch) -> None:
    original = AckTable.retain
    patch.setattr(AckTable, "retain", lambda self, members, joined_at: original(self, members, 0))


def a_crashed_member_stays_in_the_ack_table(patch: pytest.MonkeyPatch) -> None:
    original = AckTable.retain

    def retain(self: AckTable[Any], members: list[Any], joined_at: int) -> None:
        original(self, list(dict.fromkeys([*self._acks, *members])), joined_at)

    patch.setattr(AckTable, "retain", retain)


def a_new_view_does_not_release_the_waiting(patch: pytest.MonkeyPatch) -> None:
    def retain(
        self: MulticastSender, members: list[Address], joined_at: int, now: int, *, is_paused: bool
    ) -> list[Effect]:
        self.acks.retain(members, max(joined_at, self.window.low))
        return []

    patch.setattr(MulticastSender, "retain", retain)


def multicast_skips_a_gap(patch: pytest.MonkeyPatch) -> None:
    original = MulticastReceiver.data

    def data(self: MulticastReceiver, frame: MulticastData) -> None:
        if frame.seqno > self.window.delivered + 1:
            self.window.advance(frame.seqno - 1)
        original(self, frame)

    patch.setattr(MulticastReceiver, "data", data)


def a_restarted_process_keeps_its_old_stream(patch: pytest.MonkeyPatch) -> None:
    """The joiner's window starts one too high: its first message is taken for delivered."""
    original = Multicast._merge_receivers

    def merge(self: Multicast, members: list[Address], digest: dict[Address, int]) -> None:
        original(self, members, {member: seqno + 1 for member, seqno in digest.items()})

    patch.setattr(Multicast, "_merge_receivers", merge)


PLANTS: dict[Plant, int] = {  # the seed to begin with: one that catches it, in a world that is quick
    late_ack_of_an_old_connection_purges: 113,
    sync_keeps_the_old_connection_id: 76,
    a_message_that_overtakes_the_first_opens_the_window: 5,
    close_without_flush: 1,
    the_highest_is_never_resent: 6,
    unicast_acks_what_was_received_and_not_what_was_delivered: 4,
    one_less_than_capacity_fits: 4,
    one_more_than_capacity_fits: 2,
    what_is_received_again_is_delivered_again: 143,
    sync_ok_skips_one: 4,
    the_seqnos_of_a_new_connection_restart: 5,
    a_message_on_a_closing_connection_does_not_open_it_again: 0,
    ack_of_a_non_member_counts: 2,
    the_largest_ack_purges: 2,
    no_last_seqno_announcement: 1,
    a_gap_is_asked_for_once_only: 1,
    a_lost_ack_is_not_repeated: 1,
    multicast_acks_what_was_received_and_not_what_was_delivered: 6,
    a_joiner_enters_the_ack_table_at_zero: 3,
    a_crashed_member_stays_in_the_ack_table: 3,
    a_new_view_does_not_release_the_waiting: 12,
    multicast_skips_a_gap: 0,
    a_restarted_process_keeps_its_old_stream: 0,
}


WITHOUT_SECOND_LINE = [late_ack_of_an_old_connection_purges, sync_keeps_the_old_connection_id]


def first_caught(seeds: range) -> int | None:
    return next((seed for seed in seeds if not run_seed("channels", seed).is_ok), None)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_caught(plant: Plant) -> None:
    """Caught with the bug, and fine without it: so it is the bug that was caught."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        first = PLANTS[plant]
        seed = first_caught(range(first, first + len(SEEDS)))
    assert seed is not None, f"{plant.__name__} went through {len(SEEDS)} seeds unseen"
    assert run_seed("channels", seed).is_ok
    if plant in WITHOUT_SECOND_LINE:
        with pytest.MonkeyPatch.context() as patch:
            no_second_line_of_defence(patch)
            assert run_seed("channels", seed).is_ok, "the missing second line was caught, not the bug"
