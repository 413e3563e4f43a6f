"""Named machines on the ordered log: operations find the machine by its name, whenever it is registered.

    name length u8  name  operation

Operations of a name that nobody has registered yet are kept (bounded), because a member may join before its
application has made its blocks; then they are applied, after the state that came with the join.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from motet.core.identity import Address
from motet.core.view import View
from motet.errors import MisuseError

logger = logging.getLogger("motet")
MOST_EARLY = 10_000  # operations kept for a name that nobody has registered
MOST_NAMES = 256

Apply = Callable[[int | None, Address, bytes], None]


@dataclass(slots=True)
class _Early:
    state: bytes | None = None
    operations: list[tuple[int | None, Address, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Block:
    apply: Apply
    on_view: Callable[[View], None]
    take: Callable[[], bytes]
    restore: Callable[[bytes], None]


class Blocks:
    def __init__(self) -> None:
        self._blocks: dict[str, _Block] = {}
        self._early: dict[str, _Early] = {}

    def register(
        self,
        name: str,
        apply: Apply,
        on_view: Callable[[View], None],
        take: Callable[[], bytes],
        restore: Callable[[bytes], None],
    ) -> None:
        if name in self._blocks:
            raise MisuseError(f"there is a block {name!r} in this group already; choose another name")
        if not 0 < len(name.encode()) < 256:
            raise MisuseError("the name of a block has 1 to 255 bytes")
        self._blocks[name] = _Block(apply, on_view, take, restore)
        early = self._early.pop(name, _Early())
        if early.state is not None:
            restore(early.state)
        for position, sender, operation in early.operations:
            apply(position, sender, operation)

    def apply(self, position: int | None, sender: Address, messages: tuple[bytes, ...]) -> None:
        for offset, message in enumerate(messages):
            end = 1 + message[0] if message else 0
            name, operation = message[1:end].decode(errors="replace"), message[end:]
            place = None if position is None else position + offset
            if name in self._blocks:
                self._blocks[name].apply(place, sender, operation)
            else:
                self._keep_early(name, place, sender, operation)

    def _keep_early(self, name: str, position: int | None, sender: Address, operation: bytes) -> None:
        if name not in self._early and len(self._early) >= MOST_NAMES:
            return
        early = self._early.setdefault(name, _Early())
        if len(early.operations) < MOST_EARLY:
            early.operations.append((position, sender, operation))
        elif len(early.operations) == MOST_EARLY:
            logger.warning("block %r has operations and nobody has made it here; make it, under the same name", name)
            early.operations.append((position, sender, operation))

    def on_view(self, view: View) -> None:
        for block in self._blocks.values():
            block.on_view(view)

    def take(self) -> dict[str, bytes]:
        return {name: block.take() for name, block in self._blocks.items()}

    def restore(self, name: str, state: bytes) -> None:
        if name in self._blocks:
            self._blocks[name].restore(state)
        elif len(self._early) < MOST_NAMES:
            self._early[name] = _Early(state)


def message_of(name: str, operation: bytes) -> bytes:
    return bytes([len(name.encode())]) + name.encode() + operation
