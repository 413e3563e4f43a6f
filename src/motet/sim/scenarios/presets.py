"""The scenario `presets`: members with shipped settings do the work of the ISIS document's tests on a bad network.

No timeout is made longer for it, and the network is never healed. Within the bound that presets_plan.py states, every
accepted message is delivered and stable at every live member, or reported to its sender as failed, and all live members
are in one view. While messages wait, the log must not stall for longer than that bound. If a member is gone for good,
the others may have lost their majority; then the progress of the log is not checked.

In addition to the rules of `membership` and `total-order` the statistics report:

    expulsions      live members that the next primary view excluded; only in worlds without faults
    out_ms          the total time of these expulsions
    rolled_back     deliveries that were rolled back, at all members
    failed_sends    messages that were reported as failed
    stall_ms        the longest time in which messages waited and no message became stable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from motet.protocol.core.effects import Channel, Effect, SendFailed
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MILLISECOND, SECOND, format_ns
from motet.protocol.member import Delivered, Member, Superseded
from motet.sim.checkers.channels import Violation
from motet.sim.checkers.expulsions import expulsions_of
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.membership import STEP_NS, run_world
from motet.sim.scenarios.presets_plan import MessageChain, PresetsPlan, draw_presets_plan
from motet.sim.scenarios.total_order import TotalOrderWorld
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import RolledBackAt, StableAt
from motet.sim.world.order_host import OrderedHost
from motet.sim.world.plan import Burst
from motet.sim.world.transcript import Transcript

GATHER_NS = 60 * SECOND  # a good network must not take longer to form the group


class PresetsHost(OrderedHost):
    """A host whose application may wait for the delivery of its own message before it sends the next one."""

    next_message: Callable[[], None] | None = None
    waiting_from = 0  # the time at which the awaited message was sent

    def _make_real(self, effect: Effect) -> list[Effect]:
        if self.next_message is not None and self._settles_own_message(effect):
            self._world.scheduler.after(0, self.next_message)
        return super()._make_real(effect)

    def _settles_own_message(self, effect: Effect) -> bool:
        """Delivered, contained in the state that this member received instead, or reported as failed."""
        if isinstance(effect, Delivered):
            return effect.channel is Channel.TOTAL and effect.sender == self.address
        return isinstance(effect, Superseded) or (isinstance(effect, SendFailed) and effect.channel is Channel.TOTAL)


class PresetsWorld(TotalOrderWorld):
    def __init__(self, plan: PresetsPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        super().__init__(plan, transcript, trace)
        self.presets = plan
        self._stalled_from = 0  # the time since which messages wait and none has become stable
        self._seen = 0  # the number of history events already examined
        self._longest_stall_ns = 0

    def run(self) -> list[Violation]:
        self._plan_starts()
        unmet = self._gather()
        if not unmet:
            self._play()
            unmet = self._wait(self._unmet, self.presets.bound_ns)
        return self._check_log([*self._check(unmet), *self._check_stall(), *self._check_forgotten()])

    # The phases

    def _gather(self) -> list[str]:
        if not self.presets.gathers_first:
            return []
        self.network.profile = self.presets.good_network
        unmet = self._wait(self._unmet, GATHER_NS)
        self.network.profile = self.plan.network
        return unmet

    def _play(self) -> None:
        """Run until every planned event has happened; a message chain continues while the log makes progress."""
        begin = self._stalled_from = self.scheduler.now
        self._note("the work begins")
        self._plan_events(begin)
        self.network.profile = self.presets.churn_network or self.plan.network
        self.scheduler.at(begin + self.plan.duration_ns, self._end_churn)
        for chain in self.presets.chains:
            self.scheduler.at(begin + chain.at, self._chain(chain))
        end = begin + max([self.plan.duration_ns, *(chain.at for chain in self.presets.chains)])
        while self.scheduler.now < end or (self._waiting and not self._forgotten and not self._is_stalled):
            self._step()
        self._is_healed = True  # no pending fault strikes any more

    def _end_churn(self) -> None:
        self.network.profile = self.plan.network

    def _wait(self, unmet: Callable[[], Iterator[str]], timeout_ns: int) -> list[str]:
        deadline = self.scheduler.now + timeout_ns
        while self.scheduler.now < deadline:
            self._step()
            if next(unmet(), None) is None:
                return []
        return list(unmet())

    def _step(self) -> None:
        self.scheduler.run_until(self.scheduler.now + STEP_NS)
        events = self.history.events
        is_moving = any(isinstance(events[place], StableAt) for place in range(self._seen, len(events)))
        self._seen = len(events)
        if is_moving or not any(map(self._has_waiting, self._staying)):
            self._stalled_from = self.scheduler.now
        self._longest_stall_ns = max(self._longest_stall_ns, self.scheduler.now - self._stalled_from)

    def _has_waiting(self, host: GroupHost) -> bool:
        ordering = host.member.channel.ordering
        assert ordering is not None
        return ordering.admitted < ordering.accepted or bool(len(ordering.queue)) or ordering.stable < ordering.position

    def _check_stall(self) -> list[Violation]:
        """Check the longest stall, excluding the time of faults, unless a member is gone for good."""
        if not self._is_stalled or self.plan.is_durable_state_lost:
            return []
        what = f"messages waited for {format_ns(self._longest_stall_ns)}, and nothing became stable"
        return [Violation("liveness", f"{what}; the bound is {format_ns(self._stall_bound_ns)}")]

    def _check_forgotten(self) -> list[Violation]:
        """Every accepted message is delivered or reported as failed, so that no receipt stays pending for ever."""
        if self.plan.is_durable_state_lost:
            return []
        what = f"was neither delivered nor reported within {format_ns(self._stall_bound_ns)}"
        return [Violation("liveness", f"a message that {host.address} sent {what}") for host in self._forgotten]

    @property
    def _forgotten(self) -> list[PresetsHost]:
        """Hosts whose application waits for its own message although no message is left in the ordering queues."""
        earliest = self.scheduler.now - self._stall_bound_ns
        late = (host for host in self._waiting if host.waiting_from < earliest)
        return [host for host in late if not any(map(self._has_waiting, self._staying))]

    @property
    def _is_stalled(self) -> bool:
        return self._longest_stall_ns > self._stall_bound_ns

    @property
    def _stall_bound_ns(self) -> int:
        return self.presets.bound_ns + self.presets.longest_fault_ns

    # Workload

    def _make_host(self, member: Member) -> GroupHost:
        ordering = self.plan.config.ordering
        assert ordering is not None
        around = (self._context, self._rng, self._home, self._watch)
        return PresetsHost(member, *around, waits_for_disk=ordering.waits_for_disk)

    def _burst(self, burst: Burst) -> Callable[[], None]:
        is_ordered = any(self.plan.bursts[number] is burst for number in self.presets.ordered)

        def act() -> None:
            host = self._living(burst.who)
            if host is None or host.is_leaving:
                return
            messages = [self._payload(host.address, size) for size in burst.sizes]
            if is_ordered:
                host.multicast_ordered(messages)
            else:
                host.multicast(messages)

        return act

    def _chain(self, chain: MessageChain) -> Callable[[], None]:
        """Send the messages of a chain one after the other. The chain ends with its process and is not resumed."""
        sizes = iter(chain.sizes)

        def send(host: PresetsHost) -> None:
            if host.is_paused:  # the application is paused with its process
                self.scheduler.after(STEP_NS, lambda: send(host))
                return
            size = next(sizes, None)
            if size is None or host.is_leaving:
                host.next_message = None
            else:
                host.waiting_from = self.scheduler.now
                host.multicast_ordered([self._payload(host.address, size)])

        def begin() -> None:
            host = self._living(chain.who)
            if isinstance(host, PresetsHost):
                host.next_message = lambda: send(host)
                send(host)

        return begin

    @property
    def _waiting(self) -> list[PresetsHost]:
        """Hosts whose application has more messages of a chain to send."""
        hosts = (host for host in self._staying if isinstance(host, PresetsHost))
        return [host for host in hosts if host.next_message is not None]

    # Results

    def stats(self) -> dict[str, int]:
        expulsions = [] if self.plan.faults else expulsions_of(self.history, self.scheduler.now)
        rolled_back = (event for event in self.history.events if isinstance(event, RolledBackAt))
        failed = (last - first + 1 for spans in self.history.failed.values() for first, last in spans)
        return super().stats() | {
            "expulsions": len(expulsions),
            "out_ms": sum(one.end - one.begin for one in expulsions) // MILLISECOND,
            "rolled_back": sum(event.last - event.first + 1 for event in rolled_back),
            "failed_sends": sum(failed),
            "stall_ms": self._longest_stall_ns // MILLISECOND,
        }


def run_presets(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(PresetsWorld, draw_presets_plan(seed), with_transcript, trace)
