"""A simulated process that can be struck in the middle of a step, and that writes down whom it blames.

A crash between two datagrams of one step lets the first out and nothing after it: no datagram, no delivery, no view.
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
from motet.sim.world.history import BeganChange, BeganMerge, Blame, Blamed, Outage
from motet.sim.world.host import Surroundings

Overhear = Callable[[GroupHost, str], None]  # called with the kind of each frame before it is carried


class InterruptedHost(GroupHost):
    def __init__(
        self,
        member: Member,
        surroundings: Surroundings,
        rng: Random,
        home: Callable[[Endpoint], Address],
        overhear: Overhear,
        group: int,
    ) -> None:
        super().__init__(member, surroundings, rng, home)
        self._overhear = overhear
        self._group = group
        self._begun: set[tuple[object, ...]] = set()  # the changes and merges that were written down
        self._outage: Outage | None = None

    # What the world does to it

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

    # What it does

    def _make_real(self, effect: Effect) -> list[Effect]:
        if not self.is_alive:
            return []
        match effect:
            case Suspected():
                self._blame(Blame.SUSPECTED, effect.peer)
            case FlushTimedOut():
                self._blame(Blame.ACCUSED, effect.member)
            case MergeUnanswered():
                self._blame(Blame.UNANSWERED, *effect.coordinators)
        return super()._make_real(effect)

    def _blame(self, what: Blame, *members: Address) -> None:
        now = self._world.scheduler.now
        self._world.history.events += [Blamed(now, self.address, member, what) for member in members]

    def _transmit(self, to: Address, data: bytes) -> None:
        kind = kind_name(data)
        if kind in ("Prepare", "MergeRequest"):
            self._write_down(decode(self._group, data))
        self._overhear(self, kind)
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
