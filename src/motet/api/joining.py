"""`motet.join`: put a member together, start it, and wait until it is in its group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.api.calls import Handler
from motet.api.group import Group
from motet.api.options import check_options, checked_config, checked_seeds
from motet.api.state import StateProvider, StateReceiver
from motet.config import Config
from motet.errors import JoinError
from motet.log.journal import Journal
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address, Endpoint, parse_endpoint
from motet.protocol.core.view import View
from motet.protocol.member import DurableState, Member
from motet.protocol.member.trace import Tracer
from motet.runtime.driver import Driver
from motet.runtime.envelope import SealedEnvelope
from motet.runtime.faults import FaultInjector
from motet.runtime.heap import keep_heap
from motet.runtime.liveness import LivenessProcess
from motet.runtime.names import resolved
from motet.runtime.transport import TransportConfig, UdpTransport
from motet.runtime.world import REAL_WORLD, Transport, World

if TYPE_CHECKING:
    from motet.runtime.journal_writer import JournalWriter

logger = logging.getLogger("motet")
WARN_AFTER_S = 5.0
WILDCARDS = ("0.0.0.0", "::", "")


@dataclass(slots=True, eq=False)  # one join is one thing: it has a hash, and asyncio.gather takes it
class Joining:
    """What `join` returns: await it, or enter it with `async with`, which also leaves in the end."""

    group: str
    _: KW_ONLY
    bind: str = "127.0.0.1:0"
    seeds: str | Sequence[str] | None = None
    name: str | None = None
    advertise: str | None = None
    config: Config | None = None
    on_call: Handler | None = None
    state_provider: StateProvider | None = None
    state_receiver: StateReceiver | None = None
    thread: bool = True
    consume: bool = True
    journal: str | Path | None = None
    replay_from: int | None = None  # first hand the application what the journal has from this position on
    stable_events: bool = False
    wait: bool = True
    timeout: float | None = None
    _world: World = field(default=REAL_WORLD, init=False)  # `motet.testing` has others
    _settings: Config = field(init=False)
    _joined: Group | None = field(default=None, init=False)
    _own_host: str | None = field(default=None, init=False)  # `advertise`, by address

    def __post_init__(self) -> None:
        """What has the wrong type is refused here, where the traceback shows the line that is wrong."""
        self._settings = Config.local() if self.config is None else checked_config(self.config)
        self.seeds = None if self.seeds is None else checked_seeds(self.seeds)
        check_options(self)

    def __await__(self) -> Generator[Any, None, Group]:
        return self._join().__await__()

    async def __aenter__(self) -> Group:
        self._joined = await self._join()
        return self._joined

    async def __aexit__(self, *exc: object) -> None:
        if self._joined is not None:
            await self._joined.leave()

    async def _join(self) -> Group:
        seeds = self._places()
        config = self._settings if seeds is None else replace(self._settings, seeds=tuple(seeds))
        group = self._start(await self._by_address(config))
        if not self.wait:
            asyncio.get_running_loop().call_later(WARN_AFTER_S, self._tell_if_lonely, group)
            return group
        try:
            await self._until_primary(group)
        except BaseException:
            await group.close()
            raise
        return group

    def _places(self) -> Sequence[str] | None:
        return None if self.seeds is None else checked_seeds(self.seeds)

    async def _by_address(self, config: Config) -> Config:
        """The same config without host names; this one's own is looked up as well."""
        wants_ipv6 = ":" in parse_endpoint(self.bind).host
        own = [] if self.advertise is None else [Endpoint(self.advertise, 0)]
        named = [*map(parse_endpoint, config.seeds), *own]
        places = await resolved(named, wants_ipv6=wants_ipv6)
        if places == named:
            return config
        self._own_host = places.pop().host if own else None
        return replace(config, seeds=tuple(map(str, places)))

    def _start(self, config: Config) -> Group:
        bind = parse_endpoint(self.bind)
        config.check_bind(bind)
        with contextlib.ExitStack() as undo:
            transport = self._world.bind(bind, _transport_config(config))
            undo.callback(transport.close)
            journal = self._open_journal(config)
            if journal is not None:
                undo.callback(journal.close)
            driver, listeners = self._driver(transport, config, journal)
            group = self._group(driver, config)
            listeners.append(group)
            journal_writer = self._keep(driver, journal) if journal is not None else None
            self._trace(driver, group, config, undo)
            self._serve(group, config, journal_writer)
            undo.pop_all()
        group._observe_journal(journal_writer)
        keep_heap()
        if self.thread:
            driver.start_in_thread()
        else:
            driver.start_on(asyncio.get_running_loop(), group._take_effects, config.spin_ns)
        if self._world is REAL_WORLD:  # a simulated member holds nothing that outlives its test
            group._opened()
        return group

    def _open_journal(self, config: Config) -> Journal | None:
        if self.journal is None:
            return None
        journal = Journal.open(self.journal, self.group, config.journal_config())
        if journal.recovery.truncated_bytes:
            logger.warning("journal %s: %s", self.journal, journal.recovery)
        return journal

    def _group(self, driver: Driver, config: Config) -> Group:
        return Group(
            self.group,
            driver,
            queue_bytes=config.queue_bytes,
            consume=self.consume,
            on_call=self.on_call,
            state_provider=self.state_provider,
            state_receiver=self.state_receiver,
            stable_events=self.stable_events,
        )

    def _serve(self, group: Group, config: Config, journal_writer: JournalWriter | None) -> None:
        if config.log_bind or config.admin_bind:
            from motet.api.services import start_services  # Arrow Flight and HTTP cost memory, and few need them

            start_services(group, config, journal_writer.progress if journal_writer is not None else None)

    def _keep(self, driver: Driver, journal: Journal) -> JournalWriter:
        """Whoever takes a state does not want what led to it as well."""
        from motet.runtime.catchup import Replay
        from motet.runtime.journal_writer import JournalWriter  # brings pyarrow along

        takes_state = self.state_receiver is not None
        wall_clock = self._world.wall_clock
        journal_writer = JournalWriter(
            journal, driver.member, driver.do, replays=not takes_state, wall_clock=wall_clock
        )
        driver.journal_writer = journal_writer
        if self.replay_from is not None:
            driver.replay = lambda: list(Replay(journal).read(max(self.replay_from or 1, journal.first)))
        return journal_writer

    def _trace(self, driver: Driver, group: Group, config: Config, undo: contextlib.ExitStack) -> None:
        if config.trace_file:
            from motet.runtime.trace import BackgroundTrace, open_trace  # brings pyarrow along

            trace = BackgroundTrace(open_trace(config.trace_file))
            undo.callback(trace.close)
            driver.tracer = Tracer(driver.member, trace.emit)
            group._on_close(trace.close)

    def _driver(self, transport: Transport, config: Config, journal: Journal | None) -> tuple[Driver, list[Group]]:
        address = self._address(transport.endpoint)
        rng = self._world.draw_rng()
        waits_for_disk = journal is not None and journal.config.waits_for_disk
        settings = config.member_config(
            wants_state=True,
            needs_state=self.state_receiver is not None,
            waits_for_disk=waits_for_disk,
            receive_bytes=transport.receive_bytes,
        )
        member = Member(address, self.group, settings, rng, _memory(journal))
        if journal is not None:
            journal.begin(address, may_bootstrap=config.may_bootstrap)
        listeners: list[Group] = []

        def listen(effects: list[Effect]) -> None:
            listeners[0]._listen(effects)

        keyring, envelope = config.keyring(), None
        if keyring is not None:
            envelope = SealedEnvelope(keyring, address.incarnation, member.counters, window=config.replay_window)
        faults = FaultInjector(random.Random(rng.getrandbits(64)), member.counters)
        driver = Driver(member, transport, listen, faults=faults, envelope=envelope, world=self._world)
        self._watch_over(driver, config)
        return driver, listeners

    def _watch_over(self, driver: Driver, config: Config) -> None:
        """Only a real socket can be shared with another process."""
        transport = driver.transport
        if isinstance(transport, UdpTransport) and config.liveness_process and config.busy_max_ns:
            driver.liveness = LivenessProcess(
                self.group, driver.member.address, transport, config, lambda: driver.faults.is_active
            )

    def _address(self, bound: Endpoint) -> Address:
        host = self._own_host or self.advertise or (_own_host() if bound.host in WILDCARDS else bound.host)
        name = self.name or f"{host}:{bound.port}"
        return Address.draw(name, host, bound.port, self._world.draw_rng())

    async def _until_primary(self, group: Group) -> None:
        loop = asyncio.get_running_loop()
        warning = loop.call_later(WARN_AFTER_S, self._tell_what_was_tried, group)
        try:
            async with asyncio.timeout(self.timeout):
                await group.until(_is_primary)
        except TimeoutError:
            raise JoinError(f"no group was found within {self.timeout} s. {self._what_was_tried(group)}") from None
        finally:
            warning.cancel()

    def _tell_if_lonely(self, group: Group) -> None:
        if not (group.is_closed or group.view.is_primary):
            self._tell_what_was_tried(group)

    def _tell_what_was_tried(self, group: Group) -> None:
        logger.warning("%s still waits for group %r. %s", group.address, self.group, self._what_was_tried(group))

    def _what_was_tried(self, group: Group) -> str:
        seeds = ", ".join(self._places() or self._settings.seeds) or "no seeds, so only members that come by themselves"
        others = [str(member) for member in group.view.members if member != group.address]
        heard = f"It is with {', '.join(others)}, too few of the group" if others else "Nobody answered"
        if failing := group.failing_lookups:
            heard += f"; {failing}, and without it no group is bootstrapped (see bootstrap_without_lookup)"
        return (
            f"Looked at: {seeds}. {heard}. Are the others started, is the group's name the same, "
            f"can UDP get to {group.address.endpoint} and back, and do all have the same key?"
        )


