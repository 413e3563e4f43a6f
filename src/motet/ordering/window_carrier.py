"""Total order on the reliable multicast: DATA and SEQ ride in each sender's stream, proposals come back gathered.

    we have something to order   -> it goes out as the window of frames under way allows, in a primary view only
    a frame to be ordered        -> proposed; one datagram answers all frames of a batch
    proposals of all             -> the final numbers ride on our next frame, or on one of their own
    proposals that are late      -> asked for again

Ids are not on the wire: a frame's id is its place among the ordered ones of its sender's stream in this view.

Invariant: frames of ours under way <= window.
"""

from __future__ import annotations

from collections.abc import Iterable

from motet.core.counters import Count, Counters
from motet.core.effects import Effect, Frame, Transmit
from motet.core.identity import Address
from motet.core.view import NO_VIEW, View
from motet.ordering.config import MOST_REACH, OrderingConfig
from motet.ordering.isis import Isis
from motet.ordering.outbox import Outbox
from motet.wire.frames import Finals, ProposalRequest, Proposals
from motet.wire.ordered import Number, Ordered, Tag, lead, seal

Runs = list[tuple[int, int, int]]
MOST_DOUBLINGS = 2  # one late proposal holds up the whole log, and a question is a small datagram: keep on asking


class WindowCarrier:
    delivers_undecided = True

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
        self.sent = 0  # frames of ours in this view
        self._riders: list[Number] = []  # final numbers of ours that have not left yet
        self._first_rider = 1  # the id that the first of them belongs to
        self._owed: dict[int, Runs] = {}  # proposals that a sender has not been told
        self._ask_at: int | None = None
        self._asked = 0

    # What the multicast stream takes from us

    @property
    def is_eager(self) -> bool:
        return bool(self._riders) or self._may_send

    @property
    def _may_send(self) -> bool:
        has_room = self._outbox.frames_under_way < self._config.window
        return self._view.is_primary and has_room and self._outbox.may_leave

    def next_body(self, now: int) -> bytes | None:
        """Something to be ordered, with numbers riding on it, or numbers alone."""
        if self._may_send:
            self.sent += 1
            return self._outbox.next(now, self._lead)
        return self.lift(b"", now) if self._riders else None

    def lift(self, body: bytes, now: int) -> bytes:
        """A plain body that is about to leave takes along what is waiting."""
        if not self._riders:
            return body
        return seal(*self._boarding(), body, is_ordered=False, sent_at=now + self._outbox.wall_offset_ns)

    def _lead(self, sent_at: int, tag: Tag | None) -> bytes:
        return lead(*self._boarding(), is_ordered=True, sent_at=sent_at, tag=tag)

    def _boarding(self) -> tuple[int, list[Number]]:
        """The numbers that ride on the next frame, and the id that the first of them belongs to."""
        riders, first = self._riders[: self._config.most_riders], self._first_rider
        self._first_rider += len(riders)
        del self._riders[: len(riders)]
        return first, riders

    # What the streams bring

    def take(self, rank: int, ordered: Ordered) -> None:
        self._take_numbers(self._isis, rank, ordered)
        number = self._take_data(self._isis, rank, ordered) if ordered.is_ordered else None
        if number is None:
            return
        frame_id = self._isis.received(rank)
        if rank == self._ranks[self._local]:
            self._isis.receive_proposal(rank, frame_id, number)
        else:
            _extend(self._owed.setdefault(rank, []), frame_id, number)

    def _take_numbers(self, isis: Isis, rank: int, ordered: Ordered) -> None:
        for offset, number in enumerate(ordered.numbers):
            if not isis.receive_number(rank, ordered.first + offset, number):
                self._counters[Count.FRAME_MISPLACED] += 1

    def _take_data(self, isis: Isis, rank: int, ordered: Ordered) -> int | None:
        if isis.held(rank) >= MOST_REACH:
            self._counters[Count.FRAME_OUTSIDE_WINDOW] += 1  # its sender does not wait for us, as it should
            return None
        return isis.receive_data(rank, isis.received(rank) + 1, ordered.inner, ordered.sent_at, ordered.tag)

    def advance(self, now: int) -> None:
        """Numbers that have become final wait for a lift."""
        first, numbers = self._isis.finals()
        if numbers and not self._riders:
            self._first_rider = first
        self._riders += numbers
        if self.sent > self._isis.final and self._ask_at is None:
            self._ask_at = now + self._config.ask_ns
        if numbers:
            self._asked, self._ask_at = 0, now + self._config.ask_ns if self.sent > self._isis.final else None

    def outgoing(self) -> list[Effect]:
        """One datagram to each sender of this batch."""
        owed, self._owed = self._owed, {}
        return [effect for rank, runs in owed.items() for effect in self._proposals(self._view.members[rank], runs)]

    # What other members say

    def receive(self, source: Address, frame: Frame) -> list[Effect]:
        if isinstance(frame, Proposals):
            self._on_proposals(self._ranks[source], frame)
        elif isinstance(frame, ProposalRequest):
            return self._on_request(source, frame)
        else:
            self._counters[Count.ORDER_MISMATCH] += 1
        return []

    def _on_proposals(self, proposer: int, frame: Proposals) -> None:
        for first, count, number in frame.runs:
            for frame_id in range(max(first, self._isis.final + 1), min(first + count - 1, self.sent) + 1):
                self._isis.receive_proposal(proposer, frame_id, number + frame_id - first)

    def _on_request(self, source: Address, frame: ProposalRequest) -> list[Effect]:
        """Say again what we said; what we have not received yet is proposed when it comes."""
        runs: Runs = []
        rank = self._ranks[source]
        for frame_id in self._isis.pending_ids(rank, frame.first, frame.last):
            if (number := self._isis.proposed(rank, frame_id)) is not None:
                _extend(runs, frame_id, number)
        return self._proposals(source, runs)

    def _proposals(self, to: Address, runs: Runs) -> list[Effect]:
        """As many datagrams as it takes."""
        most = self._config.most_runs
        parts = (tuple(runs[start : start + most]) for start in range(0, len(runs), most))
        return [Transmit(to, Proposals(self._view.id, part)) for part in parts]

    # Time

    def tick(self, now: int) -> list[Effect]:
        """Proposals may be lost; whoever owes us some is asked."""
        if self._ask_at is None or now < self._ask_at:
            return []
        spans = {member: self._isis.missing(rank, self.sent) for member, rank in self._ranks.items()}
        late = {member: span for member, span in spans.items() if span is not None and member != self._local}
        self._asked += 1
        self._ask_at = now + (self._config.ask_ns << min(self._asked, MOST_DOUBLINGS)) if late else None
        return [Transmit(member, ProposalRequest(self._view.id, *span)) for member, span in late.items()]

    def next_deadline(self) -> int | None:
        return self._ask_at

    # The end of a view: the streams are the same for all who end it, and the streams are all there is

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def finals(self) -> Finals:
        return ()

    def conclude(self, isis: Isis, rest: Iterable[tuple[Address, Ordered]], finals: Finals) -> None:
        for sender, ordered in rest:
            self._take_numbers(isis, self._ranks[sender], ordered)
            if ordered.is_ordered:
                self._take_data(isis, self._ranks[sender], ordered)

    def end_view(self, *, goes_on: bool) -> list[Effect]:
        """Others may hold what we do not know to be decided, and go on with it without us."""
        self._ask_at = None
        return self._outbox.fail()

    # The stream is held back for us

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def _check(self) -> None:
        assert self._outbox.frames_under_way <= self._config.window


def _extend(runs: Runs, frame_id: int, number: int) -> None:
    """Add one proposal: to the last run, if it continues it."""
    if runs:
        first, count, start = runs[-1]
        if frame_id == first + count and number == start + count:
            runs[-1] = (first, count + 1, start)
            return
    runs.append((frame_id, 1, number))
