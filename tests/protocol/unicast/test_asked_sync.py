"""A SYNC that the application asked for has one end: SYNC-ACK was sent, or an error says why it was not."""

from __future__ import annotations

import pytest

from motet.errors import MisuseError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect, Frame, SyncCompleted, SyncFailed
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.wire.frames import Close, Sync, SyncAck, SyncOk, UnicastAck, UnicastPurged
from tests.protocol.unicast.alone import SYNC_ID, counted, machine, receiving, ticks, to_a
from tests.protocol.unicast.link import NO_REAPING, A, B, C, Link, data, data_of, first_data, kind, numbered, path

TIMEOUT_NS = NO_REAPING.sync_timeout_ns


def ends(effects: list[Effect]) -> list[str]:
    """The ends among these effects, in the words that a person would read."""
    return [
        "completed" if isinstance(effect, SyncCompleted) else str(effect.error)
        for effect in effects
        if isinstance(effect, SyncCompleted | SyncFailed)
    ]


def talked() -> Link:
    """A has sent a message to B, and all is quiet."""
    link = Link()
    link.send(A, B, *numbered(1, 1))
    link.run_until_quiet()
    return link


def test_it_is_complete_when_sync_ack_is_sent_and_not_before() -> None:
    unicast = receiving(1)
    assert unicast.sync(A, SECOND) == to_a(Sync(101, SYNC_ID))
    assert ticks(unicast, SECOND + 200 * MILLISECOND) != [], "SYNC is resent"
    effects = unicast.receive(A, [SyncOk(102, SYNC_ID, 1)], 2 * SECOND)
    assert effects[:2] == [*to_a(SyncAck(102)), SyncCompleted(A, 102, 1)]
    assert ends(unicast.receive(A, [SyncOk(102, SYNC_ID, 1)], 2 * SECOND)) == [], "it ends once"
    assert ticks(unicast, 60 * SECOND) == []


@pytest.mark.parametrize("lost", [Sync, SyncOk, SyncAck])
def test_a_frame_of_the_exchange_that_is_lost_for_a_while_only_makes_it_later(lost: type[Frame]) -> None:
    link = talked()
    link.drop(kind(lost), times=3)
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    assert ends(link.told[B]) == ["completed"]
    assert link.is_in_step(A, B)


@pytest.mark.parametrize("lost", [Sync, SyncOk])
def test_without_an_answer_it_ends_with_the_timeout(lost: type[Frame]) -> None:
    link = talked()
    link.drop(kind(lost))
    asked_at = link.now
    link.perform(B, link[B].sync(A, link.now))
    link.run_for(TIMEOUT_NS - 1)
    assert ends(link.told[B]) == []
    link.run_for(1)
    assert ends(link.told[B]) == [
        f"{A} did not answer SYNC within 5.000 s; check that it is up and reachable, then try again"
    ]
    assert link.now == asked_at + TIMEOUT_NS
    link.heal()
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    assert ends(link.told[B])[1:] == ["completed"], "asked again, it works"


def test_sync_ack_that_is_lost_is_not_for_the_receiver_to_notice() -> None:
    """The design note ends the exchange at the receiver with SYNC-ACK; the sender asks again until it has one."""
    link = talked()
    link.drop(kind(SyncAck))
    link.perform(B, link[B].sync(A, link.now))
    link.run_for(100 * MILLISECOND)
    assert ends(link.told[B]) == ["completed"]
    assert link.sender(A, B).is_syncing


def test_a_sync_that_nobody_asked_for_has_no_end_to_report() -> None:
    unicast = machine(B)
    unicast.receive(A, [data(101, 8)], 0)
    assert ends(unicast.receive(A, [SyncOk(102, SYNC_ID, 7)], 1)) == []
    silent = machine(B)
    silent.receive(A, [data(101, 8)], 0)
    assert [ends(effects) for _, effects in ticks(silent, 60 * SECOND) if ends(effects)] == []


def test_a_sync_that_a_purge_started_has_no_end_to_report() -> None:
    unicast = receiving(1)
    assert unicast.receive(A, [UnicastPurged(101, 5)], SECOND) == to_a(Sync(101, SYNC_ID))
    assert ends(unicast.receive(A, [SyncOk(102, SYNC_ID, 5)], SECOND)) == []


def test_with_a_peer_that_sent_nothing_it_is_refused_and_nothing_is_pending() -> None:
    unicast = receiving(1)
    with pytest.raises(MisuseError, match=r"from C.* by unicast \(send, call\).*Try again once C has sent"):
        unicast.sync(C, 0)
    assert not unicast.is_syncing(C)


def test_it_joins_a_sync_that_is_pending_without_a_window() -> None:
    """A message of an unknown connection was kept; whoever asks now wants the end of what it has started."""
    unicast = machine(B)
    unicast.receive(A, [data(101, 8)], 0)
    assert unicast.sync(A, MILLISECOND) == to_a(Sync(101, SYNC_ID))
    assert ends(unicast.receive(A, [SyncOk(102, SYNC_ID, 7)], SECOND)) == ["completed"]


