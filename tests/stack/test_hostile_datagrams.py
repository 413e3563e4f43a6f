"""100 000 hostile datagrams against a member in the middle of its work.

What can be promised depends on what the datagram claims. Without a key, whoever writes the incarnation of a known
member into a datagram is that member, and can have bytes of its own delivered. So there are two tests:

- whatever is malformed, or of another group, or from or to an incarnation that does not count, changes nothing at all;
- whatever comes from a known source raises nothing, and drives nothing beyond its stated bound.
"""

from __future__ import annotations

import pickle
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from random import Random
from typing import Any

from motet.core.counters import Count, Counters
from motet.core.effects import Channel, Effect, Frame
from motet.core.identity import NOBODY, Address
from motet.core.units import MILLISECOND, SECOND
from motet.errors import BacklogFullError
from motet.multicast import MulticastConfig
from motet.stack import Datagram, Delivered, Member, MemberConfig
from motet.unicast import UnicastConfig
from motet.wire.body import FRAGMENT, FRAGMENT_HEADER, MAX_MESSAGE_BYTES, pack
from motet.wire.codec import HEADER, Envelope, decode, encode, group_id
from motet.wire.frames import (
    Close,
    Highest,
    MulticastAck,
    MulticastData,
    MulticastXmitRequest,
    Purged,
    Ranges,
    Sync,
    SyncAck,
    SyncOk,
    UnicastAck,
    UnicastData,
    UnicastPurged,
    UnicastXmitRequest,
)

FOREIGN = 40_000
FORGED = 60_000
WORLDS = 50
BATCH = 20

GROUP = "orders"
CONFIG = MemberConfig(
    frame_bytes=256,
    unicast=UnicastConfig(
        capacity=8, max_peers=4, remembered_peers=2, conn_expiry_ns=2 * SECOND, conn_close_ns=SECOND, give_up_ns=SECOND
    ),
    multicast=MulticastConfig(capacity=8, early_frames=4),
)
UNKNOWN_KINDS = (0, 99, 200, 255)
REJECTED = (Count.DATAGRAM_REJECTED, Count.NOT_FOR_US, Count.SOURCE_UNKNOWN)
MOST_HOPS = 20_000  # datagrams that may follow from one round of sends, before we call it an endless conversation


