"""A simulated network, and real groups on it: the `Group` of `motet.join`, over the network model of the simulator.

A name stands for a machine: a member that joins under the name of a crashed one has the same address. Cuts are between
names and apply to all groups. All random numbers are drawn from the seed, in the order of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from motet.api.calls import Handler
from motet.api.group import Group
from motet.api.joining import Joining
from motet.api.options import checked_config
from motet.api.state import StateProvider, StateReceiver
from motet.config import Config
from motet.errors import MisuseError
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import SECOND
from motet.runtime.transport import Received, TransportConfig
from motet.sim.world.network import Link, Network, NetworkProfile
from motet.testing.clock import FakeClock, VirtualLoop

HOST = "127.0.0.1"
FIRST_PORT = 7800
MOST_MEMBERS = 10_000

Who = str | Group


class SimNetwork:
    """Made by `motet.testing.run` or `simulated`, inside a `VirtualLoop`."""

    def __init__(self, seed: int = 0, profile: NetworkProfile | None = None, *, loss: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise MisuseError("a simulated network needs virtual time; use motet.testing.run, or @simulated")
        self.seed = seed
        self.clock: FakeClock = loop.clock
        self._rng = Random(seed)
        profile = profile if profile is not None else NetworkProfile(loss=loss)
        self._network = Network(_LoopCalendar(loop), Random(self._rng.getrandbits(64)), profile)
        self._places: dict[tuple[str, str], Endpoint] = {}  # by group and name
        self._transports: dict[Endpoint, SimTransport] = {}  # of live members
        self._cuts: list[Link] = []

    # Members

    def join(
        self,
        group: str,
        *,
        name: str,
        seeds: str | Sequence[str] | None = None,
        advertise: str | None = None,
        config: Config | None = None,
        on_call: Handler | None = None,
        state_provider: StateProvider | None = None,
        state_receiver: StateReceiver | None = None,
        consume: bool = True,
        journal: str | Path | None = None,
        replay_from: int | None = None,
        stable_events: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Joining:
        """As `motet.join`, without `bind` and `thread`; without `seeds` it finds every living member of the group."""
        config = Config.local() if config is None else checked_config(config)
        if config.admin_bind or config.log_bind:
            raise MisuseError("a simulated member has no sockets, so it serves no admin and no log; leave them out")
        here = self._place(group, name)
        if here in self._transports:
            raise MisuseError(f"{name!r} is in group {group!r} already; crash it or let it leave, or choose a new name")
        joining = SimJoining(
            group,
            bind=str(here),
            seeds=seeds,
            name=name,
            advertise=advertise,
            config=replace(config, spin_ns=0),  # time stands still while anything is to be done
            on_call=on_call,
            state_provider=state_provider,
            state_receiver=state_receiver,
            thread=False,
            consume=consume,
            journal=journal,
            replay_from=replay_from,
            stable_events=stable_events,
            wait=wait,
            timeout=timeout,
        )
        joining._world = _Home(self, name)
        return joining

    def _seeds(self, group: str, bind: str) -> list[str]:
        living = [str(place) for (of, _), place in self._places.items() if of == group and place in self._transports]
        return living or [bind]

    def _place(self, group: str, name: str) -> Endpoint:
        if len(self._places) >= MOST_MEMBERS:
            raise MisuseError(f"{MOST_MEMBERS} names are as many as there can be")
        return self._places.setdefault((group, name), Endpoint(HOST, FIRST_PORT + len(self._places)))

    async def crash(self, group: Group) -> None:
        """Crash the member as `kill -9` does: the others are not notified, and suspect it when its heartbeats stop."""
        await group.close()

    # Faults

    @property
    def profile(self) -> NetworkProfile:
        """How datagrams fare: loss, duplication, delay, jitter, bandwidth. Assign another one at any time."""
        return self._network.profile

    @profile.setter
    def profile(self, profile: NetworkProfile) -> None:
        self._network.profile = profile

    @property
    def loss(self) -> float:
        """The share of datagrams that never arrive, 0 to 1."""
        return self.profile.loss

    @loss.setter
    def loss(self, loss: float) -> None:
        self.profile = replace(self.profile, loss=loss)

    def partition(self, *sides: Iterable[Who]) -> None:
        """Cut all links between members of different sides. A member on no side keeps its links to all."""
        self.heal()
        names = [[_name(who) for who in side] for side in sides]
        for side in names:
            others = [name for other in names if other is not side for name in other]
            self._cut([(source, to) for source in side for to in others])

    def cut(self, source: Who, to: Who) -> None:
        """Cut the link from `source` to `to`; the other direction stays open."""
        self._cut([(_name(source), _name(to))])

    def heal(self) -> None:
        """Heal all cuts; loss and delay stay as they are."""
        self._network.mend(self._cuts)
        self._cuts = []

    def _cut(self, links: list[Link]) -> None:
        self._network.cut(links)
        self._cuts += links

    @property
    def datagrams(self) -> int:
        """The number of datagrams sent so far."""
        return self._network.sent

    # What members need

    def _draw_rng(self) -> Random:
        return Random(self._rng.getrandbits(64))

    def _enter(self, transport: SimTransport) -> None:
        self._transports[transport.endpoint] = transport

    def _leave(self, transport: SimTransport) -> None:
        self._transports.pop(transport.endpoint, None)

    def _carry(self, source: SimTransport, data: bytes, to: Endpoint) -> None:
        receiver = self._transports.get(to)
        if receiver is None:
            return
        here, there = source.address, receiver.address
        self._network.send(here, there, len(data), lambda: self._arrive(to, source.endpoint, data))

    def _arrive(self, to: Endpoint, source: Endpoint, data: bytes) -> None:
        """Deliver to the member that now runs at the endpoint."""
        receiver = self._transports.get(to)
        if receiver is not None:
            receiver.deliver(data, source)


class SimJoining(Joining):
    """Determines the seeds when the member starts, not when it is created, so that several can be created first."""

    __slots__ = ()

    def _places(self) -> Sequence[str]:
        assert isinstance(self._world, _Home)
        given = super()._places()
        return self._world.network._seeds(self.group, self.bind) if given is None else given


class SimTransport:
    """The end of one member at the network."""

    def __init__(self, network: SimNetwork, endpoint: Endpoint, name: str) -> None:
        self.endpoint = endpoint
        self.group: Endpoint | None = None
        self.wants_sources = False
        self.lost = 0
        self.expects_runs = False
        self.receive_bytes = 0
        self.address = Address(name, endpoint.host, endpoint.port, 1)  # the network model uses the name only
        self._network = network
        self._received: Received | None = None

    def start(self, loop: asyncio.AbstractEventLoop, received: Received) -> None:
        self._received = received
        self._network._enter(self)

    def listen_to(self, group: Endpoint) -> None:
        raise MisuseError("there is no IP multicast on the simulated network; leave discovery_multicast empty")

    def send(self, data: bytes, to: Endpoint, tail: bytes = b"") -> None:
        self._network._carry(self, b"".join((data, tail)), to)

    def send_all(self, datagrams: Sequence[bytes], to: Endpoint) -> None:
        for datagram in datagrams:
            self.send(datagram, to)

    def packet_bytes(self, to: Endpoint) -> int:
        return self._network.profile.packet_bytes

    def deliver(self, data: bytes, source: Endpoint) -> None:
        if self._received is not None:
            self._received([data], [source] if self.wants_sources else None)

    def close(self) -> None:
        self._received = None
        self._network._leave(self)


class _Home:
    """The world of one member."""

    raises_errors = True

    def __init__(self, network: SimNetwork, name: str) -> None:
        self.network = network
        self._name = name

    def bind(self, endpoint: Endpoint, config: TransportConfig) -> SimTransport:
        if config.multicast is not None:
            raise MisuseError("there is no IP multicast on the simulated network; leave transport as it is")
        return SimTransport(self.network, endpoint, self._name)

    def clock(self) -> int:
        return self.network.clock.monotonic_ns()

    def wall_clock(self) -> int:
        return self.network.clock.time_ns()

    def draw_rng(self) -> Random:
        return self.network._draw_rng()


class _LoopCalendar:
    """What the network model plans, on the loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    @property
    def now(self) -> int:
        return self._loop.clock.monotonic_ns()

    def at(self, when: int, action: Callable[[], None]) -> None:
        self._loop.call_at(when / SECOND, action)


def _name(who: Who) -> str:
    return who if isinstance(who, str) else who.address.name
