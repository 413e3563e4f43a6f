"""The scenario `channels`: reliable unicast and multicast under every kind of fault that a seed can draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from motet.protocol.core.counters import Count
from motet.protocol.core.identity import Address
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.member import Member, MemberConfig
from motet.protocol.wire.codec import group_id
from motet.sim.checkers.channels import StreamChecker, Violation, violation_of
from motet.sim.world.history import History
from motet.sim.world.host import Host, HostContext
from motet.sim.world.network import Link, Network
from motet.sim.world.oracle import Oracle
from motet.sim.world.plan import FORGETS, Burst, ChannelsPlan, PlannedFault, PlannedFaultKind, draw_plan
from motet.sim.world.scheduler import Scheduler
from motet.sim.world.transcript import Transcript

_Action = Callable[[], None]

GROUP = "sim"
TIMEOUT_NS = 120 * SECOND  # how long a healed world may take to deliver everything
STEP_NS = 250 * MILLISECOND
SILENCE_NS = 2 * SECOND


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The result of one seed."""

    seed: int
    violations: tuple[Violation, ...]
    stats: dict[str, int]
    fingerprint: str
    transcript: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_ok(self) -> bool:
        return not self.violations


class ChannelsWorld:
    def __init__(self, plan: ChannelsPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        self.plan = plan
        self.history = History(remembers=plan.remembers)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(f"network {plan.seed}"), plan.network)
        self._rng = Random(f"hosts {plan.seed}")
        self._context = HostContext(self.scheduler, self.network, self.history, transcript, self._find, trace)
        self._slots: list[Host] = []  # the process that currently runs under each name
        self._by_address: dict[Address, Host] = {}
        self._sequence = 0
        oracle_rng = Random(f"oracle {plan.seed}")
        self._oracle = Oracle(self.scheduler, oracle_rng, self.history, self._alive)
        for index in range(len(plan.names)):
            self._slots.append(self._start(index))
        self._oracle.start()

    def run(self) -> list[Violation]:
        for fault in self.plan.faults:
            self.scheduler.at(fault.at, self._fault(fault))
        for burst in self.plan.bursts:
            self.scheduler.at(burst.at, self._burst(burst))
        self.scheduler.run_until(self.plan.duration_ns)
        checker = self._heal_and_wait()
        violations = checker.violations + self._check_bounds()
        if not violations:
            violations += self._check_liveness(checker) or self._check_silence()
        return violations

    # Processes

    def _start(self, index: int) -> Host:
        name = self.plan.names[index]
        address = Address.draw(name, "127.0.0.1", 7800 + index, self._rng)
        member = Member(address, GROUP, self.plan.configs[index], self._rng)
        host = Host(member, self._context, self._rng)
        for other in self._by_address.values():
            other.member.learn(address)
            member.learn(other.address)
        self._by_address[address] = host
        return host

    def _find(self, address: Address) -> Host | None:
        return self._by_address.get(address)

    def _alive(self) -> list[Host]:
        return [host for host in self._slots if host.is_alive and not host.is_expelled]

    # Workload

    def _burst(self, burst: Burst) -> _Action:
        def act() -> None:
            host = self._slots[burst.who]
            messages = [self._payload(host.address, size) for size in burst.sizes]
            if burst.to is None:
                if len(host.member.members) > 1 or len(self._alive()) == 1:
                    host.multicast(messages)
            elif self._slots[burst.to].is_alive:
                host.send(self._slots[burst.to].address, messages)

        return act

    def _payload(self, sender: Address, size: int) -> bytes:
        self._sequence += 1
        return f"{sender}/{self._sequence}/".encode().ljust(size, b".")

    # Faults

    def _fault(self, fault: PlannedFault) -> _Action:
        def act() -> None:
            host, other = self._slots[fault.who], self._slots[fault.other]
            if host.is_alive and not host.is_paused:
                self._strike(fault, host, other)

        return act

    def _strike(self, fault: PlannedFault, host: Host, other: Host) -> None:
        match fault.kind:
            case PlannedFaultKind.CRASH | PlannedFaultKind.RESTART:
                self._crash(fault, host)
            case PlannedFaultKind.EXPEL:
                self._expel(fault, host)
            case PlannedFaultKind.PAUSE:
                host.pause()
                self.scheduler.after(fault.lasts_ns, host.resume)
            case PlannedFaultKind.CUT:
                self._cut([(host.address.name, other.address.name)], fault.lasts_ns)
            case PlannedFaultKind.ISOLATE:
                self._cut(self._links_of(host), fault.lasts_ns)
            case PlannedFaultKind.SLOW:
                host.pause_deliveries()
                self.scheduler.after(fault.lasts_ns, host.resume_deliveries)
            case PlannedFaultKind.CLOSE:
                host.note(f"closes its connections with {other.address}")
                host.do(lambda now: host.member.close(other.address, now))
            case PlannedFaultKind.FORGET:
                for repeat in range(FORGETS):
                    self.scheduler.after(repeat * fault.lasts_ns // FORGETS, self._forget(host, other))
            case PlannedFaultKind.SYNC:
                if host.member.unicast.receiver(other.address):
                    host.do(lambda now: host.member.sync(other.address, now))

    def _crash(self, fault: PlannedFault, host: Host) -> None:
        if len(self._alive()) == 1:
            return  # at least one process must remain for the checks
        host.crash()
        if fault.kind is PlannedFaultKind.RESTART:
            self.scheduler.after(fault.lasts_ns, lambda: self._restart(fault.who))
        self.scheduler.after(fault.lasts_ns, self._oracle.change)

    def _expel(self, fault: PlannedFault, host: Host) -> None:
        if len(self._alive()) == 1:
            return
        host.expel()
        self.scheduler.after(fault.lasts_ns, host.crash)
        self._oracle.change()

    def _forget(self, host: Host, other: Host) -> _Action:
        def act() -> None:
            if host.is_alive and not host.is_paused:
                host.forget_sender(other.address)

        return act

    def _restart(self, index: int) -> None:
        if not self._slots[index].is_alive:
            self._slots[index] = self._start(index)
            self._slots[index].note("starts again as a new incarnation")

    def _links_of(self, host: Host) -> list[Link]:
        name = host.address.name
        others = [other for other in self.plan.names if other != name]
        return [(name, other) for other in others] + [(other, name) for other in others]

    def _cut(self, links: list[Link], lasts_ns: int) -> None:
        self.network.cut(links)
        self.scheduler.after(lasts_ns, lambda: self.network.mend(links))

    # After the faults

    def _heal_and_wait(self) -> StreamChecker:
        """Heal all faults, then wait until no message is missing, or until the timeout."""
        self.network.heal()
        for host in self._slots:
            if host.is_expelled and host.is_alive:
                host.crash()
        for host in self._alive():
            host.resume()
            host.resume_deliveries()
        deadline = self.scheduler.now + TIMEOUT_NS
        while True:
            self.scheduler.run_until(self.scheduler.now + STEP_NS)
            checker = StreamChecker(self.history)
            checker.run()
            is_done = self._oracle.is_settled and self._is_drained() and not any(checker.missing())
            if checker.violations or is_done or self.scheduler.now >= deadline:
                return checker

    def _is_drained(self) -> bool:
        return not self._undrained()

    def _undrained(self) -> list[str]:
        stuck = []
        for host in self._alive():
            if not host.member.multicast.sender.is_drained:
                stuck.append(f"{host.address} to the group: {host.member.multicast.sender.window}")
            for other in self._alive():
                connection = host.member.unicast.sender(other.address)
                if connection is not None and not connection.is_flushed:
                    stuck.append(f"{host.address} to {other.address}: {connection.window}")
        return stuck

    def _check_bounds(self) -> list[Violation]:
        violations = []
        for host in self._by_address.values():
            config = self.plan.configs[self.plan.names.index(host.address.name)]
            bound = _most_frames(config, len(self._by_address))
            if host.most_buffered > bound:
                violations.append(
                    Violation("bounded memory", f"{host.address} buffered {host.most_buffered} of {bound} frames")
                )
        return violations

    def _check_liveness(self, checker: StreamChecker) -> list[Violation]:
        violations = [
            Violation("liveness", f"{receiver} never got message {index} of {stream}")
            for receiver, stream, index in checker.missing()
        ]
        if not self._oracle.is_settled:
            violations.append(Violation("liveness", "views did not settle"))
        return violations + [Violation("liveness", f"never drained: {what}") for what in self._undrained()]

    def _check_silence(self) -> list[Violation]:
        """Once every message is delivered and acked and idle connections are reaped, no process may send a datagram."""
        reaped = max(c.unicast.conn_expiry_ns + c.unicast.conn_close_ns for c in self.plan.configs)
        give_up = max(c.unicast.sync_timeout_ns + c.unicast.give_up_ns for c in self.plan.configs)
        self.scheduler.run_until(self.scheduler.now + reaped + give_up + 2 * SECOND)
        before = self.network.sent
        self.scheduler.run_until(self.scheduler.now + SILENCE_NS)
        spoken = self.network.sent - before
        return [Violation("silence", f"{spoken} datagrams although no work was left")] if spoken else []

    def stats(self) -> dict[str, int]:
        delivered = sum(len(getattr(event, "messages", ())) for event in self.history.events)
        return {
            "members": len(self.plan.names),
            "accepted": sum(map(len, self.history.accepted.values())),
            "delivered": delivered,
            "datagrams": self.network.sent,
            "resent": sum(host.member.counters[Count.FRAME_RESENT] for host in self._by_address.values()),
            "faults": len(self.plan.faults),
            "virtual_ms": self.scheduler.now // MILLISECOND,
        }


def _most_frames(config: MemberConfig, processes: int) -> int:
    """The stated bound on frames in memory: windows and pending SYNCs of every process that ever ran."""
    unicast = 3 * processes * config.unicast.capacity
    multicast = processes * config.multicast.capacity + config.multicast.early_frames
    return unicast + multicast


def run_channels(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    plan = draw_plan(seed)
    transcript = Transcript(group_id(GROUP)) if with_transcript else None
    world = ChannelsWorld(plan, transcript, trace)
    try:
        violations = world.run()
    except Exception as error:  # the transcript shows what led to it
        violations = [violation_of(error)]
    lines: list[str] = []
    if transcript is not None:
        lines = [*plan.describe(), *transcript.lines, *(f"VIOLATION {violation}" for violation in violations)]
    return SeedOutcome(seed, tuple(violations), world.stats(), world.history.fingerprint(), tuple(lines))
