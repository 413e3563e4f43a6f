"""How soon a crash is suspected, and how often live members are, in virtual time. Run: python benchmarks/detection.py

Three failure detectors watch each other over a link that loses datagrams, each way with the same chance, and delivers
some of them late. Nothing but heartbeats and probes travels: the hardest case, because traffic is a sign of life. One
of the three crashes after a warm-up, and the two others have to notice. A crash counts as noticed when it is suspected
for good: a datagram that was under way at the crash may take the first suspicion back.

False suspicions are counted during the warm-up, and apart from the rest while the detectors still learn: where nothing
is known of a network yet, it is taken for a good one.

Time is that of the simulated network, so the figures do not depend on the machine. The output is a Markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from statistics import median

from motet.protocol.core.effects import Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND
from motet.protocol.core.view import ViewId
from motet.protocol.membership import DetectorConfig, FailureDetector, MembershipConfig
from motet.protocol.membership.detector import Suspected, Trusted
from motet.protocol.wire.frames import AreYouAlive, Heartbeat, IAmAlive, IndirectProbe, Vouched

WARM_UP_NS = 60 * SECOND
CRASHES = 200
MEMBERS = tuple(Address(name, "127.0.0.1", 7000 + at, at + 1) for at, name in enumerate("ABC"))
VIEW = ViewId(1, 1)


@dataclass(frozen=True, slots=True)
class DetectionPreset:
    name: str
    config: DetectorConfig
    delay_ns: int  # one way

    @property
    def learning_ns(self) -> int:
        """How long the network is taken for a good one: three times what a crash takes to be suspected there."""
        return 3 * (self.config.suspect_ns + self.config.verify_ns)

    @property
    def most_ns(self) -> int:
        """The longest time from a crash until every survivor suspects it."""
        return 2 * self.config.longest_ns + 10 * SECOND


@dataclass(frozen=True, slots=True)
class DetectionNetwork:
    name: str
    loss: float = 0.0  # of datagrams, each way
    late: float = 0.0  # share of the others that come late
    late_ns: int = 0


PRESETS = (
    DetectionPreset("local", MembershipConfig.local().detector, 50 * MICROSECOND),
    DetectionPreset("lan", MembershipConfig.lan().detector, 250 * MICROSECOND),
    DetectionPreset("wan", MembershipConfig.wan().detector, 50 * MILLISECOND),
)
NETWORKS = (
    DetectionNetwork("nothing lost"),
    DetectionNetwork("10 % lost", 0.1),
    DetectionNetwork("30 % lost", 0.3),
    DetectionNetwork("50 % lost", 0.5),
    DetectionNetwork("half late by 0.1 s", late=0.5, late_ns=100 * MILLISECOND),
    DetectionNetwork("half late by 0.5 s", late=0.5, late_ns=500 * MILLISECOND),
    DetectionNetwork("half late by 2 s", late=0.5, late_ns=2 * SECOND),
    DetectionNetwork("50 % lost, half of the rest late by 2 s", 0.5, 0.5, 2 * SECOND),
)


class DetectionWorld:
    """The detectors, and what travels between them."""

    def __init__(self, preset: DetectionPreset, network: DetectionNetwork, rng: Random) -> None:
        self._preset, self._network, self._rng = preset, network, rng
        self._flights: list[tuple[int, int, Address, Address, Frame]] = []
        self._numbers = count()
        self._alive = {member: FailureDetector(member, preset.config) for member in MEMBERS}
        self.verdicts: list[tuple[int, Address, Suspected | Trusted]] = []  # when, whose, what
        for detector in self._alive.values():
            begin = rng.randrange(preset.config.heartbeat_ns)  # timers of members are not synchronised
            detector.watch(MEMBERS, begin, VIEW)
            detector.spoke(begin)

    def crash(self, member: Address) -> None:
        """What it has sent still arrives."""
        del self._alive[member]

    def run(self, until: int) -> None:
        while (now := self._next()) <= until:
            while self._flights and self._flights[0][0] <= now:
                _, _, source, to, frame = heappop(self._flights)
                if to in self._alive:
                    self._perform(to, receive(self._alive[to], source, frame, now), now)
            for member, detector in self._alive.items():
                due = detector.next_deadline()
                if due is not None and due <= now:
                    self._perform(member, detector.tick(now), now)

    def _next(self) -> int:
        deadlines = [detector.next_deadline() for detector in self._alive.values()]
        flights = [flight[0] for flight in self._flights[:1]]
        return min([*flights, *(due for due in deadlines if due is not None)])

    def _perform(self, member: Address, effects: list[Effect], now: int) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                self._carry(member, effect, now)
            elif isinstance(effect, Suspected | Trusted):
                self.verdicts.append((now, member, effect))

    def _carry(self, member: Address, effect: Transmit, now: int) -> None:
        network, rng = self._network, self._rng
        if rng.random() < network.loss:
            return
        delay_ns = self._preset.delay_ns + rng.randrange(self._preset.delay_ns // 4)
        delay_ns += network.late_ns if rng.random() < network.late else 0
        heappush(self._flights, (now + delay_ns, next(self._numbers), member, effect.to, effect.frame))


def receive(detector: FailureDetector, source: Address, frame: Frame, now: int) -> list[Effect]:
    if isinstance(frame, IndirectProbe | Vouched):
        return detector.receive_indirect(source, frame, now)
    assert isinstance(frame, Heartbeat | AreYouAlive | IAmAlive)
    return detector.receive(source, frame, now)


@dataclass(frozen=True, slots=True)
class DetectionRow:
    times: tuple[float, ...]  # seconds from a crash to its suspicion, sorted; two of each crash
    false: float  # false suspicions for each hour that one member watched another, after the learning
    at_first: float  # false suspicions for each peer, during the learning

    def __str__(self) -> str:
        p99 = self.times[int(len(self.times) * 0.99)]
        return f"{median(self.times):.2f} | {p99:.2f} | {self.false:.2g} | {self.at_first:.1%}"


def measure(preset: DetectionPreset, network: DetectionNetwork, crashes: int) -> DetectionRow:
    times: list[float] = []
    false_at: list[int] = []
    for seed in range(crashes):
        rng = Random(seed)
        world = DetectionWorld(preset, network, rng)
        crash_at = WARM_UP_NS + rng.randrange(SECOND)
        world.run(crash_at)
        false_at += [at for at, _, effect in world.verdicts if isinstance(effect, Suspected)]
        victim = rng.choice(MEMBERS)
        world.crash(victim)
        world.run(crash_at + preset.most_ns)
        times += [(at - crash_at) / SECOND for at in noticed(world, victim)]
    peers = len(MEMBERS) * (len(MEMBERS) - 1) * crashes
    at_first = sum(at < preset.learning_ns for at in false_at)
    hours = peers * (WARM_UP_NS - preset.learning_ns) / (3600 * SECOND)
    return DetectionRow(tuple(sorted(times)), (len(false_at) - at_first) / hours, at_first / peers)


def noticed(world: DetectionWorld, victim: Address) -> Iterator[int]:
    """When each survivor suspected it for good."""
    for survivor in (member for member in MEMBERS if member != victim):
        said = [(at, verdict) for at, member, verdict in world.verdicts if (member, verdict.peer) == (survivor, victim)]
        at, last = said[-1]
        assert isinstance(last, Suspected), f"{survivor} trusts one that has crashed"
        yield at


def main() -> None:
    parser = argparse.ArgumentParser(description="Detection time against loss and delay, in virtual time.")
    parser.add_argument("--crashes", type=int, default=CRASHES, help="crashes measured in each cell")
    crashes: int = parser.parse_args().crashes
    print("| preset | network | median s | p99 s | false suspicions per peer-hour | of peers at the start |")
    print("|---|---|---|---|---|---|")
    for preset in PRESETS:
        for network in NETWORKS:
            print(f"| {preset.name} | {network.name} | {measure(preset, network, crashes)} |", flush=True)


if __name__ == "__main__":
    main()
