"""State transfer: the application's state, as it was when a view began, goes to the members that came in without it.

The provider is the most senior member that has the state; whoever lacks it provides nothing, and lacks it until it was
received as a whole, through whatever views. A joiner asks, the provider answers: whatever is lost is asked for again,
and a provider needs no timer.

    a view begins                    -> all of the view before is void; the provider asks its application for the
                                        state, a joiner asks the provider for its first window of chunks
    the same members form a new view -> the next holder is the provider: the one before could not give the state
    nobody in the view has the state -> the application is notified, and all wait for a holder to come back
    ... our application has all of
    the log, or begins anew          -> we count as a holder from the next view on, which we ask for
    our application supplies         -> it is cut into chunks; those who asked for more than there was get theirs
    our application refuses          -> whoever asked is told, and whoever asks from then on; and the coordinator,
                                        which forms the view again while there is a holder that was not asked
    a request                        -> what exists of it is sent, and the end of the rest is remembered
    a request for none               -> that joiner has all; after the last such one the snapshot is dropped
    a chunk                          -> handed up in order; half a window consumed: the next half is asked for
    the last chunk is handed up      -> the provider is told; again for every chunk that comes again
    nothing handed up for retry_ns   -> the window is asked for again, from the first missing chunk
    nothing handed up for DELAYED_NS -> the application is notified whom it waits for
    a refusal                        -> the application is notified; of the last holder's, that the state will not come

Invariants: a member gives, takes, or does neither, never both; a joiner holds only chunks above the first missing one
and within its window; a provider owes a joiner no more than the next window of what does not exist yet; the chunks of
a state depend on its bytes and not on the pieces in which it was supplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from motet.errors import MisuseError
from motet.protocol.core.checks import require_between
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import MOST_TEXT_BYTES, Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import NO_VIEW, View, ViewId
from motet.protocol.window.budget import RepairBudget
from motet.protocol.wire.frames import StateChunk, StateNeed, StateRefusal, StateRequest

StateFrame = StateRequest | StateChunk | StateRefusal
MOST_CHUNK_BYTES = 65_000  # a datagram carries 65 507 bytes, headers included
MOST_WINDOW = 0xFFFF  # a request has two bytes for its count
RESENT_BURST = 1 << 20  # bytes of chunks that were sent to a joiner before
RESENT_BYTES = 8 << 20  # the same for a second
DELAYED_NS = 4 * SECOND  # a joiner names the provider that has given nothing for so long
HALF_A_STATE = "only a part of the state arrived, and nobody who has it is left: drop that part"


@dataclass(frozen=True, slots=True)
class TransferConfig:
    """Members with different windows understand each other, but the larger window fills at the pace of retries."""

    wants_state: bool = False  # an application must say so: one that keeps no state need not wait for any
    chunk_bytes: int = 32_000  # with its headers below the default datagram of 60 000 bytes
    window: int = 16  # half a megabyte on its way to, and at most held by, each joiner
    retry_ns: int = 50 * MILLISECOND  # a few round trips of a LAN, as in the view change
    needs_state: bool = False  # where nobody has the state, wait for somebody who has it; otherwise it begins anew

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
    is_final: bool = False  # every holder refused: it will not come at all


@dataclass(frozen=True, slots=True)
class StateRefused(Effect):
    """A holder could not give its state, at that holder and at those who wait for it. The next holder is asked."""

    view: ViewId
    by: Address
    reason: str


@dataclass(frozen=True, slots=True)
class StateDelayed(Effect):
    """We wait for the state, and its provider has sent nothing for a while."""

    view: ViewId
    provider: Address
    waited_ns: int


@dataclass(frozen=True, slots=True)
class StateLost(Effect):
    """Nobody in this view has the application's state. All wait for a member that has it, and the log waits with them.

    If nobody can come back with it, `Group.begin_state_anew` makes the state of one member the state of the group.
    """

    view: View
    lineage: ViewId = NO_VIEW  # the primary view until which this member once had the state; NO_VIEW: it never did


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
        """A full chunk is buffered until more follows, so that only an empty state ends in an empty chunk."""
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
    began_at: int = 0
    delayed_at: int | None = None  # when the application is to hear that nothing comes


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
        self._is_needed = config.needs_state
        self._lacks = False
        self._covered: int | None = None  # while we lack the state: the log that our application has, if all up to here
        self._lineage = NO_VIEW  # while we lack the state: until when we had it
        self._is_spare = False  # we lack the state, and our application has the log up to the beginning of the view
        self._begins_anew = False  # the application said so, in a view in which nobody has the state
        self._holders: tuple[Address, ...] = ()
        self._provider: Address | None = None  # of this view, if somebody lacks the state
        self._refused: dict[Address, str] = {}  # holders that could not give it, and why

    @property
    def is_waiting(self) -> bool:
        """Whether we lack the state."""
        return self._lacks

    @property
    def is_lost(self) -> bool:
        """Whether nobody in the view has the state."""
        return self._lacks and not self._holders

    @property
    def is_holder_again(self) -> bool:
        """Nobody in the view has the state, and we could give it: a new view is wanted."""
        return self.is_lost and (self._begins_anew or self._is_spare)

    @property
    def is_giving(self) -> bool:
        """Whether somebody still waits for the state of our application."""
        giving = self._giving
        return giving is not None and giving.phase is not _Phase.REFUSED and len(giving.done) < len(giving.joiners)

    @property
    def wants_other_provider(self) -> bool:
        """The provider of this view refused, and there is a holder that was not asked yet."""
        return self._provider in self._refused and any(holder not in self._refused for holder in self._holders)

    @property
    def provider(self) -> Address | None:
        """Whom we wait for."""
        return self._taking.provider if self._taking is not None and self._lacks else None

    @property
    def handed_up(self) -> int:
        """Chunks of the state of this view that the application was given."""
        return self._taking.next if self._taking is not None else 0

    @property
    def need(self) -> StateNeed:
        if not self._config.wants_state:
            return StateNeed.UNWANTED
        if not self._lacks or (self._begins_anew and self.is_lost):
            return StateNeed.HELD
        if self._is_spare:
            return StateNeed.SPARE
        return StateNeed.LACKING if self._is_needed else StateNeed.DISPENSABLE

    def require(self) -> None:
        """From now on our application waits for the state where nobody has it."""
        self._is_needed = True

    def begin_anew(self) -> None:
        if not self.is_lost:
            raise MisuseError("the state of the group is not lost here: only where nobody has it may it begin anew")
        self._begins_anew = True

    def rolled_back(self) -> None:
        """Our application has messages that are not of the log: its state is nobody's any more."""
        self._covered, self._is_spare = None, False

    def begin_view(
        self,
        view: View,
        lacking: tuple[int, ...],
        now: int,
        *,
        is_merge: bool = False,
        position: int = 0,
        covered: int | None = None,
        lineage: ViewId = NO_VIEW,
    ) -> list[Effect]:
        """`position`: where the log stands. `covered`, `lineage`: how much of it we had, and of which primary view."""
        if self._local not in view or (self._view is not None and view.id <= self._view.id):
            raise MisuseError(f"{view} does not follow {self._view} at {self._local}; begin the views that it installs")
        joiners = tuple(member for member in view.members if member.incarnation in lacking)
        self._holders = tuple(member for member in view.members if member not in joiners)
        self._provider = self._choose_provider(view, is_merge=is_merge) if joiners else None
        self._view, self._giving, self._taking = view, None, None
        self._budget.retain(set(view.members))
        is_joiner = self._local in joiners and self._config.wants_state
        if is_joiner and not self._lacks:
            self._covered, self._lineage = covered, lineage
        self._lacks = is_joiner
        self._is_spare = is_joiner and self._covered is not None and self._covered == position
        self._begins_anew = self._begins_anew and self.is_lost
        if is_joiner:
            return self._begin_taking(view, now)
        if self._local == self._provider:
            self._giving = _Giving(view.id, joiners)
        return self._void_a_part(view.id) + ([ProvideState(view.id)] if self._giving else [])

    def _choose_provider(self, view: View, *, is_merge: bool) -> Address | None:
        """All members compute the same: of a view that no merge made, all of them were in the view before."""
        before = self._view
        is_formed_again = not is_merge and before is not None and before.members == view.members
        if not is_formed_again:
            self._refused.clear()
        if is_formed_again and self._provider in self._holders:
            following = self._holders.index(self._provider) + 1
            return self._holders[following % len(self._holders)]
        return self._holders[0] if self._holders else None

    def _begin_taking(self, view: View, now: int) -> list[Effect]:
        if self._provider is not None:
            self._taking = _Taking(view.id, self._provider, began_at=now, delayed_at=now + DELAYED_NS)
            return self._ask(self._taking, now)
        return self._void_a_part(view.id) + ([] if self.is_holder_again else [StateLost(view, self._lineage)])

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
        self._refused[self._local] = short
        told = self._tell_refusal(*(joiner for joiner in giving.joiners if joiner in giving.wanted))
        return [StateRefused(view, self._local, short), *told]

    def _tell_refusal(self, *joiners: Address) -> list[Effect]:
        """The coordinator as well: it alone can form the view anew, with another provider."""
        assert self._view is not None
        assert self._giving is not None
        coordinator = self._view.members[0]
        others = dict.fromkeys((*joiners, coordinator) if self.wants_other_provider else joiners)
        refusal = StateRefusal(self._view.id, self._giving.reason)
        return [Transmit(other, refusal) for other in others if other != self._local]

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
        if isinstance(frame, StateRefusal) and self._taking is None and source == self._provider:
            self._refused[source] = frame.reason
            return []
        if self._taking is None or source != self._taking.provider:
            return self._drop(Count.FRAME_MISPLACED)
        if isinstance(frame, StateChunk):
            return self._on_chunk(self._taking, frame, now)
        return self._on_refusal(self._taking, frame, now)

    def tick(self, now: int) -> list[Effect]:
        taking = self._taking
        if taking is None:
            return []
        effects = self._tell_delay(taking, now)
        if taking.retry_at is None or now < taking.retry_at:
            return effects
        taking.asked = taking.next
        return effects + self._ask(taking, now)

    def _tell_delay(self, taking: _Taking, now: int) -> list[Effect]:
        if taking.delayed_at is None or now < taking.delayed_at:
            return []
        taking.delayed_at = now + DELAYED_NS
        return [StateDelayed(taking.view, taking.provider, now - taking.began_at)]

    def next_deadline(self) -> int | None:
        if self._taking is None:
            return None
        deadlines = (self._taking.retry_at, self._taking.delayed_at)
        return min((due for due in deadlines if due is not None), default=None)

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
            return self._tell_refusal(source)
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
        taking.delayed_at = now + DELAYED_NS
        is_half_consumed = taking.asked - taking.next <= self._config.window // 2
        return self._ask(taking, now) if is_half_consumed and taking.total is None else []

    def _finish(self, taking: _Taking) -> list[Effect]:
        taking.retry_at = taking.delayed_at = None
        self._lacks = self._is_spare = False
        self._refused.clear()
        taking.held.clear()  # empty, unless the provider sends chunks beyond its last one
        return self._say_done(taking)

    def _say_done(self, taking: _Taking) -> list[Effect]:
        return [Transmit(taking.provider, StateRequest(taking.view, taking.next, 0))]

    def _on_refusal(self, taking: _Taking, frame: StateRefusal, now: int) -> list[Effect]:
        if taking.phase is not _Phase.OPEN:
            is_repeated = taking.phase is _Phase.REFUSED
            return self._drop(Count.FRAME_DUPLICATE if is_repeated else Count.FRAME_MISPLACED)
        taking.phase, taking.retry_at, taking.delayed_at = _Phase.REFUSED, None, None
        taking.held.clear()
        self._refused[taking.provider] = frame.reason
        refused = StateRefused(taking.view, taking.provider, frame.reason)
        if any(holder not in self._refused for holder in self._holders):
            taking.retry_at = now + self._config.retry_ns  # whoever forms the next view may not have heard of it
            return [refused]
        reasons = "; ".join(f"{holder.name}: {self._refused[holder]}" for holder in self._holders)
        return [refused, StateFailed(taking.view, reasons, is_final=True)]

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
            assert (taking.delayed_at is not None) == (taking.phase is _Phase.OPEN)
            assert taking.retry_at is not None or taking.phase is not _Phase.OPEN
            assert taking.retry_at is None or taking.phase is not _Phase.COMPLETE
            assert taking.retry_at is None or taking.asked <= taking.next + window
