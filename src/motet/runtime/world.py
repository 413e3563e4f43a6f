"""What a member takes from its surroundings beside datagrams: sockets, clocks and chance. Tests have another world."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol

from motet.protocol.core.identity import Endpoint
from motet.runtime.transport import Received, TransportConfig, UdpTransport


class Transport(Protocol):
    """How datagrams get in and out; `UdpTransport` is the real one."""

    endpoint: Endpoint
    group: Endpoint | None  # IP multicast; None: one datagram per member
    wants_sources: bool
    lost: int
    receive_bytes: int  # what waits for us at most before datagrams are lost; 0: nobody knows

    def start(self, loop: asyncio.AbstractEventLoop, received: Received) -> None: ...

    def listen_to(self, group: Endpoint) -> None: ...

    def send(self, data: bytes, to: Endpoint, tail: bytes = b"") -> None:
        """One datagram: `data`, and `tail` behind it."""

    def close(self) -> None: ...


class World(Protocol):
    raises_errors: bool  # an error of ours in handling a peer's frame stops the member, so that a test sees it

    def bind(self, endpoint: Endpoint, config: TransportConfig) -> Transport: ...

    def clock(self) -> int:
        """Nanoseconds that only go forward."""
        ...

    def wall_clock(self) -> int:
        """Nanoseconds since 1970."""
        ...

    def draw_rng(self) -> random.Random:
        """Chance for one member; no two members may share it."""
        ...


class RealWorld:
    raises_errors = False

    def bind(self, endpoint: Endpoint, config: TransportConfig) -> Transport:
        return UdpTransport(endpoint, config)

    def clock(self) -> int:
        return time.monotonic_ns()

    def wall_clock(self) -> int:
        return time.time_ns()

    def draw_rng(self) -> random.Random:
        return random.Random(random.SystemRandom().getrandbits(256))


REAL_WORLD = RealWorld()
