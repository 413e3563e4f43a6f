"""Where our log stands: how far it is delivered, known to be everywhere, and on our disk.

Positions count messages, from 1. What is delivered beyond the stable position can be taken back, and only if we are
cut off from the primary component.

Who comes in from outside has the position of the group and not what lies before it. If it keeps the log, it has to
fetch that, and its log is not whole until then.

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
    """What was delivered at these positions, both included, may not be what the group agreed on: forget it."""

    first: int
    last: int


class LogProgress:
    def __init__(self, position: int = 0, stable: int = 0, producers: Pairs = ()) -> None:
        self.position = position
        self.stable = stable
        self.persisted = position
        self.producers = Producers(producers)
        self.is_kept = False  # in a journal
        self.is_caught_up = True

    def restore(self, position: int, stable: int, producers: Pairs) -> None:
        """What a journal kept of an earlier life is where we go on."""
        self.position = self.persisted = position
        self.stable = stable
        self.producers = Producers(producers)

    def place(self, pending: Pending) -> int | None:
        """The position of the first message that ends in this frame; None if it repeats an append: it gets none."""
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
        """We come in from outside: what we delivered and do not know to be stable may not be the group's."""
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
