"""Whatever the network does and whenever the application takes a rest: once healed, everybody has everything, once.

Hypothesis draws what members do and what becomes of each frame; the group under test knows nothing of it. The model is
as dumb as can be: the list of what each member sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.effects import BehindPurgePoint
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.multicast import MulticastConfig
from tests.protocol.multicast.link import A, B, C, D, E, Flight, Group

MEMBERS = (A, B, C, D)
NEWCOMER = E


@dataclass(frozen=True, slots=True)
class Send:
    member: int
    sizes: tuple[int, ...]  # of messages that are sent in one call


@dataclass(frozen=True, slots=True)
class Hold:
    member: int


@dataclass(frozen=True, slots=True)
class Release:
    member: int


@dataclass(frozen=True, slots=True)
class Pass:
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Crash:
    member: int


@dataclass(frozen=True, slots=True)
class Install:
    """The member installs the next view that it has not installed yet."""

    member: int


@dataclass(frozen=True, slots=True)
class Join:
    """A newcomer and all living members install one view at the same moment."""


Action = Send | Hold | Release | Pass | Crash | Install | Join

members = st.integers(0, len(MEMBERS) - 1)
calm = st.one_of(
    st.builds(Send, members, st.lists(st.integers(0, 200), min_size=1, max_size=5).map(tuple)),
    st.builds(Hold, members),
    st.builds(Release, members),
    st.builds(Pass, st.sampled_from([0, 1, 2, 15, 40, 700]).map(lambda ms: ms * MILLISECOND)),
)
actions = st.lists(calm, max_size=40)
changes = st.one_of(st.builds(Crash, members), st.builds(Install, members), st.builds(Join))
actions_and_changes = st.lists(st.one_of(calm, calm, changes), max_size=50)
# The extra delay of each copy that arrives: kept, lost, doubled, late by less and by more than a round trip.
fates = st.lists(
    st.sampled_from([(), (0,), (0,), (0, 0), (3 * MILLISECOND,), (0, 80 * MILLISECOND), (100 * MILLISECOND,)]),
    min_size=1,
    max_size=60,
)
capacities = st.lists(st.sampled_from([1, 2, 3, 8]), min_size=len(MEMBERS), max_size=len(MEMBERS))


class World:
    """The group under test, and what each member sent."""

    def __init__(self, capacities: Sequence[int], fates: Sequence[Sequence[int]]) -> None:
        configs = {
            member: MulticastConfig(capacity=capacity, body_bytes=64)
            for member, capacity in zip(MEMBERS, capacities, strict=True)
        }
        self.group = Group(*MEMBERS, configs=configs)
        self.sent: dict[Address, list[bytes]] = {member: [] for member in MEMBERS}
        self.sent_before_join: dict[Address, int] = dict.fromkeys(MEMBERS, 0)
        self._views: list[tuple[Address, ...]] = [MEMBERS]
        self._installed = dict.fromkeys(MEMBERS, 0)  # the index of the view that each member is in
        self._fates = fates
        self._drawn = 0
        self.group.rule(lambda _: True, self._next_fate)

    def act(self, action: Action) -> None:
        match action:
            case Send(number, sizes):
                self.send(MEMBERS[number], sizes)
            case Hold(number):
                self.group.pause(MEMBERS[number])
            case Release(number) if self.is_alive(MEMBERS[number]):
                self.group.resume(MEMBERS[number])
            case Pass(duration_ns):
                self.group.run_for(duration_ns)
            case Crash(number):
                self.crash(MEMBERS[number])
            case Install(number):
                self.install_next(MEMBERS[number])
            case Join():
                self.join()

    def send(self, member: Address, sizes: Sequence[int]) -> None:
        if not self.is_alive(member):
            return
        start = len(self.sent[member])
        messages = [bytes([(start + index) % 256]) * size for index, size in enumerate(sizes)]
        self.sent[member] += messages
        self.group.perform(member, self.group[member].send(messages, self.group.now))

    @property
    def living(self) -> tuple[Address, ...]:
        return tuple(member for member in self._views[0] + (NEWCOMER,) if self.is_alive(member))

    def is_alive(self, member: Address) -> bool:
        return member in self.group.machines and member not in self.group.crashed

    def crash(self, member: Address) -> None:
        """The last two stay; the view without the crashed one waits until each survivor gets to it."""
        if self.is_alive(member) and len(self.living) > 2:
            self.group.crash(member)
            self._views.append(self.living)

    def install_next(self, member: Address) -> None:
        if self.is_alive(member) and self._installed[member] + 1 < len(self._views):
            self._installed[member] += 1
            self.group.install(*self._views[self._installed[member]], at=[member], digest={})

    def catch_up(self) -> None:
        for member in self.living:
            for _ in self._views:
                self.install_next(member)

    def join(self) -> None:
        if NEWCOMER in self.group.machines:
            return
        self.catch_up()
        self.group.start(NEWCOMER, MulticastConfig(capacity=2, body_bytes=64))
        self.sent[NEWCOMER] = []
        self.sent_before_join = {member: len(messages) for member, messages in self.sent.items()}
        self._views.append(self.living)
        self._installed |= dict.fromkeys(self.living, len(self._views) - 1)
        self.group.install(*self.living)

    def heal(self) -> None:
        """Nothing is lost or held any more; a last message of everybody also tells what became stable meanwhile."""
        self.group.heal()
        self.catch_up()
        for member in self.living:
            self.group.resume(member)
            self.send(member, [1])

    def _next_fate(self, _: Flight) -> Sequence[int]:
        self._drawn += 1
        return self._fates[self._drawn % len(self._fates)]


@given(capacities=capacities, fates=fates, actions=actions)
def test_after_any_faults_and_rests_everybody_delivers_everything_once_in_order_and_falls_silent(
    capacities: list[int], fates: list[tuple[int, ...]], actions: list[Action]
) -> None:
    world = World(capacities, fates)
    for action in actions:
        world.act(action)
    world.heal()
    group = world.group
    group.run_until_quiet(120 * SECOND)
    for member in MEMBERS:
        for sender in MEMBERS:
            assert group.inbox(member, sender) == world.sent[sender], f"{sender} at {member}"
        assert group.sender(member).is_drained
        assert group[member].buffered_frames == 0
    datagrams = len(group.log)
    for member in MEMBERS:
        assert group[member].next_deadline() is None
        assert group[member].tick(group.now + 60 * SECOND) == []
    assert len(group.log) == datagrams


@given(capacities=capacities, fates=fates, actions=actions)
def test_at_any_moment_what_was_delivered_is_a_beginning_of_what_was_sent_and_memory_is_bounded(
    capacities: list[int], fates: list[tuple[int, ...]], actions: list[Action]
) -> None:
    world = World(capacities, fates)
    for action in actions:
        world.act(action)
        for member, capacity in zip(MEMBERS, capacities, strict=True):
            assert world.group[member].buffered_frames <= len(MEMBERS) * capacity
            for sender in MEMBERS:
                inbox = world.group.inbox(member, sender)
                assert inbox == world.sent[sender][: len(inbox)]


@given(capacities=capacities, fates=fates, actions=actions_and_changes)
def test_through_crashes_joins_and_views_that_come_late_survivors_deliver_all_of_each_other(
    capacities: list[int], fates: list[tuple[int, ...]], actions: list[Action]
) -> None:
    world = World(capacities, fates)
    for action in actions:
        world.act(action)
    world.heal()
    group = world.group
    group.run_until_quiet(120 * SECOND)
    for member in world.living:
        assert group.effects(member, BehindPurgePoint) == []
        for sender, sent in world.sent.items():
            inbox = group.inbox(member, sender)
            if member == NEWCOMER:  # what was in flight when it came may or may not be its business
                since = sent[world.sent_before_join[sender] :] if sender in world.living else []
                assert inbox[len(inbox) - len(since) :] == since
            elif sender in world.living:
                assert inbox == sent, f"{sender} at {member}"
            else:  # of a crashed sender, a beginning: what survivors owe each other of it is for the flush to settle
                assert inbox == sent[: len(inbox)]
        assert group.sender(member).is_drained
