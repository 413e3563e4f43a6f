"""Total order on the reliable multicast: DATA and SEQ travel in the sender's stream, proposals return in batches.

    a frame waits in the outbox -> it is sent in a primary view, as the window of frames in flight allows; this member
                                   proposes for it at that moment
    a frame to be ordered       -> it gets a proposal; one datagram has those of a whole batch, to its sender or to all
    proposals of all            -> SEQ: the agreed numbers are piggybacked on the next own frame, or sent alone
    ... that went to all        -> every member knows the numbers already (fast_path.py), so SEQ may wait for a frame
    proposals are late          -> they are requested again

Ids are not on the wire: the id of a frame is its index among the ordered frames of its sender's stream in this view.

Invariant: own frames in flight <= window.
"""

from __future__ import annotations

from collections.abc import Iterable

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Broadcast, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.timers import earlier
from motet.protocol.core.view import NO_VIEW, View
from motet.protocol.ordering.config import MOST_IN_FLIGHT, OrderingConfig
from motet.protocol.ordering.dissemination import Retransmission
from motet.protocol.ordering.fast_path import MOST_TRACKED, FastPath
from motet.protocol.ordering.isis import Isis, conclude_with
from motet.protocol.ordering.outbox import Outbox
from motet.protocol.wire.frames import AgreedNumbers, ProposalRequest, Proposals
from motet.protocol.wire.ordered import Ordered, SequenceNumber, Tag, header, seal

Runs = list[tuple[int, int, int]]
# With more frames than this in the hold-back queue, there are enough frames to piggyback on: the fast path would only
# cost datagrams, so proposals go to the sender alone.
MOST_PENDING = 8
# One missing proposal blocks the whole log and a request is a small datagram, so there is hardly any back-off.
MOST_DOUBLINGS = 1


