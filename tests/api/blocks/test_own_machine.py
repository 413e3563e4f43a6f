"""A block of an application's own, on real members: the documented ways carry it, and what it raises is not lost."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

import motet
from tests.runtime.cluster import cluster, join, run


class Book:
    """The class of the guide, with an operation that raises."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.calls: list[tuple[int, str, int]] = []
        self.views = 0

    def apply(self, position: int, sender: motet.Address, request: int, operation: bytes) -> int:
        self.calls.append((position, sender.name, request))
        if operation == b"bad":
            raise ValueError("no such order")
        self.orders.append(operation.decode())
        return len(self.orders)

    def on_view(self, view: motet.View) -> None:
        self.views += 1

    def snapshot(self) -> bytes:
        return json.dumps(self.orders).encode()

    def restore(self, data: bytes) -> None:
        self.orders = json.loads(data)


def register(group: motet.Group, book: Book) -> None:
    group.register_block("book", book.apply, book.on_view, book.snapshot, book.restore)


def test_a_machine_of_ones_own_is_the_same_at_every_member() -> None:
    async def test() -> None:
        async with cluster("a", "b", consume=False) as groups:
            here, there = (motet.ReplicatedState(group, "book", Book()) for group in groups)
            assert await here.apply(b"buy") == 1
            assert await there.apply(b"sell") == 2
            late = await join("c", groups, consume=False)
            groups.append(late)
            state = motet.ReplicatedState(late, "book", Book())
            assert await state.apply(b"late") == 3
            for copy in (here, there, state):
                await copy.sync()
                assert copy.machine.orders == ["buy", "sell", "late"]
            assert here.position == there.position == state.position

    run(test)


def test_apply_of_a_registered_block_gets_four_arguments() -> None:
    async def test() -> None:
        async with cluster("a", "b", consume=False) as groups:
            books = [Book(), Book()]
            for group, book in zip(groups, books, strict=True):
                register(group, book)
            receipts = [await groups[0].multicast_block("book", operation) for operation in (b"buy", b"sell")]
            assert [await receipt.stable() for receipt in receipts] == [1, 2]
            assert books[0].orders == ["buy", "sell"]
            assert books[0].calls == books[1].calls == [(1, "a", 1), (2, "a", 2)]

    run(test)


def test_a_machine_without_a_method_is_refused() -> None:
    async def test() -> None:
        async with cluster("a", consume=False) as (a,):
            with pytest.raises(motet.MisuseError, match="object has no apply, on_view, snapshot, restore;"):
                motet.ReplicatedState(a, "book", object())  # type: ignore[type-var]
            state = motet.ReplicatedState(a, "book", Book())
            for operation in ("buy", b""):
                with pytest.raises(motet.MisuseError, match="an operation is bytes, and at least one byte"):
                    await state.apply(operation)  # type: ignore[arg-type]

    run(test)


def test_what_apply_raises_gets_to_the_caller_the_log_and_the_events(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster("a", "b") as groups:
            here, there = (motet.ReplicatedState(group, "book", Book()) for group in groups)
            with pytest.raises(motet.BlockFailedError, match="raised ValueError at position 1: no such") as caught:
                await here.apply(b"bad")
            assert isinstance(caught.value.__cause__, ValueError)
            assert await there.apply(b"buy") == 1  # the log goes on, at both
            await here.sync()
            assert here.machine.orders == there.machine.orders == ["buy"]
            for group in groups:
                failed = await until_failed(group)
                assert (failed.block, failed.position, str(failed.error)) == ("state/book", 1, "no such order")
                assert failed.sender == groups[0].address

    with caplog.at_level(logging.ERROR, logger="motet"):
        run(test)
    records = [record for record in caplog.records if "block 'state/book' raised" in record.getMessage()]
    assert len(records) == 2
    assert all(record.exc_info and record.exc_info[0] is ValueError for record in records)


def test_what_a_registered_block_raises_is_an_event(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            register(a, Book())
            assert await (await a.multicast_block("book", b"bad")).stable() == 1
            failed = await until_failed(a)
            assert (failed.block, failed.position, type(failed.error)) == ("book", 1, ValueError)

    with caplog.at_level(logging.ERROR, logger="motet"):
        run(test)


def test_a_block_that_cannot_take_a_view_does_not_keep_the_group_from_it(caplog: pytest.LogCaptureFixture) -> None:
    class Blind(Book):
        def on_view(self, view: motet.View) -> None:
            raise KeyError("who is that?")

    async def test() -> None:
        async with cluster("a") as groups:
            (a,) = groups
            register(a, Blind())
            groups.append(await join("b", groups, consume=False))
            await a.until(lambda view: len(view.members) == 2)
            failed = await until_failed(a)
            assert (failed.block, failed.position, failed.sender) == ("book", None, None)

    with caplog.at_level(logging.ERROR, logger="motet"):
        run(test)


def test_a_listener_that_raises_does_not_part_the_copies(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster("a", consume=False) as (a,):
            stock = motet.ReplicatedDict(a, "stock")
            stock.watch(lambda change: 1 / 0)  # type: ignore[arg-type]
            await stock.update({"apples": 1, "pears": 2})
            assert dict(stock) == {"apples": 1, "pears": 2}

    with caplog.at_level(logging.ERROR, logger="motet"):
        run(test)
    assert "a listener of ReplicatedDict 'stock' raised at key 'apples'" in caplog.text


async def until_failed(group: motet.Group) -> motet.BlockFailed:
    async with asyncio.timeout(10):
        async for event in group:
            if isinstance(event, motet.BlockFailed):
                return event
    raise AssertionError("the group ended")
