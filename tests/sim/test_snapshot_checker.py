"""The checker of snapshots, on histories made by hand: a good one passes, and each kind of bad one is seen."""

from __future__ import annotations

from dataclasses import replace

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.wire.snapshot import ChannelState, InFlight, Report, SnapshotId, Waiting
from motet.sim.checkers.snapshots import CutChecker
from motet.sim.world.history import (
    DeliveredBatch,
    EndedSnapshot,
    History,
    MessageStream,
    RecordedState,
    StartedSnapshot,
)
from motet.sim.world.tokens import ENDOWMENT, Transfer, transfer_in

A, B = (Address(name, "127.0.0.1", 7000 + number, number) for number, name in enumerate("AB", start=1))
ID = SnapshotId(A.incarnation, 1)
TO_B = MessageStream(Channel.UNICAST, A, B)
ORDERED = MessageStream(Channel.TOTAL, A, None)
ONE, TWO, THREE = (Transfer(number, 10 * number, B.incarnation, 0).encode(30) for number in (1, 2, 3))


def got(*messages: bytes, channel: Channel = Channel.UNICAST, receiver: Address = B) -> DeliveredBatch:
    return DeliveredBatch(0, receiver, channel, A, messages)


def recorded(member: Address, **sent: int) -> RecordedState:
    streams = {"unicast": TO_B, "ordered": ORDERED}
    return RecordedState(0, member, ID, {streams[name]: count for name, count in sent.items()})


def report(tokens: int) -> Report:
    return Report(ID, 0, str(tokens).encode(), 0, 0, (), (), (), ())


def flying(*messages: bytes, channel: Channel = Channel.UNICAST) -> ChannelState:
    return ChannelState(channel, A.incarnation, tuple(InFlight(0, message) for message in messages))


def rules(*events: object, a: Report, b: Report, accepted: dict[MessageStream, list[bytes]]) -> set[str]:
    history = History(accepted=accepted)
    history.events += [StartedSnapshot(0, A, ID), *events, EndedSnapshot(0, A, ID, {A: a, B: b})]  # type: ignore[list-item]
    return {violation.rule for violation in CutChecker(history).run()}


def unicast(b: Report, *, sent: int = 2, before: int = 1) -> set[str]:
    """A has accepted three messages to B, `sent` of them before its moment; B had `before` of them at its own."""
    messages = [ONE, TWO, THREE]
    given = sum(t.amount for m in messages[:sent] if (t := transfer_in(m)) is not None)
    events = [recorded(A, unicast=sent), got(*messages[:before]), recorded(B), got(*messages[before:])]
    return rules(*events, a=report(ENDOWMENT - given), b=b, accepted={TO_B: messages})


def test_a_cut_as_it_should_be() -> None:
    assert unicast(replace(report(ENDOWMENT + 10), channels=(flying(TWO),))) == set()


def test_what_was_in_flight_is_missing() -> None:
    assert unicast(report(ENDOWMENT + 10)) == {"channels", "tokens"}


def test_what_was_not_in_flight_is_there() -> None:
    assert unicast(replace(report(ENDOWMENT + 10), channels=(flying(TWO, THREE),))) == {"channels", "tokens"}


def test_something_twice() -> None:
    assert unicast(replace(report(ENDOWMENT + 10), channels=(flying(TWO, TWO),))) == {"channels", "tokens"}


def test_in_another_order() -> None:
    assert unicast(replace(report(ENDOWMENT), channels=(flying(TWO, ONE),)), before=0) == {"channels"}


def test_something_from_the_future() -> None:
    assert "no orphans" in unicast(report(ENDOWMENT + 10 + 20 + 30), before=3)


def test_a_state_that_is_wrong() -> None:
    assert unicast(replace(report(ENDOWMENT), channels=(flying(TWO),))) == {"tokens"}


def ordered(a: Report, b: Report, *, is_lost: bool = False) -> set[str]:
    """A has accepted two messages to be ordered; B gets them after its moment, or never the second."""
    events = [recorded(A, ordered=2), recorded(B), got(*([ONE] if is_lost else [ONE, TWO]), channel=Channel.TOTAL)]
    return rules(*events, a=a, b=b, accepted={ORDERED: [ONE, TWO]})


WAITING = (Waiting(Channel.TOTAL, NOBODY, 0, TWO),)


def test_an_ordered_message_is_in_flight_or_waits_at_its_sender() -> None:
    a, b = report(ENDOWMENT - 30), report(ENDOWMENT)
    one, both = (flying(ONE, channel=Channel.TOTAL),), (flying(ONE, TWO, channel=Channel.TOTAL),)
    assert ordered(a, replace(b, channels=both)) == set()
    assert ordered(replace(a, waiting=WAITING), replace(b, channels=one)) == set()
    assert ordered(replace(a, waiting=WAITING), replace(b, channels=both)) == {"channels", "tokens"}
    assert ordered(a, replace(b, channels=one)) == {"channels", "tokens"}


def test_what_waits_may_be_lost_later() -> None:
    one = (flying(ONE, channel=Channel.TOTAL),)
    assert ordered(replace(report(ENDOWMENT - 30), waiting=WAITING), replace(report(ENDOWMENT), channels=one)) == set()
    a, b = replace(report(ENDOWMENT - 30), waiting=WAITING), replace(report(ENDOWMENT), channels=one)
    assert ordered(a, b, is_lost=True) == set()
    assert ordered(report(ENDOWMENT - 30), b, is_lost=True) == set()  # lost already, and rightly nowhere


def test_what_waits_was_delivered_already() -> None:
    events = [recorded(A, ordered=2), got(ONE, TWO, channel=Channel.TOTAL), recorded(B)]
    a = replace(report(ENDOWMENT - 30), waiting=WAITING)
    found = rules(*events, a=a, b=report(ENDOWMENT + 30), accepted={ORDERED: [ONE, TWO]})
    assert "waiting" in found


def test_what_goes_to_strangers_and_what_comes_from_them() -> None:
    """A gave 30 to somebody else, and somebody else gave 10 to B."""
    out = Transfer(9, 30, 99, 0).encode(20)
    stranger = Address("S", "127.0.0.1", 7099, 99)
    came = DeliveredBatch(0, B, Channel.UNICAST, stranger, (ONE,))
    events = [recorded(A, ordered=1), came, recorded(B)]
    accepted = {ORDERED: [out], MessageStream(Channel.UNICAST, stranger, B): [ONE]}
    assert rules(*events, a=report(ENDOWMENT - 30), b=report(ENDOWMENT + 10), accepted=accepted) == set()


# Ends


def ends(*events: object, dead: set[Address] | None = None) -> list[str]:
    history = History(dead=dead or set())
    history.events += events  # type: ignore[arg-type]
    return [str(violation) for violation in CutChecker(history).run()]


def test_a_snapshot_ends_once() -> None:
    started, failed = StartedSnapshot(0, A, ID), EndedSnapshot(0, A, ID, None, "the view changed")
    assert ends(started, failed) == []
    assert ends(started) == [f"ends: {ID} of {A} never ended"]
    assert ends(started, dead={A}) == []
    assert ends(started, failed, failed) == [f"ends: {ID} ended 2 times"]
    assert ends(started, replace(failed, reason="")) == [f"ends: {ID} failed for no reason"]


def test_a_report_of_one_who_never_gave_its_state() -> None:
    found = rules(recorded(A), a=report(ENDOWMENT), b=report(ENDOWMENT), accepted={})
    assert found == {"ends"}
