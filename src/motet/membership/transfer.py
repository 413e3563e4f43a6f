"""State transfer: the application's state, as it was when a view began, goes to the members that came in without it.

The provider is the most senior member that has the state; where nobody has it, the most senior member counts as having
it. A joiner asks, the provider answers: whatever is lost is asked for again, and a provider needs no timer.

    a view begins                    -> all of the view before is void; the provider asks its application for the
                                        state, a joiner asks the provider for its first window of chunks
    our application supplies         -> it is cut into chunks; those who asked for more than there was get theirs
    our application refuses          -> whoever asked is told, and whoever asks from then on
    a request                        -> what exists of it is sent, and the end of the rest is remembered
    a request for none               -> that joiner has all; after the last such one the snapshot is dropped
    a chunk                          -> handed up in order; half a window consumed: the next half is asked for
    the last chunk is handed up      -> the provider is told; again for every chunk that comes again
    nothing handed up for retry_ns   -> the window is asked for again, from the first missing chunk
    a refusal                        -> the application is told once; no more is asked in this view

Invariants: a member gives, takes, or does neither, never both; a joiner holds only chunks above the first missing one
and within its window; a provider owes a joiner no more than the next window of what does not exist yet; the chunks of
a state depend on its bytes and not on the pieces in which it was supplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from motet.core.checks import require_between
from motet.core.counters import Count, Counters
from motet.core.effects import Effect, Transmit
from motet.core.identity import MOST_TEXT_BYTES, Address
from motet.core.units import MILLISECOND, SECOND
from motet.core.view import View, ViewId
from motet.errors import MisuseError
from motet.window.budget import RepairBudget
from motet.wire.frames import StateChunk, StateNeed, StateRefusal, StateRequest

StateFrame = StateRequest | StateChunk | StateRefusal
MOST_CHUNK_BYTES = 65_000  # a datagram carries 65 507 bytes, headers included
MOST_WINDOW = 0xFFFF  # a request has two bytes for its count
RESENT_BURST = 1 << 20  # bytes of chunks that were sent to a joiner before
RESENT_BYTES = 8 << 20  # the same for a second
HALF_A_STATE = "only a part of the state arrived, and nobody who has it is left: start from an empty one"


@dataclass(frozen=True, slots=True)
class TransferConfig:
    """Members with different windows understand each other, but the larger window fills at the pace of retries."""

    wants_state: bool = False  # an application must say so: one that keeps no state need not wait for any
    chunk_bytes: int = 32_000  # with its headers below the default datagram of 60 000 bytes
    window: int = 16  # half a megabyte on its way to, and at most held by, each joiner
    retry_ns: int = 50 * MILLISECOND  # a few round trips of a LAN, as in the view change

    def __post_init__(self) -> None:
        require_between("chunk_bytes", self.chunk_bytes, 1, MOST_CHUNK_BYTES)
        require_between("window", self.window, 1, MOST_WINDOW)
        require_between("retry_ns", self.retry_ns, MILLISECOND, 60 * SECOND)


@dataclass(frozen=True, slots=True)
class ProvideState(Effect):
    """Ask the application for its state now, before any later effect is performed; hand it to `supply` or `refuse`."""

    view: ViewId


@dataclass(frozen=True, slots=True)
class StateReceived(Effect):
    """The next piece of the state."""

    view: ViewId
    data: bytes
    is_first: bool  # drop what you had: a state begins anew
    is_last: bool


@dataclass(frozen=True, slots=True)
class StateFailed(Effect):
    """The state does not come in this view; what was received of it is void."""

    view: ViewId
    reason: str


class _Phase(Enum):
    """Of a transfer, at either end."""

    OPEN = "open"
    COMPLETE = "complete"  # all was supplied; all was received
    REFUSED = "refused"


@dataclass(slots=True)
class _Giving:
    """The provider's side of one view."""

    view: ViewId
    joiners: tuple[Address, ...]
    phase: _Phase = _Phase.OPEN
    chunks: list[bytes] = field(default_factory=list)
    rest: bytearray = field(default_factory=bytearray)  # supplied and not cut: more may follow, or it is the last chunk
    wanted: dict[Address, int] = field(default_factory=dict)  # all chunks below it were asked for, existing or not
    sent: dict[Address, int] = field(default_factory=dict)  # all chunks below it were sent at least once
    done: set[Address] = field(default_factory=set)
    reason: str = ""  # of the refusal

    def cut(self, chunk_bytes: int, is_last: bool) -> None:
        """A full chunk is kept back until more follows: so no state but the empty one ends in an empty chunk."""
        while len(self.rest) > chunk_bytes:
            self.chunks.append(bytes(self.rest[:chunk_bytes]))
            del self.rest[:chunk_bytes]
        if is_last:
            self.phase = _Phase.COMPLETE
            self.chunks.append(bytes(self.rest))
            self.rest.clear()

    def between(self, first: int, end: int) -> list[StateChunk]:
        last = len(self.chunks) - 1 if self.phase is _Phase.COMPLETE else None
        span = range(first, min(end, len(self.chunks)))
        return [StateChunk(self.view, index, index == last, self.chunks[index]) for index in span]


