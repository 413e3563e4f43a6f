"""The state that one who joins is given: a part per block, and one of the application.

    parts: count u16, then per part: name length u8, name, data length u64, data        the application's part is ""

Blocks are asked when the driver's word is taken, for they have applied exactly what came before it. The application is
asked when it has taken all events that came before: its state is then exactly that of the view's beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from struct import Struct

from motet.core.view import ViewId
from motet.membership.transfer import StateFailed, StateReceived

logger = logging.getLogger("motet")
_COUNT = Struct("<H")
_LENGTH = Struct("<Q")
APPLICATION = ""

StateProvider = Callable[[], bytes | Iterable[bytes]]
StateReceiver = Callable[[bytes], None]
Later = Callable[[Callable[[], None]], None]
Supply = Callable[[ViewId, bytes, bool], None]


class StateParts:
    def __init__(self, provider: StateProvider | None, receiver: StateReceiver | None, supply: Supply) -> None:
        self._provider = provider
        self._receiver = receiver
        self._supply = supply
        self._blocks: dict[str, tuple[Callable[[], bytes], Callable[[bytes], None]]] = {}
        self._pieces: list[bytes] = []
        self._early: dict[str, bytes] = {}  # parts of blocks that are not registered yet

    def register(self, name: str, take: Callable[[], bytes], restore: Callable[[bytes], None]) -> None:
        self._blocks[name] = (take, restore)
        if name in self._early:
            restore(self._early.pop(name))

    def provide(self, view: ViewId, later: Later) -> None:
        parts = {name: take() for name, (take, _) in self._blocks.items()}
        if self._provider is None:
            self._supply(view, pack_parts(parts), True)
            return
        provider = self._provider

        def ask() -> None:
            given = provider()
            parts[APPLICATION] = given if isinstance(given, bytes) else b"".join(given)
            self._supply(view, pack_parts(parts), True)

        later(ask)

    def received(self, effect: StateReceived | StateFailed, later: Later) -> None:
        if isinstance(effect, StateFailed):
            logger.warning("the state of the group did not come: %s", effect.reason)
            self._pieces.clear()
            return
        if effect.is_first:
            self._pieces.clear()
        self._pieces.append(effect.data)
        if not effect.is_last:
            return
        parts = unpack_parts(b"".join(self._pieces))
        self._pieces.clear()
        for name, data in parts.items():
            self._hand_on(name, data, later)

    def _hand_on(self, name: str, data: bytes, later: Later) -> None:
        receiver = self._receiver
        if name == APPLICATION:
            if receiver is not None:
                later(lambda: receiver(data))
        elif name in self._blocks:
            self._blocks[name][1](data)
        else:
            self._early[name] = data


def pack_parts(parts: dict[str, bytes]) -> bytes:
    packed = [_COUNT.pack(len(parts))]
    for name, data in parts.items():
        packed += [bytes([len(name.encode())]), name.encode(), _LENGTH.pack(len(data)), data]
    return b"".join(packed)


def unpack_parts(data: bytes) -> dict[str, bytes]:
    """Of a member that holds the group's key; what does not fit together is left out."""
    parts: dict[str, bytes] = {}
    if len(data) < _COUNT.size:
        return parts
    at = _COUNT.size
    for _ in range(_COUNT.unpack_from(data)[0]):
        if at >= len(data):
            break
        end = at + 1 + data[at]
        name = data[at + 1 : end].decode(errors="replace")
        if end + _LENGTH.size > len(data):
            break
        (length,) = _LENGTH.unpack_from(data, end)
        at = end + _LENGTH.size + length
        parts[name] = data[end + _LENGTH.size : at]
    return parts
