"""Numbers that are known before their sender says them: whoever has heard what all propose can tell the largest itself.

In a small group that is not busy, proposals are told to all members, and a sender's own travels with its frame. Then
an ordered message takes two journeys instead of three; the sender's word (SEQ) follows at leisure, with its next frame.
What was decided this way stands in no stream yet: it is kept here until it does, so that a view that ends meanwhile
can be told of it (`finals`).

Invariants: of each sender at most MOST_HEARD frames are heard of; what is kept is a run that ends with the last frame
of that sender that we have decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from motet.protocol.core.identity import Address
from motet.protocol.ordering.isis import Isis, Proposed
from motet.protocol.wire.frames import AgreedNumbers
from motet.protocol.wire.ordered import SequenceNumber

MOST_TRACKED = 64  # frames of one sender whose proposals are kept; of further ones the sender tells us


class _FastDecision(NamedTuple):
    number: SequenceNumber
    proposed: int  # by us; the sender may still have to hear it


@dataclass(slots=True)
class _SenderProposals:
    proposals: dict[int, Proposed]  # by id: what was proposed for frames that are not decided
    decided: dict[int, _FastDecision]  # by id: by us, and not said in its stream so far


class FastPath:
    def __init__(self, isis: Isis, size: int) -> None:
        self._isis = isis
        self._all = (1 << size) - 1
        self._senders = [_SenderProposals({}, {}) for _ in range(size)]

    def add_proposal(self, sender: int, frame_id: int, proposer: int, number: int) -> None:
        """A proposal for a frame of somebody else, which may still be on its way to us."""
        proposals = self._senders[sender].proposals
        proposed = proposals.get(frame_id)
        if proposed is not None:
            proposed.add(proposer, number)
        elif self._isis.decided(sender) < frame_id and len(proposals) < MOST_TRACKED:
            proposals[frame_id] = Proposed(1 << proposer, number, proposer)

    def decide(self) -> None:
        """All that can be, of each sender in the order of its ids."""
        for rank, sender in enumerate(self._senders):
            while sender.proposals:
                frame_id = self._isis.decided(rank) + 1
                proposed = sender.proposals.get(frame_id)
                if proposed is None or proposed.by != self._all or not self.settle(rank, frame_id, proposed.maximum):
                    break

    def settle(self, rank: int, frame_id: int, number: SequenceNumber) -> bool:
        """The number of a frame is certain, and its stream does not say so yet."""
        proposed = self._isis.proposed(rank, frame_id)
        if proposed is None or not self._isis.receive_number(rank, frame_id, number):
            return False
        self._senders[rank].proposals.pop(frame_id, None)
        self._senders[rank].decided[frame_id] = _FastDecision(number, proposed)
        return True

    def confirm(self, rank: int, frame_id: int, number: SequenceNumber) -> bool:
        """The stream says a number. True if we knew it, and the same one."""
        sender = self._senders[rank]
        sender.proposals.pop(frame_id, None)
        decision = sender.decided.pop(frame_id, None)
        return decision is not None and decision.number == number

    def proposed(self, rank: int, frame_id: int) -> int | None:
        """What we proposed for a frame that we may have delivered, and whose sender does not say its number."""
        decision = self._senders[rank].decided.get(frame_id)
        return decision.proposed if decision is not None else None

    def agreed(self, members: Sequence[Address]) -> AgreedNumbers:
        """What we have decided and a stream may never say."""
        return tuple(
            (member.incarnation, min(sender.decided), tuple(sender.decided[at].number for at in sorted(sender.decided)))
            for member, sender in zip(members, self._senders, strict=True)
            if sender.decided
        )

    def _check(self) -> None:
        for rank, sender in enumerate(self._senders):
            assert len(sender.proposals) <= MOST_TRACKED
            ids = sorted(sender.decided)
            assert not ids or ids == list(range(ids[0], self._isis.decided(rank) + 1)), "a run that ends with the last"
