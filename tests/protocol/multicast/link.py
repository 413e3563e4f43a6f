"""A fake group: multicast machines, virtual time, and rules that lose, repeat, delay, turn round or gather frames.

Nothing here is random and nothing waits: a run moves `now` to the next arrival or deadline, whichever comes first, and
every machine checks its invariants after every input. A broadcast reaches whoever is in the sender's own view. What is
delivered is checked at once: the seqnos of a stream have no gap and none comes twice, unless a digest moved it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeVar

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Broadcast, Channel, Deliver, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND, format_ns
from motet.protocol.multicast import Multicast, MulticastConfig
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.multicast.sender import MulticastSender
from motet.protocol.wire.body import pack
from motet.protocol.wire.frames import MulticastData
from motet.protocol.wire.reassembler import Reassembler

A, B, C, D, E = (Address(name, "127.0.0.1", 7000 + number, number) for number, name in enumerate("ABCDE", start=1))

LATENCY_NS = MILLISECOND
ALWAYS = 1 << 30
MOST_STEPS = 200_000  # of one run; more means that time stands still

F = TypeVar("F", bound=Frame)
X = TypeVar("X", bound=Effect)


@dataclass(frozen=True, slots=True)
class Flight:
    """One frame on its way to one member."""

    sent_at: int
    source: Address
    to: Address
    frame: Frame


Predicate = Callable[[Flight], bool]
Fate = Callable[[Flight], Sequence[int]]  # the extra delay of each copy that arrives; no copy means lost
Consumer = Callable[[Address, bytes], None]  # the sender and one message


@dataclass(slots=True)
class Rule:
    """What happens to the next `times` frames that it applies to."""

    applies: Predicate
    fate: Fate
    times: int


@dataclass(slots=True)
class Gathering:
    """Frames that are kept back until there are `count` of them, then set free in another shape."""

    count: int
    shape: Callable[[list[Flight]], list[list[Flight]]]
    flights: list[Flight] = field(default_factory=list)


class Group:
    """Machines in one first view (unless `joined` is False), each with its counters and what it delivered."""

    def __init__(
        self,
        *members: Address,
        config: MulticastConfig | None = None,
        configs: Mapping[Address, MulticastConfig] | None = None,
        joined: bool = True,
        checking: bool = True,
    ) -> None:
        self.now = 0
        self.checking = checking  # False for windows so wide that looking at every slot after every input takes minutes
        self.log: list[Flight] = []  # all that was ever transmitted, lost or not
        self.told: dict[Address, list[Effect]] = defaultdict(list)  # what is neither a frame nor a delivery
        self.reported: list[Exception] = []  # what consumers raised
        self.consumers: dict[Address, Consumer] = {}
        self.counters: dict[Address, Counters] = {}
        self.machines: dict[Address, Multicast] = {}
        self.views: dict[Address, tuple[Address, ...]] = {}
        self.crashed: set[Address] = set()
        self._config = config or MulticastConfig()
        self._rules: list[Rule] = []
        self._gatherings: list[Gathering] = []
        self._flying: list[tuple[int, int, list[Flight]]] = []  # (arrives at, order of transmission, one batch)
        self._order = 0
        self._inboxes: dict[tuple[Address, Address], list[bytes]] = defaultdict(list)
        self._delivered: dict[tuple[Address, Address], int] = {}
        self._reassemblers: dict[tuple[Address, Address], Reassembler] = defaultdict(Reassembler)
        for member in members:
            self.start(member, (configs or {}).get(member))
        if joined:
            self.install(*members)

    def __getitem__(self, member: Address) -> Multicast:
        return self.machines[member]

    # What happens to frames: the first rule that applies decides

    def rule(self, applies: Predicate, fate: Fate, times: int = ALWAYS) -> None:
        self._rules.append(Rule(applies, fate, times))

    def drop(self, applies: Predicate, times: int = ALWAYS) -> None:
        self.rule(applies, lambda _: (), times)

    def duplicate(self, applies: Predicate, copies: int = 2, times: int = ALWAYS) -> None:
        self.rule(applies, lambda _: (0,) * copies, times)

    def delay(self, applies: Predicate, by_ns: int, times: int = ALWAYS) -> None:
        self.rule(applies, lambda _: (by_ns,), times)

    def reorder(self, applies: Predicate, count: int) -> None:
        """The next `count` frames arrive in the opposite order, each by itself."""
        self._gather(applies, count, lambda flights: [[flight] for flight in reversed(flights)])

    def batch(self, applies: Predicate, count: int) -> None:
        """The next `count` frames, of one source and for one member, arrive together as one input."""
        self._gather(applies, count, lambda flights: [flights])

    def collect(self, applies: Predicate, times: int = ALWAYS) -> list[Flight]:
        """Take frames off the link; hand them to `bring` when they shall arrive, in any order."""
        taken: list[Flight] = []

        def take(flight: Flight) -> Sequence[int]:
            taken.append(flight)
            return ()

        self.rule(applies, take, times)
        return taken

    def heal(self) -> None:
        """No rule any more; what was kept back goes out."""
        self._rules.clear()
        for gathering in self._gatherings:
            self._set_free(gathering)

    # Members

    def start(self, member: Address, config: MulticastConfig | None = None) -> None:
        """A process without a view: it knows of itself only."""
        self.counters[member] = Counters()
        self.machines[member] = Multicast(member, config or self._config, self.counters[member])
        self.views[member] = (member,)

    def crash(self, member: Address) -> None:
        """From here on it hears and does nothing; what it sent before still arrives."""
        self.crashed.add(member)

    def install(
        self, *members: Address, at: Iterable[Address] | None = None, digest: Mapping[Address, int] | None = None
    ) -> None:
        """Install a view at its living members, or at those in `at` only.

        Without a digest, everybody starts with the highest seqno of those who are new to it.
        """
        highest = {member: self[member].sender.window.high for member in members}
        for member in members if at is None else at:
            if member not in self.crashed:
                strangers = {other for other in members if self[member].receiver(other) is None}
                entries = {other: seqno for other, seqno in highest.items() if other in strangers}
                self._install_at(member, members, entries if digest is None else digest)

    # Inputs

    def send(self, member: Address, *messages: bytes) -> None:
        """Each message by itself, so that each has a frame of its own while there is space."""
        for message in messages:
            self.perform(member, self[member].send([message], self.now))

    def pause(self, member: Address) -> None:
        self[member].pause()

    def resume(self, member: Address) -> None:
        self.perform(member, self[member].resume(self.now))

    def leave(self, member: Address) -> None:
        self.perform(member, self[member].leave(self.now))

    def bring(self, flights: Iterable[Flight]) -> list[Effect]:
        """These frames, of one source and for one member, arrive now as one batch."""
        batch = list(flights)
        return self.receive(batch[0].to, batch[0].source, *(flight.frame for flight in batch))

    def receive(self, member: Address, source: Address, *frames: Frame) -> list[Effect]:
        """Hand a batch over at once; the answer is what the machine made of it, which is also performed."""
        return self.perform(member, self[member].receive(source, frames, self.now))

    def perform(self, member: Address, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case Transmit():
                    self._transmit(member, [effect.to], effect.frame)
                case Broadcast():
                    self._transmit(member, self.views[member], effect.frame)
                case Deliver():
                    self._unpack(member, effect)
                case _:
                    self.told[member].append(effect)
        if self.checking:
            self[member]._check()
        return effects

    # Time

    def run_until_quiet(self, limit_ns: int = 60 * SECOND) -> None:
        """Until nothing is in flight and nobody has a deadline; fails when that takes more than `limit_ns`."""
        end = self.now + limit_ns
        for _ in range(MOST_STEPS):
            moment = self._next_moment()
            if moment is None:
                return
            assert moment <= end, f"not quiet after {format_ns(limit_ns)}: {self._last_state()}"
            self._step(moment)
        raise AssertionError(f"{MOST_STEPS} steps and still not quiet: {self._last_state()}")

    def run_for(self, duration_ns: int) -> None:
        end = self.now + duration_ns
        for _ in range(MOST_STEPS):
            moment = self._next_moment()
            if moment is None or moment > end:
                self.now = end
                return
            self._step(moment)
        raise AssertionError(f"{MOST_STEPS} steps before {format_ns(end)}: {self._last_state()}")

    # What a test looks at

    def inbox(self, member: Address, sender: Address) -> list[bytes]:
        """The messages of `sender` that were delivered to `member`."""
        return self._inboxes[member, sender]

    def frames(self, source: Address, kind: type[F]) -> list[F]:
        """What `source` transmitted of one kind, once for each member that it went to."""
        return [flight.frame for flight in self.log if flight.source == source and isinstance(flight.frame, kind)]

    def flights(self, applies: Predicate) -> list[Flight]:
        return [flight for flight in self.log if applies(flight)]

    def effects(self, member: Address, kind: type[X]) -> list[X]:
        """What `member` told its application, beside deliveries."""
        return [effect for effect in self.told[member] if isinstance(effect, kind)]

    def counted(self, count: Count) -> int:
        """Over all members."""
        return sum(counters[count] for counters in self.counters.values())

    def sender(self, member: Address) -> MulticastSender:
        return self[member].sender

    def receiver(self, member: Address, sender: Address) -> MulticastReceiver:
        receiver = self[member].receiver(sender)
        assert receiver is not None, f"{member} has no window for {sender}"
        return receiver

    # Inside

    def _gather(self, applies: Predicate, count: int, shape: Callable[[list[Flight]], list[list[Flight]]]) -> None:
        gathering = Gathering(count, shape)
        self._gatherings.append(gathering)

        def keep(flight: Flight) -> Sequence[int]:
            gathering.flights.append(flight)
            if len(gathering.flights) == gathering.count:
                self._set_free(gathering)
            return ()

        self.rule(applies, keep, count)

    def _set_free(self, gathering: Gathering) -> None:
        flights, gathering.flights = gathering.flights, []
        for batch in gathering.shape(flights) if flights else []:
            self._fly(batch, 0)

    def _install_at(self, member: Address, members: tuple[Address, ...], digest: Mapping[Address, int]) -> None:
        effects = self[member].install_view(members, digest, self.now)
        self.views[member] = members
        for other in members:
            if other != member:
                moved_to = max(self._delivered.get((member, other), 0), digest.get(other, 0))
                self._delivered[member, other] = moved_to
        self.perform(member, effects)

    def _transmit(self, source: Address, to: Iterable[Address], frame: Frame) -> None:
        for member in to:
            if member != source:
                flight = Flight(self.now, source, member, frame)
                self.log.append(flight)
                for extra_ns in self._fate(flight):
                    self._fly([flight], extra_ns)

    def _fate(self, flight: Flight) -> Sequence[int]:
        for rule in self._rules:
            if rule.times and rule.applies(flight):
                rule.times -= 1
                return rule.fate(flight)
        return (0,)

    def _fly(self, batch: list[Flight], extra_ns: int) -> None:
        self._order += 1
        heappush(self._flying, (self.now + LATENCY_NS + extra_ns, self._order, batch))

    def _unpack(self, member: Address, effect: Deliver) -> None:
        stream = (member, effect.sender)
        expected = self._delivered.get(stream, 0) + 1
        assert effect.channel is Channel.MULTICAST
        assert effect.bodies, "an empty delivery"
        assert effect.first == expected, f"{member} delivers {effect.first} of {effect.sender}, expected {expected}"
        self._delivered[stream] = effect.first + len(effect.bodies) - 1
        for body in effect.bodies:
            for message in self._reassemblers[stream].feed(body):
                self._consume(member, effect.sender, message)

    def _consume(self, member: Address, sender: Address, message: bytes) -> None:
        """What a driver does: a consumer that raises is reported, and the next message is handed over."""
        try:
            if member in self.consumers:
                self.consumers[member](sender, message)
            self._inboxes[member, sender].append(message)
        except ValueError as error:
            self.reported.append(error)

    def _living(self) -> list[tuple[Address, Multicast]]:
        return [(member, machine) for member, machine in self.machines.items() if member not in self.crashed]

    def _next_moment(self) -> int | None:
        moments = [machine.next_deadline() for _, machine in self._living()]
        if self._flying:
            moments.append(self._flying[0][0])
        return min((moment for moment in moments if moment is not None), default=None)

    def _step(self, moment: int) -> None:
        self.now = max(self.now, moment)
        while self._flying and self._flying[0][0] <= self.now:
            _, _, batch = heappop(self._flying)
            if batch[0].to in self.machines and batch[0].to not in self.crashed:
                self.bring(batch)
        for member, machine in self._living():
            deadline = machine.next_deadline()
            if deadline is not None and deadline <= self.now:
                self.perform(member, machine.tick(self.now))
                deadline = machine.next_deadline()
                assert deadline is None or deadline > self.now, f"{member} wants to be ticked without end"

    def _last_state(self) -> str:
        kinds = Counter(type(flight.frame).__name__ for flight in self.log[-100:])
        tail = "; ".join(
            f"{format_ns(f.sent_at)} {f.source.name}->{f.to.name} {type(f.frame).__name__}" for f in self.log[-12:]
        )
        return f"of the last 100 frames {dict(kinds)}; {tail}"


def numbered(first: int, last: int) -> list[bytes]:
    """Messages that say which they are."""
    return [f"message {number}".encode() for number in range(first, last + 1)]


def data(sender: Address, seqno: int, *messages: bytes, stable: int = 0) -> MulticastData:
    """A data frame; without messages it carries the one numbered like the frame."""
    return MulticastData(sender.incarnation, seqno, stable, pack(messages or numbered(seqno, seqno)))


def bodies(first: int, last: int) -> tuple[bytes, ...]:
    """The bodies of frames that carry one numbered message each."""
    return tuple(pack([message]) for message in numbered(first, last))


# Predicates


def kind(*kinds: type[Frame]) -> Predicate:
    return lambda flight: isinstance(flight.frame, kinds)


def data_of(*seqnos: int) -> Predicate:
    return lambda flight: isinstance(flight.frame, MulticastData) and flight.frame.seqno in seqnos


def path(source: Address, to: Address) -> Predicate:
    return lambda flight: (flight.source, flight.to) == (source, to)


def both(first: Predicate, second: Predicate) -> Predicate:
    return lambda flight: first(flight) and second(flight)
