"""The scenario `membership`: processes discover each other and must keep agreeing on views under every fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from motet.protocol.core.counters import Count
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.member import DurableState, Member
from motet.protocol.wire.codec import group_id
from motet.sim.checkers.channels import Violation, violation_of
from motet.sim.checkers.views import check_self_delivery, check_views
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import (
    GroupFault,
    GroupFaultKind,
    GroupPlan,
    draw_group_plan,
    draw_large_plan,
    endpoint_of,
)
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import DeliveredBatch, EnteredView, History, RestartedWithState
from motet.sim.world.host import HostContext
from motet.sim.world.network import Link, Network
from motet.sim.world.plan import Burst
from motet.sim.world.scheduler import Scheduler
from motet.sim.world.transcript import Transcript

_Action = Callable[[], None]

GROUP = "sim"
TIMEOUT_NS = 60 * SECOND  # how long a healed world may take to become one group
PROBE_NS = 10 * SECOND  # how long a multicast of each member may then take to reach all members
STEP_NS = 250 * MILLISECOND


class MembershipWorld:
    def __init__(self, plan: GroupPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        self.plan = plan
        self.history = History()
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(f"network {plan.seed}"), plan.network)
        self._transcript = transcript
        self._rng = Random(f"hosts {plan.seed}")
        self._context = HostContext(self.scheduler, self.network, self.history, transcript, self._find, trace)
        self._vacant = {endpoint_of(index): self._address(index, 1) for index in range(len(plan.names))}
        self._slots: dict[Endpoint, GroupHost] = {}  # the process that was last started at each endpoint
        self._processes: list[GroupHost] = []  # every process that ever ran
        self._due: set[int] = set()  # indices of processes that are still to be started
        self._keeping_state: set[int] = set()  # of those, the ones that recover their durable state
        self._lost_state: set[int] = set()  # processes that once lost their durable state
        self._sequence = 0
        self._is_healed = False
        self._mid_change_faults: list[GroupFault] = []  # faults that wait for a view change

    def run(self) -> list[Violation]:
        self._plan_starts()
        self._plan_events()
        self.scheduler.run_until(self.plan.duration_ns)
        self._heal()
        return self._check(self._wait(self._unmet, TIMEOUT_NS) or self._probe())

    def _plan_starts(self) -> None:
        for index, at in enumerate(self.plan.starts):
            self._plan_start(index, at)

    def _plan_events(self, begin: int = 0) -> None:
        """Schedule faults and bursts; the times of the plan are relative to `begin`."""
        for fault in self.plan.faults:
            self.scheduler.at(begin + fault.at, self._fault(fault))
        for burst in self.plan.bursts:
            self.scheduler.at(begin + burst.at, self._burst(burst))

    def _check(self, unmet: list[str]) -> list[Violation]:
        """The violations in the history, and each condition that is still unmet at the end."""
        quorum = self.plan.membership.engine.static_quorum
        violations = check_views(self.history, static_quorum=quorum, is_one_primary=self.plan.is_one_primary)
        violations += [*self._check_bounds(), *(Violation("liveness", what) for what in unmet)]
        return violations or list(check_self_delivery(self.history))

    # Processes

    def _plan_start(self, index: int, delay_ns: int, *, keeps_durable_state: bool = False) -> None:
        if index not in self._due:
            self._due.add(index)
            if keeps_durable_state:
                self._keeping_state.add(index)
            self.scheduler.after(delay_ns, lambda: self._start(index))

    def _start(self, index: int) -> None:
        endpoint = endpoint_of(index)
        before = self._slots.get(endpoint)
        if before is not None and before.is_alive:  # it is still leaving, so the port is not free yet
            self.scheduler.after(10 * MILLISECOND, lambda: self._start(index))
            return
        self._due.remove(index)
        address = self._address(index, self._rng.getrandbits(64) or 1)
        state = self._durable_state_of(index, before, address)
        if state is None and before is not None:
            self._lost_state.add(index)
        config = self.plan.config_of(index, may_bootstrap=index not in self._lost_state)
        host = self._make_host(Member(address, GROUP, config, self._rng, state))
        self._slots[endpoint] = host
        self._processes.append(host)
        host.begin()

    def _make_host(self, member: Member) -> GroupHost:
        return GroupHost(member, self._context, self._rng, self._home, self._watch)

    def _durable_state_of(self, index: int, before: GroupHost | None, address: Address) -> DurableState | None:
        """The durable state that a journal would have kept of the previous incarnation."""
        if index not in self._keeping_state or before is None:
            return None
        self._keeping_state.remove(index)
        state = before.durable_state
        restarted = RestartedWithState(self.scheduler.now, address, before.address, state.position, state.record.last)
        self.history.events.append(restarted)
        where = f"at {state.position} in {state.epoch}, {state.record}"
        self._note(f"{address} recovers the durable state of {before.address}: {where}")
        return state

    def _address(self, index: int, incarnation: int) -> Address:
        return Address(self.plan.names[index], *endpoint_of(index), incarnation)

    def _home(self, endpoint: Endpoint) -> Address:
        """The process last started at the endpoint. The network uses the name in it to look up cut links."""
        host = self._slots.get(endpoint)
        return host.address if host is not None else self._vacant[endpoint]

    def _find(self, address: Address) -> GroupHost | None:
        return self._slots.get(address.endpoint)

    def _living(self, index: int) -> GroupHost | None:
        host = self._slots.get(endpoint_of(index))
        return host if host is not None and host.is_alive else None

    @property
    def _alive(self) -> list[GroupHost]:
        return [host for host in self._slots.values() if host.is_alive]

    @property
    def _staying(self) -> list[GroupHost]:
        return [host for host in self._alive if not host.is_leaving]

    # Workload

    def _burst(self, burst: Burst) -> _Action:
        def act() -> None:
            host = self._living(burst.who)
            if host is None or host.is_leaving:
                return
            messages = [self._payload(host.address, size) for size in burst.sizes]
            if burst.to is None:
                host.multicast(messages)
                return
            peer = self._slots.get(endpoint_of(burst.to))
            if peer is not None and peer.address in host.member.members:
                host.send(peer.address, messages)

        return act

    def _payload(self, sender: Address, size: int) -> bytes:
        self._sequence += 1
        return f"{sender}/{self._sequence}/".encode().ljust(size, b".")

    # Faults

    def _fault(self, fault: GroupFault) -> _Action:
        def act() -> None:
            if self._is_healed:
                return  # the fault was triggered after healing
            self._note(f"fault: {fault}")
            if fault.after_change_ns is not None:
                self._mid_change_faults.append(fault)
            elif fault.kind is GroupFaultKind.PARTITION:
                self._cut(self._links_between(fault.sides), fault.lasts_ns)
            elif fault.kind is GroupFaultKind.LOSS:
                self._lose(fault)
            elif (host := self._living(fault.who)) is not None:
                self._strike(fault, host)

        return act

    def _watch(self, host: GroupHost) -> None:
        """Schedule the faults that wait for a view change when a process is in one."""
        if not self._mid_change_faults or not host.is_alive or host.member.is_settled:
            return
        for fault in self._mid_change_faults:
            at = self.scheduler.now + (fault.after_change_ns or 0)
            who = self.plan.names.index(host.address.name) if fault.hits_first else fault.who
            self.scheduler.at(at, self._fault(replace(fault, at=at, who=who, after_change_ns=None, hits_first=False)))
        self._mid_change_faults.clear()

    def _strike(self, fault: GroupFault, host: GroupHost) -> None:
        name, other = self.plan.names[fault.who], self.plan.names[fault.other]
        match fault.kind:
            case GroupFaultKind.CRASH | GroupFaultKind.RESTART:
                self._crash(fault, host)
            case GroupFaultKind.LEAVE | GroupFaultKind.REJOIN:
                self._leave(fault, host)
            case GroupFaultKind.PAUSE:
                host.pause()
                self.scheduler.after(fault.lasts_ns, host.resume)
            case GroupFaultKind.BUSY:
                host.be_busy(group_id(GROUP), self.plan.membership.detector)
                self.scheduler.after(fault.lasts_ns, host.resume)
            case GroupFaultKind.CUT:
                self._cut([(name, other)], fault.lasts_ns)
            case GroupFaultKind.ISOLATE:
                self._cut([*self._links_from(name), *self._links_to(name)], fault.lasts_ns)
            case GroupFaultKind.MUTE:
                self._cut(self._links_from(name), fault.lasts_ns)
            case GroupFaultKind.DEAF:
                self._cut(self._links_to(name), fault.lasts_ns)
            case GroupFaultKind.SLOW if not host.is_paused:
                host.pause_deliveries()
                self.scheduler.after(fault.lasts_ns, host.resume_deliveries)

    def _crash(self, fault: GroupFault, host: GroupHost) -> None:
        if fault.kind is GroupFaultKind.RESTART:
            host.crash()
            self._plan_start(fault.who, fault.lasts_ns, keeps_durable_state=fault.keeps_durable_state)
        elif len(self._staying) > 1 or host.is_leaving:  # at least one process must remain for the checks
            host.crash()

    def _leave(self, fault: GroupFault, host: GroupHost) -> None:
        if host.is_paused or host.is_leaving:
            return
        if fault.kind is GroupFaultKind.REJOIN:
            host.leave()
            self._plan_start(fault.who, fault.lasts_ns, keeps_durable_state=fault.keeps_durable_state)
        elif len(self._staying) > 1:
            host.leave()

    def _lose(self, fault: GroupFault) -> None:
        self.network.profile = replace(self.plan.network, loss=fault.loss)
        self.scheduler.after(fault.lasts_ns, self._lose_no_more)

    def _lose_no_more(self) -> None:
        if not self._is_healed:
            self.network.profile = self.plan.network

    def _links_from(self, name: str) -> list[Link]:
        return [(name, other) for other in self.plan.names if other != name]

    def _links_to(self, name: str) -> list[Link]:
        return [(other, name) for other in self.plan.names if other != name]

    def _links_between(self, sides: tuple[int, ...]) -> list[Link]:
        placed = list(zip(self.plan.names, sides, strict=True))
        return [(one, other) for one, side in placed for other, far_side in placed if side != far_side]

    def _cut(self, links: list[Link], lasts_ns: int) -> None:
        self.network.cut(links)
        self.scheduler.after(lasts_ns, lambda: self.network.mend(links))

    def _note(self, text: str) -> None:
        if self._transcript is not None:
            self._transcript.note(self.scheduler.now, text)

    # After the faults

    def _heal(self) -> None:
        """Heal all faults. If no seed process is left, start one, since the others could not discover each other."""
        self._note("all is healed")
        self._is_healed = True
        self.network.heal()
        for host in self._alive:
            host.resume()
            host.resume_deliveries()
        seeds = [index for index in range(len(self.plan.names)) if endpoint_of(index) in self.plan.seeds]
        if not any(index in self._due or self._living(index) for index in seeds):
            self._plan_start(seeds[0], 0)

    def _wait(self, unmet: Callable[[], Iterator[str]], timeout_ns: int) -> list[str]:
        """Run until every condition is met or the timeout expires. Returns the conditions still unmet."""
        deadline = self.scheduler.now + timeout_ns
        while self.scheduler.now < deadline:
            self.scheduler.run_until(self.scheduler.now + STEP_NS)
            if next(unmet(), None) is None:
                return []
        return list(unmet())

    def _unmet(self) -> Iterator[str]:
        """The conditions that are unmet before all live processes form one group at rest."""
        yield from (f"{self.plan.names[index]} is still to start" for index in sorted(self._due))
        yield from (f"{host.address} never left" for host in self._alive if host.is_leaving)
        for host in self._staying:
            yield from self._unsettled(host)
        yield from self._undrained()

    def _unsettled(self, host: GroupHost) -> Iterator[str]:
        view, first = host.member.view, self._staying[0]
        living = sorted(other.address for other in self._staying)
        if sorted(view.members) != living:
            yield f"{host.address} is in {view}, and the live processes are {', '.join(map(str, living))}"
        elif view != first.member.view:
            yield f"{host.address} is in {view}, and {first.address} in {first.member.view}"
        elif not host.member.is_settled:
            yield f"{host.address} is still changing {view}"
        elif (key := (host.address, view.id)) in self.history.lacking and key not in self.history.received:
            yield f"{host.address} never got the state in {view}"
        elif not view.is_primary and not self.plan.is_durable_state_lost:
            yield f"{host.address} is in {view}, though no durable state was lost"

    def _undrained(self) -> Iterator[str]:
        for host in self._staying:
            if not host.member.multicast.sender.is_drained:
                yield f"{host.address} to the group is not drained: {host.member.multicast.sender.window}"
            for other in self._staying:
                connection = host.member.unicast.sender(other.address)
                if connection is not None and not connection.is_flushed:
                    yield f"{host.address} to {other.address} is not drained: {connection.window}"

    def _probe(self) -> list[str]:
        """One multicast of each member must reach all members, and must not change the view."""
        begin = len(self.history.events)
        probes = {host.address: self._payload(host.address, 0) for host in self._staying}
        for host in self._staying:
            host.multicast([probes[host.address]])
        return self._wait(lambda: self._undelivered(probes, begin), PROBE_NS) or self._wait(self._unmet, PROBE_NS)

    def _undelivered(self, probes: dict[Address, bytes], begin: int) -> Iterator[str]:
        batches = [event for event in self.history.events[begin:] if isinstance(event, DeliveredBatch)]
        delivered = {(batch.receiver, message) for batch in batches for message in batch.messages}
        for sender, probe in probes.items():
            for receiver in probes:
                if (receiver, probe) not in delivered:
                    yield f"{receiver} never delivered the final multicast of {sender}"

    def _check_bounds(self) -> Iterator[Violation]:
        """The stated bound on frames in memory: windows, pending SYNCs, and frames that arrived before their view."""
        for host in self._processes:
            config, processes = self.plan.config, len(self._processes)
            bound = 3 * processes * config.unicast.capacity + processes * config.multicast.capacity
            bound += config.multicast.early_frames
            if host.most_buffered > bound:
                yield Violation("bounded memory", f"{host.address} buffered {host.most_buffered} of {bound} frames")

    def stats(self) -> dict[str, int]:
        entered = [event for event in self.history.events if isinstance(event, EnteredView)]
        return {
            "members": len(self.plan.names),
            "accepted": sum(map(len, self.history.accepted.values())),
            "delivered": sum(len(event.messages) for event in self.history.events if isinstance(event, DeliveredBatch)),
            "datagrams": self.network.sent,
            "resent": sum(host.member.counters[Count.FRAME_RESENT] for host in self._processes),
            "faults": len(self.plan.faults),
            "virtual_ms": self.scheduler.now // MILLISECOND,
            "views": len({event.view.id for event in entered}),
            "merges": len({event.view.id for event in entered if len(event.subviews) > 1}),
        }


def run_membership(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(MembershipWorld, draw_group_plan(seed), with_transcript, trace)


def run_membership_100(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(MembershipWorld, draw_large_plan(seed), with_transcript, trace)


def run_world(
    kind: type[MembershipWorld], plan: GroupPlan, with_transcript: bool, trace: Emit | None = None
) -> SeedOutcome:
    transcript = Transcript(group_id(GROUP)) if with_transcript else None
    world = kind(plan, transcript, trace)
    try:
        violations = world.run()
    except Exception as error:  # the transcript shows what led to it
        violations = [violation_of(error)]
    lines: list[str] = []
    if transcript is not None:
        lines = [*plan.describe(), *transcript.lines, *(f"VIOLATION {violation}" for violation in violations)]
    return SeedOutcome(plan.seed, tuple(violations), world.stats(), world.history.fingerprint(), tuple(lines))
