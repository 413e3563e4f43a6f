"""A snapshot of the demo adds up, or it is no consistent cut."""

from __future__ import annotations

import json

from motet.api.state import APPLICATION, pack_parts
from motet.harness.demo.cut import balance
from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.snapshot import Report, SnapshotId, SnapshotResult, SnapshotTaken, Waiting
from motet.protocol.wire.snapshot import ChannelState, InFlight
from tests.protocol.snapshot.alone import VIEW, A, B, C

ID = SnapshotId(A.incarnation, 1)


def state(sent: int, heard: int, *, failed: bool = False) -> bytes:
    """Of a member that heard so many messages of A, who alone speaks."""
    told = {"sent": sent, "heard": {f"{A.incarnation:016x}": heard}, "failed": failed}
    return pack_parts({APPLICATION: json.dumps(told).encode()})


def report(application: bytes, flying: int = 0, waiting: int = 0) -> Report:
    channel = ChannelState(Channel.TOTAL, A.incarnation, (InFlight(0, b"x"),) * flying)
    late = (Waiting(Channel.TOTAL, NOBODY, 0, b"x"),) * waiting
    return Report(ID, 0, application, 0, 0, (), (), late, (channel,))


def taken(reports: dict[Address, Report]) -> SnapshotResult:
    return SnapshotResult.of(SnapshotTaken(ID, VIEW, reports))


def test_said_is_heard_and_under_way_for_every_pair() -> None:
    told = balance(taken({A: report(state(10, 9), 0, waiting=1), B: report(state(0, 7), 2), C: report(state(0, 5), 4)}))
    assert told == {"pairs": 9, "wrong": [], "sent": 10, "under_way": 7}


def test_a_message_that_is_nowhere_or_comes_from_the_future_is_named() -> None:
    told = balance(taken({A: report(state(10, 10)), B: report(state(0, 9)), C: report(state(0, 11))}))
    assert told["wrong"] == ["B of A", "C of A"]


def test_what_was_taken_back_may_be_missing_but_nothing_may_be_heard_before_it_was_said() -> None:
    told = balance(taken({A: report(state(10, 9, failed=True)), B: report(state(0, 10)), C: report(state(0, 11))}))
    assert told["wrong"] == ["C of A"]