class WindowStrategy:
    delivers_undecided = True
    is_fast_path_allowed = True  # Until membership says otherwise.

    def __init__(self, local: Address, config: OrderingConfig, outbox: Outbox, counters: Counters) -> None:
        self._local = local
        self._config = config
        self._outbox = outbox
        self._counters = counters
        self.begin_view(View(NO_VIEW, (local,), is_primary=False), Isis(1, 0), 0)

    def begin_view(self, view: View, isis: Isis, now: int) -> None:
        self._view = view
        self._isis = isis
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self._rank = self._ranks[self._local]
        self._fast_path = (
            FastPath(isis, len(view.members)) if len(view.members) <= self._config.fast_path_members else None
        )
        self._is_frozen = False
        self.sent = 0  # Own frames sent in this view.
        self._unicast_through = 0  # Own frames up to this id got proposals that were not broadcast.
        self._piggyback_deadline: int | None = None  # When waiting agreed numbers are sent in a frame of their own.
        self._is_piggyback_due = False
        self._piggybacks: list[SequenceNumber] = []  # Agreed numbers of own frames that were not sent yet.
        self._first_piggyback = 1  # The id that the first of them belongs to.
        self._announced = [0] * len(view.members)  # Per sender, the id up to which SEQ has arrived.
        self._unsent_proposals: dict[int, Runs] = {}  # Proposals of the current batch, by sender.
        self._ask_at: int | None = None
        self._asked = 0

    # Bodies for the own multicast stream

    @property
    def is_eager(self) -> bool:
        return self._is_piggyback_due or self._may_send

    @property
    def _may_send(self) -> bool:
        outbox = self._outbox
        return outbox.may_leave and self._view.is_primary and outbox.frames_in_flight < self._config.window

    def next_body(self, now: int) -> bytes | None:
        """A frame to be ordered, with piggybacked agreed numbers, or agreed numbers alone."""
        if self._may_send:
            return self._next_data(now)
        return self.attach(b"", now) if self._is_piggyback_due else None

    def _next_data(self, now: int) -> bytes:
        """Put the frame into the own hold-back queue before it is sent, so that it can carry this member's proposal."""
        self.sent += 1
        sealed, draft = self._outbox.next(now, self._header)
        number = self._isis.receive_data(self._rank, self.sent, draft.body, draft.sent_at, draft.tag)
        assert number is not None, "own frames enter the queue in the order of their ids"
        self._isis.receive_proposal(self._rank, self.sent, number)
        return sealed

    def attach(self, body: bytes, now: int) -> bytes:
        """Piggyback waiting agreed numbers on a plain body that is about to be sent."""
        if not self._piggybacks:
            return body
        return seal(*self._take_piggybacks(), body, is_ordered=False, sent_at=now + self._outbox.wall_offset_ns)

    def _header(self, sent_at: int, tag: Tag | None) -> bytes:
        proposed = self._isis.clock + 1 if self._fast_path is not None else None
        return header(*self._take_piggybacks(), is_ordered=True, sent_at=sent_at, tag=tag, proposed=proposed)

    def _take_piggybacks(self) -> tuple[int, list[SequenceNumber]]:
        """Remove the agreed numbers for the next frame; returns the id that the first belongs to, and the numbers."""
        piggybacks, first = self._piggybacks[: self._config.most_piggybacks], self._first_piggyback
        self._first_piggyback += len(piggybacks)
        del self._piggybacks[: len(piggybacks)]
        if not self._piggybacks:
            self._piggyback_deadline, self._is_piggyback_due = None, False
        return first, piggybacks

    # Bodies that the streams deliver

    def take(self, rank: int, ordered: Ordered) -> None:
        if ordered.numbers:
            self._announced[rank] = ordered.first + len(ordered.numbers) - 1
        for frame_id, number in enumerate(ordered.numbers, ordered.first):
            is_known = self._fast_path is not None and self._fast_path.confirm(rank, frame_id, number)
            if not is_known and not self._isis.receive_number(rank, frame_id, number):
                self._counters[Count.FRAME_MISPLACED] += 1
        proposal = self._take_data(self._isis, rank, ordered)
        if proposal is None:
            return
        frame_id = self._isis.received(rank)
        _extend(self._unsent_proposals.setdefault(rank, []), frame_id, proposal)
        if self._fast_path is not None and ordered.proposed is not None:
            self._fast_path.add_proposal(rank, frame_id, rank, ordered.proposed)
            self._fast_path.add_proposal(rank, frame_id, self._rank, proposal)

    def _take_data(self, isis: Isis, rank: int, ordered: Ordered) -> int | None:
        """The proposal for another member's frame; an own frame got its proposal when it was sent."""
        if not ordered.is_ordered or rank == self._rank:
            return None
        if isis.held_back(rank) >= MOST_IN_FLIGHT:
            self._counters[Count.FRAME_OUTSIDE_WINDOW] += 1  # Its sender ignores the in-flight limit.
            return None
        return isis.receive_data(rank, isis.received(rank) + 1, ordered.inner, ordered.sent_at, ordered.tag)

    def advance(self, now: int) -> None:
        """Decide on the fast path and queue newly agreed numbers for SEQ. A frozen view decides nothing more."""
        if self._is_frozen:
            return
        if self._fast_path is not None and self.is_fast_path_allowed:
            self._fast_path.decide()
        first, numbers = self._isis.agreed()
        if numbers:
            self._queue_agreed(first, numbers, now)
        if self.sent > self._isis.agreed_through and self._ask_at is None:
            self._ask_at = now + self._config.ask_ns

    def _queue_agreed(self, first: int, numbers: list[SequenceNumber], now: int) -> None:
        if not self._piggybacks:
            self._first_piggyback = first
        self._piggybacks += numbers
        if self._fast_path is not None:
            for frame_id, number in enumerate(numbers, first):
                self._fast_path.settle(self._rank, frame_id, number)
        if self._fast_path is None or self._first_piggyback <= self._unicast_through or not self.is_fast_path_allowed:
            self._is_piggyback_due = True
        elif self._piggyback_deadline is None:
            self._piggyback_deadline = now + self._config.piggyback_wait_ns
        self._asked, self._ask_at = 0, now + self._config.ask_ns if self.sent > self._isis.agreed_through else None

    def outgoing(self) -> list[Effect]:
        """Send the proposals of this batch: one datagram per sender, or a broadcast on the fast path."""
        if not self._unsent_proposals:
            return []
        owed, self._unsent_proposals = self._unsent_proposals, {}
        is_broadcasting = self._fast_path is not None and len(self._isis.queue) <= MOST_PENDING
        made: list[Effect] = []
        for rank, runs in owed.items():
            sender = self._view.members[rank]
            if is_broadcasting and len(runs) <= MOST_PENDING:
                made.append(Broadcast(Proposals(self._view.id, tuple(runs), sender.incarnation)))
            else:
                made += self._proposals(sender, runs)
        return made

    # Frames of other members

    def receive(self, source: Address, frame: Frame) -> list[Effect]:
        if isinstance(frame, Proposals):
            self._on_proposals(source, frame)
        elif isinstance(frame, ProposalRequest):
            return self._on_request(source, frame)
        else:
            self._counters[Count.ORDER_MISMATCH] += 1
        return []

    def _on_proposals(self, source: Address, frame: Proposals) -> None:
        if frame.sender in (0, self._local.incarnation):
            self._on_own(self._ranks[source], frame)
        elif self._fast_path is not None:
            self._on_broadcast_proposals(self._fast_path, self._ranks[source], frame)

    def _on_own(self, proposer: int, frame: Proposals) -> None:
        for first, count, number in frame.runs:
            last = min(first + count - 1, self.sent)
            for frame_id in range(max(first, self._isis.agreed_through + 1), last + 1):
                self._isis.receive_proposal(proposer, frame_id, number + frame_id - first)
            if not frame.sender:
                self._unicast_through = max(self._unicast_through, last)

    def _on_broadcast_proposals(self, fast_path: FastPath, proposer: int, frame: Proposals) -> None:
        rank = next((rank for member, rank in self._ranks.items() if member.incarnation == frame.sender), None)
        if rank is None:
            self._counters[Count.FRAME_MISPLACED] += 1
            return
        decided = self._isis.decided(rank)
        for first, count, number in frame.runs:
            for frame_id in range(max(first, decided + 1), min(first + count, decided + 1 + MOST_TRACKED)):
                fast_path.add_proposal(rank, frame_id, proposer, number + frame_id - first)

    def _on_request(self, source: Address, frame: ProposalRequest) -> list[Effect]:
        """Repeat the requested proposals. Frames that have not arrived here get theirs when they do."""
        runs: Runs = []
        rank = self._ranks[source]
        for frame_id in range(
            max(frame.first, self._announced[rank] + 1), min(frame.last, self._isis.received(rank)) + 1
        ):
            if (number := self._proposed(rank, frame_id)) is not None:
                _extend(runs, frame_id, number)
        return self._proposals(source, runs[: self._config.most_runs])  # One datagram per request bounds the answer.

    def _proposed(self, rank: int, frame_id: int) -> int | None:
        number = self._isis.proposed(rank, frame_id)
        return number if number is not None or self._fast_path is None else self._fast_path.proposed(rank, frame_id)

    def _proposals(self, to: Address, runs: Runs) -> list[Effect]:
        """The proposals, in as many datagrams as they need."""
        most = self._config.most_runs
        parts = (tuple(runs[start : start + most]) for start in range(0, len(runs), most))
        return [Transmit(to, Proposals(self._view.id, part)) for part in parts]

    # Time

    def tick(self, now: int) -> list[Effect]:
        """Send waiting agreed numbers without a frame to piggyback on, and request missing proposals."""
        if self._piggyback_deadline is not None and now >= self._piggyback_deadline:
            self._piggyback_deadline, self._is_piggyback_due = None, True
        if self._ask_at is None or now < self._ask_at:
            return []
        spans = {member: self._isis.missing(rank, self.sent) for member, rank in self._ranks.items()}
        late = {member: span for member, span in spans.items() if span is not None and member != self._local}
        self._asked += 1
        self._ask_at = now + (self._config.ask_ns << min(self._asked, MOST_DOUBLINGS)) if late else None
        return [Transmit(member, ProposalRequest(self._view.id, *span)) for member, span in late.items()]

    def next_deadline(self) -> int | None:
        return earlier(self._ask_at, self._piggyback_deadline)

    def retransmissions(self) -> list[Retransmission]:
        return []  # The reliable multicast repairs what is lost.

    # A flush. The streams are the same for all survivors; what the fast path decided is reported in addition.

    def freeze(self) -> None:
        self._is_frozen = True

    def thaw(self) -> None:
        self._is_frozen = False

    def agreed(self) -> AgreedNumbers:
        return self._fast_path.agreed(self._view.members) if self._fast_path is not None else ()

    def conclude(self, isis: Isis, rest: Iterable[tuple[Address, Ordered]], agreed: AgreedNumbers) -> None:
        for sender, ordered in rest:
            rank = self._ranks[sender]
            for frame_id, number in enumerate(ordered.numbers, ordered.first):
                isis.receive_number(rank, frame_id, number)
            self._take_data(isis, rank, ordered)
        conclude_with(isis, self._view.members, agreed)

    def end_view(self, *, log_continues: bool) -> list[Effect]:
        """Own frames in flight fail: the others may have decided and delivered them without this member knowing."""
        self._ask_at = self._piggyback_deadline = self._fast_path = None
        return self._outbox.fail()

    # The multicast stream is paused instead

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def _check(self) -> None:
        assert self._outbox.frames_in_flight <= self._config.window
        assert not self._is_piggyback_due or self._piggybacks
        if self._fast_path is not None:
            self._fast_path._check()


def _extend(runs: Runs, frame_id: int, number: int) -> None:
    """Add one proposal, to the last run if it continues that."""
    if runs:
        first, count, start = runs[-1]
        if frame_id == first + count and number == start + count:
            runs[-1] = (first, count + 1, start)
            return
    runs.append((frame_id, 1, number))
