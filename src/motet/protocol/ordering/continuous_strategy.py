"""Total order on plain datagrams, as in the ISIS document: every frame is resent until it is acknowledged.

    a frame waits in the outbox  -> DATA to all members including this one, as the window of unsettled frames allows
    DATA received                -> in the order of its sender's ids: held back, given a proposal, answered with ACK
    DATA received again          -> answered again with the same proposal
    ACK received from all        -> SEQ to all members including this one, in the order of the ids
    SEQ received                 -> in the order of the ids: decided, answered with SEQ-ACK; a duplicate likewise
    SEQ-ACK received from all    -> settled, once all earlier frames are; then the window has space for another DATA

Frames that arrive out of order are buffered, within the window. A DATA also waits until what its sender had sent
before on the plain stream is delivered here, so that no ordered frame overtakes a snapshot marker there. When a flush
freezes the view, nothing more is applied, and every member reports the sequence numbers that it knows and that are not
settled. docs/design/ordering.md says why that is enough.

Invariants: settled <= agreed_through <= sent <= settled + window; own frames are decided here as soon as they are
agreed.
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

MOST_AGREED = 4000  # Agreed sequence numbers that PREPARED can carry in one datagram.


@dataclass(slots=True)
class _SenderBuffer:
    """What is known of one sender's frames, besides the hold-back queue."""

    data: dict[int, OrderData] = field(default_factory=dict)  # DATA received out of order.
    numbers: dict[int, SequenceNumber] = field(default_factory=dict)  # SEQ received out of order.
    settled: int = 0  # All members have the agreed sequence numbers up to this id.
    agreed: dict[int, SequenceNumber] = field(default_factory=dict)  # The known ones beyond `settled`, for a flush.


class ContinuousStrategy:
    is_fast_path_allowed = True  # Unused: this strategy has no fast path, only SEQ decides.
    delivers_undecided = False
    is_eager = False  # Nothing is piggybacked on the multicast stream.

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
        # Unsettled frames per member, so that the agreed numbers of all members fit into one PREPARED.
        self._most = max(1, MOST_AGREED // len(view.members))
        self._window = min(self._config.window, self._most)
        self._data: ContinuousSender[OrderData] = ContinuousSender()
        self._seqs: ContinuousSender[OrderSeq] = ContinuousSender()
        self.sent = 0  # The highest id used for an own frame.
        self._settled = 0  # All members have the agreed sequence numbers of own frames up to this id.
        self._peers = [_SenderBuffer() for _ in view.members]
        self._is_frozen = False
        self._to_self: list[Frame] = []
        self._out: list[Effect] = []

    # The multicast stream carries nothing for this strategy

    def next_body(self, now: int) -> bytes | None:
        return None

    def attach(self, body: bytes, now: int) -> bytes:
        return body

    def take(self, rank: int, ordered: Ordered) -> None:
        self._counters[Count.ORDER_MISMATCH] += 1

    # Progress after each input

    def advance(self, now: int) -> None:
        self._absorb_all()  # A plain stream may have advanced to where a buffered DATA waits for it.
        for _ in steps("the continuous strategy", MOST_SENDS):
            if not (self._pump(now) or self._hand_out(now) or self._receive_own()):
                break

    def outgoing(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    def _pump(self, now: int) -> bool:
        has_space = self.sent - self._settled < self._window
        if self._is_frozen or not self._view.is_primary or not has_space or not self._outbox.may_leave:
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
        """Frames to this member itself are handled like all others, without the network."""
        own, self._to_self = self._to_self, []
        for frame in own:
            self._handle(self._ranks[self._local], frame)
        return bool(own)

    # Frames of other members

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
        """A correct sender keeps to the window, and settles only what this member has acknowledged."""
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
        """Repeat a lost ACK. For a decided frame none is needed: it was decided with that ACK."""
        number = self._isis.proposed(rank, frame_id)
        if number is not None and frame_id > self._isis.decided(rank):
            self._answer(rank, OrderAck(self._view.id, frame_id, number))

    def _on_seq(self, rank: int, frame: OrderSeq) -> None:
        self._learn_settled(rank, frame.settled)
        if frame.id <= self._isis.decided(rank):
            self._counters[Count.FRAME_DUPLICATE] += 1
            self._answer(rank, OrderSeqAck(self._view.id, frame.id))
        elif frame.id > self._isis.received(rank) or self._isis.is_absurd(frame.number):
            # No frame can be agreed on before this member has proposed for it.
            self._counters[Count.FRAME_MISPLACED] += 1
        else:
            self._peers[rank].numbers[frame.id] = SequenceNumber(frame.number, frame.proposer)
            self._absorb(rank)

    def _learn_settled(self, rank: int, settled: int) -> None:
        peer = self._peers[rank]
        for frame_id in range(peer.settled + 1, settled + 1):
            peer.agreed.pop(frame_id, None)
        peer.settled = max(peer.settled, settled)

    def _absorb(self, rank: int) -> None:
        """Apply buffered frames that are next in order: none in a frozen view, no DATA while deliveries are paused."""
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

    # A flush

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
        """Own frames that are undecided have no agreed sequence number anywhere, so they are in no log: resend them."""
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
    """The header of a DATA frame, which carries no piggybacked sequence numbers."""
    return header(0, (), is_ordered=True, sent_at=sent_at, tag=tag)
