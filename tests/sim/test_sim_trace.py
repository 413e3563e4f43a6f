"""A simulated world can be traced: with the events that a driver writes, and without becoming another world."""

from collections import Counter
from random import Random

import pytest

from motet.protocol.core.identity import Address
from motet.protocol.core.trace import TraceEvent, TraceKind
from motet.protocol.member import Member, MemberConfig
from motet.protocol.member.trace import Tracer
from motet.sim.runner import run_seed
from motet.sim.scenarios.channels import SeedOutcome

SEED = 3


def run(scenario: str) -> tuple[SeedOutcome, list[TraceEvent]]:
    events: list[TraceEvent] = []
    return run_seed(scenario, SEED, trace=events.append), events


@pytest.fixture(scope="module")
def ordered() -> tuple[SeedOutcome, list[TraceEvent]]:
    return run("total-order")


@pytest.mark.parametrize("scenario", ["channels", "small-world"])
def test_a_trace_changes_nothing_and_is_itself_the_same_each_time(scenario: str) -> None:
    outcome, events = run(scenario)
    assert outcome == run_seed(scenario, SEED)
    assert (outcome, events) == run(scenario)


def test_a_trace_changes_nothing_of_total_order(ordered: tuple[SeedOutcome, list[TraceEvent]]) -> None:
    assert ordered[0] == run_seed("total-order", SEED)


def test_a_trace_tells_what_the_world_counted(ordered: tuple[SeedOutcome, list[TraceEvent]]) -> None:
    outcome, events = ordered
    kinds = Counter(event.kind for event in events)
    delivered = sum(event.count or 0 for event in events if event.kind is TraceKind.DELIVERED)
    assert delivered == outcome.stats["delivered"]
    assert kinds[TraceKind.DATAGRAM_SENT] == outcome.stats["datagrams"]
    resent = sum(event.count or 0 for event in events if event.kind is TraceKind.FRAME_RESENT)
    assert resent == outcome.stats["resent"]
    views = {event.view for event in events if event.kind is TraceKind.VIEW_INSTALLED}
    assert len(views) > 1
    assert kinds[TraceKind.STABLE] > 0
    assert [event.at_ns for event in events] == sorted(event.at_ns for event in events)


def test_who_crashes_does_nothing_any_more() -> None:
    _, events = run("channels")
    (crash, *_) = [event for event in events if event.kind is TraceKind.FAILED]
    later = events[events.index(crash) + 1 :]
    assert later
    assert crash.member not in {event.member for event in later}


def test_driver_and_simulator_write_the_same_schema(ordered: tuple[SeedOutcome, list[TraceEvent]]) -> None:
    """Both make events with one Tracer; a kind has the same columns wherever it comes from."""
    _, simulated = ordered
    events: list[TraceEvent] = []
    member = Member(Address.draw("a", "127.0.0.1", 7800, Random(1)), "g", MemberConfig(), Random(1))
    tracer = Tracer(member, events.append)
    tracer.started(0)
    tracer.performed(member.multicast_messages([b"x"], 0), 0)
    shapes: dict[TraceKind, set[tuple[str, ...]]] = {}
    for event in simulated:
        shapes.setdefault(event.kind, set()).add(tuple(event.as_dict()))
    assert {event.kind for event in events} == {TraceKind.STARTED, TraceKind.ADMITTED, TraceKind.DELIVERED}
    assert all(tuple(event.as_dict()) in shapes[event.kind] for event in events)
