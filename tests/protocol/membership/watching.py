"""A failure detector to play with: a virtual clock, and frames without the numbers that measure the link."""

from __future__ import annotations

from dataclasses import replace

from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import NO_VIEW, ViewId
from motet.protocol.membership import DetectorConfig, FailureDetector
from motet.protocol.membership.detector import SignOfLife, Suspected
from motet.protocol.wire.frames import AreYouAlive, Heartbeat, IAmAlive, IndirectProbe, Vouched
from tests.protocol.membership.people import A

# What counts against a silent peer after suspect_ns and verify_ns is enough where nothing is lost, as in every preset.
CONFIG = DetectorConfig(
    heartbeat_ns=100 * MILLISECOND, suspect_ns=500 * MILLISECOND, verify_ns=200 * MILLISECOND, verify_attempts=4
)
ASK_EVERY_NS = 50 * MILLISECOND
ASKING = tuple(CONFIG.suspect_ns + number * ASK_EVERY_NS for number in range(4))  # after the last sign of life
SUSPECTING = CONFIG.suspect_ns + CONFIG.verify_ns
MOST_STEPS = 200_000  # of one run; more means that time stands still
START = 7 * SECOND  # a clock does not begin at zero


def plain(effects: list[Effect]) -> list[Effect]:
    return [plain_one(effect) for effect in effects]


def plain_one(effect: Effect) -> Effect:
    """The same frame, without what it measures."""
    if isinstance(effect, Transmit) and isinstance(effect.frame, Heartbeat | AreYouAlive | IAmAlive):
        return Transmit(effect.to, replace(effect.frame, beat=0, echo=0, echo_delay_ns=0, loss=0))
    return effect


class PlainDetector(FailureDetector):
    """Its frames carry no measurements, so that a test can say exactly what it expects."""

    def heard(self, peer: Address, now: int) -> list[Effect]:
        return plain(super().heard(peer, now))

    def receive(self, source: Address, frame: SignOfLife, now: int) -> list[Effect]:
        return plain(super().receive(source, frame, now))

    def receive_indirect(self, source: Address, frame: IndirectProbe | Vouched, now: int) -> list[Effect]:
        return plain(super().receive_indirect(source, frame, now))

    def tick(self, now: int) -> list[Effect]:
        return plain(super().tick(now))


def watching(
    *peers: Address, config: DetectorConfig = CONFIG, now: int = START, view: ViewId = NO_VIEW
) -> PlainDetector:
    """One that has just spoken, so that the next heartbeat is a whole interval away."""
    detector = PlainDetector(A, config)
    detector.watch(peers, now, view)
    detector.spoke(now)
    return detector


def run(detector: FailureDetector, until: int, *, is_all: bool = False) -> list[tuple[int, Effect]]:
    """Tick at every deadline up to `until`; heartbeats and indirect probes are left out, unless all is asked for."""
    happened = []
    while (deadline := detector.next_deadline()) is not None and deadline <= until:
        effects = detector.tick(deadline)
        detector._check()
        assert effects, "a deadline at which nothing happens"
        happened += [(deadline - START, effect) for effect in effects]
        assert len(happened) < MOST_STEPS
    return [(at, effect) for at, effect in happened if is_all or not is_by_the_way(effect)]


def is_by_the_way(effect: Effect) -> bool:
    return isinstance(effect, Transmit) and isinstance(effect.frame, Heartbeat | IndirectProbe)


def ask(peer: Address) -> Transmit:
    return Transmit(peer, AreYouAlive())


def beat(*peers: Address, view: ViewId = NO_VIEW) -> list[Effect]:
    return [Transmit(peer, Heartbeat(view)) for peer in peers]


def verification(peer: Address, since: int = 0, pause_ns: int = 0) -> list[tuple[int, Effect]]:
    """All that happens to a peer that was last heard at `since`, and paused for so much too long before."""
    begin = since + min(pause_ns, 3 * CONFIG.suspect_ns)
    return [*((begin + at, ask(peer)) for at in ASKING), (begin + SUSPECTING, Suspected(peer))]
