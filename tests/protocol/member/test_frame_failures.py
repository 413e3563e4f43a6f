"""An error inside Motet while a peer's frame is handled, what a request for retransmission may cost, and the door."""

from __future__ import annotations

from typing import Any

import pytest

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect
from motet.protocol.member import Member
from motet.protocol.wire.body import pack
from motet.protocol.wire.codec import encode, group_id
from motet.protocol.wire.frames import MulticastAck, MulticastData, MulticastXmitRequest, UnicastXmitRequest
from tests.protocol.member.test_member import GROUP, A, B, C, datagrams, delivered, start_in_view


def from_b(frame: Any) -> bytes:
    return encode(group_id(GROUP), B.incarnation, A.incarnation, frame)


def broken(member: Member, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, Exception]]:
    """Every ack of B leads to an error."""
    failures: list[tuple[bytes, Exception]] = []

    def fail(*_: object, **__: object) -> list[Effect]:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(member.multicast.sender, "ack", fail)
    member.on_frame_failed = lambda datagram, error: failures.append((datagram, error))
    return failures


def test_the_frame_is_dropped_and_told_and_its_neighbours_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    member = start_in_view(B)
    failures = broken(member, monkeypatch)
    guilty = from_b(MulticastAck(0))
    data = [from_b(MulticastData(B.incarnation, seqno, 0, pack([b"%d" % seqno]))) for seqno in (1, 2)]
    effects = member.receive([data[0], guilty, data[1]], 0)
    assert [message for one in delivered(effects) for message in one.messages] == [b"1", b"2"]
    assert [datagram for datagram, _ in failures] == [guilty]
    assert member.counters[Count.FRAME_FAILED] == 1


def test_where_nobody_is_told_the_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is in the simulator."""
    member = start_in_view(B)
    broken(member, monkeypatch)
    member.on_frame_failed = None
    with pytest.raises(ZeroDivisionError):
        member.receive([from_b(MulticastAck(0))], 0)


def test_where_something_was_handed_up_the_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be lost with the error: a gap in what the application was promised."""
    member = start_in_view(B)
    member.on_frame_failed = lambda datagram, error: None

    def fail(*_: object) -> list[Effect]:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(member, "_made", fail)
    with pytest.raises(ZeroDivisionError):
        member.receive([from_b(MulticastData(B.incarnation, 1, 0, pack([b"lost"])))], 0)


def sent_bytes(effects: list[Effect]) -> int:
    return sum(len(one.data) * len(one.to) for one in datagrams(effects))


def test_small_requests_do_not_make_a_member_send_megabytes_again_and_again() -> None:
    member = start_in_view(B, C)
    member.multicast_messages([bytes(50_000)] * 100, 0)
    member.send(B, [bytes(50_000)] * 100, 0)
    sender = member.unicast.sender(B)
    assert sender is not None
    requests = [MulticastXmitRequest(A.incarnation, ((1, 100),)), UnicastXmitRequest(sender.conn_id, ((1, 100),))]
    for request in requests:
        assert sent_bytes(member.receive([from_b(request)], 0)) < 3 << 20
    rest = sum(sent_bytes(member.receive([from_b(request)], 0)) for _ in range(200) for request in requests)
    assert rest < 64 << 20  # what the windows hold, once; without a budget it would be 1.2 GB
    again = sum(sent_bytes(member.receive([from_b(request)], 0)) for _ in range(200) for request in requests)
    assert again == 0
    assert member.counters[Count.REPAIR_REFUSED] > 0
