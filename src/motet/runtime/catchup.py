"""Catch-up: fetch from other members what lies between the end of our journal and the view that we joined.

It drives `journal.backfill` over reliable unicast (port CONTROL), answers the requests of others, and delivers the
missed messages if the application replays the log instead of receiving a state. Runs on the driver's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from motet.errors import JournalDivergedError
from motet.log.journal import Entry, Journal
from motet.log.journal.backfill import (
    AppendRaw,
    Backfill,
    BackfillDone,
    BackfillImpossible,
    SendTo,
    Truncate,
    answer,
    is_ask,
)
from motet.log.journal.raw import Cursor, end_of, entries_of
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_VIEW, View, ViewId
from motet.protocol.member import Delivered, Member
from motet.protocol.ordering import RolledBack
from motet.protocol.wire.body import Port, port_of
from motet.protocol.wire.reassembler import Reassembler

logger = logging.getLogger("motet")
REPLAY_BYTES = 1 << 20  # records that one read returns


class CatchUp:
    def __init__(self, journal: Journal, member: Member, truncate: Callable[[int], None], *, replays: bool) -> None:
        self._journal = journal
        self._member = member
        self._truncate_log = truncate
        self._backfill: Backfill | None = None
        self._asked = 0  # the number of the last request
        self._view: ViewId = NO_VIEW
        self._peers: list[Address] = []
        self._effects: list[Effect] = []  # for the driver and the application
        self._replay = Replay(journal) if replays else None

    def start(self, view: View, position: int, now: int) -> list[Effect]:
        """Fetch the log up to `position`, where the view begins."""
        logger.info("fetching positions %d to %d from the group", self._journal.position + 1, position)
        self._view, self._peers = view.id, self._others(view)
        self._begin(position, now)
        return self.take_effects()

    def _begin(self, position: int, now: int, *, wants_records: bool = True) -> None:
        self.stop()
        self._backfill = Backfill(
            self._journal.end,
            position,
            self._peers,
            view=self._view,
            asked=self._asked,
            wants_records=wants_records,
        )
        self._perform(self._backfill.start(now), now)

    def stop(self) -> None:
        """End the backfill: it is complete, or the gap is a different one now."""
        if self._backfill is not None:
            self._asked = self._backfill.asked
        self._backfill = None

    @property
    def is_done(self) -> bool:
        return self._backfill is None

    def begin_view(self, view: View, now: int) -> None:
        self._view, self._peers = view.id, self._others(view)
        if self._backfill is not None:
            self._perform(self._backfill.set_peers(self._peers, now, self._view), now)

    def receive(self, source: Address, messages: Sequence[bytes], now: int) -> list[Effect]:
        for message in messages:
            if is_ask(message):
                for reply in answer(self._journal, message, self._member.view.id):
                    self._effects += self._member.send(source, (reply,), now, port=Port.CONTROL)
            elif self._backfill is not None:
                self._perform(self._backfill.receive(source, message, now), now)
        return self.take_effects()

    def tick(self, now: int) -> list[Effect]:
        if self._backfill is not None:
            self._perform(self._backfill.tick(now), now)
        return self.take_effects()

    def next_deadline(self) -> int | None:
        return self._backfill.next_deadline() if self._backfill is not None else None

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _others(self, view: View) -> list[Address]:
        return [member for member in view.members if member != self._member.address]

    def _perform(self, effects: list[Effect], now: int) -> None:
        for effect in effects:
            match effect:
                case SendTo():
                    self._effects += self._member.send(effect.peer, (effect.data,), now, port=Port.CONTROL)
                case Truncate():
                    self._truncate(effect.position, now)
                case AppendRaw():
                    self._append(effect.data, now)
                case BackfillDone():
                    self.stop()
                case BackfillImpossible() if effect.chain:
                    self._restart_log(effect)
                case BackfillImpossible():  # a restarted log needs the chain at that position
                    self._begin(effect.position, now, wants_records=False)

    def _truncate(self, position: int, now: int) -> None:
        assert self._backfill is not None
        last = self._journal.position
        self._truncate_log(position)
        self._effects.append(RolledBack(self._journal.position + 1, last))
        self._perform(self._backfill.performed(self._journal.end, now), now)

    def _append(self, data: bytes, now: int) -> None:
        assert self._backfill is not None
        begin = self._journal.position
        try:
            self._journal.append_raw(data)
        except JournalDivergedError:
            self._perform(self._backfill.refused(now), now)
            return
        if self._replay is not None:
            self._effects += self._replay.read(begin + 1)
        self._perform(self._backfill.performed(self._journal.end, now), now)

    def _restart_log(self, effect: BackfillImpossible) -> None:
        """No member has the missing positions any more: log that, and restart the journal after the gap."""
        logger.warning(
            "no member has positions %d to %d any more (%s); this journal restarts at %d",
            self._journal.position + 1,
            effect.position,
            effect.reason,
            effect.position + 1,
        )
        self._journal.restart_at(effect.position, effect.chain)
        self.stop()


class Replay:
    """Deliveries made from the frames of the journal, for an application that missed them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._names: dict[int, Address] = {}
        self._reassemblers: dict[Address, Reassembler] = {}

    def read(self, first: int) -> Iterator[Delivered]:
        """Deliveries from `first` to the end of the journal."""
        cursor = Cursor(self._journal.frame_start(first) - 1, NO_VIEW, 0)
        while data := self._journal.read_raw(cursor.position + 1, REPLAY_BYTES, view=cursor.view, extra=cursor.extra):
            for entry in entries_of(data, self._names):
                yield from self._delivered(entry, first)
            cursor = end_of(cursor, data)

    def _delivered(self, entry: Entry, first: int) -> Iterator[Delivered]:
        reassembler = self._reassemblers.setdefault(entry.sender, Reassembler())
        skipped = max(0, first - entry.position)
        messages = reassembler.feed(entry.body)[skipped:]
        if messages:
            place = (
                entry.position + skipped,
                port_of(entry.body),
                entry.seqno,
                (entry.body,),
                (entry.sent_at,),
                entry.tag,
            )
            yield Delivered(Channel.TOTAL, entry.sender, messages, *place, is_replayed=True)
