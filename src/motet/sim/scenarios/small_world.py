"""The scenario `small-world`: four members, every kind of change, and one fault at every step of the change.

A change runs once without faults, to count the control frames of membership that are sent until all members have
settled. Each of these frames is a step. Then the same world runs once for every step and every fault, and the fault
strikes just before the frame of that step is sent:

    crash   one of the processes crashes and does not restart
    cut     one direction or both directions between two processes are cut for three seconds

Each combination is a case, and the number of the case takes the place of the seed. The network loses nothing and has a
delay of one millisecond. All members multicast regularly, and one member at every third frame of a view change, so that
messages are always in flight that a flush could lose.

At the end all live members must be in one view of exactly these members, at rest, and primary if it contains a majority
of the last primary view that its members know of. All members of one view must have delivered the same messages.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from motet.errors import ConfigError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.trace import Emit
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import NO_VIEW, View
from motet.protocol.member import Member, MemberConfig
from motet.protocol.membership import DetectorConfig, DiscoveryConfig, EngineConfig, MembershipConfig
from motet.protocol.multicast import MulticastConfig
from motet.protocol.wire.codec import encode, group_id
from motet.protocol.wire.frames import Heartbeat, IAmAlive
from motet.sim.checkers.channels import Violation, violation_of
from motet.sim.checkers.views import check_self_delivery, check_views, paths_of
from motet.sim.scenarios.channels import SeedOutcome
from motet.sim.scenarios.group_plan import endpoint_of
from motet.sim.scenarios.small_cases import CHANGES, NAMES, GroupChange, InjectedFault, SmallWorldCase, faults_of
from motet.sim.world.group_host import GroupHost
from motet.sim.world.history import DeliveredBatch, EnteredView, History
from motet.sim.world.host import HostContext
from motet.sim.world.network import Link, Network, NetworkProfile
from motet.sim.world.scheduler import Scheduler
from motet.sim.world.transcript import Transcript

GROUP = "small-world"
ADDRESSES = {name: Address(name, *endpoint_of(index), (index + 1) << 48) for index, name in enumerate(NAMES)}
HOMES = {address.endpoint: address for address in ADDRESSES.values()}
NETWORK = NetworkProfile(delay_ns=MILLISECOND)
CUT_NS = 3 * SECOND
WARM_UP_NS = 50 * MILLISECOND  # messages are in flight when the change begins
PACE_NS = 200 * MILLISECOND  # the interval between two multicasts
POLL_NS = 20 * MILLISECOND  # the interval at which conditions are checked
TIMEOUT_NS = 30 * SECOND  # limit for reaching one group at rest, and again for delivering one message of each member

# The LAN preset with half of its timeouts: a cut lasts longer than every timeout.
MEMBERSHIP = replace(
    MembershipConfig.lan(),
    discovery=DiscoveryConfig(eager_ns=100 * MILLISECOND, probe_ns=500 * MILLISECOND),
    detector=DetectorConfig(300 * MILLISECOND, 600 * MILLISECOND, 200 * MILLISECOND, verify_attempts=2),
    engine=EngineConfig(retry_ns=50 * MILLISECOND, answer_ns=250 * MILLISECOND),
    timeout_ns=500 * MILLISECOND,
    bootstrap_after_ns=600 * MILLISECOND,
).with_seeds(*(ADDRESSES[name].endpoint for name in "abc"))  # d is discovered because it contacts the others
CONFIG = MemberConfig(frame_bytes=1_400, multicast=MulticastConfig(capacity=4), membership=MEMBERSHIP)

_KIND_AT = 3  # the index of the byte of a datagram that is the kind of its frame
# The kinds of membership frames are numbered above those of the channels.
_FIRST_OF_MEMBERSHIP = encode(0, 1, 0, Heartbeat())[_KIND_AT]
_LAST_SIGN_OF_LIFE = encode(0, 1, 0, IAmAlive())[_KIND_AT]


def case_count() -> int:
    return sum(steps_of(change) * len(faults_of(change)) for change in CHANGES)


def case_of(number: int) -> SmallWorldCase:
    rest = number
    for change in CHANGES:
        faults = faults_of(change)
        if rest < steps_of(change) * len(faults):
            return SmallWorldCase(number, change, 1 + rest // len(faults), faults[rest % len(faults)])
        rest -= steps_of(change) * len(faults)
    raise ConfigError(f"case {number} is beyond the last one; there are {case_count()} cases, counted from 0")


@cache
def steps_of(change: GroupChange) -> int:
    """The number of control frames that are sent in a change without faults until all members have settled."""
    world = SmallWorld(at_rest(change.parts), None)
    world.begin(change)
    world.settle()
    return world.steps


@dataclass(frozen=True, slots=True)
class Rest:
    """Members at rest, with nothing in flight. Unpickling them is faster than letting them discover each other
    again.
    """

    now: int = 0
    members: bytes = pickle.dumps([])
    cuts: tuple[Link, ...] = ()


@cache
def at_rest(parts: tuple[str, ...]) -> Rest:
    world = SmallWorld(Rest(), None)
    everybody = "".join(parts)
    for name in everybody:
        world.start(name)
    world.settle()
    cuts = tuple((one, other) for part in parts for one in part for other in everybody if other not in part)
    world.network.cut(list(cuts))
    world.settle(parts)
    sent = -1
    while sent != world.network.sent:  # until no datagram was sent recently, so that none is in flight
        sent = world.network.sent
        world.scheduler.run_until(world.scheduler.now + POLL_NS)
    return Rest(world.scheduler.now, pickle.dumps([host.member for host in world.hosts.values()]), cuts)


class SteppedHost(GroupHost):
    """Reports every control frame before it is sent. A process that crashes at that moment performs no further
    effect.
    """

    def __init__(self, member: Member, world: SmallWorld) -> None:
        super().__init__(member, world.context, Random(f"host {member.address}"), HOMES.__getitem__)
        self._on_step = world.on_step

    def go_on(self) -> None:
        """Continue as a member that was already running."""
        self._enter(self.member.view, ())
        self._plan_wake()

    def _make_real(self, effect: Effect) -> list[Effect]:
        return super()._make_real(effect) if self.is_alive else []

    def _transmit(self, to: Address, data: bytes) -> None:
        if data[_KIND_AT] >= _FIRST_OF_MEMBERSHIP:
            self._on_step(is_changing=data[_KIND_AT] > _LAST_SIGN_OF_LIFE)
        if self.is_alive:
            super()._transmit(to, data)


class SmallWorld:
    def __init__(self, rest: Rest, transcript: Transcript | None, trace: Emit | None = None) -> None:
        self.scheduler = Scheduler()
        self.scheduler.now = rest.now
        self.history = History()
        self.network = Network(self.scheduler, Random(GROUP), NETWORK)
        self.network.cut(list(rest.cuts))
        self.context = HostContext(self.scheduler, self.network, self.history, transcript, self._find, trace)
        self.hosts: dict[str, SteppedHost] = {}
        self.steps = 0
        self._cuts = rest.cuts
        self._transcript = transcript
        self._case: SmallWorldCase | None = None
        self._struck_at: int | None = None
        self._is_talking = False
        self._said = 0
        for member in pickle.loads(rest.members):
            self._add(member).go_on()

    def run(self, case: SmallWorldCase) -> list[Violation]:
        self._case = case
        self.begin(case.change)
        self._wait(self._not_struck, TIMEOUT_NS)
        if self._struck_at is not None and case.fault.links:
            self.scheduler.run_until(self._struck_at + CUT_NS)
            self._note("the cut ends")
            self.network.mend(list(case.fault.links))
        unmet = [*self._not_struck()] or self._wait(self.unsettled, TIMEOUT_NS) or self._probe()
        violations = check_views(self.history) + [Violation("liveness", what) for what in unmet]
        return violations or [*self._check_last_view(), *check_self_delivery(self.history)]

    # Events

    def begin(self, change: GroupChange) -> None:
        self._is_talking = True
        self._talk()
        self.scheduler.run_until(self.scheduler.now + WARM_UP_NS)
        self._note(f"{change.name} begins")
        self.steps = 0
        self.network.mend(list(self._cuts))
        for name in change.starts:
            self.start(name)
        for name in change.leaves:
            self.hosts[name].leave()
        for name in change.crashes:
            self.hosts[name].crash()

    def start(self, name: str) -> None:
        address = ADDRESSES[name]
        self._add(Member(address, GROUP, CONFIG, Random(f"member {address}"))).begin()

    def _add(self, member: Member) -> SteppedHost:
        host = self.hosts[member.address.name] = SteppedHost(member, self)
        return host

    def _find(self, address: Address) -> SteppedHost | None:
        return self.hosts.get(address.name)

    def on_step(self, *, is_changing: bool) -> None:
        self.steps += 1
        if self._case is not None and self._struck_at is None and self.steps == self._case.step:
            self._strike(self._case.fault)
        if is_changing and self.steps % 3 == 0:
            self.scheduler.after(0, self._speak)

    def _strike(self, fault: InjectedFault) -> None:
        self._struck_at = self.scheduler.now
        self._note(f"fault: {fault}")
        self.network.cut(list(fault.links))
        if fault.crash:
            self.hosts[fault.crash].crash()

    def _talk(self) -> None:
        if self._is_talking:
            self._speak()
            self.scheduler.after(PACE_NS, self._talk)

    def _speak(self) -> None:
        """All members multicast in turn."""
        if self._is_talking and self.staying:
            self._say(self.staying[self._said % len(self.staying)])

    def _say(self, host: SteppedHost) -> None:
        self._said += 1
        host.multicast([f"{host.address.name} says {self._said}".encode()])

    def _note(self, text: str) -> None:
        if self._transcript is not None:
            self._transcript.note(self.scheduler.now, text)

    # Conditions

    @property
    def staying(self) -> list[SteppedHost]:
        return [host for host in self.hosts.values() if host.is_alive and not host.is_leaving]

    def settle(self, parts: tuple[str, ...] = (NAMES,)) -> None:
        """Settle without faults: if this fails, no case with a fault is meaningful."""
        if unmet := self._wait(lambda: self.unsettled(parts), TIMEOUT_NS):
            raise RuntimeError(f"without any fault: {'; '.join(unmet)}")

    def _wait(self, unmet: Callable[[], Iterator[str]], timeout_ns: int) -> list[str]:
        """Run until every condition is met or the timeout expires. Returns the conditions still unmet."""
        deadline = self.scheduler.now + timeout_ns
        while self.scheduler.now < deadline and next(unmet(), None) is not None:
            self.scheduler.run_until(self.scheduler.now + POLL_NS)
        return list(unmet())

    def _not_struck(self) -> Iterator[str]:
        if self._struck_at is None:
            yield "the step at which the fault was to strike was never reached"

    def unsettled(self, parts: tuple[str, ...] = (NAMES,)) -> Iterator[str]:
        """The conditions that are unmet before the remaining members, or each part of them, are one view at rest."""
        yield from (f"{host.address} never left" for host in self.hosts.values() if host.is_alive and host.is_leaving)
        for part in parts:
            here = [host for host in self.staying if host.address.name in part]
            for host in here:
                view = host.member.view
                if set(view.members) != {other.address for other in here} or view != here[0].member.view:
                    yield f"{host.address} is in {view}"
                elif not host.member.is_settled:
                    yield f"{host.address} is still changing {view}"
                elif not view.is_primary and self._can_be_primary(view):
                    yield f"{host.address} is in {view}, which could be primary"

    def _can_be_primary(self, view: View) -> bool:
        """Whether it contains a majority of the last primary view that a member of it installed, and of all later
        ones.
        """
        entered = [e for e in self.history.events if isinstance(e, EnteredView) and e.view.is_primary]
        last = max((event.view.id for event in entered if event.member in view), default=NO_VIEW)
        return all(self._holds_majority(view, event.view) for event in entered if event.view.id >= last)

    def _holds_majority(self, view: View, base: View) -> bool:
        counted = [member for member in base.members if not self.hosts[member.name].has_left]
        present = [member for member in counted if member in view]
        return 2 * len(present) > len(counted) or (2 * len(present) == len(counted) and present[:1] == counted[:1])

    def _probe(self) -> list[str]:
        """One message of each member reaches all members. A late suspicion may still change the view."""
        self._is_talking = False
        for host in self.staying:
            self._say(host)
        return self._wait(self._unsettled_or_undrained, TIMEOUT_NS)

    def _unsettled_or_undrained(self) -> Iterator[str]:
        yield from self.unsettled()
        for host in self.staying:
            if not host.member.multicast.sender.is_drained:
                yield f"{host.address} is not drained: {host.member.multicast.sender.window}"

    def _check_last_view(self) -> Iterator[Violation]:
        """All members have delivered the same messages in the last view, which no flush ends."""
        paths = paths_of(self.history)
        first, *others = [(host.address, paths[host.address][-1].by_sender()) for host in self.staying]
        for address, delivered in others:
            if delivered != first[1]:
                yield Violation("liveness", f"{address} and {first[0]} did not deliver the same in their last view")

    def stats(self) -> dict[str, int]:
        events = self.history.events
        return {
            "members": len(self.hosts),
            "accepted": sum(map(len, self.history.accepted.values())),
            "delivered": sum(len(event.messages) for event in events if isinstance(event, DeliveredBatch)),
            "datagrams": self.network.sent,
            "resent": sum(host.member.counters[Count.FRAME_RESENT] for host in self.hosts.values()),
            "faults": 1,
            "virtual_ms": self.scheduler.now // MILLISECOND,
            "views": len({event.view.id for event in events if isinstance(event, EnteredView)}),
        }


def run_small_world(seed: int, *, with_transcript: bool = False, trace: Emit | None = None) -> SeedOutcome:
    case = case_of(seed)
    transcript = Transcript(group_id(GROUP)) if with_transcript else None
    world = SmallWorld(at_rest(case.change.parts), transcript, trace)
    try:
        violations = world.run(case)
    except Exception as error:  # the transcript shows what led to it
        violations = [violation_of(error)]
    lines: list[str] = []
    if transcript is not None:
        lines = [f"case {seed}: {case}", *transcript.lines, *(f"VIOLATION {violation}" for violation in violations)]
    return SeedOutcome(seed, tuple(violations), world.stats(), world.history.fingerprint(), tuple(lines))
