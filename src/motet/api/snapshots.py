"""Snapshots as the application takes them: one that something passing hindered is taken again, within the same time.

    start        -> the member's word, which snapshot it is
    taken        -> the result
    failed       -> passing (a view ended, a member lacks its state yet): again after a pause; else a SnapshotError
    time is over -> a SnapshotError that says what hindered the last one

Runs on the application's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from motet.errors import SnapshotError
from motet.protocol.snapshot import SnapshotFailed, SnapshotTaken
from motet.protocol.snapshot.result import SnapshotResult
from motet.protocol.wire.snapshot import SnapshotId

SHORTEST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

End = SnapshotTaken | SnapshotFailed


class SnapshotTaker:
    def __init__(self, loop: asyncio.AbstractEventLoop, start: Callable[[], Future[SnapshotId]]) -> None:
        self._loop = loop
        self._start = start
        self._starting = 0
        self._ends: dict[SnapshotId, asyncio.Future[End]] = {}

    @property
    def waiting(self) -> Iterable[asyncio.Future[End]]:
        return self._ends.values()

    async def take(self, timeout_s: float) -> SnapshotResult:
        hindrance, pause_s = "not all have answered", SHORTEST_PAUSE_S
        try:
            async with asyncio.timeout(timeout_s):
                while isinstance(end := await self._take_one(), SnapshotFailed) and end.is_transient:
                    hindrance = end.reason
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        except TimeoutError:
            raise SnapshotError(f"no snapshot was complete within {timeout_s} s: {hindrance}; take it again") from None
        if isinstance(end, SnapshotFailed):
            raise SnapshotError(f"the snapshot failed: {end.reason}; take it again")
        return SnapshotResult.of(end)

    async def _take_one(self) -> End:
        self._starting += 1
        try:
            snapshot = await asyncio.wrap_future(self._start())
        finally:
            self._starting -= 1
        try:
            return await self._ends.setdefault(snapshot, self._loop.create_future())
        finally:
            self._ends.pop(snapshot, None)

    def ended(self, end: End) -> None:
        if self._starting:  # it has ended before we heard its name
            self._ends.setdefault(end.snapshot, self._loop.create_future())
        future = self._ends.get(end.snapshot)
        if future is not None and not future.done():
            future.set_result(end)
