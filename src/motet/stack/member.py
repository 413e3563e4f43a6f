"""One member, sans-IO: datagrams in, datagrams and delivered messages out. The driver and the simulator run this class.

The member decodes, finds out who is speaking, hands batches of frames to the machines, and turns their effects into
datagrams and messages. It decides nothing about protocols. Application messages are split out of their frames here,
once, at delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from motet.core.counters import Count, Counters
from motet.core.effects import Broadcast, Channel, Deliver, Effect, Frame, Transmit
from motet.core.identity import NOBODY, Address
from motet.core.serial import SERIAL_MODULUS
from motet.errors import MisuseError
from motet.multicast import Multicast
from motet.multicast.machine import FRAMES as MULTICAST_FRAMES
from motet.stack.config import MemberConfig
from motet.unicast import Unicast
from motet.unicast.machine import FRAMES as UNICAST_FRAMES
from motet.wire.codec import Envelope, decode, encode, group_id
from motet.wire.reassembler import Reassembler

CHANNEL_FRAMES = UNICAST_FRAMES + MULTICAST_FRAMES


@dataclass(frozen=True, slots=True)
class Datagram(Effect):
    """Bytes to put on the network, the same for every receiver."""

    to: tuple[Address, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Delivered(Effect):
    """Messages of one sender, in order, for the application."""

    channel: Channel
    sender: Address
    messages: tuple[bytes, ...]


class Member:
    def __init__(self, address: Address, group: str, config: MemberConfig, rng: Random) -> None:
        self.address = address
        self.counters = Counters()
        self.unicast = Unicast(address, config.unicast_sized, self.counters, rng.randrange(SERIAL_MODULUS))
        self.multicast = Multicast(address, config.multicast_sized, self.counters)
        self._group = group_id(group)
        self._known: dict[int, Address] = {address.incarnation: address}
        self._view: tuple[Address, ...] = (address,)
        self._reassemblers: dict[tuple[Channel, Address], Reassembler] = {}

    @property
    def view(self) -> tuple[Address, ...]:
        return self._view

    # What the application and membership ask for

    def learn(self, address: Address) -> None:
        """Whoever is introduced can be heard; frames of anybody else are dropped."""
        self._known[address.incarnation] = address

    def forget(self, address: Address, now: int) -> list[Effect]:
        """The process is gone for good: release whoever waits for it, and drop what is kept of it."""
        if address == self.address or address in self._view:
            raise MisuseError(f"{address} is in the view; install a view without it first")
        self._known.pop(address.incarnation, None)
        self.multicast.forget(address)
        effects = self._perform(self.unicast.remove(address, now))
        for channel in Channel:
            self._reassemblers.pop((channel, address), None)
        return effects

    def send(self, to: Address, messages: Sequence[bytes], now: int) -> list[Effect]:
        return self._perform(self.unicast.send(to, messages, now))

    def multicast_messages(self, messages: Sequence[bytes], now: int) -> list[Effect]:
        return self._perform(self.multicast.send(messages, now))

    def install_view(self, members: Sequence[Address], digest: Mapping[Address, int], now: int) -> list[Effect]:
        effects = self.multicast.install_view(members, digest, now)
        self._view = tuple(members)
        for address in members:
            self.learn(address)
        for key in [key for key in self._reassemblers if key[0] is Channel.MULTICAST and key[1] not in members]:
            del self._reassemblers[key]
        return self._perform(effects)

    def sync(self, peer: Address, now: int) -> list[Effect]:
        return self._perform(self.unicast.sync(peer, now))

    def close(self, peer: Address, now: int) -> list[Effect]:
        """Begin to close the unicast connections with `peer`; what is unacked is flushed first."""
        return self._perform(self.unicast.close(peer, now))

    def close_receiver(self, peer: Address, now: int, *, remember: bool = True) -> list[Effect]:
        """Drop the unicast receive window for `peer`; if it goes on sending, a SYNC brings the two in step again."""
        return self._perform(self.unicast.close_receiver(peer, now, remember=remember))

    def hold(self) -> None:
        """The application is not ready for more: deliver nothing, and let the windows push back on the senders."""
        self.unicast.hold()
        self.multicast.hold()

    def release(self, now: int) -> list[Effect]:
        return self._perform(self.unicast.release(now) + self.multicast.release(now))

    def leave(self, now: int) -> list[Effect]:
        return self._perform(self.multicast.leave(now))

    # What the driver brings

    def receive(self, datagrams: Sequence[bytes], now: int) -> list[Effect]:
        """All datagrams of one wake-up; runs of frames of one peer for one machine are handled as one batch."""
        effects: list[Effect] = []
        batch: list[Frame] = []
        previous: tuple[Address, bool] | None = None
        for datagram in datagrams:
            admitted = self._admit(datagram)
            if admitted is None:
                continue
            source, frame = admitted
            key = (source, isinstance(frame, MULTICAST_FRAMES))
            if key != previous and previous is not None:
                effects += self._machine(previous[1])(previous[0], batch, now)
                batch = []
            previous = key
            batch.append(frame)
        if previous is not None:
            effects += self._machine(previous[1])(previous[0], batch, now)
        return self._perform(effects)

    def tick(self, now: int) -> list[Effect]:
        return self._perform(self.unicast.tick(now) + self.multicast.tick(now))

    def next_deadline(self) -> int | None:
        deadlines = (self.unicast.next_deadline(), self.multicast.next_deadline())
        return min((due for due in deadlines if due is not None), default=None)

    def _admit(self, datagram: bytes) -> tuple[Address, Frame] | None:
        envelope = decode(self._group, datagram)
        if not isinstance(envelope, Envelope):
            self.counters[Count.DATAGRAM_REJECTED] += 1
            return None
        if envelope.destination not in (NOBODY, self.address.incarnation):
            self.counters[Count.NOT_FOR_US] += 1
            return None
        source = self._known.get(envelope.source)
        if source is None:
            self.counters[Count.SOURCE_UNKNOWN] += 1
            return None
        if not isinstance(envelope.frame, CHANNEL_FRAMES):
            self.counters[Count.FRAME_MISPLACED] += 1  # of membership, which this member does not run yet
            return None
        return source, envelope.frame

    def _machine(self, is_multicast: bool) -> Callable[[Address, Sequence[Frame], int], list[Effect]]:
        return self.multicast.receive if is_multicast else self.unicast.receive

    # Effects of the machines, made concrete

    def _perform(self, effects: list[Effect]) -> list[Effect]:
        return [made for effect in effects if (made := self._make_concrete(effect)) is not None]

    def _make_concrete(self, effect: Effect) -> Effect | None:
        match effect:
            case Transmit():
                data = encode(self._group, self.address.incarnation, effect.to.incarnation, effect.frame)
                return Datagram((effect.to,), data)
            case Broadcast():
                others = tuple(member for member in self._view if member != self.address)
                if not others:
                    return None
                return Datagram(others, encode(self._group, self.address.incarnation, NOBODY, effect.frame))
            case Deliver():
                return self._unpack(effect)
        return effect

    def _unpack(self, effect: Deliver) -> Delivered | None:
        key = (effect.channel, effect.sender)
        reassembler = self._reassemblers.get(key)
        if reassembler is None:
            reassembler = self._reassemblers[key] = Reassembler()
        messages = reassembler.take(effect.first, effect.bodies)
        if reassembler.incoherent:
            self.counters[Count.BODY_INCOHERENT] += reassembler.incoherent
            reassembler.incoherent = 0
        return Delivered(effect.channel, effect.sender, messages) if messages else None

    @property
    def held_frames(self) -> int:
        return self.unicast.held_frames + self.multicast.held_frames

    def _check(self) -> None:
        self.unicast._check()
        self.multicast._check()
