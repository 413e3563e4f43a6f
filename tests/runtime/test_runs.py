"""Runs of datagrams on real sockets: each arrives by itself, whether the kernel cuts them or we send one by one."""

from __future__ import annotations

import asyncio
import sys

import pytest

from motet.protocol.core.identity import Endpoint
from motet.runtime.transport import TransportConfig, UdpTransport

HERE = Endpoint("127.0.0.1", 0)


async def arrived(sender: UdpTransport, run: list[bytes]) -> list[bytes]:
    receiver = UdpTransport(HERE, TransportConfig())
    got: list[bytes] = []
    everything = asyncio.Event()

    def received(datagrams: list[bytes], sources: list[Endpoint] | None) -> None:
        got.extend(datagrams)
        if len(got) >= len(run):
            everything.set()

    receiver.start(asyncio.get_running_loop(), received)
    sender.start(asyncio.get_running_loop(), lambda datagrams, sources: None)
    try:
        sender.send_all(run, receiver.endpoint)
        await asyncio.wait_for(everything.wait(), 20)
    finally:
        receiver.close()
        sender.close()
    return got


@pytest.mark.parametrize("can_segment", [True, False])
@pytest.mark.parametrize("count", [1, 2, 48, 200])
def test_a_run_arrives_datagram_by_datagram_in_order(count: int, can_segment: bool) -> None:
    sender = UdpTransport(HERE, TransportConfig())
    sender._can_segment = sender._can_segment and can_segment
    run = [bytes([number]) * 1_400 for number in range(count)]
    assert asyncio.run(arrived(sender, run)) == run


def test_where_the_kernel_cannot_cut_each_datagram_leaves_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.runtime.transport.UDP_SEGMENT", 9_999)
    sender = UdpTransport(HERE, TransportConfig())
    run = [bytes([number]) * 1_400 for number in range(5)]
    assert asyncio.run(arrived(sender, run)) == run
    assert sender.lost == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the MTU of a path")
def test_loopback_carries_every_datagram_in_one_packet() -> None:
    sender = UdpTransport(HERE, TransportConfig())
    try:
        assert sender.packet_bytes(Endpoint("127.0.0.1", 7)) >= 65_507
        assert sender.packet_bytes(Endpoint("nobody.invalid", 7)) == 0
    finally:
        sender.close()
