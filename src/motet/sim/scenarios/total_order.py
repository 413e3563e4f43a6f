"""The scenario `total-order`: the worlds of `membership`, where most multicasts are in total order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MILLISECOND
from motet.protocol.member import Member
from motet.protocol.ordering import OrderingConfig
from motet.protocol.wire.ordered import Tag
from motet.sim.checkers.channels import Violation
from motet.sim.checkers.log import LogChecker
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import GroupPlan, draw_group_plan
from motet.sim.scenarios.membership import PROBE_NS, MembershipWorld, run_world
from motet.sim.world.group_host import GroupHost
from motet.sim.world.order_host import OrderedHost
from motet.sim.world.plan import Burst
from motet.sim.world.transcript import Transcript

ORDERED_SHARE = 0.6  # of the multicasts
APPENDED_SHARE = 0.25  # of the ordered ones: appends that may be retried
PRODUCERS = 3
MOST_APPENDED = 3  # messages


class TotalOrderWorld(MembershipWorld):
    is_prompt = True  # applications handle deliveries at once

    def __init__(self, plan: GroupPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        super().__init__(plan, transcript, trace)
        self._choices = Random(f"choices {plan.seed}")
        self._producers = [0] * PRODUCERS  # the sequence of the last append of each producer

    def run(self) -> list[Violation]:
        violations = super().run()
        unmet = [] if violations else self._probe_order() or self._probe_appends()
        violations += [Violation("liveness", what) for what in unmet]
        return self._check_log(violations)

    def _check_log(self, violations: list[Violation]) -> list[Violation]:
        """The given violations and those of the log. Conditions on the end are checked only if there are none."""
        final = [host.address for host in self._staying if host.member.view.is_primary]
        has_quorum = self.plan.membership.engine.static_quorum > 0
        if not self.plan.is_one_primary or (has_quorum and self.plan.is_durable_state_lost):
            return violations  # every side has its own log; or members without durable state formed a quorum again
        assert self.plan.config.ordering is not None
        waits_for_disk = self.plan.config.ordering.waits_for_disk
        checker = LogChecker(self.history, waits_for_disk=waits_for_disk, is_prompt=self.is_prompt)
        violations += checker.run(final)
        return violations or [*checker.check_validity(final), *checker.check_appends()]

    def _make_host(self, member: Member) -> GroupHost:
        ordering = self.plan.config.ordering
        assert ordering is not None
        around = (self._context, self._rng, self._home, self._watch)
        return OrderedHost(member, *around, waits_for_disk=ordering.waits_for_disk)

    def _burst(self, burst: Burst) -> Callable[[], None]:
        plain = super()._burst(burst)
        is_ordered = burst.to is None and self._choices.random() < ORDERED_SHARE
        producer = self._choices.randrange(PRODUCERS) if self._choices.random() < APPENDED_SHARE else None

        def act() -> None:
            host = self._living(burst.who)
            if not isinstance(host, OrderedHost) or host.is_leaving:
                return
            if producer is not None:
                self._append(producer, host, len(burst.sizes))
            else:
                host.multicast_ordered([self._payload(host.address, size) for size in burst.sizes])

        return act if is_ordered else plain

    def _append(self, producer: int, host: OrderedHost, count: int = 1) -> None:
        """Send the next append of a producer through this member, or retry its last one if it is not known to be
        stable.
        """
        before = Tag(producer, self._producers[producer])
        if before in self.history.appends and before not in self.history.acknowledged:
            host.append(before, self.history.appends[before])
            return
        tag = Tag(producer, before.sequence + 1)
        host.append(tag, [f"{producer}:{tag.sequence}/{place}".encode() for place in range(min(count, MOST_APPENDED))])
        if tag in self.history.appends:
            self._producers[producer] = tag.sequence

    def _unmet(self) -> Iterator[str]:
        yield from super()._unmet()
        for host in self._staying:
            yield from self._unordered(host)

    def _unordered(self, host: GroupHost) -> Iterator[str]:
        """At the end, in a primary view, every message is ordered and stable, and all members are at the same
        position.
        """
        ordering, first = host.member.channel.ordering, self._staying[0].member.channel.ordering
        assert ordering is not None
        assert first is not None
        if not host.member.view.is_primary:
            return
        if ordering.admitted < ordering.accepted or len(ordering.queue):
            yield f"{host.address} still has messages to be ordered"
        if ordering.position != first.position or ordering.stable != ordering.position:
            yield f"{host.address} is at {ordering.position}, stable {ordering.stable}; others at {first.position}"

    def _probe_order(self) -> list[str]:
        """One ordered message of each member must reach all members of a primary view."""
        probes: dict[Address, bytes] = {}
        for host in self._staying:
            if host.member.view.is_primary:
                probes[host.address] = self._payload(host.address, 0)
                host.multicast_ordered([probes[host.address]])
        return self._wait(lambda: self._undelivered(probes, 0), PROBE_NS) or self._wait(self._unmet, PROBE_NS)

    def _probe_appends(self) -> list[str]:
        """Producers retry appends that are not known to be stable; afterwards each append is in the log."""
        host = next((host for host in self._staying if host.member.view.is_primary), None)
        if not isinstance(host, OrderedHost):
            return []
        for producer in range(PRODUCERS):
            self._append(producer, host)
        return self._wait(self._unappended, PROBE_NS) or self._wait(self._unmet, PROBE_NS)

    def _unappended(self) -> Iterator[str]:
        known = self.history.acknowledged | {tag for _, tag in self.history.repeated}
        for tag in map(Tag, range(PRODUCERS), self._producers):
            if tag in self.history.appends and tag not in known:
                yield f"append {tag.sequence} of producer {tag.producer} never was in the log"

    def stats(self) -> dict[str, int]:
        ordered = (stream for stream in self.history.accepted if stream.channel is Channel.TOTAL)
        return super().stats() | {
            "ordered": sum(len(self.history.accepted[stream]) for stream in ordered),
            "appends": len(self.history.appends),
            "appends_repeated": len(self.history.repeated),
        }


def draw_ordered_plan(seed: int) -> GroupPlan:
    plan = draw_group_plan(seed)
    rng = Random(f"order {seed}")
    ordering = OrderingConfig(
        window=rng.choice([1, 2, 4, 16, 64]),
        ask_ns=rng.choice([20, 50, 200]) * MILLISECOND,
        progress_ns=rng.choice([5, 10, 50]) * MILLISECOND,
        most_piggybacks=rng.choice([1, 4, 64]),
        strategy=rng.choice(["window", "window", "continuous"]),
        fast_path_members=rng.choice([0, 3, 64, 64]),
        piggyback_wait_ns=rng.choice([1, 5, 50]) * MILLISECOND,
    )
    return replace(plan, config=replace(plan.config, ordering=ordering))


def draw_logged_plan(seed: int) -> GroupPlan:
    """As `draw_ordered_plan`, but in some plans members wait for their disks."""
    plan = draw_ordered_plan(seed)
    assert plan.config.ordering is not None
    ordering = replace(plan.config.ordering, waits_for_disk=Random(f"disks {seed}").random() < 0.3)
    return replace(plan, config=replace(plan.config, ordering=ordering))


def run_total_order(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(TotalOrderWorld, draw_logged_plan(seed), with_transcript, trace)
