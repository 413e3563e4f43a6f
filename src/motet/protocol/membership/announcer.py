"""The commit announcer: repeats a COMMIT to those who have not said that they installed it.

It is apart from the coordinator because it outlives the round: the coordinator installs the view at once, and may
begin to end it while others are still told how the view before it ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.membership.context import Roles, ViewContext
from motet.protocol.membership.transitions import StateMachine, Table, Transition, repeated
from motet.protocol.wire.frames import Commit, Installed


class AnnouncerState(Enum):
    IDLE = "IDLE"
    ANNOUNCING = "ANNOUNCING"


class AnnouncerInput(Enum):
    COMMITTED = "our round is committed"
    COMMITTED_ALONE = "our round is committed, and nobody else takes part"
    INSTALLED = "INSTALLED, others are missing"
    INSTALLED_BY_ALL = "INSTALLED of the last one"
    INSTALLED_STALE = "INSTALLED of another view, or again"
    RETRY = "the retry interval is over"
    TIMEOUT = "one `answer` is over"


@dataclass(slots=True)
class CommitAnnouncement:
    """A COMMIT on its way to those who have not said that they installed it."""

    frame: Commit
    pending: list[Address]
    until: int


class CommitAnnouncer(StateMachine[AnnouncerState, AnnouncerInput]):
    def __init__(self, context: ViewContext, roles: Roles) -> None:
        super().__init__(AnnouncerState.IDLE, context.counters)
        self._context = context
        self._roles = roles
        self.announcement: CommitAnnouncement | None = None

    @property
    def is_idle(self) -> bool:
        return self.state is AnnouncerState.IDLE

    # Inputs

    def announce(self, frame: Commit, others: list[Address], until: int) -> list[Effect]:
        if not others:
            return self.fire(AnnouncerInput.COMMITTED_ALONE)
        return self.fire(AnnouncerInput.COMMITTED, CommitAnnouncement(frame, others, until))

    def on_installed(self, source: Address, frame: Installed) -> list[Effect]:
        current = self.announcement
        if current is None or current.frame.decision.following.id != frame.view or source not in current.pending:
            return self.fire(AnnouncerInput.INSTALLED_STALE)
        if current.pending == [source]:
            return self.fire(AnnouncerInput.INSTALLED_BY_ALL)
        return self.fire(AnnouncerInput.INSTALLED, current, source)

    def time_out(self, now: int) -> list[Effect]:
        is_due = self.announcement is not None and now >= self.announcement.until
        return self.fire(AnnouncerInput.TIMEOUT) if is_due else []

    def retry(self) -> list[Effect]:
        return self.fire(AnnouncerInput.RETRY)

    def excuse_pause(self, late_ns: int) -> None:
        if self.announcement is not None:
            self.announcement.until += late_ns

    # Actions

    def _begin(self, announcement: CommitAnnouncement) -> list[Effect]:
        """COMMIT to all others, an earlier announcement is dropped: who missed it will ask"""
        self.announcement = announcement
        return self._context.send_to_all(announcement.pending, announcement.frame)

    def _drop(self) -> list[Effect]:
        """nothing to send; an earlier announcement is dropped"""
        self.announcement = None
        return []

    def _note(self, announcement: CommitAnnouncement, source: Address) -> list[Effect]:
        """wait for the others"""
        announcement.pending.remove(source)
        return []

    def _repeat(self) -> list[Effect]:
        """COMMIT again to those who did not answer"""
        current = self.announcement
        return self._context.send_to_all(current.pending, current.frame) if current is not None else []

    def _end(self) -> list[Effect]:
        """done; whoever missed it asks those who have it; if we are leaving, we are gone now"""
        self.announcement = None
        return self._roles.participant.leave_when_free()

    TABLE: ClassVar[Table] = {
        (AnnouncerState.IDLE, AnnouncerInput.COMMITTED): Transition(_begin, AnnouncerState.ANNOUNCING),
        (AnnouncerState.IDLE, AnnouncerInput.COMMITTED_ALONE): Transition(_drop),
        (AnnouncerState.IDLE, AnnouncerInput.INSTALLED_STALE): Transition(repeated),
        (AnnouncerState.IDLE, AnnouncerInput.RETRY): Transition(repeated),
        (AnnouncerState.ANNOUNCING, AnnouncerInput.COMMITTED): Transition(_begin),
        (AnnouncerState.ANNOUNCING, AnnouncerInput.COMMITTED_ALONE): Transition(_drop, AnnouncerState.IDLE),
        (AnnouncerState.ANNOUNCING, AnnouncerInput.INSTALLED): Transition(_note),
        (AnnouncerState.ANNOUNCING, AnnouncerInput.INSTALLED_BY_ALL): Transition(_end, AnnouncerState.IDLE),
        (AnnouncerState.ANNOUNCING, AnnouncerInput.INSTALLED_STALE): Transition(repeated),
        (AnnouncerState.ANNOUNCING, AnnouncerInput.RETRY): Transition(_repeat),
        (AnnouncerState.ANNOUNCING, AnnouncerInput.TIMEOUT): Transition(_end, AnnouncerState.IDLE),
    }
