"""The environment of a driver: transport, clocks and randomness. Tests replace it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Protocol

from motet.protocol.core.identity import Endpoint
from motet.runtime.transport import Received, TransportConfig, UdpTransport


class Transport(Protocol):
    """Sends and receives datagrams; `UdpTransport` is the real one."""

    endpoint: Endpoint
    group: Endpoint | None  # IP multicast; None: one datagram per member
    wants_sources: bool
    lost: int
    expects_runs: bool  # datagrams arrive as segments of larger ones, so one wake-up reads more of them
    receive_bytes: int  # size of the receive buffer, beyond which datagrams are lost; 0: unknown

    def start(self, loop: asyncio.AbstractEventLoop, received: Received) -> None: ...

    def listen_to(self, group: Endpoint) -> None: ...

    def send(self, data: bytes, to: Endpoint, tail: bytes = b"") -> None:
        """Send one datagram: `data` followed by `tail`."""

    def send_all(self, datagrams: Sequence[bytes], to: Endpoint) -> None:
        """Several, in order; all but the last one have the same length."""

    def packet_bytes(self, to: Endpoint) -> int:
        """The largest datagram that gets there in one packet; 0: nobody knows."""
        ...

    def close(self) -> None: ...


class World(Protocol):
    raises_errors: bool  # a bug that a peer's frame triggers stops the member, so that tests notice it

    def bind(self, endpoint: Endpoint, config: TransportConfig) -> Transport: ...

    def clock(self) -> int:
        """Monotonic time in nanoseconds."""
        ...

    def wall_clock(self) -> int:
        """Nanoseconds since 1970."""
        ...

    def draw_rng(self) -> random.Random:
        """A source of randomness for one member; two members must not share one."""
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
