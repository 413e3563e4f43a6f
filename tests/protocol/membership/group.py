"""A small group for the engine: real multicast channels under it, a deterministic network, and faults at any step.

Every frame takes one unit of latency, but for some data, which comes in the middle of the change that follows.
`fault_at` counts frames handed to the network; when the count is reached the fault strikes before the frame is carried.
Failure detection is played: a crash is noticed after a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, pairwise

from motet.protocol.core.counters import Counters
from motet.protocol.core.effects import Broadcast, Deliver, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.timers import earlier
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.member.channel import GroupChannel
from motet.protocol.membership.engine import FRAMES, EngineConfig, Left, ViewEngine, ViewInstalled
from motet.protocol.multicast import Multicast, MulticastConfig
from motet.protocol.wire.body import split
from motet.protocol.wire.frames import MulticastData

LATENCY_NS = MILLISECOND
NOTICED_AFTER_NS = 300 * MILLISECOND
STRAGGLER_NS = NOTICED_AFTER_NS + 3 * LATENCY_NS // 2  # comes when a member has answered, and the cut is not known yet
CONFIG = EngineConfig()


@dataclass
class Node:
    address: Address
    multicast: Multicast
    engine: ViewEngine
    story: list[View | tuple[Address, bytes]] = field(default_factory=list)  # views and deliveries, in order
    is_alive: bool = True

    def next_deadline(self) -> int | None:
        return earlier(self.engine.next_deadline(), self.multicast.next_deadline())

    @property
    def views(self) -> list[View]:
        return [entry for entry in self.story if isinstance(entry, View)]

    def delivered_in(self, view: View) -> list[tuple[Address, bytes]]:
        start = self.story.index(view) + 1
        ends = [i for i, entry in enumerate(self.story) if isinstance(entry, View) and i >= start]
        inside = self.story[start : ends[0]] if ends else self.story[start:]
        return [entry for entry in inside if not isinstance(entry, View)]


class Group:
    def __init__(self, size: int, capacity: int = 16) -> None:
        addresses = [Address("ABCDEFGH"[i], "127.0.0.1", 7800 + i, i + 1) for i in range(size)]
        view = View(ViewId(1, 1), tuple(addresses), is_primary=True)
        self.now = 0
        self.carried = 0  # frames handed to the network
        self.fault_at: int | None = None
        self.fault: Callable[[], None] = lambda: None
        self.cuts: set[tuple[Address, Address]] = set()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.nodes: dict[Address, Node] = {}
        for address in addresses:
            channel = GroupChannel(address, MulticastConfig(capacity=capacity, body_bytes=64), None, Counters())
            channel.multicast.install_view(addresses, dict.fromkeys(addresses, 0), 0)
            engine = ViewEngine(address, view, channel, CONFIG, Counters())
            self.nodes[address] = Node(address, channel.multicast, engine, [view])

    def __getitem__(self, index: int) -> Node:
        return list(self.nodes.values())[index]

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_alive]

    def crash(self, node: Node) -> None:
        node.is_alive = False
        self.later(NOTICED_AFTER_NS, lambda: self.suspect_the_dead())

    def suspect_the_dead(self) -> None:
        dead = [node.address for node in self.nodes.values() if not node.is_alive]
        for node in self.alive:
            self.perform(node, node.engine.suspect([d for d in dead if d in node.engine.view], self.now))

    def later(self, delay_ns: int, action: Callable[[], None]) -> None:
        heappush(self._heap, (self.now + delay_ns, next(self._order), action))

    def multicast(self, node: Node, *messages: bytes) -> None:
        if node.is_alive and not node.engine.has_left:
            self.perform(node, node.multicast.send(list(messages), self.now))

    def perform(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit():
                    self._carry(node, effect.to, effect.frame)
                case Broadcast():
                    for to in node.engine.view.members:
                        if to != node.address:
                            self._carry(node, to, effect.frame)
                case Deliver():
                    node.story += [(effect.sender, message) for body in effect.bodies for message in split(body)]
                case ViewInstalled():
                    node.story.append(effect.view)
                case Left():
                    node.is_alive = False
        node.engine._check()
        node.multicast._check()

    def run(self, duration_ns: int = 10 * SECOND) -> None:
        end = self.now + duration_ns
        while True:
            moment = self._heap[0][0] if self._heap else None
            for node in self.alive:
                moment = earlier(moment, node.next_deadline())
            if moment is None or moment > end:
                break
            self.now = max(self.now, moment)
            if self._heap and self._heap[0][0] <= self.now:
                heappop(self._heap)[2]()
            for node in self.alive:
                due = node.next_deadline()
                if due is not None and due <= self.now:
                    self.perform(node, node.multicast.tick(self.now) + node.engine.tick(self.now))
        self.now = end

    def _carry(self, node: Node, to: Address, frame: Frame) -> None:
        self.carried += 1
        if self.carried == self.fault_at:
            self.fault()
        if node.is_alive and (node.address, to) not in self.cuts:
            is_straggler = isinstance(frame, MulticastData) and self.carried % 5 == 0
            delay_ns = STRAGGLER_NS if is_straggler else LATENCY_NS
            self.later(delay_ns, lambda: self._arrive(node.address, self.nodes[to], frame))

    def _arrive(self, source: Address, node: Node, frame: Frame) -> None:
        if not node.is_alive:
            return
        if isinstance(frame, FRAMES):
            self.perform(node, node.engine.receive(source, frame, self.now))
        else:
            self.perform(node, node.multicast.receive(source, [frame], self.now))
            self.perform(node, node.engine.progressed(self.now))


def check_agreement(group: Group) -> None:
    """All who are alive are in one view and saw the same since any view that they share; nothing is frozen."""
    survivors = group.alive
    final = {node.engine.view for node in survivors}
    assert len(final) == 1, [str(node.engine.view) for node in survivors]
    (view,) = final
    assert set(view.members) == {node.address for node in survivors}, str(view)
    assert not any(node.engine.is_frozen for node in survivors)
    check_virtual_synchrony(group)


def check_virtual_synchrony(group: Group) -> None:
    for one in group.nodes.values():
        for other in group.nodes.values():
            for before, after in zip(one.views, one.views[1:], strict=False):
                if (before, after) in zip(other.views, other.views[1:], strict=False):
                    mine, theirs = one.delivered_in(before), other.delivered_in(before)
                    assert sorted(mine) == sorted(theirs), f"{one.address} and {other.address} differ in {before}"


def check_one_line(group: Group) -> None:
    """Primary views that anybody installed have numbers of their own, and each holds a majority of the one before."""
    installed = {view.id: view for node in group.nodes.values() for view in node.views if view.is_primary}
    line = [installed[view_id] for view_id in sorted(installed)]
    for before, after in pairwise(line):
        assert after.id.number > before.id.number, f"{before} and {after}"
        assert 2 * sum(member in after for member in before.members) >= len(before.members), f"{before} and {after}"
