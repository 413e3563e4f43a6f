"""Real members on a small network: snapshots among traffic, and everything that can end one before its time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from motet.errors import MisuseError, SnapshotRunningError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Admitted, Channel
from motet.protocol.core.units import SECOND
from motet.protocol.member import MemberConfig
from motet.protocol.ordering import OrderingConfig
from motet.protocol.snapshot import SnapshotConfig, Waiting
from motet.protocol.wire.body import Port
from motet.protocol.wire.frames import Commit, MulticastData, Proposals, UnicastData
from motet.protocol.wire.snapshot import StreamKind
from tests.protocol.snapshot.world import SnapshotWorld


def group(
    names: str = "ABC",
    *,
    capacity: int = 256,
    frame_bytes: int = 60_000,
    window: int = 64,
    strategy: str = "window",
) -> SnapshotWorld:
    ordering = OrderingConfig(window=window, strategy=strategy)
    world = SnapshotWorld(capacity=capacity, frame_bytes=frame_bytes, ordering=ordering)
    world.gather(*names)
    return world


def is_recording(world: SnapshotWorld, names: str = "ABC") -> bool:
    return any(world[name].member.snapshots.is_recording for name in names)


def configured(world: SnapshotWorld, **settings: int) -> MemberConfig:
    return replace(world.config, snapshot=SnapshotConfig(**settings))


# Taken


@pytest.mark.parametrize("strategy", ["window", "continuous"])
def test_snapshot_after_x_messages(strategy: str) -> None:
    """The document's test: several senders, and after so many messages the state of all of them is recorded."""
    world = group(strategy=strategy)
    for number in range(20):
        for name in "ABC":
            world.order(name, f"{name}{number}")
        world.run(0.0003)
        if number == 10:
            world.snapshot("A")
    result = world.result("A")
    assert list(result.reports) == [world[name].address for name in "ABC"]
    assert result.view == world["A"].view
    assert any(not one.is_waiting for one in result.in_flight())
    world.finish("ABC", 60)
    for report in result.reports.values():
        assert report.position <= 60


def test_of_a_quiet_group() -> None:
    world = group()
    world.say_everything("ABC")
    world.finish("ABC", 3)
    world.run(1)
    world.snapshot("B")
    result = world.result("B")
    assert list(result.in_flight()) == []
    for member, report in result.reports.items():
        assert report.position == report.stable == 3
        assert sum(map(len, json.loads(report.state).values())) == 3 + 3 + 3
        assert {window.peer for window in report.windows if window.kind is StreamKind.MULTICAST} == {
            one.incarnation for one in result.view.members
        }
        assert member in result.view


@pytest.mark.parametrize("strategy", ["window", "continuous"])
def test_messages_in_flight_on_every_channel(strategy: str) -> None:
    world = group(strategy=strategy)
    world.say_everything("ABC", count=3, mark="before ")
    world.snapshot("A")
    world.say_everything("ABC", count=3, mark="after ")
    flying = list(world.result("A").in_flight())
    assert {one.channel for one in flying} == set(Channel)
    texts = [one.payload.decode() for one in flying if one.sender == world["A"].address]
    assert all(text.startswith("before") for text in texts)  # of A, which started; B and C heard of it later
    assert any(one.payload.startswith(b"after") for one in flying)


def test_several_at_once() -> None:
    world = group("ABCD")
    for name in "ABCD":
        world.say_everything("ABCD", mark=f"before {name} ")
        world.snapshot(name)
        world.run(0.0004)
    world.say_everything("ABCD", mark="after ")
    results = [world.result(name) for name in "ABCD"]
    assert len({result.id for result in results}) == 4


def test_one_after_the_other() -> None:
    world = group()
    for number in range(3):
        world.say_everything("ABC", mark=f"{number} ")
        assert world.snapshot("A").number == number + 1
        world.result("A")


@pytest.mark.parametrize("strategy", ["window", "continuous"])
def test_while_datagrams_are_lost(strategy: str) -> None:
    world = group(strategy=strategy)
    world.loss = 0.2
    for number in range(10):
        world.say_everything("ABC", mark=f"{number} ")
        world.run(0.002)
        if number == 5:
            world.snapshot("C")
    world.result("C", limit=30)


def test_of_one_member_alone() -> None:
    world = group("A")
    world.say_everything("A")
    world.snapshot("A")
    world.result("A")


