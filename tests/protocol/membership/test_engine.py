"""The view-change engine over real channels: crash, leave, and a fault at every single step of each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import Ballot
from motet.protocol.wire.frames import Commit, Prepare, Ready
from tests.protocol.membership.group import Group, Node, check_agreement, check_one_line, check_virtual_synchrony

SIZE = 4


def busy_group(capacity: int = 16) -> Group:
    """Members that all send, some of it still under way."""
    group = Group(SIZE, capacity)
    for round_number in range(3):
        for node in group.alive:
            group.multicast(node, f"{node.address.name}{round_number}".encode())
    return group


def sends_later(group: Group) -> None:
    """Everybody goes on sending while the view changes; none of it may be lost."""
    for delay_ms in (1, 150, 301, 303, 305, 310, 400, 900):
        for node in group.alive:
            text = f"{node.address.name} at {delay_ms}".encode()
            group.later(delay_ms * MILLISECOND, lambda node=node, text=text: group.multicast(node, text))  # type: ignore[misc]


def crash_a_member(group: Group) -> None:
    group.crash(group[3])


def crash_the_coordinator(group: Group) -> None:
    group.crash(group[0])


def leave_a_member(group: Group) -> None:
    group.perform(group[2], group[2].engine.leave(group.now))


def leave_the_coordinator(group: Group) -> None:
    group.perform(group[0], group[0].engine.leave(group.now))


CHANGES: list[Callable[[Group], None]] = [
    crash_a_member,
    crash_the_coordinator,
    leave_a_member,
    leave_the_coordinator,
]


def changed(change: Callable[[Group], None], capacity: int = 16) -> Group:
    group = busy_group(capacity)
    sends_later(group)
    change(group)
    return group


def frames_of(change: Callable[[Group], None]) -> int:
    group = changed(change)
    group.run(3 * SECOND)
    return group.carried


@pytest.mark.parametrize("capacity", [1, 16])
@pytest.mark.parametrize("change", CHANGES)
def test_all_who_stay_end_in_one_view_and_delivered_the_same(change: Callable[[Group], None], capacity: int) -> None:
    group = changed(change, capacity)
    group.run()
    check_agreement(group)
    assert len(group.alive) == SIZE - 1
    assert all(node.engine.view.is_primary for node in group.alive)


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_that_a_survivor_sent_is_lost(change: Callable[[Group], None]) -> None:
    group = changed(change)
    group.run()
    for sender in group.alive:
        streams = [
            [entry for entry in node.story if isinstance(entry, tuple) and entry[0] == sender.address]
            for node in group.alive
        ]
        assert len(streams[0]) == 3 + 8
        assert all(stream == streams[0] for stream in streams)


@pytest.mark.parametrize("victim", range(SIZE))
@pytest.mark.parametrize("change", CHANGES)
def test_a_crash_at_every_step_of_a_change(change: Callable[[Group], None], victim: int) -> None:
    """One more member crashes just before the n-th frame leaves, for every n."""
    for step in range(1, frames_of(change)):
        group = changed(change)
        group.fault_at = step
        group.fault = lambda group=group: crash_if_alive(group, group[victim])  # type: ignore[misc]
        group.run()
        check_agreement(group)


def crash_if_alive(group: Group, node: Node) -> None:
    if node.is_alive:
        group.crash(node)


@pytest.mark.parametrize("change", [crash_a_member, crash_the_coordinator])
def test_a_cut_link_at_every_step_never_breaks_virtual_synchrony(change: Callable[[Group], None]) -> None:
    """A link is cut for good, one way, just before the n-th frame leaves. Views may then differ until a merge."""
    for step in range(1, frames_of(change)):
        for source, to in ((1, 2), (2, 1)):
            group = changed(change)
            group.fault_at = step
            link = (group[source].address, group[to].address)
            group.fault = lambda group=group, link=link: group.cuts.add(link)  # type: ignore[misc]
            group.run()
            check_virtual_synchrony(group)


@pytest.mark.parametrize(("change", "impatient"), [(crash_a_member, 2), (leave_a_member, 1)])
def test_a_second_coordinator_at_every_step(change: Callable[[Group], None], impatient: int) -> None:
    """Somebody takes over from a coordinator that is alive and at it; ballots decide which of the two is heard."""
    for step in range(1, frames_of(change)):
        group = rivals(change, impatient, step)
        group.run(3 * SECOND)
        check_virtual_synchrony(group)
        check_one_line(group)


def rivals(change: Callable[[Group], None], impatient: int, step: int) -> Group:
    group = changed(change)
    group.fault_at = step
    group.fault = lambda: take_over(group, group[impatient])
    return group


def take_over(group: Group, node: Node) -> None:
    seniors = [member for member in node.engine.view.members if member < node.address]
    suspects = {*seniors, *(member for member in node.engine.view.members if not group.nodes[member].is_alive)}
    if node.is_alive:
        group.perform(node, node.engine.suspect(suspects, group.now))


def test_the_next_coordinator_adopts_a_commit_that_somebody_saw() -> None:
    """The coordinator crashes when its COMMIT has reached one member only."""
    group = changed(crash_a_member)
    commits = 0
    carry = group._carry

    def only_one_commit(node: Node, to: object, frame: object) -> None:
        nonlocal commits
        if isinstance(frame, Commit) and node is group[0]:
            commits += 1
            if commits > 1:
                crash_if_alive(group, node)
        carry(node, to, frame)  # type: ignore[arg-type]

    group._carry = only_one_commit  # type: ignore[method-assign]
    group.run()
    check_agreement(group)
    seen = [[str(view.id) for view in node.views] for node in group.alive]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3, "the view of the crashed coordinator is installed by both, then one without it"


def test_a_full_window_does_not_hold_up_the_view() -> None:
    group = Group(3, capacity=1)
    group.crash(group[2])
    for number in range(5):
        group.multicast(group[0], f"m{number}".encode())
    group.run()
    check_agreement(group)
    delivered = [entry[1] for entry in group[1].story if isinstance(entry, tuple)]
    assert delivered == [b"m0", b"m1", b"m2", b"m3", b"m4"]


def test_the_last_member_leaves_without_asking_anybody() -> None:
    group = Group(1)
    group.perform(group[0], group[0].engine.leave(0))
    assert not group[0].is_alive


def test_all_members_leave_at_once_and_none_stays_behind() -> None:
    group = Group(3)
    for index in range(3):
        group.perform(group[index], group[index].engine.leave(group.now))
    group.run()
    assert group.alive == []
    assert all(node.engine.has_left for node in group.nodes.values())


def test_a_coordinator_that_is_late_itself_tries_again_with_the_next_ballot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 1272 of the simulator: there was nobody to go on without, and so nobody went on at all."""
    group = busy_group()
    coordinator = group[0].engine
    group.crash(group[3])
    with monkeypatch.context() as patch:
        patch.setattr(coordinator._channel, "is_complete", lambda cut: False)
        group.run(2 * SECOND)
        assert [node.engine.view.id.number for node in group.alive] == [1, 1, 1]
    group.run()
    check_agreement(group)


