"""The small world of real members with total order on top. The application keeps a log: what stands at each position.

What is owed is judged as it happens: positions follow one another; what anybody reports as stable is the same message
everywhere and is never rolled back; of each sender the messages stand in order; and two that go from one view to the
next together have delivered the same positions in it. The log is what a state transfer carries.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

from motet.errors import NotPrimaryError
from motet.protocol.core.effects import Channel, Effect, Frame, SendFailed
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import ViewId
from motet.protocol.member import Delivered, DurableState, Member, MemberConfig
from motet.protocol.membership import MembershipConfig, StateReceived, ViewInstalled
from motet.protocol.ordering import OrderingConfig, RolledBack, StableAdvanced, TotalOrder
from motet.protocol.wire.body import flaw
from motet.protocol.wire.frames import MulticastData
from motet.protocol.wire.ordered import ORDERED, Ordered, unseal
from tests.protocol.membership.world import FIRST_PORT, GROUP, Flight, Process, World

LogProgress = dict[int, str]


STRATEGIES = ("window", "early", "continuous")


def carried_by(strategy: str, ordering: OrderingConfig) -> OrderingConfig:
    """`early`: the window strategy with the fast path."""
    if strategy == "early":
        return replace(ordering, strategy="window", fast_path_members=64)
    return replace(ordering, strategy=strategy)


def sealed_in(flight: Flight) -> Ordered | None:
    """What total order put into this datagram, if anything."""
    frame = flight.frame
    if not isinstance(frame, MulticastData) or frame.body[0] != ORDERED:
        return None
    assert flaw(frame.body) is None
    return unseal(frame.body)


class OrderedProcess(Process):
    def __init__(self, world: OrderedWorld, name: str, member: Member) -> None:
        super().__init__(world, name, member)
        self.ordered_world = world
        self.positions: LogProgress = {}
        self.stable = 0
        self._next: int | None = None  # position that must follow; None: it may begin anywhere
        self._ordered_in_view: list[tuple[int, str]] = []
        self.supply = _log_as_state

    @property
    def order(self) -> TotalOrder:
        assert self.member.channel.ordering is not None
        return self.member.channel.ordering

    @property
    def ordered(self) -> list[str]:
        """The log, from its beginning or from where we came in."""
        return [self.positions[position] for position in sorted(self.positions)]

    def _make_real(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, RolledBack):
            assert effect.first > self.stable, f"{self.name} takes back {effect.first}, and {self.stable} was stable"
            self.positions = {at: text for at, text in self.positions.items() if at < effect.first}
            self._next = None
        elif isinstance(effect, StableAdvanced):
            assert effect.position > self.stable
            self.stable = effect.position
            self._compare_stable()
        return super()._make_real(effect)

    def _compare_stable(self) -> None:
        for position, text in self.positions.items():
            if position <= self.stable:
                known = self.ordered_world.agreed.setdefault(position, text)
                assert known == text, f"{self.name} has {text!r} at {position}, and stable is {known!r}"

    def _enter(self, installed: ViewInstalled) -> None:
        before = self.entries[-1] if self.entries else None
        if before is not None and self.address.incarnation not in before.lacking:
            ways = self.ordered_world.ways.setdefault((before.view.id, installed.view.id), self._ordered_in_view)
            assert ways == self._ordered_in_view, f"{self.name} ends {before.view} otherwise than another"
        if len(installed.subviews) > 1:
            self._next = None
        self._ordered_in_view = []
        super()._enter(installed)

    def _deliver(self, effect: Delivered) -> None:
        if effect.channel is not Channel.TOTAL:
            super()._deliver(effect)
            return
        assert effect.position is not None
        assert self._next in (None, effect.position), f"{self.name}: {effect.position} where {self._next} was next"
        for position, message in enumerate(effect.messages, effect.position):
            assert position not in self.positions, f"{self.name} has something at {position} already"
            self.positions[position] = message.decode()
            self._ordered_in_view.append((position, message.decode()))
        self._next = effect.position + len(effect.messages)

    def _receive_state(self, effect: StateReceived) -> None:
        if effect.is_first:
            self._state.clear()
        self._state += effect.data
        if effect.is_last and self._state:
            plain, positions = json.loads(self._state)
            self.log, self.positions = plain, {int(at): text for at, text in positions.items()}


def _log_as_state(process: Process, view: ViewId) -> None:
    assert isinstance(process, OrderedProcess)
    state = json.dumps([process.log, process.positions]).encode()
    process.do(lambda now: process.member.supply_state(view, state, True, now))


class OrderedWorld(World):
    strategy = "window"  # of all members, unless the test says otherwise

    def __init__(
        self,
        seeds: str = "A",
        *,
        ordering: OrderingConfig | None = None,
        membership: MembershipConfig | None = None,
        capacity: int = 256,
        frame_bytes: int = 60_000,
        wants_state: bool = False,
    ) -> None:
        super().__init__(
            seeds, membership=membership, capacity=capacity, frame_bytes=frame_bytes, wants_state=wants_state
        )
        self.config = replace(self.config, ordering=carried_by(self.strategy, ordering or OrderingConfig()))
        self.agreed: LogProgress = {}
        self.ways: dict[tuple[ViewId, ViewId], list[tuple[int, str]]] = {}
        self.asked: dict[Address, list[str]] = {}  # what each life was asked to order
        self.loss = 0.0
        self._delays: list[tuple[type[Frame], float, float]] = []
        self._rng = Random(7)

    def __getitem__(self, name: str) -> OrderedProcess:
        process = super().__getitem__(name)
        assert isinstance(process, OrderedProcess)
        return process

    def start(self, *names: str, config: MemberConfig | None = None, durable_state: DurableState | None = None) -> None:
        for name in names:
            lives = sum(process.name == name for process in self.processes)
            host, port = self.endpoint(name)
            incarnation = (lives + 1) << 56 | (port - FIRST_PORT + 1) << 48 | 1
            address, settings = Address(name, host, port, incarnation), config or self.config
            member = Member(address, GROUP, settings, Random(incarnation), durable_state)
            process = OrderedProcess(self, name, member)
            self.processes.append(process)
            self._living_at[self.endpoint(name)] = process
            process.begin()

    def order(self, name: str, *texts: str, waits_for_primary: bool = True) -> None:
        """Each text is a message and a call of its own."""
        process = self[name]
        for text in texts:
            if process.is_alive and not process.is_paused:
                message = [text.encode()]
                effects = process.member.multicast_ordered(message, self.now, waits_for_primary=waits_for_primary)
                self.asked.setdefault(process.address, []).append(text)
                process.do(lambda now, effects=effects: effects)  # type: ignore[misc]

    def keep_ordering(self, *names: str, every_ms: int = 10) -> Callable[[], None]:
        is_on = True

        def speak(process: OrderedProcess, number: int) -> None:
            if is_on and process.is_alive:
                self.order(process.name, f"{process.address}-{number}")
                self.scheduler.after(every_ms * SECOND // 1000, lambda: speak(process, number + 1))

        def stop() -> None:
            nonlocal is_on
            is_on = False

        for name in names:
            speak(self[name], 1)
        return stop

    def delay(self, kind: type[Frame], share: float, seconds: float) -> None:
        """So many of the frames of this class take longer."""
        self._delays.append((kind, share, seconds))

    def carry(self, source: Process, endpoint: Endpoint, data: bytes) -> None:
        if self.loss and self._rng.random() < self.loss:
            return
        for kind, share, seconds in self._delays:
            if isinstance(self._frame(data), kind) and self._rng.random() < share:
                to = next(name for name, index in self._names.items() if index == endpoint.port - FIRST_PORT)
                self.arrive_later(to, data, int(seconds * SECOND))
                return
        super().carry(source, endpoint, data)

    def is_ordered(self, names: str, count: int | None = None) -> bool:
        """All of these are equally far and nothing is pending; if it is said, at this position."""
        orders = [self[name].order for name in names]
        return all(
            order.position == orders[0].position
            and (count is None or order.position == count)
            and order.stable == order.position
            and order.admitted == order.accepted
            and not len(order.queue)
            for order in orders
        )

    def finish(self, names: str, count: int | None = None, limit: float = 10.0) -> float:
        """Until everything is ordered and stable; then all logs agree."""
        took = self.run_until(lambda: self.is_ordered(names, count), limit)
        self.check_logs(names)
        return took

    def check_logs(self, names: str) -> None:
        """Where two have something at one position it is the same; nothing twice, and of each sender in order."""
        merged: LogProgress = {}
        for name in names:
            for position, text in self[name].positions.items():
                assert merged.setdefault(position, text) == text, f"{name} has {text!r} at {position}"
        log = [merged[position] for position in sorted(merged)]
        assert len(set(log)) == len(log)
        for asked in self.asked.values():
            places = [asked.index(text) for text in log if text in asked]
            assert places == sorted(places), f"out of order: {[asked[place] for place in places]}"


def refused(world: OrderedWorld, name: str, text: str) -> bool:
    try:
        world.order(name, text, waits_for_primary=False)
    except NotPrimaryError:
        return True
    return False


def failures(process: Process) -> list[tuple[int, int, type[Exception]]]:
    """Of the ordered channel: first, last, why."""
    return [
        (entry.first, entry.last, type(entry.error))
        for entry in process.story
        if isinstance(entry, SendFailed) and entry.channel is Channel.TOTAL
    ]
