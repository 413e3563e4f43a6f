"""One process's hold on a system that is measured: Motet, or a peer behind the same few methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Protocol

from motet.harness.bench.job import MOTET, Job
from motet.harness.bench.peer import module_of


class Tally:
    """How many messages have come, and how long they were: whoever counts has touched every one of them.

    Another thread reads it.
    """

    __slots__ = ("delivered", "looked_at")

    def __init__(self) -> None:
        self.delivered = self.looked_at = 0


class Party(Protocol):
    address: str  # what others need to find this one

    async def meet(self, addresses: Sequence[str]) -> None:
        """All are there: be ready to send and to receive."""

    async def send(self, messages: list[bytes]) -> None:
        """To all members; waits when there is no space."""

    async def receive(self) -> Sequence[bytes]:
        """The next messages; waits for them."""

    async def count(self, tally: Tally) -> None:
        """Take messages and count them, for ever."""

    def counters(self) -> dict[str, int]: ...

    async def close(self) -> None: ...


Opener = Callable[[Job], Awaitable[Party]]


class PlainParty:
    """What most systems have in common: no members to wait for, no counters, one way to take messages."""

    address = ""

    async def meet(self, addresses: Sequence[str]) -> None:
        return

    async def receive(self) -> Sequence[bytes]:
        raise NotImplementedError

    async def count(self, tally: Tally) -> None:
        while True:
            messages = await self.receive()
            tally.looked_at += sum(map(len, messages))
            tally.delivered += len(messages)

    def counters(self) -> dict[str, int]:
        return {}

    async def close(self) -> None:
        return


async def open_party(job: Job) -> Party:
    module = import_module("motet.harness.bench.member") if job.system == MOTET else module_of(job.system)
    opener: Opener = module.open_party
    return await opener(job)
