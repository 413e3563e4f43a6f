"""Whole members as they are shipped (total order, journals, state transfer) on a network that an attacker shares.

The members run in virtual time on the simulated network, whose world raises every error inside Motet: what a real
member would log and survive counts as a stop here.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

import motet
from motet.errors import MotetError
from motet.protocol.core.identity import Endpoint
from motet.protocol.wire.codec import group_id
from motet.testing import SimNetwork
from motet.testing.network import SimTransport
from tests.hostile.attacks import Attack, Attacker, Recorded

GROUP = "target"
NAMES = "abc"
BATCH = 40  # hostile datagrams between two moments of ordinary work
CPU_S = 60.0  # of one batch: a hang, and not a slow machine, for a batch takes milliseconds
WORK_S = 0.5  # of virtual time: in a view that was forged, a window may stay full
MOST_SENT = 3_000  # datagrams that all members send in one batch and the work after it; more is an endless answer


class HangError(BaseException):
    """One batch of datagrams kept the processor busy for CPU_S. No driver takes it for an error of its own."""


@dataclass(slots=True)
class AttackOutcome:
    frames: int = 0
    stops: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    strange: list[bytes] = field(default_factory=list)  # delivered, and never sent
    repeated: int = 0  # delivered twice in one order at one member
    changed: list[str] = field(default_factory=list)  # with a key: what a datagram without it has changed
    most_sent: int = 0  # datagrams that followed from one batch


class Arena:
    def __init__(
        self, network: SimNetwork, rng: Random, config: motet.Config, outcome: AttackOutcome, home: Path | None
    ) -> None:
        self.network = network
        self.rng = rng
        self.outcome = outcome
        self.sent: set[bytes] = set()
        self._config = config
        self._home = home
        self._number = 0
        self._watchers: list[asyncio.Task[None]] = []
        self.groups: list[motet.Group] = []
        self.attacker = Attacker(rng, group_id(GROUP), ())

    async def open(self) -> None:
        self._tap()
        for name in NAMES:
            journal = self._home / name if self._home is not None else None
            self.groups.append(
                await self.network.join(
                    GROUP,
                    name=name,
                    config=self._config,
                    journal=journal,
                    state_provider=lambda: b"state " * 500,
                    state_receiver=lambda state: None,
                    on_call=lambda sender, payload: payload,
                )
            )
        for group in self.groups:
            await group.until(lambda view: len(view.members) == len(NAMES))
            self._watchers.append(asyncio.create_task(self._watch(group)))
        self.attacker.members = [group.address for group in self.groups]
        by_address = {group.address: group for group in self.groups}
        self.attacker.view_of = lambda victim: by_address[victim].view
        for _ in range(5):
            await self.work()

    async def close(self) -> None:
        for group in self.groups:
            await group.close()
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _watch(self, group: motet.Group) -> None:
        seen: set[bytes] = set()
        with contextlib.suppress(MotetError):
            async for event in group:
                if isinstance(event, motet.Message):
                    self.outcome.strange += [] if event.payload in self.sent else [event.payload]
                    self.outcome.repeated += event.payload in seen
                    seen.add(event.payload)

    def _tap(self) -> None:
        carry = self.network._carry

        def heard(source: SimTransport, data: bytes, to: Endpoint) -> None:
            self.attacker.record(Recorded(source.endpoint, to, data))
            carry(source, data, to)

        self.network._carry = heard  # type: ignore[method-assign]

    async def work(self) -> None:
        """A little of everything that an application does."""
        for group in self.living():
            with contextlib.suppress(MotetError, TimeoutError):
                async with asyncio.timeout(WORK_S):
                    await group.multicast(self._payload(), order="fifo")
                    await group.send(self.rng.choice(self.groups).address, self._payload())
                    await group.multicast(self._payload(), order="total", wait=False)
        await asyncio.sleep(self.rng.choice((0.002, 0.02, 0.2)))

    def _payload(self) -> bytes:
        self._number += 1
        payload = b"genuine %d " % self._number + bytes(self.rng.choice((0, 0, 20, 3_000)))
        self.sent.add(payload)
        return payload

    def living(self) -> list[motet.Group]:
        return [group for group in self.groups if not group.is_closed]

    async def attack(self, attacks: Sequence[Attack], frames: int) -> None:
        """Until so many have been fired, or a member has stopped."""
        for fired in range(0, frames, BATCH):
            before = self.network.datagrams
            with no_hang(self.outcome):
                for _ in range(min(BATCH, frames - fired)):
                    self.fire(attacks)
            await self.work()
            self.outcome.most_sent = max(self.outcome.most_sent, self.network.datagrams - before)
            if self._note_stops():
                return

    def fire(self, attacks: Sequence[Attack]) -> None:
        victim = self.rng.choice(self.attacker.members)
        data = self.rng.choice(attacks)(victim)
        self.outcome.frames += 1
        transport = self.network._transports.get(victim.endpoint)
        if transport is not None:
            transport.deliver(data, Endpoint("127.0.0.1", 9))

    def _note_stops(self) -> bool:
        failed = [(group.address, group._driver.failure) for group in self.groups if group._driver.failure is not None]
        self.outcome.stops += [f"{address}: {failure!r}" for address, failure in failed]
        return bool(failed)


@contextlib.contextmanager
def no_hang(outcome: AttackOutcome) -> Iterator[None]:
    """Where the processor was busy for CPU_S within the block, that is noted, and the block ends."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError(f"in {frame.f_code.co_qualname if frame is not None else 'nowhere'}")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    except HangError as error:
        outcome.hangs.append(str(error))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
