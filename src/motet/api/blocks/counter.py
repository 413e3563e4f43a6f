"""A number that all members agree on."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from motet.api.blocks.base import Block, OrderedLog, Refused
from motet.errors import MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

LEAST, MOST = -(1 << 63), (1 << 63) - 1
_OPERATION = Struct("<Bqq")
_STATE = Struct("<Qq")


class CounterOperation(IntEnum):
    ADD = 1  # first: what is added
    SET = 2  # first: what it becomes
    COMPARE_AND_SET = 3  # first: what it must be, second: what it becomes then


class CounterMachine:
    """Invariant: LEAST <= value <= MOST; what would lead beyond is refused."""

    def __init__(self) -> None:
        self.applied = 0
        self.value = 0

    def apply(self, position: int, sender: Address, request: int, operation: bytes) -> int | bool | Refused:
        self.applied = position
        if len(operation) != _OPERATION.size:
            return Refused(f"{len(operation)} bytes are no operation of a counter")
        kind, first, second = _OPERATION.unpack(operation)
        match kind:
            case CounterOperation.ADD:
                return self._become(self.value + first)
            case CounterOperation.SET:
                return self._become(first)
            case CounterOperation.COMPARE_AND_SET:
                return bool(self.value == first) and self._become(second) == second
        return Refused(f"operation {kind} is unknown to this version")

    def on_view(self, view: View) -> None:
        pass

    def snapshot(self) -> bytes:
        return _STATE.pack(self.applied, self.value)

    def restore(self, data: bytes) -> None:
        self.applied, self.value = _STATE.unpack(data)

    def _become(self, value: int) -> int | Refused:
        if not LEAST <= value <= MOST:
            return Refused(f"{value} does not fit into 64 bits")
        self.value = value
        return value


class Counter(Block):
    """`await counter.add(1)` returns the new value, and no two callers in the group get the same one."""

    kind = "counter"

    def __init__(self, log: OrderedLog, name: str = "counter") -> None:
        self._counter = CounterMachine()
        super().__init__(log, name, self._counter)

    @property
    def value(self) -> int:
        """As this member knows it; `get` asks the group."""
        return self._counter.value

    async def get(self) -> int:
        await self.sync()
        return self.value

    async def add(self, amount: int = 1) -> int:
        return int(await self._ask(_packed(CounterOperation.ADD, amount)))

    async def set(self, value: int) -> int:
        return int(await self._ask(_packed(CounterOperation.SET, value)))

    async def compare_and_set(self, expected: int, value: int) -> bool:
        """Whether it was `expected`, and so has become `value`."""
        return bool(await self._ask(_packed(CounterOperation.COMPARE_AND_SET, expected, value)))


def _packed(operation: CounterOperation, first: int, second: int = 0) -> bytes:
    if not (LEAST <= first <= MOST and LEAST <= second <= MOST):
        raise MisuseError(f"a counter holds whole numbers of 64 bits, {LEAST} to {MOST}")
    return _OPERATION.pack(operation, first, second)
