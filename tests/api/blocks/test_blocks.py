"""The blocks as their users meet them, on a group that fits into one process."""

import asyncio

import pytest

from motet.api.blocks import Change, Counter, Lock, ReplicatedDict
from motet.api.blocks.counter import MOST
from motet.errors import BlockRefusedError, LeftGroupError, LockLostError, MisuseError
from motet.protocol.core.view import View, ViewId
from tests.api.blocks.log import World, run, settle

# Counter


def test_no_two_callers_get_the_same_number() -> None:
    async def scenario() -> None:
        world = World()
        counters = [Counter(world.join(name)) for name in "abc"]
        got = await asyncio.gather(*(counter.add() for counter in counters for _ in range(20)))
        assert sorted(got) == list(range(1, 61))
        assert [counter.value for counter in counters] == [60] * 3
        assert await counters[0].set(5) == 5
        assert await counters[1].compare_and_set(5, 6)
        assert not await counters[2].compare_and_set(5, 7)
        assert await counters[2].get() == 6

    run(scenario())


def test_a_number_that_does_not_fit_is_refused_at_every_member() -> None:
    async def scenario() -> None:
        world = World()
        a, b = Counter(world.join("a"), "hits"), Counter(world.join("b"), "hits")
        await a.set(MOST)
        with pytest.raises(BlockRefusedError, match="Counter 'hits' did not do that: 9223372036854775808 does not fit"):
            await b.add(1)
        with pytest.raises(MisuseError, match="a counter holds whole numbers of 64 bits"):
            await b.add(1 << 64)
        assert a.value == b.value == MOST

    run(scenario())


# Dict


def test_a_dict_is_the_same_everywhere() -> None:
    async def scenario() -> None:
        world = World()
        a, b = (ReplicatedDict(world.join(name), "stock") for name in "ab")
        assert await a.set("apples", 3) is None
        assert await b.set("apples", {"count": 4, "raw": b"\x00"}) == 3
        await a.update({"pears": [1, None], "plums": "ä"})
        assert await b.delete("pears") == [1, None]
        assert await b.delete("pears") is None
        assert dict(a) == dict(b) == {"apples": {"count": 4, "raw": b"\x00"}, "plums": "ä"}
        assert a == b
        assert (len(a), "plums" in a, "pears" in a, list(a)) == (2, True, False, ["apples", "plums"])
        assert a.get("pears", 7) == 7
        with pytest.raises(KeyError):
            a["pears"]
        await a.update({})
        await b.clear()
        assert len(a) == 0

    run(scenario())


def test_what_a_reader_does_to_a_value_changes_nobodys_copy() -> None:
    async def scenario() -> None:
        a = ReplicatedDict(World().join("a"))
        given = [1]
        await a.set("list", given)
        given.append(2)
        taken = a["list"]
        assert isinstance(taken, list)
        taken.append(3)
        assert a["list"] == [1]

    run(scenario())


def test_one_of_two_who_compare_and_set_wins() -> None:
    async def scenario() -> None:
        world = World()
        a, b = (ReplicatedDict(world.join(name)) for name in "ab")
        assert sorted(await asyncio.gather(a.set_default("leader", "a"), b.set_default("leader", "b"))) == [False, True]
        leader = a["leader"]
        assert b["leader"] == leader
        assert not await a.compare_and_set("leader", "nobody", "c")
        assert await a.compare_and_set("leader", leader, {"y": 1, "x": 2})
        assert await b.compare_and_delete("leader", {"x": 2, "y": 1})
        assert not await b.compare_and_delete("leader", None)

    run(scenario())


def test_changes_can_be_watched() -> None:
    async def scenario() -> None:
        world = World()
        a, b = (ReplicatedDict(world.join(name)) for name in "ab")
        seen: list[Change] = []
        end = b.watch(seen.append)
        await a.set("k", 1)
        await a.update({"k": 2, "l": b""})
        await a.delete("k")
        end()
        await a.clear()
        assert seen == [
            Change("k", 1, is_deleted=False, position=1),
            Change("k", 2, is_deleted=False, position=2),
            Change("l", b"", is_deleted=False, position=2),
            Change("k", None, is_deleted=True, position=3),
        ]

    run(scenario())


def test_a_bad_key_or_value_is_told_to_its_writer() -> None:
    async def scenario() -> None:
        a = ReplicatedDict(World().join("a"))
        with pytest.raises(MisuseError, match="the key 5 is no str"):
            await a.set(5, 1)  # type: ignore[arg-type]
        with pytest.raises(MisuseError, match="a key of 5000 bytes is too long; allowed are 4096"):
            await a.set("k" * 5_000, 1)
        with pytest.raises(MisuseError, match="tuple"):
            await a.set("k", (1, 2))
        assert len(a) == 0

    run(scenario())


