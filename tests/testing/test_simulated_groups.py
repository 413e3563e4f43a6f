"""Groups on a simulated network: the public face, virtual time, faults, and one seed for everything."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import motet
from motet.errors import LeftGroupError, MisuseError
from motet.log.journal import JournalReader
from motet.testing import FakeClock, NetworkProfile, SimNetwork, VirtualLoop, run, simulated
from tests.runtime.cluster import take


async def members(network: SimNetwork, names: str, **options: object) -> list[motet.Group]:
    groups = [await network.join("test", name=name, **options) for name in names]  # type: ignore[arg-type]
    for group in groups:
        await group.until(lambda view: len(view.members) == len(names))
    return groups


@simulated(seeds=range(5), profile=NetworkProfile(loss=0.2, duplication=0.2, jitter="heavy", jitter_ns=1_000_000))
async def test_all_members_deliver_the_same_sequence(network: SimNetwork) -> None:
    groups = await members(network, "abc")
    for number in range(60):
        await groups[number % 3].multicast(b"%d" % number)
    logs = [await take(group, 60) for group in groups]
    assert logs[0] == logs[1] == logs[2]
    assert [message.position for message in logs[0]] == list(range(1, 61))


@simulated()
async def test_the_whole_face_of_a_group_is_there(network: SimNetwork) -> None:
    async with (
        network.join("test", name="a", state_provider=lambda: b"state", consume=False) as a,
        network.join("test", name="b", on_call=lambda sender, payload: payload.upper()) as b,
    ):
        assert await a.call(b.address, b"loud") == b"LOUD"
        await a.send(b.address, b"only you")
        assert [message.order for message in await take(b, 1)] == ["direct"]
        await (await a.multicast(b"value", key=b"name")).stable()
        (message,) = await take(b, 1)
        assert (message.key, message.payload, message.position) == (b"name", b"value", 1)
        received: list[bytes] = []
        async with network.join("test", name="c", state_receiver=received.append) as c:
            await c.multicast(b"after")
            await take(c, 1)
            assert received == [b"state"]
            result = await c.snapshot()
            assert {member.name for member in result.reports} == {"a", "b", "c"}
        await a.until(lambda view: len(view.members) == 2)
        assert a.stats()["view"]["primary"]
    with pytest.raises(LeftGroupError):
        await a.multicast(b"too late")


@simulated()
async def test_the_majority_goes_on_and_the_rest_comes_back(network: SimNetwork) -> None:
    a, b, c = await members(network, "abc")
    network.partition(["a", b], [c])
    await a.until(lambda view: len(view.members) == 2)
    assert a.view.is_primary
    await c.until(lambda view: not view.is_primary)
    waiting = await c.multicast(b"waits")
    await (await b.multicast(b"goes on")).stable()
    assert not waiting.is_delivered
    network.heal()
    assert await waiting.stable() == 2
    assert [message.payload for message in await take(a, 2)] == [b"goes on", b"waits"]


@simulated()
async def test_a_crash_is_noticed_by_silence_and_a_restart_is_a_new_life(network: SimNetwork) -> None:
    a, b, c = await members(network, "abc")
    before = network.clock.monotonic()
    await network.crash(b)
    await a.until(lambda view: len(view.members) == 2)
    config = motet.Config.local()
    assert network.clock.monotonic() - before >= config.suspect_ns / 1e9  # virtual seconds: this is no measurement
    again = await network.join("test", name="b")
    await c.until(lambda view: len(view.members) == 3)
    assert again.address.endpoint == b.address.endpoint
    assert again.address != b.address
    with pytest.raises(LeftGroupError):
        await b.multicast(b"I am dead")


@simulated()
async def test_a_link_can_be_cut_one_way(network: SimNetwork) -> None:
    a, b = await members(network, "ab")
    network.cut(a, b)
    await b.until(lambda view: len(view.members) == 1)
    network.heal()
    await b.until(lambda view: len(view.members) == 2)


@simulated()
async def test_groups_with_a_name_of_their_own_do_not_hear_each_other(network: SimNetwork) -> None:
    async with network.join("one", name="a") as one, network.join("two", name="a") as two:
        await one.multicast(b"one")
        await two.multicast(b"two")
        assert [message.payload for message in await take(one, 1)] == [b"one"]
        assert [message.payload for message in await take(two, 1)] == [b"two"]
        assert len(one.view.members) == len(two.view.members) == 1


@simulated()
async def test_faults_of_the_member_itself_work_as_well(network: SimNetwork) -> None:
    a, b = await members(network, "ab")
    a.inject("cut@b")
    await b.until(lambda view: len(view.members) == 1)
    a.inject("clear")
    await a.until(lambda view: len(view.members) == 2)


@simulated(seeds=range(3), loss=0.2)
async def test_building_blocks_work_and_a_lock_outlives_its_holder(network: SimNetwork) -> None:
    groups = await members(network, "abc", consume=False)
    counters = [motet.Counter(group, "numbers") for group in groups]
    locks = [motet.Lock(group, "till") for group in groups]
    numbers = await asyncio.gather(*(counter.add() for counter in counters for _ in range(5)))
    assert sorted(numbers) == list(range(1, 16))
    await locks[2].acquire()
    waiting = asyncio.create_task(locks[0].acquire())
    await network.crash(groups[2])
    assert await waiting > 0


@simulated()
async def test_members_that_are_made_at_once_are_one_group(network: SimNetwork) -> None:
    groups = await asyncio.gather(*(network.join("test", name=name) for name in "abcde"))
    await groups[0].until(lambda view: len(view.members) == 5)
    assert await (await groups[4].multicast(b"one log")).stable() == 1


async def transcript(network: SimNetwork) -> tuple[object, ...]:
    groups = await members(network, "abc")
    for number in range(40):
        receipt = await groups[number % 3].multicast(b"%d" % number)
        await receipt.delivered()
    network.partition("ab", "c")
    await groups[0].until(lambda view: len(view.members) == 2)
    network.heal()
    await groups[0].until(lambda view: len(view.members) == 3)
    log = tuple((m.position, m.sender.incarnation, m.payload) for m in await take(groups[0], 40))
    counters = tuple(sorted((name, value) for group in groups for name, value in group.stats()["counters"].items()))
    return log, counters, network.datagrams, network.clock.time_ns()


def test_the_same_seed_does_the_same_and_another_one_does_not() -> None:
    first, again, other = (run(transcript, seed=seed, loss=0.2) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_a_journal_is_kept_in_virtual_time(tmp_path: Path) -> None:
    async def test(network: SimNetwork) -> None:
        directory = tmp_path / "a"
        config = motet.Config.local(journal_fsync="always")
        async with network.join("test", name="a", journal=directory, config=config) as a:
            for number in range(5):
                await (await a.multicast(b"%d" % number)).stable()
        async with network.join("test", name="a", journal=directory, config=config, replay_from=1) as a:
            await a.multicast(b"5")
            assert [message.payload for message in await take(a, 6)] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    run(test)
    (batch,) = list(JournalReader(tmp_path / "a").read(1, 6))
    assert {str(at.date()) for at in batch.column("delivered_at").to_pylist()} == {"2026-01-01"}


# The clock


def test_time_jumps_and_nobody_waits() -> None:
    async def test(network: SimNetwork) -> list[float]:
        clock, seen = network.clock, [network.clock.monotonic()]
        await clock.advance(3_000_000)
        seen.append(clock.monotonic())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        seen.append(clock.monotonic())
        assert clock.time() - 3_000_010 == pytest.approx(time.mktime((2026, 1, 1, 0, 0, 0, 0, 0, 0)) - time.timezone)
        return seen

    assert run(test, within=10_000_000) == pytest.approx([0, 3_000_000, 3_000_010])


def test_threads_are_not_used() -> None:
    async def test(network: SimNetwork) -> None:
        assert await asyncio.to_thread(lambda: asyncio.get_running_loop()) is asyncio.get_running_loop()
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(int, "no")

    run(test)


def test_a_test_that_waits_for_nothing_is_told_so() -> None:
    async def test(network: SimNetwork) -> None:
        await asyncio.get_running_loop().create_future()

    loop = VirtualLoop()
    try:
        with pytest.raises(MisuseError, match="will never happen"):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()
    with pytest.raises(TimeoutError, match=r"not over after 5 s of virtual time") as failure:
        run(test, seed=9, within=5)
    assert failure.value.__notes__ == ["This was seed 9; the same seed does the same again."]


def test_a_failure_names_its_seed_and_arguments_are_handed_on() -> None:
    seen: list[tuple[int, str]] = []

    @simulated(seeds=range(5))
    async def failing(network: SimNetwork, word: str) -> None:
        seen.append((network.seed, word))
        assert network.seed < 3

    with pytest.raises(AssertionError) as failure:
        failing(word="x")
    assert seen == [(0, "x"), (1, "x"), (2, "x"), (3, "x")]
    assert "seed 3" in failure.value.__notes__[0]


# Misuse


@simulated()
async def test_what_a_simulated_member_cannot_do_is_told(network: SimNetwork) -> None:
    async with network.join("test", name="a"):
        with pytest.raises(MisuseError, match="'a' is in group 'test' already"):
            network.join("test", name="a")
    with pytest.raises(MisuseError, match="serves no admin"):
        network.join("test", name="b", config=motet.Config.local(admin_bind="127.0.0.1:0"))
    with pytest.raises(MisuseError, match="no IP multicast"):
        await network.join("test", name="c", config=motet.Config.local(transport="multicast"))


def test_a_network_without_virtual_time_is_refused() -> None:
    async def test() -> None:
        with pytest.raises(MisuseError, match="needs virtual time"):
            SimNetwork()

    asyncio.run(test())


def test_the_clock_has_the_functions_of_the_module() -> None:
    clock = FakeClock()
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
        assert type(getattr(clock, name)()) is type(getattr(time, name)())


@simulated(seeds=range(3), profile=NetworkProfile(loss=0.1, packet_bytes=1_472))
async def test_large_frames_get_through_where_packets_are_lost(network: SimNetwork) -> None:
    """A datagram of 32 000 bytes arrives once in ten times if IP cuts it."""
    groups = await members(network, "abc", config=motet.Config.lan())
    payloads = [b"%d" % number + bytes(1_000) for number in range(12_000)]
    await groups[0].multicast_many(payloads)
    logs = [[message.payload for message in await take(group, len(payloads))] for group in groups]
    assert logs[0] == logs[1] == logs[2] == payloads
    frames = groups[0].stats()["frames"]
    assert (frames["segments"], frames["segment_bytes"]) != ("whole", 0)
    assert any(event["kind"] == "segments" for event in groups[0].stats()["events"])
