"""A peer whose process lives while its driver does not run: how long it is believed, and what others are told."""

from __future__ import annotations

from dataclasses import replace

from motet.protocol.core.units import SECOND
from motet.protocol.core.view import ViewId
from motet.protocol.membership.detector import BecameBusy, BecameResponsive, Suspected
from motet.protocol.wire.frames import Busy
from tests.protocol.membership.people import A, B, C
from tests.protocol.membership.watching import CONFIG, START, PlainDetector, run, watching

VIEW, NEXT, OTHER = ViewId(3, A.incarnation), ViewId(4, A.incarnation), ViewId(3, C.incarnation)
LIMITED = replace(CONFIG, busy_max_ns=5 * SECOND)


def busy(detector: PlainDetector, begin: int, end: int, view: ViewId = VIEW) -> list[tuple[int, object]]:
    """BUSY of B at every heartbeat; what the detector does meanwhile, heartbeats and probes of others left out."""
    happened: list[tuple[int, object]] = []
    for at in range(begin, end, CONFIG.heartbeat_ns):
        happened += run(detector, at)
        happened += [(at - START, effect) for effect in detector.receive_busy(B, Busy(view), at)]
        detector._check()
    return happened


def test_a_busy_peer_is_neither_probed_nor_suspected_and_is_told_of_once() -> None:
    detector = watching(B, view=VIEW, config=LIMITED)
    happened = busy(detector, START + CONFIG.heartbeat_ns, START + 4 * SECOND)
    assert happened == [(CONFIG.suspect_ns, BecameBusy(B))]
    assert detector.is_busy(B, START + 4 * SECOND)
    assert detector.heard(B, START + 4 * SECOND) == [BecameResponsive(B)]
    assert not detector.is_busy(B, START + 4 * SECOND)


def test_a_busy_peer_that_falls_silent_is_suspected_like_any_other() -> None:
    detector = watching(B, view=VIEW, config=LIMITED)
    last = START + 3 * SECOND
    busy(detector, START + CONFIG.heartbeat_ns, last + 1)
    suspicions = [at for at, effect in run(detector, last + 10 * SECOND) if effect == Suspected(B)]
    assert suspicions == [last - START + CONFIG.suspect_ns + CONFIG.verify_ns]


def test_a_peer_that_is_busy_for_too_long_is_suspected_and_stays_so() -> None:
    detector = watching(B, view=VIEW, config=LIMITED)
    happened = busy(detector, START + CONFIG.heartbeat_ns, START + 20 * SECOND)
    suspicions = [at for at, effect in happened if effect == Suspected(B)]
    assert suspicions == [LIMITED.busy_max_ns + CONFIG.suspect_ns + CONFIG.verify_ns]
    assert detector.suspects == (B,)


def test_with_a_limit_of_nothing_nobody_is_kept() -> None:
    detector = watching(B, view=VIEW, config=replace(CONFIG, busy_max_ns=0))
    happened = busy(detector, START + CONFIG.heartbeat_ns, START + 2 * SECOND)
    assert (CONFIG.suspect_ns + CONFIG.verify_ns, Suspected(B)) in happened


def test_busy_of_the_view_before_ours_counts_and_that_of_any_other_does_not() -> None:
    for view, is_believed in ((VIEW, True), (NEXT, True), (OTHER, False)):
        detector = watching(B, view=VIEW, config=LIMITED)
        detector.watch([B], START, NEXT)
        busy(detector, START + CONFIG.heartbeat_ns, START + 3 * SECOND, view)
        assert (detector.suspects == ()) is is_believed, view


def test_busy_of_a_stranger_says_nothing() -> None:
    detector = watching(B, view=VIEW, config=LIMITED)
    assert detector.receive_busy(C, Busy(VIEW), START) == []
    assert detector.busy(START) == ()


def test_one_that_hears_busy_vouches_for_the_peer() -> None:
    detector = watching(B, C, view=VIEW, config=LIMITED)
    busy(detector, START + CONFIG.heartbeat_ns, START + 2 * SECOND)
    assert detector.has_received_from(B, START + SECOND)
