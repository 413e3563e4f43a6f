"""Total order on the reliable multicast: DATA and SEQ ride in each sender's stream, proposals come back gathered.

    we have something to order   -> it goes out as the window of frames under way allows, in a primary view only
    a frame to be ordered        -> proposed; one datagram answers all frames of a batch
    proposals of all             -> the final numbers ride on our next frame, or on one of their own
    proposals that are late      -> asked for again
    we delivered further         -> the coordinator is told; when all are further it tells all: that is stable
    the view ends                -> what is decided is delivered: all who end it hold the same frames and numbers
    ... and the log goes on      -> what is not decided follows, by sender and id
    ... or it does not           -> what is not decided is dropped; ours failed, it may or may not be in the log

Positions count messages. What is delivered beyond the stable position can be taken back, and only if we are cut off
from the primary component.

Invariants: frames of ours under way <= window; stable <= position; in a view that is not open nothing is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from motet.core.counters import Count, Counters
from motet.core.effects import Admitted, Broadcast, Channel, Deliver, Effect, Frame, SendFailed, Transmit
from motet.core.identity import Address
from motet.core.view import NO_VIEW, View
from motet.errors import BacklogFullError, LeftGroupError, MessageTooLargeError, MisuseError, SendFailedError
from motet.ordering.config import OrderingConfig
from motet.ordering.holdback import HoldBackQueue, Pending
from motet.ordering.isis import MOST_NUMBER, Isis
from motet.wire.backlog import Backlog
from motet.wire.body import MAX_MESSAGE_BYTES, Port, message_count
from motet.wire.frames import Progress, ProposalRequest, Proposals, Stable
from motet.wire.ordered import ORDERED, Number, Ordered, Tag, seal, unseal

FRAMES = (Proposals, ProposalRequest, Progress, Stable)


@dataclass(frozen=True, slots=True)
class StableAdvanced(Effect):
    """Every member of the primary view has delivered the log up to `position`: it is never taken back."""

    position: int


@dataclass(frozen=True, slots=True)
class RolledBack(Effect):
    """What was delivered at these positions, both included, may not be what the group agreed on: forget it."""

    first: int
    last: int


class TotalOrder:
    def __init__(self, local: Address, config: OrderingConfig, counters: Counters) -> None:
        self.position = 0  # messages of the log that we have delivered
        self.stable = 0
        self.accepted = self.admitted = 0
        self.wall_offset_ns = 0  # from the clock that machines are given to the one on the wall
        self.is_barred: Callable[[], bool] = lambda: False  # something in the stream must go out before us
        self._local = local
        self._config = config
        self._counters = counters
        self._backlog = Backlog(config.body_bytes - config.rider_bytes)
        self._view = View(NO_VIEW, (local,), is_primary=False)
        self._ranks = {local: 0}
        self._isis = Isis(1, 0)
        self._sent = 0  # frames of ours in this view
        self._done = 0  # of them, delivered here
        self._own_delivered = 0  # messages of ours that were delivered here, by number
        self._has_left = False
        self._riders: list[Number] = []  # final numbers of ours that have not left yet
        self._first_rider = 1  # the id that the first of them belongs to
        self._owed: dict[int, list[tuple[int, int, int]]] = {}  # proposals that a sender has not been told: runs
        self._plain: dict[Address, int] = {}  # bodies of the plain stream of each sender in this view
        self._ask_at: int | None = None
        self._asked = 0
        self._told: dict[Address, int] = {}  # at the coordinator: how far each member is
        self._tell_at: int | None = None
        self._tells = 0  # since we last delivered something
        self._announced = 0  # messages that the application knows to have left the backlog
        self._confirmed = -1  # all of this view are known to be so far

    def resume(self, position: int, stable: int) -> None:
        """Before anything else: our log did not begin with this life."""
        self.position, self.stable = position, stable

    # What the application asks for

    def send(self, messages: Sequence[bytes], port: int = Port.APP) -> None:
        """Accept messages; they go out when the view is primary and the window allows. All are accepted, or none."""
        if self._has_left:
            raise LeftGroupError("this member has left the group; join again to send")
        largest = max(map(len, messages), default=0)
        if largest > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(
                f"a message of {largest} bytes; at most {MAX_MESSAGE_BYTES} can be sent, split it"
            )
        if self._backlog.waiting_bytes > self._config.backlog_bytes:
            raise BacklogFullError(
                f"{self._backlog.waiting_bytes} bytes wait to be ordered already; wait for Admitted before sending more"
            )
        self._backlog.extend(messages, port)
        self.accepted += len(messages)

    def leave(self) -> list[Effect]:
        """What still waits ends with an error; what is under way is settled by the flush."""
        self._has_left = True
        self._backlog.clear()
        first, last = self.admitted + 1, self.accepted
        self.accepted = self.admitted
        error = LeftGroupError("the member left the group before this message went out")
        return [SendFailed(Channel.TOTAL, None, first, last, error)] if first <= last else []

    # What the multicast stream takes from us

    def next_body(self, now: int = 0) -> bytes | None:
        """The next frame for our stream: something to be ordered, with numbers riding on it, or numbers alone."""
        if self._may_send:
            tag = self._backlog.next_tag
            body, completed = self._backlog.take()
            self.admitted += completed
            self._sent += 1
            return self._sealed(body, now, is_ordered=True, tag=tag)
        return self._sealed(b"", now, is_ordered=False) if self._riders else None

    def lift(self, body: bytes, now: int = 0) -> bytes:
        """A plain body that is about to leave takes along what is waiting."""
        return self._sealed(body, now, is_ordered=False) if self._riders else body

    @property
    def _may_send(self) -> bool:
        is_open = self._view.is_primary and not self._has_left
        has_room = self._sent - self._done < self._config.window
        return is_open and bool(self._backlog) and has_room and not self.is_barred()

    def _sealed(self, body: bytes, now: int, *, is_ordered: bool, tag: Tag | None = None) -> bytes:
        riders = self._riders[: self._config.most_riders]
        first = self._first_rider
        self._first_rider += len(riders)
        del self._riders[: len(riders)]
        return seal(first, riders, body, is_ordered=is_ordered, sent_at=now + self.wall_offset_ns, tag=tag)

    @property
    def is_eager(self) -> bool:
        """There is something for the stream to take."""
        return bool(self._riders) or self._may_send

    # What the streams deliver

    def take(self, sender: Address, bodies: Sequence[bytes], now: int) -> list[Effect]:
        """Bodies of one sender's stream, in order, each once."""
        effects: list[Effect] = []
        rank = self._ranks[sender]
        for body in bodies:
            if body[0] == ORDERED:
                effects += self._take_ordered(sender, rank, body)
            else:
                effects.append(self._plain_body(sender, body))
        self._hand_out(now)
        return effects + self._deliver(self._isis.deliverable(), now) + self._propose()

    def _take_ordered(self, sender: Address, rank: int, body: bytes) -> list[Effect]:
        ordered = unseal(body)
        if not self._view.is_primary and (ordered.is_ordered or ordered.numbers):
            self._counters[Count.FRAME_MISPLACED] += 1  # nobody who is in this view may have sent it
            return []
        for offset, number in enumerate(ordered.numbers):
            if not self._isis.receive_number(rank, ordered.first + offset, number):
                self._counters[Count.FRAME_MISPLACED] += 1
        if ordered.is_ordered:
            self._receive_data(rank, ordered)
        elif ordered.inner:
            return [self._plain_body(sender, ordered.inner)]
        return []

    def _plain_body(self, sender: Address, body: bytes) -> Deliver:
        self._plain[sender] = number = self._plain.get(sender, 0) + 1
        return Deliver(Channel.MULTICAST, sender, number, (body,))

    def _receive_data(self, rank: int, frame: Ordered) -> None:
        frame_id = self._isis.received(rank) + 1
        number = self._isis.receive_data(rank, frame_id, frame.inner, frame.sent_at, frame.tag)
        if number is None:
            return
        if rank == self._ranks[self._local]:
            self._isis.receive_proposal(rank, frame_id, number)
        else:
            _extend(self._owed.setdefault(rank, []), frame_id, number)

    def _propose(self) -> list[Effect]:
        """One datagram to each sender of this batch."""
        owed, self._owed = self._owed, {}
        return [effect for rank, runs in owed.items() for effect in self._proposals(self._view.members[rank], runs)]

    def _hand_out(self, now: int) -> None:
        """Numbers that have become final wait for a lift."""
        first, numbers = self._isis.finals()
        if numbers and not self._riders:
            self._first_rider = first
        self._riders += numbers
        if self._sent > self._isis.final and self._ask_at is None:
            self._ask_at = now + self._config.ask_ns
        if numbers:
            self._asked, self._ask_at = 0, now + self._config.ask_ns if self._sent > self._isis.final else None

    def _deliver(self, ready: Sequence[Pending], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for pending in ready:
            sender = self._view.members[pending.sender]
            place = (pending.id, (pending.body,), self.position + 1)
            effects.append(Deliver(Channel.TOTAL, sender, *place, pending.sent_at, pending.tag))
            count = message_count(pending.body)
            self.position += count
            self._counters[Count.FRAME_ORDERED] += 1
            if sender == self._local:
                self._done += 1
                self._own_delivered += count
        if ready:
            self._tells = 0
            soon = now + self._config.progress_ns
            self._tell_at = now if self._tell_at is None else min(self._tell_at, soon)  # the first word leaves at once
        return effects

    def admission(self) -> list[Effect]:
        """What has left the backlog since we were last asked."""
        before, self._announced = self._announced, self.admitted
        return [Admitted(Channel.TOTAL, None, self.admitted)] if self.admitted > before else []

    @property
    def under_way(self) -> int:
        """Frames of ours that were sent in this view and not delivered yet."""
        return self._sent - self._done

    @property
    def queue(self) -> HoldBackQueue:
        return self._isis.queue

    @property
    def members(self) -> tuple[Address, ...]:
        return self._view.members

    @property
    def sent(self) -> int:
        """Frames of ours that went out in this view."""
        return self._sent

    def delivered_ids(self) -> dict[Address, int]:
        """Of each sender of this view, the id of the last frame that was delivered here."""
        return dict(zip(self._view.members, self._isis.delivered_ids, strict=True))

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        """Port and payload of what was accepted and is not wholly out."""
        return self._backlog.messages()

    # What other members say

    def receive(self, source: Address, frame: Frame, now: int) -> list[Effect]:
        if not isinstance(frame, FRAMES):
            raise MisuseError(f"{type(frame).__name__} is not a frame of total order")
        if frame.view != self._view.id or source not in self._ranks:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        match frame:
            case Proposals():
                return self._on_proposals(self._ranks[source], frame, now)
            case ProposalRequest():
                return self._on_request(source, frame)
            case Progress():
                return self._on_progress(source, frame)
            case Stable():
                return self._advance_stable(frame.position)
        raise AssertionError(f"{type(frame).__name__} is in FRAMES and nobody handles it")

    def _on_proposals(self, proposer: int, frame: Proposals, now: int) -> list[Effect]:
        for first, count, number in frame.runs:
            for frame_id in range(max(first, self._isis.final + 1), min(first + count - 1, self._sent) + 1):
                self._isis.receive_proposal(proposer, frame_id, number + frame_id - first)
        self._hand_out(now)
        return []

    def _on_request(self, source: Address, frame: ProposalRequest) -> list[Effect]:
        """Say again what we said; what we have not received yet is proposed when it comes."""
        runs: list[tuple[int, int, int]] = []
        rank = self._ranks[source]
        for frame_id in self._isis.pending_ids(rank, frame.first, frame.last):
            if (number := self._isis.proposed(rank, frame_id)) is not None:
                _extend(runs, frame_id, number)
        return self._proposals(source, runs)

    def _proposals(self, to: Address, runs: list[tuple[int, int, int]]) -> list[Effect]:
        """As many datagrams as it takes."""
        most = self._config.most_runs
        parts = (tuple(runs[start : start + most]) for start in range(0, len(runs), most))
        return [Transmit(to, Proposals(self._view.id, part)) for part in parts]

    # How far everybody is

    def _on_progress(self, source: Address, frame: Progress) -> list[Effect]:
        self._told[source] = max(self._told.get(source, 0), frame.position)
        effects = self._gather_stable()
        if frame.position <= self._confirmed:
            effects.append(Transmit(source, Stable(self._view.id, self._confirmed)))
        return effects

    def _gather_stable(self) -> list[Effect]:
        self._told[self._local] = self.position
        if len(self._told) < len(self._view.members):
            return []
        stable = min(self._told.values())
        if stable <= self._confirmed:
            return []
        return [*self._advance_stable(stable), Broadcast(Stable(self._view.id, stable))]

    def _advance_stable(self, position: int) -> list[Effect]:
        if position > self.position:
            return []
        self._confirmed = max(self._confirmed, position)
        if position <= self.stable:
            return []
        self.stable = position
        return [StableAdvanced(position)]

    def _tell(self, now: int) -> list[Effect]:
        """Say how far we are until we hear that all are as far; the coordinator gathers."""
        if not self._view.is_primary or self._confirmed >= self.position:
            self._tell_at = None
            return []
        self._tell_at = now + (self._config.progress_ns << min(self._tells, 6))
        self._tells += 1
        coordinator = self._view.coordinator
        if coordinator == self._local:
            return self._gather_stable()
        return [Transmit(coordinator, Progress(self._view.id, self.position))]

    # Views

    def end_view(self, *, goes_on: bool) -> list[Effect]:
        """All that the streams had in this view was taken. `goes_on`: a primary view follows, and continues the log."""
        pending = self._isis.queue.drain()
        effects = self._deliver([one for one in pending if one.is_decided or goes_on], 0)
        failed = self._fail_what_is_under_way()
        self._tell_at = self._ask_at = None
        return effects + failed

    def position_after(self, undelivered: Iterable[tuple[Address, bytes]], *, goes_on: bool) -> int:
        """Where the log will stand when the streams have delivered these as well and the view has ended."""
        held = {(one.sender, one.id): one.body for one in self._isis.queue}
        received, decided = self._isis.received_ids, self._isis.decided_ids
        for sender, body in undelivered:
            if body[0] != ORDERED:
                continue
            rank, ordered = self._ranks[sender], unseal(body)
            decided[rank] += sum(1 for _ in takewhile(lambda number: number.number < MOST_NUMBER, ordered.numbers))
            if ordered.is_ordered:
                received[rank] += 1
                held[rank, received[rank]] = ordered.inner
        counted = (body for (rank, frame_id), body in held.items() if goes_on or frame_id <= decided[rank])
        return self.position + sum(map(message_count, counted))

    def _fail_what_is_under_way(self) -> list[Effect]:
        first, last = self._own_delivered + 1, self.admitted
        self._own_delivered = self.admitted
        error = SendFailedError(
            "this member lost touch with the primary component while the message was being ordered: it may or may not "
            "be in the log; look there before sending it again"
        )
        return [SendFailed(Channel.TOTAL, None, first, last, error)] if first <= last else []

    def begin_view(self, view: View, position: int | None, now: int) -> list[Effect]:
        """`position`: where the log stands at the beginning, for one who was not there; None for one who was."""
        effects = self._move_to(position) if position is not None else []
        self._view = view
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self._isis = Isis(len(view.members), self._ranks[self._local])
        self._backlog.rewind()
        self._sent = self._done = self._asked = self._tells = 0
        self._riders, self._first_rider = [], 1
        self._owed, self._plain, self._told = {}, {}, {}
        self._ask_at, self._tell_at = None, now if view.is_primary else None
        self._confirmed = -1
        return effects

    def _move_to(self, position: int) -> list[Effect]:
        """We come in from outside: what we delivered and do not know to be stable may not be the group's."""
        rolled_back = [RolledBack(self.stable + 1, self.position)] if self.position > self.stable else []
        self.position = position
        self.stable = min(self.stable, position)
        return list(rolled_back)

    # Time

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._ask_at is not None and now >= self._ask_at:
            effects += self._ask(now)
        if self._tell_at is not None and now >= self._tell_at:
            effects += self._tell(now)
        return effects

    def next_deadline(self) -> int | None:
        return min((due for due in (self._ask_at, self._tell_at) if due is not None), default=None)

    def _ask(self, now: int) -> list[Effect]:
        """Proposals may be lost; whoever owes us some is asked."""
        spans = {member: self._isis.missing(rank, self._sent) for member, rank in self._ranks.items()}
        late = {member: span for member, span in spans.items() if span is not None and member != self._local}
        self._asked += 1
        self._ask_at = now + (self._config.ask_ns << min(self._asked, 5)) if late else None
        return [Transmit(member, ProposalRequest(self._view.id, *span)) for member, span in late.items()]

    def _check(self) -> None:
        self._isis._check()
        assert self.stable <= self.position
        assert self._done <= self._sent <= self._done + self._config.window
        assert self._view.is_primary or not len(self._isis.queue)
        assert self._own_delivered <= self.admitted <= self.accepted


def _extend(runs: list[tuple[int, int, int]], frame_id: int, number: int) -> None:
    """Add one proposal: to the last run, if it continues it."""
    if runs:
        first, count, start = runs[-1]
        if frame_id == first + count and number == start + count:
            runs[-1] = (first, count + 1, start)
            return
    runs.append((frame_id, 1, number))
