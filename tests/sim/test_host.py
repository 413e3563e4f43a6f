"""One simulated process: what pausing, crashing, a bad clock and a slow application do to a member."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MICROSECOND, MILLISECOND, SECOND
from motet.protocol.member import Member, MemberConfig
from motet.protocol.unicast import UnicastConfig
from motet.protocol.wire.codec import group_id
from motet.sim.world.history import DeliveredBatch, ForgotSender, History, MessageStream
from motet.sim.world.host import SOCKET_BUFFER_DATAGRAMS, Host, HostContext
from motet.sim.world.network import HEALTHY, Network
from motet.sim.world.scheduler import Scheduler
from motet.sim.world.transcript import Transcript

GROUP = "test"
SMALL = MemberConfig(frame_bytes=256, unicast=UnicastConfig(capacity=4, backlog_bytes=1_000, conn_expiry_ns=0))
DRIFT_LIMIT = 200e-6


class World:
    """Some processes that know one another, on a healthy network."""

    def __init__(self, names: str = "ab", *, seed: int = 1, config: MemberConfig = SMALL, remembers: bool = True):
        rng = Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, rng, HEALTHY)
        self.history = History(remembers=remembers)
        self.transcript = Transcript(group_id(GROUP))
        context = HostContext(self.scheduler, self.network, self.history, self.transcript, self._find)
        self.hosts: dict[str, Host] = {}
        for port, name in enumerate(names):
            member = Member(Address.draw(name, "127.0.0.1", 7800 + port, rng), GROUP, config, rng)
            self.hosts[name] = Host(member, context, rng)
        for host in self.hosts.values():
            for other in self.hosts.values():
                host.member.learn(other.address)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def _find(self, address: Address) -> Host | None:
        return next((host for host in self.hosts.values() if host.address == address), None)

    def send(self, source: str, to: str, *messages: bytes) -> None:
        self[source].send(self[to].address, list(messages))

    def run(self, duration_ns: int) -> None:
        self.scheduler.run_until(self.scheduler.now + duration_ns)

    def accepted(self, source: str, to: str) -> list[bytes]:
        return self.history.accepted.get(MessageStream(Channel.UNICAST, self[source].address, self[to].address), [])

    def delivered(self, to: str) -> list[bytes]:
        address = self[to].address
        batches = [e for e in self.history.events if isinstance(e, DeliveredBatch) and e.receiver == address]
        return [message for batch in batches for message in batch.messages]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """What is handed to any member, one entry per wake-up."""
    seen: list[list[bytes]] = []
    original = Member.receive

    def receive(self: Member, datagrams: list[bytes], now: int, sources: object = None) -> list[Effect]:
        seen.append(datagrams)
        return original(self, datagrams, now)

    monkeypatch.setattr(Member, "receive", receive)
    return seen


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """(the member's time, the deadline that it had named) of each tick."""
    seen: list[tuple[int, int | None]] = []
    original = Member.tick

    def tick(self: Member, now: int) -> list[Effect]:
        seen.append((now, self.next_deadline()))
        return original(self, now)

    monkeypatch.setattr(Member, "tick", tick)
    return seen


def numbered(count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(count)]


# The inbox


def test_a_message_reaches_the_other_process_and_is_recorded() -> None:
    world = World()
    world.send("a", "b", b"one", b"two")
    world.run(SECOND)
    assert world.accepted("a", "b") == world.delivered("b") == [b"one", b"two"]


def test_datagrams_that_arrive_together_are_handed_over_as_one_batch(batches: list[list[bytes]]) -> None:
    world = World()
    for datagram in numbered(5):
        world["b"].arrive(datagram)
    assert batches == []  # the process needs a moment to wake up
    world.run(200 * MICROSECOND)
    assert batches == [numbered(5)]


def test_datagrams_that_arrive_apart_are_handed_over_apart(batches: list[list[bytes]]) -> None:
    world = World()
    for datagram in numbered(3):
        world["b"].arrive(datagram)
        world.run(MILLISECOND)
    assert batches == [[datagram] for datagram in numbered(3)]


# Pauses


def test_a_paused_process_keeps_datagrams_and_gets_them_as_one_batch(batches: list[list[bytes]]) -> None:
    world = World()
    world["b"].pause()
    for datagram in numbered(20):
        world["b"].arrive(datagram)
        world.run(10 * MILLISECOND)
    assert batches == []
    world["b"].resume()
    world.run(MILLISECOND)
    assert batches == [numbered(20)]


def test_a_paused_process_keeps_no_more_datagrams_than_its_socket_does(batches: list[list[bytes]]) -> None:
    world = World()
    world["b"].pause()
    for datagram in numbered(SOCKET_BUFFER_DATAGRAMS + 100):
        world["b"].arrive(datagram)
    world["b"].resume()
    world.run(MILLISECOND)
    assert batches == [numbered(SOCKET_BUFFER_DATAGRAMS)]  # the latest are lost, as in a real socket


def test_datagrams_that_wait_when_the_pause_begins_are_not_lost(batches: list[list[bytes]]) -> None:
    world = World()
    world["b"].arrive(b"before")
    world["b"].pause()
    world.run(SECOND)
    assert batches == []
    world["b"].arrive(b"during")
    world["b"].resume()
    world.run(MILLISECOND)
    assert batches == [[b"before", b"during"]]


def test_a_paused_process_does_not_tick_and_catches_up_when_it_goes_on(ticks: list[tuple[int, int | None]]) -> None:
    world = World()
    world.network.cut([("a", "b")])
    world.send("a", "b", b"unacked")  # arms a timer that is due long before a second has passed
    world["a"].pause()
    world.run(SECOND)
    assert ticks == []
    world["a"].resume()
    assert len(ticks) == 1


def test_the_application_of_a_paused_process_sends_nothing() -> None:
    world = World()
    world["a"].pause()
    world.send("a", "b", b"dropped")
    assert world.network.sent == 0
    assert world.accepted("a", "b") == []


def test_everything_arrives_after_a_pause_on_the_way() -> None:
    world = World()
    messages = [message.ljust(150, b".") for message in numbered(30)]  # one per frame: several windows full
    world.send("a", "b", *messages)
    world.run(MILLISECOND)
    world["b"].pause()
    world.run(SECOND)
    assert 0 < len(world.delivered("b")) < 30
    world["b"].resume()
    world.run(SECOND)
    assert world.delivered("b") == messages


# Crashes


def test_a_crash_loses_what_waits_in_the_inbox(batches: list[list[bytes]]) -> None:
    world = World()
    world["b"].arrive(b"waiting")
    world["b"].crash()
    world.run(SECOND)
    assert batches == []


def test_a_crashed_process_takes_nothing_sends_nothing_and_does_not_tick(
    batches: list[list[bytes]], ticks: list[tuple[int, int | None]]
) -> None:
    world = World()
    world.send("a", "b", b"on the way")
    world["a"].crash()
    sent = world.network.sent
    world["a"].arrive(b"too late")
    world.send("a", "b", b"never accepted")
    world["b"].crash()
    world.run(SECOND)
    assert (batches, ticks) == ([], [])
    assert world.network.sent == sent
    assert world.accepted("a", "b") == [b"on the way"]


def test_a_crash_is_for_good_even_during_a_pause() -> None:
    world = World()
    world["b"].pause()
    world["b"].crash()
    world["b"].resume()
    assert not world["b"].is_alive
    assert not world["b"].is_paused
    assert world.history.dead == {world["b"].address}


def test_an_expelled_process_is_owed_nothing_but_goes_on_speaking() -> None:
    world = World()
    world["a"].expel()
    assert world.history.dead == {world["a"].address}
    world.send("a", "b", b"not yet silent")
    world.run(SECOND)
    assert world.delivered("b") == [b"not yet silent"]


# Clocks


def test_clocks_start_anywhere_and_drift_apart_but_not_far() -> None:
    drifts, starts = set(), set()
    for seed in range(20):
        world = World(seed=seed)
        for host in world.hosts.values():
            start = host.clock
            world.run(1_000 * SECOND)
            drifts.add((host.clock - start) / (1_000 * SECOND) - 1)
            starts.add(start)
    assert len(starts) == len(drifts) == 40
    assert -DRIFT_LIMIT <= min(drifts) < -DRIFT_LIMIT / 2
    assert DRIFT_LIMIT / 2 < max(drifts) <= DRIFT_LIMIT


def test_a_clock_never_runs_backwards() -> None:
    for seed in range(10):
        world = World(seed=seed)
        readings = []
        for _ in range(1_000):
            world.run(1 + seed * 37)
            readings.append(world["a"].clock)
        assert readings == sorted(readings)


def test_a_tick_comes_at_the_deadline_by_the_clock_of_the_process_itself(ticks: list[tuple[int, int | None]]) -> None:
    """Never before it, however slow the crystal, and late by no more than a thousandth of the wait."""
    for seed in range(20):
        world = World(seed=seed)
        world.network.cut([("a", "b")])
        world.send("a", "b", b"unacked")
        world.run(5 * SECOND)
    assert len(ticks) > 20 * 5
    for now, deadline in ticks:
        assert deadline is not None
        assert deadline <= now <= deadline + MILLISECOND


def test_the_transcript_tells_the_time_of_the_world_and_not_of_a_process() -> None:
    world = World()
    world.run(1_500 * MILLISECOND)
    world["a"].note("looks at no clock")
    assert world.transcript.lines == [f"    1500.000 ms  {world['a'].address} looks at no clock"]


# Slow applications


def test_a_slow_application_takes_nothing_and_later_gets_everything_in_order() -> None:
    world = World()
    world["b"].pause_deliveries()
    world.send("a", "b", *numbered(100))
    world.run(5 * SECOND)
    assert world.delivered("b") == []
    world["b"].resume_deliveries()
    world.run(5 * SECOND)
    assert world.delivered("b") == numbered(100)


def test_a_slow_application_pushes_back_until_the_sender_refuses() -> None:
    world = World()
    world["b"].pause_deliveries()
    for message in numbered(40):
        world.send("a", "b", message.ljust(150, b"."))
        world.run(100 * MILLISECOND)
    refused = 40 - len(world.accepted("a", "b"))
    assert refused > 20  # 4 frames in the window, 1,000 bytes in the backlog, the rest was never accepted
    assert world["a"].most_buffered == world["b"].most_buffered == SMALL.unicast.capacity
    world["b"].resume_deliveries()
    world.run(5 * SECOND)
    assert world.delivered("b") == world.accepted("a", "b")


# What is written down


def failing_send(world: World) -> None:
    """A sends two messages that nobody will confirm, and then gives B up."""
    world.network.cut([("a", "b")])
    world.send("a", "b", b"three", b"four")
    world["a"].do(lambda now: world["a"].member.forget(world["b"].address, now))


def test_messages_that_are_given_up_are_recorded_by_their_place_in_the_stream() -> None:
    world = World()
    world.send("a", "b", b"one", b"two")
    world.run(SECOND)
    failing_send(world)
    stream = MessageStream(Channel.UNICAST, world["a"].address, world["b"].address)
    assert world.history.failed == {stream: [(2, 3)]}


def test_the_place_in_the_stream_goes_on_over_a_new_connection() -> None:
    world = World()
    world.send("a", "b", b"one", b"two")
    world.run(SECOND)
    world["a"].do(lambda now: world["a"].member.forget(world["b"].address, now))
    assert world.history.failed == {}  # nothing was unconfirmed
    failing_send(world)  # the member numbers these 1 and 2
    stream = MessageStream(Channel.UNICAST, world["a"].address, world["b"].address)
    assert world.history.failed == {stream: [(2, 3)]}


def test_a_dropped_window_is_recorded_and_the_sender_goes_on_after_it() -> None:
    world = World()
    world.send("a", "b", *numbered(3))
    world.run(SECOND)
    world["b"].forget_sender(world["a"].address)
    assert world.history.events[-1] == ForgotSender(world.scheduler.now, world["b"].address, world["a"].address)
    world.send("a", "b", b"after")
    world.run(5 * SECOND)
    assert world.delivered("b") == [*numbered(3), b"after"]


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (lambda host: host.pause(), "is paused"),
        (lambda host: host.crash(), "crashes"),
        (lambda host: host.expel(), "is expelled"),
        (lambda host: host.pause_deliveries(), "takes no deliveries"),
        (lambda host: host.resume_deliveries(), "takes deliveries again"),
    ],
)
def test_what_happens_to_a_process_is_told_in_the_transcript(act: Callable[[Host], None], line: str) -> None:
    world = World()
    act(world["a"])
    assert world.transcript.lines == [f"       0.000 ms  {world['a'].address} {line}"]


def test_the_transcript_shows_each_datagram_and_what_became_of_it() -> None:
    world = World()
    world.network.cut([("a", "b")])
    world.send("a", "b", b"one", b"two")
    (line,) = [line for line in world.transcript.lines if " -> " in line]
    assert f"{world['a'].address} -> {world['b'].address}  UnicastData(" in line
    assert "body=2 messages)" in line
    assert line.endswith("[cut]")
