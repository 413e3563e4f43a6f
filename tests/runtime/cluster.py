"""Real members over loopback, in one process: what the tests of this package share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import motet
from motet.api.group import Group

T = TypeVar("T")
TIMEOUT_S = 20.0  # a bound for a test that hangs, not a measure of anything


def run(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """One test on a loop of its own; whatever it leaves running is a failure."""

    async def bounded() -> T:
        async with asyncio.timeout(TIMEOUT_S):
            result = await test()
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks were left running: {left}"
        return result

    before = set(threading.enumerate())
    result = asyncio.run(bounded())
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not left, f"threads were left running: {left}"
    return result


@asynccontextmanager
async def cluster(*names: str, group: str = "test", **options: Any) -> AsyncIterator[list[Group]]:
    """Members of one group; the first one bootstraps it."""
    groups: list[Group] = []
    try:
        for name in names:
            groups.append(await join(name, groups, group=group, **options))
        for one in groups:
            await one.until(lambda view: len(view.members) == len(names))
        yield groups
    finally:
        for one in reversed(groups):
            await one.leave()


async def join(name: str, others: list[Group], *, group: str = "test", **options: Any) -> Group:
    seeds = [str(other.address.endpoint) for other in others[:1]]
    return await motet.join(group, bind="127.0.0.1:0", name=name, seeds=seeds, **options)


async def take(group: Group, count: int) -> list[motet.Message]:
    """The next messages; other events are passed over."""
    taken: list[motet.Message] = []
    if count == 0:
        return taken
    async for event in group:
        if isinstance(event, motet.Message):
            taken.append(event)
            if len(taken) == count:
                break
    return taken
