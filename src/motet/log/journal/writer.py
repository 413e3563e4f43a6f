"""The journal of one member: what it delivered in total order, on disk, in the layout of the wire.

The member's thread calls `append` and the like, another thread calls `sync`, so that waiting for the disk does not stop
the protocols. One lock guards the state in memory and is never held while `sync` waits. Another one serialises `sync`
with everything that moves or deletes files.

After a write or a sync has failed, the journal accepts nothing more (`is_failed`): the content of the file is unknown,
and a member must not continue to acknowledge. Opening the journal again recovers what is there.

Invariants: durable <= position; stable <= position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock, RLock

from motet.errors import JournalError, MisuseError
from motet.log.journal import owner as owners
from motet.log.journal import raw
from motet.log.journal.config import Fsync, JournalConfig
from motet.log.journal.disk import Buffer, Disk, RealDisk, as_journal_error
from motet.log.journal.records import (
    FRAME_HEAD_BYTES,
    VIEW_FIELDS,
    Entry,
    RecordKind,
    head_of,
    padding,
    record_bytes,
    shared_of_frame,
)
from motet.log.journal.recovery import Recovered, recover
from motet.log.journal.segments import Segment
from motet.log.journal.state import LogState
from motet.log.journal.store import Store
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_VIEW, View, ViewId
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.wire.fields import U64

LOCK = "lock"


class Journal:
    """Constructed by `Journal.open`."""

    def __init__(
        self, directory: Path, config: JournalConfig, disk: Disk, recovered: Recovered, owner: owners.Owner
    ) -> None:
        self.directory = directory
        self.config = config
        self.recovery = recovered.recovery
        self._disk = disk
        self._state = recovered.state
        self._owner = owner
        self._store = Store(directory, config, disk, recovered.segments, recovered.state, owner.address)
        self._durable = 0
        self._failure: JournalError | None = None
        self._release: Callable[[], None] = lambda: None
        self._is_closed = False
        self._state_lock = RLock()
        self._sync_lock = Lock()

    @classmethod
    def open(
        cls,
        directory: str | Path,
        group: str,
        config: JournalConfig | None = None,
        disk: Disk | None = None,
    ) -> Journal:
        """Lock and recover the journal, so that it can be appended to. `recovery` says what was truncated."""
        path, config, disk = Path(directory), config or JournalConfig(), disk or RealDisk()
        try:
            disk.make_directory(path)
            release = disk.lock(path / LOCK).release
        except OSError as error:
            raise as_journal_error(error, "opening the journal", path) from error
        try:
            owner = owners.load(path, disk)
            journal = cls(path, config, disk, recover(path, group, owner, disk, config.index_bytes), owner)
            journal.mark_stable(journal._owner.stable)  # an interrupted rollback has recorded it there
            journal.sync()
        except BaseException as error:
            release()
            if isinstance(error, OSError):
                raise as_journal_error(error, "opening the journal", path) from error
            raise
        journal._release = release
        return journal

    # Contents

    @property
    def group(self) -> str:
        return self._state.group

    @property
    def first(self) -> int:
        """The first position that can be read; one more than `position` when there is none."""
        return self._store.segments[0].base + 1

    @property
    def position(self) -> int:
        return self._state.position

    @property
    def durable(self) -> int:
        """The position that the last `sync` reported."""
        return self._durable

    @property
    def stable(self) -> int:
        return self._state.stable

    @property
    def epoch(self) -> ViewId:
        return self._state.epoch

    @property
    def view(self) -> View | None:
        """The last primary view that was entered."""
        return self._state.view

    @property
    def chain(self) -> bytes:
        """Over all messages up to `position`."""
        return self._state.chain.value

    @property
    def end(self) -> raw.JournalEnd:
        """Where records of a peer would have to go on."""
        state = self._state
        return raw.JournalEnd(raw.Cursor(state.position, state.view_id, state.extra), state.chain.value, state.stable)

    @property
    def producers(self) -> tuple[tuple[int, int], ...]:
        """Of tagged appends, the highest sequence of each producer; the least recently used first."""
        return tuple(self._state.producers.items())

    @property
    def record(self) -> PrimaryRecord:
        return self._owner.record

    @property
    def past_incarnations(self) -> tuple[int, ...]:
        """Incarnations that owned this journal before, oldest first."""
        return self._owner.past_incarnations

    @property
    def may_bootstrap(self) -> bool:
        """True unless an incarnation that owned this journal had lost the durable state of its group."""
        return self._owner.may_bootstrap

    @property
    def owner(self) -> Address | None:
        return self._owner.address

    @property
    def is_failed(self) -> bool:
        return self._failure is not None

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._store.segments)

    # Owner

    def begin(self, local: Address, *, may_bootstrap: bool = True) -> None:
        """Record a new incarnation as the owner. It is on disk when this returns.

        `may_bootstrap`: whether its durable state counts when a group bootstraps. Once False, it stays False for all
        later incarnations.
        """
        with self._sync_lock, self._writing("begin"):
            self._save(self._known_owner().taken_over(local, may_bootstrap=may_bootstrap))
            self._store.owner = local
            if self._store.is_unused(self._state) and self._store.last.opening.state.owner is None:
                self._store.restart(self._state)  # so that the first segment says whose it is, too

    def _known_owner(self) -> owners.Owner:
        """The owner; if its file was lost, the writers of the segments."""
        if self._owner.address is not None:
            return self._owner
        writers = [segment.opening.state.owner for segment in self._store.segments]
        past_incarnations = dict.fromkeys(writer.incarnation for writer in writers if writer is not None)
        return replace(self._owner, past_incarnations=tuple(past_incarnations))

    def remember(self, record: PrimaryRecord) -> None:
        """Store `record`; it is on disk when this returns. Call it before any peer learns of its content."""
        with self._writing("remember"):
            if record != self._owner.record:
                self._save(replace(self._owner, record=record))

    def _save(self, owner: owners.Owner) -> None:
        owners.save(owner, self.directory, self._disk, is_synced=self.config.fsync is not Fsync.NEVER)
        self._owner = owner

    # Appending

    def append(self, entries: Sequence[Entry]) -> None:
        """Append the entries; they are not on disk yet when this returns."""
        with self._writing("append"):
            self._require_order(entries)
            start = 0
            while start < len(entries):
                start = self._append_some(entries, start)
                if self._store.wants_roll(0, self._state):
                    self._store.roll(self._state)
                    self._store.trim(self._state.stable, self._state.last_at)

    def _append_some(self, entries: Sequence[Entry], start: int) -> int:
        """Append what fits into this segment, in one gathered write; return the index of the next entry."""
        state, store = self._state, self._store
        before = (state.position, state.chain.copy(), state.extra, dict(state.producers))
        buffers: list[Buffer] = []
        size, gap, synced = 0, b"", state.synced
        for at in range(start, len(entries)):
            entry = entries[at]
            shared = shared_of_frame(entry)
            chain = state.chain.take(entry.sender.incarnation, entry.count, shared)
            store.note(entry.position, store.last.size + size)
            head = head_of(RecordKind.FRAME, len(entry.body), synced, entry.delivered_at, chain, shared)
            buffers += (gap + head, entry.body)
            gap = padding(len(entry.body))
            size += FRAME_HEAD_BYTES + len(entry.body) + len(gap)
            state.took(entry.count)
            if entry.tag is not None:
                state.tagged(*entry.tag)
            if store.wants_roll(size, state):
                break
        buffers.append(gap)
        try:
            store.write(buffers, size)
        except OSError:
            state.position, state.chain, state.extra, state.producers = before
            raise
        state.last_at = max(state.last_at, entry.delivered_at)
        return at + 1

    def _require_order(self, entries: Sequence[Entry]) -> None:
        expected, view = self._state.position + 1, self._state.view_id
        for entry in entries:
            if entry.position != expected:
                raise MisuseError(f"the journal expects position {expected}, not {entry.position}")
            if entry.view != view:
                raise MisuseError(
                    f"position {entry.position} is of view {entry.view}, the journal in {view}: call enter_view"
                )
            expected += entry.count

    def enter_view(
        self, view: View, epoch: ViewId, position: int, producers: Iterable[tuple[int, int]], at: int
    ) -> None:
        """Record a primary view that begins after `position`. Others have no log, and are ignored."""
        with self._writing("enter_view"):
            if not view.is_primary or view.id == self._state.view_id:
                return
            if position != self._state.position:
                raise MisuseError(
                    f"view {view.id} begins at position {position} and the journal ends at {self._state.position}: "
                    f"fetch what is missing, or restart the log with restart_at"
                )
            self._append_view(view, epoch, tuple(producers), at)

    def _append_view(self, view: View, epoch: ViewId, producers: tuple[tuple[int, int], ...], at: int) -> None:
        self._write_other(RecordKind.VIEW, VIEW_FIELDS.write((view, epoch, producers)), at)
        self._state.entered(view, epoch, producers)

    def mark_stable(self, position: int) -> None:
        """Record that every member has delivered up to `position`, which is therefore never rolled back."""
        with self._writing("mark_stable"):
            stable = min(position, self._state.position)
            if stable > self._state.stable:
                self._write_other(RecordKind.STABLE, U64.write(stable), self._state.last_at)
                self._state.stable = stable

    def _write_other(self, kind: RecordKind, body: bytes, at: int) -> None:
        state = self._state
        data = record_bytes(kind, body, state.synced, at, state.chain.value, state.position + 1)
        self._store.write([data], len(data))
        state.last_at = max(state.last_at, at)

    def trim(self, now: int) -> int:
        """Apply retention at wall clock `now`; it happens by itself when a segment is full. How many segments went."""
        with self._writing("trim"):
            return self._store.trim(self._state.stable, now)

    # Waiting for the disk

    def sync(self) -> int:
        """Wait until the disk has all that was appended before the call; the position that is safe now.

        With Fsync.NEVER nothing is waited for: what is reported survives the process, but maybe not the machine.
        """
        with self._sync_lock, self._failing("sync"):
            with self._state_lock:
                position, address, unsynced = self._state.position, self._store.end, self._store.unsynced()
            if self.config.fsync is not Fsync.NEVER:
                self._store.sync_files(unsynced)
            with self._state_lock:
                self._store.synced(unsynced)
                self._state.synced, self._durable = address, position
            return position

    def close(self) -> None:
        """What was appended is on disk, and the last record says so."""
        if self._is_closed:
            return
        try:
            if not self.is_failed:
                self.sync()
                with self._state_lock:
                    self._write_other(RecordKind.STABLE, U64.write(self._state.stable), self._state.last_at)
        finally:
            self._is_closed = True
            self._store.close()
            self._release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Rollback and restart

    def truncate(self, position: int) -> int:
        """Roll back to `position`, or to the end of the last frame before it that keeps what is stable; where the log
        ends then."""
        with self._sync_lock, self._writing("truncate"):
            if position >= self._state.position:
                return self._state.position
            if position < self._state.stable:
                raise JournalError(
                    f"position {position} is below {self._state.stable}, which is stable: every member has delivered "
                    f"it, and it is never rolled back. If this journal differs there, move its directory away"
                )
            self._save(replace(self._owner, stable=self._state.stable))
            stable, self._state = self._state.stable, self._store.truncate_behind(position, self._state.stable)
            self._durable = self._state.position
            self.mark_stable(stable)
            return self._state.position

    def restart_at(self, position: int, chain: bytes) -> None:
        """Restart the log after `position`: delete all records, because no member has those in between."""
        with self._sync_lock, self._writing("restart_at"):
            state = LogState(self._state.group, last_at=self._state.last_at)
            state.restarted(position, chain)
            self._store.restart(state)
            self._state, self._durable = state, position
            self._save(replace(self._owner, stable=position))

    # For peers

    def chain_at(self, position: int) -> bytes | None:
        """The chain over all messages up to `position`; None where no frame ends there, or not any more."""
        with self._state_lock:
            if position == self._state.position:
                return self._state.chain.value
            if not self.first <= position + 1 <= self._state.position:
                return None
            return raw.chain_at(self._store, position)

    def frame_start(self, position: int) -> int:
        """The position of the first message that ends in the same frame as `position`."""
        with self._state_lock:
            place = self._store.frame_of(position)
            return place[2].position if place is not None else position

    def read_raw(
        self, first: int, most_bytes: int, *, last: int | None = None, view: ViewId = NO_VIEW, extra: int = 0
    ) -> bytes:
        """Records for a peer whose journal ends before `first`, in view `view`, with `extra` unfinished frames.

        At least one record, if there is any up to `last`; else as many as fit into `most_bytes`.
        """
        cursor = raw.Cursor(first - 1, view, extra)
        with self._state_lock:
            return raw.read(self._store, cursor, most_bytes, last if last is not None else self._state.position)

    def append_raw(self, data: bytes) -> int:
        """Take what `read_raw` of a peer gave, if it continues what is here; where the log ends then."""
        with self._writing("append_raw"):
            state = self._state
            for copied in list(raw.parse(data, state.position, state.chain, state.view)):  # all of it fits, or nothing
                self.append(copied.entries)
                if copied.view is not None:
                    self._append_view(copied.view.view, copied.view.epoch, copied.view.producers, copied.view.at)
            return self._state.position

    # Locks and failures

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        with self._state_lock, self._failing(what):
            yield

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Fail the journal for good when a disk operation fails."""
        if self._is_closed:
            raise MisuseError("the journal is closed")
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            self._failure = as_journal_error(error, f"{what} on the journal", self.directory)
            raise self._failure from error
