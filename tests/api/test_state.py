"""State transfer of real groups: who never had the state gives nothing, a loss is told, callbacks that fail say so."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import motet
from motet.api.group import Group
from motet.errors import MisuseError, StateTransferError
from motet.testing import SimNetwork
from motet.testing import run as simulate
from tests.runtime.cluster import cluster, join, run


class App:
    """An application with a state of bytes, which can stand still, and whose callbacks can fail."""

    def __init__(self, state: bytes = b"") -> None:
        self.state = state
        self.provided: list[bytes] = []
        self.received: list[bytes] = []
        self.events: list[Any] = []
        self.is_running = asyncio.Event()
        self.is_running.set()
        self.provider_error: Exception | None = None
        self.end: Exception | None = None

    def provide(self) -> bytes:
        if self.provider_error is not None:
            raise self.provider_error
        self.provided.append(self.state)
        return self.state

    def receive(self, state: bytes) -> None:
        self.received.append(state)
        self.state = state

    async def follow(self, group: Group) -> None:
        try:
            async for event in group:
                self.events.append(event)
                await self.is_running.wait()
        except StateTransferError as error:
            self.end = error

    def saw(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class World:
    """Members by name on a simulated network, each with its application."""

    def __init__(self, network: SimNetwork) -> None:
        self.network = network
        self.apps: dict[str, App] = {}
        self.groups: dict[str, Group] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def join(self, name: str, state: bytes = b"", **options: Any) -> Group:
        app = self.apps.setdefault(name, App(state))
        callbacks: dict[str, Any] = {"state_provider": app.provide, "state_receiver": app.receive}
        group = self.groups[name] = await self.network.join("test", name=name, **callbacks, **options)
        self.tasks.append(asyncio.create_task(app.follow(group)))
        return group

    async def pass_time(self, seconds: float) -> None:
        await self.network.clock.advance(seconds)

    async def until(self, is_so: Any, seconds: float = 60) -> None:
        for _ in range(int(seconds * 100)):
            if is_so():
                return
            await self.pass_time(0.01)
        raise AssertionError("it never came to that")

    async def end(self) -> None:
        for app in self.apps.values():
            app.is_running.set()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def cut_off_before_the_state_came(world: World) -> None:
    """a and b have the state, d has joined and lacks it; all three are cut off from one another."""
    a = await world.join("a", b"FULL")
    b = await world.join("b")
    await world.until(lambda: world.apps["b"].state == b"FULL")
    for name in "ab":
        world.apps[name].is_running.clear()
    await a.multicast(b"an event at which both applications stand still")
    await world.pass_time(0.5)
    d = await world.join("d")
    await world.pass_time(0.3)
    world.network.partition([a], [b, d])
    await world.pass_time(3)
    world.network.partition([a], [b], [d])
    await world.pass_time(3)


def test_a_member_that_never_had_the_state_wipes_nobody_and_the_loss_is_told() -> None:
    async def test(network: SimNetwork) -> None:
        world = World(network)
        await cut_off_before_the_state_came(world)
        a, b, d = (world.groups[name] for name in "abd")
        network.partition([b], [a, d])
        await world.pass_time(5)
        world.apps["a"].is_running.set()
        await world.pass_time(3)
        network.heal()
        await world.until(lambda: len(b.view.members) == 3 and b.view.is_primary)
        await network.crash(b)
        await world.until(lambda: len(a.view.members) == 2 == len(d.view.members))
        await world.pass_time(10)
        assert world.apps["d"].provided == []
        assert world.apps["a"].state == b"FULL"
        assert all(a_state == b"FULL" for a_state in world.apps["a"].received)
        is_complete = d.view.is_primary and world.apps["d"].state == b"FULL"
        assert is_complete or world.apps["d"].saw(motet.StateLost)
        await world.end()

    for seed in (1, 2):
        simulate(test, seed=seed)


def test_where_nobody_has_the_state_the_group_waits_says_so_and_begins_anew_when_it_is_told_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(network: SimNetwork) -> None:
        world = World(network)
        a = await world.join("a", b"FULL")
        world.apps["a"].is_running.clear()
        await a.multicast(b"an event at which the application stands still")
        await world.pass_time(0.5)
        b, c = await world.join("b", b"b's own"), await world.join("c", b"c's own")
        with pytest.raises(MisuseError, match="not lost"):
            await b.begin_state_anew()
        await network.crash(a)
        await world.until(lambda: bool(world.apps["b"].saw(motet.StateLost) and world.apps["c"].saw(motet.StateLost)))
        await world.pass_time(5)
        assert (b.view.is_primary, b.has_state, c.has_state) == (False, False, False)
        assert (b.stats()["state"]["lost"], b.stats()["state"]["present"]) == (True, False)
        await c.begin_state_anew()
        await world.until(lambda: b.view.is_primary and b.has_state and c.view.is_primary)
        await (await b.multicast(b"on")).stable()
        await world.until(lambda: bool(world.apps["b"].saw(motet.Message)))
        assert (world.apps["b"].state, world.apps["c"].state) == (b"c's own", b"c's own")
        assert c.stats()["state"] == {"present": True, "lost": False, "provider": None}
        await world.end()

    with caplog.at_level(logging.ERROR, logger="motet"):
        simulate(test, seed=1)
    assert "nobody in view" in caplog.text
    assert "begin_state_anew" in caplog.text


def test_members_without_state_go_on_when_a_holder_with_the_state_comes_back() -> None:
    async def test(network: SimNetwork) -> None:
        world = World(network)
        a = await world.join("a", b"FULL")
        world.apps["a"].is_running.clear()
        await a.multicast(b"an event at which the application stands still")
        await world.pass_time(0.5)
        b, c = await world.join("b"), await world.join("c")
        await world.until(lambda: len(a.view.members) == 3)
        network.partition([a], [b, c])
        await world.until(lambda: bool(world.apps["b"].saw(motet.StateLost)))
        await world.pass_time(5)
        assert not b.view.is_primary
        network.heal()
        world.apps["a"].is_running.set()
        await world.until(lambda: b.has_state and c.has_state and b.view.is_primary)
        await (await b.multicast(b"on")).stable()
        await world.until(lambda: all(app.state == b"FULL" for app in world.apps.values()))
        assert (world.apps["b"].provided, world.apps["c"].provided) == ([], [])
        await world.end()

    simulate(test, seed=1)


def test_members_without_callbacks_go_on_where_nobody_has_the_state() -> None:
    async def test(network: SimNetwork) -> None:
        a = await network.join("test", name="a", state_provider=lambda: b"", config=motet.Config.local())
        await a.multicast(b"nobody takes the events of a, so its provider is never asked")
        b = await network.join("test", name="b", consume=False)
        c = await network.join("test", name="c", consume=False)
        await network.clock.advance(1)
        await network.crash(a)
        await b.until(lambda view: len(view.members) == 2 and view.is_primary)
        await (await c.multicast(b"on")).stable()

    simulate(test, seed=1)


def test_when_a_provider_raises_the_next_holder_gives_the_state_and_both_applications_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(network: SimNetwork) -> None:
        world = World(network)
        await world.join("a", b"FULL")
        await world.join("b")
        await world.until(lambda: world.apps["b"].state == b"FULL")
        world.apps["a"].provider_error = RuntimeError("db down")
        await world.join("c")
        await world.until(lambda: world.apps["c"].state == b"FULL")
        for name in "ac":
            (refused,) = world.apps[name].saw(motet.StateRefused)
            assert (refused.by.name, "db down" in refused.reason) == ("a", True)
        assert world.apps["b"].provided == [b"FULL"]
        await world.end()

    with caplog.at_level(logging.WARNING, logger="motet"):
        simulate(test, seed=1)
    assert "Traceback" in caplog.text
    assert "did not give the state" in caplog.text


def test_when_every_provider_raises_the_joiner_ends_with_an_error_that_says_why() -> None:
    async def test(network: SimNetwork) -> None:
        world = World(network)
        a = await world.join("a", b"FULL")
        b = await world.join("b")
        await world.until(lambda: world.apps["b"].state == b"FULL")
        for name in "ab":
            world.apps[name].provider_error = RuntimeError(f"db of {name} down")
        c = await world.join("c")
        await world.until(lambda: world.apps["c"].end is not None)
        assert "db of a down" in str(world.apps["c"].end)
        assert "db of b down" in str(world.apps["c"].end)
        with pytest.raises(StateTransferError):
            await c.multicast(b"too late")
        await world.until(lambda: len(a.view.members) == 2)
        await (await b.multicast(b"the others go on")).stable()
        await world.end()

    simulate(test, seed=1)


def test_a_member_whose_receiver_raises_ends_and_hands_out_no_message_without_the_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        def broken(state: bytes) -> None:
            raise ValueError("cannot parse")

        async with cluster("a", state_provider=lambda: b"state", consume=False) as (a,):
            b = await join("b", [a], state_provider=lambda: b"", state_receiver=broken)
            await (await a.multicast(b"on")).delivered()
            app = App()
            await app.follow(b)
            assert "the state receiver raised ValueError: cannot parse" in str(app.end)
            assert not app.saw(motet.Message)
            await a.until(lambda view: len(view.members) == 1)
            await b.close()

    with caplog.at_level(logging.ERROR, logger="motet"):
        run(test)
    assert "Traceback" in caplog.text


def test_a_provider_that_blocks_is_named_by_the_joiner(caplog: pytest.LogCaptureFixture) -> None:
    async def test(network: SimNetwork) -> None:
        world = World(network)
        a = await world.join("a", b"FULL")
        world.apps["a"].is_running.clear()
        await a.multicast(b"an event at which the application stands still")
        await world.pass_time(0.5)
        b = await world.join("b")
        await world.pass_time(5)
        assert "b#" in caplog.text
        assert "for the state of group 'test': a#" in caplog.text
        assert b.stats()["state"]["provider"] == str(a.address)
        await world.end()

    with caplog.at_level(logging.WARNING, logger="motet"):
        simulate(test, seed=1)


def test_a_holder_that_leaves_first_gives_its_state_to_those_who_wait_for_it() -> None:
    async def test(network: SimNetwork) -> None:
        world = World(network)
        a = await world.join("a", b"FULL")
        b = await world.join("b")
        leaving = asyncio.create_task(a.leave())
        await world.until(lambda: world.apps["b"].state == b"FULL")
        await leaving
        await world.until(lambda: b.view.is_primary and len(b.view.members) == 1)
        await (await b.multicast(b"on")).stable()
        assert not world.apps["b"].saw(motet.StateLost)
        await world.end()

    simulate(test, seed=1)


def test_a_block_waits_for_its_contents_where_nobody_has_them() -> None:
    async def test(network: SimNetwork) -> None:
        a = await network.join("test", name="a")
        counter = motet.Counter(a)
        providing = asyncio.Event()
        await counter.add(5)
        a._state._provider = lambda: b""  # asked when the application takes its events, which it never does
        b, c = await network.join("test", name="b"), await network.join("test", name="c")
        copies = motet.Counter(b), motet.Counter(c)
        await network.clock.advance(1)
        network.partition([a], [b, c])
        await network.clock.advance(8)
        assert not b.view.is_primary
        network.heal()
        a._enqueue(providing.set)
        eating = asyncio.create_task(_eat(a))
        assert await copies[0].add(1) == 6
        assert await copies[1].add(1) == 7
        eating.cancel()

    simulate(test, seed=1)


async def _eat(group: Group) -> None:
    async for _ in group:
        pass
