"""A simulated process that a fault can hit within one step, and that records its accusations.

A crash between two datagrams of one step sends the first one and performs nothing after it: no datagram, no delivery,
no view.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.member import Member
from motet.protocol.membership import FlushTimedOut, MergeUnanswered, Suspected
from motet.protocol.wire.codec import DecodedDatagram, Rejection, decode, kind_name
from motet.protocol.wire.frames import MergeRequest, Prepare
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import Accusation, AccusationKind, BeganChange, BeganMerge, Outage
from motet.sim.world.host import HostContext

OnFrame = Callable[[GroupHost, str], None]  # called with the kind of each frame before the network takes it


class InterruptedHost(GroupHost):
    def __init__(
        self,
        member: Member,
        context: HostContext,
        rng: Random,
        home: Callable[[Endpoint], Address],
        on_frame: OnFrame,
        group: int,
    ) -> None:
        super().__init__(member, context, rng, home)
        self._on_frame = on_frame
        self._group = group
        self._begun: set[tuple[object, ...]] = set()  # the view changes and merges that are recorded in the history
        self._outage: Outage | None = None

    # Faults, injected by the world

    def crash(self) -> None:
        self._stop()
        super().crash()

    def pause(self) -> None:
        self._stop()
        super().pause()

    def resume(self) -> None:
        if self.is_alive and self._outage is not None:
            self._outage.end, self._outage = self._world.scheduler.now, None
        super().resume()

    def _stop(self) -> None:
        if self._outage is None:
            self._outage = Outage(self._world.scheduler.now)
            self._world.history.outages.setdefault(self.address, []).append(self._outage)

    # Effects

    def _make_real(self, effect: Effect) -> list[Effect]:
        if not self.is_alive:
            return []
        match effect:
            case Suspected():
                self._record_accusation(AccusationKind.SUSPECTED, effect.peer)
            case FlushTimedOut():
                self._record_accusation(AccusationKind.FLUSH_TIMEOUT, effect.member)
            case MergeUnanswered():
                self._record_accusation(AccusationKind.MERGE_UNANSWERED, *effect.coordinators)
        return super()._make_real(effect)

    def _record_accusation(self, what: AccusationKind, *members: Address) -> None:
        now = self._world.scheduler.now
        self._world.history.events += [Accusation(now, self.address, member, what) for member in members]

    def _transmit(self, to: Address, data: bytes) -> None:
        kind = kind_name(data)
        if kind in ("Prepare", "MergeRequest"):
            self._write_down(decode(self._group, data))
        self._on_frame(self, kind)
        if self.is_alive:
            super()._transmit(to, data)

    def _write_down(self, datagram: DecodedDatagram | Rejection) -> None:
        assert isinstance(datagram, DecodedDatagram)
        now, frame = self._world.scheduler.now, datagram.frame
        if isinstance(frame, Prepare):
            self._began(BeganChange(now, self.address, frame.view, frame.participants), (frame.view, frame.ballot))
        elif isinstance(frame, MergeRequest):
            self._began(BeganMerge(now, self.address), (frame.merge,))

    def _began(self, event: BeganChange | BeganMerge, name: tuple[object, ...]) -> None:
        if name not in self._begun:
            self._begun.add(name)
            self._world.history.events.append(event)
