"""Deliveries on their way past a snapshot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.member.delivery import Delivered
from motet.protocol.member.snapshots import SnapshotAdapter
from motet.protocol.wire.body import Port, pack

A = Address("A", "127.0.0.1", 7801, 1 << 48)


def recorded(*delivered: Delivered) -> list[tuple[Channel, int, tuple[bytes, ...]]]:
    """Channel, id and messages, as the machine is told of them."""
    heard: list[tuple[Channel, int, tuple[bytes, ...]]] = []

    def record(channel: Channel, sender: Address, port: int, messages: Any, first: int, now: int) -> list[Any]:
        heard.append((channel, first, tuple(messages)))
        return []

    machine = SimpleNamespace(is_recording=True, record=record)
    strategy = SnapshotAdapter(A, *cast(Any, (None, None, None, machine)))
    assert strategy.hand_up(delivered, 0) == list(delivered)
    return heard


def test_ordered_frames_that_are_handed_up_as_one_are_recorded_one_by_one() -> None:
    """A recording ends behind one of them, which need not be the last."""
    bodies = (pack([b"a", b"b"]), pack([b"c"]))
    both = Delivered(Channel.TOTAL, A, (b"a", b"b", b"c"), 7, Port.APP, 4, bodies)
    assert recorded(both) == [(Channel.TOTAL, 4, (b"a", b"b")), (Channel.TOTAL, 5, (b"c",))]


def test_a_plain_stream_is_recorded_as_it_comes() -> None:
    bodies = (pack([b"a"]), pack([b"b"]))
    both = Delivered(Channel.MULTICAST, A, (b"a", b"b"), None, Port.APP, 4, bodies)
    assert recorded(both) == [(Channel.MULTICAST, 4, (b"a", b"b"))]
