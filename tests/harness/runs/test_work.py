"""What a run is to do: shares, faults at one end, deadlines."""

from __future__ import annotations

from random import Random

import pytest

from motet.errors import ConfigError
from motet.harness.runs.work import RunPlan, Work, deadline_for, inbound, longest_delay_s, parse_deadline, payloads_of
from motet.protocol.core.identity import Endpoint
from motet.runtime.faults import Direction, FaultInjector, parse_fault

PEER = Endpoint("127.0.0.1", 7801)
DATAGRAMS = 20_000


def through(rules: tuple[str, ...]) -> int:
    """How many datagrams get from one member to another, when both have these faults."""
    ends = [FaultInjector(Random(seed)) for seed in (1, 2)]
    for end in ends:
        for rule in rules:
            end.add(parse_fault(rule))
    sent = sum(len(ends[0].apply(Direction.OUT, PEER, b"x", 0)) for _ in range(DATAGRAMS))
    return sum(len(ends[1].apply(Direction.IN, PEER, b"x", 0)) for _ in range(sent))


@pytest.mark.parametrize("drop", [0.1, 0.25, 0.5])
def test_a_share_that_is_lost_is_lost_once(drop: float) -> None:
    assert abs(through(inbound(drop, "")) / DATAGRAMS - (1 - drop)) < 0.02


def test_a_share_that_is_late_is_late_once() -> None:
    assert abs(through(inbound(0, "2000ms:0.5")) / DATAGRAMS - 0.5) < 0.02


def test_the_messages_are_shared_out() -> None:
    plan = RunPlan(5, 3, 100)
    assert [plan.share_of(index) for index in range(5)] == [34, 33, 33, 0, 0]


def test_every_message_is_another_one() -> None:
    payloads = [payload for index in range(3) for payload in payloads_of(index, range(100), 16)]
    assert len(set(payloads)) == 300
    assert {len(payload) for payload in payloads} == {16}


def test_work_travels_as_json() -> None:
    work = Work(1, 3, 10, 64, "total", "/d", ("127.0.0.1:1",), ("preset=lan",), None, 5)
    assert Work.from_json(work.to_json()) == work


def test_the_deadline_grows_with_all_that_takes_time() -> None:
    least = deadline_for(100, 100, 0, "", one_by_one=False)
    more = [
        deadline_for(10_000_000, 100, 0, "", one_by_one=False),
        deadline_for(100, 1 << 24, 0, "", one_by_one=False),
        deadline_for(100, 100, 0.5, "", one_by_one=False),
        deadline_for(100, 100, 0, "2000ms:0.5", one_by_one=False),
        deadline_for(100, 100, 0, "", one_by_one=True),
    ]
    assert all(deadline > least for deadline in more)
    assert longest_delay_s("10-80ms:0.5") == longest_delay_s("80ms") == 0.08


def test_a_deadline_is_a_time() -> None:
    assert parse_deadline("2min") == 120
    with pytest.raises(ConfigError, match="leaves no time at all"):
        parse_deadline("0s")
