"""The state that one who joins is given, and that a snapshot records: a part per block, and one of the application.

    parts: count u16, then per part: name length u8, name, data length u64, data        the application's part is ""

Blocks are asked when the driver's word is taken, for they have applied exactly what came before it. The application is
asked when it has taken all events that came before: its state is then exactly that of the same moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct

from motet.aio.blocks import Blocks
from motet.membership.transfer import StateFailed, StateReceived

logger = logging.getLogger("motet")
_COUNT = Struct("<H")
_LENGTH = Struct("<Q")
APPLICATION = ""

StateProvider = Callable[[], bytes | Iterable[bytes]]
StateReceiver = Callable[[bytes], None]
Later = Callable[[Callable[[], None]], None]
Supply = Callable[[bytes], None]
Refuse = Callable[[str], None]


class StateParts:
    def __init__(
        self, provider: StateProvider | None, receiver: StateReceiver | None, blocks: Blocks, later: Later
    ) -> None:
        """`later` runs something when the application has taken all events so far."""
        self._provider = provider
        self._receiver = receiver
        self._blocks = blocks
        self._later = later
        self._pieces: list[bytes] = []

    def provide(self, supply: Supply, refuse: Refuse | None = None) -> None:
        """Hand over the state of this moment, as soon as the application is there; if it fails, say so."""
        parts = self._blocks.take()
        if self._provider is None:
            supply(pack_parts(parts))
            return
        provider = self._provider

        def ask() -> None:
            try:
                given = provider()
                parts[APPLICATION] = given if isinstance(given, bytes) else b"".join(given)
            except Exception as error:
                if refuse is not None:
                    refuse(f"the state provider raised {type(error).__name__}: {error}")
                raise
            supply(pack_parts(parts))

        self._later(ask)

    def received(self, effect: StateReceived | StateFailed) -> None:
        if isinstance(effect, StateFailed):
            logger.warning("the state of the group did not come: %s", effect.reason)
            self._pieces.clear()
            return
        if effect.is_first:
            self._pieces.clear()
        self._pieces.append(effect.data)
        if effect.is_last:
            parts = unpack_parts(b"".join(self._pieces))
            self._pieces.clear()
            application = parts.pop(APPLICATION, None)
            self._blocks.restore(parts)
            if application is not None and self._receiver is not None:
                self._later(partial(self._receiver, application))


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
