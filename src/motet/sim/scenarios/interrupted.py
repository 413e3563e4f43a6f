"""The scenario `interrupted`: view changes that a fault interrupts at a chosen frame, on a network that loses nothing.

Because only cut links lose datagrams, the rules are stricter than those of `membership`: a process that was reachable
is never suspected, and never times out (checkers/accusations.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from motet.protocol.core.trace import Emit
from motet.protocol.member import Member
from motet.protocol.wire.codec import group_id
from motet.sim.checkers.accusations import check_accusations
from motet.sim.checkers.channels import Violation
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import GroupFault, GroupFaultKind, GroupPlan
from motet.sim.scenarios.interrupted_plan import draw_interrupted_plan
from motet.sim.scenarios.membership import GROUP, MembershipWorld, run_world
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import Accusation, Outage
from motet.sim.world.interrupted_host import InterruptedHost
from motet.sim.world.network import Link
from motet.sim.world.transcript import Transcript


class InterruptedWorld(MembershipWorld):
    def __init__(self, plan: GroupPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        super().__init__(plan, transcript, trace)
        # Only the first one is armed; the next one is armed when it has fired.
        self._triggers: deque[GroupFault] = deque()
        self._awaited = 0  # matching frames that the first trigger has counted
        self._triggered = 0
        self._cuts: list[tuple[list[Link], list[Outage]]] = []

    def run(self) -> list[Violation]:
        return super().run() + check_accusations(self.history, self.plan.membership.detector)

    def _make_host(self, member: Member) -> GroupHost:
        return InterruptedHost(member, self._context, self._rng, self._home, self._on_frame, group_id(GROUP))

    # Faults

    def _fault(self, fault: GroupFault) -> Callable[[], None]:
        if not fault.awaits:
            return lambda: self._strike_now(fault)
        return lambda: self._triggers.append(fault)

    def _strike_now(self, fault: GroupFault) -> None:
        if fault.replaces and not self._is_healed:
            self._mend_all()
        super()._fault(self._named(fault) if fault.by_rank else fault)()

    def _named(self, fault: GroupFault) -> GroupFault:
        """The fault with ranks replaced by processes, as in the current view of a live process; ranks wrap around."""
        members = self._alive[0].member.view.members
        who, other = (self.plan.names.index(members[rank % len(members)].name) for rank in (fault.who, fault.other))
        return replace(fault, who=who, other=other, by_rank=False)

    def _on_frame(self, host: GroupHost, kind: str) -> None:
        """Fire the first trigger when its frame is to be sent. The frame itself is subject to the new cuts."""
        if not self._triggers or self._triggers[0].awaits != kind or self._is_healed:
            return
        self._awaited += 1
        if self._awaited < self._triggers[0].nth:
            return
        fault, self._awaited, self._triggered = self._triggers.popleft(), 0, self._triggered + 1
        who = self.plan.names.index(host.address.name) if fault.hits_first else fault.who
        triggered = replace(fault, at=self.scheduler.now, who=who, awaits="", hits_first=False)
        if fault.kind is GroupFaultKind.PAUSE:  # a process is paused between two steps, not within one
            self.scheduler.after(0, self._fault(triggered))
        else:
            self._strike_now(triggered)

    def stats(self) -> dict[str, int]:
        accusation = sum(isinstance(event, Accusation) for event in self.history.events)
        return {**super().stats(), "triggered": self._triggered, "accusations": accusation}

    # Links

    def _cut(self, links: list[Link], lasts_ns: int) -> None:
        outages = [Outage(self.scheduler.now) for _ in links]
        for link, outage in zip(links, outages, strict=True):
            self.history.outages.setdefault(link, []).append(outage)
        cut = (links, outages)
        self.network.cut(links)
        self._cuts.append(cut)
        self.scheduler.after(lasts_ns, lambda: self._mend(cut))

    def _mend(self, cut: tuple[list[Link], list[Outage]]) -> None:
        """Heal a cut, unless it was healed before."""
        if not any(one is cut for one in self._cuts):
            return
        links, outages = cut
        self._cuts = [one for one in self._cuts if one is not cut]
        self.network.mend(links)
        for outage in outages:
            outage.end = self.scheduler.now

    def _mend_all(self) -> None:
        for cut in list(self._cuts):
            self._mend(cut)

    def _heal(self) -> None:
        self._mend_all()
        super()._heal()


def run_interrupted(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(InterruptedWorld, draw_interrupted_plan(seed), with_transcript, trace)
