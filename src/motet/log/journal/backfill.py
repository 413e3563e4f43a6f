"""Backfill: a member that joins at some position, with a journal that ends before it, fetches the gap from peers.

    start                  -> ask a peer for what follows the end of our log, which position and chained hash identify
    records arrive         -> append them, which checks that they continue our chain; request the rest
    DIFFERS (other log)    -> roll back to the stable position, ask again; if that differs, too, fail
    TRIMMED (begins later) -> another peer may have more; if none does, the log has to restart after the gap
    the peer is silent     -> ask the next one, from the position reached
    the gap is filled      -> done; a log that is as long as the group's is compared, too, because it may differ

One request is in flight at a time; its answer is a few messages of records, so the memory of a slow member is
bounded. Both sides only see bytes. The driver performs the effects in order, and after each `AppendRaw` and `Truncate`
reports where the log ends now (`performed`), or that the records do not continue it (`refused`).
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

MAGIC = b"bf"  # prefix of each message, because the port is shared


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
    """The log is complete up to `position`: enter the view and continue from there."""

    position: int


@dataclass(frozen=True, slots=True)
class BackfillImpossible(Effect):
    """No peer has the gap: restart the log at `position`, with `chain`. `first` is the oldest position of any peer."""

    position: int
    chain: bytes
    first: int
    reason: str


# Messages


@unique
class BackfillKind(IntEnum):
    ASK = 1
    CHUNK = 2
    DIFFERS = 3  # the log of the asker differs from ours
    TRIMMED = 4  # retention has deleted the requested positions
    BEHIND = 5  # the requested positions are not here yet


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
    wants_records: bool  # False: only the chain at `upto` is wanted
    entered: ViewId  # the asker's view; a peer that has not entered it may still roll back its tail


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
    """Parse a message; None if it is not one of backfill."""
    if data[:2] != MAGIC:
        return None
    reader = Reader(data[2:])
    try:
        kind = BackfillKind(U8.read(reader))
        return kind, _FIELDS[kind].read(reader)
    except (MalformedError, ValueError):
        return None


# The answering side


class Source(Protocol):
    """The part of a journal that answers need."""

    @property
    def first(self) -> int: ...

    @property
    def position(self) -> int: ...

    def chain_at(self, position: int) -> bytes | None: ...

    def read_raw(self, first: int, most_bytes: int, *, last: int | None, view: ViewId, extra: int) -> bytes: ...


def is_ask(data: bytes) -> bool:
    return data[:3] == MAGIC + U8.write(BackfillKind.ASK)


MOST_ANSWER_BYTES = 16 << 20  # regardless of what the asker requests


def answer(log: Source, data: bytes, view: ViewId = NO_VIEW) -> list[bytes]:
    """The replies to a request; none to an invalid one. `view` is the view of this member.

    A member that is still fetching answers, too: it may be the only one that has those records.
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
        chunks_data = [b""]  # only the chain was to be compared
    if not chunks_data:
        raise JournalDivergedError(f"nothing follows position {ask.position} here, and the log goes on to {ask.upto}")
    last = len(chunks_data) - 1
    chunks = (Chunk(ask.number, at, at == last, chunk_data) for at, chunk_data in enumerate(chunks_data))
    return [_message(BackfillKind.CHUNK, CHUNK.write(chunk)) for chunk in chunks]


# The asking side


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
        self._is_last = False  # the message that is being appended is the last of its answer
        self._performing: AppendRaw | Truncate | None = None  # what the driver has not reported on yet
        self._refusals: dict[Address, BackfillRefusal] = {}  # of peers whose logs begin inside our gap
        self._deadline: int | None = None
        self.is_over = False

    def start(self, now: int) -> list[Effect]:
        if self._end.cursor.position > self._upto:
            return self._roll_back(b"", "the log of the group is shorter than what is stable here")
        return self._ask(now)  # even without a gap, because our tail may differ from what the group agreed on

    # Reports of the driver

    def performed(self, end: JournalEnd, now: int) -> list[Effect]:
        """The last effect was performed; `end` is the new end of our log."""
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
        """The records did not continue our log: ask the other peers before this one."""
        self._performing = None
        return self._ask_later(now)

    def set_peers(self, peers: Sequence[Address], now: int, view: ViewId = NO_VIEW) -> list[Effect]:
        """A view was installed: these peers can be asked."""
        self._view = view
        current = self._peers[0] if self._peers else None
        kept = [peer for peer in self._peers if peer in peers]
        self._peers = kept + [peer for peer in peers if peer not in kept]
        self._refusals = {peer: refusal for peer, refusal in self._refusals.items() if peer in peers}
        if self.is_over or self._performing is not None or (self._peers and self._peers[0] == current):
            return []
        return self._ask(now)

    # Messages of the peer

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
            return self._done()  # the peer compared the logs and found no difference
        return self._perform(AppendRaw(chunk.data))

    def _on_trimmed(self, source: Address, refusal: BackfillRefusal, now: int) -> list[Effect]:
        self._refusals[source] = refusal
        if any(peer not in self._refusals for peer in self._peers):
            return self._next_peer(now)
        if not refusal.chain:
            return self._ask_later(
                now
            )  # the chain at our target position is unknown here, and a restarted log needs it
        first = min(one.first for one in self._refusals.values())
        return self._impossible(refusal.chain, first, "no peer has the missing positions")

    def _roll_back(self, chain: bytes, reason: str) -> list[Effect]:
        """Roll back our tail, which differs from the group's. The stable part must be the same everywhere."""
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
        """Ask another peer after a pause: two peers that refuse in turn would otherwise keep us in a busy loop."""
        self.asked += 1  # invalidates answers that are still in flight
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
