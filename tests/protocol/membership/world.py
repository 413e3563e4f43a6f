"""A small world of real members: processes by name, one latency, virtual time, faults at an exact frame.

A datagram goes to an endpoint and reaches whatever process lives there when it arrives. What every member owes its
group is judged as it happens, in `Process._enter` and `Process._deliver`: views in the order of their ids; one id, one
view; of each sender the messages in order, once, and without a gap inside a view; and two that go from one view to the
next together have delivered the same in it.

The application of a process is a log of what was multicast. It is what a state transfer carries.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from motet.errors import BacklogFullError, LeftGroupError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Channel, Effect, Frame, SendFailed
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.member import Datagram, Delivered, DurableState, Member, MemberConfig
from motet.protocol.membership import (
    Left,
    MembershipConfig,
    ProvideState,
    StateFailed,
    StateReceived,
    ViewInstalled,
)
from motet.protocol.multicast import MulticastConfig
from motet.protocol.wire.codec import DecodedDatagram, decode, encode, group_id
from motet.sim.world.scheduler import Scheduler

GROUP = "world"
HOST = "127.0.0.1"
FIRST_PORT = 7800
LATENCY_NS = MILLISECOND
NOWHERE = Endpoint("192.0.2.1", 9)  # nobody lives there
SOCKET_BUFFER = 4_096  # datagrams that wait for a process that stands still
MOST_TICKS = 1_000  # at one instant; a member that wants more of them spins


@dataclass(frozen=True, slots=True)
class Flight:
    """One datagram on its way, or about to leave."""

    source: str
    to: str
    frame: Frame
    data: bytes


@dataclass(frozen=True, slots=True)
class Got:
    """One message, delivered."""

    at: int
    channel: Channel
    sender: str
    text: str
    view: ViewId  # in which it was delivered


@dataclass(frozen=True, slots=True)
class Entered:
    at: int
    view: View
    subviews: tuple[View, ...]
    lacking: tuple[int, ...]

    @property
    def names(self) -> str:
        return names_of(self.view)


Hook = Callable[[Flight], None]
Rewrite = Callable[[Frame], Frame]
Supplier = Callable[["Process", ViewId], None]


def names_of(view: View) -> str:
    """The members, oldest first: `ABC`."""
    return "".join(member.name for member in view.members)


def log_as_state(process: Process, view: ViewId) -> None:
    """Hand on the whole log at once."""
    process.do(lambda now: process.member.supply_state(view, "\n".join(process.log).encode(), True, now))


class Process:
    """One life of one process, and its story."""

    def __init__(self, world: World, name: str, member: Member) -> None:
        self.world = world
        self.name = name
        self.member = member
        self.is_alive = True
        self.is_paused = False
        self.story: list[Entered | Got | Effect] = []
        self.entries: list[Entered] = []  # the views in it
        self.log: list[str] = []  # the application: all that was multicast, as far as it was delivered here
        self.supply: Supplier = log_as_state
        self._state = bytearray()  # of a state that is arriving
        self._inbox: list[tuple[bytes, Endpoint]] = []
        self._wake_at: int | None = None
        self._ticks = (0, 0)  # (instant, ticks in it)
        self._last: dict[tuple[Channel, Address], tuple[int, ViewId]] = {}  # index of the last message, its view
        self._in_view: dict[Address, list[bytes]] = defaultdict(list)

    @property
    def address(self) -> Address:
        return self.member.address

    @property
    def view(self) -> View:
        return self.member.view

    @property
    def members(self) -> str:
        return names_of(self.view)

    @property
    def history(self) -> list[str]:
        """The members of each view that was entered: `["A", "AB", "ABC"]`."""
        return [entry.names for entry in self.entries]

    def got(self, sender: str | None = None, channel: Channel = Channel.MULTICAST) -> list[str]:
        mine = (entry for entry in self.story if isinstance(entry, Got) and entry.channel is channel)
        return [entry.text for entry in mine if sender in (None, entry.sender)]

    def saw(self, kind: type[Effect]) -> list[Effect]:
        return [entry for entry in self.story if isinstance(entry, kind)]

    def count(self, what: Count) -> int:
        return self.member.counters[what]

    @property
    def is_drained(self) -> bool:
        return self.member.multicast.sender.is_drained

    # Inputs

    def begin(self) -> None:
        self._enter(ViewInstalled(self.member.view))
        self.do(self.member.start)

    def do(self, action: Callable[[int], list[Effect]]) -> None:
        """Run one input of the member and make its effects real."""
        if self.is_alive and not self.is_paused:
            self._perform(action(self.world.now))

    def arrive(self, data: bytes, source: Endpoint = NOWHERE) -> None:
        if not self.is_alive or len(self._inbox) >= SOCKET_BUFFER:
            return
        if self.is_paused:
            self._inbox.append((data, source))
        else:
            self.do(lambda now: self.member.receive([data], now, [source]))

    def resume(self) -> None:
        self.is_paused = False
        batch, self._inbox = self._inbox, []
        self.do(lambda now: self.member.receive([data for data, _ in batch], now, [source for _, source in batch]))
        self.do(self.member.tick)

    # Effects

    def _perform(self, effects: list[Effect]) -> None:
        self.member._check()
        pending = deque(effects)
        while pending and self.is_alive:  # a test may crash us between two frames
            pending.extend(self._make_real(pending.popleft()))
        self._plan_wake()

    def _make_real(self, effect: Effect) -> list[Effect]:
        match effect:
            case Datagram():
                for to in effect.to:
                    self.world.carry(self, Endpoint(to.host, to.port), effect.data)
            case ViewInstalled():
                self._enter(effect)
            case Delivered():
                self._deliver(effect)
            case ProvideState():
                self.story.append(effect)
                self.supply(self, effect.view)
            case StateReceived():
                self.story.append(effect)
                self._receive_state(effect)
            case StateFailed():
                self.story.append(effect)
                self.log.clear()
            case Left():
                self.story.append(effect)
                self.is_alive = False
            case _:
                self.story.append(effect)
        return []

    def _receive_state(self, effect: StateReceived) -> None:
        if effect.is_first:
            self._state.clear()
        self._state += effect.data
        if effect.is_last:
            self.log = self._state.decode().split("\n") if self._state else []

    def _enter(self, installed: ViewInstalled) -> None:
        view, before = installed.view, self.entries[-1] if self.entries else None
        known = self.world.views.setdefault(view.id, view)
        assert known == view, f"{self.name} installs {view}, and another one installed {known}"
        if before is not None:
            assert view.id > before.view.id, f"{self.name} installs {view} after {before.view}"
            if self.address.incarnation not in before.lacking:  # who still waits for the state has delivered nothing
                self._compare(before.view, view)
        self._in_view.clear()
        self.entries.append(Entered(self.world.now, view, installed.subviews, installed.lacking))
        self.story.append(self.entries[-1])

    def _compare(self, before: View, view: View) -> None:
        """Virtual synchrony: all who go from one view to the next have delivered the same."""
        mine = {sender: tuple(messages) for sender, messages in self._in_view.items() if messages}
        theirs = self.world.delivered.setdefault((before.id, view.id), mine)
        assert mine == theirs, f"{self.name} ends {before} having delivered {mine}, and another {theirs}"

    def _deliver(self, effect: Delivered) -> None:
        sender, view = effect.sender, self.entries[-1].view.id
        receiver = None if effect.channel is Channel.MULTICAST else self.address
        accepted = self.world.accepted[effect.channel, sender, receiver]
        for message in effect.messages:
            key = (effect.channel, sender)
            last, last_view = self._last.get(key, (-1, view))
            index = accepted[message]
            is_next = index == last + 1 if last >= 0 and last_view == view and receiver is None else index > last
            assert is_next, f"{self.name} delivers {message!r} of {sender}, number {index} after number {last}"
            self._last[key] = (index, view)
            self.story.append(Got(self.world.now, effect.channel, sender.name, message.decode(), view))
            if receiver is None:
                self._in_view[sender].append(message)
                self.log.append(message.decode())

    # Time

    def _plan_wake(self) -> None:
        deadline = self.member.next_deadline()
        if deadline is None or not self.is_alive:
            self._wake_at = None
        elif self._wake_at is None or deadline != self._wake_at:
            self._wake_at = deadline
            self.world.scheduler.at(deadline, lambda: self._wake(deadline))

    def _wake(self, planned: int) -> None:
        if self._wake_at != planned:
            return
        self._wake_at = None
        instant, ticks = self._ticks
        self._ticks = (self.world.now, ticks + 1 if instant == self.world.now else 1)
        assert self._ticks[1] < MOST_TICKS, f"{self.name} wants to be called at {planned} again and again"
        self.do(self.member.tick)


@dataclass(slots=True)
class _Drop:
    kind: type[Frame]
    source: str
    to: str
    left: int
    rewrite: Rewrite | None = None  # None: it is lost

    def fits(self, flight: Flight) -> bool:
        is_here = self.source in ("*", flight.source) and self.to in ("*", flight.to)
        return self.left > 0 and is_here and isinstance(flight.frame, self.kind)


class World:
    """`seeds` are the names at whose endpoints discovery looks."""

    def __init__(
        self,
        seeds: str = "A",
        *,
        membership: MembershipConfig | None = None,
        capacity: int = 256,
        frame_bytes: int = 60_000,
        wants_state: bool = False,
    ) -> None:
        self.scheduler = Scheduler()
        self.scheduler.run_until(1_000 * SECOND)  # no clock starts at 0
        self.views: dict[ViewId, View] = {}
        self.delivered: dict[tuple[ViewId, ViewId], dict[Address, tuple[bytes, ...]]] = {}
        self.accepted: dict[tuple[Channel, Address, Address | None], dict[bytes, int]] = defaultdict(dict)
        self.processes: list[Process] = []  # all that ever lived
        self._names: dict[str, int] = {}
        self._living_at: dict[Endpoint, Process] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._drops: list[_Drop] = []
        self._hooks: list[Hook] = []
        self._group = group_id(GROUP)
        settings = (membership or MembershipConfig.lan()).with_seeds(*map(self.endpoint, seeds))
        if wants_state:
            settings = replace(settings, transfer=replace(settings.transfer, wants_state=True))
        self.config = MemberConfig(
            frame_bytes=frame_bytes, multicast=MulticastConfig(capacity=capacity), membership=settings
        )

    def __getitem__(self, name: str) -> Process:
        """The process that was last started under this name."""
        return self._living_at[self.endpoint(name)]

    @property
    def now(self) -> int:
        return self.scheduler.now

    @property
    def membership(self) -> MembershipConfig:
        assert self.config.membership is not None
        return self.config.membership

    @property
    def living(self) -> list[Process]:
        return [process for process in self._living_at.values() if process.is_alive]

    def endpoint(self, name: str) -> Endpoint:
        return Endpoint(HOST, FIRST_PORT + self._names.setdefault(name, len(self._names)))

    # Processes

    def start(self, *names: str, config: MemberConfig | None = None, durable_state: DurableState | None = None) -> None:
        """The alphabet of the first start is the order of incarnations; every later life comes after all first ones."""
        for name in names:
            lives = sum(process.name == name for process in self.processes)
            host, port = self.endpoint(name)
            incarnation = (lives + 1) << 56 | (port - FIRST_PORT + 1) << 48 | 1
            address = Address(name, host, port, incarnation)
            member = Member(address, GROUP, config or self.config, Random(incarnation), durable_state)
            process = Process(self, name, member)
            self.processes.append(process)
            self._living_at[self.endpoint(name)] = process
            process.begin()

    def crash(self, *names: str) -> None:
        for name in names:
            self[name].is_alive = False

    def restart(self, name: str, config: MemberConfig | None = None) -> None:
        """At once, at the same endpoint, as a new incarnation."""
        self.crash(name)
        self.start(name, config=config)

    def wake(self, *names: str) -> None:
        """Those who are gone come back, each with all that it knew."""
        for name in names:
            assert not self[name].is_alive
            self.start(name, durable_state=self[name].member.durable_state)

    def leave(self, *names: str) -> None:
        for name in names:
            self[name].do(self[name].member.leave)

    def pause(self, name: str) -> None:
        self[name].is_paused = True

    def resume(self, name: str) -> None:
        self[name].resume()

    def pause_deliveries(self, name: str) -> None:
        """The application takes no deliveries."""
        self[name].member.pause()

    def resume_deliveries(self, name: str) -> None:
        self[name].do(self[name].member.resume)

    # Messages

    def multicast(self, name: str, *texts: str) -> None:
        process, messages = self[name], [text.encode() for text in texts]
        if process.is_alive and not process.is_paused:
            effects = process.member.multicast_messages(messages, self.now)
            self._accept(Channel.MULTICAST, process.address, None, messages)
            process.do(lambda now: effects)

    def send(self, name: str, to: str | Address, *texts: str) -> None:
        process, messages = self[name], [text.encode() for text in texts]
        peer = to if isinstance(to, Address) else self[to].address
        effects = process.member.send(peer, messages, self.now)
        self._accept(Channel.UNICAST, process.address, peer, messages)
        process.do(lambda now: effects)

    def keep_sending(self, *names: str, every_ms: int = 10, size: int = 0) -> Callable[[], None]:
        """Each multicasts a message now and then, as long as it lives; what is returned ends it."""
        is_on = True

        def speak(process: Process, number: int) -> None:
            if is_on and process.is_alive:
                try:
                    self.multicast(process.name, f"{process.address}-{number}".ljust(size, "."))
                except BacklogFullError:
                    pass
                except LeftGroupError:
                    return
                self.scheduler.after(every_ms * MILLISECOND, lambda: speak(process, number + 1))

        def stop() -> None:
            nonlocal is_on
            is_on = False

        for name in names:
            speak(self[name], 1)
        return stop

    def sent(self, name: str) -> list[str]:
        """All that this life of `name` has multicast."""
        return [message.decode() for message in self.accepted[Channel.MULTICAST, self[name].address, None]]

    def _accept(self, channel: Channel, sender: Address, to: Address | None, messages: Iterable[bytes]) -> None:
        known = self.accepted[channel, sender, to]
        for message in messages:
            assert message not in known, "the world tells messages apart by their text"
            known[message] = len(known)

    # The network

    def cut(self, source: str, to: str) -> None:
        """One way only."""
        self._cuts.add((source, to))

    def mend(self, source: str, to: str) -> None:
        self._cuts.discard((source, to))

    def cut_off(self, source: str, *others: str) -> None:
        """Both ways, between one and each of the others."""
        for other in others:
            self._cuts |= {(source, other), (other, source)}

    def partition(self, *sides: str) -> None:
        """Sides that hear nothing of one another, in place of all cuts before."""
        side_of = {name: side for side in sides for name in side}
        self._cuts = {(one, other) for one in side_of for other in side_of if side_of[one] != side_of[other]}

    def heal(self) -> None:
        self._cuts.clear()
        self._drops.clear()

    def drop_next(self, kind: type[Frame], source: str, to: str, n: int = 1) -> None:
        """The next n frames of this class on this link are lost; `*` is anybody."""
        self._drops.append(_Drop(kind, source, to, n))

    def rewrite_next(self, kind: type[Frame], source: str, to: str, rewrite: Rewrite, n: int = 1) -> None:
        """The next n frames of this class on this link say something else."""
        self._drops.append(_Drop(kind, source, to, n, rewrite))

    def on_frame(self, hook: Hook) -> None:
        """Called before each datagram is carried."""
        self._hooks.append(hook)

    def watch(self, *kinds: type[Frame]) -> list[Flight]:
        """From now on, the list of all frames of these classes that leave."""
        seen: list[Flight] = []
        self.on_frame(lambda flight: seen.append(flight) if isinstance(flight.frame, kinds) else None)
        return seen

    def once(self, kind: type[Frame], action: Hook, *, source: str = "*", to: str = "*") -> None:
        """Before the first such frame is carried."""
        pending = [action]

        def hook(flight: Flight) -> None:
            is_here = source in ("*", flight.source) and to in ("*", flight.to)
            if pending and is_here and isinstance(flight.frame, kind):
                pending.pop()(flight)

        self.on_frame(hook)

    def carry(self, source: Process, endpoint: Endpoint, data: bytes) -> None:
        to = next((name for name, index in self._names.items() if index == endpoint.port - FIRST_PORT), str(endpoint))
        if self._hooks or self._drops:
            flight = Flight(source.name, to, self._frame(data), data)
            for hook in self._hooks:
                hook(flight)
            if (fault := next((drop for drop in self._drops if drop.fits(flight)), None)) is not None:
                fault.left -= 1
                if fault.rewrite is None:
                    return
                data = self._rewritten(data, fault.rewrite)
        if source.is_alive and (source.name, to) not in self._cuts:
            self.arrive_later(to, data, source=source.address.endpoint)

    def arrive_later(self, to: str, data: bytes, delay_ns: int = LATENCY_NS, source: Endpoint = NOWHERE) -> None:
        """`source` is where it came from; an attacker who replays what was recorded has an endpoint of its own."""
        endpoint = self.endpoint(to)

        def arrive() -> None:
            if endpoint in self._living_at:
                self._living_at[endpoint].arrive(data, source)

        self.scheduler.after(delay_ns, arrive)

    def _frame(self, data: bytes) -> Frame:
        return self._envelope(data).frame

    def _envelope(self, data: bytes) -> DecodedDatagram:
        envelope = decode(self._group, data)
        assert isinstance(envelope, DecodedDatagram), envelope
        return envelope

    def _rewritten(self, data: bytes, rewrite: Rewrite) -> bytes:
        envelope = self._envelope(data)
        return encode(self._group, envelope.source, envelope.destination, rewrite(envelope.frame))

    # Time

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(self.now + int(seconds * SECOND))

    def run_until(self, is_met: Callable[[], bool], limit: float) -> float:
        """Until `is_met`, looked at every millisecond; the answer is how many seconds it took."""
        begin, deadline = self.now, self.now + int(limit * SECOND)
        while not is_met():
            assert self.now < deadline, f"not met within {limit} s\n{self.tell()}"
            self.scheduler.run_until(self.now + MILLISECOND)
        return (self.now - begin) / SECOND

    def is_one_view(self, names: Iterable[str] | None = None) -> bool:
        """All who live (or these) are in one view of exactly them, at rest, with nothing to confirm or to fetch."""
        group = self.living if names is None else [self[name] for name in names]
        return all(
            process.view == group[0].view
            and len(process.view.members) == len(group)
            and process.member.is_settled
            and not process.member.membership.is_waiting_for_state
            for process in group
        )

    def settle(self, names: Iterable[str] | None = None, limit: float = 10.0) -> float:
        """Run until these are one view; the answer is how many seconds it took."""
        return self.run_until(lambda: self.is_one_view(names), limit)

    def split(self, *sides: str, limit: float = 10.0) -> None:
        """Part them, and wait until each side is one view."""
        self.partition(*sides)
        for side in sides:
            self.settle(side, limit)

    def gather(self, *names: str, limit: float = 10.0) -> None:
        """Start these in order of seniority, and wait until they are one primary view."""
        first, *others = names
        self.start(first)
        self.run(1.3)  # if it is the only seed it has founded the group by now
        for name in others:
            self.start(name)
            self.settle(limit=limit)
        self.run_until(lambda: self[first].view.is_primary and self.is_one_view(), limit)
        assert self[first].members == "".join(names)

    def tell(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for process in self.processes:
            state = "" if process.is_alive else " (gone)"
            yield f"{process.address}{state}: {process.view}, settled: {process.member.is_settled}"
            yield from (f"    {(e.at - 1_000 * SECOND) / SECOND:.3f} {e.view}" for e in process.entries)


def failures(process: Process) -> list[SendFailed]:
    return [entry for entry in process.story if isinstance(entry, SendFailed)]
