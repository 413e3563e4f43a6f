"""How a view ends: everybody who goes on has delivered the same, and nothing that was accepted is lost.

The coordinator is played by hand here: it gathers digests, computes the cut, waits until it is held, ends the view.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.multicast import MulticastConfig
from motet.protocol.window.digest import Cut, cut_of
from motet.protocol.wire.frames import MulticastData, MulticastXmitRequest
from tests.protocol.multicast.link import A, B, C, D, Flight, Group

Cuts = dict[Address, Cut[Address]]


def numbered(first: int, last: int) -> list[bytes]:
    return [f"message {number}".encode() for number in range(first, last + 1)]


def freeze(group: Group, *survivors: Address) -> Cuts:
    return cut_of({member: group[member].freeze() for member in survivors})


def flush(group: Group, *survivors: Address) -> Cuts:
    cut = freeze(group, *survivors)
    for member in survivors:
        group.perform(member, group[member].fetch(cut, group.now))
    for _ in range(1_000):
        if all(group[member].is_complete(cut) for member in survivors):
            break
        group.run_for(10 * MILLISECOND)
    for member in survivors:
        digest = {sender: end.seqno for sender, end in cut.items()}
        group.perform(member, group[member].end_view(cut) + group[member].begin_view(survivors, digest, group.now))
    return cut


def data_from(sender: Address, to: Address, least: int = 1) -> object:
    def applies(flight: Flight) -> bool:
        frame = flight.frame
        is_data = isinstance(frame, MulticastData) and frame.sender == sender.incarnation and frame.seqno >= least
        return is_data and flight.to == to

    return applies


def test_what_one_survivor_has_of_a_crashed_sender_reaches_all() -> None:
    group = Group(A, B, C)
    group.drop(data_from(A, C, least=2))  # type: ignore[arg-type]
    for message in numbered(1, 3):
        group.send(A, message)
    group.run_for(3 * MILLISECOND)
    group.crash(A)
    group.heal()
    flush(group, B, C)
    assert group.inbox(B, A) == group.inbox(C, A) == numbered(1, 3)
    asked = group.flights(lambda flight: isinstance(flight.frame, MulticastXmitRequest) and flight.to == B)
    assert asked, "C asks the holder, for the sender is gone"


def test_what_no_survivor_has_is_delivered_by_none() -> None:
    group = Group(A, B, C)
    group.drop(lambda flight: isinstance(flight.frame, MulticastData) and flight.frame.seqno == 2)
    for message in numbered(1, 3):
        group.send(A, message)
    group.run_for(3 * MILLISECOND)
    group.crash(A)
    flush(group, B, C)
    assert group.inbox(B, A) == group.inbox(C, A) == numbered(1, 1)


def test_a_view_change_never_waits_behind_the_full_window_that_it_frees() -> None:
    group = Group(A, B, C, config=MulticastConfig(capacity=4))
    group.crash(C)
    for message in numbered(1, 10):
        group.send(A, message)
    group.run_for(SECOND)
    assert group.sender(A).window.is_full
    assert group.inbox(B, A) == numbered(1, 4)
    flush(group, A, B)
    group.run_until_quiet()
    assert group.inbox(B, A) == group.inbox(A, A) == numbered(1, 10)


def test_what_is_sent_during_a_flush_waits_and_goes_out_in_the_new_view() -> None:
    group = Group(A, B)
    cut = freeze(group, A, B)
    group.send(A, b"later")
    group.run_for(SECOND)
    assert group.frames(A, MulticastData) == []
    assert group.inbox(A, A) == []
    for member in (A, B):
        group.perform(member, group[member].end_view(cut) + group[member].begin_view((A, B), {A: 0, B: 0}, group.now))
    group.run_until_quiet()
    assert group.inbox(A, A) == group.inbox(B, A) == [b"later"]


def test_a_frame_that_comes_after_the_answer_is_not_handed_up_before_the_cut_is_known() -> None:
    group = Group(A, B)
    group.send(A, b"one")
    cut = freeze(group, B)  # B answers before the frame arrives
    group.run_for(SECOND)
    assert group.inbox(B, A) == []
    assert cut[A] == Cut(0, B, 0)
    group.perform(B, group[B].thaw(group.now))
    assert group.inbox(B, A) == [b"one"]


def test_a_second_coordinator_is_told_no_more_than_the_first() -> None:
    group = Group(A, B)
    group.send(A, b"one")
    first = group[B].freeze()
    group.run_for(SECOND)
    assert group[B].freeze()[A].received == first[A].received == 0


def test_a_slow_application_does_not_delay_the_view() -> None:
    group = Group(A, B)
    group.pause(B)
    group.send(A, b"one")
    group.run_for(10 * MILLISECOND)
    assert group.inbox(B, A) == []
    flush(group, A, B)
    assert group.inbox(B, A) == [b"one"]


@pytest.mark.parametrize("is_paused", [False, True], ids=["reads", "takes nothing"])
def test_a_window_that_is_much_smaller_than_the_cut_is_far_gets_there_in_steps(is_paused: bool) -> None:
    """Seed 1272 of the simulator: space was made once per ballot, so each ballot came one frame further."""
    group = Group(A, B, C, configs={member: MulticastConfig(capacity=c) for member, c in ((A, 8), (B, 8), (C, 1))})
    group.drop(data_from(A, C))  # type: ignore[arg-type]
    for message in numbered(1, 8):
        group.send(A, message)
    group.run_for(3 * MILLISECOND)
    group.crash(A)
    group.heal()
    if is_paused:
        group.pause(C)
    cut = flush(group, B, C)
    assert cut[A].seqno == 8
    assert group.inbox(C, A) == group.inbox(B, A) == numbered(1, 8)


def test_a_repair_by_one_whose_window_had_to_let_go_does_not_say_that_it_was_stable() -> None:
    group = Group(A, B, C, configs={member: MulticastConfig(capacity=c) for member, c in ((A, 8), (B, 1), (C, 8))})
    group.drop(data_from(A, C))  # type: ignore[arg-type]
    for message in numbered(1, 4):
        group.send(A, message)
    group.run_for(3 * MILLISECOND)
    receiver = group[B].receiver(A)
    assert receiver is not None
    group.perform(B, group[B].fetch({A: Cut(4, A, 0)}, group.now))
    group.run_for(SECOND)
    frame = receiver.frame(4)
    assert receiver.window.low == 3
    assert frame is not None
    assert frame.stable == 0


def test_a_flush_that_is_called_off_leaves_the_view_as_it_was() -> None:
    group = Group(A, B)
    freeze(group, A, B)
    group.send(A, b"one")
    for member in (A, B):
        group.perform(member, group[member].thaw(group.now))
    group.run_until_quiet()
    assert group.inbox(A, A) == group.inbox(B, A) == [b"one"]


def test_a_view_cannot_end_before_its_cut_is_held() -> None:
    group = Group(A, B, C)
    group.drop(data_from(A, C))  # type: ignore[arg-type]
    group.send(A, b"one")
    group.run_for(3 * MILLISECOND)
    cut = freeze(group, A, B, C)
    with pytest.raises(MisuseError, match="fetch them before the view ends"):
        group[C].end_view(cut)


def test_nothing_is_kept_for_repair_once_the_view_has_ended() -> None:
    group = Group(A, B)
    group.send(A, *numbered(1, 5))
    group.run_for(3 * MILLISECOND)
    flush(group, A, B)
    assert group[A].buffered_frames == group[B].buffered_frames == 0


@given(seed=st.integers(0, 1 << 32))
def test_all_who_go_on_together_delivered_the_same_in_the_old_view(seed: int) -> None:
    """Loss while members send, then a crash, then the flush under loss, then more of the same in the next view."""
    rng = Random(seed)
    everybody = (A, B, C, D)
    group = Group(*everybody, config=MulticastConfig(capacity=rng.choice([1, 4, 16])))
    group.drop(lambda flight: rng.random() < 0.3)
    alive = list(everybody)
    accepted: dict[Address, list[bytes]] = {member: [] for member in everybody}
    for _ in range(2):
        for number in range(rng.randrange(20)):
            sender = rng.choice(alive)
            accepted[sender].append(f"message {number} in a view of {len(alive)}".encode())
            group.send(sender, accepted[sender][-1])
            group.run_for(rng.randrange(3 * MILLISECOND))
        crashed = alive.pop(rng.randrange(len(alive)))
        group.crash(crashed)
        flush(group, *alive)
        inboxes = [group.inbox(member, crashed) for member in alive]
        assert all(inbox == inboxes[0] for inbox in inboxes)
    group.heal()
    group.run_until_quiet()
    for sender in alive:  # what they sent while a view ended went out in the next
        assert group.inbox(alive[0], sender) == group.inbox(alive[1], sender) == accepted[sender]


def test_what_was_sent_beyond_the_cut_is_not_handed_up_in_the_next_view() -> None:
    """Its sender was let go on in the old view, and is somewhere else."""
    group = Group(A, B)
    cut = freeze(group, B)
    group.send(A, b"stray")
    group.run_for(10 * MILLISECOND)
    group.perform(B, group[B].end_view(cut) + group[B].begin_view((A, B), {A: 0, B: 0}, group.now, tag=2))
    assert group.inbox(B, A) == []
    receiver = group[B].receiver(A)
    assert receiver is not None
    assert (receiver.window.high, receiver.next_deadline()) == (0, None), "nothing is missing"


def test_who_delivered_more_or_sent_more_than_the_cut_is_not_within_it() -> None:
    group = Group(A, B)
    cut = cut_of({member: group[member].freeze() for member in (A, B)})
    assert group[A].is_within(cut)
    for member in (A, B):
        group.perform(member, group[member].thaw(group.now))
    group.send(A, b"more")
    group.run_until_quiet()
    assert not group[A].is_within(cut)
    assert not group[B].is_within(cut)
