"""A member that starts where an earlier one lived: replays do not hold it up, and a group that lives is found."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

import motet
from motet.api.group import Group
from motet.protocol.core.counters import Count
from motet.protocol.core.identity import Endpoint
from tests.runtime.cluster import run
from tests.runtime.test_sealed_members import counted, keyed, record, shoot

KEY = "11" * 32
RECORDED = 40  # datagrams that are replayed one after the other: far more than the silence that a bootstrap takes
PAUSE_S = 0.25  # between two of them, less than that silence


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def spoken_to(place: Endpoint) -> list[bytes]:
    """What a peer said to a member at `place`: authentic, and addressed to its incarnation."""
    async with motet.join("test", bind=str(place), name="a", config=keyed(KEY)) as a:
        b = await motet.join("test", name="b", seeds=[str(place)], config=keyed(KEY))
        sent = record(b)
        while len(sent) < 3 * RECORDED:
            await b.send(a.address, b"for this incarnation")
            await asyncio.sleep(0.005)
        await b.leave()
    return [data for data, to in sent if to == place]


async def greetings_of_a_stranger(place: Endpoint) -> list[bytes]:
    """HELLOs of a process that looks for members at `place`, where nobody lives."""
    config = motet.Config.local(keys=[KEY], discovery_eager="10ms", discovery_interval="10ms")
    stranger = await motet.join("test", name="x", seeds=[str(place)], config=config, wait=False)
    sent = record(stranger)
    while len(sent) < RECORDED:
        await asyncio.sleep(0.005)
    await stranger.close()
    return [data for data, to in sent if to == place]


async def is_primary_despite(replayed: list[bytes], group: Group) -> bool:
    for datagram in replayed:
        await shoot([datagram], group.address.endpoint)
        try:
            async with asyncio.timeout(PAUSE_S):
                await group.until(lambda view: view.is_primary)
        except TimeoutError:
            continue
        return True
    return False


def test_replays_to_an_earlier_incarnation_do_not_put_off_the_bootstrap() -> None:
    async def test() -> None:
        place = Endpoint("127.0.0.1", free_port())
        replayed = (await spoken_to(place))[-RECORDED:]
        again = await motet.join("test", bind=str(place), name="a", seeds=[str(place)], config=keyed(KEY), wait=False)
        assert await is_primary_despite(replayed, again)
        assert counted(again, Count.NOT_FOR_US) > 0  # they were authentic
        await again.leave()

    run(test)


def test_replayed_greetings_do_not_put_off_the_bootstrap() -> None:
    async def test() -> None:
        place = Endpoint("127.0.0.1", free_port())
        replayed = (await greetings_of_a_stranger(place))[-RECORDED:]
        again = await motet.join("test", bind=str(place), name="a", config=keyed(KEY), wait=False)
        assert await is_primary_despite(replayed, again)
        assert counted(again, Count.SEAL_BROKEN, Count.SEAL_KEY_UNKNOWN) == 0  # they were authentic
        await again.leave()

    run(test)


@pytest.mark.parametrize("keys", [[], [KEY]], ids=["plain", "sealed"])
def test_a_restart_without_memory_finds_the_group_that_still_counts_it_in(keys: list[str], tmp_path: Path) -> None:
    """Nobody tells it where the group is, but for those who still speak to its earlier incarnation."""
    config = keyed(*keys)

    async def test() -> None:
        place = f"127.0.0.1:{free_port()}"
        first = await motet.join("test", bind=place, name="a", config=config)
        b = await motet.join("test", name="b", seeds=[place], config=config)
        c = await motet.join("test", name="c", seeds=[place], config=config)
        await b.until(lambda view: len(view.members) == 3)
        await first.close()
        again = await motet.join("test", bind=place, name="a", seeds=[place], config=config)
        assert {member.name for member in again.view.members} >= {"b", "c"}  # its first primary view is the group's
        for group in (again, b, c):
            await group.leave()

    run(test)
