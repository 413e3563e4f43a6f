"""Members that share a key, and those who do not: strangers, old keys, recorded streams, and a flood of nonsense."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

import motet
from motet.api.group import Group
from motet.errors import MisuseError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.identity import Endpoint
from motet.protocol.wire.seal import MAGIC, SEAL_HEADER
from motet.runtime.envelope import SealedEnvelope
from tests.runtime.cluster import cluster, join, run, take

OLD, NEW, FOREIGN = ("11" * 32, "22" * 32, "33" * 32)
SEALS = [count for count in Count if count.name.startswith("SEAL_")]


def keyed(*keys: str) -> motet.Config:
    return motet.Config.local(keys=list(keys))


def counted(group: Group, *counts: Count) -> int:
    counters = group._driver.member.counters
    return sum(counters[count] for count in counts)


def record(group: Group) -> list[tuple[bytes, Endpoint]]:
    """What this member puts on the network from now on."""
    sent: list[tuple[bytes, Endpoint]] = []
    send = group._driver.transport.send

    def both(data: bytes, to: Endpoint, tail: bytes = b"") -> None:
        sent.append((b"".join((data, tail)), to))
        send(data, to, tail)

    group._driver.transport.send = both  # type: ignore[method-assign]
    return sent


async def shoot(datagrams: list[bytes], at: Endpoint) -> None:
    """From a stranger's socket, a few at a time, so that the receiver's buffer holds them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for number, datagram in enumerate(datagrams):
            stranger.sendto(datagram, at)
            if number % 200 == 199:
                await asyncio.sleep(0)


async def until_counted(group: Group, least: int, *counts: Count) -> None:
    while counted(group, *counts) < least:
        await asyncio.sleep(0.005)


async def still_works(groups: list[Group]) -> None:
    """Each member multicasts, and all deliver the same."""
    for group in groups:
        await group.multicast(group.address.name.encode())
    logs = [[(m.position, m.payload) for m in await take(group, len(groups))] for group in groups]
    assert all(log == logs[0] for log in logs)
    assert sorted(payload for _, payload in logs[0]) == sorted(group.address.name.encode() for group in groups)


def test_a_fault_for_some_frames_works_where_they_are_sealed_and_is_refused_where_they_arrive() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=keyed(NEW)) as groups:
            with pytest.raises(MisuseError, match="inject it at the sender"):
                groups[0].inject("drop=1#ack")
            groups[0].inject("drop=1@*:out#ack")
            await groups[1].multicast(b"x")
            await until_counted(groups[0], 1, Count.FAULT_DROPPED)
            groups[0].inject("clear#ack")
            assert [(await take(group, 1))[0].payload for group in groups] == [b"x", b"x"]

    run(test)


def test_nothing_that_members_say_can_be_read() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=keyed(NEW)) as groups:
            sent = record(groups[0])
            await groups[0].multicast(b"attack at dawn")
            await take(groups[1], 1)
            assert sent
            assert all(data[:2] == MAGIC and b"dawn" not in data for data, _ in sent)
            await take(groups[0], 1)
            await still_works(groups)

    run(test)


