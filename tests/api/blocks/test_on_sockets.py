"""Blocks on real members over loopback: who joins under load has the same, and who dies lets go of its lock."""

from __future__ import annotations

import asyncio

import pytest

from motet.api.blocks import Counter, Lock, ReplicatedDict
from motet.errors import LockLostError
from tests.runtime.cluster import cluster, join, run


def test_one_who_joins_under_load_has_the_same() -> None:
    async def test() -> None:
        async with cluster("a", "b", consume=False) as groups:
            hits, stock = Counter(groups[0]), ReplicatedDict(groups[0])
            hits_b = Counter(groups[1])  # b makes its dict later
            await stock.set("pears", [1, b"x"])
            adding = asyncio.ensure_future(_add(hits, 100))
            late = await join("c", groups, consume=False)
            groups.append(late)
            hits_c, stock_c, stock_b = Counter(late), ReplicatedDict(late), ReplicatedDict(groups[1])
            await adding
            await stock_c.set("plums", 2)
            assert await hits_c.add() == 101
            for copy in (hits, hits_b):
                assert await copy.get() == 101
            for dictionary in (stock, stock_b, stock_c):
                await dictionary.sync()
                assert dict(dictionary) == {"pears": [1, b"x"], "plums": 2}

    run(test)


async def _add(counter: Counter, times: int) -> None:
    for _ in range(times):
        await counter.add()


def test_who_dies_lets_go_of_its_lock() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c", consume=False) as groups:
            locks = [Lock(group, "accounts") for group in groups]
            token = await locks[2].acquire()
            waiting = [asyncio.ensure_future(lock.acquire()) for lock in locks[:2]]
            while locks[0].waiting < 2:
                await locks[0].sync()
            await groups.pop().close()  # without a word to the others
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            first = waiting.index(done.pop())
            assert waiting[first].result() > token
            assert locks[first].is_mine
            await locks[first].release()
            assert await waiting[1 - first] > waiting[first].result()
            await locks[1 - first].release()

    run(test)


def test_who_was_cut_off_lost_its_lock_and_comes_back_to_the_groups_state() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c", consume=False) as groups:
            a, _, c = groups
            counters, locks = [Counter(group) for group in groups], [Lock(group) for group in groups]
            await counters[2].add(1)
            token = await locks[2].acquire()
            waiting = asyncio.ensure_future(locks[0].acquire())
            for peer in ("a", "b"):
                c.inject(f"cut@{peer}")
            assert await waiting > token
            await counters[0].add(10)
            await c.until(lambda view: not view.is_primary)
            assert not locks[2].is_mine
            adding, again = asyncio.ensure_future(counters[2].add(100)), asyncio.ensure_future(locks[2].acquire())
            c.inject("clear")
            assert await adding == 111
            assert [await counter.get() for counter in counters] == [111] * 3
            with pytest.raises(LockLostError):
                await locks[2].release()
            assert locks[2].holder == a.address
            await locks[0].release()
            assert await again > waiting.result()
            await locks[2].release()

    run(test)
