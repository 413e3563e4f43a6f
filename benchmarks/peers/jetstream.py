"""NATS JetStream: one stream in the broker's memory, every publish acknowledged, every member an ordered consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import StorageType

from benchmarks.peers.nats_core import SUBJECT, UNLIMITED, NatsSystem, connected
from motet.harness.bench.job import Job


class JetStreamSystem(NatsSystem):
    def __init__(self, client: Client, index: int) -> None:
        super().__init__(client)
        self._stream = client.jetstream()
        self._is_first = index == 0

    async def open(self) -> None:
        if self._is_first:
            await self._stream.add_stream(name="BENCH", subjects=[SUBJECT], storage=StorageType.MEMORY)

    async def connect(self, addresses: Sequence[str]) -> None:
        await self._stream.subscribe(
            SUBJECT,
            cb=self.take,
            ordered_consumer=True,
            pending_msgs_limit=UNLIMITED,
            pending_bytes_limit=UNLIMITED,
        )

    async def send(self, messages: list[bytes]) -> None:
        """All of a batch under way at once; the next batch follows when all are acknowledged."""
        waiting = list(messages)
        while waiting:
            answers = await asyncio.gather(*map(self._publish, waiting))
            waiting = [message for message, is_kept in zip(waiting, answers, strict=True) if not is_kept]

    async def _publish(self, message: bytes) -> bool:
        try:
            await self._stream.publish(SUBJECT, message, timeout=30)
        except Error:
            return False
        return True


async def open_system(job: Job) -> JetStreamSystem:
    system = JetStreamSystem(await connected(job), job.index)
    await system.open()
    return system
