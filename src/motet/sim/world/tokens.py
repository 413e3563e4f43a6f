"""The accounting workload: every process owns tokens and moves them to others, by each kind of channel.

A message says how many tokens it carries and for whom. Its sender takes them out of its own account when the message is
accepted, and the one it is for, and no other process, puts them into its own when it is delivered. So at any moment
every token is in an account or in flight, and a snapshot must find each token once.

The application reacts to deliveries at once and sends some of the tokens on. Some applications lag behind their member,
as an application on a thread of its own does: the effects of the member wait in a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from motet.errors import LeftGroupError, SnapshotRunningError
from motet.protocol.core.effects import Channel, Effect, SendFailed
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import MILLISECOND
from motet.protocol.member import Datagram, Delivered, Member
from motet.protocol.snapshot import RecordState, SnapshotFailed, SnapshotTaken
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import EndedSnapshot, MessageStream, RecordedState, StartedSnapshot
from motet.sim.world.host import HostContext
from motet.sim.world.order_host import OrderedHost

ENDOWMENT = 1_000  # what every process owns when it starts
MOST_MOVED = 20  # by one message
MOST_LAG_NS = 20 * MILLISECOND
MOST_HOPS = 3


class Transfer(NamedTuple):
    number: int  # unique in the world
    amount: int
    to: int  # incarnation
    hops: int  # how often the tokens may be sent on

    def encode(self, size: int) -> bytes:
        return f"{self.number} {self.amount} {self.to} {self.hops} ".encode().ljust(size, b".")


def transfer_in(payload: bytes) -> Transfer | None:
    """The transfer that a payload carries; None if it carries none."""
    parts = payload.split(b" ")
    return Transfer(*map(int, parts[:4])) if len(parts) == 5 and all(part.isdigit() for part in parts[:4]) else None


class TokenHost(OrderedHost):
    def __init__(
        self,
        member: Member,
        context: HostContext,
        rng: Random,
        home: Callable[[Endpoint], Address],
        watch: Callable[[GroupHost], None] | None,
        next_number: Callable[[], int],
    ) -> None:
        super().__init__(member, context, rng, home, watch, waits_for_disk=False)
        self.balance = ENDOWMENT
        self._choices = Random(f"tokens {member.address}")
        self._next_number = next_number
        self._lag_ns = self._choices.choice([0, 0, self._choices.randrange(1, MOST_LAG_NS)])
        self._queue: deque[Effect] = deque()  # effects that the application has not handled yet
        if self._lag_ns:
            context.history.lagging.add(member.address)

    # Actions of the application

    def move(self, channel: Channel, to: Address, sizes: tuple[int, ...], hops: int = MOST_HOPS) -> None:
        self._perform(self._move(channel, to, sizes, hops))

    def _move(self, channel: Channel, to: Address, sizes: tuple[int, ...], hops: int) -> list[Effect]:
        transfers = []
        left = self.balance
        for _ in sizes:
            amount = min(left, self._choices.randrange(1, MOST_MOVED))
            transfers.append(Transfer(self._next_number(), amount, to.incarnation, hops))
            left -= amount
        stream = MessageStream(channel, self.address, to if channel is Channel.UNICAST else None)
        messages = [transfer.encode(size) for transfer, size in zip(transfers, sizes, strict=True)]
        try:
            effects = self._accepted(stream, messages)
        except LeftGroupError:
            return []
        if effects is not None:
            self.balance = left
        return effects or []

    def start_snapshot(self) -> None:
        if not self.is_alive or self.is_paused or self.has_left:
            return
        try:
            snapshot, effects = self.member.start_snapshot(self.clock)
        except SnapshotRunningError:
            return
        self._world.history.events.append(StartedSnapshot(self._world.scheduler.now, self.address, snapshot))
        self.note(f"starts snapshot {snapshot}")
        self._perform(effects)

    # Effects

    def _perform(self, effects: list[Effect]) -> None:
        if not self._lag_ns:
            super()._perform(effects)
            return
        for_the_application = [effect for effect in effects if not isinstance(effect, Datagram | SendFailed)]
        if for_the_application and not self._queue:
            self._world.scheduler.after(self._lag_ns, self._catch_up)
        self._queue.extend(for_the_application)
        super()._perform([effect for effect in effects if isinstance(effect, Datagram | SendFailed)])

    def _catch_up(self) -> None:
        """Handle every waiting effect in order. New effects of the member wait in turn, unless they go to the
        network.
        """
        if self.is_paused:
            self._world.scheduler.after(MILLISECOND, self._catch_up)
            return
        waiting, self._queue = self._queue, deque()
        for effect in waiting:
            if self.is_alive:
                self._perform(self._make_real(effect))
        super()._perform([])

    def _make_real(self, effect: Effect) -> list[Effect]:
        match effect:
            case RecordState():
                return self._record_state(effect)
            case SnapshotTaken():
                ended = EndedSnapshot(self._world.scheduler.now, self.address, effect.snapshot, effect.reports)
                self._world.history.events.append(ended)
                self.note(f"has snapshot {effect.snapshot}")
            case SnapshotFailed():
                now = self._world.scheduler.now
                ended = EndedSnapshot(now, self.address, effect.snapshot, None, effect.reason)
                self._world.history.events.append(ended)
                self.note(f"has no snapshot {effect.snapshot}: {effect.reason}")
            case Delivered():
                return super()._make_real(effect) + self._credit(effect)
            case _:
                return super()._make_real(effect)
        return []

    def _record_state(self, effect: RecordState) -> list[Effect]:
        accepted = self._world.history.accepted
        sent = {stream: len(messages) for stream, messages in accepted.items() if stream.sender == self.address}
        now = self._world.scheduler.now
        self._world.history.events.append(RecordedState(now, self.address, effect.snapshot, sent))
        self.note(f"owns {self.balance} for snapshot {effect.snapshot}")
        return self.member.supply_snapshot_state(effect.snapshot, str(self.balance).encode(), self.clock)

    def _credit(self, delivered: Delivered) -> list[Effect]:
        effects: list[Effect] = []
        for message in delivered.messages:
            transfer = transfer_in(message)
            if transfer is not None and transfer.to == self.address.incarnation:
                self.balance += transfer.amount
                if transfer.hops and self._choices.random() < 0.5:
                    effects += self._send_on(transfer)
        return effects

    def _send_on(self, transfer: Transfer) -> list[Effect]:
        if self.is_leaving:
            return []
        to = self._choices.choice(self.member.members)
        channel = self._choices.choice(list(Channel))
        return self._move(channel, to, (self._choices.randrange(1, 100),), transfer.hops - 1)
