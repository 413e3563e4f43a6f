"""The application's side of the lanes: how much of each stream waits for window space, and who waits for that."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from motet.aio.driver import Freed, LaneKey
from motet.aio.queue import MESSAGE_OVERHEAD
from motet.core.effects import Channel
from motet.core.identity import Address
from motet.errors import MisuseError
from motet.wire.body import MAX_MESSAGE_BYTES

LANE_BYTES = 2 << 20  # what may wait for window space before a send waits; more only gets cold in the caches


class Lane:
    __slots__ = ("outstanding", "waiters")

    def __init__(self) -> None:
        self.outstanding = 0
        self.waiters: deque[asyncio.Future[None]] = deque()

    def free(self, size: int) -> None:
        self.outstanding = max(0, self.outstanding - size)  # what was sent before a lane was dropped may be told later
        if self.outstanding <= LANE_BYTES // 2:
            while self.waiters:
                waiter = self.waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)


class Lanes:
    def __init__(self, check_open: Callable[[], None]) -> None:
        self._check_open = check_open
        self._lanes: dict[LaneKey, Lane] = {}

    async def space(self, key: LaneKey) -> Lane:
        """The lane, as soon as it has space."""
        lane = self.at(key)
        while lane.outstanding > LANE_BYTES:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lane.waiters.append(waiter)
            await waiter
            self._check_open()
        return lane

    def at(self, key: LaneKey) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
        return lane

    def freed(self, effect: Freed) -> None:
        lane = self._lanes.get(effect.lane)
        if lane is None:
            return
        lane.free(effect.size)

    def drop(self, member: Address) -> None:
        """Gone for good: what is still on the way to it is the driver's, which tells in time that it failed."""
        lane = self._lanes.pop((Channel.UNICAST, member), None)
        if lane is not None:
            lane.free(lane.outstanding)

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.free(lane.outstanding)


def measure(messages: Sequence[bytes]) -> int:
    """What these cost a send queue; what is too large is refused."""
    size = sum(map(len, messages))
    if size > MAX_MESSAGE_BYTES and max(map(len, messages)) > MAX_MESSAGE_BYTES:
        raise MisuseError(f"a message can have {MAX_MESSAGE_BYTES} bytes at most; split it")
    return size + MESSAGE_OVERHEAD * len(messages)