def _is_primary(view: View) -> bool:
    return view.is_primary


def join(
    group: str,
    *,
    bind: str = "127.0.0.1:0",
    seeds: str | Sequence[str] | None = None,
    name: str | None = None,
    advertise: str | None = None,
    config: Config | None = None,
    on_call: Handler | None = None,
    state_provider: StateProvider | None = None,
    state_receiver: StateReceiver | None = None,
    thread: bool = True,
    consume: bool = True,
    journal: str | Path | None = None,
    replay_from: int | None = None,
    stable_events: bool = False,
    wait: bool = True,
    timeout: float | None = None,
) -> Joining:
    """Join a group: `async with motet.join("orders", bind="127.0.0.1:7801", seeds="127.0.0.1:7800") as group`.

    The first process needs no seeds, or is one of them. The reference has a line for each option.
    """
    return Joining(
        group,
        bind=bind,
        seeds=seeds,
        name=name,
        advertise=advertise,
        config=config,
        on_call=on_call,
        state_provider=state_provider,
        state_receiver=state_receiver,
        thread=thread,
        consume=consume,
        journal=journal,
        replay_from=replay_from,
        stable_events=stable_events,
        wait=wait,
        timeout=timeout,
    )


def _memory(journal: Journal | None) -> DurableState:
    if journal is None:
        return DurableState()
    past = (*journal.past_incarnations, *((journal.owner.incarnation,) if journal.owner is not None else ()))
    known = (journal.record, journal.epoch, journal.position, journal.stable, past, journal.producers)
    return DurableState(*known, may_bootstrap=journal.may_bootstrap)


def _transport_config(config: Config) -> TransportConfig:
    return TransportConfig(
        socket_buffer_bytes=config.socket_buffer_bytes,
        batch=config.wakeup_datagrams,
        multicast=Endpoint(config.multicast_group, config.multicast_port) if config.transport == "multicast" else None,
        multicast_ttl=config.multicast_ttl,
        interface=config.multicast_interface,
    )


def _own_host() -> str:
    """The address by which others most likely reach us: the one that the default route leaves from. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # of the block kept for documentation
        return str(probe.getsockname()[0])
    return "127.0.0.1"
