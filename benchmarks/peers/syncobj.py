"""PySyncObj: Raft among the members, written in Python. A batch is one entry of its log, which is its best case."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pysyncobj import SyncObj, SyncObjConf, replicated

from benchmarks.peers.servers import free_port
from motet.harness.bench.job import Job
from motet.harness.bench.system_under_test import PlainSystem

UNDER_WAY = 64  # entries that a sender has not seen applied


class _Log(SyncObj):  # type: ignore[misc]
    def __init__(self, own: str, others: list[str], system: SyncObjSystem) -> None:
        self._system = system
        super().__init__(own, others, SyncObjConf(dynamicMembershipChange=False, commandsQueueSize=1_000_000))

    @replicated  # type: ignore[untyped-decorator]
    def append(self, messages: list[bytes]) -> None:
        self._system.applied(messages)


class SyncObjSystem(PlainSystem):
    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._loop = asyncio.get_running_loop()
        self._log: _Log | None = None
        self._came: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._space = asyncio.Semaphore(UNDER_WAY)

    async def connect(self, addresses: Sequence[str]) -> None:
        self._log = _Log(self.address, [address for address in addresses if address != self.address], self)
        while not self._log.isReady():
            await asyncio.sleep(0.05)

    def applied(self, messages: list[bytes]) -> None:
        """On the thread of the library."""
        self._loop.call_soon_threadsafe(self._came.put_nowait, messages)

    async def send(self, messages: list[bytes]) -> None:
        assert self._log is not None
        await self._space.acquire()
        self._log.append(messages, callback=self._done)

    def _done(self, result: object, error: object) -> None:
        self._loop.call_soon_threadsafe(self._space.release)

    async def receive(self) -> Sequence[bytes]:
        return await self._came.get()

    async def close(self) -> None:
        if self._log is not None:
            self._log.destroy()


async def open_system(job: Job) -> SyncObjSystem:
    return SyncObjSystem()
