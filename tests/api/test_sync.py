"""`Group.sync` between real members: it returns when SYNC-ACK was sent, and raises when that cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import motet
from motet.api.group import Group
from motet.errors import LeftGroupError, MisuseError, SyncError
from motet.protocol.core.counters import Count
from motet.protocol.core.identity import Address
from tests.runtime.cluster import cluster, run, take

# Nobody is suspected however silent it is, and a SYNC has as long as the test.
PATIENT = motet.Config.local(suspect="1min", view_answer="1min", sync_timeout="50s")
HASTY = motet.Config.local(suspect="1min", view_answer="1min", sync_timeout="100ms")
ON_LOOPS = pytest.mark.parametrize("thread", [True, False])


async def talk(source: Group, to: Group) -> None:
    """So that `to` has a receive window for `source`."""
    await source.send(to.address, b"hello")
    await take(to, 1)


def sent(group: Group) -> int:
    return int(group.stats()["counters"][Count.SYNC_SENT.value])


async def until_resent(group: Group) -> None:
    """SYNC was sent, and again because nobody answered."""
    before = sent(group)
    while sent(group) < before + 2:
        await asyncio.sleep(0.01)


@ON_LOOPS
def test_it_returns_when_both_windows_are_in_step(thread: bool) -> None:
    async def test() -> tuple[int, int]:
        async with cluster("a", "b", config=PATIENT, thread=thread) as (a, b):
            await talk(b, a)
            await a.sync(b.address)
            receiver = a._ask(lambda: a._driver.member.unicast.receiver(b.address)).result(10)
            sender = b._ask(lambda: b._driver.member.unicast.sender(a.address)).result(10)
            assert receiver is not None
            assert sender is not None
            return receiver.conn_id, sender.conn_id

    ours, theirs = run(test)
    assert ours == theirs


@ON_LOOPS
def test_while_sync_is_lost_it_waits_and_then_it_completes(thread: bool) -> None:
    async def test() -> None:
        async with cluster("a", "b", config=PATIENT, thread=thread) as (a, b):
            await talk(b, a)
            a.inject("cut@b:out")
            syncing = asyncio.ensure_future(a.sync(b.address))
            await until_resent(a)
            assert not syncing.done()
            a.inject("clear")
            await syncing

    run(test)


def test_it_raises_when_the_member_does_not_answer_in_time() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=HASTY) as (a, b):
            await talk(b, a)
            a.inject("cut@b")
            with pytest.raises(SyncError, match=r"b#\w+ did not answer SYNC within 100\.0 ms; check that") as error:
                await a.sync(b.address)
            assert error.value.retryable
            a.inject("clear")

    run(test)


def test_it_raises_when_the_member_leaves_the_view_meanwhile() -> None:
    config = motet.Config.local(suspect="3s", sync_timeout="50s")

    async def test() -> None:
        async with cluster("a", "b", config=config) as (a, b):
            await talk(b, a)
            a.inject("cut@b")
            with pytest.raises(SyncError, match=r"b#\w+ left the view before it answered SYNC"):
                await a.sync(b.address)
            a.inject("clear")
            await a.until(lambda view: b.address in view)

    run(test)


@ON_LOOPS
def test_whoever_waits_when_the_group_closes_is_released(thread: bool) -> None:
    async def test() -> None:
        async with cluster("a", "b", config=PATIENT, thread=thread) as (a, b):
            await talk(b, a)
            a.inject("cut@b")
            waiting = [asyncio.ensure_future(a.sync(b.address)) for _ in range(2)]
            await until_resent(a)
            await asyncio.gather(a.close(), b.close())
            for ended in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(ended, LeftGroupError)
            with pytest.raises(LeftGroupError):
                await a.sync(b.address)

    run(test)


def test_two_at_once_both_return_and_one_that_is_cancelled_harms_nobody() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=PATIENT) as (a, b):
            await talk(b, a)
            a.inject("cut@b:out")
            one, other, cancelled = (asyncio.ensure_future(a.sync(b.address)) for _ in range(3))
            await until_resent(a)
            cancelled.cancel()
            a.inject("clear")
            await asyncio.gather(one, other)
            assert cancelled.cancelled() or await asyncio.wait([cancelled])
            await a.sync(b.address)

    run(test)


def test_with_oneself_it_works_once_a_message_was_sent() -> None:
    async def test() -> None:
        async with cluster("a", config=PATIENT) as (a,):
            with pytest.raises(MisuseError, match="is this member itself"):
                await a.sync(a.address)
            await talk(a, a)
            await a.sync(a.address)

    run(test)


@pytest.mark.parametrize("member", ["b", Address("stranger", "127.0.0.1", 9, 9)])
def test_somebody_who_is_unknown_is_refused(member: Any) -> None:
    async def test() -> None:
        async with cluster("a", config=PATIENT) as (a,):
            with pytest.raises(MisuseError, match=r"is no member|nothing was received from stranger#"):
                await a.sync(member)

    run(test)