class Trio:
    """Three members of one view, joined in memory. The first is the victim; what the others say to it is recorded."""

    def __init__(self, rng: Random, loss: float) -> None:
        self.rng = rng
        self.loss = loss
        self.now = 0
        addresses = [Address.draw(name, "127.0.0.1", 7800 + number, rng) for number, name in enumerate("abc")]
        self.members = {address: Member(address, GROUP, CONFIG, rng) for address in addresses}
        self.victim = self.members[addresses[0]]
        self.outsider = Address.draw("outsider", "127.0.0.1", 7900, rng)  # introduced, but in no view
        self.recorded: deque[bytes] = deque(maxlen=400)
        self.sent: defaultdict[tuple[Channel, Address, Address], list[bytes]] = defaultdict(list)
        self.delivered: defaultdict[tuple[Channel, Address, Address], list[bytes]] = defaultdict(list)
        self._queue: deque[tuple[Address, bytes]] = deque()
        for member in self.members.values():
            self.perform(member, member.install_view(addresses, dict.fromkeys(addresses, 0), self.now))
        self.victim.learn(self.outsider)

    def perform(self, member: Member, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Datagram):
                members = (to for to in effect.to if isinstance(to, Address) and to in self.members)
                self._queue.extend((to, effect.data) for to in members)
            elif isinstance(effect, Delivered):
                self.delivered[effect.channel, effect.sender, member.address] += effect.messages

    def talk(self) -> None:
        """Everyone multicasts, and sends to everyone, itself included: small messages and one that needs fragments."""
        for member in self.members.values():
            messages = [self.rng.randbytes(self.rng.choice((0, 5, 40))) for _ in range(self.rng.randrange(1, 6))]
            messages.append(self.rng.randbytes(600))
            with suppress(BacklogFullError):
                self.perform(member, member.multicast_messages(messages, self.now))
                for to in self.members:
                    self.sent[Channel.MULTICAST, member.address, to] += messages
            for to in self.members:
                with suppress(BacklogFullError):
                    self.perform(member, member.send(to, messages, self.now))
                    self.sent[Channel.UNICAST, member.address, to] += messages
        self.carry()

    def carry(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(MOST_HOPS):
            if not self._queue:
                return
            to, data = self._queue.popleft()
            if to == self.victim.address:
                self.recorded.append(data)
            if self.rng.random() >= self.loss:
                self.perform(self.members[to], self.members[to].receive([data], self.now))
        raise AssertionError(f"the members still answer one another after {MOST_HOPS} datagrams")

    def hold_victim(self, is_held: bool) -> None:
        """With a busy application the victim's windows fill up; with a ready one they move."""
        if is_held:
            self.victim.hold()
        else:
            self.perform(self.victim, self.victim.release(self.now))

    def tick(self, after: int) -> None:
        self.now += after
        for member in self.members.values():
            self.perform(member, member.tick(self.now))
            for _ in range(3):  # what is armed for "at once" may want another tick, but never one more for ever
                if (member.next_deadline() or self.now + 1) <= self.now:
                    self.perform(member, member.tick(self.now))
            assert (member.next_deadline() or self.now + 1) > self.now, "a tick left a deadline in the past"
        self.carry()

    def assert_within_bounds(self) -> None:
        for member in self.members.values():
            member._check()
            unicast, multicast = CONFIG.unicast, CONFIG.multicast
            assert member.unicast.held_frames <= 3 * unicast.max_peers * unicast.capacity
            assert member.multicast.held_frames <= len(self.members) * multicast.capacity + multicast.early_frames
            assert member.held_frames == member.unicast.held_frames + member.multicast.held_frames
            assert len(member.unicast._syncs) <= unicast.max_peers
            assert all(len(pending.kept) <= unicast.capacity for pending in member.unicast._syncs.values())
            sender = member.multicast.sender
            assert all(sender.acks[peer] <= sender.window.high for peer in self.members), "acked what was never sent"
            assert len(member.multicast._repaired) <= len(self.members) * multicast.capacity
            assert len(member._delivery._reassemblers) <= len(Channel) * len(member._known)
            assert all(half.collected_bytes < MAX_MESSAGE_BYTES for half in member._delivery._reassemblers.values())


# Datagrams that do not count, each made out of one that would


def _of_nobody_we_know(data: bytes, trio: Trio) -> bytes:
    return data[:8] + trio.rng.getrandbits(64).to_bytes(8, "little") + data[16:]


def _for_somebody_else(data: bytes, trio: Trio) -> bytes:
    others = [address.incarnation for address in trio.members if address != trio.victim.address]
    return data[:16] + trio.rng.choice([*others, trio.rng.getrandbits(64)]).to_bytes(8, "little") + data[24:]


def _of_another_group(data: bytes, trio: Trio) -> bytes:
    return data[:4] + group_id(f"group {trio.rng.random()}").to_bytes(4, "little") + data[8:]


def _with_another_start(data: bytes, trio: Trio) -> bytes:
    at = trio.rng.randrange(3)  # magic and version
    return data[:at] + bytes([data[at] ^ trio.rng.randrange(1, 256)]) + data[at + 1 :]


def _of_unknown_kind(data: bytes, trio: Trio) -> bytes:
    return data[:3] + bytes([trio.rng.choice(UNKNOWN_KINDS)]) + data[4:]


def _cut_short(data: bytes, trio: Trio) -> bytes:
    return data[: trio.rng.randrange(HEADER.size + 4)]  # no kind has fewer than four bytes of fields


def _drawn_out(data: bytes, trio: Trio) -> bytes:
    """Bytes at the end, too few for one more range; only a fragment could swallow them, so its body loses its kind."""
    envelope = decode(group_id(GROUP), data)
    assert isinstance(envelope, Envelope)
    body: bytes = getattr(envelope.frame, "body", b"\x00")
    if body[0] == FRAGMENT:
        return data[: len(data) - len(body)] + b"\x00" + body[1:]
    return data + trio.rng.randbytes(trio.rng.randrange(1, 16))


def _of_random_bytes(data: bytes, trio: Trio) -> bytes:
    return trio.rng.randbytes(trio.rng.randrange(300))


FOREIGN_MAKERS: tuple[Callable[[bytes, Trio], bytes], ...] = (
    _of_nobody_we_know,
    _for_somebody_else,
    _of_another_group,
    _with_another_start,
    _of_unknown_kind,
    _cut_short,
    _drawn_out,
    _of_random_bytes,
)


def everything_in(member: Member) -> bytes:
    """The whole state of a member, down to the last timer, but not what it has counted."""
    member.counters.clear()
    return pickle.dumps(member)


def test_what_is_malformed_or_foreign_changes_nothing_and_delivers_nothing() -> None:
    rng = Random(20_241)
    trio = Trio(rng, loss=0.0)
    for number in range(FOREIGN // BATCH):
        if number % 50 == 0:
            trio.talk()
            trio.hold_victim(number % 100 > 0)
            trio.tick(MILLISECOND)
        make = FOREIGN_MAKERS[number % len(FOREIGN_MAKERS)]
        hostile = [make(rng.choice(trio.recorded), trio) for _ in range(BATCH)]
        before = everything_in(trio.victim)
        assert trio.victim.receive(hostile, trio.now) == [], make.__name__
        assert sum(trio.victim.counters[reason] for reason in REJECTED) == BATCH
        assert trio.victim.counters.keys() <= set(REJECTED)
        assert everything_in(trio.victim) == before, make.__name__
    trio.assert_within_bounds()

    trio.hold_victim(False)
    for _ in range(200):
        trio.tick(10 * MILLISECOND)
    assert len(trio.sent) == 2 * 3 * 3
    assert trio.delivered == trio.sent


# Datagrams that a known member might have sent, had it lost its mind


class Forger:
    """Draws datagrams whose header the victim accepts, so that what is wrong with them is found deep inside."""

    def __init__(self, trio: Trio) -> None:
        self._trio = trio
        self._rng = trio.rng
        self._sources = [address.incarnation for address in (*trio.members, trio.outsider)]
        self._makers = (self._bits_flipped, self._fields_replaced, self._cut_or_drawn_out, self._drawn_from_nothing)

    def draw(self) -> bytes:
        return self._rng.choice(self._makers)()

    def _bits_flipped(self) -> bytes:
        data = bytearray(self._rng.choice(self._trio.recorded))
        for _ in range(self._rng.randrange(1, 4)):
            data[self._rng.randrange(HEADER.size, len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(data)

    def _cut_or_drawn_out(self) -> bytes:
        data = self._rng.choice(self._trio.recorded)
        if self._rng.random() < 0.5:
            return data[: self._rng.randrange(HEADER.size, len(data) + 1)]
        return data + self._rng.randbytes(self._rng.choice((1, 4, 8, 16, 100)))

    def _fields_replaced(self) -> bytes:
        """A recorded frame with some of its numbers moved a little, or changed for others that are in use."""
        envelope = decode(group_id(GROUP), self._rng.choice(self._trio.recorded))
        assert isinstance(envelope, Envelope)
        redraw: dict[str, Callable[[], int]] = {
            "conn_id": self._conn_id,
            "sync_id": self._conn_id,
            "first": lambda: self._rng.random() < 0.5,
            "seqno": self._seqno,
            "stable": self._seqno,
            "low": self._seqno,
            "sender": self._sender,
        }
        frame: Any = envelope.frame
        for field in fields(frame):
            if field.name in redraw and self._rng.random() < 0.4:
                frame = replace(frame, **{field.name: redraw[field.name]()})
        return self._seal(frame)

    def _drawn_from_nothing(self) -> bytes:
        seqno, conn_id, sender = self._seqno, self._conn_id, self._sender
        makers: tuple[Callable[[], Frame], ...] = (
            lambda: UnicastData(conn_id(), self._rng.random() < 0.3, seqno(), self._body()),
            lambda: UnicastAck(conn_id(), seqno()),
            lambda: UnicastXmitRequest(conn_id(), self._ranges()),
            lambda: UnicastPurged(conn_id(), seqno()),
            lambda: Close(conn_id()),
            lambda: Sync(conn_id(), conn_id()),
            lambda: SyncOk(conn_id(), conn_id(), seqno()),
            lambda: SyncAck(conn_id()),
            lambda: MulticastData(sender(), seqno(), seqno(), self._body()),
            lambda: MulticastAck(seqno()),
            lambda: MulticastXmitRequest(sender(), self._ranges()),
            lambda: Highest(seqno(), seqno()),
            lambda: Purged(sender(), seqno()),
        )
        return self._seal(self._rng.choice(makers)())

    def _seal(self, frame: Frame) -> bytes:
        destination = self._rng.choice((NOBODY, self._trio.victim.address.incarnation))
        return encode(group_id(GROUP), self._rng.choice(self._sources), destination, frame)

    def _seqno(self) -> int:
        """Mostly around where the victim's windows stand; sometimes far out."""
        if self._rng.random() < 0.1:
            return self._rng.choice((0, 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1))
        windows = [(entry.low, entry.received) for entry in self._trio.victim.multicast.digest().values()]
        for address in (*self._trio.members, self._trio.outsider):
            for half in (self._trio.victim.unicast.sender(address), self._trio.victim.unicast.receiver(address)):
                if half is not None:
                    windows.append((half.window.low, half.window.high))
        low, high = self._rng.choice(windows)
        return min(max(self._rng.randrange(low - 3, high + 12), 0), (1 << 63) - 1)

    def _conn_id(self) -> int:
        known = [0, 1, (1 << 32) - 1]
        for address in (*self._trio.members, self._trio.outsider):
            for half in (self._trio.victim.unicast.sender(address), self._trio.victim.unicast.receiver(address)):
                if half is not None:
                    known += [half.conn_id] * 5
        return (self._rng.choice(known) + self._rng.choice((0, 0, 0, -1, 1, 1 << 31))) % (1 << 32)

    def _sender(self) -> int:
        return self._rng.choice([*self._sources, self._rng.getrandbits(64)])

    def _ranges(self) -> Ranges:
        first = max(self._seqno(), 1)
        last = min(first + self._rng.choice((0, 3, 1 << 62)), (1 << 63) - 1)
        return ((first, last),)

    def _body(self) -> bytes:
        if self._rng.random() < 0.5:
            return pack([self._rng.randbytes(self._rng.choice((0, 7)))] * self._rng.randrange(4))
        total = self._rng.choice((40, 600, MAX_MESSAGE_BYTES))
        offset = self._rng.choice((0, 0, 20, total - 20))
        return FRAGMENT_HEADER.pack(FRAGMENT, 0, total, offset) + bytes(20)


# The forgeries are worth something only if they get as far as the code that refuses them.
REACHED = (
    Count.FRAME_MISPLACED,
    Count.BODY_INCOHERENT,
    Count.FRAME_DUPLICATE,
    Count.FRAME_OUTSIDE_WINDOW,
    Count.FRAME_OF_OLD_CONNECTION,
    Count.FRAME_EARLY,
    Count.FRAME_EARLY_DROPPED,
    Count.ACK_OF_NON_MEMBER,
    Count.ACK_BEYOND_SENT,
    Count.ACK_OF_OLD_CONNECTION,
    Count.ACK_DURING_SYNC,
    Count.FRAME_RESENT,
    Count.REPAIR_ASKED,
    Count.PURGED_ANSWERED,
    Count.SYNC_SENT,
)


def hammer(seed: int, forgeries: int) -> Counters:
    """One world, from its first message to where the forgeries have driven it; what the victim has counted."""
    trio = Trio(Random(seed), loss=0.1)
    forger = Forger(trio)
    for number in range(forgeries // BATCH):
        if number % 10 == 0:
            trio.talk()
        if number % 25 == 0:
            trio.hold_victim(number % 50 > 0)
        hostile = [forger.draw() for _ in range(BATCH)]
        trio.perform(trio.victim, trio.victim.receive(hostile, trio.now))
        trio.assert_within_bounds()
        trio.tick(trio.rng.choice((0, MILLISECOND, 20 * MILLISECOND, 20 * MILLISECOND, 600 * MILLISECOND)))
        trio.assert_within_bounds()
    return trio.victim.counters


def test_what_a_known_source_could_have_sent_raises_nothing_and_keeps_every_bound() -> None:
    """In many short worlds, because the first forgeries of each do the most: later ones find windows long derailed."""
    counted = Counters()
    for seed in range(WORLDS):
        counted += hammer(seed, FORGED // WORLDS)
    assert [count.value for count in REACHED if not counted[count]] == []