def test_a_copy_may_be_behind_until_it_is_synced() -> None:
    async def scenario() -> None:
        world = World(is_prompt=False)
        a, b = (ReplicatedDict(world.join(name)) for name in "ab")
        writing = asyncio.ensure_future(a.set("k", 1))
        await settle()
        world.deliver("a")
        await writing
        assert "k" not in b
        syncing = asyncio.ensure_future(b.sync())
        await settle()
        assert not syncing.done()
        world.deliver()
        await syncing
        assert b["k"] == 1
        assert a.position == b.position == 1

    run(scenario())


# State transfer


def test_who_joins_gets_the_state_and_goes_on_from_there() -> None:
    async def scenario() -> None:
        world = World()
        first = world.join("a")
        stock, hits, lock = ReplicatedDict(first), Counter(first), Lock(first)
        await stock.set("k", [1])
        await hits.add(5)
        token = await lock.acquire()
        late = world.join("b")
        stock_b, hits_b, lock_b = ReplicatedDict(late), Counter(late), Lock(late)
        world.hand_over("a", "b")
        world.install("a", "b")
        assert (dict(stock_b), hits_b.value, lock_b.holder) == ({"k": [1]}, 5, first.address)
        assert await hits_b.add() == 6
        waiting = asyncio.ensure_future(lock_b.acquire())
        await settle()
        assert not waiting.done()
        await lock.release()
        assert await waiting > token
        await lock_b.release()

    run(scenario())


def test_an_operation_that_is_in_the_state_already_is_passed_over() -> None:
    async def scenario() -> None:
        world = World()
        a = Counter(world.join("a"))
        await a.add(1)
        late = world.join("b")
        b = Counter(late)
        late.blocks["counter/counter"].restore(world.members["a"].blocks["counter/counter"].take())
        late.taken = 0  # its driver hands it the operation once more
        world.deliver("b")
        assert b.value == 1

    run(scenario())


# Lock


def test_a_lock_is_held_by_one_at_a_time_in_the_order_of_asking() -> None:
    async def scenario() -> None:
        world = World()
        locks = {name: Lock(world.join(name)) for name in "abc"}
        order: list[tuple[str, int]] = []

        async def work(name: str) -> None:
            async with locks[name] as token:
                assert [lock.is_mine for lock in locks.values()].count(True) == 1
                order.append((name, token))
                await settle()

        await asyncio.gather(*(work(name) for name in "abcab"))
        assert [name for name, _ in order] == list("abcab")
        tokens = [token for _, token in order]
        assert tokens == sorted(set(tokens))
        assert all(lock.holder is None and lock.waiting == 0 for lock in locks.values())

    run(scenario())


def test_who_leaves_the_view_lets_go() -> None:
    async def scenario() -> None:
        world = World()
        locks = {name: Lock(world.join(name)) for name in "abc"}
        first = await locks["a"].acquire()
        dead_waiter = asyncio.ensure_future(locks["b"].acquire())
        waiter = asyncio.ensure_future(locks["c"].acquire())
        await settle()
        assert locks["c"].waiting == 2
        world.install("c")  # a and b crash
        assert await waiter > first
        assert locks["c"].holder == world.members["c"].address
        await locks["c"].release()
        dead_waiter.cancel()
        await asyncio.gather(dead_waiter, return_exceptions=True)
        await settle()

    run(scenario())


def test_a_timeout_leaves_no_claim_behind() -> None:
    async def scenario() -> None:
        world = World()
        a, b = (Lock(world.join(name)) for name in "ab")
        await a.acquire()
        with pytest.raises(TimeoutError):
            await b.acquire(timeout=0)
        await settle()
        assert (a.waiting, b.waiting) == (0, 0)
        await a.release()
        assert await b.acquire(timeout=10)
        await b.release()

    run(scenario())


def test_a_task_that_is_cancelled_at_the_moment_of_its_turn_lets_go() -> None:
    async def scenario() -> None:
        world = World(is_prompt=False)
        a, b = (Lock(world.join(name)) for name in "ab")
        for task in (mine := asyncio.ensure_future(a.acquire()), theirs := asyncio.ensure_future(b.acquire())):
            await settle()
            assert not task.done()
        world.deliver()
        mine.cancel()  # its turn has come, and it has not heard yet
        await settle()
        world.deliver()
        assert await theirs == 2
        assert not a.is_mine
        release = asyncio.ensure_future(b.release())
        await settle()
        world.deliver()
        await release

    run(scenario())


