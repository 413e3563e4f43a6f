"""The group's channel: reliable multicast with total order riding on it, as one thing that a view change can flush.

What the streams deliver goes through the ordering at once, and what the ordering wants to send rides on our stream; so
the two are always in the same view. The engine of membership drives `freeze` to `begin_view` and knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.core.counters import Counters
from motet.core.effects import Channel, Deliver, Effect, Frame, Transmit
from motet.core.identity import Address
from motet.core.view import View
from motet.multicast import Multicast, MulticastConfig
from motet.ordering import OrderingConfig, TotalOrder
from motet.window.digest import Cut, DigestEntry
from motet.wire.body import Port

Cuts = Mapping[Address, Cut[Address]]


class GroupChannel:
    def __init__(
        self, local: Address, multicast: MulticastConfig, ordering: OrderingConfig | None, counters: Counters
    ) -> None:
        self.multicast = Multicast(local, multicast, counters)
        self.ordering = TotalOrder(local, ordering, counters) if ordering is not None else None
        if self.ordering is not None:
            self.multicast.sender.rider = self.ordering
            self.ordering.is_barred = lambda: self.multicast.sender.has_marker_waiting

    def start(self, view: View, now: int) -> list[Effect]:
        """The view of our own that comes before any other."""
        return self.ordering.begin_view(view, None, now) if self.ordering is not None else []

    # What the application asks for

    def send(self, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        return self._ordered(self.multicast.send(messages, now, port), now)

    def send_ordered(self, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        assert self.ordering is not None
        self.ordering.send(messages, port)
        return self._ordered(self.multicast.pump(now), now)

    def mark(self, data: bytes, now: int) -> list[Effect]:
        """A marker: behind all that was accepted for the plain stream, before all that is ordered from now on."""
        return self.send((data,), now, Port.SNAPSHOT)

    def leave(self, now: int) -> list[Effect]:
        effects = self.multicast.leave(now)
        return effects + self.ordering.leave() if self.ordering is not None else effects

    def hold(self) -> None:
        self.multicast.hold()

    def release(self, now: int) -> list[Effect]:
        return self._ordered(self.multicast.release(now), now)

    # What the network and the clock bring

    def receive(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        return self._ordered(self.multicast.receive(source, frames, now), now)

    def receive_order(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        assert self.ordering is not None
        effects = [effect for frame in frames for effect in self.ordering.receive(source, frame, now)]
        return effects + self._ordered([], now)

    def tick(self, now: int) -> list[Effect]:
        effects = self._ordered(self.multicast.tick(now), now)
        return effects + self.ordering.tick(now) if self.ordering is not None else effects

    def next_deadline(self) -> int | None:
        ordering_due = self.ordering.next_deadline() if self.ordering is not None else None
        return min((due for due in (self.multicast.next_deadline(), ordering_due) if due is not None), default=None)

    # A flush

    def freeze(self) -> dict[Address, DigestEntry]:
        return self.multicast.freeze()

    def fetch(self, cut: Cuts, now: int) -> list[Effect]:
        return self._ordered(self.multicast.fetch(cut, now), now)

    def is_complete(self, cut: Cuts) -> bool:
        return self.multicast.is_complete(cut)

    def thaw(self, now: int) -> list[Effect]:
        return self._ordered(self.multicast.thaw(now), now)

    @property
    def position(self) -> int:
        return self.ordering.position if self.ordering is not None else 0

    def position_after(self, cut: Cuts, *, goes_on: bool) -> int:
        undelivered = self.multicast.undelivered(cut)
        return self.ordering.position_after(undelivered, goes_on=goes_on) if self.ordering is not None else 0

    def end_view(self, cut: Cuts, *, goes_on: bool) -> list[Effect]:
        effects = self.multicast.end_view(cut)
        if self.ordering is None:
            return effects
        taken = [effect for effect in self._taken(effects, 0) if not isinstance(effect, Transmit)]  # no more proposals
        return taken + self.ordering.end_view(goes_on=goes_on)

    def begin_view(self, view: View, digest: Mapping[Address, int], position: int | None, now: int) -> list[Effect]:
        effects = self.ordering.begin_view(view, position, now) if self.ordering is not None else []
        return effects + self._ordered(self.multicast.begin_view(view.members, digest, now, view.id.tag), now)

    # Between the two

    def _ordered(self, effects: list[Effect], now: int) -> list[Effect]:
        """What the streams deliver, as the ordering lets it through; and what has become ready to leave, leaves."""
        if self.ordering is None:
            return effects
        made = self._taken(effects, now)
        while self.ordering.is_eager and (sent := self.multicast.pump(now)):
            made += self._taken(sent, now)
        return made + self.ordering.admission()

    def _taken(self, effects: list[Effect], now: int) -> list[Effect]:
        assert self.ordering is not None
        made: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Deliver) and effect.channel is Channel.MULTICAST:
                made += self.ordering.take(effect.sender, effect.bodies, now)
            else:
                made.append(effect)
        return made

    def _check(self) -> None:
        self.multicast._check()
        if self.ordering is not None:
            self.ordering._check()
