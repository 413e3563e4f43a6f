"""The progress of the local log: how far it is delivered, stable, and on the local disk.

Positions count messages from 1. Messages beyond the stable position can be rolled back, which happens only if this
member loses touch with the primary component.

A joiner takes over the group's position without the messages before it. If it has a journal, it must fetch them, and
is not caught up until then.

Invariants: stable <= position; persisted <= position.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.effects import Effect
from motet.protocol.ordering.holdback import Pending
from motet.protocol.ordering.producers import Producers
from motet.protocol.wire.frames import LogCheckpoint, Pairs


@dataclass(frozen=True, slots=True)
class RolledBack(Effect):
    """The messages delivered at these positions, both inclusive, may differ from the group's log: undo them."""

    first: int
    last: int


class LogProgress:
    def __init__(self, position: int = 0, stable: int = 0, producers: Pairs = ()) -> None:
        self.position = position
        self.stable = stable
        self.persisted = position
        self.producers = Producers(producers)
        self.is_kept = False  # Whether a journal keeps the log.
        self.is_caught_up = True

    def restore(self, position: int, stable: int, producers: Pairs) -> None:
        """Continue where the journal of an earlier incarnation ends."""
        self.position = self.persisted = position
        self.stable = stable
        self.producers = Producers(producers)

    def place(self, pending: Pending) -> int | None:
        """The position of the first message that ends in this frame; None if the frame repeats an append."""
        if pending.tag is not None and not self.producers.accept(pending.tag):
            return None
        first = self.position + 1
        self.position += pending.count
        return first

    def end(self) -> LogCheckpoint:
        return LogCheckpoint(self.position, self.producers.pairs())

    def copy(self) -> LogProgress:
        return LogProgress(self.position, self.stable, self.producers.pairs())

    def move_to(self, end: LogCheckpoint) -> list[Effect]:
        """Join the group's log: roll back what was delivered here and is not known to be stable."""
        rolled_back = RolledBack(self.stable + 1, self.position)
        self.position = end.position
        self.stable = min(self.stable, end.position)
        self.persisted = min(self.persisted, self.stable)
        self.producers = Producers(end.producers)
        self.is_caught_up = not self.is_kept
        return [rolled_back] if rolled_back.first <= rolled_back.last else []

    def _check(self) -> None:
        assert self.stable <= self.position
        assert self.persisted <= self.position
