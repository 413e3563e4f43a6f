"""The ISIS algorithm of one view: its rules one by one, then several members with any delays between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.protocol.ordering.isis import Isis
from motet.protocol.wire.ordered import SequenceNumber


def with_frames(isis: Isis, sender: int, count: int) -> Isis:
    for frame_id in range(isis.received(sender) + 1, isis.received(sender) + count + 1):
        assert isis.receive_data(sender, frame_id, b"") is not None
    return isis


def delivered(isis: Isis) -> list[tuple[int, int]]:
    ready = [(pending.sender, pending.id) for pending in isis.deliverable()]
    isis._check()
    return ready


class TestProposals:
    def test_each_frame_is_proposed_one_above_the_clock(self) -> None:
        isis = Isis(3, 2)
        frames = [(0, 1, b"a"), (1, 1, b"b"), (0, 2, b"c")]
        assert [isis.receive_data(*frame) for frame in frames] == [1, 2, 3]
        assert isis.clock == 3
        assert {(p.sender, p.id, p.body, p.proposed, p.number) for p in isis.queue} == {
            (0, 1, b"a", 1, SequenceNumber(1, 2)),
            (1, 1, b"b", 2, SequenceNumber(2, 2)),
            (0, 2, b"c", 3, SequenceNumber(3, 2)),
        }

    @pytest.mark.parametrize("frame_id", [0, 1, 2, 4, 2**63])
    def test_a_frame_that_came_before_or_out_of_turn_is_not_proposed(self, frame_id: int) -> None:
        isis = with_frames(Isis(2, 0), 1, 2)
        assert isis.receive_data(1, frame_id, b"") is None
        assert (isis.clock, len(isis.queue), isis.received(1)) == (2, 2, 2)

    def test_a_frame_that_was_delivered_is_not_proposed_again(self) -> None:
        isis = with_frames(Isis(2, 0), 1, 1)
        isis.receive_number(1, 1, SequenceNumber(1, 0))
        assert delivered(isis) == [(1, 1)]
        assert isis.receive_data(1, 1, b"") is None
        assert isis.clock == 1

    def test_it_remembers_its_proposal_also_when_the_frame_is_decided_until_it_is_delivered(self) -> None:
        isis = with_frames(with_frames(Isis(2, 0), 0, 1), 1, 1)
        assert isis.proposed(1, 1) == 2
        isis.receive_number(1, 1, SequenceNumber(9, 1))
        assert isis.proposed(1, 1) == 2
        isis.receive_number(0, 1, SequenceNumber(3, 1))
        delivered(isis)
        assert isis.proposed(1, 1) is None
        assert isis.proposed(1, 2) is None


class TestAgreedNumbers:
    def test_the_largest_of_all_proposals_is_final(self) -> None:
        isis = with_frames(Isis(3, 1), 1, 1)
        for proposer, number in ((0, 4), (1, 1), (2, 7)):
            assert isis.agreed() == (1, [])
            isis.receive_proposal(proposer, 1, number)
        assert isis.agreed() == (1, [SequenceNumber(7, 2)])

    @pytest.mark.parametrize(
        ("proposals", "final"),
        [
            ((5, 5, 5), SequenceNumber(5, 0)),
            ((1, 5, 5), SequenceNumber(5, 1)),
            ((5, 1, 5), SequenceNumber(5, 0)),
            ((5, 5, 6), SequenceNumber(6, 2)),
            ((6, 5, 5), SequenceNumber(6, 0)),
        ],
    )
    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
    def test_of_equal_ones_the_smaller_proposer_is_named(
        self, proposals: tuple[int, ...], final: SequenceNumber, order: tuple[int, ...]
    ) -> None:
        isis = with_frames(Isis(3, 0), 0, 1)
        for proposer in order:
            isis.receive_proposal(proposer, 1, proposals[proposer])
        assert isis.agreed() == (1, [final])

    def test_they_are_handed_out_in_the_order_of_ids_whatever_becomes_final_first(self) -> None:
        isis = with_frames(Isis(2, 0), 0, 3)
        for frame_id in (3, 2):
            for proposer in (0, 1):
                isis.receive_proposal(proposer, frame_id, frame_id)
            assert isis.agreed() == (1, [])
        isis.receive_proposal(0, 1, 1)
        isis.receive_proposal(1, 1, 1)
        assert isis.agreed() == (1, [SequenceNumber(1, 0), SequenceNumber(2, 0), SequenceNumber(3, 0)])
        assert isis.agreed_through == 3

    def test_they_are_handed_out_once(self) -> None:
        isis = with_frames(Isis(1, 0), 0, 1)
        isis.receive_proposal(0, 1, 1)
        assert isis.agreed() == (1, [SequenceNumber(1, 0)])
        assert isis.agreed() == (2, [])
        isis._check()

    def test_the_first_word_of_a_proposer_counts(self) -> None:
        isis = with_frames(Isis(2, 0), 0, 1)
        isis.receive_proposal(1, 1, 3)
        isis.receive_proposal(1, 1, 8)
        isis.receive_proposal(0, 1, 1)
        assert isis.agreed() == (1, [SequenceNumber(3, 1)])

    def test_a_late_proposal_leaves_no_trace(self) -> None:
        isis = with_frames(Isis(2, 0), 0, 1)
        isis.receive_proposal(0, 1, 1)
        isis.receive_proposal(1, 1, 1)
        isis.agreed()
        isis.receive_proposal(1, 1, 9)
        isis.receive_proposal(1, 0, 9)
        assert isis.agreed() == (2, [])
        assert isis._proposals == {}
        isis._check()

    def test_a_silent_member_blocks_what_it_has_not_proposed_for_and_what_follows_it(self) -> None:
        isis = with_frames(Isis(3, 0), 0, 3)
        for proposer in (0, 1):
            for frame_id in (1, 2, 3):
                isis.receive_proposal(proposer, frame_id, frame_id)
        isis.receive_proposal(2, 1, 1)
        isis.receive_proposal(2, 3, 3)
        assert isis.agreed() == (1, [SequenceNumber(1, 0)])
        assert isis.agreed() == (2, [])

    def test_who_owes_what(self) -> None:
        isis = with_frames(Isis(3, 0), 0, 5)
        assert isis.missing(1, 5) == (1, 5)
        for frame_id in (1, 3, 5):
            isis.receive_proposal(1, frame_id, frame_id)
        assert isis.missing(1, 5) == (2, 4)
        for frame_id in (2, 4):
            isis.receive_proposal(1, frame_id, frame_id)
        assert isis.missing(1, 5) is None
        assert isis.missing(1, 7) == (6, 7)

    def test_nobody_owes_what_is_final(self) -> None:
        isis = with_frames(Isis(2, 0), 0, 2)
        isis.receive_proposal(0, 1, 1)
        isis.receive_proposal(1, 1, 1)
        isis.agreed()
        assert isis.missing(1, 2) == (2, 2)
        assert isis.missing(1, 1) is None


class TestNumbers:
    def test_the_clock_is_raised_by_a_final_number(self) -> None:
        isis = with_frames(Isis(2, 0), 1, 1)
        assert isis.receive_number(1, 1, SequenceNumber(40, 1))
        assert isis.clock == 40
        assert isis.receive_data(1, 2, b"") == 41

    def test_the_clock_never_falls(self) -> None:
        isis = with_frames(Isis(2, 0), 1, 5)
        isis.receive_number(1, 1, SequenceNumber(1, 0))
        assert isis.clock == 5

    @pytest.mark.parametrize("frame_id", [0, 1, 3, 5, 2**63])
    def test_a_number_that_came_before_out_of_turn_or_without_its_frame_is_refused(self, frame_id: int) -> None:
        isis = with_frames(Isis(2, 0), 1, 4)
        assert isis.receive_number(1, 1, SequenceNumber(5, 0))
        assert not isis.receive_number(1, frame_id, SequenceNumber(99, 0))
        assert isis.clock == 5

    def test_a_number_does_not_come_before_its_frame(self) -> None:
        isis = Isis(2, 0)
        assert not isis.receive_number(1, 1, SequenceNumber(3, 0))
        assert isis.clock == 0
        assert [isis.decided(0), isis.decided(1)] == [0, 0]

    def test_it_says_how_far_each_sender_is(self) -> None:
        isis = with_frames(with_frames(Isis(3, 0), 1, 3), 2, 1)
        isis.receive_number(1, 1, SequenceNumber(1, 0))
        assert [isis.received(rank) for rank in range(3)] == [0, 3, 1]
        assert [isis.decided(rank) for rank in range(3)] == [0, 1, 0]
        assert [isis.held_back(rank) for rank in range(3)] == [0, 3, 1]

    def test_a_copy_goes_its_own_way(self) -> None:
        isis = with_frames(Isis(2, 0), 1, 2)
        twin = isis.copy()
        assert twin.receive_number(1, 1, SequenceNumber(1, 0))
        assert twin.receive_data(1, 3, b"c") == 3
        assert [pending.id for pending in twin.deliverable()] == [1]
        assert (isis.decided(1), isis.received(1), isis.held_back(1), isis.clock) == (0, 2, 2, 2)
        assert not any(pending.is_decided for pending in isis.queue)


# Several members


@dataclass(slots=True)
class Group:
    """Isis objects and the links between them: each link keeps its order, and they are served in any order."""

    size: int
    rng: Random
    silent: frozenset[int] = frozenset()  # of these no proposal arrives anywhere
    members: list[Isis] = field(init=False)
    logs: list[list[tuple[int, int]]] = field(init=False)
    sent: list[int] = field(init=False)
    _links: dict[tuple[int, int, str], deque[tuple[int, int, SequenceNumber]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = [Isis(self.size, rank) for rank in range(self.size)]
        self.logs = [[] for _ in range(self.size)]
        self.sent = [0] * self.size

    def send(self, sender: int) -> None:
        self.sent[sender] += 1
        for to in range(self.size):
            self._put(sender, to, "stream", (self.sent[sender], 0, SequenceNumber(0, 0)))

    def run(self) -> None:
        while links := sorted(link for link, queue in self._links.items() if queue):
            self.serve(self.rng.choice(links))

    def step(self) -> None:
        if links := sorted(link for link, queue in self._links.items() if queue):
            self.serve(self.rng.choice(links))

    def serve(self, link: tuple[int, int, str]) -> None:
        source, to, kind = link
        queue = self._links[link]
        at = 0 if kind == "stream" else self.rng.randrange(len(queue))  # proposals overtake one another
        queue.rotate(-at)
        frame_id, is_number, number = queue.popleft()
        queue.rotate(at)
        member = self.members[to]
        if kind == "proposal":
            member.receive_proposal(source, frame_id, number.number)
            self._announce(to)
        elif is_number:
            assert member.receive_number(source, frame_id, number)
        else:
            proposed = member.receive_data(source, frame_id, b"")
            assert proposed is not None
            if to not in self.silent or to == source:
                for _ in range(self.rng.choice([1, 1, 2])):
                    self._put(to, source, "proposal", (frame_id, 0, SequenceNumber(proposed, to)))
        member._check()
        self.logs[to] += [(pending.sender, pending.id) for pending in member.deliverable()]

    def _announce(self, sender: int) -> None:
        first, numbers = self.members[sender].agreed()
        for offset, number in enumerate(numbers):
            for to in range(self.size):
                self._put(sender, to, "stream", (first + offset, 1, number))

    def _put(self, source: int, to: int, kind: str, what: tuple[int, int, SequenceNumber]) -> None:
        self._links.setdefault((source, to, kind), deque()).append(what)


@settings(max_examples=150)
@given(size=st.integers(1, 5), seed=st.integers(0, 2**32), sends=st.lists(st.integers(0, 4), max_size=25))
def test_all_deliver_the_same_sequence_whatever_the_delays(size: int, seed: int, sends: list[int]) -> None:
    group = Group(size, Random(seed))
    for sender in sends:
        group.send(sender % size)
        for _ in range(group.rng.randrange(2 * size)):
            group.step()
    group.run()
    assert all(log == group.logs[0] for log in group.logs)
    assert len(group.logs[0]) == len(sends)
    for sender in range(size):
        assert [i for who, i in group.logs[0] if who == sender] == list(range(1, group.sent[sender] + 1))
    assert all(len(member.queue) == 0 for member in group.members)


@settings(max_examples=60)
@given(size=st.integers(2, 5), seed=st.integers(0, 2**32), sends=st.lists(st.integers(0, 4), max_size=15))
def test_logs_never_disagree_on_the_way(size: int, seed: int, sends: list[int]) -> None:
    """Not only in the end: at each moment one log is the beginning of the other."""
    group = Group(size, Random(seed))
    for sender in sends:
        group.send(sender % size)
    for _ in range(len(sends) * size * 3):
        group.step()
        longest = max(group.logs, key=len)
        assert all(log == longest[: len(log)] for log in group.logs)


@settings(max_examples=60)
@given(size=st.integers(2, 5), seed=st.integers(0, 2**32), sends=st.lists(st.integers(0, 4), min_size=1, max_size=15))
def test_a_silent_member_blocks_all_but_its_own(size: int, seed: int, sends: list[int]) -> None:
    silent = size - 1
    group = Group(size, Random(seed), silent=frozenset({silent}))
    for sender in sends:
        group.send(sender % size)
    group.run()
    for rank, log in enumerate(group.logs):
        assert {sender for sender, _ in log} <= {silent}
        undelivered = len(sends) - len(log)
        assert len(group.members[rank].queue) == undelivered
    for sender in range(size - 1):
        assert group.members[sender].agreed_through == 0


def test_two_senders_with_equal_final_numbers_are_delivered_alike() -> None:
    """Both get number 2: one of proposer 1, the other of proposer 0, which comes first everywhere."""
    members = [Isis(2, 0), Isis(2, 1)]
    for rank, order in ((0, (0, 1)), (1, (1, 0))):
        for sender in order:
            proposed = members[rank].receive_data(sender, 1, b"")
            assert proposed is not None
            members[sender].receive_proposal(rank, 1, proposed)
    agreed = [member.agreed() for member in members]
    assert agreed == [(1, [SequenceNumber(2, 1)]), (1, [SequenceNumber(2, 0)])]
    logs = []
    for rank, order in ((0, (0, 1)), (1, (1, 0))):
        log = []
        for sender in order:
            assert members[rank].receive_number(sender, 1, agreed[sender][1][0])
            log += delivered(members[rank])
        logs.append(log)
    assert logs == [[(1, 1), (0, 1)]] * 2
