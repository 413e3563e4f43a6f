"""Whatever the link does, and whatever is opened and closed meanwhile: after it heals, all is there, once, in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st

from motet.protocol.core.counters import Counters
from motet.protocol.core.effects import Frame, SendFailed, SyncCompleted, SyncFailed
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.unicast import Unicast, UnicastConfig
from motet.protocol.wire.body import pack
from motet.protocol.wire.frames import (
    Close,
    Sync,
    SyncAck,
    SyncOk,
    UnicastAck,
    UnicastData,
    UnicastPurged,
    UnicastXmitRequest,
)
from tests.protocol.unicast.link import A, B, C, Link, everything

MEMBERS = (A, B, C)
LARGE_BYTES = 150  # three fragments in the small bodies below

REPAIR_NS = 20 * SECOND  # no outage below lasts longer than a few seconds, so neither does its repair
FAR_FUTURE_NS = 600 * SECOND


class World:
    """A link, and beside it the dumb model: per pair, the list of what was accepted."""

    def __init__(self, config: UnicastConfig, *, batching: bool) -> None:
        self.link = Link(*MEMBERS, config=config, batching=batching)
        self.accepted: dict[tuple[Address, Address], list[bytes]] = defaultdict(list)
        self.asked: Counter[tuple[Address, Address]] = Counter()  # how often a SYNC was asked for

    def send(self, source: Address, to: Address, count: int, size: int) -> None:
        box = self.accepted[source, to]
        messages = [f"{len(box) + index} ".encode().ljust(size, b".") for index in range(count)]
        self.link.perform(source, self.link[source].send(to, messages, self.link.now))
        box.extend(messages)

    def close(self, member: Address, peer: Address) -> None:
        self.link.perform(member, self.link[member].close(peer, self.link.now))

    def close_receiver(self, member: Address, peer: Address) -> None:
        self.link.perform(member, self.link[member].close_receiver(peer, self.link.now))

    def sync(self, member: Address, peer: Address) -> None:
        if self.link[member].receiver(peer) is not None:
            self.asked[member, peer] += 1
            self.link.perform(member, self.link[member].sync(peer, self.link.now))

    def pause(self, member: Address) -> None:
        self.link[member].pause()

    def resume(self, member: Address) -> None:
        self.link.perform(member, self.link[member].resume(self.link.now))

    def tick(self, member: Address) -> None:
        """Ticks that nobody asked for do no harm."""
        self.link.perform(member, self.link[member].tick(self.link.now))

    def heal(self) -> None:
        self.link.heal()
        for member in MEMBERS:
            self.resume(member)


@dataclass(frozen=True)
class Step:
    """One thing that happens; its repr is the line of a failing example."""

    name: str
    arguments: tuple[Address | int, ...]

    def __call__(self, world: World) -> None:
        if self.name == "run":
            (milliseconds,) = self.arguments
            assert isinstance(milliseconds, int)
            world.link.run_for(milliseconds * MILLISECOND)
            return
        method: Callable[..., None] = getattr(world, self.name)
        method(*self.arguments)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(str(getattr(value, 'name', value)) for value in self.arguments)})"


member = st.sampled_from(MEMBERS)
pair = st.sampled_from([(A, B), (A, B), (A, B), (B, A), (A, C), (C, B), (A, A)])  # much happens to one
size = st.sampled_from([8, 8, LARGE_BYTES])

sends = st.builds(lambda to, count, size: Step("send", (*to, count, size)), pair, st.integers(1, 6), size)
calls = st.builds(lambda name, to: Step(name, to), st.sampled_from(["close", "close_receiver", "sync"]), pair)
reverse_calls = st.builds(lambda name, to: Step(name, to[::-1]), st.sampled_from(["close_receiver", "sync"]), pair)
pauses = st.builds(lambda name, who: Step(name, (who,)), st.sampled_from(["pause", "resume", "tick"]), member)
runs = st.builds(lambda ms: Step("run", (ms,)), st.sampled_from([0, 1, 2, 5, 20, 35, 60, 150, 250, 600]))
steps = st.lists(st.one_of(sends, sends, runs, runs, calls, reverse_calls, pauses), min_size=8, max_size=50)

delays = st.sampled_from([0, 0, 0, 1, 3, 10, 40, 70, 300, 1_500])
fate = st.one_of(st.just([0]), st.just([0]), st.lists(delays, max_size=3))  # how late each copy of a frame arrives
fates = st.lists(fate, min_size=1, max_size=60)  # for one frame after the other, then from the start again

configs = st.builds(
    lambda capacity, expiry: UnicastConfig(
        capacity=capacity,
        body_bytes=64,
        conn_expiry_ns=expiry,
        conn_close_ns=100 * MILLISECOND,
        sync_timeout_ns=SECOND,
        remembered_peers=8,
    ),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([0, 300 * MILLISECOND, 60 * SECOND]),
)


def play(world: World, story: Sequence[Step], fates: Sequence[Sequence[int]]) -> None:
    turns = cycle(fates)
    world.link.rule(everything, lambda _: [delay * MILLISECOND for delay in next(turns)])
    for step in story:
        step(world)


@settings(max_examples=300)
@given(config=configs, story=steps, fates=fates, batching=st.booleans())
def test_whatever_the_link_does_after_it_heals_all_that_was_accepted_is_delivered_in_order_once_and_then_it_is_quiet(
    config: UnicastConfig, story: list[Step], fates: list[list[int]], batching: bool
) -> None:
    world = World(config, batching=batching)
    link = world.link
    play(world, story, fates)
    world.heal()
    link.run_for(REPAIR_NS)

    for (source, to), messages in world.accepted.items():
        assert link.inbox(to, source) == messages, f"{source.name} to {to.name}"
        sender = link[source].sender(to)
        assert sender is None or (sender.is_flushed and not sender.is_syncing)
    assert not any(isinstance(effect, SendFailed) for told in link.told.values() for effect in told)
    assert [link[each].buffered_frames for each in MEMBERS] == [0, 0, 0]
    assert not any(link[one].is_syncing(other) for one in MEMBERS for other in MEMBERS)
    for (one, other), times in world.asked.items():
        ended = [e for e in link.told[one] if isinstance(e, SyncCompleted | SyncFailed) and e.peer == other]
        assert 1 <= len(ended) <= times, "whoever asks for a SYNC is notified of its end"

    sent = len(link.log)
    link.run_for(FAR_FUTURE_NS)
    assert all(isinstance(flight.frame, Close) for flight in link.log[sent:])
    assert [link[each].next_deadline() for each in MEMBERS] == [None, None, None]


@settings(max_examples=50)
@given(config=configs, story=steps, fates=fates)
def test_at_every_moment_what_was_delivered_is_a_prefix_of_what_was_accepted(
    config: UnicastConfig, story: list[Step], fates: list[list[int]]
) -> None:
    world = World(config, batching=True)
    turns = cycle(fates)
    world.link.rule(everything, lambda _: [delay * MILLISECOND for delay in next(turns)])
    for step in story:
        step(world)
        for (source, to), messages in world.accepted.items():
            inbox = world.link.inbox(to, source)
            assert inbox == messages[: len(inbox)], f"{source.name} to {to.name} after {step}"
        bound = 2 * len(MEMBERS) * config.capacity + len(MEMBERS) * config.capacity
        assert all(world.link[each].buffered_frames <= bound for each in MEMBERS)


@settings(max_examples=30)
@given(config=configs, story=steps, fates=fates)
def test_the_same_story_gives_the_same_frames_at_the_same_times(
    config: UnicastConfig, story: list[Step], fates: list[list[int]]
) -> None:
    one, other = World(config, batching=True), World(config, batching=True)
    for world in (one, other):
        play(world, story, fates)
    assert one.link.log == other.link.log


conn_ids = st.one_of(st.integers(99, 105), st.sampled_from([0, 1 << 31, (1 << 32) - 1]))  # A's own begin at 101
seqnos = st.one_of(st.integers(0, 12), st.just((1 << 63) - 1))
spans = st.tuples(st.integers(1, 12), st.integers(0, 1 << 40)).map(lambda span: ((span[0], span[0] + span[1]),))
nonsense = st.one_of(
    st.builds(UnicastData, conn_ids, st.booleans(), seqnos, st.just(pack([b"x"]))),
    st.builds(UnicastAck, conn_ids, seqnos),
    st.builds(UnicastXmitRequest, conn_ids, spans),
    st.builds(UnicastPurged, conn_ids, seqnos),
    st.builds(Close, conn_ids),
    st.builds(Sync, conn_ids, conn_ids),
    st.builds(SyncOk, conn_ids, conn_ids, seqnos),
    st.builds(SyncAck, conn_ids),
)
batches = st.lists(st.tuples(member, st.lists(nonsense, min_size=1, max_size=6), st.integers(0, 2_000)), max_size=25)


@settings(max_examples=200)
@given(story=batches)
def test_whatever_frames_a_peer_sends_nothing_raises_and_memory_stays_bounded(
    story: list[tuple[Address, list[Frame], int]],
) -> None:
    config = UnicastConfig(capacity=4, max_peers=2, remembered_peers=1, conn_expiry_ns=SECOND, conn_close_ns=SECOND)
    unicast = Unicast(A, config, Counters(), 100)
    now = 0
    for source, frames, pause_ms in story:
        if unicast.sender(B) is None:
            for _ in range(6):
                unicast.send(B, [b"x"], now)
        now += pause_ms * MILLISECOND
        answers = unicast.receive(source, frames, now) + unicast.tick(now)
        assert len(answers) <= 40 + len(frames) * config.request_limit
        unicast._check()
        assert unicast.buffered_frames <= 3 * config.max_peers * config.capacity
        due = unicast.next_deadline()
        assert due is None or due > now
