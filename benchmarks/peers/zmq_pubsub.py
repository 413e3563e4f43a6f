"""pyzmq PUB/SUB over TCP. Nothing is repaired and nobody knows who is there: what plain sockets of this kind can do.

Senders wait when a queue is full instead of dropping, so that what is sent arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import zmq
import zmq.asyncio

from motet.harness.bench.job import Job
from motet.harness.bench.system_under_test import PlainSystem

QUEUE = 10_000  # messages that wait in each socket
AT_ONCE = 512


class ZmqSystem(PlainSystem):
    def __init__(self) -> None:
        context = zmq.asyncio.Context()
        self._publisher = zmq.Context.shadow(context.underlying).socket(zmq.XPUB)
        self._publisher.setsockopt(zmq.XPUB_NODROP, 1)
        self._publisher.setsockopt(zmq.SNDHWM, QUEUE)
        self._publisher.setsockopt(zmq.LINGER, 0)
        port = self._publisher.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self._subscriber = context.socket(zmq.SUB)
        self._subscriber.setsockopt(zmq.RCVHWM, QUEUE)
        self._subscriber.setsockopt(zmq.LINGER, 0)
        self._plain = zmq.Socket.shadow(self._subscriber.underlying)  # without a coroutine for each message

    async def connect(self, addresses: Sequence[str]) -> None:
        self._subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        for address in addresses:
            self._subscriber.connect(address)
        await asyncio.sleep(1.0)  # nothing tells when a subscription has arrived

    async def send(self, messages: list[bytes]) -> None:
        for message in messages:
            while True:
                try:
                    self._publisher.send(message, zmq.NOBLOCK)
                    break
                except zmq.Again:
                    await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def receive(self) -> Sequence[bytes]:
        await self._subscriber.poll()
        taken: list[bytes] = []
        try:
            while len(taken) < AT_ONCE:
                taken.append(self._plain.recv(zmq.NOBLOCK))
        except zmq.Again:
            await asyncio.sleep(0)
        return taken

    async def close(self) -> None:
        self._subscriber.close()
        self._publisher.close()


async def open_system(job: Job) -> ZmqSystem:
    return ZmqSystem()
