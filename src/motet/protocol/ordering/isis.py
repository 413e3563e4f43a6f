"""The ISIS algorithm of one view, apart from how its messages travel (seed `isis-total-order.md`).

    DATA (sender, id)        -> propose clock + 1, and hold the frame back
    proposals of all members -> the largest is final; of equal ones the smaller proposer's
    SEQ (sender, id, number) -> the clock is at least that; the frame is decided
    a decided head           -> it is delivered

Members are ranks in the view. Ids are counted by each sender from 1. Final numbers leave a sender in the order of its
ids: so what is decided of one sender is always a prefix of what it sent, and its frames are delivered in that order.

Invariants: the clock is at least every number proposed or seen; a frame of ours is undecided, or its number was handed
out once; the same (sender, id) is proposed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MOST_NUMBER_JUMP
from motet.protocol.ordering.holdback import HoldBackQueue, Pending
from motet.protocol.wire.frames import AgreedNumbers
from motet.protocol.wire.ordered import SequenceNumber, Tag


@dataclass(slots=True)
class Proposed:
    """What has been proposed for a frame so far."""

    by: int  # a bit for each rank that has
    number: int  # the largest
    proposer: int  # and the smallest of those who proposed that

    def add(self, proposer: int, number: int) -> None:
        """The first word of a proposer counts."""
        if self.by >> proposer & 1:
            return
        self.by |= 1 << proposer
        if number > self.number or (number == self.number and proposer < self.proposer):
            self.number, self.proposer = number, proposer

    @property
    def maximum(self) -> SequenceNumber:
        """When all have proposed."""
        return SequenceNumber(self.number, self.proposer)


class Isis:
    def __init__(self, size: int, rank: int) -> None:
        self.clock = 0
        self.queue = HoldBackQueue()
        self._size = size
        self._rank = rank
        self._received = [0] * size  # the highest id of each sender, all before it received
        self._decided = [0] * size  # the same for numbers
        self._delivered = [0] * size  # and for what was delivered
        self._proposals: dict[int, Proposed] = {}  # of our own frames, by id
        self._all = (1 << size) - 1
        self.agreed_through = 0  # the highest id of ours whose number was handed out

    def receive_data(
        self, sender: int, frame_id: int, body: bytes, sent_at: int = 0, tag: Tag | None = None
    ) -> int | None:
        """The next frame of a sender; the answer is our proposal. None for one that came before, or out of turn."""
        if frame_id != self._received[sender] + 1:
            return None
        self._received[sender] = frame_id
        self.clock += 1
        proposal = SequenceNumber(self.clock, self._rank)
        self.queue.add(Pending(sender, frame_id, body, self.clock, proposal, sent_at=sent_at, tag=tag))
        return self.clock

    def is_absurd(self, number: int) -> bool:
        """So far above all that we know that it leads nowhere: our clock would follow it to the end of its bits."""
        return number > self.clock + MOST_NUMBER_JUMP

    def proposed(self, sender: int, frame_id: int) -> int | None:
        """What we proposed for a frame that is not delivered yet."""
        pending = self.queue.get(sender, frame_id)
        return pending.proposed if pending is not None else None

    def receive_proposal(self, proposer: int, frame_id: int, number: int) -> None:
        """For a frame of ours."""
        if frame_id <= self.agreed_through or self.is_absurd(number):
            return
        proposed = self._proposals.get(frame_id)
        if proposed is None:
            self._proposals[frame_id] = Proposed(1 << proposer, number, proposer)
        else:
            proposed.add(proposer, number)

    def agreed(self) -> tuple[int, list[SequenceNumber]]:
        """The frames of ours that all have proposed for, from `first` on: their numbers, each handed out once."""
        first, numbers, proposals = self.agreed_through + 1, [], self._proposals
        while (proposed := proposals.get(self.agreed_through + 1)) is not None and proposed.by == self._all:
            self.agreed_through += 1
            numbers.append(proposed.maximum)
            del proposals[self.agreed_through]
        return first, numbers

    def missing(self, proposer: int, sent: int) -> tuple[int, int] | None:
        """The span of our frames that this member has not proposed for, and must."""
        ours, nobody = range(self.agreed_through + 1, sent + 1), Proposed(0, 0, 0)
        wanted = [frame_id for frame_id in ours if not self._proposals.get(frame_id, nobody).by >> proposer & 1]
        return (wanted[0], wanted[-1]) if wanted else None

    def receive_number(self, sender: int, frame_id: int, number: SequenceNumber) -> bool:
        """The next final number of a sender; False for one that came before, out of turn, or without its frame."""
        is_next = frame_id == self._decided[sender] + 1 and not self.is_absurd(number.number)
        if not is_next or not self.queue.decide(sender, frame_id, number):
            return False
        self._decided[sender] = frame_id
        self.clock = max(self.clock, number.number)
        return True

    def deliverable(self) -> list[Pending]:
        ready = []
        while (head := self.queue.pop()) is not None:
            self._delivered[head.sender] = head.id
            ready.append(head)
        return ready

    def received(self, sender: int) -> int:
        return self._received[sender]

    def decided(self, sender: int) -> int:
        return self._decided[sender]

    @property
    def delivered_ids(self) -> list[int]:
        return list(self._delivered)

    def held_back(self, sender: int) -> int:
        """How many frames of this sender are held back."""
        return self._received[sender] - self._delivered[sender]

    def copy(self) -> Isis:
        """To see what would be delivered; proposals for frames of ours are left out."""
        twin = Isis(self._size, self._rank)
        twin.clock, twin.agreed_through = self.clock, self.agreed_through
        twin._received, twin._decided = list(self._received), list(self._decided)
        twin._delivered = list(self._delivered)
        for pending in self.queue:
            twin.queue.add(replace(pending))
        return twin

    def _check(self) -> None:
        self.queue._check()
        assert all(decided <= received for decided, received in zip(self._decided, self._received, strict=True))
        assert all(frame_id > self.agreed_through for frame_id in self._proposals)


def conclude_with(isis: Isis, members: Sequence[Address], agreed: AgreedNumbers) -> None:
    """At the end of a view: the numbers that any of those who end it has known. What is decided already stays so."""
    ranks = {member.incarnation: rank for rank, member in enumerate(members)}
    for sender, first, numbers in agreed:
        for frame_id, number in enumerate(numbers, first):
            if sender in ranks:
                isis.receive_number(ranks[sender], frame_id, SequenceNumber(*number))
