"""The ISIS total order algorithm within one view, independent of how its messages travel.

    DATA (sender, id)        -> propose clock + 1 and put the frame into the hold-back queue
    proposals of all members -> the largest is the agreed sequence number; of equal ones, the smaller proposer's
    SEQ (sender, id, number) -> the clock advances to the number; the frame is decided
    the head is decided      -> it is delivered

Members are identified by their ranks in the view. Each sender counts its frames from 1. A sender announces agreed
numbers in the order of its ids, so the decided frames of a sender are always a prefix of what it sent, and they are
delivered in that order.

Invariants: the clock is at least every number proposed or received; the agreed number of an own frame is announced
exactly once; this member proposes exactly once for each (sender, id).
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
    """The proposals received for one frame so far."""

    by: int  # A bit for the rank of each proposer.
    number: int  # The largest proposal.
    proposer: int  # The smallest rank of those that proposed it.

    def add(self, proposer: int, number: int) -> None:
        """Only the first proposal of each member counts: a repeated one must not change the maximum."""
        if self.by >> proposer & 1:
            return
        self.by |= 1 << proposer
        if number > self.number or (number == self.number and proposer < self.proposer):
            self.number, self.proposer = number, proposer

    @property
    def maximum(self) -> SequenceNumber:
        """The agreed sequence number, once all members have proposed."""
        return SequenceNumber(self.number, self.proposer)


class Isis:
    def __init__(self, size: int, rank: int) -> None:
        self.clock = 0
        self.queue = HoldBackQueue()
        self._size = size
        self._rank = rank
        self._received = [0] * size  # Per sender, the id up to which every frame was received.
        self._decided = [0] * size  # Per sender, the id up to which every frame is decided.
        self._delivered = [0] * size  # Per sender, the id up to which every frame was delivered.
        self._proposals: dict[int, Proposed] = {}  # For own frames that are not agreed on, by id.
        self._all = (1 << size) - 1
        self.agreed_through = 0  # The own id up to which every agreed number was returned by `agreed`.

    def receive_data(
        self, sender: int, frame_id: int, body: bytes, sent_at: int = 0, tag: Tag | None = None
    ) -> int | None:
        """Hold back the next frame of a sender and return the proposal for it; None for a duplicate or out of order."""
        if frame_id != self._received[sender] + 1:
            return None
        self._received[sender] = frame_id
        self.clock += 1
        proposal = SequenceNumber(self.clock, self._rank)
        self.queue.add(Pending(sender, frame_id, body, self.clock, proposal, sent_at=sent_at, tag=tag))
        return self.clock

    def is_absurd(self, number: int) -> bool:
        """The number is implausibly far ahead; adopting it would let a forged frame exhaust the clock."""
        return number > self.clock + MOST_NUMBER_JUMP

    def proposed(self, sender: int, frame_id: int) -> int | None:
        """This member's proposal for a frame that is still in the hold-back queue."""
        pending = self.queue.get(sender, frame_id)
        return pending.proposed if pending is not None else None

    def receive_proposal(self, proposer: int, frame_id: int, number: int) -> None:
        """A member's proposal for an own frame."""
        if frame_id <= self.agreed_through or self.is_absurd(number):
            return
        proposed = self._proposals.get(frame_id)
        if proposed is None:
            self._proposals[frame_id] = Proposed(1 << proposer, number, proposer)
        else:
            proposed.add(proposer, number)

    def agreed(self) -> tuple[int, list[SequenceNumber]]:
        """The next own frames that all members have proposed for: the first id, and their agreed numbers."""
        first, numbers, proposals = self.agreed_through + 1, [], self._proposals
        while (proposed := proposals.get(self.agreed_through + 1)) is not None and proposed.by == self._all:
            self.agreed_through += 1
            numbers.append(proposed.maximum)
            del proposals[self.agreed_through]
        return first, numbers

    def missing(self, proposer: int, sent: int) -> tuple[int, int] | None:
        """The first and last own frame that this member still has to propose for."""
        ours, nobody = range(self.agreed_through + 1, sent + 1), Proposed(0, 0, 0)
        wanted = [frame_id for frame_id in ours if not self._proposals.get(frame_id, nobody).by >> proposer & 1]
        return (wanted[0], wanted[-1]) if wanted else None

    def receive_number(self, sender: int, frame_id: int, number: SequenceNumber) -> bool:
        """Decide the sender's next frame; False for a duplicate, out of order, or if the frame is not here."""
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
        """How many frames of this sender are in the hold-back queue."""
        return self._received[sender] - self._delivered[sender]

    def copy(self) -> Isis:
        """A copy to compute what a flush would deliver; the proposals for own frames are not needed for that."""
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
    """Apply the agreed numbers that any survivor knew, at the end of a view. Decided frames stay as they are."""
    ranks = {member.incarnation: rank for rank, member in enumerate(members)}
    for sender, first, numbers in agreed:
        for frame_id, number in enumerate(numbers, first):
            if sender in ranks:
                isis.receive_number(ranks[sender], frame_id, SequenceNumber(*number))
