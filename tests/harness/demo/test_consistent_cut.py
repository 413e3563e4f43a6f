"""A snapshot of the demo adds up, or it is no consistent cut."""

from __future__ import annotations

import json

from motet.api.state import APPLICATION, pack_parts
from motet.harness.demo.consistent_cut import balance
from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.snapshot import Report, SnapshotId, SnapshotResult, SnapshotTaken, Waiting
from motet.protocol.wire.snapshot import ChannelState, InFlight
from tests.protocol.snapshot.alone import VIEW, A, B, C

ID = SnapshotId(A.incarnation, 1)


def state(sent: int, numbers_by_sender: int, *, failed: bool = False) -> bytes:
    """The state of a member that received so many messages of A, the only sender."""
    reported = {"sent": sent, "received": {f"{A.incarnation:016x}": numbers_by_sender}, "failed": failed}
    return pack_parts({APPLICATION: json.dumps(reported).encode()})


def report(application: bytes, in_flight: int = 0, waiting: int = 0) -> Report:
    channel = ChannelState(Channel.TOTAL, A.incarnation, (InFlight(0, b"x"),) * in_flight)
    late = (Waiting(Channel.TOTAL, NOBODY, 0, b"x"),) * waiting
    return Report(ID, 0, application, 0, 0, (), (), late, (channel,))


def taken(reports: dict[Address, Report]) -> SnapshotResult:
    return SnapshotResult.of(SnapshotTaken(ID, VIEW, reports))


def test_sent_is_received_plus_in_flight_for_every_pair() -> None:
    reported = balance(
        taken({A: report(state(10, 9), 0, waiting=1), B: report(state(0, 7), 2), C: report(state(0, 5), 4)})
    )
    assert reported == {"pairs": 9, "wrong": [], "sent": 10, "in_flight": 7}


def test_a_message_that_is_nowhere_or_comes_from_the_future_is_named() -> None:
    reported = balance(taken({A: report(state(10, 10)), B: report(state(0, 9)), C: report(state(0, 11))}))
    assert reported["wrong"] == ["B of A", "C of A"]


def test_rolled_back_messages_may_be_missing_but_none_may_be_received_before_it_was_sent() -> None:
    reported = balance(taken({A: report(state(10, 9, failed=True)), B: report(state(0, 10)), C: report(state(0, 11))}))
    assert reported["wrong"] == ["C of A"]
