"""A simulated process with a log: its disk lags behind its deliveries, and its application retries appends.

Where members wait for their disks, a process that restarts recovers only what had reached its disk. Writes reach the
disk in order, each after a short delay. A crash loses the writes in flight, and a pause delays them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from motet.errors import BacklogFullError
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import MILLISECOND
from motet.protocol.member import Delivered, DurableState, Member
from motet.protocol.ordering import AppendRepeated, RolledBack, StableAdvanced
from motet.protocol.wire.ordered import Tag
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import MessageStream, PersistedAt
from motet.sim.world.host import HostContext

MOST_LAG_NS = 30 * MILLISECOND


class OrderedHost(GroupHost):
    def __init__(
        self,
        member: Member,
        context: HostContext,
        rng: Random,
        home: Callable[[Endpoint], Address],
        watch: Callable[[GroupHost], None] | None,
        *,
        waits_for_disk: bool,
    ) -> None:
        super().__init__(member, context, rng, home, watch)
        self._waits_for_disk = waits_for_disk
        self._on_disk = self._written = member.durable_state
        self._written_by = 0  # when the last write reaches the disk
        self._writes: deque[DurableState] = deque()
        self._disk_rng = Random(f"disk {member.address}")
        # Delivered appends that are not known to be stable, each with its last position.
        self._appended: list[tuple[int, Tag]] = []

    @property
    def durable_state(self) -> DurableState:
        """What the next incarnation of this process would recover."""
        now = self.member.durable_state
        if not self._waits_for_disk:
            return now
        return replace(self._on_disk, record=now.record, stable=min(now.stable, self._on_disk.position))

    def append(self, tag: Tag, messages: Sequence[bytes]) -> None:
        if not self.is_alive or self.is_paused:
            return
        try:
            effects = self.member.append_tagged(tag, messages, self.clock)
        except BacklogFullError:
            return
        history = self._world.history
        history.accept(MessageStream(Channel.TOTAL, self.address, None), messages)
        history.appends[tag] = tuple(messages)
        self.note(f"appends {tag.sequence} of producer {tag.producer}")
        self._perform(effects)

    def _make_real(self, effect: Effect) -> list[Effect]:
        history = self._world.history
        match effect:
            case AppendRepeated():
                history.repeated.add((self.address, Tag(effect.producer, effect.sequence)))
                self.note(str(effect))
                return []
            case Delivered() if effect.tag is not None and effect.position is not None:
                self._appended.append((effect.position + len(effect.messages) - 1, Tag(*effect.tag)))
            case RolledBack():
                self._writes.clear()  # writes in flight belong to the tail that is rolled back
                self._appended = [(last, tag) for last, tag in self._appended if last < effect.first]
            case StableAdvanced():
                history.acknowledged.update(tag for last, tag in self._appended if last <= effect.position)
                self._appended = [(last, tag) for last, tag in self._appended if last > effect.position]
        return super()._make_real(effect)

    # The disk

    def _perform(self, effects: list[Effect]) -> None:
        super()._perform(effects)
        state = self.member.durable_state
        if self._waits_for_disk and (state.epoch, state.position) != (self._written.epoch, self._written.position):
            self._written = state
            self._written_by = max(self._written_by, self._world.scheduler.now + self._disk_rng.randrange(MOST_LAG_NS))
            self._writes.append(state)
            self._world.scheduler.at(self._written_by, self._reach_the_disk)

    def _reach_the_disk(self) -> None:
        if self.is_paused:
            self._world.scheduler.after(MOST_LAG_NS, self._reach_the_disk)
        elif self.is_alive and self._writes:
            self._on_disk = self._writes.popleft()
            self._record(PersistedAt(self._world.scheduler.now, self.address, self._on_disk.position))
            self.do(lambda now: self.member.persisted(self._on_disk.position, now))
