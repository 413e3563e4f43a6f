"""What total order costs on the wire: datagrams per ordered application message. Run: python benchmarks/order_cost.py

The simulator runs the real members on a network without loss; the figures do not depend on the machine. Every member
sends one frame at every step, or sixteen, so that all of them order at once. A datagram to each of several receivers
counts once per receiver. Heartbeats and whatever else would be sent without an order are left out. `--json` prints the
figures, by kind of frame.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import product

from motet.protocol.core.effects import Frame
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND
from motet.protocol.member import MemberConfig
from motet.protocol.membership import MembershipConfig
from motet.protocol.multicast.machine import FRAMES as MULTICAST_FRAMES
from motet.protocol.ordering import OrderingConfig
from motet.protocol.ordering.machine import FRAMES as ORDERING_FRAMES
from motet.protocol.wire.codec import DecodedDatagram, decode, group_id
from motet.sim.scenarios.group_plan import GroupPlan, endpoint_of
from motet.sim.scenarios.membership import GROUP
from motet.sim.scenarios.total_order import TotalOrderWorld
from motet.sim.world.network import NetworkProfile
from motet.sim.world.transcript import Transcript

GROUPS = (3, 5, 10)
STRATEGIES = {
    "window": OrderingConfig(),
    "fast path": OrderingConfig(fast_path_members=max(GROUPS)),  # the fast path: proposals are broadcast
    "continuous": OrderingConfig(strategy="continuous"),
}
MESSAGES_PER_FRAME = (1, 1000)
AT_ONCE = (1, 16)  # frames that a member sends at one step
FRAMES = 96  # of every member
STEP_NS = 2 * MILLISECOND
BOOTSTRAPPED_NS = 3 * SECOND
DRAINED_NS = 10 * SECOND
MESSAGE = bytes(40)


class FrameTally(Transcript):
    """Counts the datagrams of the order, by kind of frame, from the moment it is switched on."""

    def __init__(self) -> None:
        super().__init__(group_id(GROUP))
        self.is_on = False
        self.kinds: Counter[type[Frame]] = Counter()

    def note(self, now: int, text: str) -> None:
        pass

    def datagram(self, now: int, source: str, to: str, data: bytes, fate: str) -> None:
        envelope = decode(self._group, data) if self.is_on else None
        if isinstance(envelope, DecodedDatagram) and isinstance(envelope.frame, (*MULTICAST_FRAMES, *ORDERING_FRAMES)):
            self.kinds[type(envelope.frame)] += 1


@dataclass(frozen=True, slots=True)
class FrameCost:
    members: int
    strategy: str
    messages_per_frame: int
    at_once: int
    datagrams: int
    messages: int
    by_kind: dict[str, int]

    @property
    def per_message(self) -> float:
        return self.datagrams / self.messages


def measure(members: int, strategy: str, messages_per_frame: int, at_once: int) -> FrameCost:
    tally = FrameTally()
    world = TotalOrderWorld(_plan(members, strategy), tally)
    for index in range(members):
        world._plan_start(index, 0)
    world.scheduler.run_until(BOOTSTRAPPED_NS)
    tally.is_on = True
    hosts = [host for index in range(members) if (host := world._living(index)) is not None]
    for step in range(FRAMES // at_once):
        for host in hosts * at_once:
            host.multicast_ordered([MESSAGE] * messages_per_frame)
        world.scheduler.run_until(BOOTSTRAPPED_NS + (step + 1) * at_once * STEP_NS)
    world.scheduler.run_until(BOOTSTRAPPED_NS + DRAINED_NS)
    ordering = hosts[0].member.channel.ordering
    assert ordering is not None
    assert ordering.stable == members * FRAMES * messages_per_frame, "not everything was ordered"
    by_kind = {kind.__name__: count for kind, count in tally.kinds.most_common()}
    return FrameCost(members, strategy, messages_per_frame, at_once, tally.kinds.total(), ordering.stable, by_kind)


def _plan(members: int, strategy: str) -> GroupPlan:
    seeds = tuple(endpoint_of(index) for index in range(min(3, members)))
    membership = MembershipConfig.lan().with_seeds(*seeds)
    return GroupPlan(
        0,
        names=tuple(f"m{index}" for index in range(members)),
        seeds=seeds,
        starts=(0,) * members,
        config=MemberConfig(membership=membership, ordering=STRATEGIES[strategy]),
        windows=(256,) * members,
        network=NetworkProfile(delay_ns=200 * MICROSECOND, jitter="uniform", jitter_ns=50 * MICROSECOND),
        duration_ns=BOOTSTRAPPED_NS,
        faults=(),
        bursts=(),
    )


def table(costs: list[FrameCost]) -> str:
    heads = ["members", "frames at once", "messages per frame", *STRATEGIES]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    figures = {(c.members, c.at_once, c.messages_per_frame, c.strategy): c.per_message for c in costs}
    for case in product(GROUPS, AT_ONCE, MESSAGES_PER_FRAME):
        costs_of = (f"{figures[*case, strategy]:.3g}" for strategy in STRATEGIES)
        rows.append(f"| {' | '.join([*map(str, case), *costs_of])} |")
    return "\n".join(rows)


def main() -> None:
    costs = [measure(*case) for case in product(GROUPS, STRATEGIES, MESSAGES_PER_FRAME, AT_ONCE)]
    print(json.dumps([asdict(cost) for cost in costs], indent=2) if "--json" in sys.argv[1:] else table(costs))


if __name__ == "__main__":
    main()
