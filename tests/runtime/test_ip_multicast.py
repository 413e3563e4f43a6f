"""One datagram for all: members that send to an IP multicast group. Skipped where loopback does not carry it."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest

import motet
from motet.protocol.core.identity import Endpoint
from motet.runtime.transport import TransportConfig, UdpTransport
from tests.runtime.cluster import cluster, run, take

GROUP = "239.192.77.85"
LOOPBACK = "127.0.0.1"
TIMEOUT_S = 2.0  # for one datagram on loopback


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def multicast_works() -> None:
    port = free_port()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker,
    ):
        try:
            listener.bind((GROUP, port))
            membership = socket.inet_aton(GROUP) + socket.inet_aton(LOOPBACK)
            listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            speaker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
            listener.settimeout(TIMEOUT_S)
            speaker.sendto(b"?", (GROUP, port))
            listener.recv(10)
        except OSError as error:
            pytest.skip(f"loopback carries no IP multicast here: {error}")


def config(**settings: Any) -> motet.Config:
    return motet.Config.local(
        transport="multicast", multicast_interface=LOOPBACK, multicast_port=free_port(), **settings
    )


@pytest.mark.usefixtures("multicast_works")
@pytest.mark.parametrize("keys", [[], ["11" * 32]], ids=["plain", "sealed"])
def test_members_deliver_the_same_sequence_and_send_each_frame_once(keys: list[str]) -> None:
    async def test() -> None:
        async with cluster("a", "b", "c", config=config(keys=keys)) as groups:
            sent: list[Endpoint] = []
            transport = groups[0]._driver.transport
            send = transport.send

            def note(data: bytes, to: Endpoint, tail: bytes = b"") -> None:
                sent.append(to)
                send(data, to, tail)

            transport.send = note  # type: ignore[method-assign]
            for number in range(60):
                await groups[number % 3].multicast(b"%d" % number)
            logs = [await take(group, 60) for group in groups]
            assert logs[0] == logs[1] == logs[2]
            assert transport.group in sent

    run(test)


@pytest.mark.usefixtures("multicast_works")
def test_loss_is_repaired_and_a_member_that_goes_is_missed() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c", "d", config=config()) as groups:
            for group in groups:
                group.inject("drop=0.2@*:in")
            for number in range(40):
                await groups[number % 3].multicast(b"%d" % number)
            logs = [await take(group, 40) for group in groups]
            assert logs[0] == logs[1] == logs[2] == logs[3]
            for group in groups:
                group.inject("clear")
            await groups[3].close()
            await asyncio.gather(*(group.until(lambda view: len(view.members) == 3) for group in groups[:3]))
            await (await groups[1].multicast(b"after")).stable()

    run(test)


@pytest.mark.usefixtures("multicast_works")
def test_two_groups_on_one_address_do_not_mix() -> None:
    async def test() -> None:
        both = config()
        one, two = (cluster("a", "b", "c", group=group, config=both) for group in ("one", "two"))
        async with one as firsts, two as seconds:
            await firsts[0].multicast(b"one")
            await seconds[0].multicast(b"two")
            assert [m.payload for m in await take(firsts[2], 1)] == [b"one"]
            assert [m.payload for m in await take(seconds[2], 1)] == [b"two"]

    run(test)


@pytest.mark.usefixtures("multicast_works")
def test_members_find_each_other_without_seeds() -> None:
    async def test() -> None:
        found = motet.Config.local(discovery_multicast=f"{GROUP}:{free_port()}", multicast_interface=LOOPBACK)
        async with motet.join("test", name="a", config=found) as a, motet.join("test", name="b", config=found) as b:
            await a.until(lambda view: len(view.members) == 2)
            assert await (await b.multicast(b"x")).stable() >= 1

    run(test)


@pytest.mark.usefixtures("multicast_works")
def test_the_system_brings_others_multicasts_and_not_our_own() -> None:
    async def test() -> None:
        group = Endpoint(GROUP, free_port())
        settings = TransportConfig(multicast=group, multicast_ttl=0, interface=LOOPBACK)
        ours, other = (UdpTransport(Endpoint(LOOPBACK, 0), settings) for _ in range(2))
        heard: list[bytes] = []
        came = asyncio.Event()

        def receive(datagrams: list[bytes], sources: list[Endpoint] | None) -> None:
            heard.extend(datagrams)
            came.set()

        ours.start(asyncio.get_running_loop(), receive)
        other.start(asyncio.get_running_loop(), lambda datagrams, sources: None)
        try:
            ours.send(b"own", group)
            other.send(b"other", group)
            async with asyncio.timeout(TIMEOUT_S):
                await came.wait()
        finally:
            ours.close()
            other.close()
        if sys.platform.startswith("linux"):
            assert heard == [b"other"]

    run(test)
