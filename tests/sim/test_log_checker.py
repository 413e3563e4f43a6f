"""The checkers of the log against histories that were made up: each rule sees what breaks it, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View, ViewId
from motet.protocol.wire.ordered import Tag
from motet.sim.checkers.log import LogChecker
from motet.sim.world.history import (
    DeliveredBatch,
    EnteredView,
    Event,
    History,
    MessageStream,
    PersistedAt,
    RestartedWithState,
    RolledBackAt,
    StableAt,
)

A, B, C = (Address(name, "127.0.0.1", 7800 + index, (index + 1) << 48) for index, name in enumerate("ABC"))
V1, V2 = (View(ViewId(number, A.incarnation), (A, B), is_primary=True) for number in (1, 2))
TAG = Tag(7, 1)


def history(*events: Event, sent: dict[Address, list[str]] | None = None) -> History:
    made = History(events=[EnteredView(0, A, V1, ()), EnteredView(0, B, V1, ()), *events])
    for sender, texts in (sent or {A: ["a1", "a2", "a3"], B: ["b1"]}).items():
        made.accept(MessageStream(Channel.TOTAL, sender, None), [text.encode() for text in texts])
    return made


def delivers(receiver: Address, position: int, *texts: str, sender: Address = A, tag: Tag | None = None) -> Event:
    messages = tuple(text.encode() for text in texts)
    return DeliveredBatch(1, receiver, Channel.TOTAL, sender, messages, position, tag)


def rules(made: History, final: Iterable[Address] = (A, B), *, waits_for_disk: bool = False) -> list[str]:
    checker = LogChecker(made, waits_for_disk=waits_for_disk)
    found = checker.run(list(final))
    found += [*checker.check_validity(list(final)), *checker.check_appends()] if not found else []
    return sorted({violation.rule for violation in found})


def both(*events: Event) -> History:
    """All is well: both have the same three, and know it."""
    log = [delivers(name, 1, "a1", "a2", "a3") for name in (A, B)]
    return history(*log, delivers(A, 4, "b1", sender=B), delivers(B, 4, "b1", sender=B), *events)


def test_all_is_well() -> None:
    assert rules(both(StableAt(2, A, 4), StableAt(2, B, 4))) == []


def test_a_position_with_two_messages() -> None:
    made = history(delivers(A, 1, "a1"), delivers(B, 1, "a2"), sent={A: ["a1", "a2"]})
    assert "total order" in rules(made)
    assert rules(made, final=[]) == []  # both may still take it back


def test_stable_is_agreed_whatever_becomes_of_those_who_said_so() -> None:
    made = history(delivers(A, 1, "a1"), delivers(B, 1, "a2"), StableAt(2, A, 1), StableAt(2, B, 1))
    assert rules(made, final=[]) == ["total order"]


def test_a_gap() -> None:
    made = history(delivers(A, 1, "a1"), delivers(A, 3, "a2"), sent={A: ["a1", "a2"]})
    assert rules(made, final=[A]) == ["no gaps"]


def test_a_place_that_is_taken_twice() -> None:
    made = history(delivers(A, 1, "a1"), RolledBackAt(2, A, 5, 5), delivers(A, 1, "a2"), sent={A: ["a1", "a2"]})
    assert rules(made, final=[A]) == ["total order"]


def test_stable_is_not_taken_back() -> None:
    made = both(StableAt(2, A, 2), RolledBackAt(3, A, 2, 4))
    assert "stable" in rules(made, final=[])
    assert rules(both(StableAt(2, A, 2), RolledBackAt(3, A, 3, 4)), final=[]) == []


def test_who_holds_what_others_did_not_agree_on_is_told_before_it_delivers_more() -> None:
    """A takes b1 as the first and goes on into the next view with it; the others have a1 there."""
    tail = [delivers(A, 1, "b1", sender=B), delivers(B, 1, "a1"), StableAt(2, B, 1)]
    entered, told, more = EnteredView(3, A, V2, ()), RolledBackAt(4, A, 1, 1), delivers(A, 2, "a2")
    sent = {A: ["a1", "a2"], B: ["b1"]}
    assert rules(history(*tail, entered, more, told, sent=sent), final=[]) == ["notified"]
    assert rules(history(*tail, entered, told, more, sent=sent), final=[]) == []
    assert rules(history(*tail, more, entered, told, sent=sent), final=[]) == []  # it could not know yet


def test_who_restarts_with_its_durable_state_is_told_as_well() -> None:
    tail = [delivers(A, 1, "b1", sender=B), delivers(B, 1, "a1"), StableAt(2, B, 1)]
    woken: list[Event] = [RestartedWithState(3, C, A, 1), EnteredView(3, C, V2, ())]
    sent = {A: ["a1", "a2"], B: ["b1"]}
    assert rules(history(*tail, *woken, delivers(C, 2, "a2"), sent=sent), final=[]) == ["notified"]
    assert rules(history(*tail, *woken, RolledBackAt(4, C, 1, 1), delivers(C, 2, "a2"), sent=sent), final=[]) == []


def test_stable_before_all_have_it() -> None:
    made = history(delivers(A, 1, "a1"), delivers(B, 1, "a1"), delivers(A, 2, "a2"), StableAt(2, A, 2))
    assert rules(made, final=[]) == ["stable"]


def test_stable_before_it_is_on_all_disks() -> None:
    late = [PersistedAt(2, A, 4), PersistedAt(2, B, 3)]
    assert rules(both(*late, StableAt(3, A, 4)), waits_for_disk=True) == ["stable"]
    assert rules(both(*late, StableAt(3, A, 3)), waits_for_disk=True) == []
    assert rules(both(*late, StableAt(3, A, 4))) == []


def test_out_of_the_order_of_its_sender() -> None:
    assert rules(history(delivers(A, 1, "a2", "a1"), sent={A: ["a1", "a2"]}), final=[A]) == ["order"]


def test_what_nobody_sent() -> None:
    assert rules(history(delivers(A, 1, "x"), sent={A: []}), final=[A]) == ["integrity"]


def test_what_was_accepted_and_is_nowhere() -> None:
    made = history(delivers(A, 1, "a1"), sent={A: ["a1", "a2"]})
    assert rules(made, final=[A]) == ["validity"]
    made.fail(MessageStream(Channel.TOTAL, A, None), 1, 1)
    assert rules(made, final=[A]) == []


def test_a_process_that_wakes_up_goes_on_where_its_disk_was() -> None:
    woken = RestartedWithState(3, C, A, 2)
    assert rules(both(woken, delivers(C, 3, "a3")), final=[]) == []
    assert rules(both(woken, delivers(C, 4, "a3")), final=[]) == ["no gaps"]


class TestAppends:
    def of(self, *events: Event) -> History:
        made = history(*events, sent={A: ["x"], B: ["x", "b1"]})
        made.appends[TAG] = (b"x",)
        return made

    def test_once_through_either(self) -> None:
        made = self.of(delivers(A, 1, "x", tag=TAG), delivers(A, 2, "b1", sender=B))
        assert rules(made, final=[A]) == []

    def test_twice_is_once_too_often(self) -> None:
        made = self.of(delivers(A, 1, "x", tag=TAG), delivers(A, 2, "x", sender=B, tag=TAG))
        assert rules(made, final=[A]) == ["once"]

    def test_its_tag_is_told(self) -> None:
        assert rules(self.of(delivers(A, 1, "x")), final=[]) == ["once"]
        made = self.of(delivers(A, 1, "b1", sender=B, tag=TAG))
        assert rules(made, final=[]) == ["once"]

    def test_stable_and_gone(self) -> None:
        made = self.of()
        made.acknowledged.add(TAG)
        assert rules(made, final=[]) == ["once"]

    def test_whoever_is_told_of_a_repetition_need_not_hold_it(self) -> None:
        made = self.of()
        assert rules(made, final=[A]) == ["validity"]
        made.repeated.add((A, TAG))
        assert rules(made, final=[A]) == []
