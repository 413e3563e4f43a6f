"""The group channel: reliable multicast with total order on top, as one unit that a view change can flush.

Bodies that the streams deliver pass through total order at once, and bodies of total order are sent in the own stream,
so both are always in the same view. Membership drives `freeze` to `begin_view` and knows neither of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.protocol.core.counters import Counters
from motet.protocol.core.effects import Broadcast, Channel, Deliver, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.multicast import Multicast, MulticastConfig
from motet.protocol.ordering import OrderingConfig, PlainStream, TotalOrder
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.wire.body import Port
from motet.protocol.wire.frames import AgreedNumbers, LogCheckpoint
from motet.protocol.wire.ordered import Tag

Cuts = Mapping[Address, Cut[Address]]


class _Stream(PlainStream):
    """The reliable multicast as total order sees it."""

    def __init__(self, multicast: Multicast) -> None:
        self._multicast = multicast

    @property
    def is_barred(self) -> bool:
        return self._multicast.sender.has_marker_waiting

    @property
    def sent(self) -> int:
        return self._multicast.sender.window.high

    def delivered(self, member: Address) -> int:
        receiver = self._multicast.receiver(member)
        return self._multicast.sender.window.delivered if receiver is None else receiver.window.delivered


class GroupChannel:
    def __init__(
        self, local: Address, multicast: MulticastConfig, ordering: OrderingConfig | None, counters: Counters
    ) -> None:
        self.multicast = Multicast(local, multicast, counters)
        self.ordering = TotalOrder(local, ordering, counters) if ordering is not None else None
        if self.ordering is not None:
            self.multicast.sender.piggyback = self.ordering
            self.ordering.run_beside(_Stream(self.multicast))

    def start(self, view: View, now: int) -> list[Effect]:
        """Enter the initial view, which has only this member."""
        return self.ordering.begin_view(view, now) if self.ordering is not None else []

    # What the application asks for

    def send(self, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        return self._ordered(self.multicast.send(messages, now, port), now)

    def send_ordered(self, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        assert self.ordering is not None
        self.ordering.send(messages, port)
        return self._ordered(self.multicast.pump(now), now)

    def send_tagged(self, tag: Tag, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        assert self.ordering is not None
        self.ordering.send_tagged(*tag, messages, port)
        return self._ordered(self.multicast.pump(now), now)

    def mark(self, data: bytes, now: int) -> list[Effect]:
        """Send a marker after all plain messages accepted so far, and before any frame ordered from now on."""
        return self.send((data,), now, Port.SNAPSHOT)

    def leave(self, now: int) -> list[Effect]:
        effects = self.multicast.leave(now)
        return effects + self.ordering.leave() if self.ordering is not None else effects

    def pause(self) -> None:
        self.multicast.pause()
        if self.ordering is not None:
            self.ordering.pause()

    def resume(self, now: int) -> list[Effect]:
        effects = self.ordering.resume(now) if self.ordering is not None else []
        return effects + self._ordered(self.multicast.resume(now), now)

    def persisted(self, position: int, now: int) -> None:
        if self.ordering is not None:
            self.ordering.persisted(position, now)

    # Frames and time

    def receive(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        """Handle frames of reliable multicast. Call `advance` after the last ones of a batch."""
        effects = self.multicast.receive(source, frames, now)
        return effects if self.ordering is None else self._absorbed(effects)

    def receive_order(self, source: Address, frames: Sequence[Frame]) -> list[Effect]:
        """Handle frames of total order. Call `advance` after the last ones of a batch."""
        assert self.ordering is not None
        return [effect for frame in frames for effect in self.ordering.receive_frame(source, frame)]

    def advance(self, now: int) -> list[Effect]:
        """Make progress after an input: announce agreed numbers, deliver, send."""
        return self._ordered([], now)

    def tick(self, now: int) -> list[Effect]:
        effects = self._ordered(self.multicast.tick(now), now)
        if self.ordering is None:
            return effects
        return effects + self.ordering.tick(now) + self._ordered([], now)

    def next_deadline(self) -> int | None:
        first = self.multicast.next_deadline()
        due = self.ordering.next_deadline() if self.ordering is not None else None
        return due if first is None or (due is not None and due < first) else first

    # A flush

    def freeze(self) -> tuple[dict[Address, DigestEntry], AgreedNumbers]:
        agreed = self.ordering.freeze() if self.ordering is not None else ()
        return self.multicast.freeze(), agreed

    def fetch(self, cut: Cuts, now: int) -> list[Effect]:
        return self._ordered(self.multicast.fetch(cut, now), now)

    def is_complete(self, cut: Cuts) -> bool:
        return self.multicast.is_complete(cut)

    def is_within(self, cut: Cuts) -> bool:
        return self.multicast.is_within(cut)

    def thaw(self, now: int) -> list[Effect]:
        effects = self.ordering.thaw(now) if self.ordering is not None else []
        return effects + self._ordered(self.multicast.thaw(now), now)

    @property
    def position(self) -> int:
        return self.ordering.position if self.ordering is not None else 0

    @property
    def is_caught_up(self) -> bool:
        return self.ordering is None or self.ordering.is_caught_up

    def log_after(self, cut: Cuts, agreed: AgreedNumbers = (), *, log_continues: bool) -> LogCheckpoint:
        if self.ordering is None:
            return LogCheckpoint()
        return self.ordering.log_after(self.multicast.undelivered(cut), log_continues=log_continues, agreed=agreed)

    def end_view(self, cut: Cuts, agreed: AgreedNumbers = (), *, log_continues: bool) -> list[Effect]:
        effects = self.multicast.end_view(cut)
        if self.ordering is None:
            return effects
        self.ordering.freeze()
        made = self._absorbed(effects) + self.ordering.advance(0)
        # The view has ended, so proposals for its frames must not be sent any more.
        taken = [effect for effect in made if not isinstance(effect, Transmit | Broadcast)]
        return taken + self.ordering.end_view(log_continues=log_continues, agreed=agreed)

    def take_over(self, log: LogCheckpoint) -> list[Effect]:
        """Continue the others' log, for a member that comes from another view. Called before `begin_view`."""
        return self.ordering.take_over(log) if self.ordering is not None else []

    def begin_view(self, view: View, digest: Mapping[Address, int], now: int) -> list[Effect]:
        effects = self.ordering.begin_view(view, now) if self.ordering is not None else []
        return effects + self._ordered(self.multicast.begin_view(view.members, digest, now, view.id.tag), now)

    # Between multicast and total order

    def _ordered(self, effects: list[Effect], now: int) -> list[Effect]:
        """Pass deliveries through total order, and send what that makes ready, until nothing more changes."""
        if self.ordering is None:
            return effects
        made = (self._absorbed(effects) if effects else []) + self.ordering.advance(now)
        while self.ordering.is_eager and (sent := self.multicast.pump(now)):
            made += self._absorbed(sent)
            made += self.ordering.advance(now)
        return made + self.ordering.admission()

    def _absorbed(self, effects: list[Effect]) -> list[Effect]:
        assert self.ordering is not None
        made: list[Effect] = []
        for effect in effects:
            if type(effect) is Deliver and effect.channel is Channel.MULTICAST:
                made += self.ordering.absorb(effect.sender, effect.bodies)
            else:
                made.append(effect)
        return made

    def _check(self) -> None:
        self.multicast._check()
        if self.ordering is not None:
            self.ordering._check()
