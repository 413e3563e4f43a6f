"""Stability: what every member of the primary view has delivered, and optionally persisted, is never rolled back.

    the log advances         -> report the position to the coordinator, with back-off until it confirms
    all members have reported -> the smallest position is stable; the coordinator announces it to all
    a report repeats          -> if the position was confirmed already, the coordinator repeats the announcement

Invariant: nothing is stable here that was not delivered here.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.effects import Broadcast, Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_VIEW, View
from motet.protocol.ordering.config import OrderingConfig
from motet.protocol.ordering.log import LogProgress
from motet.protocol.wire.frames import Progress, Stable


@dataclass(frozen=True, slots=True)
class StableAdvanced(Effect):
    """Every member of the primary view has delivered the log up to `position`: it is never rolled back."""

    position: int


class Stability:
    def __init__(self, local: Address, log: LogProgress, config: OrderingConfig) -> None:
        self.confirmed = -1  # All members of this view are known to have reached this position.
        self._local = local
        self._log = log
        self._config = config
        self._view = View(NO_VIEW, (local,), is_primary=False)
        self._reported: dict[Address, int] = {}  # At the coordinator: the position of each member.
        self.report_at: int | None = None  # The deadline of the next report.
        self._reports = 0  # Reports since the log last advanced, for the back-off.

    @property
    def reached(self) -> int:
        """The position to report."""
        log = self._log
        return min(log.position, log.persisted) if self._config.waits_for_disk else log.position

    def begin_view(self, view: View, now: int) -> None:
        self._view = view
        self._reported, self._reports, self.confirmed = {}, 0, -1
        self.report_at = now if view.is_primary else None

    def end_view(self) -> None:
        self.report_at = None

    def moved(self, now: int) -> None:
        """The log has advanced: the first report is sent at once, later ones after `progress_ns`."""
        self._reports = 0
        self.report_at = now if self.report_at is None else min(self.report_at, now + self._config.progress_ns)

    def receive(self, source: Address, frame: Progress | Stable) -> list[Effect]:
        return self._advance(frame.position) if isinstance(frame, Stable) else self._on_progress(source, frame)

    def _on_progress(self, source: Address, frame: Progress) -> list[Effect]:
        self._reported[source] = max(self._reported.get(source, 0), frame.position)
        effects = self._gather()
        if frame.position <= self.confirmed:
            effects.append(Transmit(source, Stable(self._view.id, self.confirmed)))
        return effects

    def _gather(self) -> list[Effect]:
        self._reported[self._local] = self.reached
        if len(self._reported) < len(self._view.members):
            return []
        stable = min(self._reported.values())
        if stable <= self.confirmed:
            return []
        return [*self._advance(stable), Broadcast(Stable(self._view.id, stable))]

    def _advance(self, position: int) -> list[Effect]:
        if position > self._log.position:
            return []
        self.confirmed = max(self.confirmed, position)
        if position <= self._log.stable:
            return []
        self._log.stable = position
        return [StableAdvanced(position)]

    def tick(self, now: int) -> list[Effect]:
        """Report the own position until the coordinator has confirmed it; the coordinator itself takes the minimum."""
        if self.report_at is None or now < self.report_at:
            return []
        if not self._view.is_primary or self.confirmed >= self.reached:
            self.report_at = None
            return []
        self.report_at = now + (self._config.progress_ns << min(self._reports, 6))
        self._reports += 1
        coordinator = self._view.coordinator
        if coordinator == self._local:
            return self._gather()
        return [Transmit(coordinator, Progress(self._view.id, self.reached))]
