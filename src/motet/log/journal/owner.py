"""The small file beside the segments: the owner of the journal, and the primary views that it knows of.

It is replaced by renaming, so it is always the complete old or new one. It is separate from the log because a rollback
of the log must not change it: an attempted primary view must never be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from motet.errors import JournalCorruptError
from motet.log.journal.disk import Disk
from motet.log.journal.records import FILE_HEADER, MAGIC, READABLE, START_OF_CHAIN, VERSION, RecordKind, record_bytes
from motet.log.journal.scan import FIRST_RECORD_AT, Scan
from motet.protocol.core.identity import Address
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.wire.fields import (
    ADDRESS,
    COUNT,
    FLAG,
    U64,
    VIEW,
    Field,
    MalformedError,
    Reader,
    checked,
    listed,
    optional,
)

NAME = "member"
MOST_INCARNATIONS = 256  # incarnations of one process that are recorded

PRIMARY_RECORD: Field[PrimaryRecord] = checked(
    PrimaryRecord, lambda r: (r.last, r.attempts), optional(VIEW), listed(VIEW)
)


@dataclass(frozen=True, slots=True)
class Owner:
    address: Address | None = None  # of the process that writes the journal, or wrote it last
    past_incarnations: tuple[int, ...] = ()  # that owned the journal before, oldest first
    record: PrimaryRecord = field(default_factory=PrimaryRecord)
    stable: int = 0  # recorded before a rollback; otherwise the log itself is more recent
    may_bootstrap: bool = True  # once False, False for ever: this durable state may have begun after a loss

    def taken_over(self, address: Address, *, may_bootstrap: bool = True) -> Owner:
        before = () if self.address is None or self.address == address else (self.address.incarnation,)
        past_incarnations = tuple(one for one in (*self.past_incarnations, *before) if one != address.incarnation)
        return replace(
            self,
            address=address,
            past_incarnations=past_incarnations[-MOST_INCARNATIONS:],
            may_bootstrap=self.may_bootstrap and may_bootstrap,
        )

    def flaw_of(self, writer: Address | None) -> str | None:
        """Why a segment of `writer` does not belong to this journal; None if it does. Incarnations that are no longer
        recorded are recognised by their name."""
        if (
            writer is None
            or self.address is None
            or writer.incarnation in (*self.past_incarnations, self.address.incarnation)
        ):
            return None
        if len(self.past_incarnations) >= MOST_INCARNATIONS and writer.name == self.address.name:
            return None
        return f"it was written by {in_full(writer)}, and this is the journal of {in_full(self.address)}"


def in_full(member: Address) -> str:
    """The member as senders are written in the log."""
    return f"{member.name}#{member.incarnation:016x}"


OWNER: Field[Owner] = checked(
    Owner,
    lambda o: (o.address, o.past_incarnations, o.record, o.stable, o.may_bootstrap),
    *(optional(ADDRESS), listed(U64), PRIMARY_RECORD, COUNT, FLAG),
)


POISONED = (
    "The checksum is right, so this was written on purpose: a version without bounds recorded a forged frame of the "
    "network. The segments of the log are not affected. Move the whole directory away and join again, so that the "
    "member fetches the log from the others; give the group a key, so that nobody can forge frames"
)
_HEADERS = tuple(FILE_HEADER.pack(MAGIC, version, 0) for version in READABLE)


def save(owner: Owner, directory: Path, disk: Disk, *, is_synced: bool) -> None:
    data = record_bytes(RecordKind.MEMBER, OWNER.write(owner), 0, 0, START_OF_CHAIN, 1)
    fresh = directory / f"{NAME}.new"
    file = disk.open(fresh, is_new=True)
    try:
        file.write([FILE_HEADER.pack(MAGIC, VERSION, 0) + data])
        if is_synced:
            file.sync()
    finally:
        file.close()
    disk.rename(fresh, directory / NAME)
    if is_synced:
        disk.sync_directory(directory)


def load(directory: Path, disk: Disk) -> Owner:
    if NAME not in disk.names(directory):
        return Owner()
    file = disk.open_to_read(directory / NAME)
    try:
        scan = Scan(file, FIRST_RECORD_AT)
        found = next(iter(scan), None)
        header = file.read(0, FILE_HEADER.size)
    finally:
        file.close()
    if found is None or found.head.kind != RecordKind.MEMBER or header not in _HEADERS:
        raise JournalCorruptError(NAME, 0, 0, scan.flaw or "it does not name the owner of the journal")
    try:
        return OWNER.read(Reader(bytes(found.body)))
    except MalformedError as error:
        raise JournalCorruptError(NAME, 0, 0, f"{error}. {POISONED}") from None
