"""Fault injection: datagrams of a running member are dropped, delayed, duplicated, reordered or blocked, by rule.

    drop=0.2            one in five, to and from everybody       drop=0.2@b         only with the peer b
    cut@b               block both directions                    cut@b:out          only what we send to b
    delay=50ms          everything                               delay=50ms:0.5     half of it
    delay=10ms-80ms     drawn for each datagram                  duplicate=0.1      one in ten arrives twice
    reorder=0.1         one in ten is overtaken by later ones    clear, clear@b     no more of that
    drop=0.5#ack        only datagrams that carry an acknowledgement: FRAME_GROUPS has the words after the #

A peer is a member's name, an endpoint `host:port`, or `*`. A name is known from the first view that the peer was in;
until then only its endpoint tells who it is. All rules that match a datagram are drawn for, each by itself: first cut
and drop, then duplicate, then delay and reorder for each copy. A rule replaces the one before it of the same kind,
peer, direction and frames, and a probability of 0 takes it away. Nothing here knows a clock or a socket: the driver
asks `apply` for each datagram, but only while `is_active`, and `release` when `next_deadline` has come.

Bounds: MOST_RULES rules, MOST_DELAYED datagrams and MOST_DELAYED_BYTES bytes delayed (further ones are dropped and
counted), MOST_NAMES names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from motet.errors import ConfigError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.identity import Endpoint
from motet.protocol.core.units import HOUR, MILLISECOND, parse_duration, spell_duration
from motet.protocol.wire.codec import kind_name

MOST_RULES = 64
MOST_DELAYED = 10_000
MOST_DELAYED_BYTES = 64 << 20
MOST_NAMES = 1_024
MOST_DELAY_NS = HOUR
REORDER_NS = 20 * MILLISECOND  # far enough behind for others to overtake, and sooner than most repairs
ANYBODY = "*"
FAULT_FORMS = (
    "drop=P, duplicate=P, reorder=P, delay=TIME, delay=TIME:P, delay=TIME-TIME:P, cut, clear; each may end with "
    "@PEER or @PEER:in or @PEER:out, where PEER is a name, host:port or *, and then with #ack, #data, #seq or "
    "#heartbeat; P is 0 to 1; for example drop=0.2@b:in"
)
# A datagram carries one frame. A rule that ends with # and one of these words strikes only datagrams with such a frame.
FRAME_GROUPS: dict[str, frozenset[str]] = {
    "ack": frozenset({"UnicastAck", "MulticastAck", "Proposals", "OrderAck", "OrderSeqAck"}),
    "data": frozenset({"UnicastData", "MulticastData", "OrderData"}),
    "seq": frozenset({"OrderSeq"}),
    "heartbeat": frozenset({"Heartbeat", "AreYouAlive", "IAmAlive"}),
}


class Direction(Enum):
    IN = "in"
    OUT = "out"


class FaultKind(Enum):
    CUT = "cut"
    DROP = "drop"
    DUPLICATE = "duplicate"
    DELAY = "delay"
    REORDER = "reorder"
    CLEAR = "clear"


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule; `str` of it is the text that `parse_fault` reads."""

    kind: FaultKind
    probability: float = 1.0
    delay_ns: tuple[int, int] = (0, 0)  # least and most, for DELAY
    peer: str = ANYBODY
    direction: Direction | None = None  # None: both
    frames: str | None = None  # a key of FRAME_GROUPS; None: all frames

    def __str__(self) -> str:
        where = f"@{self.peer}" if (self.peer, self.direction) != (ANYBODY, None) else ""
        where += f":{self.direction.value}" if self.direction is not None else ""
        where += f"#{self.frames}" if self.frames is not None else ""
        return f"{self.kind.value}{self._value()}{where}"

    def _value(self) -> str:
        if self.kind in (FaultKind.CUT, FaultKind.CLEAR):
            return ""
        if self.kind is not FaultKind.DELAY:
            return f"={self.probability!r}"
        least, most = map(spell_duration, self.delay_ns)
        share = f":{self.probability!r}" if self.probability < 1 else ""
        return f"={least if least == most else f'{least}-{most}'}{share}"

    def matches(self, direction: Direction, peer: str, name: str | None, frame: str) -> bool:
        """`frame`: the name of the frame in the datagram."""
        is_of_frames = self.frames is None or frame in FRAME_GROUPS[self.frames]
        return is_of_frames and self.direction in (None, direction) and self.peer in (ANYBODY, peer, name)

    def replaces(self, other: Fault) -> bool:
        return self._place == other._place

    @property
    def _place(self) -> tuple[FaultKind, str, Direction | None, str | None]:
        return self.kind, self.peer, self.direction, self.frames

    def clears(self, other: Fault) -> bool:
        is_of_frames = self.frames in (None, other.frames)
        return is_of_frames and self.peer in (ANYBODY, other.peer) and self.direction in (None, other.direction)


