"""The test cases of the ISIS document, and the scenarios that need a restart, with both strategies.

The document's suite: one sender; several senders; datagrams that are dropped; acks that are delayed. “delivery message
content is checked for all processes, by transitivity”.
"""

from __future__ import annotations

import pytest

from motet.protocol.core.effects import Frame
from motet.protocol.membership import MembershipConfig
from motet.protocol.ordering import RolledBack
from motet.protocol.wire.frames import OrderAck, OrderData, OrderSeqAck, Proposals
from tests.protocol.membership.world import Flight
from tests.protocol.ordering.world import STRATEGIES, OrderedWorld, sealed_in

pytestmark = pytest.mark.parametrize("strategy", STRATEGIES, indirect=True)
SHIPPED = {"local": MembershipConfig.local, "lan": MembershipConfig.lan, "wan": MembershipConfig.wan}
ACKS: tuple[type[Frame], ...] = (Proposals, OrderAck, OrderSeqAck)


@pytest.fixture(autouse=True)
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setattr(OrderedWorld, "strategy", name)
    return name


def of_four(preset: str = "lan") -> OrderedWorld:
    """With the membership settings that people get; nothing here is more patient than what is shipped."""
    world = OrderedWorld(membership=SHIPPED[preset]())
    world.gather(*"ABCD")
    return world


def send_from(world: OrderedWorld, senders: str, each: int) -> None:
    for number in range(each):
        for name in senders:
            world.order(name, f"{name}{number}")
        world.run(0.01)


def same_everywhere(world: OrderedWorld, count: int, limit: float) -> None:
    world.finish("ABCD", count, limit)
    assert len(world["A"].ordered) == count
    assert all(world[name].ordered == world["A"].ordered for name in "BCD")


def test_one_sender() -> None:
    world = of_four()
    send_from(world, "A", 20)
    same_everywhere(world, 20, limit=2)
    assert world["A"].ordered == [f"A{number}" for number in range(20)]


def test_several_senders() -> None:
    world = of_four()
    send_from(world, "ABCD", 10)
    same_everywhere(world, 40, limit=2)


@pytest.mark.parametrize("preset", SHIPPED)
@pytest.mark.parametrize("loss", [0.25, 0.5])
def test_a_share_of_all_datagrams_is_dropped(loss: float, preset: str) -> None:
    world = of_four(preset)
    world.loss = loss
    send_from(world, "ABC", 5)
    same_everywhere(world, 15, limit=120)


@pytest.mark.parametrize("preset", SHIPPED)
def test_half_of_all_acks_take_two_seconds(preset: str) -> None:
    world = of_four(preset)
    for kind in ACKS:
        world.delay(kind, 0.5, 2.0)
    send_from(world, "ABC", 5)
    same_everywhere(world, 15, limit=60)


def test_a_restart_with_a_journal_whose_tail_differs_from_the_groups() -> None:
    """It is rolled back with an explicit event; then all are equal."""
    world = OrderedWorld("AD", wants_state=True)
    world.gather(*"ABCDE")

    def hook(flight: Flight) -> None:
        """D and E alone hear the number of E's message."""
        sealed = sealed_in(flight)
        is_number = type(flight.frame).__name__ == "OrderSeq" or (sealed is not None and bool(sealed.numbers))
        if flight.source == "E" and is_number:
            world.partition("ABC", "DE")

    world.order("A", "common")
    world.finish("ABCDE", 1)
    world.on_frame(hook)
    world.order("E", "e1")
    world.run(0.01)
    assert world["E"].positions == {1: "common", 2: "e1"}
    durable_state = world["E"].member.durable_state
    assert (durable_state.position, durable_state.stable) == (2, 1)
    world.crash("E")
    world.settle("ABC", limit=20)
    world.order("A", "a1")
    world.run_until(lambda: "a1" in world["A"].ordered and world.is_ordered("ABC"), 10)
    world._hooks.clear()
    world.heal()
    world.settle("ABCD", limit=20)
    world.start("E", durable_state=durable_state)
    assert world["E"].order.position == 2
    world.settle("ABCDE", limit=20)
    world.order("E", "e2")
    world.finish("ABCDE")
    assert world["E"].saw(RolledBack) == [RolledBack(2, 2)]
    assert world["E"].ordered == world["A"].ordered
    assert world["A"].ordered[-1] == "e2"


def test_a_restart_with_a_journal_that_is_the_groups() -> None:
    """All of it was stable: nothing is rolled back, and it continues at the group's position."""
    world = OrderedWorld()
    world.gather(*"ABC")
    world.order("A", "a1", "a2")
    world.finish("ABC", 2)
    durable_state = world["C"].member.durable_state
    world.crash("C")
    world.settle("AB")
    world.order("B", "b1")
    world.finish("AB", 3)
    world.start("C", durable_state=durable_state)
    world.settle("ABC")
    world.order("C", "c1")
    world.finish("ABC", 4)
    assert not world["C"].saw(RolledBack)
    assert world["C"].positions == {4: "c1"}


def test_the_frames_are_those_of_the_strategy(strategy: str) -> None:
    world = of_four()
    seen = world.watch(Proposals, OrderData, OrderAck)
    world.order("A", "a")
    world.finish("ABCD", 1)
    expected = {OrderData, OrderAck} if strategy == "continuous" else {Proposals}
    assert {type(flight.frame) for flight in seen} == expected
