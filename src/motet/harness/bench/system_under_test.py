"""The interface of a system under test in one process: Motet or a peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Protocol

from motet.harness.bench.job import MOTET, Job
from motet.harness.bench.peer import module_of


class Tally:
    """Counts delivered messages and their bytes, so that every message is read at least once.

    Another thread samples it.
    """

    __slots__ = ("bytes_read", "delivered")

    def __init__(self) -> None:
        self.delivered = self.bytes_read = 0


class SystemUnderTest(Protocol):
    address: str  # the address by which other processes connect

    async def connect(self, addresses: Sequence[str]) -> None:
        """Called when all processes have started: get ready to send and to receive."""

    async def send(self, messages: list[bytes]) -> None:
        """Send to all members; wait while there is back-pressure."""

    async def receive(self) -> Sequence[bytes]:
        """Wait for the next messages."""

    async def count(self, tally: Tally) -> None:
        """Receive and count messages until cancelled."""

    def counters(self) -> dict[str, int]: ...

    async def close(self) -> None: ...


Opener = Callable[[Job], Awaitable[SystemUnderTest]]


class PlainSystem:
    """A base for most systems: no members to wait for, no counters, one way to receive messages."""

    address = ""

    async def connect(self, addresses: Sequence[str]) -> None:
        return

    async def receive(self) -> Sequence[bytes]:
        raise NotImplementedError

    async def count(self, tally: Tally) -> None:
        while True:
            messages = await self.receive()
            tally.bytes_read += sum(map(len, messages))
            tally.delivered += len(messages)

    def counters(self) -> dict[str, int]:
        return {}

    async def close(self) -> None:
        return


async def open_system(job: Job) -> SystemUnderTest:
    module = import_module("motet.harness.bench.member") if job.system == MOTET else module_of(job.system)
    opener: Opener = module.open_system
    return await opener(job)
