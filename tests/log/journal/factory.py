"""Entries and journals for tests: small, and the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from motet.log.journal import Entry, Fsync, Journal, JournalConfig
from motet.log.journal.disk import Disk
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View, ViewId
from motet.protocol.wire.body import Port, fragment, pack

GROUP = "orders"
A = Address("alice", "127.0.0.1", 7800, 0xA << 60 | 1)
B = Address("bob", "127.0.0.1", 7801, 0xB << 60 | 2)
C = Address("carol", "127.0.0.1", 7802, 0xC << 60 | 3)
ALWAYS = JournalConfig(fsync=Fsync.ALWAYS)
NEVER = JournalConfig(fsync=Fsync.NEVER)


def view_of(number: int, *members: Address) -> View:
    members = members or (A, B)
    return View(ViewId(number, members[0].incarnation), members, is_primary=True)


V1 = view_of(1)


class Scribe:
    """Makes entries that follow one another, the way a member delivers them."""

    def __init__(self, position: int = 0, view: View = V1) -> None:
        self.position = position
        self.view = view
        self._seqnos: dict[Address, int] = {}

    def enter(self, journal: Journal, view: View) -> None:
        self.view = view
        self._seqnos = {}
        journal.enter_view(view, view.id, self.position, journal.producers, at=self._clock())

    def packed(
        self, *messages: bytes, sender: Address = A, port: int = Port.APP, tag: tuple[int, int] | None = None
    ) -> Entry:
        return self._entry(sender, len(messages), pack(messages, port), tag)

    def fragments(self, message: bytes, chunk_bytes: int, sender: Address = A, port: int = Port.APP) -> list[Entry]:
        starts = range(0, len(message), chunk_bytes)
        return [self.fragment(message, start, chunk_bytes, sender, port) for start in starts]

    def fragment(
        self, message: bytes, start: int, chunk_bytes: int, sender: Address = A, port: int = Port.APP
    ) -> Entry:
        is_last = start + chunk_bytes >= len(message)
        return self._entry(sender, int(is_last), fragment(message, start, chunk_bytes, port))

    def many(self, count: int, per_frame: int = 3, size: int = 20) -> list[Entry]:
        """`count` messages, with their positions as text, from all members of the view in turn."""
        entries: list[Entry] = []
        end = self.position + count
        while self.position < end:
            rows = range(self.position + 1, min(self.position + per_frame, end) + 1)
            sender = self.view.members[len(entries) % len(self.view.members)]
            entries.append(self.packed(*(text_of(row, size) for row in rows), sender=sender))
        return entries

    def _entry(self, sender: Address, count: int, body: bytes, tag: tuple[int, int] | None = None) -> Entry:
        self._seqnos[sender] = seqno = self._seqnos.get(sender, 0) + 1
        at = self._clock()
        entry = Entry(self.position + 1, count, sender, seqno, at, at + 5_000_000, self.view.id, tag, body)
        self.position += count
        return entry

    def _clock(self) -> int:
        return 1_700_000_000_000_000_000 + self.position * 1_000_000


def text_of(row: int, size: int = 20) -> bytes:
    return (b"%08d" % row).ljust(size, b".")


def begun(
    directory: str | Path, config: JournalConfig = ALWAYS, disk: Disk | None = None, view: View = V1
) -> tuple[Journal, Scribe]:
    """A new journal in its first view, and one who writes into it."""
    journal = Journal.open(directory, GROUP, config, disk)
    journal.begin(A)
    scribe = Scribe(view=view)
    scribe.enter(journal, view)
    return journal, scribe


def append_all(journal: Journal, entries: Sequence[Entry], batch: int = 4) -> None:
    for start in range(0, len(entries), batch):
        journal.append(entries[start : start + batch])
