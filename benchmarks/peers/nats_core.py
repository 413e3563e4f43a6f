"""NATS core: every member publishes to one subject of a broker and subscribes to it. At most once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from motet.harness.bench.job import Job
from motet.harness.bench.system_under_test import PlainSystem

SUBJECT = "bench"
UNLIMITED = 1 << 30


class NatsSystem(PlainSystem):
    def __init__(self, client: Client) -> None:
        self._client = client
        self._came: list[bytes] = []
        self._is_there = asyncio.Event()

    async def connect(self, addresses: Sequence[str]) -> None:
        await self._client.subscribe(SUBJECT, cb=self.take, pending_msgs_limit=UNLIMITED, pending_bytes_limit=UNLIMITED)
        await self._client.flush()

    async def take(self, message: Msg) -> None:
        self._came.append(message.data)
        self._is_there.set()

    async def send(self, messages: list[bytes]) -> None:
        for message in messages:
            await self._client.publish(SUBJECT, message)
        await self._client.flush()

    async def receive(self) -> Sequence[bytes]:
        await self._is_there.wait()
        self._is_there.clear()
        came, self._came = self._came, []
        return came

    async def close(self) -> None:
        await self._client.close()


async def connected(job: Job) -> Client:
    return await nats.connect(f"nats://{job.seeds[0]}", max_reconnect_attempts=1)


async def open_system(job: Job) -> NatsSystem:
    return NatsSystem(await connected(job))
