"""A fake link between unicast machines: virtual time, and rules that lose, repeat, delay or collect chosen frames.

Frames of one source that arrive at one place at the same instant are handed over as one batch. Nothing here is random
and nothing waits: a run moves `now` to the next arrival or deadline, whichever comes first, and every machine checks
its invariants after every input.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from motet.protocol.core.counters import Counters
from motet.protocol.core.effects import Deliver, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND, format_ns
from motet.protocol.unicast import Unicast, UnicastConfig
from motet.protocol.unicast.receiver import ReceiveConnection
from motet.protocol.unicast.sender import SendConnection
from motet.protocol.wire.body import pack
from motet.protocol.wire.frames import UnicastData
from motet.protocol.wire.reassembler import Reassembler

A, B, C = (Address(name, "127.0.0.1", 7000 + number, number) for number, name in enumerate("ABC", start=1))
FIRST_CONN_ID = {A: 100, B: 200, C: 300}  # the first connection that A opens is 101

NO_REAPING = UnicastConfig(conn_expiry_ns=0)  # so that a link at rest has no deadline at all

LATENCY_NS = MILLISECOND
ALWAYS = 1 << 30
MOST_STEPS = 200_000  # of one run; more means that time stands still

F = TypeVar("F", bound=Frame)


@dataclass(frozen=True, slots=True)
class Flight:
    """One frame on its way."""

    sent_at: int
    source: Address
    to: Address
    frame: Frame


Predicate = Callable[[Flight], bool]
Fate = Callable[[Flight], Sequence[int]]  # the extra delay of each copy that arrives; no copy means lost


@dataclass(slots=True)
class Rule:
    applies: Predicate
    fate: Fate
    times: int


class Link:
    def __init__(self, *members: Address, config: UnicastConfig = NO_REAPING, batching: bool = True) -> None:
        self.now = 0
        self.batching = batching  # False: every frame is an input of its own
        self.log: list[Flight] = []  # all that was ever transmitted, lost or not
        self.told: dict[Address, list[Effect]] = defaultdict(list)  # what is neither a frame nor a delivery
        self.counters = {member: Counters() for member in members or (A, B)}
        self.machines = {
            member: Unicast(member, config, counters, FIRST_CONN_ID[member])
            for member, counters in self.counters.items()
        }
        self._rules: list[Rule] = []
        self._flying: list[tuple[int, int, Flight]] = []  # (arrives at, order of transmission, ...)
        self._order = 0
        self._inboxes: dict[tuple[Address, Address], list[bytes]] = defaultdict(list)
        self._reassemblers: dict[tuple[Address, Address], Reassembler] = defaultdict(Reassembler)

    def __getitem__(self, member: Address) -> Unicast:
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

    def collect(self, applies: Predicate, times: int = ALWAYS) -> list[Flight]:
        """Take frames off the link; hand them to `bring` when they shall arrive, in any order."""
        taken: list[Flight] = []

        def take(flight: Flight) -> Sequence[int]:
            taken.append(flight)
            return ()

        self.rule(applies, take, times)
        return taken

    def heal(self) -> None:
        self._rules.clear()

    # Inputs

    def send(self, source: Address, to: Address, *messages: bytes) -> None:
        """Each message by itself, so that each has a frame of its own while there is space."""
        for message in messages:
            self.perform(source, self[source].send(to, [message], self.now))

    def bring(self, flights: Iterable[Flight]) -> list[Effect]:
        """These frames, of one source and for one receiver, arrive now as one batch."""
        batch = list(flights)
        return self.receive(batch[0].to, batch[0].source, [flight.frame for flight in batch])

    def receive(self, member: Address, source: Address, frames: Sequence[Frame]) -> list[Effect]:
        """Hand a batch over at once; the answer is what the machine made of it, which is also performed."""
        return self.perform(member, self[member].receive(source, frames, self.now))

    def perform(self, member: Address, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case Transmit():
                    self._transmit(Flight(self.now, member, effect.to, effect.frame))
                case Deliver():
                    self._unpack(member, effect)
                case _:
                    self.told[member].append(effect)
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

    def inbox(self, member: Address, source: Address) -> list[bytes]:
        """The messages of `source` that were delivered to `member`."""
        return self._inboxes[member, source]

    def frames(self, source: Address, kind: type[F]) -> list[F]:
        """What `source` transmitted of one kind."""
        return [flight.frame for flight in self.log if flight.source == source and isinstance(flight.frame, kind)]

    def times(self, applies: Predicate) -> list[int]:
        """When frames were transmitted."""
        return [flight.sent_at for flight in self.log if applies(flight)]

    def kinds(self) -> Counter[str]:
        return Counter(type(flight.frame).__name__ for flight in self.log)

    def sender(self, source: Address, to: Address) -> SendConnection:
        connection = self[source].sender(to)
        assert connection is not None, f"{source} has no connection to {to}"
        return connection

    def receiver(self, member: Address, source: Address) -> ReceiveConnection:
        connection = self[member].receiver(source)
        assert connection is not None, f"{member} has no window for {source}"
        return connection

    def is_in_step(self, source: Address, to: Address) -> bool:
        """Whether both ends agree on the connection id and on the lowest seqno, and nothing waits."""
        sender, receiver = self.sender(source, to), self.receiver(to, source)
        same = (sender.conn_id, sender.window.low) == (receiver.conn_id, receiver.window.low)
        return same and sender.is_flushed and not sender.is_syncing and not self[to].is_syncing(source)

    # Inside

    def _transmit(self, flight: Flight) -> None:
        self.log.append(flight)
        for extra_ns in self._fate(flight):
            self._order += 1
            self._flying.append((self.now + LATENCY_NS + extra_ns, self._order, flight))

    def _fate(self, flight: Flight) -> Sequence[int]:
        for rule in self._rules:
            if rule.times and rule.applies(flight):
                rule.times -= 1
                return rule.fate(flight)
        return (0,) if flight.to in self.machines else ()

    def _unpack(self, member: Address, effect: Deliver) -> None:
        reassembler = self._reassemblers[member, effect.sender]
        for body in effect.bodies:
            self._inboxes[member, effect.sender] += reassembler.feed(body)

    def _next_moment(self) -> int | None:
        moments = [machine.next_deadline() for machine in self.machines.values()]
        moments += [arrives_at for arrives_at, _, _ in self._flying]
        return min((moment for moment in moments if moment is not None), default=None)

    def _step(self, moment: int) -> None:
        self.now = max(self.now, moment)
        for batch in self._take_arrived():
            self.bring(batch)
        for member, machine in self.machines.items():
            deadline = machine.next_deadline()
            if deadline is not None and deadline <= self.now:
                self.perform(member, machine.tick(self.now))

    def _take_arrived(self) -> list[list[Flight]]:
        arrived = sorted(entry for entry in self._flying if entry[0] <= self.now)
        self._flying = [entry for entry in self._flying if entry[0] > self.now]
        if not self.batching:
            return [[flight] for _, _, flight in arrived]
        batches: dict[tuple[Address, Address], list[Flight]] = defaultdict(list)
        for _, _, flight in arrived:
            batches[flight.to, flight.source].append(flight)
        return list(batches.values())

    def _last_state(self) -> str:
        return "; ".join(
            f"{format_ns(f.sent_at)} {f.source.name}->{f.to.name} {type(f.frame).__name__}" for f in self.log[-12:]
        )


def numbered(first: int, last: int) -> list[bytes]:
    """Messages that say which they are."""
    return [f"message {number}".encode() for number in range(first, last + 1)]


def data(conn_id: int, seqno: int, *messages: bytes, first: bool = False) -> UnicastData:
    """A data frame; without messages it carries the one numbered like the frame."""
    return UnicastData(conn_id, first, seqno, pack(messages or numbered(seqno, seqno)))


# Predicates


def everything(_: Flight) -> bool:
    return True


def kind(*kinds: type[Frame]) -> Predicate:
    return lambda flight: isinstance(flight.frame, kinds)


def data_of(*seqnos: int) -> Predicate:
    return lambda flight: isinstance(flight.frame, UnicastData) and flight.frame.seqno in seqnos


def first_data(flight: Flight) -> bool:
    return isinstance(flight.frame, UnicastData) and flight.frame.first


def path(source: Address, to: Address) -> Predicate:
    return lambda flight: (flight.source, flight.to) == (source, to)
