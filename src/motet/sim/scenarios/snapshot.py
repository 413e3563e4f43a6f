"""The scenario `snapshot`: the worlds of `total-order` with token transfers, and snapshots during all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from motet.protocol.core.effects import Channel
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.member import Member
from motet.protocol.snapshot import SnapshotConfig
from motet.sim.checkers.channels import Violation
from motet.sim.checkers.snapshots import CutChecker
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import GroupPlan, endpoint_of
from motet.sim.scenarios.membership import PROBE_NS, run_world
from motet.sim.scenarios.total_order import TotalOrderWorld, draw_ordered_plan
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import EndedSnapshot, StartedSnapshot
from motet.sim.world.plan import Burst
from motet.sim.world.tokens import TokenHost
from motet.sim.world.transcript import Transcript

PROBES = 3
TIMEOUTS_NS = (3 * SECOND, 10 * SECOND, 30 * SECOND)
LONGEST_NS = max(TIMEOUTS_NS) + SECOND  # every snapshot has succeeded or failed by then


class SnapshotWorld(TotalOrderWorld):
    is_prompt = False

    def __init__(self, plan: GroupPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        super().__init__(plan, transcript, trace)
        self._snapshot_rng = Random(f"snapshots {plan.seed}")

    def run(self) -> list[Violation]:
        for at, who in self._draw_snapshots():
            self.scheduler.at(at, self._snapshot(who))
        violations = super().run()
        unmet = [] if violations else self._probe_snapshots()
        violations += [Violation("liveness", what) for what in unmet]
        return violations + CutChecker(self.history).run()

    def _make_host(self, member: Member) -> GroupHost:
        return TokenHost(member, self._context, self._rng, self._home, self._watch, self._next_number)

    def _next_number(self) -> int:
        self._sequence += 1
        return self._sequence

    # Workload

    def _draw_snapshots(self) -> Iterator[tuple[int, int]]:
        """(when, who); sometimes different members start several snapshots at once."""
        rng, members = self._snapshot_rng, len(self.plan.names)
        for _ in range(rng.choice([2, 4, 8])):
            at = rng.randrange(self.plan.duration_ns)
            for who in rng.sample(range(members), min(members, rng.choice([1, 1, 2, 3]))):
                yield at + rng.randrange(20 * MILLISECOND), who

    def _snapshot(self, who: int) -> Callable[[], None]:
        def act() -> None:
            host = self._living(who)
            if isinstance(host, TokenHost) and not host.is_leaving:
                host.start_snapshot()

        return act

    def _burst(self, burst: Burst) -> Callable[[], None]:
        channel = self._choices.choice([Channel.MULTICAST, Channel.TOTAL]) if burst.to is None else Channel.UNICAST
        choice = self._choices.random()

        def act() -> None:
            host = self._living(burst.who)
            if not isinstance(host, TokenHost) or host.is_leaving:
                return
            members = host.member.members
            to = members[int(choice * len(members))]
            if burst.to is not None:
                peer = self._slots.get(endpoint_of(burst.to))
                if peer is None or peer.address not in members:
                    return
                to = peer.address
            host.move(channel, to, burst.sizes)

        return act

    # Results

    def _probe_snapshots(self) -> list[str]:
        """All members take a snapshot at once while tokens move: in a group at rest each of them succeeds.

        If the view changes meanwhile, the group was not at rest, and all members try again.
        """
        for _ in range(PROBES):
            views = {host.member.view.id for host in self._staying}
            unmet = self._take_snapshots([host for host in self._staying if isinstance(host, TokenHost)])
            if not unmet or views == {host.member.view.id for host in self._staying}:
                break
        return unmet or self._wait(self._unmet, PROBE_NS) or self._wait(self._left_over, PROBE_NS)

    def _take_snapshots(self, hosts: list[TokenHost]) -> list[str]:
        begin = len(self.history.events)
        for host in hosts:
            self._move_some(host)
            host.start_snapshot()
            self._move_some(host)
        self._wait(lambda: self._unended(begin, hosts), LONGEST_NS)
        return list(self._untaken(begin, hosts))

    def _unended(self, begin: int, hosts: list[TokenHost]) -> Iterator[str]:
        ended = {event.member for event in self.history.events[begin:] if isinstance(event, EndedSnapshot)}
        return (f"the snapshot of {host.address} never ended" for host in hosts if host.address not in ended)

    def _move_some(self, host: TokenHost) -> None:
        for channel in Channel:
            to = self._snapshot_rng.choice(host.member.members)
            host.move(channel, to, (50, 50))

    def _untaken(self, begin: int, hosts: list[TokenHost]) -> Iterator[str]:
        ends = {event.member: event for event in self.history.events[begin:] if isinstance(event, EndedSnapshot)}
        for host in hosts:
            end = ends.get(host.address)
            if end is None or end.reports is None:
                reason = "it never ended" if end is None else end.reason
                yield f"{host.address} got no snapshot in a group at rest: {reason}"

    def _left_over(self) -> Iterator[str]:
        for host in self._staying:
            if host.member.snapshots.is_recording:
                yield f"{host.address} still records {', '.join(map(str, host.member.snapshots.running))}"

    def stats(self) -> dict[str, int]:
        ended = [event for event in self.history.events if isinstance(event, EndedSnapshot)]
        reports = [report for event in ended if event.reports is not None for report in event.reports.values()]
        return super().stats() | {
            "snapshots": sum(isinstance(event, StartedSnapshot) for event in self.history.events),
            "snapshots_taken": sum(event.reports is not None for event in ended),
            "snapshots_failed": sum(event.reports is None for event in ended),
            "in_flight": sum(len(state.messages) for report in reports for state in report.channels),
            "waiting": sum(len(report.waiting) for report in reports),
        }


def draw_snapshot_plan(seed: int) -> GroupPlan:
    plan = draw_ordered_plan(seed)
    rng = Random(f"snapshot plan {seed}")
    config = SnapshotConfig(timeout_ns=rng.choice(TIMEOUTS_NS))
    return replace(plan, config=replace(plan.config, snapshot=config))


def run_snapshot(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(SnapshotWorld, draw_snapshot_plan(seed), with_transcript, trace)
