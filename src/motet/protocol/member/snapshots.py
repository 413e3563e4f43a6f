"""The adapter between snapshots and channels: deliveries are recorded on their way up, markers sent into the channels.

Without membership there are no views, so no snapshot can be taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from motet.errors import TooManyPeersError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.member.channel import GroupChannel
from motet.protocol.member.delivery import Delivered
from motet.protocol.ordering import TotalOrder
from motet.protocol.snapshot import SnapshotId, Snapshots
from motet.protocol.snapshot.config import SnapshotConfig
from motet.protocol.snapshot.machine import SendMarker, SendSnapshotMessage
from motet.protocol.snapshot.participation import LocalState
from motet.protocol.unicast import Unicast
from motet.protocol.wire.body import Port, split
from motet.protocol.wire.snapshot import HeldBackFrame, Retransmitted, StreamKind, StreamWindow, Waiting


@dataclass(slots=True)
class SnapshotAdapter:
    local: Address
    unicast: Unicast
    channel: GroupChannel
    counters: Counters
    machine: Snapshots

    @classmethod
    def of(
        cls, local: Address, unicast: Unicast, channel: GroupChannel, config: SnapshotConfig, counters: Counters
    ) -> SnapshotAdapter:
        return cls(local, unicast, channel, counters, Snapshots(local, config, counters))

    def hand_up(self, delivered: Iterable[Delivered], now: int) -> list[Effect]:
        """Pass application messages on, recorded; messages of the snapshot protocol go to its machine only.

        An ordered message is passed on whatever its port: it has a position in the log, and markers are never ordered.
        """
        effects: list[Effect] = []
        for batch in delivered:
            if batch.port == Port.SNAPSHOT and batch.channel is not Channel.TOTAL:
                for message in batch.messages:
                    effects += self.machine.receive(batch.channel, batch.sender, message, now)
                continue
            effects.append(batch)
            if self.machine.is_recording:
                effects += self._record(batch, now)
        return effects

    def _record(self, batch: Delivered, now: int) -> list[Effect]:
        """Record frame by frame, because the recording of ordered frames may end after any of them."""
        if batch.channel is not Channel.TOTAL or len(batch.bodies) < 2:
            return self.machine.record(batch.channel, batch.sender, batch.port, batch.messages, batch.first, now)
        effects: list[Effect] = []
        for frame_id, body in enumerate(batch.bodies, batch.first):
            effects += self.machine.record(batch.channel, batch.sender, batch.port, split(body), frame_id, now)
        return effects

    def supply(
        self, snapshot: SnapshotId, state: bytes, unsent: Sequence[Waiting], members: Iterable[Address], now: int
    ) -> list[Effect]:
        return self.machine.supply(snapshot, state, self._local_state(unsent, members, now), now)

    def settle(self, now: int) -> list[Effect]:
        """Call when all effects of the machines so far have been performed."""
        if not self.machine.is_recording:
            return []
        ordering = self.channel.ordering
        return self.machine.settle(ordering.delivered_ids() if ordering is not None else {}, now)

    def mark(self, effect: SendMarker, members: Iterable[Address], now: int) -> list[Effect]:
        """Send markers into all outgoing channels at once, with no other message in between."""
        effects = self.channel.mark(effect.data, now)
        for member in members:
            if member != self.local or effect.to_itself:
                effects += self.send_to(SendSnapshotMessage(member, effect.data), now)
        return effects

    def send_to(self, effect: SendSnapshotMessage, now: int) -> list[Effect]:
        try:
            return self.unicast.send(effect.to, (effect.data,), now, Port.SNAPSHOT)
        except TooManyPeersError:
            self.counters[Count.CONNECTION_REFUSED] += 1  # The initiator notices by its timeout.
            return []

    # The local state of this member

    def _local_state(self, unsent: Sequence[Waiting], members: Iterable[Address], now: int) -> LocalState:
        ordering = self.channel.ordering
        windows = tuple(self._windows(members))
        talks_to_itself = self.unicast.sender(self.local) is not None
        if ordering is None:
            return LocalState(now, windows=windows, waiting=tuple(unsent), talks_to_itself=talks_to_itself)
        waiting = [Waiting(Channel.TOTAL, NOBODY, port, payload) for port, payload in ordering.waiting()]
        return LocalState(
            now + ordering.wall_offset_ns,
            ordering.position,
            ordering.stable,
            windows,
            tuple(self._held_back()),
            (*waiting, *unsent),
            ordering.sent,
            talks_to_itself,
            tuple(_retransmitted(ordering)),
        )

    def _windows(self, members: Iterable[Address]) -> Iterator[StreamWindow]:
        digest = self.channel.multicast.digest()
        for member in members:
            name = member.incarnation
            if (entry := digest.get(member)) is not None:
                yield StreamWindow(StreamKind.MULTICAST, name, entry.low, entry.delivered, entry.received)
            if (sender := self.unicast.sender(member)) is not None:
                low, high = sender.window.low, sender.window.high
                yield StreamWindow(StreamKind.UNICAST_TO, name, low, high, high)
            if (receiver := self.unicast.receiver(member)) is not None:
                window = receiver.window
                yield StreamWindow(StreamKind.UNICAST_FROM, name, window.low, window.delivered, window.high)

    def _held_back(self) -> Iterator[HeldBackFrame]:
        """The frames in the hold-back queue, in their order."""
        ordering = self.channel.ordering
        assert ordering is not None
        for one in sorted(ordering.queue, key=lambda pending: pending.key):
            sender = ordering.members[one.sender].incarnation
            yield HeldBackFrame(sender, one.id, one.number.number, one.number.proposer, one.is_decided, len(one.body))


def _retransmitted(ordering: TotalOrder) -> Iterator[Retransmitted]:
    for sending in ordering.retransmissions():
        yield Retransmitted(sending.frame, sending.id, tuple(to.incarnation for to in sending.recipients))
