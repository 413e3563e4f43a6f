"""A replicated state of the application's own: any class with the methods of `Machine`."""

from __future__ import annotations

from struct import Struct
from typing import Any, Generic, TypeVar

from motet.api.blocks.base import Block, Machine, OrderedLog
from motet.errors import MisuseError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

M = TypeVar("M", bound=Machine)
_APPLIED = Struct("<Q")  # begins the snapshot
_METHODS = ("apply", "on_view", "snapshot", "restore")


class ReplicatedState(Block, Generic[M]):
    """Carries a machine of your own: `await state.apply(operation)` gives what its `apply` returned here.

    Every member makes it under the same name, with a machine in its initial state, right after joining.
    """

    kind = "state"

    def __init__(self, log: OrderedLog, name: str, machine: M) -> None:
        missing = [method for method in _METHODS if not callable(getattr(machine, method, None))]
        if missing:
            raise MisuseError(
                f"{type(machine).__name__} has no {', '.join(missing)}; a machine has the methods of motet.Machine"
            )
        super().__init__(log, name, _Positioned(machine))
        self._own_machine = machine

    @property
    def machine(self) -> M:
        """This member's copy: read it, and change it through `apply` only."""
        return self._own_machine

    async def apply(self, operation: bytes) -> Any:
        """Have every member apply this operation, at one place of the log; returns what the machine here returned."""
        if type(operation) is not bytes or not operation:
            raise MisuseError(f"an operation is bytes, and at least one byte; this is {operation!r:.80}")
        return await self._ask(operation)


class _Positioned:
    """Keeps the position of the last operation for the machine, also in its snapshots."""

    def __init__(self, machine: Machine) -> None:
        self.applied = 0
        self._machine = machine

    def apply(self, position: int, sender: Address, request: int, operation: bytes) -> object:
        self.applied = position  # also if the machine raises: the next copy of this operation does not mend it
        return self._machine.apply(position, sender, request, operation)

    def on_view(self, view: View) -> None:
        self._machine.on_view(view)

    def snapshot(self) -> bytes:
        return _APPLIED.pack(self.applied) + self._machine.snapshot()

    def restore(self, data: bytes) -> None:
        self._machine.restore(data[_APPLIED.size :])
        (self.applied,) = _APPLIED.unpack_from(data)
