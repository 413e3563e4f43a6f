"""Total order straight on datagrams, as the seed has it: everything is repeated until it is acknowledged.

    we have something to order  -> DATA to all, ourselves included, as the window of unsettled frames allows
    DATA                        -> in the order of its sender's ids: held back, proposed, answered with ACK
    DATA again                  -> answered again, with the same proposal
    ACK of all                  -> SEQ to all, ourselves included, in the order of our ids
    SEQ                         -> in the order of the ids: decided, answered with SEQ-ACK; again, answered again
    SEQ-ACK of all              -> settled, once all before it are: that makes room for the next DATA

What comes before its turn is kept, within the window. A DATA also waits until we have delivered of its sender's plain
stream what that had sent before: so nothing that is ordered overtakes a marker there. When the view is to end, nothing
is applied any more, and every member reports the numbers that it knows and that are not settled.
docs/design/ordering.md says why that is enough.

Invariants: settled <= final <= sent <= settled + window; our own numbers are decided here as soon as they are final.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Broadcast, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.settling import MOST_SENDS, steps
from motet.protocol.core.view import NO_VIEW, View
from motet.protocol.ordering.config import MOST_IN_FLIGHT, OrderingConfig
from motet.protocol.ordering.continuous import ContinuousSender
from motet.protocol.ordering.dissemination import Retransmission
from motet.protocol.ordering.isis import Isis, conclude_with
from motet.protocol.ordering.outbox import Outbox
from motet.protocol.wire.frames import (
    AgreedNumbers,
    OrderAck,
    OrderData,
    OrderSeq,
    OrderSeqAck,
    ProposalRequest,
    Proposals,
)
from motet.protocol.wire.ordered import ORDERED, Ordered, SequenceNumber, Tag, header, unseal

MOST_AGREED = 4000  # numbers that the answer to PREPARE can carry in one datagram


@dataclass(slots=True)
class _SenderBuffer:
    """What we hold of one sender, beside the hold-back queue."""

    data: dict[int, OrderData] = field(default_factory=dict)  # DATA that waits for its turn
    numbers: dict[int, SequenceNumber] = field(default_factory=dict)  # SEQ that does
    settled: int = 0  # all members have its numbers up to here
    agreed: dict[int, SequenceNumber] = field(default_factory=dict)  # those after it that we know


class ContinuousStrategy:
    is_fast_path_allowed = True  # nothing depends on it here: SEQ alone decides
    delivers_undecided = False
    is_eager = False  # nothing rides on our stream

    def __init__(self, local: Address, config: OrderingConfig, outbox: Outbox, counters: Counters) -> None:
        self._local = local
        self._config = config
        self._outbox = outbox
        self._counters = counters
        self._is_paused = False
        self.begin_view(View(NO_VIEW, (local,), is_primary=False), Isis(1, 0), 0)

    def begin_view(self, view: View, isis: Isis, now: int) -> None:
        self._view = view
        self._isis = isis
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self._most = max(1, MOST_AGREED // len(view.members))  # frames that any member may have unsettled
        self._window = min(self._config.window, self._most)
        self._data: ContinuousSender[OrderData] = ContinuousSender()
        self._seqs: ContinuousSender[OrderSeq] = ContinuousSender()
        self.sent = 0  # ids of ours that have been used
        self._settled = 0  # of them, all members have the number
        self._peers = [_SenderBuffer() for _ in view.members]
        self._is_frozen = False
        self._to_self: list[Frame] = []
        self._out: list[Effect] = []

    # The stream carries nothing for us

    def next_body(self, now: int) -> bytes | None:
        return None

    def attach(self, body: bytes, now: int) -> bytes:
        return body

    def take(self, rank: int, ordered: Ordered) -> None:
        self._counters[Count.ORDER_MISMATCH] += 1

    # What has become possible

    def advance(self, now: int) -> None:
        self._absorb_all()  # the streams may have come to where a DATA waits for them
        for _ in steps("the continuous strategy", MOST_SENDS):
            if not (self._pump(now) or self._hand_out(now) or self._receive_own()):
                break

    def outgoing(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    def _pump(self, now: int) -> bool:
        has_room = self.sent - self._settled < self._window
        if self._is_frozen or not self._view.is_primary or not has_room or not self._outbox.may_leave:
            return False
        body, _ = self._outbox.next(now, _data_header)
        self.sent += 1
        frame = OrderData(self._view.id, self.sent, self._settled, self._outbox.stream.sent, body)
        self._spread(*self._data.add(self.sent, frame, self._view.members, now))
        self._counters[Count.FRAME_SENT] += 1
        return True

    def _hand_out(self, now: int) -> bool:
        if self._is_frozen:
            return False
        first, numbers = self._isis.agreed()
        for frame_id, number in enumerate(numbers, first):
            frame = OrderSeq(self._view.id, frame_id, self._settled, *number)
            self._spread(*self._seqs.add(frame_id, frame, self._view.members, now))
        return bool(numbers)

    def _spread(self, frame: Frame, recipients: Iterable[Address]) -> None:
        others = [member for member in recipients if member != self._local]
        if len(others) == len(self._view.members) - 1:
            self._out += [Broadcast(frame)] if others else []
        else:
            self._out += [Transmit(member, frame) for member in others]
        if self._local in recipients:
            self._to_self.append(frame)

    def _answer(self, rank: int, frame: Frame) -> None:
        member = self._view.members[rank]
        if member == self._local:
            self._to_self.append(frame)
        else:
            self._out.append(Transmit(member, frame))

    def _receive_own(self) -> bool:
        """Our own messages take the way of all others."""
        own, self._to_self = self._to_self, []
        for frame in own:
            self._handle(self._ranks[self._local], frame)
        return bool(own)

    # What other members say

    def receive(self, source: Address, frame: Frame) -> list[Effect]:
        self._handle(self._ranks[source], frame)
        return []

    def _handle(self, rank: int, frame: Frame) -> None:
        match frame:
            case OrderData() | OrderSeq() if self._is_beyond_us(rank, frame):
                self._counters[Count.FRAME_OUTSIDE_WINDOW] += 1
            case OrderData() if frame.body[0] == ORDERED and unseal(frame.body).is_ordered:
                self._on_data(rank, frame)
            case OrderAck() if frame.id <= self.sent and not self._isis.is_absurd(frame.number):
                self._isis.receive_proposal(rank, frame.id, frame.number)
                self._data.remove(frame.id, self._view.members[rank])
            case OrderSeq():
                self._on_seq(rank, frame)
            case OrderSeqAck() if frame.id <= self._isis.agreed_through:
                self._seqs.remove(frame.id, self._view.members[rank])
                while self._settled < self._isis.agreed_through and self._settled + 1 not in self._seqs:
                    self._settled += 1
            case Proposals() | ProposalRequest():
                self._counters[Count.ORDER_MISMATCH] += 1
            case _:
                self._counters[Count.FRAME_MISPLACED] += 1

    def _is_beyond_us(self, rank: int, frame: OrderData | OrderSeq) -> bool:
        """No member has more under way than fits, nor calls settled what we have not heard of."""
        return frame.settled > self._isis.decided(rank) or frame.id > frame.settled + self._most

    def _on_data(self, rank: int, frame: OrderData) -> None:
        self._learn_settled(rank, frame.settled)
        if frame.id <= self._isis.received(rank):
            self._counters[Count.FRAME_DUPLICATE] += 1
            self._propose_again(rank, frame.id)
        else:
            self._peers[rank].data[frame.id] = frame
            self._absorb(rank)

    def _propose_again(self, rank: int, frame_id: int) -> None:
        """Our ACK was lost; unless the frame is decided, which it could not be without it."""
        number = self._isis.proposed(rank, frame_id)
        if number is not None and frame_id > self._isis.decided(rank):
            self._answer(rank, OrderAck(self._view.id, frame_id, number))

    def _on_seq(self, rank: int, frame: OrderSeq) -> None:
        self._learn_settled(rank, frame.settled)
        if frame.id <= self._isis.decided(rank):
            self._counters[Count.FRAME_DUPLICATE] += 1
            self._answer(rank, OrderSeqAck(self._view.id, frame.id))
        elif frame.id > self._isis.received(rank) or self._isis.is_absurd(frame.number):
            self._counters[Count.FRAME_MISPLACED] += 1  # final, it says, and we have not proposed
        else:
            self._peers[rank].numbers[frame.id] = SequenceNumber(frame.number, frame.proposer)
            self._absorb(rank)

    def _learn_settled(self, rank: int, settled: int) -> None:
        peer = self._peers[rank]
        for frame_id in range(peer.settled + 1, settled + 1):
            peer.agreed.pop(frame_id, None)
        peer.settled = max(peer.settled, settled)

    def _absorb(self, rank: int) -> None:
        """Whatever it is the turn of. A frozen view takes nothing; an application that is not ready, no more DATA."""
        isis, peer = self._isis, self._peers[rank]
        if self._is_frozen or not (peer.data or peer.numbers):
            return
        while (number := peer.numbers.pop(isis.decided(rank) + 1, None)) is not None:
            if isis.receive_number(rank, frame_id := isis.decided(rank) + 1, number):
                peer.agreed[frame_id] = number
                self._answer(rank, OrderSeqAck(self._view.id, frame_id))
        reached = self._outbox.stream.delivered(self._view.members[rank])
        while (frame := peer.data.get(isis.received(rank) + 1)) is not None and frame.after <= reached:
            if self._is_paused or isis.held_back(rank) >= MOST_IN_FLIGHT:
                break
            ordered = unseal(peer.data.pop(frame.id).body)
            proposal = isis.receive_data(rank, frame.id, ordered.inner, ordered.sent_at, ordered.tag)
            assert proposal is not None
            self._answer(rank, OrderAck(self._view.id, frame.id, proposal))

    # Time

    def tick(self, now: int) -> list[Effect]:
        if self._is_frozen:
            return []
        for frame, recipients in [*self._data.tick(now), *self._seqs.tick(now)]:
            self._counters[Count.FRAME_RESENT] += 1
            self._spread(frame, recipients)
        return []

    def next_deadline(self) -> int | None:
        if self._is_frozen:
            return None
        dues = (self._data.next_deadline(), self._seqs.next_deadline())
        return min((due for due in dues if due is not None), default=None)

    def retransmissions(self) -> list[Retransmission]:
        senders = (("DATA", self._data.recipients()), ("SEQ", self._seqs.recipients()))
        return [Retransmission(frame, at, left) for frame, sent in senders for at, left in sorted(sent.items())]

    # The end of a view

    def freeze(self) -> None:
        self._is_frozen = True

    def thaw(self) -> None:
        self._is_frozen = False

    def agreed(self) -> AgreedNumbers:
        known = zip(self._view.members, self._peers, strict=True)
        return tuple(
            (member.incarnation, min(peer.agreed), tuple(peer.agreed[at] for at in sorted(peer.agreed)))
            for member, peer in known
            if peer.agreed
        )

    def conclude(self, isis: Isis, rest: Iterable[tuple[Address, Ordered]], agreed: AgreedNumbers) -> None:
        conclude_with(isis, self._view.members, agreed)

    def end_view(self, *, log_continues: bool) -> list[Effect]:
        """What of ours is not decided was never given a number by anybody: it is in no log, and can go out again."""
        self._is_frozen = True
        return self._outbox.put_back()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def _absorb_all(self) -> None:
        for rank in range(len(self._peers)):
            self._absorb(rank)

    def _check(self) -> None:
        self._data._check()
        self._seqs._check()
        assert self._settled <= self._isis.agreed_through <= self.sent <= self._settled + self._window
        assert self._isis.decided(self._ranks[self._local]) == self._isis.agreed_through
        for peer in self._peers:
            assert max(len(peer.data), len(peer.numbers), len(peer.agreed)) <= self._most


def _data_header(sent_at: int, tag: Tag | None) -> bytes:
    """Of a DATA: no numbers ride on it."""
    return header(0, (), is_ordered=True, sent_at=sent_at, tag=tag)