def test_two_at_once_are_one_exchange_with_one_end_and_the_later_one_has_its_whole_time() -> None:
    unicast = receiving(1)
    unicast.sync(A, 0)
    assert unicast.sync(A, 4 * SECOND) == to_a(Sync(101, SYNC_ID)), "the same attempt, sent again at once"
    assert [ends(effects) for _, effects in ticks(unicast, 4 * SECOND + TIMEOUT_NS - 1) if ends(effects)] == []
    assert [len(ends(effects)) for _, effects in ticks(unicast, 60 * SECOND)] == [1]


def test_two_peers_at_once_end_each_for_itself() -> None:
    link = Link(A, B, C)
    link.send(A, B, b"x")
    link.send(C, B, b"y")
    link.run_until_quiet()
    link.drop(path(B, C))
    for peer in (A, C):
        link.perform(B, link[B].sync(peer, link.now))
    link.run_until_quiet()
    ended = [effect for effect in link.told[B] if isinstance(effect, SyncCompleted | SyncFailed)]
    assert [(type(effect), effect.peer) for effect in ended] == [(SyncCompleted, A), (SyncFailed, C)]


def test_with_oneself_it_takes_the_same_path() -> None:
    link = Link(A, B)
    link.send(A, A, b"x")
    link.run_until_quiet()
    link.perform(A, link[A].sync(A, link.now))
    link.run_until_quiet()
    assert ends(link.told[A]) == ["completed"]


def test_a_peer_that_leaves_meanwhile_ends_it() -> None:
    unicast = receiving(1)
    unicast.sync(A, SECOND)
    assert ends(unicast.remove(A, SECOND)) == [
        f"{A} left the view before it answered SYNC; check whether it is running"
    ]
    assert ticks(unicast, 60 * SECOND) == []


def test_a_window_that_is_dropped_meanwhile_ends_it() -> None:
    unicast = receiving(1)
    unicast.sync(A, SECOND)
    assert ends(unicast.close_receiver(A, SECOND)) == [
        f"the receive window for {A} was closed before it answered SYNC; try again"
    ]
    assert ends(unicast.receive(A, [SyncOk(102, SYNC_ID, 1)], SECOND)) == []


def test_a_peer_that_has_closed_the_connection_says_so_at_once() -> None:
    unicast = receiving(1)
    unicast.sync(A, SECOND)
    (said,) = ends(unicast.receive(A, [Close(101)], SECOND))
    assert said.startswith(f"{A} has closed its connection to this member, so there is nothing to sync")
    assert unicast.receiver(A) is None


def test_a_first_message_that_overtakes_sync_ok_does_not_end_it_before_sync_ack_is_sent() -> None:
    """The first frame is resent under the new connection id, comes before SYNC-OK, and opens a window by itself."""
    link = Link()
    link.drop(kind(UnicastAck))
    link.send(A, B, *numbered(1, 2))
    link.run_for(2 * MILLISECOND)
    link.drop(kind(SyncOk), times=2)
    link.perform(B, link[B].sync(A, link.now))
    link.run_for(2 * MILLISECOND)
    assert link.sender(A, B).conn_id == 102
    link.receive(B, A, [data(102, 1, first=True)])
    assert link.receiver(B, A).conn_id == 102
    assert ends(link.told[B]) == [] == link.frames(B, SyncAck)
    link.heal()
    link.run_until_quiet()
    assert ends(link.told[B]) == ["completed"]
    assert link.inbox(B, A) == numbered(1, 2)
    assert link.is_in_step(A, B)


def test_a_new_connection_that_begins_meanwhile_is_brought_in_step_instead() -> None:
    link = talked()
    answers = link.collect(kind(SyncOk))
    link.perform(B, link[B].sync(A, link.now))
    link.run_for(2 * MILLISECOND)
    link.drop(kind(Close), times=1)
    link.perform(A, link[A].remove(B, link.now))
    link.send(A, B, *numbered(2, 2))
    link.run_for(2 * MILLISECOND)
    assert link.receiver(B, A).conn_id == 103
    assert link.bring(answers[:1]) == [], "the answer for the connection before takes nobody back to it"
    assert link.counters[B][Count.FRAME_OF_OLD_CONNECTION] == 1
    link.heal()
    link.run_until_quiet()
    assert ends(link.told[B]) == ["completed"]
    assert link.is_in_step(A, B)
    assert link.inbox(B, A) == numbered(1, 2)


def test_frames_that_are_kept_meanwhile_are_delivered_when_it_completes() -> None:
    link = talked()
    link.perform(A, link[A].remove(B, link.now))
    link.drop(kind(Close))
    link.drop(first_data, times=1)
    link.send(A, B, *numbered(2, 4))
    link.run_for(2 * MILLISECOND)
    link.perform(B, link[B].sync(A, link.now))
    link.run_until_quiet()
    assert ends(link.told[B]) == ["completed"]
    assert link.inbox(B, A) == numbered(1, 4)
    assert not link.times(data_of(5))
    assert counted(link[B], Count.FRAME_MISPLACED) == 0
