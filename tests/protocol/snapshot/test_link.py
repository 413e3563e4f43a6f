"""A group of machines on a fake link: whatever the order of events, the tokens of a cut are all that there are."""

from __future__ import annotations

import pytest

from tests.protocol.snapshot.alone import ENDOWMENT, A, B, Link, tokens_in


@pytest.mark.parametrize("members", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(25))
def test_every_cut_has_all_tokens(members: int, seed: int) -> None:
    link = Link(members, seed)
    for _ in range(3):
        for _ in range(link.rng.randrange(60)):
            link.step()
        for member in link.rng.sample(link.view.members, link.rng.randrange(1, members + 1)):
            link.start(member)
    for _ in range(200):
        link.step()
    link.drain()
    assert not link.failed
    assert not link.running
    for reports in link.taken.values():
        assert tokens_in(reports) == members * ENDOWMENT
    assert link.taken
    assert sum(node.tokens for node in link.nodes.values()) == members * ENDOWMENT


def test_two_at_once_are_two_cuts() -> None:
    link = Link(4, 1)
    for member in link.view.members:
        for _ in range(5):
            link.send(member)
        link.start(member)
    link.drain()
    assert len(link.taken) == 4
    assert {tokens_in(reports) for reports in link.taken.values()} == {4 * ENDOWMENT}
    assert any(state.messages for reports in link.taken.values() for r in reports.values() for state in r.channels)


def test_in_a_quiet_group_nothing_is_in_flight() -> None:
    link = Link(3, 2)
    link.start(A)
    link.drain()
    (reports,) = link.taken.values()
    assert list(reports) == list(link.view.members)
    assert all(not report.channels for report in reports.values())


def test_one_after_the_other_by_one_member() -> None:
    link = Link(3, 3)
    for _ in range(4):
        link.send(B)
        link.start(A)
        link.drain()
    assert [snapshot.number for snapshot in link.taken] == [1, 2, 3, 4]
