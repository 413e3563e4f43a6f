"""What all building blocks share: a deterministic machine, and the thin class that carries operations to it.

    await block.operation(...)   ->   the operation is multicast in total order
    it is delivered              ->   every member applies it to its machine, and gets the same result
    it was ours                  ->   whoever waits for it gets that result
    somebody joins               ->   the machine's snapshot travels with the group's state
    a view is installed          ->   the machine hears of it, at the same place of the log everywhere

A machine knows no loop, clock or randomness. An operation that makes no sense, or goes beyond a bound, is refused, at
every member alike. Operations at positions that the machine has applied before (they are in the snapshot that it
started from) are passed over. Views without a majority are not shown to machines: nothing is ordered in them, and
whoever was in one gets the group's state when it comes back.

The machines of this package never raise. One of an application may: its operation then counts as applied, whoever asked
for it gets `BlockFailedError`, and the group logs the traceback and reports it as the event `BlockFailed`.

Reading a block reads this member's copy, which may be behind; `await block.sync()` first waits for everything that was
ordered before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from motet.errors import BlockFailedError, BlockRefusedError, MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

NOTHING = b""  # the operation that changes nothing


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of an operation that was not done, at any member."""

    reason: str


class Machine(Protocol):
    """A replicated state. The same operations and views in the same order give the same state, byte for byte."""

    def apply(self, position: int, sender: Address, request: int, operation: bytes) -> object:
        """Do one operation, which stands at `position` of the log; the result is for whoever asked for it.

        `request` is a number that tells the operations of one sender apart.
        """

    def on_view(self, view: View) -> None:
        """A primary view was installed."""

    def snapshot(self) -> bytes:
        """Everything that `restore` needs to make an equal machine."""

    def restore(self, data: bytes) -> None:
        """Become what `snapshot` was taken of."""


class PositionedMachine(Machine, Protocol):
    """A machine whose snapshot says which operations are in it."""

    applied: int  # position of the last operation


class Sent(Protocol):
    """A receipt."""

    async def delivered(self) -> int: ...


class OrderedLog(Protocol):
    """What a block needs of its group; `motet.Group` has it."""

    @property
    def address(self) -> Address: ...

    @property
    def view(self) -> View: ...

    def register_block(
        self,
        name: str,
        apply: Callable[[int, Address, int, bytes], object],
        on_view: Callable[[View], None],
        take: Callable[[], bytes],
        restore: Callable[[bytes], None],
    ) -> None: ...

    async def multicast_block(self, name: str, operation: bytes, *, request: int) -> Sent: ...


class Block:
    """One member's end of a block. Make it as soon as you have joined, at every member, under the same name."""

    kind = ""

    def __init__(self, log: OrderedLog, name: str, machine: PositionedMachine) -> None:
        if not name:
            raise MisuseError(f"a {type(self).__name__} needs a name, the same at every member")
        self.name = name
        self._log = log
        self._machine = machine
        self._numbers = count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._block_name = f"{self.kind}/{name}"
        log.register_block(self._block_name, self._apply, self._on_view, machine.snapshot, self._restore)

    async def sync(self) -> None:
        """Wait until this copy has everything that was ordered before this call."""
        await self._ask(NOTHING)

    @property
    def position(self) -> int:
        """Of the last operation that this copy has applied."""
        return self._machine.applied

    async def _ask(self, operation: bytes, request: int | None = None) -> Any:
        """Have an operation done, and get its result."""
        result = await self._result(next(self._numbers) if request is None else request, operation)
        if isinstance(result, Refused):
            raise BlockRefusedError(f"{type(self).__name__} {self.name!r} did not do that: {result.reason}")
        return result

    async def _result(self, request: int, operation: bytes) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[request] = future
        try:
            sent = await self._log.multicast_block(self._block_name, operation, request=request)
            await sent.delivered()  # raises when it never will be
            return await future
        finally:
            del self._pending[request]

    def _apply(self, position: int, sender: Address, request: int, operation: bytes) -> None:
        if position <= self._machine.applied:
            return
        try:
            result = self._machine.apply(position, sender, request, operation) if operation else None
        except Exception as error:
            self._fail(position, sender, request, error)
            raise
        if sender == self._log.address:
            self._settle(request, result)
        self._changed()

    def _fail(self, position: int, sender: Address, request: int, error: Exception) -> None:
        """The machine raised: whoever waits for the result is told; the group reports the exception everywhere."""
        future = self._pending.get(request) if sender == self._log.address else None
        if future is not None and not future.done():
            failure = BlockFailedError(
                f"apply of {type(self).__name__} {self.name!r} raised {type(error).__name__} at position {position}: "
                f"{error}. The operation stays in the log, and every member has applied it as far as this one"
            )
            failure.__cause__ = error
            future.set_exception(failure)

    def _settle(self, request: int, result: object) -> None:
        future = self._pending.get(request)
        if future is not None and not future.done():
            future.set_result(result)

    def _on_view(self, view: View) -> None:
        if view.is_primary:
            self._machine.on_view(view)
        self._changed()

    def _restore(self, data: bytes) -> None:
        self._machine.restore(data)
        self._changed()

    def _changed(self) -> None:
        """The machine may have changed."""
