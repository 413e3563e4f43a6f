"""Records as bytes for a peer: what a returning member misses is copied, and the chained hash verifies it.

Only frames and view changes are copied, not what a member records for itself. A `Cursor` says where a copy continues,
and means the same at every member that has that part of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from motet.errors import JournalDivergedError, JournalTrimmedError
from motet.log.journal.records import VIEW_FIELDS, Entry, HashChain, RecordKind, ViewRecord, record_bytes
from motet.log.journal.scan import Scan, ScannedRecord
from motet.log.journal.segments import Segment
from motet.log.journal.state import LogState
from motet.log.journal.store import Store
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_VIEW, View, ViewId
from motet.protocol.wire.fields import MalformedError, Reader


class Cursor(NamedTuple):
    """The end of a log: its last position, its view, and how many frames follow in which no message ends yet."""

    position: int
    view: ViewId
    extra: int


class JournalEnd(NamedTuple):
    cursor: Cursor
    chain: bytes
    stable: int


def chain_at(store: Store, position: int) -> bytes | None:
    segment = store.segments[store.segment_of(position)]
    if position == segment.base:
        return segment.opening.head.chain
    place = store.frame_of(position)
    return place[2].chain if place is not None and place[2].last == position else None


# Reading for a peer


def read(store: Store, cursor: Cursor, most_bytes: int, last: int) -> bytes:
    """The records after `cursor`, preceded by the view in force there if the peer has not entered it."""
    at, offset, view = _place_of(store, cursor.position)
    records: list[bytes] = []
    if view > cursor.view:
        records.append(_view_in_force(store, store.segments[at], offset))
        cursor = cursor._replace(view=view, extra=0)
    size = 0
    for found in _lacking(store, at, offset, view, cursor):
        is_beyond = found.head.last > last or (found.head.kind == RecordKind.FRAME and found.head.position > last)
        if is_beyond or (size and size + len(found.raw) > most_bytes):
            break
        records.append(bytes(found.raw))
        size += len(found.raw)
    return b"".join(records) if size else b""


def end_of(cursor: Cursor, data: bytes) -> Cursor:
    """The end of a log that ended at `cursor`, after it has appended `data`."""
    position, view, extra = cursor
    for found in Scan(_BytesFile(data), 0, heads_only=True):
        if found.head.kind == RecordKind.VIEW:
            entered = _view_of(found).view.id
            extra = extra if entered <= view else 0
            view = max(view, entered)
        else:
            extra = 0 if found.head.messages else extra + 1
            position = found.head.last
    return Cursor(position, view, extra)


def _place_of(store: Store, position: int) -> tuple[int, int, ViewId]:
    """Segment and offset behind the frame in which `position` ends, and the view that it was delivered in."""
    first = store.segments[0]
    if position < first.base:
        raise JournalTrimmedError(
            f"position {position + 1} was requested, and this log begins at {first.base + 1}: retention deleted "
            "the rest"
        )
    if position == first.base:
        view = first.opening.state.view
        return 0, first.opening.end, view.id if view is not None else NO_VIEW
    place = store.frame_of(position)
    if place is None or place[2].last != position:
        raise JournalDivergedError(f"no frame ends at position {position} here, so this is not the same log")
    return store.segment_of(position), place[1] + place[2].size, place[2].view


def _lacking(store: Store, at: int, offset: int, view: ViewId, cursor: Cursor) -> Iterator[ScannedRecord]:
    """What the peer does not have: it may know of later views at the same position, and of frames that end nothing."""
    extra = cursor.extra
    for found in _shared_records(store, at, offset):
        if found.head.kind == RecordKind.VIEW:
            view = VIEW_FIELDS.read(Reader(bytes(found.body)))[0].id
            if view > cursor.view:
                yield found
        elif view == cursor.view and extra:
            extra -= 1
        elif view >= cursor.view:
            yield found


def _shared_records(store: Store, at: int, offset: int) -> Iterator[ScannedRecord]:
    for number, segment in enumerate(store.segments[at:]):
        with store.reading(segment) as file:
            for found in Scan(file, offset if number == 0 else segment.opening.end):
                if found.head.kind in (RecordKind.FRAME, RecordKind.VIEW):
                    yield found


def _view_in_force(store: Store, segment: Segment, offset: int) -> bytes:
    """As a record of its own, made from what the segment says up to `offset`."""
    state = LogState.begin(segment.opening.state, segment.opening.head)
    with store.reading(segment) as file:
        for found in Scan(file, segment.opening.end, heads_only=True):
            if found.offset >= offset:
                break
            state.flaw(found.head, found.shared, found.body)
    if state.view is None:
        return b""
    body = VIEW_FIELDS.write((state.view, state.epoch, tuple(state.producers.items())))
    return record_bytes(RecordKind.VIEW, body, 0, state.last_at, state.chain.value, state.position + 1)


# Appending from a peer


@dataclass(slots=True)
class Copied:
    """A run of frames that continues the log, and then perhaps a view."""

    entries: list[Entry]
    view: ViewRecord | None


def parse(data: bytes, position: int, chain: HashChain, view: View | None) -> Iterator[Copied]:
    """Parse what `read` of a peer returned, into runs that may be appended in turn to a log that ends at `position`."""
    trial, names = chain.copy(), _names(view)
    known = view.id if view is not None else NO_VIEW
    run: list[Entry] = []
    scan = Scan(_BytesFile(data), 0)
    for found in scan:
        if found.head.position != position + 1:
            raise _diverged(position, f"position {found.head.position} follows")
        if found.head.kind == RecordKind.VIEW:
            entered = _view_of(found)
            if entered.view.id > known:
                yield Copied(run, entered)
                run, names, known = [], _names(entered.view), entered.view.id
                trial.begun.clear()
        else:
            run.append(_entry_of(found, names, trial, position))
            position += found.head.messages
    if scan.flaw is not None:
        raise _diverged(position, scan.flaw)
    yield Copied(run, None)


def entries_of(data: bytes, names: dict[int, Address]) -> Iterator[Entry]:
    """The frames of what `read` of our own journal gave. `names` has the senders so far, and learns new ones."""
    for found in Scan(_BytesFile(data), 0):
        if found.head.kind == RecordKind.VIEW:
            names.update(_names(_view_of(found).view))
        elif found.head.sender in names:
            yield _entry(found, names[found.head.sender])


def _entry_of(found: ScannedRecord, names: dict[int, Address], chain: HashChain, position: int) -> Entry:
    head = found.head
    if head.sender not in names:
        raise _diverged(position, f"sender {head.sender:016x} is not in the view")
    if chain.take(head.sender, head.messages, found.shared) != head.chain:
        raise _diverged(position, "the chained hash does not continue")
    return _entry(found, names[head.sender])


def _entry(found: ScannedRecord, sender: Address) -> Entry:
    head = found.head
    tag = (head.producer, head.sequence) if head.is_tagged else None
    where = (head.seqno, head.sent_at, head.at, head.view, tag)
    return Entry(head.position, head.messages, sender, *where, bytes(found.body))


def _view_of(found: ScannedRecord) -> ViewRecord:
    try:
        view, epoch, producers = VIEW_FIELDS.read(Reader(bytes(found.body)))
    except MalformedError as error:
        raise _diverged(found.head.position - 1, f"a view that cannot be read: {error}") from None
    return ViewRecord(view, epoch, found.head.position - 1, found.head.at, producers)


def _names(view: View | None) -> dict[int, Address]:
    return {member.incarnation: member for member in view.members} if view is not None else {}


def _diverged(position: int, reason: str) -> JournalDivergedError:
    return JournalDivergedError(
        f"records from a peer do not continue the log behind position {position}: {reason}; nothing of them was taken"
    )


class _BytesFile:
    """Bytes with the interface of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, count: int) -> bytes:
        return self._data[offset : offset + count]

    def size(self) -> int:
        return len(self._data)
