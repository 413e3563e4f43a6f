"""Host names: seeds by name are the members that live there, and a name that appears late is still found."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

import motet
from motet.protocol.core.identity import Endpoint
from motet.runtime import names
from motet.runtime.names import look_up, resolved
from motet.runtime.transport import TransportConfig, UdpTransport
from tests.runtime.cluster import run

HERE = Endpoint("127.0.0.1", 7800)


class FakeResolver:
    """Knows some names, and others only after they were asked for a number of times."""

    def __init__(self, **appears_after: int) -> None:
        self.asked: dict[str, int] = {}
        self._appears_after = appears_after

    def __call__(self, host: str, port: int, **options: Any) -> list[Any]:
        self.asked[host] = self.asked.get(host, 0) + 1
        if self.asked[host] <= self._appears_after.get(host, 1 << 30):
            raise socket.gaierror(f"nobody knows {host}")
        six = (socket.AF_INET6, socket.SOCK_DGRAM, 0, "", ("::1", port, 0, 0))
        return [six, (socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("127.0.0.1", port))]


def test_names_become_addresses_and_addresses_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = FakeResolver(here=0)
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    places = [Endpoint("192.0.2.1", 1), Endpoint("here", 2), Endpoint("::2", 3)]
    found = asyncio.run(resolved(places))
    assert found == [places[0], Endpoint("127.0.0.1", 2), places[2]]
    assert asyncio.run(resolved(places, wants_ipv6=True))[1] == Endpoint("::1", 2)
    assert set(resolver.asked) == {"here"}


def test_a_name_may_appear_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", FakeResolver(late=3))
    monkeypatch.setattr(names, "AGAIN_S", 0.0)
    assert asyncio.run(resolved([Endpoint("late", 7800)], timeout_s=60)) == [HERE]


def test_a_name_that_nobody_knows_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", FakeResolver(here=0))
    nobody, here = Endpoint("nobody", 7800), Endpoint("here", 7800)
    assert asyncio.run(resolved([nobody, here], timeout_s=0)) == [nobody, HERE]
    assert look_up(nobody) is None


def test_a_group_is_bootstrapped_by_seeds_that_are_names() -> None:
    async def test() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        seeds = [f"localhost:{port}"]
        async with motet.join("test", name="a", bind=f"127.0.0.1:{port}", seeds=seeds, advertise="localhost") as a:
            assert a.address.endpoint == Endpoint("127.0.0.1", port)
            async with motet.join("test", name="b", seeds=seeds):
                await a.until(lambda view: len(view.members) == 2)

    run(test)


def test_the_transport_looks_up_a_name_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent before the name is known is lost, like any datagram; nobody waits for the resolver."""
    resolver = FakeResolver(late=1)

    async def test() -> None:
        sender, receiver = (UdpTransport(Endpoint("127.0.0.1", 0), TransportConfig()) for _ in range(2))
        got: list[bytes] = []
        sender.start(asyncio.get_running_loop(), lambda datagrams, sources: None)
        receiver.start(asyncio.get_running_loop(), lambda datagrams, sources: got.extend(datagrams))
        monkeypatch.setattr(socket, "getaddrinfo", resolver)
        to = Endpoint("late", receiver.endpoint.port)
        sender.send(b"lost", to)
        assert sender.lost == 1
        while not got:
            sender.send(b"x", to)
            await asyncio.sleep(0.005)
        assert set(got) == {b"x"}
        for transport in (sender, receiver):
            transport.close()

    asyncio.run(test())
