"""The state that one who joins is given, and that a snapshot records: a part per block, and one of the application.

    parts: count u16, then per part: name length u8, name, data length u64, data        the application's part is ""

Blocks are asked when the driver's word is taken, for they have applied exactly what came before it. The application is
asked when it has taken all events that came before: its state is then exactly that of the same moment.

    a provider raises    -> logged with its traceback, and refused: the next holder is asked
    a receiver raises    -> logged with its traceback, and the member fails: it must not go on without the state
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct

from motet.api.block_registry import Blocks
from motet.protocol.membership.transfer import StateReceived

logger = logging.getLogger("motet")
_COUNT = Struct("<H")
_LENGTH = Struct("<Q")
APPLICATION = ""

StateProvider = Callable[[], bytes | Iterable[bytes]]
StateReceiver = Callable[[bytes], None]
Later = Callable[[Callable[[], None]], None]
Supply = Callable[[bytes], None]
Refuse = Callable[[str], None]
Fail = Callable[[str], None]  # the state is not ours and will not be


class StateParts:
    def __init__(
        self,
        provider: StateProvider | None,
        receiver: StateReceiver | None,
        blocks: Blocks,
        later: Later,
        fail: Fail,
    ) -> None:
        """`later` runs something when the application has taken all events so far."""
        self._provider = provider
        self._receiver = receiver
        self._blocks = blocks
        self._later = later
        self._fail = fail
        self._pieces: list[bytes] = []

    def provide(self, supply: Supply, refuse: Refuse) -> None:
        """Hand over the state of this moment, as soon as the application is there; if it fails, say so."""
        try:
            parts = self._blocks.take()
        except Exception as error:
            refuse(f"a block raised {type(error).__name__}: {error}")
            raise
        if self._provider is None:
            supply(pack_parts(parts))
            return
        provider = self._provider

        def ask() -> None:
            try:
                given = provider()
                parts[APPLICATION] = given if isinstance(given, bytes) else b"".join(given)
            except Exception as error:
                refuse(f"the state provider raised {type(error).__name__}: {error}")
                raise
            supply(pack_parts(parts))

        self._later(ask)

    def received(self, effect: StateReceived) -> None:
        if effect.is_first:
            self._pieces.clear()
        self._pieces.append(effect.data)
        if effect.is_last:
            parts = unpack_parts(b"".join(self._pieces))
            self._pieces.clear()
            self._take_over(parts)

    def void(self) -> None:
        """The rest of the state does not come."""
        self._pieces.clear()

    def _take_over(self, parts: dict[str, bytes]) -> None:
        application = parts.pop(APPLICATION, None)
        self._tried("a block", partial(self._blocks.restore, parts))
        if self._receiver is None:
            return
        if application is None:
            logger.warning("the state came from a member without a state_provider: give one to every member")
            return
        self._later(partial(self._tried, "the state receiver", partial(self._receiver, application)))

    def _tried(self, who: str, take: Callable[[], None]) -> None:
        try:
            take()
        except Exception as error:
            self._fail(f"{who} raised {type(error).__name__}: {error}")
            raise


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
