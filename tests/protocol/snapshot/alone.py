"""Snapshot machines on a fake link: FIFO channels between all pairs, a log that is delivered in one order, no network.

Every step is one choice: somebody sends, a channel hands over its next item, somebody delivers the next of the log, an
application looks at the next thing that it was told. Whatever is chosen, the cut must be consistent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from motet.protocol.core.counters import Counters
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View, ViewId
from motet.protocol.snapshot import (
    RecordState,
    Report,
    SnapshotConfig,
    SnapshotFailed,
    SnapshotId,
    Snapshots,
    SnapshotTaken,
)
from motet.protocol.snapshot.machine import SendMarker, SendSnapshotMessage
from motet.protocol.snapshot.participation import LocalState
from motet.protocol.wire.body import Port

A, B, C, D = (Address(name, "127.0.0.1", 7000 + number, number) for number, name in enumerate("ABCD", start=1))
VIEW = View(ViewId(3, A.incarnation), (A, B, C), is_primary=True)
NEXT_VIEW = View(ViewId(4, A.incarnation), (A, B), is_primary=True)
ENDOWMENT = 100


def machine(local: Address, view: View = VIEW, config: SnapshotConfig | None = None) -> Snapshots:
    made = Snapshots(local, config or SnapshotConfig(), Counters())
    made.begin_view(view, lacks_state=False)
    return made


def asked(effects: list[Effect]) -> list[SnapshotId]:
    return [effect.snapshot for effect in effects if isinstance(effect, RecordState)]


@dataclass(frozen=True, slots=True)
class Item:
    """What one channel carries: tokens for one member, or a message of the snapshots."""

    to: Address | None
    tokens: int
    data: bytes = b""
    frame: int = 0  # of what is ordered: its id


@dataclass(slots=True)
class Node:
    machine: Snapshots
    tokens: int = ENDOWMENT
    sent: int = 0  # ordered frames
    told: deque[SnapshotId | int] = field(default_factory=deque)  # for the application: give your state; or tokens
    received: dict[Address, int] = field(default_factory=dict)  # ordered frames that were taken from each stream
    logged: int = 0  # so much of the log is delivered
    delivered: dict[Address, int] = field(default_factory=dict)


class Link:
    def __init__(self, members: int, seed: int) -> None:
        self.view = View(ViewId(3, A.incarnation), (A, B, C, D)[:members], is_primary=True)
        self.rng = Random(seed)
        self.nodes = {member: Node(machine(member, self.view)) for member in self.view.members}
        self.unicast: dict[tuple[Address, Address], deque[Item]] = {}
        self.streams: dict[tuple[Address, Address], deque[Item]] = {}
        for sender in self.view.members:
            for receiver in self.view.members:
                self.unicast[sender, receiver] = deque()
                self.streams[sender, receiver] = deque()
        self.log: list[tuple[Address, Item]] = []
        self.taken: dict[SnapshotId, Mapping[Address, Report]] = {}
        self.failed: dict[SnapshotId, str] = {}

    # What an application does

    def send(self, sender: Address) -> None:
        node, to = self.nodes[sender], self.rng.choice(self.view.members)
        tokens = self.rng.randrange(0, min(node.tokens, 5) + 1)
        node.tokens -= tokens
        channel = self.rng.choice(list(Channel))
        if channel is Channel.UNICAST:
            self.unicast[sender, to].append(Item(to, tokens))
            return
        node.sent += channel is Channel.TOTAL
        self._stream(sender, Item(to, tokens, frame=node.sent if channel is Channel.TOTAL else 0))

    def start(self, member: Address) -> None:
        if not any(snapshot.initiator == member.incarnation for snapshot in self.running):
            _, effects = self.nodes[member].machine.start(0)
            self._perform(member, effects)

    def look(self, member: Address) -> None:
        """The application takes the next thing that it was told."""
        node = self.nodes[member]
        if not node.told:
            return
        event = node.told.popleft()
        if isinstance(event, int):
            node.tokens += event
        else:
            local = LocalState(ordered=node.sent, talks_to_itself=True)
            self._perform(member, node.machine.supply(event, str(node.tokens).encode(), local, 0))

    @property
    def running(self) -> set[SnapshotId]:
        return {snapshot for node in self.nodes.values() for snapshot in node.machine.running} - self.taken.keys()

    # What the channels do

    def step(self) -> None:
        member, choice = self.rng.choice(self.view.members), self.rng.random()
        if choice < 0.25:
            self.send(member)
        elif choice < 0.35:
            self.look(member)
        elif choice < 0.5:
            self.deliver_log(member)
        else:
            self.move(self.rng.choice(self.view.members), member, is_unicast=choice < 0.75)

    def drain(self) -> None:
        """Until nothing is in flight any more."""
        while any(self.unicast.values()) or any(self.streams.values()) or self._is_busy:
            for receiver in self.view.members:
                self.look(receiver)
                for sender in self.view.members:
                    self.move(sender, receiver, is_unicast=True)
                    self.move(sender, receiver, is_unicast=False)
                self.deliver_log(receiver)

    @property
    def _is_busy(self) -> bool:
        return any(node.told or node.logged < len(self.log) for node in self.nodes.values())

    def move(self, sender: Address, receiver: Address, *, is_unicast: bool) -> None:
        """The next item of one channel arrives."""
        line = (self.unicast if is_unicast else self.streams)[sender, receiver]
        if not line:
            return
        item = line.popleft()
        channel = Channel.UNICAST if is_unicast else Channel.MULTICAST
        if item.data:
            self._perform(receiver, self.nodes[receiver].machine.receive(channel, sender, item.data, 0))
        elif item.frame:
            self._take_ordered(sender, receiver, item)
        else:
            self._hand_up(channel, sender, receiver, item)
        self._settle(receiver)

    def deliver_log(self, member: Address) -> None:
        node = self.nodes[member]
        if node.logged < len(self.log):
            sender, item = self.log[node.logged]
            node.logged += 1
            node.delivered[sender] = item.frame
            self._hand_up(Channel.TOTAL, sender, member, item)
            self._settle(member)

    def _take_ordered(self, sender: Address, receiver: Address, item: Item) -> None:
        """A frame has its place in the log when everybody has it."""
        self.nodes[receiver].received[sender] = item.frame
        if all(node.received.get(sender, 0) >= item.frame for node in self.nodes.values()):
            self.log.append((sender, item))

    def _hand_up(self, channel: Channel, sender: Address, receiver: Address, item: Item) -> None:
        node = self.nodes[receiver]
        node.told.append(item.tokens if item.to == receiver else 0)
        assert item.to is not None
        payload = f"{item.to.incarnation} {item.tokens}".encode()
        self._perform(receiver, node.machine.record(channel, sender, Port.APP, (payload,), item.frame, 0))

    def _settle(self, member: Address) -> None:
        node = self.nodes[member]
        self._perform(member, node.machine.settle(node.delivered, 0))
        node.machine._check()

    def _stream(self, sender: Address, item: Item) -> None:
        for receiver in self.view.members:
            self.streams[sender, receiver].append(item)

    def _perform(self, member: Address, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case RecordState():
                    self.nodes[member].told.append(effect.snapshot)
                case SendMarker():
                    self._stream(member, Item(None, 0, effect.data))
                    for receiver in self.view.members:
                        self.unicast[member, receiver].append(Item(None, 0, effect.data))
                case SendSnapshotMessage():
                    self.unicast[member, effect.to].append(Item(None, 0, effect.data))
                case SnapshotTaken():
                    self.taken[effect.snapshot] = effect.reports
                case SnapshotFailed():
                    self.failed[effect.snapshot] = effect.reason


def tokens_in(reports: Mapping[Address, Report]) -> int:
    """In the states, and on the way to whom they are for."""
    total = 0
    for member, report in reports.items():
        total += int(report.state)
        for state in report.channels:
            for message in state.messages:
                to, tokens = map(int, message.payload.split())
                total += tokens if to == member.incarnation else 0
    return total
