"""Injected faults: what each rule does, to whom, how it is written, and what bounds it."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import ConfigError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Endpoint
from motet.protocol.core.units import HOUR, MILLISECOND
from motet.protocol.core.view import ViewId
from motet.protocol.wire import frames as wire_frames
from motet.protocol.wire.codec import encode, group_id
from motet.protocol.wire.frames import (
    Heartbeat,
    MulticastAck,
    MulticastData,
    OrderAck,
    OrderSeq,
    OrderSeqAck,
    Proposals,
    UnicastAck,
)
from motet.runtime.faults import (
    FAULT_FORMS,
    FRAME_GROUPS,
    MOST_DELAYED,
    MOST_DELAYED_BYTES,
    MOST_NAMES,
    MOST_RULES,
    REORDER_NS,
    DelayedDatagram,
    Direction,
    Fault,
    FaultInjector,
    FaultKind,
    parse_fault,
)

IN, OUT = Direction.IN, Direction.OUT
B, C = Endpoint("127.0.0.1", 7801), Endpoint("127.0.0.1", 7802)


def injector(*texts: str, seed: int = 1) -> FaultInjector:
    made = FaultInjector(Random(seed))
    made.learn(B, "b")
    made.learn(C, "c")
    for text in texts:
        made.add(parse_fault(text))
    return made


def passes(faults: FaultInjector, direction: Direction, peer: Endpoint) -> bool:
    return faults.apply(direction, peer, b"x", 0) == [b"x"]


# Rules and whom they strike


def test_without_a_rule_nothing_is_asked_and_nothing_happens() -> None:
    faults = injector()
    assert not faults.is_active
    assert passes(faults, IN, B)
    assert faults.next_deadline() is None
    assert faults.describe()["rules"] == []


@pytest.mark.parametrize(
    ("text", "struck"),
    [
        ("cut", {(IN, B), (OUT, B), (IN, C), (OUT, C)}),
        ("cut@*:in", {(IN, B), (IN, C)}),
        ("cut@b", {(IN, B), (OUT, B)}),
        ("cut@b:out", {(OUT, B)}),
        ("cut@127.0.0.1:7802", {(IN, C), (OUT, C)}),
        ("cut@127.0.0.1:7802:in", {(IN, C)}),
        ("cut@nobody", set()),
        ("drop=1@c:in", {(IN, C)}),
    ],
)
def test_a_rule_strikes_whom_it_names(text: str, struck: set[tuple[Direction, Endpoint]]) -> None:
    faults = injector(text)
    links = [(direction, peer) for direction in (IN, OUT) for peer in (B, C)]
    assert {link for link in links if not passes(faults, *link)} == struck


def test_a_name_strikes_only_once_it_is_known_and_follows_its_owner() -> None:
    faults, elsewhere = injector("cut@d"), Endpoint("10.0.0.9", 7801)
    assert passes(faults, IN, elsewhere)
    faults.learn(elsewhere, "d")
    assert not passes(faults, IN, elsewhere)
    faults.learn(elsewhere, "e")  # another process lives there now
    assert passes(faults, IN, elsewhere)


def test_drop_strikes_its_share() -> None:
    faults = injector("drop=0.2")
    passed = sum(passes(faults, OUT, B) for _ in range(10_000))
    assert 7_800 < passed < 8_200
    assert faults.describe()["dropped"] == 10_000 - passed


def test_duplicate_passes_its_share_twice() -> None:
    faults = injector("duplicate=0.1")
    copies = [len(faults.apply(IN, B, b"x", 0)) for _ in range(10_000)]
    assert set(copies) == {1, 2}
    assert 800 < sum(copies) - 10_000 < 1_200
    assert faults.describe()["duplicated"] == sum(copies) - 10_000


def test_delay_holds_back_until_it_is_due() -> None:
    faults = injector("delay=50ms@b")
    assert faults.apply(OUT, B, b"late", 1_000) == []
    assert faults.apply(OUT, C, b"prompt", 1_000) == [b"prompt"]
    due = 1_000 + 50 * MILLISECOND
    assert faults.next_deadline() == due
    assert faults.take_due(due - 1) == []
    assert faults.take_due(due) == [DelayedDatagram(OUT, B, b"late")]
    assert faults.next_deadline() is None
    assert faults.take_due(due) == []


def test_a_range_of_delays_is_drawn_from_and_comes_out_in_order_of_time() -> None:
    faults = injector("delay=10ms-80ms")
    for number in range(200):
        assert faults.apply(IN, B, b"%d" % number, 0) == []
    assert faults.describe()["waiting"] == 200
    assert faults.take_due(10 * MILLISECOND - 1) == []
    half = faults.take_due(45 * MILLISECOND)
    assert 60 < len(half) < 140
    rest = faults.take_due(80 * MILLISECOND)
    numbers = [int(delayed.data) for delayed in half + rest]
    assert sorted(numbers) == list(range(200)) != numbers


def test_equal_delays_keep_the_order() -> None:
    faults = injector("delay=5ms")
    for number in range(50):
        faults.apply(IN, B, b"%d" % number, 0)
    assert [int(delayed.data) for delayed in faults.take_due(HOUR)] == list(range(50))


def test_half_of_all_is_delayed() -> None:
    faults = injector("delay=50ms:0.5")
    passed = sum(passes(faults, IN, B) for _ in range(2_000))
    assert 900 < passed < 1_100
    assert len(faults.take_due(HOUR)) == 2_000 - passed


def test_reorder_lets_later_ones_overtake() -> None:
    faults = injector("reorder=0.1")
    order = [number for number in range(1_000) if faults.apply(IN, B, b"%d" % number, 0)]
    order += [int(delayed.data) for delayed in faults.take_due(REORDER_NS)]
    assert sorted(order) == list(range(1_000)) != order


def test_each_copy_of_a_duplicate_is_delayed_by_itself() -> None:
    faults = injector("duplicate=1", "delay=1ms-900ms")
    assert len(set(faults.fates(IN, B, 0))) == 2


def test_rules_of_several_kinds_work_together() -> None:
    faults = injector("drop=0.5", "duplicate=1", "delay=1ms")
    for _ in range(1_000):
        assert faults.apply(IN, B, b"x", 0) == []
    stats = faults.describe()
    assert stats["waiting"] == stats["delayed"] == stats["duplicated"] * 2  # type: ignore[operator]
    assert stats["dropped"] == 1_000 - stats["duplicated"]  # type: ignore[operator]


def test_the_same_seed_draws_the_same_fates() -> None:
    def run() -> list[list[int]]:
        faults = injector("drop=0.3", "duplicate=0.3", "delay=1ms-9ms:0.5", "reorder=0.2")
        return [faults.fates(IN, B, now) for now in range(500)]

    assert run() == run()


# Changing them


def test_a_rule_replaces_the_one_of_the_same_kind_peer_and_direction() -> None:
    faults = injector("drop=0.2", "drop=0.5@b", "drop=0.3", "delay=5ms", "drop=0.1@b:in")
    assert [str(rule) for rule in faults.rules] == ["drop=0.5@b", "drop=0.3", "delay=5ms", "drop=0.1@b:in"]


def test_a_probability_of_zero_takes_the_rule_away() -> None:
    faults = injector("drop=0.2@b", "drop=0@b")
    assert faults.rules == ()
    assert not faults.is_active


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("clear", []),
        ("clear@b", ["drop=0.1", "cut@c:in"]),
        ("clear@b:in", ["drop=0.1", "drop=0.2@b", "cut@c:in"]),
        ("clear@*:in", ["drop=0.1", "drop=0.2@b"]),
    ],
)
def test_clear_takes_away_what_it_names(text: str, left: list[str]) -> None:
    faults = injector("drop=0.1", "drop=0.2@b", "cut@b:in", "cut@c:in", text)
    assert [str(rule) for rule in faults.rules] == left


def test_what_is_held_back_outlives_its_rule() -> None:
    faults = injector("delay=5ms")
    faults.apply(OUT, B, b"late", 0)
    faults.clear()
    assert faults.is_active  # there is still something to release
    assert passes(faults, OUT, B)
    assert faults.take_due(HOUR) == [DelayedDatagram(OUT, B, b"late")]
    assert not faults.is_active


# Only some frames


def datagram(frame: Frame) -> bytes:
    return encode(group_id("g"), 1, 2, frame)


def test_a_rule_for_acknowledgements_strikes_those_of_all_layers_and_nothing_else() -> None:
    faults = injector("cut#ack")
    view = ViewId(1, 1)
    acks = (UnicastAck(1, 1), MulticastAck(1), Proposals(view, ()), OrderAck(view, 1, 1), OrderSeqAck(view, 1))
    assert [faults.apply(IN, B, datagram(frame), 0) for frame in acks] == [[]] * len(acks)
    for other in (MulticastAck(1), MulticastData(1, 1, 0, b"x"), OrderSeq(view, 1, 0, 1, 0), Heartbeat(view)):
        struck = isinstance(other, MulticastAck)
        assert bool(faults.apply(OUT, B, datagram(other), 0)) is not struck


def test_the_groups_name_frames_that_there_are() -> None:
    assert all(hasattr(wire_frames, name) for group in FRAME_GROUPS.values() for name in group)


def test_a_sealed_datagram_is_judged_by_what_it_carries() -> None:
    faults = injector("cut#ack")
    assert faults.apply(OUT, B, b"sealed", 0, "OrderAck") == []
    assert faults.apply(OUT, B, b"sealed", 0, "OrderSeq") == [b"sealed"]


def test_a_rule_for_some_frames_stands_beside_one_for_all() -> None:
    faults = injector("drop=0.5", "drop=1#ack", "drop=0.9#ack")
    assert [str(rule) for rule in faults.rules] == ["drop=0.5", "drop=0.9#ack"]
    faults.add(parse_fault("clear#ack"))
    assert [str(rule) for rule in faults.rules] == ["drop=0.5"]


# Bounds


def test_no_more_is_held_back_than_stated() -> None:
    counters = Counters()
    faults = FaultInjector(Random(1), counters)
    faults.add(parse_fault("delay=1h"))
    for _ in range(MOST_DELAYED + 10):
        assert faults.apply(IN, B, b"x", 0) == []
    assert counters[Count.FAULT_OVERFLOWED] == 10
    assert counters[Count.FAULT_DELAYED] == len(faults.take_due(HOUR)) == MOST_DELAYED


def test_no_more_bytes_are_held_back_than_stated() -> None:
    faults, large = injector("delay=1h"), bytes(1 << 20)
    for _ in range(100):
        faults.apply(IN, B, large, 0)
    assert faults.describe()["waiting_bytes"] == MOST_DELAYED_BYTES
    faults.take_due(HOUR)
    assert faults.describe()["waiting_bytes"] == 0


def test_there_are_no_more_rules_than_stated() -> None:
    faults = injector(*(f"cut@n{number}" for number in range(MOST_RULES)))
    faults.add(parse_fault("cut@n1"))  # replaces one
    with pytest.raises(ConfigError, match="there are 64 fault rules already, which is the maximum"):
        faults.add(parse_fault("cut@one-more"))


def test_no_more_names_are_kept_than_stated() -> None:
    faults = injector("cut@b")
    for port in range(MOST_NAMES):
        faults.learn(Endpoint("10.0.0.1", port), "other")
    assert passes(faults, IN, B)  # forgotten: the oldest


# As people write them


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("drop=0.2", Fault(FaultKind.DROP, 0.2)),
        (" drop=.2@b ", Fault(FaultKind.DROP, 0.2, peer="b")),
        ("cut@b", Fault(FaultKind.CUT, peer="b")),
        ("cut@b:out", Fault(FaultKind.CUT, peer="b", direction=OUT)),
        ("cut@[::1]:7801:in", Fault(FaultKind.CUT, peer="[::1]:7801", direction=IN)),
        ("cut@a:b", Fault(FaultKind.CUT, peer="a:b")),
        ("delay=50ms:0.5", Fault(FaultKind.DELAY, 0.5, (50 * MILLISECOND,) * 2)),
        ("delay=50ms", Fault(FaultKind.DELAY, 1.0, (50 * MILLISECOND,) * 2)),
        ("delay=10ms-80ms:1@b:in", Fault(FaultKind.DELAY, 1.0, (10 * MILLISECOND, 80 * MILLISECOND), "b", IN)),
        ("delay=10-80ms", Fault(FaultKind.DELAY, 1.0, (10 * MILLISECOND, 80 * MILLISECOND))),
        ("duplicate=0.1", Fault(FaultKind.DUPLICATE, 0.1)),
        ("reorder=1", Fault(FaultKind.REORDER, 1.0)),
        ("clear", Fault(FaultKind.CLEAR)),
        ("drop=0.5#ack", Fault(FaultKind.DROP, 0.5, frames="ack")),
        ("drop=1@*:in#seq", Fault(FaultKind.DROP, 1.0, direction=IN, frames="seq")),
        ("cut@b#data", Fault(FaultKind.CUT, peer="b", frames="data")),
    ],
)
def test_a_fault_is_read(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is no kind of fault"),
        ("lose=0.2", "'lose' is no kind of fault"),
        ("cut=0.5", "'cut' is no kind of fault, or takes no value"),
        ("drop", "the probability '' is not in 0 to 1"),
        ("drop=20", "the probability '20' is not in 0 to 1"),
        ("drop=-0.1", "the probability '-0.1' is not in 0 to 1"),
        ("drop=nan", "the probability 'nan' is not in 0 to 1"),
        ("drop=much@b", "the probability 'much' is not in 0 to 1"),
        ("cut@", "no peer stands after the @"),
        ("cut@:in", "no peer stands after the @"),
        ("delay=50", "delay = '50' cannot be read; allowed is a number with a unit"),
        ("delay=50ms:2", "the probability '2' is not in 0 to 1"),
        ("delay=80ms-10ms", "a delay of 80ms-10ms is not from less to more, up to 1h"),
        ("delay=2h", "a delay of 2h is not from less to more, up to 1h"),
        ("drop=0.5#akc", "'akc' after the # is no known group of frames"),
        ("drop=0.5#", "'' after the # is no known group of frames"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_can(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_fault(text)
    message = str(caught.value)
    assert message.startswith(f"fault {text!r} cannot be read: {why}")
    assert message.endswith(FAULT_FORMS)


PEERS = st.sampled_from(["*", "b", "10.1.2.3:7800", "[::1]:80"])
DELAYS = st.tuples(st.integers(0, HOUR), st.integers(0, HOUR)).map(lambda two: (min(two), max(two)))


@given(
    st.sampled_from([kind for kind in FaultKind if kind is not FaultKind.DELAY]),
    st.floats(0, 1),
    PEERS,
    st.sampled_from([None, IN, OUT]),
    st.sampled_from([None, *FRAME_GROUPS]),
)
def test_a_fault_reads_back_as_it_is_shown(
    kind: FaultKind, probability: float, peer: str, direction: Direction | None, frames: str | None
) -> None:
    is_sure = kind in (FaultKind.CUT, FaultKind.CLEAR)
    fault = Fault(kind, 1.0 if is_sure else probability, peer=peer, direction=direction, frames=frames)
    assert parse_fault(str(fault)) == fault


@given(st.floats(0, 1), DELAYS, PEERS, st.sampled_from([None, IN, OUT]))
def test_a_delay_reads_back_as_it_is_shown(
    probability: float, delay_ns: tuple[int, int], peer: str, direction: Direction | None
) -> None:
    fault = Fault(FaultKind.DELAY, probability, delay_ns, peer, direction)
    assert parse_fault(str(fault)) == fault


@given(st.text(max_size=40))
def test_any_text_is_a_fault_or_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        parse_fault(text)
