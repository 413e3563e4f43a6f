"""Delivery: bodies become messages, which a joiner buffers while it waits for the application's state.

Invariant: messages of one sender on one channel are delivered in the order of their frames.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from itertools import groupby

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Channel, Deliver, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.record import record
from motet.protocol.wire.body import Port, port_of
from motet.protocol.wire.reassembler import Reassembler


@record
class Delivered(Effect):
    """Messages of one sender, in order, for the application."""

    channel: Channel
    sender: Address
    messages: Sequence[bytes]  # Must not be changed.
    position: int | None = None  # Log position of the first message; the others follow it.
    port: int = Port.APP
    first: int = field(default=0, compare=False)  # Seqno of the first body; for an ordered one, its id in this view.
    bodies: tuple[bytes, ...] = field(default=(), compare=False, repr=False)  # The encoded form that a journal stores.
    sent_at: tuple[int, ...] = field(default=(), compare=False)  # When each ordered body was sent.
    tag: tuple[int, int] | None = None
    is_replayed: bool = False  # Read from a journal instead of received from the group.


@record
class Superseded(Effect):
    """Own ordered messages that were buffered and are not delivered, because the incoming state contains them."""

    position: int
    count: int


class Delivery:
    def __init__(self, buffer_bytes: int, counters: Counters) -> None:
        self._limit_bytes = buffer_bytes
        self._counters = counters
        self._reassemblers: dict[tuple[Channel, Address], Reassembler] = {}
        self._buffered: list[Delivered] = []
        self._buffered_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the buffer is over its limit, so that deliveries must pause."""
        return self._buffered_bytes > self._limit_bytes

    def take(self, effect: Deliver, *, is_buffering: bool) -> list[Delivered]:
        delivered = self._unpack(effect)
        if not is_buffering:
            return delivered
        self._buffered += delivered
        self._buffered_bytes += sum(len(body) for batch in delivered for body in batch.bodies)
        return []

    def take_buffered(self) -> list[Delivered]:
        released, self._buffered, self._buffered_bytes = self._buffered, [], 0
        return released

    def retain(self, senders: Collection[Address], *channels: Channel) -> None:
        """Drop unfinished messages of all other senders on these channels."""
        for key in [key for key in self._reassemblers if key[0] in channels and key[1] not in senders]:
            del self._reassemblers[key]

    def drop(self, sender: Address) -> None:
        for channel in Channel:
            self._reassemblers.pop((channel, sender), None)

    def _unpack(self, effect: Deliver) -> list[Delivered]:
        """One batch per run of bodies of one port. An ordered body makes a batch even if it completes no message."""
        key = (effect.channel, effect.sender)
        reassembler = self._reassemblers.get(key)
        if reassembler is None:
            reassembler = self._reassemblers[key] = Reassembler()
        batches: list[Delivered] = []
        first, is_total = effect.first, effect.channel is Channel.TOTAL
        runs = _runs(effect.bodies) if len(effect.bodies) > 1 else ((port_of(effect.bodies[0]), effect.bodies),)
        for port, bodies in runs:
            messages = reassembler.take(first, bodies)
            if messages or is_total:
                place = (effect.position, port, first, bodies, effect.sent_at, effect.tag)
                batches.append(Delivered(effect.channel, effect.sender, messages, *place))
            first += len(bodies)
        if reassembler.incoherent:
            self._counters[Count.BODY_INCOHERENT] += reassembler.incoherent
            reassembler.incoherent = 0
        return batches


def _runs(bodies: tuple[bytes, ...]) -> Iterable[tuple[int, tuple[bytes, ...]]]:
    """Group consecutive bodies by port; nearly always all have the same."""
    return ((port, tuple(run)) for port, run in groupby(bodies, port_of))
