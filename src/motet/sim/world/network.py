"""The network model: loss, duplication, delay, reordering, bandwidth, and links that are cut in one direction or both.

Control frames (all frames that carry no data) may also arrive seconds late, as a second copy or as the only one. Such a
frame outlives several view changes and reaches whichever process runs at its destination when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from motet.errors import ConfigError
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND, format_ns

JITTERS = ("none", "uniform", "exponential", "heavy")
LATE_LEAST_NS = 500 * MILLISECOND  # a late copy of a control frame comes at least so much later
LOSSES = ("cut", "lost", "queue full")  # results of `send` for a datagram that does not arrive
Link = tuple[str, str]  # (from, to) by name, so that a cut also applies to later incarnations


@dataclass(frozen=True, slots=True)
class NetworkProfile:
    """How the network treats datagrams. Probabilities are per datagram and receiver."""

    loss: float = 0.0
    duplication: float = 0.0
    packet_bytes: int = 0  # larger datagrams are as many packets, each lost by itself; 0: one packet each
    delay_ns: int = 100 * MICROSECOND
    jitter: str = "none"  # one of JITTERS: how `jitter_ns` is spread
    jitter_ns: int = 0
    reordering: float = 0.0  # this share is delayed by up to `reorder_ns` more
    reorder_ns: int = 0
    # This share is delayed by `straggler_least_ns` to `straggler_ns`, longer than any timeout expects.
    stragglers: float = 0.0
    straggler_ns: int = 0
    straggler_least_ns: int = 0  # equal to `straggler_ns`, all stragglers have the same delay
    straggler_bytes: int = 1 << 16  # only datagrams of at most this size straggle: a small value selects acks
    bytes_per_second: int = 0  # 0: no limit
    queue_bytes: int = 1 << 20  # datagrams beyond this backlog are dropped
    late_copies: float = 0.0  # this share of control frames arrives a second time, LATE_LEAST_NS to `late_ns` later
    late_only: float = 0.0  # this share of control frames arrives only that late
    late_ns: int = 0
    late_kinds: tuple[str, ...] = ()  # the kinds of control frames that may be late; empty: all kinds

    def __post_init__(self) -> None:
        if self.jitter not in JITTERS:
            raise ConfigError(f"jitter {self.jitter!r} is unknown; there are: {', '.join(JITTERS)}")

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.0%}, duplication {self.duplication:.0%}, delay {format_ns(self.delay_ns)} "
            f"+ {self.jitter} {format_ns(self.jitter_ns)}, "
            f"reordering {self.reordering:.0%} by {format_ns(self.reorder_ns)}, "
            f"stragglers {self.stragglers:.0%} up to {self.straggler_bytes} bytes by {format_ns(self.straggler_ns)}, "
            f"bandwidth {f'{self.bytes_per_second:,} B/s' if self.bytes_per_second else 'unlimited'}, control frames "
            f"again {self.late_copies:.0%} or only {self.late_only:.0%} up to {format_ns(self.late_ns)} late"
        )


def draw_profile(rng: Random) -> NetworkProfile:
    """A network somewhere between a quiet switch and a terrible radio link."""
    loss = rng.choice([0.0, rng.uniform(0, 0.05), rng.uniform(0.05, 0.2), rng.uniform(0.2, 0.5)])
    is_wide = rng.random() < 0.3
    delay_ns = rng.randrange(5 * MILLISECOND, 40 * MILLISECOND) if is_wide else rng.randrange(20_000, 2 * MILLISECOND)
    return NetworkProfile(
        loss=loss,
        duplication=rng.choice([0.0, 0.0, rng.uniform(0, 0.3)]),
        delay_ns=delay_ns,
        jitter=rng.choice(JITTERS),
        jitter_ns=rng.randrange(0, delay_ns),
        reordering=rng.choice([0.0, 0.0, rng.uniform(0, 0.3)]),
        reorder_ns=rng.randrange(1, 5 * delay_ns),
        stragglers=rng.choice([0.0, 0.0, rng.uniform(0, 0.3)]),
        straggler_ns=rng.randrange(100 * MILLISECOND, 1_000 * MILLISECOND),
        bytes_per_second=rng.choice([0, 0, rng.randrange(500_000, 50_000_000)]),
        queue_bytes=rng.choice([1 << 20, 8_000]),
    )


def with_late_control(rng: Random, profile: NetworkProfile, *, loses_none: bool = False) -> NetworkProfile:
    """The same network, on which control frames come again seconds later, or (unless `loses_none`) only then."""
    late_only = rng.choice([0.0, 0.0, 0.01, 0.05])
    return replace(
        profile,
        late_copies=rng.choice([0.0, 0.02, 0.1, 0.3]),
        late_only=0.0 if loses_none else late_only,
        late_ns=rng.choice([1, 3, 3, 10]) * SECOND,
    )


HEALTHY = NetworkProfile()


class Calendar(Protocol):
    """Schedules deliveries: a `Scheduler`, or an event loop in virtual time."""

    @property
    def now(self) -> int: ...

    def at(self, when: int, action: Callable[[], None]) -> None: ...


class Network:
    def __init__(self, scheduler: Calendar, rng: Random, profile: NetworkProfile) -> None:
        self.profile = profile
        self.sent = 0  # datagrams handed to the network so far
        self._scheduler = scheduler
        self._rng = rng
        self._cuts: dict[Link, int] = {}  # number of active cuts per link: two overlapping cuts need two repairs
        self._busy_until: dict[Link, int] = {}

    def cut(self, links: list[Link]) -> None:
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, links: list[Link]) -> None:
        for link in links:
            self._cuts[link] = max(0, self._cuts.get(link, 0) - 1)

    def heal(self) -> None:
        """From now on every datagram arrives soon and exactly once."""
        self._cuts.clear()
        self.profile = HEALTHY

    def send(self, source: Address, to: Address, size: int, arrive: Callable[[], None], *, control: str = "") -> str:
        """Send one datagram. Returns what happened to it, for the transcript.

        `control` is the kind of control frame that it carries; empty if it carries data.
        """
        self.sent += 1
        link = (source.name, to.name)
        if self._cuts.get(link):
            return "cut"
        packets = -(-size // self.profile.packet_bytes) if self.profile.packet_bytes and size else 1
        if any(self._rng.random() < self.profile.loss for _ in range(packets)):
            return "lost"
        departure = self._departure(link, size)
        if departure is None:
            return "queue full"
        late = self._late(departure, arrive, control) if control else ""
        if late == "late":
            return late
        copies = 1 + (self._rng.random() < self.profile.duplication)
        for _ in range(copies):
            self._scheduler.at(departure + self._delay(size), arrive)
        return late or ("" if copies == 1 else "twice")

    def _late(self, departure: int, arrive: Callable[[], None], kind: str) -> str:
        """Schedule a late arrival of a control frame, if one is drawn. Returns an empty string if not."""
        profile = self.profile
        if not profile.late_ns or (profile.late_kinds and kind not in profile.late_kinds):
            return ""
        choice = self._rng.random()
        if choice >= profile.late_copies + profile.late_only:
            return ""
        self._scheduler.at(departure + self._rng.randrange(LATE_LEAST_NS, profile.late_ns + 1), arrive)
        return "late" if choice < profile.late_only else "late again"

    def _departure(self, link: Link, size: int) -> int | None:
        profile = self.profile
        now = self._scheduler.now
        if not profile.bytes_per_second:
            return now
        start = max(now, self._busy_until.get(link, 0))
        if (start - now) * profile.bytes_per_second // SECOND > profile.queue_bytes:
            return None
        self._busy_until[link] = start + size * SECOND // profile.bytes_per_second
        return self._busy_until[link]

    def _delay(self, size: int) -> int:
        profile, rng = self.profile, self._rng
        delay = float(profile.delay_ns)
        if profile.jitter == "uniform":
            delay += rng.uniform(0, profile.jitter_ns)
        elif profile.jitter == "exponential":
            delay += rng.expovariate(1.0) * profile.jitter_ns
        elif profile.jitter == "heavy":
            delay += min(rng.paretovariate(1.5) - 1, 100.0) * profile.jitter_ns
        if rng.random() < profile.reordering:
            delay += rng.uniform(0, profile.reorder_ns)
        if rng.random() < profile.stragglers and size <= profile.straggler_bytes:
            delay += rng.uniform(profile.straggler_least_ns, profile.straggler_ns)
        return int(delay)