@pytest.mark.parametrize("strategy", ["window", "continuous"])
def test_a_large_message_is_in_one_place(strategy: str) -> None:
    """Some fragments are out, some are not: the message is with its sender, or in flight, never both or neither."""
    world = group(frame_bytes=300, capacity=4, window=2, strategy=strategy)
    for name in "ABC":
        world.order(name, name * 3_000)
        world.multicast(name, name.lower() * 3_000)
        world.send(name, "B", f"{name}u" * 1_000)
    world.snapshot("B")
    result = world.result("B", limit=30)
    assert any(one.is_waiting for one in result.in_flight())
    assert any(len(one.payload) >= 2_000 and not one.is_waiting for one in result.in_flight())


@pytest.mark.parametrize("strategy", ["window", "continuous"])
def test_behind_a_full_window_the_marker_keeps_its_place(strategy: str) -> None:
    world = group(capacity=1, window=1, frame_bytes=300, strategy=strategy)
    world.say_everything("ABC", count=20, mark="before ")
    world.snapshot("A")
    world.say_everything("ABC", count=20, mark="after ")
    world.result("A", limit=60)


def test_what_waits_to_be_ordered_is_its_senders() -> None:
    """In a view that is not primary nothing is ordered."""
    world = group()
    world.split("AB", "C")
    world.order("C", "one", "two")
    world.snapshot("C")
    result = world.result("C")
    assert [(one.payload, one.receiver, one.is_waiting) for one in result.in_flight()] == [
        (b"one", None, True),
        (b"two", None, True),
    ]


def test_held_back_frames_are_told_of() -> None:
    world = group()
    world.drop_next(Proposals, "C", "A", 2)
    world.order("A", "held back")
    world.run(0.01)
    world.snapshot("B")
    result = world.result("B")
    held = {member.name: report.held_back for member, report in result.reports.items()}
    for frames in held.values():
        (frame,) = frames
        assert (frame.sender, frame.id, frame.is_decided) == (world["A"].address.incarnation, 1, False)
    assert {one.receiver.name for one in result.in_flight() if one.receiver is not None} == {"A", "B", "C"}


def test_an_application_that_takes_its_time() -> None:
    """What it is told meanwhile is in flight; what it sends before it answers belongs to its state."""
    world = group()
    process = world["B"]
    process.is_slow = True
    world.say_everything("ABC", mark="before ")
    world.snapshot("A")
    world.run(0.0015)
    assert process.asked
    world.say_everything("ABC", mark="not answered yet ")
    world.run(0.0005)
    process.do(lambda now: process.answer())
    world.say_everything("ABC", mark="answered ")
    flying = [one.payload for one in world.result("A").in_flight() if one.sender == process.address]
    assert any(payload.startswith(b"not answered yet") for payload in flying)
    assert not any(payload.startswith(b"answered") for payload in flying)


def test_the_driver_tells_what_it_has_not_handed_over_yet() -> None:
    world = group("A")
    process = world["A"]
    snapshot, _ = process.member.start_snapshot(world.now)
    unsent = [Waiting(Channel.UNICAST, process.address.incarnation, Port.APP, b"in a queue of the driver")]
    process.do(lambda now: process.member.supply_snapshot_state(snapshot, b"", now, unsent))
    world.run(0.1)
    (one,) = world.taken("A")[0].in_flight()
    assert (one.payload, one.is_waiting, one.receiver) == (b"in a queue of the driver", True, process.address)


def test_markers_are_not_the_applications() -> None:
    """It hears nothing of them, and its numbers of accepted and admitted messages leave them out."""
    world = group()
    world.snapshot("A")
    world.result("A")
    for name in "ABC":
        assert world[name].got_by == {}
        assert world[name].saw(Admitted) == []
        assert world[name].member.multicast.sender.accepted == 0
        assert world[name].member.unicast.accepted(world["B"].address) == 0


# Failed


def test_a_member_that_crashes_ends_it() -> None:
    world = group()
    world.crash("C")
    world.snapshot("A")
    reason = world.failure("A")
    assert "ended meanwhile" in reason
    assert str(world["C"].address) in reason
    world.settle("AB")
    assert not is_recording(world, "B")


def test_when_its_initiator_crashes_the_others_forget_it() -> None:
    world = group()
    world.cut("C", "A")  # no report of C
    world.cut("C", "B")
    world.snapshot("A")
    world.run(0.01)
    assert is_recording(world, "B")
    world.crash("A")
    world.heal()
    world.settle("BC")
    assert not is_recording(world, "BC")


def test_a_member_that_leaves_ends_it() -> None:
    world = group()
    world.cut("C", "A")
    world.snapshot("A")
    world.run(0.01)
    world.leave("B")
    world.heal()
    assert "ended meanwhile" in world.failure("A")