class DelayedDatagram(NamedTuple):
    """A datagram whose injected delay is over."""

    direction: Direction
    peer: Endpoint
    data: bytes


class FaultInjector:
    def __init__(self, rng: Random, counters: Counters | None = None) -> None:
        self.is_active = False  # while False the driver does not call `apply`, which keeps the hot path fast
        self._rng = rng
        self._counters = counters if counters is not None else Counters()
        self._rules: list[Fault] = []
        self._names: OrderedDict[Endpoint, str] = OrderedDict()
        self._queue: list[tuple[int, int, DelayedDatagram]] = []  # a heap by due time, then by order of arrival
        self._delayed_bytes = 0
        self._arrivals = 0

    # Rules

    def add(self, fault: Fault) -> None:
        """Add a rule, or remove some with CLEAR; datagrams that are already delayed keep their time."""
        if fault.kind is FaultKind.CLEAR:
            self._rules = [rule for rule in self._rules if not fault.clears(rule)]
        else:
            rules = [rule for rule in self._rules if not fault.replaces(rule)]
            if len(rules) >= MOST_RULES:
                raise ConfigError(f"there are {MOST_RULES} fault rules already, which is the maximum; clear some first")
            self._rules = [*rules, fault] if fault.probability > 0 else rules
        self._update()

    def clear(self) -> None:
        """Remove all rules; datagrams that are already delayed keep their time."""
        self._rules = []
        self._update()

    def learn(self, endpoint: Endpoint, name: str) -> None:
        """Map an endpoint to a member's name, so that rules can name members; called with every view."""
        self._names[endpoint] = name
        self._names.move_to_end(endpoint)
        if len(self._names) > MOST_NAMES:
            self._names.popitem(last=False)

    @property
    def rules(self) -> tuple[Fault, ...]:
        return tuple(self._rules)

    def describe(self) -> dict[str, object]:
        return {
            "rules": [str(rule) for rule in self._rules],
            "waiting": len(self._queue),
            "waiting_bytes": self._delayed_bytes,
            "dropped": self._counters[Count.FAULT_DROPPED],
            "delayed": self._counters[Count.FAULT_DELAYED],
            "duplicated": self._counters[Count.FAULT_DUPLICATED],
            "overflowed": self._counters[Count.FAULT_OVERFLOWED],
        }

    # Datagrams

    def apply(
        self, direction: Direction, peer: Endpoint, data: bytes, now: int, frame: str | None = None
    ) -> list[bytes]:
        """The copies that go on at once: none, one or more. Those that are held back come out of `release`.

        `frame`: which frame it carries, if `data` is sealed and does not say so itself.
        """
        passed = []
        for due in self.fates(direction, peer, now, kind_name(data) if frame is None else frame):
            if due <= now:
                passed.append(data)
            else:
                self._delay_until(due, DelayedDatagram(direction, peer, data))
        return passed

    def fates(self, direction: Direction, peer: Endpoint, now: int, frame: str = "") -> list[int]:
        """The time at which each copy of a datagram is due. Draws and counts, but delays nothing itself."""
        where, name = str(peer), self._names.get(peer)
        rules = [rule for rule in self._rules if rule.matches(direction, where, name, frame)]
        if any(rule.kind in (FaultKind.CUT, FaultKind.DROP) and self._strikes(rule) for rule in rules):
            self._counters[Count.FAULT_DROPPED] += 1
            return []
        extra = sum(rule.kind is FaultKind.DUPLICATE and self._strikes(rule) for rule in rules)
        self._counters[Count.FAULT_DUPLICATED] += extra
        return [now + self._delay(rules) for _ in range(1 + extra)]

    def take_due(self, now: int) -> list[DelayedDatagram]:
        """The delayed datagrams that are due, in the order of their due times."""
        due_now = []
        while self._queue and self._queue[0][0] <= now:
            delayed = heappop(self._queue)[2]
            self._delayed_bytes -= len(delayed.data)
            due_now.append(delayed)
        self._update()
        return due_now

    def next_deadline(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def _strikes(self, rule: Fault) -> bool:
        return rule.probability >= 1 or self._rng.random() < rule.probability

    def _delay(self, rules: list[Fault]) -> int:
        delay = 0
        for rule in rules:
            if rule.kind is FaultKind.DELAY and self._strikes(rule):
                delay += self._rng.randint(*rule.delay_ns)
            elif rule.kind is FaultKind.REORDER and self._strikes(rule):
                delay += self._rng.randint(1, REORDER_NS)
        return delay

    def _delay_until(self, due: int, delayed: DelayedDatagram) -> None:
        if len(self._queue) >= MOST_DELAYED or self._delayed_bytes + len(delayed.data) > MOST_DELAYED_BYTES:
            self._counters[Count.FAULT_OVERFLOWED] += 1
            return
        self._counters[Count.FAULT_DELAYED] += 1
        self._arrivals += 1
        self._delayed_bytes += len(delayed.data)
        heappush(self._queue, (due, self._arrivals, delayed))

    def _update(self) -> None:
        self.is_active = bool(self._rules or self._queue)


def parse_fault(text: str) -> Fault:
    """A rule as people write it; FAULT_FORMS says how."""
    head, hash_sign, frames = text.strip().partition("#")
    if hash_sign and frames not in FRAME_GROUPS:
        raise _unreadable(text, f"{frames[:20]!r} after the # is no known group of frames")
    rule, _, where = head.partition("@")
    peer, direction = _parse_where(where)
    if "@" in text and not peer:
        raise _unreadable(text, "no peer stands after the @")
    name, _, value = rule.partition("=")
    if name in ("cut", "clear") and "=" not in rule:
        return Fault(FaultKind(name), peer=peer or ANYBODY, direction=direction, frames=frames or None)
    parse = _VALUES.get(name)
    if parse is None:
        raise _unreadable(text, f"{name[:20]!r} is no kind of fault, or takes no value")
    try:
        probability, delay_ns = parse(value)
    except ConfigError as error:
        raise _unreadable(text, str(error)) from None
    return Fault(FaultKind(name), probability, delay_ns, peer or ANYBODY, direction, frames or None)


def _parse_where(where: str) -> tuple[str, Direction | None]:
    peer, colon, last = where.rpartition(":")
    if colon and last in ("in", "out"):
        return peer, Direction(last)
    return where, None


def _parse_chance(value: str) -> tuple[float, tuple[int, int]]:
    return _probability(value), (0, 0)


def _parse_delay(value: str) -> tuple[float, tuple[int, int]]:
    span, colon, share = value.partition(":")
    first, dash, last = span.partition("-")
    if dash and first.strip().isdecimal():  # 10-80ms: the unit at the end is meant for both
        first += last.strip().lstrip("0123456789.")
    least = parse_duration(first, "delay")
    most = parse_duration(last, "delay") if dash else least
    if not least <= most <= MOST_DELAY_NS:
        raise ConfigError(f"a delay of {span} is not from less to more, up to {spell_duration(MOST_DELAY_NS)}")
    return (_probability(share) if colon else 1.0), (least, most)


def _probability(value: str) -> float:
    try:
        probability = float(value)
    except ValueError:
        probability = -1.0
    if not 0 <= probability <= 1:
        raise ConfigError(f"the probability {value[:20]!r} is not in 0 to 1")
    return probability


_VALUES: dict[str, Callable[[str], tuple[float, tuple[int, int]]]] = {
    **dict.fromkeys(("drop", "duplicate", "reorder"), _parse_chance),
    "delay": _parse_delay,
}


def _unreadable(text: str, why: str) -> ConfigError:
    return ConfigError(f"fault {text[:60]!r} cannot be read: {why}; allowed are {FAULT_FORMS}")
