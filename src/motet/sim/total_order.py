"""The scenario `total-order`: the worlds of `membership`, and most of what is sent has to be ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from motet.core.effects import Channel
from motet.core.identity import Address
from motet.core.trace import Emit
from motet.core.units import MILLISECOND
from motet.ordering import OrderingConfig
from motet.sim.channels import Outcome
from motet.sim.checkers import Violation
from motet.sim.group_host import GroupHost
from motet.sim.group_plan import GroupPlan, draw_group_plan
from motet.sim.log import LogChecker
from motet.sim.membership import PROBE_NS, MembershipWorld, run_world
from motet.sim.plan import Burst
from motet.sim.transcript import Transcript

ORDERED_SHARE = 0.6  # of the multicasts


class TotalOrderWorld(MembershipWorld):
    def __init__(self, plan: GroupPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        super().__init__(plan, transcript, trace)
        self._choices = Random(f"choices {plan.seed}")

    def run(self) -> list[Violation]:
        violations = super().run()
        unmet = [] if violations else self._probe_order()
        final = [host.address for host in self._staying if host.member.view.is_primary]
        violations += [Violation("liveness", what) for what in unmet]
        has_quorum = self.plan.membership.engine.static_quorum > 0
        if not self.plan.is_one_primary or (has_quorum and self.plan.is_memory_lost):
            return violations  # every side has a log of its own; or a quorum of members without memory began anew
        checker = LogChecker(self.history)
        violations += checker.run(final)
        return violations or list(checker.check_validity(final))

    def _burst(self, burst: Burst) -> Callable[[], None]:
        plain = super()._burst(burst)
        is_ordered = burst.to is None and self._choices.random() < ORDERED_SHARE

        def act() -> None:
            host = self._living(burst.who)
            if host is not None and not host.is_leaving:
                host.multicast_ordered([self._payload(host.address, size) for size in burst.sizes])

        return act if is_ordered else plain

    def _unmet(self) -> Iterator[str]:
        yield from super()._unmet()
        for host in self._staying:
            yield from self._unordered(host)

    def _unordered(self, host: GroupHost) -> Iterator[str]:
        """In a primary view everything is ordered and stable in the end, and everybody is as far as the others."""
        ordering, first = host.member.channel.ordering, self._staying[0].member.channel.ordering
        assert ordering is not None
        assert first is not None
        if not host.member.view.is_primary:
            return
        if ordering.admitted < ordering.accepted or len(ordering.queue):
            yield f"{host.address} still has something to be ordered"
        if ordering.position != first.position or ordering.stable != ordering.position:
            yield f"{host.address} is at {ordering.position}, stable {ordering.stable}; others at {first.position}"

    def _probe_order(self) -> list[str]:
        """One ordered message of each: in a primary view, everybody gets them all."""
        probes: dict[Address, bytes] = {}
        for host in self._staying:
            if host.member.view.is_primary:
                probes[host.address] = self._payload(host.address, 0)
                host.multicast_ordered([probes[host.address]])
        return self._wait(lambda: self._unheard(probes, 0), PROBE_NS) or self._wait(self._unmet, PROBE_NS)

    def stats(self) -> dict[str, int]:
        ordered = (stream for stream in self.history.accepted if stream.channel is Channel.TOTAL)
        return super().stats() | {"ordered": sum(len(self.history.accepted[stream]) for stream in ordered)}


def draw_ordered_plan(seed: int) -> GroupPlan:
    plan = draw_group_plan(seed)
    rng = Random(f"order {seed}")
    ordering = OrderingConfig(
        window=rng.choice([1, 2, 4, 16, 64]),
        ask_ns=rng.choice([20, 50, 200]) * MILLISECOND,
        progress_ns=rng.choice([5, 10, 50]) * MILLISECOND,
        most_riders=rng.choice([1, 4, 64]),
        carrier=rng.choice(["window", "window", "continuous"]),
    )
    return replace(plan, config=replace(plan.config, ordering=ordering))


def run_total_order(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> Outcome:
    return run_world(TotalOrderWorld, draw_ordered_plan(seed), with_transcript, trace)
