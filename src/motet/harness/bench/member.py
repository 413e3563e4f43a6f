"""A Motet member as a system under test, driven through the public API only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import motet
from motet.harness.bench.job import Job, Load
from motet.harness.bench.system_under_test import Tally

KEY = "1:" + "5a" * 32  # for measurements only; nothing but zeros would be refused


class MotetSystem:
    def __init__(self, job: Job, group: motet.Group) -> None:
        self.group = group
        self.address = str(group.address.endpoint)
        self._load = job.load
        self._pause_s = job.load.slow_ms / 1000 if job.index == 0 else 0.0
        self._peer: motet.Address = group.address
        self._batches: AsyncIterator[motet.BatchEvent] = group.batches()

    async def connect(self, addresses: Sequence[str]) -> None:
        """Wait for the view of all members, and inject the fault rules, so that joining is not measured."""
        view = await self.group.until(lambda view: len(view.members) == self._load.members)
        self._peer = view.members[0]
        if self._load.drop:
            self.group.inject(f"drop={self._load.drop}@*:in")

    async def send(self, messages: list[bytes]) -> None:
        if self._load.api == "message":
            await self._send_singly(messages)
        elif self._load.order == "direct":
            await self.group.send_many(self._peer, messages)
        else:
            await self.group.multicast_many(messages, order=self._load.order)

    async def _send_singly(self, messages: list[bytes]) -> None:
        if self._load.order == "direct":
            for message in messages:
                await self.group.send(self._peer, message)
            return
        order = self._load.order
        for message in messages:
            await self.group.multicast(message, order=order)

    async def receive(self) -> Sequence[bytes]:
        while True:
            event = await anext(self._batches)
            if isinstance(event, motet.Batch):
                return event.payloads

    async def count(self, tally: Tally) -> None:
        if self._load.api == "message":
            await self._count_singly(tally)
        async for event in self.group.batches():
            if isinstance(event, motet.Batch):
                tally.bytes_read += sum(map(len, event.payloads))
                tally.delivered += len(event.payloads)
                if self._pause_s:
                    await asyncio.sleep(self._pause_s)

    async def _count_singly(self, tally: Tally) -> None:
        async for event in self.group:
            if isinstance(event, motet.Message):
                tally.delivered += 1

    def counters(self) -> dict[str, int]:
        return {name: value for name, value in self.group.stats()["counters"].items() if value}

    async def close(self) -> None:
        await self.group.leave()


async def open_system(job: Job) -> MotetSystem:
    joining = motet.join(
        "bench",
        name=f"m{job.index}",
        seeds=job.seeds,
        config=config_of(job.load),
        journal=f"{job.directory}/m{job.index}" if job.load.is_journaled else None,
        thread=job.load.has_thread,
        on_call=lambda sender, payload: payload,
    )
    return MotetSystem(job, await joining)


def config_of(load: Load) -> motet.Config:
    settings: dict[str, Any] = dict(load.settings)
    if load.is_sealed:
        settings["keys"] = (KEY,)
    return motet.Config.local(**settings)
