"""Redis Streams: one stream in the server's memory; a pipeline of XADD per batch, and every member reads with XREAD."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import redis

from motet.harness.bench.job import Job
from motet.harness.bench.system_under_test import PlainSystem

STREAM, FIELD = "bench", b"p"
AT_ONCE = 1_000
WAIT_MS = 200


class RedisSystem(PlainSystem):
    def __init__(self, host: str, port: int) -> None:
        self._writer = redis.Redis(host, port)
        self._reader = redis.Redis(host, port)
        self._last: bytes = b"0-0"

    async def send(self, messages: list[bytes]) -> None:
        await asyncio.to_thread(self._append, messages)

    def _append(self, messages: list[bytes]) -> None:
        pipeline = self._writer.pipeline(transaction=False)
        for message in messages:
            pipeline.xadd(STREAM, {FIELD: message})
        pipeline.execute()

    async def receive(self) -> Sequence[bytes]:
        while True:
            entries = await asyncio.to_thread(self._read)
            if entries:
                return entries

    def _read(self) -> list[bytes]:
        answer = self._reader.xread({STREAM: self._last}, count=AT_ONCE, block=WAIT_MS)
        if not answer:
            return []
        streams = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer]
        entries = [entry for stream in streams for entry in _flat(stream)]
        self._last = entries[-1][0]
        return [fields[FIELD] for _, fields in entries]

    async def close(self) -> None:
        self._writer.close()
        self._reader.close()


def _flat(stream: list) -> list:  # type: ignore[type-arg]
    """Versions of the client differ in how deep they nest."""
    return stream[0] if stream and isinstance(stream[0], list) else stream


async def open_system(job: Job) -> RedisSystem:
    host, _, port = job.seeds[0].partition(":")
    return RedisSystem(host, int(port))
