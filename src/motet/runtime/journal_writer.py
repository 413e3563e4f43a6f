"""The journal writer: appends what the member delivers before the application or a peer receives it.

    the durable state of the member changed -> written to disk before datagrams that depend on it are sent
    ordered frames were delivered           -> appended, one gathered write per wake-up
    a primary view begins                   -> recorded; if it begins after the end of our journal, the gap is fetched
    positions were rolled back              -> the journal is truncated
    fsync is always                         -> peers learn of positions only once they are on disk

It runs on the driver's loop; threads wait for the disk. Invariants: the journal holds a prefix of the log; `_buffered`
holds, without gaps, what was delivered after a gap that is being filled.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from motet.log.journal import Entry, Fsync, Journal
from motet.log.journal.reader import Bounds, JournalReader
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import NO_VIEW, ViewId
from motet.protocol.member import Delivered, Member, Superseded
from motet.protocol.membership.engine import ViewInstalled
from motet.protocol.ordering import RolledBack, StableAdvanced
from motet.protocol.snapshot import RecordState
from motet.protocol.wire.body import Port, message_count
from motet.runtime.catchup import CatchUp

logger = logging.getLogger("motet")
STILL_FETCHING = "a member still fetches a part of the log, which its application has not received yet"
STABLE_EVERY_S = 0.05  # interval at which the stable position is written to the journal

Perform = Callable[[Callable[[int], list[Effect]]], None]


class JournalWriter:
    def __init__(
        self, journal: Journal, member: Member, perform: Perform, *, replays: bool, wall_clock: Callable[[], int]
    ) -> None:
        self.journal = journal
        self.progress = PublishedProgress(journal)
        self._member = member
        self._perform = perform
        self._wall_clock = wall_clock
        self._record = member.record
        self._view: ViewId = NO_VIEW
        self._buffered: list[Effect] | None = None  # None: there is no gap
        self._buffered_end = 0  # position at the end of the buffered effects
        member.keep_log()
        self._catch_up = CatchUp(journal, member, self._truncate, replays=replays)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_syncing = False
        self._is_dirty = False
        self._rewritten = 0  # number of rollbacks; a sync that began before one proves nothing
        self._sync_timer: asyncio.TimerHandle | None = None
        self._stable_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    # Before effects are performed

    def persist(self, effects: list[Effect], now: int) -> list[Effect]:
        """Return the effects that the driver performs now. Buffered ones follow once the gap is filled."""
        if self._member.record is not self._record:
            self._record = self._member.record
            self.journal.remember(self._record)
        performed: list[Effect] = []
        entries: list[Entry] = []
        for effect in effects:
            if isinstance(effect, Delivered) and effect.port == Port.CONTROL:
                performed += self._catch_up.receive(effect.sender, effect.messages, now)
            elif isinstance(effect, ViewInstalled):
                self._append(entries)
                performed += self._enter(effect, now)
            elif isinstance(effect, RolledBack):
                self._append(entries)
                performed += [*self._roll_back(effect), effect]
            elif self._buffered is not None and isinstance(effect, RecordState):
                performed += self._member.refuse_snapshot_state(effect.snapshot, STILL_FETCHING, now, is_transient=True)
            elif self._buffered is not None and _is_of_the_log(effect):
                self._buffer(effect)
            else:
                self._note(effect, entries)
                performed.append(effect)
        self._append(entries)
        return performed + self._try_to_close_gap(now)

    def _note(self, effect: Effect, entries: list[Entry]) -> None:
        if isinstance(effect, Delivered) and effect.channel is Channel.TOTAL:
            entries += self._entries(effect)
        elif isinstance(effect, StableAdvanced):
            self._plan_stable()

    def _entries(self, effect: Delivered) -> Iterator[Entry]:
        """One for each frame."""
        assert effect.position is not None
        position, at = effect.position, self._wall_clock()
        for frame_id, (body, sent_at) in enumerate(zip(effect.bodies, effect.sent_at, strict=True), effect.first):
            count = message_count(body)
            yield Entry(position, count, effect.sender, frame_id, sent_at, at, self._view, effect.tag, body)
            position += count

    def _append(self, entries: list[Entry]) -> None:
        if entries:
            self.journal.append(entries)
            entries.clear()
            self.progress.moved()
            self._plan_sync()

    # Views

    def _roll_back(self, effect: RolledBack) -> list[Effect]:
        """A rollback precedes the view that caused it, so the journal is truncated before it enters that view."""
        dropped = self._drop_buffered()
        self._truncate(effect.first - 1)
        return dropped

    def _enter(self, effect: ViewInstalled, now: int) -> list[Effect]:
        if self._buffered is not None and effect.position == self._buffered_end:
            self._buffer(effect)
            self._catch_up.begin_view(effect.view, now)
            return [effect]
        dropped = self._drop_buffered()
        if effect.position > self.journal.position:
            self._member.keep_log(is_caught_up=False)
            self._buffered, self._buffered_end = [effect], effect.position
            return [*dropped, effect, *self._catch_up.start(effect.view, effect.position, now)]
        self._member.keep_log()
        if effect.view.is_primary:
            self._record_view(effect)
        return [*dropped, effect]

    def _record_view(self, effect: ViewInstalled) -> None:
        self._view = effect.view.id
        self.journal.enter_view(
            effect.view, effect.view.id, effect.position, self._member.producers, self._wall_clock()
        )
        self.progress.moved()
        self._plan_sync()

    def _buffer(self, effect: Effect) -> None:
        assert self._buffered is not None
        self._buffered.append(effect)
        if isinstance(effect, Delivered):
            self._buffered_end += len(effect.messages)

    def _drop_buffered(self) -> list[Effect]:
        """Drop the buffer because the view does not continue it: everything up to the view's begin will be fetched.

        What remains is the notification of the sender, whose receipts would otherwise wait for ever.
        """
        buffered, self._buffered = self._buffered or [], None
        self._catch_up.stop()
        return [notified for effect in buffered for notified in self._notify_sender(effect)]

    def _notify_sender(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Delivered):
            return [] if isinstance(effect, ViewInstalled) else [effect]
        is_ours = effect.sender == self._member.address and effect.messages
        return [Superseded(effect.position or 0, len(effect.messages))] if is_ours else []

    def _try_to_close_gap(self, now: int) -> list[Effect]:
        """Once the fetched records are in the journal, append and perform the buffered effects."""
        if self._buffered is None:
            return []
        effects = self._catch_up.take_effects()
        self.progress.moved()
        if not self._catch_up.is_done:
            return effects
        buffered, self._buffered = self._buffered, None
        self._member.keep_log()
        entries: list[Entry] = []
        for effect in buffered:
            if isinstance(effect, ViewInstalled):
                self._append(entries)
                if effect.view.is_primary:
                    self._record_view(effect)
            else:
                self._note(effect, entries)
                effects.append(effect)
        self._append(entries)
        return effects

    def tick(self, now: int) -> list[Effect]:
        return self._catch_up.tick(now) + self._try_to_close_gap(now)

    def next_deadline(self) -> int | None:
        return self._catch_up.next_deadline()

    # The disk

    def _truncate(self, position: int) -> None:
        """Truncate the journal. A sync in flight is invalidated: its position is of the log before the rollback."""
        self._rewritten += 1
        self.journal.truncate(position)

    def _plan_sync(self) -> None:
        """Schedule a sync. Only one is in flight; records appended meanwhile are synced by the next one."""
        self._is_dirty = True
        fsync = self.journal.config.fsync
        if fsync is Fsync.NEVER or self._is_syncing or self._sync_timer is not None or self._loop is None:
            return
        if fsync is Fsync.ALWAYS:
            self._sync()
        else:
            self._sync_timer = self._loop.call_later(self.journal.config.interval_ns / SECOND, self._sync)

    def _sync(self) -> None:
        self._sync_timer = None
        if self._is_closed or not self._is_dirty or self._is_syncing:
            return
        assert self._loop is not None
        self._is_dirty, self._is_syncing = False, True
        waiting = self._loop.run_in_executor(None, self.journal.sync)
        waiting.add_done_callback(partial(self._synced, self._rewritten))

    def _synced(self, rewritten: int, waiting: asyncio.Future[int]) -> None:
        self._is_syncing = False
        if self._is_closed or waiting.cancelled():
            return
        if rewritten == self._rewritten:
            self._perform(lambda now: self._member.persisted(waiting.result(), now))
        else:
            self._is_dirty = True
        if self._is_dirty:
            self._plan_sync()

    def _plan_stable(self) -> None:
        if self._stable_timer is None and self._loop is not None and not self._is_closed:
            self._stable_timer = self._loop.call_later(STABLE_EVERY_S, self._mark_stable)
        self.progress.moved(self._stable)

    def _mark_stable(self) -> None:
        self._stable_timer = None
        if not self._is_closed:
            self.journal.mark_stable(self._stable)

    @property
    def _stable(self) -> int:
        assert self._member.channel.ordering is not None
        return self._member.channel.ordering.stable

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for timer in (self._sync_timer, self._stable_timer):
            if timer is not None:
                timer.cancel()
        if not self.journal.is_failed:
            self.journal.mark_stable(self._stable)
        self.progress.close()
        self.journal.close()


class PublishedProgress:
    """The progress of the journal, for the threads that serve it (a `LogSource`)."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._reader = JournalReader(journal.directory)
        self._stable = journal.stable
        self._changed = threading.Condition()
        self._is_closed = False

    def moved(self, stable: int | None = None) -> None:
        with self._changed:
            if stable is not None:
                self._stable = stable
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def stable(self) -> int:
        return min(self._stable, self._journal.position)

    def bounds(self) -> Bounds:
        journal = self._journal
        return Bounds(journal.first, journal.position, self.stable, journal.epoch.number)

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return JournalReader(self._journal.directory).read(first, last, batch_rows)

    def wait_stable(self, beyond: int, timeout_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self.stable > beyond or self._is_closed, timeout_s)
            return self.stable


def _is_of_the_log(effect: Effect) -> bool:
    return isinstance(effect, Superseded) or (isinstance(effect, Delivered) and effect.channel is Channel.TOTAL)
