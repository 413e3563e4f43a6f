"""Journals taken apart, changed and sealed again: every checksum and the chained hash are right, only the story is not.

This is the worst that can be done to a journal, so it is what the audit must find. Damage without sealing is easier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from motet.log.journal.disk import RealDisk
from motet.log.journal.reader import JournalReader
from motet.log.journal.records import (
    FILE_HEADER,
    MAGIC,
    STATE,
    VERSION,
    Entry,
    HashChain,
    Head,
    RecordKind,
    head_of,
    padding,
    record_bytes,
    shared_of_frame,
)
from motet.log.journal.scan import FIRST_RECORD_AT, Scan
from motet.log.journal.segments import name_of
from motet.protocol.core.identity import Address
from motet.protocol.core.view import ViewId
from motet.protocol.wire.body import pack, split
from motet.protocol.wire.fields import Reader


@dataclass(slots=True)
class Record:
    head: Head
    body: bytes

    @property
    def is_frame(self) -> bool:
        return self.head.kind == RecordKind.FRAME

    @property
    def messages(self) -> list[bytes]:
        return list(split(self.body))

    @messages.setter
    def messages(self, messages: list[bytes]) -> None:
        self.body = pack(messages)
        self.head = self.head._replace(messages=len(messages))


class Forgery:
    """The records of a journal, segment by segment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments = [_records(path) for path in sorted(directory.glob("*.seg"))]

    def frames(self) -> Iterator[tuple[list[Record], int]]:
        """Where each frame stands: its segment, and its place in it."""
        for segment in self.segments:
            yield from ((segment, place) for place, record in enumerate(segment) if record.is_frame)

    def frame_of(self, position: int) -> tuple[list[Record], int]:
        for segment, place in self.frames():
            head = segment[place].head
            if head.position <= position < head.position + head.messages:
                return segment, place
        raise LookupError(position)

    def edit(self, position: int, change: Callable[[list[bytes], int], None]) -> None:
        """Let `change` work on the messages of the frame that has a position; it also gets the place in the list."""
        segment, place = self.frame_of(position)
        messages = segment[place].messages
        change(messages, position - segment[place].head.position)
        segment[place].messages = messages

    def renumber(self) -> None:
        """Positions follow on from each other again, whatever was taken out or put in."""
        position = self.segments[0][0].head.position
        for segment in self.segments:
            for record in segment:
                record.head = record.head._replace(position=position)
                position += record.head.messages if record.is_frame else 0

    def seal(self) -> None:
        for path in self.directory.glob("*.seg"):
            path.unlink()
        address = STATE.read(Reader(self.segments[0][0].body)).address
        chain = self.segments[0][0].head.chain
        for segment in self.segments:
            address, chain = self._write(segment, address, chain)

    def _write(self, segment: list[Record], address: int, start: bytes) -> tuple[int, bytes]:
        opening = segment[0]
        opening.body = STATE.write(replace(STATE.read(Reader(opening.body)), address=address))
        chain = HashChain(start)
        data = [FILE_HEADER.pack(MAGIC, VERSION, 0)]
        for record in segment:
            data.append(_sealed(record, chain))
        whole = b"".join(data)
        (self.directory / name_of(opening.head.position)).write_bytes(whole)
        return address + len(whole), chain.value


def _records(path: Path) -> list[Record]:
    file = RealDisk().open_to_read(path)
    try:
        return [Record(found.head, bytes(found.body)) for found in Scan(file, FIRST_RECORD_AT)]
    finally:
        file.close()


def _sealed(record: Record, chain: HashChain) -> bytes:
    head = record.head
    if not record.is_frame:
        return record_bytes(RecordKind(head.kind), record.body, head.synced, head.at, chain.value, head.position)
    sender = Address("forged", "", 0, head.sender)
    view = ViewId(head.view_number, head.view_creator)
    times = (head.seqno, head.sent_at, head.at)
    entry = Entry(head.position, head.messages, sender, *times, view, None, record.body)
    shared = shared_of_frame(entry)
    value = chain.take(head.sender, head.messages, shared)
    body = head_of(RecordKind.FRAME, len(record.body), head.synced, head.at, value, shared)
    return b"".join((body, record.body, padding(len(record.body))))


def owner_of(directory: Path) -> int:
    """The incarnation of the member that writes the journal."""
    owner = JournalReader(directory).owner
    assert owner is not None
    return owner.incarnation


# What a forger does


def exchange(directory: Path, position: int) -> None:
    """Two neighbours of one frame change places."""

    def change(messages: list[bytes], at: int) -> None:
        messages[at], messages[at + 1] = messages[at + 1], messages[at]

    _edited(directory, position, change)


def double(directory: Path, position: int) -> None:
    _edited(directory, position, lambda messages, at: messages.insert(at, messages[at]))


def drop(directory: Path, position: int) -> None:
    def change(messages: list[bytes], at: int) -> None:
        del messages[at]

    _edited(directory, position, change)


def change_byte(directory: Path, position: int) -> None:
    def change(messages: list[bytes], at: int) -> None:
        messages[at] = messages[at][:-1] + bytes([messages[at][-1] ^ 1])

    _edited(directory, position, change)


def insert(directory: Path, position: int, message: bytes) -> None:
    """A message that nobody sent, in a frame of someone who did send."""
    _edited(directory, position, lambda messages, at: messages.insert(at, message))


def _edited(directory: Path, position: int, change: Callable[[list[bytes], int], None]) -> None:
    forgery = Forgery(directory)
    forgery.edit(position, change)
    forgery.renumber()
    forgery.seal()


def take_out(directory: Path, position: int) -> tuple[int, int]:
    """A whole frame goes, and leaves its positions empty: (first, last) of them."""
    forgery = Forgery(directory)
    segment, place = forgery.frame_of(position)
    head = segment.pop(place).head
    forgery.seal()
    return head.position, head.last


def break_fifo(directory: Path, position: int) -> int:
    """A frame and the next one of its sender in the view change places; the position where the earlier one is now."""
    forgery = Forgery(directory)
    segment, place = forgery.frame_of(position)
    head = segment[place].head
    other = next(
        at
        for at in range(place + 1, len(segment))
        if segment[at].is_frame and (segment[at].head.sender, segment[at].head.view) == (head.sender, head.view)
    )
    segment[place], segment[other] = segment[other], segment[place]
    forgery.renumber()
    forgery.seal()
    return segment[other].head.position


def cut_tail(directory: Path, last: int) -> None:
    """Everything behind `last` is gone, marks of stability included, as if it had never been."""
    forgery = Forgery(directory)
    for segment in forgery.segments:
        segment[1:] = [record for record in segment[1:] if record.head.position + record.head.messages - 1 <= last]
    forgery.segments = [s for s in forgery.segments if s[0].head.position <= last]
    last_frame = [segment[place] for segment, place in forgery.frames()][-1]
    assert last_frame.head.last == last, "cut between frames"
    forgery.seal()


def swap_segments(one: Path, other: Path, index: int) -> None:
    """The segment files number `index` of two journals change places, under the names that belong there."""
    first, second = sorted(one.glob("*.seg"))[index], sorted(other.glob("*.seg"))[index]
    mine, theirs = first.read_bytes(), second.read_bytes()
    first.write_bytes(theirs)
    second.write_bytes(mine)