@dataclass(slots=True)
class _Taking:
    """The joiner's side of one view."""

    view: ViewId
    provider: Address
    phase: _Phase = _Phase.OPEN
    next: int = 0  # the first missing chunk: all below it were handed up
    asked: int = 0  # all below it were asked for
    total: int | None = None  # how many chunks there are, once the last one is here
    held: dict[int, StateChunk] = field(default_factory=dict)
    retry_at: int | None = None


class StateTransfer:
    def __init__(self, local: Address, config: TransferConfig, counters: Counters) -> None:
        self._local = local
        self._config = config
        self._counters = counters
        self._view: View | None = None
        self._giving: _Giving | None = None
        self._taking: _Taking | None = None
        window_bytes = config.window * config.chunk_bytes
        self._budget: RepairBudget[Address] = RepairBudget(window_bytes, RESENT_BURST, RESENT_BYTES)
        self._has_part = False  # the application holds the beginning of a state and not its end

    @property
    def is_waiting(self) -> bool:
        """Whether we lack the state."""
        return self._taking is not None and self._taking.phase is not _Phase.COMPLETE

    @property
    def handed_up(self) -> int:
        """Chunks of the state of this view that the application was given."""
        return self._taking.next if self._taking is not None else 0

    @property
    def need(self) -> StateNeed:
        if not self._config.wants_state:
            return StateNeed.UNWANTED
        return StateNeed.LACKING if self.is_waiting else StateNeed.HELD

    def begin_view(self, view: View, lacking: tuple[int, ...], now: int) -> list[Effect]:
        if self._local not in view or (self._view is not None and view.id <= self._view.id):
            raise MisuseError(f"{view} does not follow {self._view} at {self._local}; begin the views that it installs")
        joiners = tuple(member for member in view.members if member.incarnation in lacking)
        if len(joiners) == len(view.members):
            joiners = joiners[1:]  # the state must begin somewhere
        provider = next(member for member in view.members if member not in joiners)
        self._view, self._giving, self._taking = view, None, None
        self._budget.retain(set(view.members))
        if self._local in joiners and self._config.wants_state:
            self._taking = _Taking(view.id, provider)
            return self._ask(self._taking, now)
        if self._local == provider and joiners:
            self._giving = _Giving(view.id, joiners)
        return self._void_a_part(view.id) + ([ProvideState(view.id)] if self._giving else [])

    def _void_a_part(self, view: ViewId) -> list[Effect]:
        """Nobody will send the rest any more: an application must not take the half of a state for its own."""
        had_part, self._has_part = self._has_part, False
        return [StateFailed(view, HALF_A_STATE)] if had_part else []

    # What our application says

    def supply(self, view: ViewId, data: bytes, is_last: bool, now: int) -> list[Effect]:
        """The next piece of our state, of any size."""
        giving = self._asked_of_us(view)
        if giving is None:
            return []
        first = len(giving.chunks)
        giving.rest += data
        giving.cut(self._config.chunk_bytes, is_last)
        waiting = [joiner for joiner in giving.joiners if joiner in giving.wanted]
        ends = [(joiner, giving.wanted[joiner]) for joiner in waiting]
        return [sent for joiner, end in ends for sent in self._send_chunks(giving, joiner, first, end, now)]

    def refuse(self, view: ViewId, reason: str, now: int) -> list[Effect]:
        """Our application cannot give its state, or not the rest of it."""
        giving = self._asked_of_us(view)
        if giving is None:
            return []
        short = reason.encode(errors="replace")[:MOST_TEXT_BYTES].decode(errors="ignore")
        self._giving = _Giving(view, giving.joiners, _Phase.REFUSED, reason=short)
        return [Transmit(joiner, StateRefusal(view, short)) for joiner in giving.joiners if joiner in giving.wanted]

    def _asked_of_us(self, view: ViewId) -> _Giving | None:
        """None when that view is over."""
        if self._view is not None and view < self._view.id:
            return None
        if self._view is None or view != self._view.id or self._giving is None:
            raise MisuseError(f"no state was asked for in view {view}; wait for ProvideState")
        if self._giving.phase is not _Phase.OPEN:
            raise MisuseError(f"the state in view {view} is {self._giving.phase.value}; wait for the next ProvideState")
        return self._giving

    # What the network and the clock bring

    def receive(self, source: Address, frame: StateFrame, now: int) -> list[Effect]:
        """Only joiners may ask and only the provider may answer; all of them are members of this view."""
        if self._view is None or frame.view != self._view.id:
            return self._drop(Count.FRAME_MISPLACED)
        if isinstance(frame, StateRequest):
            return self._on_request(source, frame, now)
        if self._taking is None or source != self._taking.provider:
            return self._drop(Count.FRAME_MISPLACED)
        if isinstance(frame, StateChunk):
            return self._on_chunk(self._taking, frame, now)
        return self._on_refusal(self._taking, frame)

    def tick(self, now: int) -> list[Effect]:
        taking = self._taking
        if taking is None or taking.retry_at is None or now < taking.retry_at:
            return []
        taking.asked = taking.next
        return self._ask(taking, now)

    def next_deadline(self) -> int | None:
        return self._taking.retry_at if self._taking is not None else None

    def _drop(self, why: Count) -> list[Effect]:
        self._counters[why] += 1
        return []

    # The provider

    def _on_request(self, source: Address, frame: StateRequest, now: int) -> list[Effect]:
        giving = self._giving
        if giving is None or source not in giving.joiners:
            return self._drop(Count.FRAME_MISPLACED)
        if source in giving.done:
            return self._drop(Count.FRAME_DUPLICATE)
        if giving.phase is _Phase.REFUSED:
            return [Transmit(source, StateRefusal(frame.view, giving.reason))]
        return self._answer(giving, source, frame, now) if frame.count else self._on_done(giving, source, frame)

    def _answer(self, giving: _Giving, source: Address, frame: StateRequest, now: int) -> list[Effect]:
        """What does not exist yet nobody can have: so of a request only its end need be remembered."""
        most = len(giving.chunks) + self._config.window
        if frame.first > most:
            return self._drop(Count.FRAME_MISPLACED)
        end = frame.first + min(frame.count, self._config.window)
        giving.wanted[source] = max(giving.wanted.get(source, 0), min(end, most))
        return self._send_chunks(giving, source, frame.first, end, now)

    def _send_chunks(self, giving: _Giving, to: Address, first: int, end: int, now: int) -> list[Effect]:
        chunks = giving.between(first, end)
        return [Transmit(to, chunk) for chunk in chunks if self._may_send(giving, to, chunk, now)]

    def _may_send(self, giving: _Giving, to: Address, chunk: StateChunk, now: int) -> bool:
        """Every chunk may be sent once; again only as far as the budget allows."""
        if chunk.index < giving.sent.get(to, 0):
            is_allowed = self._budget.spend(to, len(chunk.data), now)
            self._counters[Count.REPAIR_REFUSED] += not is_allowed
            return is_allowed
        giving.sent[to] = chunk.index + 1
        self._budget.earn(len(chunk.data))
        return True

    def _on_done(self, giving: _Giving, source: Address, frame: StateRequest) -> list[Effect]:
        if giving.phase is not _Phase.COMPLETE or frame.first != len(giving.chunks):
            return self._drop(Count.FRAME_MISPLACED)
        giving.done.add(source)
        if len(giving.done) == len(giving.joiners):
            giving.chunks.clear()
        return []

    # The joiner

    def _ask(self, taking: _Taking, now: int) -> list[Effect]:
        """From what was not asked for to the end of the window, or of the state where that is known."""
        first = max(taking.asked, taking.next)
        taking.asked = taking.next + self._config.window if taking.total is None else taking.total
        taking.retry_at = now + self._config.retry_ns
        return [Transmit(taking.provider, StateRequest(taking.view, first, taking.asked - first))]

    def _on_chunk(self, taking: _Taking, frame: StateChunk, now: int) -> list[Effect]:
        if frame.index < taking.next or frame.index in taking.held:
            self._drop(Count.FRAME_DUPLICATE)
            return self._say_done(taking) if taking.phase is _Phase.COMPLETE else []
        if taking.phase is not _Phase.OPEN or frame.index >= taking.next + self._config.window:
            return self._drop(Count.FRAME_MISPLACED)
        taking.held[frame.index] = frame
        taking.total = frame.index + 1 if frame.is_last else taking.total
        return self._hand_up(taking, now) if frame.index == taking.next else []

    def _hand_up(self, taking: _Taking, now: int) -> list[Effect]:
        effects: list[Effect] = []
        while taking.phase is _Phase.OPEN and (chunk := taking.held.pop(taking.next, None)):
            effects.append(StateReceived(taking.view, chunk.data, chunk.index == 0, chunk.is_last))
            taking.next += 1
            taking.phase = _Phase.COMPLETE if chunk.is_last else _Phase.OPEN
        self._has_part = taking.phase is _Phase.OPEN
        return effects + (self._go_on(taking, now) if self._has_part else self._finish(taking))

    def _go_on(self, taking: _Taking, now: int) -> list[Effect]:
        taking.retry_at = now + self._config.retry_ns
        is_half_consumed = taking.asked - taking.next <= self._config.window // 2
        return self._ask(taking, now) if is_half_consumed and taking.total is None else []

    def _finish(self, taking: _Taking) -> list[Effect]:
        taking.retry_at = None
        taking.held.clear()  # empty, unless the provider sends chunks beyond its last one
        return self._say_done(taking)

    def _say_done(self, taking: _Taking) -> list[Effect]:
        return [Transmit(taking.provider, StateRequest(taking.view, taking.next, 0))]

    def _on_refusal(self, taking: _Taking, frame: StateRefusal) -> list[Effect]:
        if taking.phase is not _Phase.OPEN:
            is_repeated = taking.phase is _Phase.REFUSED
            return self._drop(Count.FRAME_DUPLICATE if is_repeated else Count.FRAME_MISPLACED)
        taking.phase, taking.retry_at = _Phase.REFUSED, None
        taking.held.clear()
        return [StateFailed(taking.view, frame.reason)]

    def _check(self) -> None:
        window = self._config.window
        assert self._giving is None or self._taking is None
        if (giving := self._giving) is not None:
            others, exist = set(giving.joiners), len(giving.chunks)
            assert giving.done | giving.wanted.keys() <= others - {self._local}
            assert all(end <= exist + window for end in giving.wanted.values()) or giving.done == others
            assert len(giving.rest) <= (self._config.chunk_bytes if giving.phase is _Phase.OPEN else 0)
            assert not exist or (giving.done != others and giving.phase is not _Phase.REFUSED), "a snapshot for nobody"
        if (taking := self._taking) is not None:
            assert all(taking.next < index < taking.next + window for index in taking.held)
            assert (taking.retry_at is not None) == (taking.phase is _Phase.OPEN)
            assert taking.retry_at is None or taking.asked <= taking.next + window
