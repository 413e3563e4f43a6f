"""The scenario `state`: holders of the application's state are cut off, crash, and meet members that never received it.

at every moment   no member without the state provides it; no state is replaced by one that does not extend it; no
                  member delivers from the log without the state before it; a view in which no member has the state
                  reports so, and is not primary
at the end        all live members have one state, which extends each of theirs; or no member has the state, no live
                  process has all of it, and every member was notified. Then one member resets the state, and all
                  receive it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND
from motet.protocol.member import Member, MemberConfig
from motet.protocol.membership import MembershipConfig
from motet.protocol.ordering import OrderingConfig
from motet.sim.checkers.channels import Violation
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import GroupFault, GroupFaultKind, GroupPlan, endpoint_of
from motet.sim.scenarios.membership import TIMEOUT_NS, MembershipWorld, run_world
from motet.sim.world.group_host import GroupHost
from motet.sim.world.network import NetworkProfile
from motet.sim.world.plan import Burst
from motet.sim.world.state_host import StateHost
from motet.sim.world.transcript import Transcript

_GATHERED_NS = 1 * SECOND
_RESTART_NS = 500 * MILLISECOND
_FAULTS = (
    *[GroupFaultKind.PARTITION] * 5,
    *[GroupFaultKind.ISOLATE] * 3,
    *[GroupFaultKind.CRASH] * 2,
    *[GroupFaultKind.RESTART] * 3,
)


class StateWorld(MembershipWorld):
    def __init__(self, plan: GroupPlan, transcript: Transcript | None, trace: Emit | None = None) -> None:
        super().__init__(plan, transcript, trace)
        self._broken: list[Violation] = []
        self._losses = 0
        self._refused = 0
        self._is_reset = False

    def run(self) -> list[Violation]:
        self._plan_starts()
        self._plan_events()
        self.scheduler.run_until(self.plan.duration_ns)
        self._heal()
        unmet = self._wait(self._unmet, TIMEOUT_NS)
        if not unmet:
            self._broken += self._check_loss()
            unmet = self._reset() or self._probe()
        return self._broken + self._check(unmet) + list(self._check_states())

    def _make_host(self, member: Member) -> GroupHost:
        host = StateHost(member, self._context, self._rng, self._home, self._watch, self._broken.append, self._give_up)
        host.is_prompt, host.may_shrink = self._is_healed, self._is_reset
        return host

    def _give_up(self, host: StateHost) -> None:
        """Leave and restart, as a member does to which every provider refused the state."""
        self._refused += 1
        self.scheduler.after(0, host.leave)
        self._plan_start(self.plan.names.index(host.address.name), _RESTART_NS)

    def _burst(self, burst: Burst) -> Callable[[], None]:
        def act() -> None:
            host = self._living(burst.who)
            if host is not None and not host.is_leaving:
                host.multicast_ordered([self._payload(host.address, size) for size in burst.sizes])

        return act

    def _heal(self) -> None:
        super()._heal()
        for host in self._hosts:
            host.is_prompt = True

    @property
    def _hosts(self) -> list[StateHost]:
        return [host for host in self._staying if isinstance(host, StateHost)]

    # While it runs

    def _watch(self, host: GroupHost) -> None:
        super()._watch(host)
        if not isinstance(host, StateHost) or not host.is_alive or host.is_leaving:
            return
        is_lost = host.member.membership.is_state_lost and not host.member.membership.is_holder_again
        if is_lost and host.member.view.id not in host.lost_in:
            what = f"nobody in {host.member.view} has the state, and {host.address} was not notified"
            self._broken.append(Violation("state", what))

    # Results

    def _unsettled(self, host: GroupHost) -> Iterator[str]:
        """As in `membership`, but a view without the state counts as settled, too."""
        membership = host.member.membership
        yield from (what for what in super()._unsettled(host) if not self._is_excused(host, what))
        if membership.is_holder_again:
            yield f"{host.address} could give the state, and was not asked"
        elif membership.is_waiting_for_state and not membership.is_state_lost:
            yield f"{host.address} still waits for the state"

    def _is_excused(self, host: GroupHost, what: str) -> bool:
        """A process that gave up and restarted has lost its durable state, although this is not in the plan."""
        if "no durable state was lost" in what:
            return self._refused > 0
        return host.member.membership.is_state_lost and "never got the state" in what

    def _check_loss(self) -> Iterator[Violation]:
        """If any member reports the state as lost, no live member may have all of it."""
        if not any(host.member.membership.is_state_lost for host in self._hosts):
            return
        self._losses += 1
        for host in self._hosts:
            if not host.lacks_state:
                yield Violation("state", f"{host.address} has the state, and others report it as lost")

    def _reset(self) -> list[str]:
        lost = [host for host in self._hosts if host.member.membership.is_state_lost]
        if not lost:
            return []
        self._is_reset = True
        for host in self._hosts:
            host.may_shrink = True
        chosen = Random(f"anew {self.plan.seed}").choice(lost)
        chosen.note("resets the state")
        chosen.do(chosen.member.begin_state_anew)
        return self._wait(self._unmet_after_reset, TIMEOUT_NS)

    def _unmet_after_reset(self) -> Iterator[str]:
        yield from self._unmet()
        yield from (f"{host.address} lacks the state" for host in self._hosts if host.lacks_state)

    def _check_states(self) -> Iterator[Violation]:
        """All members of one primary view have the same state."""
        hosts = [host for host in self._hosts if host.member.view.is_primary]
        for host in hosts[1:]:
            if (host.origin, host.applied) != (hosts[0].origin, hosts[0].applied):
                yield Violation("state", f"{host.address} and {hosts[0].address} have different states at the end")

    def stats(self) -> dict[str, int]:
        received = len(self.history.received)
        notified = sum(len(host.lost_in) for host in self._processes if isinstance(host, StateHost))
        return super().stats() | {
            "states": received,
            "losses": self._losses,
            "refused": self._refused,
            "lost_views": notified,
        }


def draw_state_plan(seed: int) -> GroupPlan:
    rng = Random(f"state plan {seed}")
    members = rng.choice([3, 3, 4, 4, 5])
    seeds = tuple(endpoint_of(index) for index in range(min(members, 3)))
    base = MembershipConfig.local().with_seeds(*seeds)
    transfer = replace(base.transfer, wants_state=True, needs_state=True, chunk_bytes=rng.choice([50, 500, 32_000]))
    config = MemberConfig(
        frame_bytes=1_400, membership=replace(base, transfer=transfer), ordering=OrderingConfig(fast_path_members=0)
    )
    duration_ns = rng.randrange(5 * SECOND, 10 * SECOND)
    return GroupPlan(
        seed,
        names=tuple("abcde"[:members]),
        seeds=seeds,
        starts=_draw_starts(rng, members),
        config=config,
        windows=(64,) * members,
        network=NetworkProfile(
            delay_ns=rng.randrange(50 * MICROSECOND, MILLISECOND), loss=rng.choice([0.0, 0.0, 0.05])
        ),
        duration_ns=duration_ns,
        faults=tuple(sorted(_draw_faults(rng, members, duration_ns), key=lambda fault: fault.at)),
        bursts=_draw_bursts(rng, members, duration_ns),
    )


def _draw_starts(rng: Random, members: int) -> tuple[int, ...]:
    """Two start at once to bootstrap the group; the others join during the faults."""
    late = (rng.randrange(_GATHERED_NS, 4 * SECOND) for _ in range(members - 2))
    return (0, MILLISECOND, *late)


def _draw_faults(rng: Random, members: int, duration_ns: int) -> Iterator[GroupFault]:
    for _ in range(rng.choice([2, 3, 4, 6])):
        kind = rng.choice(_FAULTS)
        shortest_ns = 0 if kind is GroupFaultKind.RESTART else 500 * MILLISECOND
        yield GroupFault(
            rng.randrange(_GATHERED_NS, duration_ns),
            kind,
            rng.randrange(members),
            lasts_ns=rng.randrange(shortest_ns, 3 * SECOND),
            sides=tuple(rng.randrange(3) for _ in range(members)) if kind is GroupFaultKind.PARTITION else (),
        )


def _draw_bursts(rng: Random, members: int, duration_ns: int) -> tuple[Burst, ...]:
    bursts = [
        Burst(rng.randrange(duration_ns), rng.randrange(members), None, (40,) * rng.choice([1, 1, 3]))
        for _ in range(rng.choice([3, 15, 30]))
    ]
    return tuple(sorted(bursts, key=lambda burst: burst.at))


def run_state(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    return run_world(StateWorld, draw_state_plan(seed), with_transcript, trace)