def test_a_round_that_begins_when_time_is_up_asks_everybody_once() -> None:
    group = busy_group()
    group.crash(group[3])
    group.cuts = {(group[1].address, group[0].address)}
    asked: Counter[tuple[Address, Ballot]] = Counter()
    carry = group._carry

    def counting(node: Node, to: Address, frame: Frame) -> None:
        if isinstance(frame, Prepare) and frame.ballot.round == 2:
            asked[to, frame.ballot] += 1
        carry(node, to, frame)

    group._carry = counting  # type: ignore[method-assign]
    group.run(SECOND)
    assert asked
    assert set(asked.values()) == {1}


def test_who_delivered_more_than_a_commit_allows_goes_on_alone() -> None:
    """B installs a view without A; C and D said READY to it, then promised A more, and A hears of B's view too late."""
    group = Group(5)
    a, b, c, d, e = (group[index] for index in range(5))
    everybody = list(group.nodes)
    carry = group._carry

    def losing(node: Node, to: Address, frame: Frame) -> None:
        is_lost = node is b and isinstance(frame, Commit)
        is_lost |= node is d and isinstance(frame, Ready) and frame.ballot.proposer == a.address.incarnation
        if not is_lost:
            carry(node, to, frame)

    group._carry = losing  # type: ignore[method-assign]
    e.is_alive = False
    group.multicast(a, b"early")
    group.run(10 * MILLISECOND)
    group.perform(b, b.engine.suspect([everybody[0], everybody[4]], group.now))
    group.run(20 * MILLISECOND)
    assert b.engine.view.members == (everybody[1], everybody[2], everybody[3])
    group.multicast(a, b"late")
    group.perform(a, a.engine.suspect([everybody[1], everybody[4]], group.now))
    group.run(600 * MILLISECOND)  # A stands back for the ballot of B, then asks again
    assert (a.address, b"late") in c.story
    group.perform(a, a.engine.suspect([everybody[4]], group.now))
    group.run()
    check_virtual_synchrony(group)
