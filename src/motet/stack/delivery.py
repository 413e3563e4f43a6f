"""Delivery: bodies become messages, once, and a member that still waits for the application's state keeps them back.

Invariant: messages of one sender on one channel leave in the order in which their frames were delivered.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from motet.core.counters import Count, Counters
from motet.core.effects import Channel, Deliver, Effect
from motet.core.identity import Address
from motet.wire.reassembler import Reassembler


@dataclass(frozen=True, slots=True)
class Delivered(Effect):
    """Messages of one sender, in order, for the application."""

    channel: Channel
    sender: Address
    messages: tuple[bytes, ...]
    position: int | None = None  # in the log, of the first of them; the others follow it


class Delivery:
    def __init__(self, buffer_bytes: int, counters: Counters) -> None:
        self._buffer_bytes = buffer_bytes
        self._counters = counters
        self._reassemblers: dict[tuple[Channel, Address], Reassembler] = {}
        self._kept: list[Delivered] = []
        self._kept_bytes = 0

    @property
    def is_full(self) -> bool:
        """More is kept back than we want to hold: senders must wait."""
        return self._kept_bytes > self._buffer_bytes

    def take(self, effect: Deliver, *, keep_back: bool) -> list[Effect]:
        delivered = self._unpack(effect)
        if delivered is None:
            return []
        if not keep_back:
            return [delivered]
        self._kept.append(delivered)
        self._kept_bytes += sum(map(len, delivered.messages))
        return []

    def release(self) -> list[Delivered]:
        released, self._kept, self._kept_bytes = self._kept, [], 0
        return released

    def retain(self, senders: Collection[Address], *channels: Channel) -> None:
        """Only these can go on with a message that has begun on these channels."""
        for key in [key for key in self._reassemblers if key[0] in channels and key[1] not in senders]:
            del self._reassemblers[key]

    def drop(self, sender: Address) -> None:
        for channel in Channel:
            self._reassemblers.pop((channel, sender), None)

    def _unpack(self, effect: Deliver) -> Delivered | None:
        key = (effect.channel, effect.sender)
        reassembler = self._reassemblers.get(key)
        if reassembler is None:
            reassembler = self._reassemblers[key] = Reassembler()
        messages = reassembler.take(effect.first, effect.bodies)
        if reassembler.incoherent:
            self._counters[Count.BODY_INCOHERENT] += reassembler.incoherent
            reassembler.incoherent = 0
        return Delivered(effect.channel, effect.sender, messages, effect.position) if messages else None
