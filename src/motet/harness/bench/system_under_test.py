"""One process's hold on a system that is measured: Motet, or a peer behind the same few methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Protocol

from motet.harness.bench.job import MOTET, Job


class Tally:
    """How many messages have come, and how long they were: whoever counts has touched every one of them.

    Another thread reads it.
    """

    __slots__ = ("bytes_read", "delivered")

    def __init__(self) -> None:
        self.delivered = self.bytes_read = 0


class SystemUnderTest(Protocol):
    address: str  # what others need to find this one

    async def connect(self, addresses: Sequence[str]) -> None:
        """All are there: be ready to send and to receive."""

    async def send(self, messages: list[bytes]) -> None:
        """To all members; waits when there is no space."""

    async def receive(self) -> Sequence[bytes]:
        """The next messages; waits for them."""

    async def count(self, tally: Tally) -> None:
        """Take messages and count them, for ever."""

    def counters(self) -> dict[str, int]: ...

    async def close(self) -> None: ...


Opener = Callable[[Job], Awaitable[SystemUnderTest]]


class PlainSystem:
    """What most systems have in common: no members to wait for, no counters, one way to take messages."""

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


_MODULES = {
    MOTET: "motet.harness.bench.member",
    "zmq": "motet.harness.bench.peers.zmq_pubsub",
    "nats": "motet.harness.bench.peers.nats_core",
    "jetstream": "motet.harness.bench.peers.jetstream",
    "redis": "motet.harness.bench.peers.redis_streams",
    "pysyncobj": "motet.harness.bench.peers.syncobj",
    "corosync": "motet.harness.bench.peers.corosync_cpg",
    "norm": "motet.harness.bench.peers.norm_stream",
}


async def open_system(job: Job) -> SystemUnderTest:
    opener: Opener = import_module(_MODULES[job.system]).open_system
    return await opener(job)