def test_an_initiator_that_leaves_ends_it() -> None:
    world = group()
    world.cut("C", "A")
    world.snapshot("A")
    world.run(0.01)
    world.leave("A")
    assert world.failure("A") == "this member leaves the group"


def test_a_member_that_joins_ends_it() -> None:
    world = group()
    world["C"].is_slow = True
    world.snapshot("A")
    world.run(0.01)
    world.start("D")
    world.settle()
    assert "ended meanwhile" in world.failure("A")
    world["C"].do(lambda now: world["C"].answer())  # too late does no harm
    world["C"].is_slow = False
    world.snapshot("D")
    world.result("D")


def test_an_application_that_never_answers_ends_it_in_time() -> None:
    world = group()
    world["C"].is_slow = True
    world.snapshot("A")
    reason = world.failure("A")
    assert reason.startswith(f"after 10.000 s there is no report of {world['A'].address}, {world['B'].address}")
    world.run(0.1)
    assert not is_recording(world)


def test_an_application_that_takes_no_deliveries_ends_it_in_time() -> None:
    world = group()
    world.pause_deliveries("C")
    world.snapshot("A")
    assert "there is no report" in world.failure("A")
    world.resume_deliveries("C")
    world.run(0.1)
    world["A"].story.clear()
    world.snapshot("A")
    world.result("A")


def test_too_much_in_flight_ends_it() -> None:
    world = SnapshotWorld()
    world.config = configured(world, most_bytes=1_000)
    world.gather(*"ABC")
    for number in range(30):
        world.multicast("B", f"{number} ".ljust(100, "."))
    world.snapshot("A")
    assert "most_bytes allows 1000; raise it" in world.failure("A")


def test_an_application_that_has_no_state_to_give_ends_it() -> None:
    world = group()
    process = world["C"]
    process.is_slow = True
    world.snapshot("A")
    world.run(0.01)
    ((snapshot, _),) = process.asked
    process.do(lambda now: process.member.refuse_snapshot_state(snapshot, "it is reading a disk", now))
    assert world.failure("A") == f"{process.address} cannot take part: it is reading a disk"
    world.run(0.01)
    assert not is_recording(world)


def test_a_member_without_the_state_refuses() -> None:
    world = SnapshotWorld(wants_state=True)
    world.gather("A", "B")
    world["A"].supply = world["B"].supply = lambda process, view: None  # nobody hands it on
    world.start("C")
    world.run_until(lambda: world["C"].members == "ABC", 10)
    world.run(0.01)
    world.snapshot("A")
    assert f"{world['C'].address} cannot take part" in world.failure("A")
    world["A"].story.clear()
    world.snapshot("C")
    assert "still waits for the application's state" in world.failure("C")


def test_a_member_that_is_not_in_the_view_yet_refuses() -> None:
    """Unicast knows no views: a marker may come before the view that it belongs to."""
    world = group("AB")
    world.start("C")
    world.drop_next(Commit, "A", "B", 3)
    world.run_until(lambda: world["A"].members == "ABC", 10)
    assert world["B"].members == "AB"
    world.snapshot("A")
    assert "not in" in world.failure("A")
    world.settle()
    assert not is_recording(world)


def test_one_of_a_member_at_a_time() -> None:
    world = group()
    world.snapshot("A")
    with pytest.raises(SnapshotRunningError):
        world.snapshot("A")
    world.result("A")


# Nonsense


def test_bytes_of_anybody_at_this_port_change_nothing() -> None:
    world = group()
    garbage = [b"", b"\x00" * 9, b"\x01" + b"\xff" * 40, b"\x02" + b"\x7f" * 200]
    sender = world["B"]
    sender.do(lambda now: sender.member.send(world["A"].address, garbage, now, port=Port.SNAPSHOT))
    sender.do(lambda now: sender.member.multicast_messages(garbage, now, port=Port.SNAPSHOT))
    with pytest.raises(MisuseError, match="never ordered"):
        sender.member.multicast_ordered(garbage, world.now, port=Port.SNAPSHOT)
    world.run(1)
    assert world["A"].count(Count.SNAPSHOT_REJECTED) + world["A"].count(Count.FRAME_MISPLACED) >= len(garbage)
    world.snapshot("A")
    world.result("A")
    assert world["A"].got_by == {}


def test_a_marker_that_is_lost_is_repaired_like_any_message() -> None:
    world = group()
    world.say_everything("ABC")
    world.drop_next(UnicastData, "A", "*", 3)
    world.drop_next(MulticastData, "A", "*", 3)
    world.snapshot("A")
    world.result("A", limit=SECOND)