def test_who_is_cancelled_while_letting_go_has_let_go() -> None:
    async def scenario() -> None:
        world = World(is_prompt=False)
        a = Lock(world.join("a"))
        acquiring = asyncio.ensure_future(a.acquire())
        await settle()
        world.deliver()
        await acquiring
        releasing = asyncio.ensure_future(a.release())
        await settle()
        releasing.cancel()
        await settle()
        world.deliver()
        await settle()
        assert a.holder is None

    run(scenario())


def test_without_a_majority_a_lock_is_lost() -> None:
    async def scenario() -> None:
        world = World()
        a = Lock(world.join("a"), "accounts")
        b = Lock(world.join("b"), "accounts")
        await a.acquire()
        world.lose_majority("a")
        assert not a.is_mine
        with pytest.raises(LockLostError, match="lock 'accounts' was lost while it was held"):
            await a.release()
        await settle()
        assert b.holder is None  # nobody had taken it away meanwhile; it is free all the same

    run(scenario())


async def fail_without_majority(world: World, lock: Lock) -> None:
    async with lock:
        world.lose_majority("a")
        raise ZeroDivisionError


def test_a_lost_lock_is_told_at_the_end_of_the_block_unless_that_failed_itself() -> None:
    async def scenario() -> None:
        world = World()
        a = Lock(world.join("a"))
        with pytest.raises(LockLostError):
            async with a:
                world.lose_majority("a")
        with pytest.raises(ZeroDivisionError):
            await fail_without_majority(world, a)
        await settle()
        assert a.holder is None

    run(scenario())


def test_a_claim_that_was_dropped_while_its_member_was_away_is_made_again() -> None:
    async def scenario() -> None:
        world = World()
        a, b = (Lock(world.join(name)) for name in "ab")
        await b.acquire()
        waiting = asyncio.ensure_future(a.acquire())
        await settle()
        world.lose_majority("a")  # b goes on alone, and a's claim goes with it
        b._lock.on_view(View(ViewId(2, 1), (world.members["b"].address,), is_primary=True))
        world.hand_over("b", "a")
        await settle()
        assert a.waiting == b.waiting == 1
        await b.release()
        await waiting
        assert a.is_mine
        await a.release()

    run(scenario())


def test_letting_go_of_what_is_not_held_is_a_mistake() -> None:
    async def scenario() -> None:
        lock = Lock(World().join("a"))
        with pytest.raises(MisuseError, match="lock 'lock' is not held here; acquire it first"):
            await lock.release()

    run(scenario())


# All of them


def test_who_has_left_is_told_so() -> None:
    async def scenario() -> None:
        world = World(is_prompt=False)
        member = world.join("a")
        counter, lock = Counter(member), Lock(member)
        adding, acquiring = asyncio.ensure_future(counter.add()), asyncio.ensure_future(lock.acquire())
        await settle()
        member.leave()
        results = await asyncio.gather(adding, acquiring, return_exceptions=True)
        assert [type(result) for result in results] == [LeftGroupError] * 2
        with pytest.raises(LeftGroupError):
            await counter.add()
        await settle()
        assert not counter._pending
        assert not lock._turns

    run(scenario())


def test_a_block_without_a_name_is_a_mistake() -> None:
    with pytest.raises(MisuseError, match="a Counter needs a name, the same at every member"):
        Counter(World().join("a"), "")


def test_blocks_of_one_name_and_different_kinds_do_not_meet() -> None:
    async def scenario() -> None:
        group = World().join("a")
        numbers, lock = Counter(group, "x"), Lock(group, "x")
        await numbers.add(3)
        async with lock:
            assert numbers.value == 3
        assert set(group.blocks) == {"counter/x", "lock/x"}

    run(scenario())


@pytest.mark.parametrize("message", [b"", b"short", bytes(8), bytes(9), bytes(100)])
def test_nonsense_of_a_peer_changes_nothing(message: bytes) -> None:
    async def scenario() -> None:
        world = World()
        group = world.join("a")
        blocks = (Counter(group), ReplicatedDict(group), Lock(group))
        before = [parts.take()[8:] for parts in list(group.blocks.values())[:2]]
        for parts in group.blocks.values():
            parts.apply(7, world.join("b").address, 1, message)
            parts.apply(8, group.address, 1, message)
        assert [parts.take()[8:] for parts in list(group.blocks.values())[:2]] == before
        assert blocks[2].holder is None

    run(scenario())
