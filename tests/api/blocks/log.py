"""A group that fits into one process: one ordered log, and members that take from it as far as the test lets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from motet.errors import LeftGroupError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View, ViewId


def address(name: str) -> Address:
    return Address(name, "127.0.0.1", 7800 + ord(name[0]), sum(name.encode()))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Any warning, and any task that is left behind, is an error."""

    async def whole() -> None:
        await scenario
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    asyncio.run(whole())


async def settle() -> None:
    """Let every task go on until it waits for something that only the test can bring."""
    for _ in range(30):
        await asyncio.sleep(0)


@dataclass(slots=True)
class FakeReceipt:
    future: asyncio.Future[int]

    async def delivered(self) -> int:
        return await asyncio.shield(self.future)


@dataclass(slots=True)
class Parts:
    apply: Callable[[int, Address, int, bytes], object]
    on_view: Callable[[View], None]
    take: Callable[[], bytes]
    restore: Callable[[bytes], None]


class FakeGroup:
    """One member: an `OrderedLog`."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.address = address(name)
        self.blocks: dict[str, Parts] = {}
        self.taken = world.position  # how far of the log
        self.is_open = True

    @property
    def view(self) -> View:
        return self._world.view

    def register_block(
        self,
        name: str,
        apply: Callable[[int, Address, int, bytes], object],
        on_view: Callable[[View], None],
        take: Callable[[], bytes],
        restore: Callable[[bytes], None],
    ) -> None:
        self.blocks[name] = Parts(apply, on_view, take, restore)

    async def multicast_block(self, name: str, operation: bytes, *, request: int) -> FakeReceipt:
        if not self.is_open:
            raise LeftGroupError("gone")
        return self._world.append(self, name, request, operation)

    def leave(self) -> None:
        self.is_open = False
        self._world.fail(self)


@dataclass(slots=True)
class Entry:
    sender: FakeGroup
    block: str
    request: int
    operation: bytes
    receipt: FakeReceipt


@dataclass(slots=True)
class World:
    is_prompt: bool = True  # what is sent is delivered to all as soon as the loop comes to it
    members: dict[str, FakeGroup] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)
    views: int = 0

    def join(self, name: str) -> FakeGroup:
        self.members[name] = FakeGroup(self, name)
        return self.members[name]

    @property
    def position(self) -> int:
        return len(self.log)

    @property
    def view(self) -> View:
        return View(ViewId(self.views, 1), tuple(member.address for member in self.members.values()), is_primary=True)

    def append(self, sender: FakeGroup, block: str, request: int, operation: bytes) -> FakeReceipt:
        loop = asyncio.get_running_loop()
        receipt = FakeReceipt(loop.create_future())
        self.log.append(Entry(sender, block, request, operation, receipt))
        if self.is_prompt:
            loop.call_soon(self.deliver)
        return receipt

    def deliver(self, *names: str) -> None:
        """To these, or to all, everything that is in the log."""
        for name in names or tuple(self.members):
            member = self.members[name]
            while member.taken < len(self.log):
                self._deliver_next(member)

    def _deliver_next(self, member: FakeGroup) -> None:
        entry = self.log[member.taken]
        member.taken += 1
        if entry.sender is member and not entry.receipt.future.done():
            entry.receipt.future.set_result(member.taken)
        block = member.blocks.get(entry.block)
        if block is not None:
            block.apply(member.taken, entry.sender.address, entry.request, entry.operation)

    def install(self, *names: str) -> View:
        """A primary view of these; the others are gone. All have delivered the same by then."""
        self.deliver()
        for gone in [name for name in self.members if name not in names]:
            self.members.pop(gone).leave()
        self.views += 1
        for member in self.members.values():
            for block in member.blocks.values():
                block.on_view(self.view)
        return self.view

    def lose_majority(self, name: str) -> None:
        view = View(ViewId(self.views + 1, 1), (self.members[name].address,), is_primary=False)
        for block in self.members[name].blocks.values():
            block.on_view(view)

    def hand_over(self, giver: str, taker: str) -> None:
        for name, block in self.members[giver].blocks.items():
            if name in self.members[taker].blocks:
                self.members[taker].blocks[name].restore(block.take())
        self.members[taker].taken = self.members[giver].taken

    def fail(self, member: FakeGroup) -> None:
        for entry in self.log[member.taken :]:
            if entry.sender is member and not entry.receipt.future.done():
                entry.receipt.future.set_exception(LeftGroupError("gone"))
                entry.receipt.future.exception()
