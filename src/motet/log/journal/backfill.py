"""Backfill: a member that comes in at some position, with a journal that ends before it, fetches what lies between.

    we begin                    -> a peer is asked: our log ends so, with this chain; send what follows
    records come                -> they are appended, which checks that they continue our chain; the rest is asked for
    "your log is another"       -> back to what is stable, and asked again; if that differs, too, there is no way
    "mine begins later"         -> another peer may keep more; if none does, the log has to begin anew
    a peer is silent, or gone   -> the next one is asked to go on from where we are
    all is here                 -> done; one whose log is as long as the group's asks, too, for it may be another

One request is under way at a time; its answer is a few records' worth of messages, so what a slow member has to hold is
bounded. Both sides only see bytes. The driver performs the effects in order, and after each `AppendRaw` and `Truncate`
says where the log ends now (`performed`), or that the records did not fit (`refused`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, unique
from typing import Any, Protocol

from motet.errors import JournalDivergedError, JournalTrimmedError
from motet.log.journal.raw import Cursor, JournalEnd, end_of
from motet.protocol.core.checks import require_between
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import NO_VIEW, ViewId
from motet.protocol.wire.fields import BYTES, COUNT, FLAG, U8, U16, U32, VIEW_ID, Field, MalformedError, Reader, checked

MAGIC = b"bf"  # in front of each message: the port is shared with others


@dataclass(frozen=True, slots=True)
class BackfillConfig:
    chunk_bytes: int = 256 << 10  # of records in one message; a record that is larger goes alone
    chunks: int = 8  # messages that answer one request
    timeout_ns: int = 2 * SECOND  # for the next message, before another peer is asked

    def __post_init__(self) -> None:
        require_between("chunk_bytes", self.chunk_bytes, 1 << 10, 32 << 20)
        require_between("chunks", self.chunks, 1, 256)
        require_between("timeout_ns", self.timeout_ns, SECOND // 1000, 3600 * SECOND)


# Effects


@dataclass(frozen=True, slots=True)
class SendTo(Effect):
    """Reliable unicast on the control port."""

    peer: Address
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate(Effect):
    position: int


@dataclass(frozen=True, slots=True)
class AppendRaw(Effect):
    data: bytes


@dataclass(frozen=True, slots=True)
class BackfillDone(Effect):
    """The log is here up to `position`: enter the view, and go on from there."""

    position: int


@dataclass(frozen=True, slots=True)
class BackfillImpossible(Effect):
    """What is missing is nowhere: begin anew at `position`, with `chain`. The oldest that anybody has is `first`."""

    position: int
    chain: bytes
    first: int
    reason: str


# Messages


@unique
class BackfillKind(IntEnum):
    ASK = 1
    CHUNK = 2
    DIFFERS = 3  # your log is not mine
    TRIMMED = 4  # what you ask for is not here any more
    BEHIND = 5  # I do not have it yet


@dataclass(frozen=True, slots=True)
class Ask:
    number: int  # of the request; answers carry it
    position: int  # where the log of the asker ends
    view: ViewId
    extra: int
    chain: bytes
    upto: int
    chunk_bytes: int
    chunks: int
    wants_records: bool  # False: only tell me the chain at `upto`
    entered: ViewId  # where the asker is: who is not there yet may have a tail that it will take back


@dataclass(frozen=True, slots=True)
class Chunk:
    number: int
    index: int  # of this message in the answer
    is_last: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class BackfillRefusal:
    number: int
    first: int  # the oldest position here
    chain: bytes  # at the position that was asked for up to


ASK: Field[Ask] = checked(
    Ask,
    lambda a: (
        *(a.number, a.position, a.view, a.extra, a.chain, a.upto),
        *(a.chunk_bytes, a.chunks, a.wants_records, a.entered),
    ),
    *(COUNT, COUNT, VIEW_ID, U32, BYTES, COUNT, U32, U16, FLAG, VIEW_ID),
)
CHUNK: Field[Chunk] = checked(Chunk, lambda c: (c.number, c.index, c.is_last, c.data), COUNT, U16, FLAG, BYTES)
REFUSAL: Field[BackfillRefusal] = checked(BackfillRefusal, lambda r: (r.number, r.first, r.chain), COUNT, COUNT, BYTES)


_FIELDS: dict[BackfillKind, Field[Any]] = {
    BackfillKind.ASK: ASK,
    BackfillKind.CHUNK: CHUNK,
    BackfillKind.DIFFERS: REFUSAL,
    BackfillKind.TRIMMED: REFUSAL,
    BackfillKind.BEHIND: REFUSAL,
}


def _message(kind: BackfillKind, fields: bytes) -> bytes:
    return MAGIC + U8.write(kind) + fields


def _parse(data: bytes) -> tuple[BackfillKind, Ask | Chunk | BackfillRefusal] | None:
    """None for bytes that are no message of ours."""
    if data[:2] != MAGIC:
        return None
    reader = Reader(data[2:])
    try:
        kind = BackfillKind(U8.read(reader))
        return kind, _FIELDS[kind].read(reader)
    except (MalformedError, ValueError):
        return None


# The side that gives


class Source(Protocol):
    """What is asked of a journal."""

    @property
    def first(self) -> int: ...

    @property
    def position(self) -> int: ...

    def chain_at(self, position: int) -> bytes | None: ...

    def read_raw(self, first: int, most_bytes: int, *, last: int | None, view: ViewId, extra: int) -> bytes: ...


def is_ask(data: bytes) -> bool:
    return data[:3] == MAGIC + U8.write(BackfillKind.ASK)


MOST_ANSWER_BYTES = 16 << 20  # whatever the asker would like


def answer(log: Source, data: bytes, view: ViewId = NO_VIEW) -> list[bytes]:
    """What to send back to whoever asked; nothing for nonsense. `view` is the one that this member is in.

    A member that still fetches itself gives what it has: it may be the only one to have that.
    """
    parsed = _parse(data)
    if parsed is None or not isinstance(parsed[1], Ask):
        return []
    ask = parsed[1]
    refusal = REFUSAL.write(BackfillRefusal(ask.number, log.first, log.chain_at(ask.upto) or b""))
    upto = min(ask.upto, log.position)
    is_behind = ask.position > upto or (ask.position == upto < ask.upto)
    if ask.entered != view or is_behind or (upto < ask.upto and not ask.wants_records):
        return [_message(BackfillKind.BEHIND, refusal)]
    if ask.position < log.first - 1 or not ask.wants_records:
        return [_message(BackfillKind.TRIMMED, refusal)]
    if log.chain_at(ask.position) != ask.chain:
        return [_message(BackfillKind.DIFFERS, refusal)]
    try:
        return _chunks(log, replace(ask, upto=upto))
    except JournalTrimmedError:
        return [_message(BackfillKind.TRIMMED, refusal)]
    except JournalDivergedError:
        return [_message(BackfillKind.DIFFERS, refusal)]


def _chunks(log: Source, ask: Ask) -> list[bytes]:
    chunks_data: list[bytes] = []
    cursor, size = Cursor(ask.position, ask.view, ask.extra), 0
    while len(chunks_data) < max(1, ask.chunks) and size < MOST_ANSWER_BYTES:
        most = min(ask.chunk_bytes, MOST_ANSWER_BYTES)
        data = log.read_raw(cursor.position + 1, most, last=ask.upto, view=cursor.view, extra=cursor.extra)
        if not data:
            break
        chunks_data.append(data)
        size += len(data)
        cursor = end_of(cursor, data)
    if ask.position == ask.upto:
        chunks_data = [b""]  # the chain was compared, and that is all
    if not chunks_data:
        raise JournalDivergedError(f"nothing follows position {ask.position} here, and the log goes on to {ask.upto}")
    last = len(chunks_data) - 1
    chunks = (Chunk(ask.number, at, at == last, chunk_data) for at, chunk_data in enumerate(chunks_data))
    return [_message(BackfillKind.CHUNK, CHUNK.write(chunk)) for chunk in chunks]


# The side that asks


class Backfill:
    def __init__(
        self,
        end: JournalEnd,
        upto: int,
        peers: Sequence[Address],
        config: BackfillConfig | None = None,
        *,
        view: ViewId = NO_VIEW,
        asked: int = 0,
        wants_records: bool = True,
    ) -> None:
        """`end` is where our journal ends, `upto` the position that we came in at, `peers` those who were there.

        `view` is the one that we are in, `asked` the number of an earlier request whose answers may still come.
        Without `wants_records` nothing is fetched: the end is `BackfillImpossible`, which tells how to begin anew.
        """
        self._end = end
        self._upto = upto
        self._peers = list(peers)
        self._view = view
        self._config = config or BackfillConfig()
        self._wants_records = wants_records
        self.asked = asked
        self._next_index = 0
        self._is_last = False  # the message that is being appended ends its answer
        self._performing: AppendRaw | Truncate | None = None  # what the driver has not reported on yet
        self._refusals: dict[Address, BackfillRefusal] = {}  # of those who keep less than we lack
        self._deadline: int | None = None
        self.is_over = False

    def start(self, now: int) -> list[Effect]:
        if self._end.cursor.position > self._upto:
            return self._roll_back(b"", "the log of the group is shorter than what is stable here")
        return self._ask(now)  # also when nothing is missing: what we have may not be what the group agreed on

    # What the driver reports

    def performed(self, end: JournalEnd, now: int) -> list[Effect]:
        """The last effect was performed; our log ends so now."""
        performed, self._performing, self._end = self._performing, None, end
        if self.is_over:
            return []
        if isinstance(performed, AppendRaw) and end.cursor.position >= self._upto:
            return self._done()
        if isinstance(performed, AppendRaw) and not self._is_last:
            self._deadline = now + self._config.timeout_ns
            return []
        return self._ask(now)

    def refused(self, now: int) -> list[Effect]:
        """The records did not continue our log: whoever sent them is not asked again before the others."""
        self._performing = None
        return self._ask_later(now)

    def set_peers(self, peers: Sequence[Address], now: int, view: ViewId = NO_VIEW) -> list[Effect]:
        """A view was installed: these can be asked."""
        self._view = view
        current = self._peers[0] if self._peers else None
        kept = [peer for peer in self._peers if peer in peers]
        self._peers = kept + [peer for peer in peers if peer not in kept]
        self._refusals = {peer: refusal for peer, refusal in self._refusals.items() if peer in peers}
        if self.is_over or self._performing is not None or (self._peers and self._peers[0] == current):
            return []
        return self._ask(now)

    # What the peer says

    def receive(self, source: Address, data: bytes, now: int) -> list[Effect]:
        parsed = _parse(data)
        if parsed is None or self.is_over or not self._peers or source != self._peers[0]:
            return []
        kind, message = parsed
        if isinstance(message, Ask) or message.number != self.asked:
            return []
        if isinstance(message, Chunk):
            return self._on_chunk(message)
        match kind:
            case BackfillKind.DIFFERS:
                return self._roll_back(message.chain, "what is stable here is not what the group agreed on")
            case BackfillKind.TRIMMED:
                return self._on_trimmed(source, message, now)
        return self._ask_later(now)

    def _on_chunk(self, chunk: Chunk) -> list[Effect]:
        if chunk.index != self._next_index:
            return []
        self._next_index += 1
        self._is_last = chunk.is_last
        if self._end.cursor.position >= self._upto:
            return self._done()  # the peer found nothing to add, and nothing that differs
        return self._perform(AppendRaw(chunk.data))

    def _on_trimmed(self, source: Address, refusal: BackfillRefusal, now: int) -> list[Effect]:
        self._refusals[source] = refusal
        if any(peer not in self._refusals for peer in self._peers):
            return self._next_peer(now)
        if not refusal.chain:
            return self._ask_later(now)  # it cannot even say how to begin anew
        first = min(one.first for one in self._refusals.values())
        return self._impossible(refusal.chain, first, "nobody keeps what is missing")

    def _roll_back(self, chain: bytes, reason: str) -> list[Effect]:
        """Our tail is not the group's. What is stable must be."""
        if self._end.cursor.position <= self._end.stable or self._end.stable > self._upto:
            return self._impossible(chain, 0, reason)
        return self._perform(Truncate(self._end.stable))

    def _perform(self, effect: AppendRaw | Truncate) -> list[Effect]:
        self._performing, self._deadline = effect, None
        return [effect]

    # Time

    def tick(self, now: int) -> list[Effect]:
        if self._deadline is None or now < self._deadline:
            return []
        return self._next_peer(now)

    def next_deadline(self) -> int | None:
        return self._deadline

    # Asking

    def _ask_later(self, now: int) -> list[Effect]:
        """This peer cannot help now; another one is asked in a moment, not at once, lest two of them keep us busy."""
        self.asked += 1  # whatever still comes is void
        self._deadline = now + self._config.timeout_ns // 8
        return []

    def _next_peer(self, now: int) -> list[Effect]:
        self._peers = self._peers[1:] + self._peers[:1]
        return self._ask(now)

    def _ask(self, now: int) -> list[Effect]:
        self.asked += 1
        self._next_index, self._is_last = 0, False
        if not self._peers:
            self._deadline = None  # until there are some
            return []
        self._deadline = now + self._config.timeout_ns
        cursor, config = self._end.cursor, self._config
        ask = Ask(
            self.asked,
            *cursor,
            self._end.chain,
            self._upto,
            config.chunk_bytes,
            config.chunks,
            self._wants_records,
            self._view,
        )
        return [SendTo(self._peers[0], _message(BackfillKind.ASK, ASK.write(ask)))]

    def _done(self) -> list[Effect]:
        self.is_over, self._deadline = True, None
        return [BackfillDone(self._end.cursor.position)]

    def _impossible(self, chain: bytes, first: int, reason: str) -> list[Effect]:
        self.is_over, self._deadline = True, None
        return [BackfillImpossible(self._upto, chain, first, reason)]