@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ([FOREIGN], Count.SEAL_KEY_UNKNOWN),
        ([f"7:{FOREIGN}"], Count.SEAL_BROKEN),  # the same id, another key
        ([], Count.SEAL_MISSING),
    ],
)
def test_a_stranger_is_not_heard(keys: list[str], count: Count, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster("a", "b", config=keyed(f"7:{NEW}")) as groups:
            stranger = await join("x", groups, config=keyed(*keys), wait=False)
            await until_counted(groups[0], 3, count)
            assert {member.name for member in groups[0].view.members} == {"a", "b"}
            assert {member.name for member in stranger.view.members} == {"x"}
            await stranger.close()
            await still_works(groups)

    run(test)
    told = [line for line in caplog.messages if "a datagram was dropped" in line]
    assert len(told) == len(set(told))  # each kind once


def test_a_key_that_was_taken_away_opens_nothing() -> None:
    async def test() -> None:
        async with cluster("a", config=keyed(NEW)) as groups:
            late = await join("late", groups, config=keyed(OLD), wait=False)
            await until_counted(groups[0], 3, Count.SEAL_KEY_UNKNOWN)
            await late.close()
            groups.append(await join("b", groups, config=keyed(OLD, NEW), wait=False))  # seals with the old one
            await until_counted(groups[0], 6, Count.SEAL_KEY_UNKNOWN)
            assert len(groups[0].view.members) == 1

    run(test)


def test_members_in_the_middle_of_a_rotation_are_one_group() -> None:
    async def test() -> None:
        async with cluster("a", config=keyed(OLD, NEW)) as groups:
            groups.append(await join("b", groups, config=keyed(NEW, OLD)))
            groups.append(await join("c", groups, config=keyed(OLD, NEW)))
            await groups[0].until(lambda view: len(view.members) == 3)
            await still_works(groups)
            assert sum(counted(group, Count.SEAL_KEY_UNKNOWN, Count.SEAL_BROKEN) for group in groups) == 0

    run(test)


def test_a_running_group_changes_its_key() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c", config=keyed(OLD)) as groups:
            for keys in ([OLD, NEW], [NEW, OLD], [NEW]):
                for group in groups:
                    group.rekey(keys)
                    await still_works(groups)
            view = groups[0].view
            late = await join("late", groups, config=keyed(OLD), wait=False)
            await until_counted(groups[0], 1, Count.SEAL_KEY_UNKNOWN)
            await late.close()
            assert groups[0].view == view
            assert sum(counted(group, Count.SEAL_BROKEN) for group in groups) == 0

    run(test)


def test_a_member_without_a_key_cannot_take_one_while_it_runs() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            with pytest.raises(MisuseError, match="joined without a key and cannot take one while it runs"):
                a.rekey([NEW])

    run(test)


def test_a_recorded_stream_changes_nothing() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=keyed(NEW)) as groups:
            sent = record(groups[0])
            await still_works(groups)
            to_b = [data for data, to in sent if to == groups[1].address.endpoint]
            before = counted(groups[1], Count.SEAL_REPLAYED, Count.SEAL_TOO_OLD)
            await shoot(to_b * 3, groups[1].address.endpoint)
            await until_counted(groups[1], before + 3 * len(to_b), Count.SEAL_REPLAYED, Count.SEAL_TOO_OLD)
            assert counted(groups[1], Count.FRAME_DUPLICATE) == 0
            await still_works(groups)
            assert groups[1].position == 4

    run(test)


def test_the_stream_of_a_dead_member_changes_nothing() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c", config=keyed(NEW)) as groups:
            sent = record(groups[2])
            await still_works(groups)
            dead = groups.pop()
            await dead.close()
            await groups[0].until(lambda view: len(view.members) == 2)
            newcomer = await join("d", groups, config=keyed(NEW))  # it never heard the dead one, nor saw its counters
            groups.append(newcomer)
            await groups[0].until(lambda view: len(view.members) == 3)
            view = groups[0].view
            for group in groups:
                await shoot([data for data, _ in sent], group.address.endpoint)
            await still_works(groups)
            assert {group.view.id for group in groups} == {view.id}
            assert dead.address not in groups[0].view

    run(test)


def test_members_of_one_incarnation_share_no_key_stream() -> None:
    """Two that were started from copies of one machine: what they say must not be sealed under one key and nonce."""
    ring, plain = keyed(NEW).keyring(), bytes(64)
    assert ring is not None
    sealed = {SealedEnvelope(ring, 4711, Counters()).seal(plain)[SEAL_HEADER.size :] for _ in range(8)}
    assert len(sealed) == 8


def test_a_flood_of_nonsense_changes_nothing() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=keyed(f"7:{NEW}")) as groups:
            sent = record(groups[0])
            await still_works(groups)
            rng, genuine = Random(1), [data for data, _ in sent]
            flood = [_nonsense(rng, genuine) for _ in range(5_000)]
            await shoot(flood, groups[1].address.endpoint)
            await still_works(groups)
            assert counted(groups[1], *SEALS) > 1_000  # a full socket buffer may have dropped some
            assert counted(groups[1], Count.DATAGRAM_REJECTED, Count.SOURCE_UNKNOWN) == 0
            assert groups[1].position == 4

    run(test)


def _nonsense(rng: Random, genuine: list[bytes]) -> bytes:
    data = bytearray(rng.choice(genuine))
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.randrange(1, 200))
        case 1:
            return bytes(data[: rng.randrange(1, len(data))])
        case 2:  # as from another sender
            data[4:12] = rng.randbytes(8)
            return bytes(data)
        case 3:  # as a later one of the same sender
            data[12:20] = rng.randbytes(8)
            return bytes(data)
    data[rng.randrange(20, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)
