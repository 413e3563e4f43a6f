"""Fast path: proposals are broadcast, so every member computes the agreed sequence number itself, before SEQ arrives.

In a small, lightly loaded view, proposals go to all members, and the sender's own proposal travels with its frame.
Then an ordered message takes two message delays instead of three; SEQ follows piggybacked on the sender's next frame.
A number decided this way is in no stream yet. It is kept here until SEQ confirms it, so that a flush in between can
report it (`agreed`).

Invariants: proposals are tracked for at most MOST_TRACKED frames of each sender; the unconfirmed decisions of a sender
are consecutive ids that end with the last frame decided of that sender.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from motet.protocol.core.identity import Address
from motet.protocol.ordering.isis import Isis, Proposed
from motet.protocol.wire.frames import AgreedNumbers
from motet.protocol.wire.ordered import SequenceNumber

MOST_TRACKED = 64  # Frames of one sender whose proposals are tracked; beyond it, frames are decided by SEQ.


class _FastDecision(NamedTuple):
    number: SequenceNumber
    proposed: int  # This member's proposal, which the sender may still need.


@dataclass(slots=True)
class _SenderProposals:
    proposals: dict[int, Proposed]  # By id: the proposals for frames that are not decided.
    decided: dict[int, _FastDecision]  # By id: decided here, and not yet confirmed by SEQ.


class FastPath:
    def __init__(self, isis: Isis, size: int) -> None:
        self._isis = isis
        self._all = (1 << size) - 1
        self._senders = [_SenderProposals({}, {}) for _ in range(size)]

    def add_proposal(self, sender: int, frame_id: int, proposer: int, number: int) -> None:
        """A proposal for another member's frame, which may not have arrived here yet."""
        proposals = self._senders[sender].proposals
        proposed = proposals.get(frame_id)
        if proposed is not None:
            proposed.add(proposer, number)
        elif self._isis.decided(sender) < frame_id and len(proposals) < MOST_TRACKED:
            proposals[frame_id] = Proposed(1 << proposer, number, proposer)

    def decide(self) -> None:
        """Decide every frame that all members have proposed for, of each sender in the order of its ids."""
        for rank, sender in enumerate(self._senders):
            while sender.proposals:
                frame_id = self._isis.decided(rank) + 1
                proposed = sender.proposals.get(frame_id)
                if proposed is None or proposed.by != self._all or not self.settle(rank, frame_id, proposed.maximum):
                    break

    def settle(self, rank: int, frame_id: int, number: SequenceNumber) -> bool:
        """Decide a frame whose agreed sequence number is known before SEQ has confirmed it."""
        proposed = self._isis.proposed(rank, frame_id)
        if proposed is None or not self._isis.receive_number(rank, frame_id, number):
            return False
        self._senders[rank].proposals.pop(frame_id, None)
        self._senders[rank].decided[frame_id] = _FastDecision(number, proposed)
        return True

    def confirm(self, rank: int, frame_id: int, number: SequenceNumber) -> bool:
        """SEQ has arrived in the sender's stream. True if the frame was decided here before, with the same number."""
        sender = self._senders[rank]
        sender.proposals.pop(frame_id, None)
        decision = sender.decided.pop(frame_id, None)
        return decision is not None and decision.number == number

    def proposed(self, rank: int, frame_id: int) -> int | None:
        """This member's proposal for a frame that it has decided, perhaps delivered, before its SEQ.

        The hold-back queue has forgotten a delivered frame, but its sender may have lost the proposal and ask again.
        """
        decision = self._senders[rank].decided.get(frame_id)
        return decision.proposed if decision is not None else None

    def agreed(self, members: Sequence[Address]) -> AgreedNumbers:
        """Decisions that no SEQ has confirmed: if the view ends now, the streams may never contain them."""
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
