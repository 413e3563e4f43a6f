"""State transfer: the machine alone with exact effects, then a group on a link that loses, repeats and reorders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.errors import ConfigError, MisuseError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MOST_COUNT
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.membership.transfer import (
    DELAYED_NS,
    MOST_CHUNK_BYTES,
    ProvideState,
    StateDelayed,
    StateFailed,
    StateFrame,
    StateLost,
    StateReceived,
    StateRefused,
    StateTransfer,
    TransferConfig,
)
from motet.protocol.wire.codec import DecodedDatagram, decode, encode
from motet.protocol.wire.frames import StateChunk, StateNeed, StateRefusal, StateRequest
from tests.protocol.membership.people import A, B, C, D, G

CONFIG = TransferConfig(wants_state=True, chunk_bytes=4, window=4, retry_ns=50 * MILLISECOND, needs_state=True)
RETRY_NS = CONFIG.retry_ns
START = 7 * SECOND  # a clock does not begin at zero
V1, V2, V3 = (ViewId(number, 1) for number in (1, 2, 3))
TWELVE = b"aaaabbbbcccc"  # three chunks


def view(view_id: ViewId, *members: Address) -> View:
    return View(view_id, members, is_primary=True)


def lacking(*members: Address) -> tuple[int, ...]:
    return tuple(member.incarnation for member in members)


class Alone:
    """One machine; every input is followed by a check of its invariants."""

    def __init__(self, local: Address, config: TransferConfig = CONFIG) -> None:
        self.counters = Counters()
        self.machine = StateTransfer(local, config, self.counters)

    def begin(self, view: View, without: tuple[int, ...] = (), now: int = START) -> list[Effect]:
        return self._checked(self.machine.begin_view(view, without, now))

    def supply(self, data: bytes, is_last: bool = True, view: ViewId = V1) -> list[Effect]:
        return self._checked(self.machine.supply(view, data, is_last, START))

    def refuse(self, reason: str, view: ViewId = V1) -> list[Effect]:
        return self._checked(self.machine.refuse(view, reason, START))

    def receive(self, source: Address, frame: StateFrame, now: int = START) -> list[Effect]:
        return self._checked(self.machine.receive(source, frame, now))

    def tick(self, now: int) -> list[Effect]:
        return self._checked(self.machine.tick(now))

    def _checked(self, effects: list[Effect]) -> list[Effect]:
        self.machine._check()
        return effects


def provider(state: bytes | None = TWELVE, *joiners: Address, config: TransferConfig = CONFIG) -> Alone:
    """A gives its state to `joiners`; None: it was asked and has not answered."""
    alone, without = Alone(A, config), joiners or (B,)
    assert alone.begin(view(V1, A, *without), lacking(*without)) == [ProvideState(V1)]
    if state is not None:
        assert alone.supply(state) == []
    return alone


def joiner(config: TransferConfig = CONFIG) -> Alone:
    """B came in without the state, and has asked A for its first window."""
    alone = Alone(B, config)
    assert alone.begin(view(V1, A, B), lacking(B)) == [ask(0, config.window)]
    return alone


def ask(first: int, count: int, to: Address = A, view: ViewId = V1) -> Transmit:
    return Transmit(to, StateRequest(view, first, count))


def done(chunks: int, to: Address = A, view: ViewId = V1) -> Transmit:
    return ask(chunks, 0, to, view)


def chunk(index: int, is_last: bool = False, view: ViewId = V1) -> StateChunk:
    return StateChunk(view, index, is_last, f"<{index}>".encode())


def got(index: int, is_last: bool = False, view: ViewId = V1) -> StateReceived:
    """What the application is told of `chunk`."""
    return StateReceived(view, f"<{index}>".encode(), index == 0, is_last)


def sent(to: Address, *chunks: tuple[int, bytes], last: int | None = None) -> list[Effect]:
    return [Transmit(to, StateChunk(V1, index, index == last, data)) for index, data in chunks]


ALL_TWELVE = ((0, b"aaaa"), (1, b"bbbb"), (2, b"cccc"))


# A view begins


def test_a_view_in_which_nobody_lacks_the_state_needs_no_transfer() -> None:
    alone = Alone(A)
    assert alone.begin(view(V1, A, B)) == []
    assert (alone.machine.is_waiting, alone.machine.need) == (False, StateNeed.HELD)
    assert alone.machine.next_deadline() is None


def test_the_provider_asks_its_application_once_for_any_number_of_joiners() -> None:
    alone = Alone(A)
    assert alone.begin(view(V1, A, B, C, D), lacking(B, C, D)) == [ProvideState(V1)]
    assert alone.machine.need is StateNeed.HELD
    assert alone.machine.next_deadline() is None


def test_a_member_that_lacks_the_state_asks_the_provider_for_a_window() -> None:
    alone = Alone(C)
    assert alone.begin(view(V1, A, B, C), lacking(C)) == [ask(0, 4)]
    assert (alone.machine.is_waiting, alone.machine.need) == (True, StateNeed.LACKING)
    assert alone.machine.next_deadline() == START + RETRY_NS


def test_the_provider_is_the_most_senior_member_that_has_the_state() -> None:
    members, without = view(V1, C, A, B, D), lacking(C, D)
    assert Alone(A).begin(members, without) == [ProvideState(V1)]
    assert Alone(B).begin(members, without) == []
    assert Alone(C).begin(members, without) == [ask(0, 4, to=A)]
    assert Alone(D).begin(members, without) == [ask(0, 4, to=A)]


def test_where_all_lack_the_state_nobody_provides_it_and_every_application_is_notified() -> None:
    members, without = view(V1, B, A, C), lacking(A, B, C)
    for member in (A, B, C):
        alone = Alone(member)
        assert alone.begin(members, without) == [StateLost(members)]
        assert (alone.machine.is_lost, alone.machine.need) == (True, StateNeed.LACKING)
        assert alone.machine.next_deadline() is None


def test_a_member_that_lacks_the_state_lacks_it_through_every_view_until_it_received_it() -> None:
    alone = joiner()
    assert alone.begin(view(V2, B), lacking(B)) == [StateLost(view(V2, B))]
    assert alone.begin(view(V3, A, B), lacking(B)) == [ask(0, 4, view=V3)]
    alone.receive(A, chunk(0, True, V3))
    assert alone.machine.need is StateNeed.HELD


def test_an_application_that_needs_no_state_says_that_it_may_go_on_without() -> None:
    alone = Alone(B, replace(CONFIG, needs_state=False))
    alone.begin(view(V1, A, B), lacking(B))
    before = alone.machine.need
    alone.machine.require()
    assert (before, alone.machine.need) == (StateNeed.DISPENSABLE, StateNeed.LACKING)


def test_only_where_the_state_is_lost_may_it_begin_anew() -> None:
    alone = joiner()
    with pytest.raises(MisuseError, match="not lost"):
        alone.machine.begin_anew()
    alone.begin(view(V2, B), lacking(B))
    alone.machine.begin_anew()
    assert (alone.machine.is_holder_again, alone.machine.need) == (True, StateNeed.HELD)


@pytest.mark.parametrize(("covered", "need"), [(7, StateNeed.SPARE), (6, StateNeed.LACKING), (None, StateNeed.LACKING)])
def test_whoever_has_all_of_the_log_can_stand_in_for_the_holder(covered: int | None, need: StateNeed) -> None:
    machine = StateTransfer(B, CONFIG, Counters())
    machine.begin_view(view(V1, A, B), lacking(B), START, position=7, covered=covered)
    assert machine.need is need
    machine.rolled_back()
    assert machine.need is StateNeed.LACKING


def test_whoever_has_all_of_the_log_says_nothing_of_a_loss_where_nobody_holds_the_state() -> None:
    machine = StateTransfer(B, CONFIG, Counters())
    assert machine.begin_view(view(V1, B, C), lacking(B, C), START, position=7, covered=7) == []
    assert machine.is_holder_again


def test_the_notice_of_a_loss_says_until_when_this_member_had_the_state() -> None:
    machine = StateTransfer(B, CONFIG, Counters())
    lost = view(V2, B, C)
    assert machine.begin_view(lost, lacking(B, C), START, position=7, covered=6, lineage=V1) == [StateLost(lost, V1)]


# Refusals, and the next holder


def test_when_the_same_members_form_a_new_view_the_next_holder_provides() -> None:
    for member, first, second in ((A, [ProvideState(V1)], []), (B, [], [ProvideState(V2)])):
        alone = Alone(member)
        assert alone.begin(view(V1, A, B, C), lacking(C)) == first
        assert alone.begin(view(V2, A, B, C), lacking(C)) == second
    alone = Alone(C)
    alone.begin(view(V1, A, B, C), lacking(C))
    assert alone.begin(view(V2, A, B, C), lacking(C)) == [ask(0, 4, to=B, view=V2)]
    assert alone.begin(view(V3, A, B, C), lacking(C)) == [ask(0, 4, to=A, view=V3)]


def test_the_coordinator_is_told_of_a_refusal_while_another_holder_can_be_asked() -> None:
    alone = Alone(B)
    alone.begin(view(V1, C, B, A), lacking(C))
    refusal = StateRefusal(V1, "no")
    assert alone.refuse("no") == [StateRefused(V1, B, "no"), Transmit(C, refusal)]
    coordinator = Alone(A)
    coordinator.begin(view(V1, A, B, C), lacking(A))
    assert not coordinator.machine.wants_other_provider
    bystander = Alone(D)
    bystander.begin(view(V1, D, B, C), lacking(C))
    assert bystander.machine.wants_other_provider is False


def test_a_joiner_is_told_of_each_refusal_and_that_the_last_was_the_last() -> None:
    alone = Alone(C)
    alone.begin(view(V1, A, B, C), lacking(C))
    assert alone.receive(A, StateRefusal(V1, "no")) == [StateRefused(V1, A, "no")]
    assert alone.machine.wants_other_provider
    assert alone.tick(START + RETRY_NS) == [ask(0, 4)]  # whoever forms the next view may not have heard of it
    alone.begin(view(V2, A, B, C), lacking(C))
    failed = StateFailed(V2, "A: no; B: nor I", is_final=True)
    assert alone.receive(B, StateRefusal(V2, "nor I")) == [StateRefused(V2, B, "nor I"), failed]
    assert (alone.machine.next_deadline(), alone.machine.need) == (None, StateNeed.LACKING)


def test_a_provider_that_gives_nothing_is_named_again_and_again() -> None:
    alone = joiner()
    for times in (1, 2):
        now = START + times * DELAYED_NS
        assert StateDelayed(V1, A, times * DELAYED_NS) in alone.tick(now)
    alone.receive(A, chunk(0), START + 2 * DELAYED_NS)
    assert not [told for told in alone.tick(START + 3 * DELAYED_NS - 1) if isinstance(told, StateDelayed)]


def test_those_who_lack_the_state_and_are_not_in_the_view_do_not_count() -> None:
    assert Alone(A).begin(view(V1, A, B), lacking(C)) == []


def test_a_joiner_that_does_not_want_the_state_neither_asks_nor_waits() -> None:
    alone = Alone(B, TransferConfig(wants_state=False))
    assert alone.begin(view(V1, A, B), lacking(B)) == []
    assert (alone.machine.is_waiting, alone.machine.need) == (False, StateNeed.UNWANTED)
    assert alone.machine.next_deadline() is None
    assert alone.receive(A, chunk(0, is_last=True)) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 1}


def test_a_member_whose_application_takes_no_state_may_give_it() -> None:
    alone = Alone(A, TransferConfig(wants_state=False))
    assert alone.begin(view(V1, A, B), lacking(B)) == [ProvideState(V1)]
    assert alone.machine.need is StateNeed.UNWANTED


@pytest.mark.parametrize("wrong", [view(V2, B, C), view(V1, A, B), view(ViewId(0, 9), A, B)])
def test_a_view_that_cannot_follow_is_misuse_and_changes_nothing(wrong: View) -> None:
    alone = provider(None)
    with pytest.raises(MisuseError, match="does not follow"):
        alone.begin(wrong, lacking(B))
    assert alone.supply(b"aaaa") == []


# The provider


def test_a_request_is_answered_with_what_it_names() -> None:
    assert provider().receive(B, StateRequest(V1, 0, 4)) == sent(B, *ALL_TWELVE, last=2)
    assert provider().receive(B, StateRequest(V1, 1, 1)) == sent(B, (1, b"bbbb"))
    assert provider().receive(B, StateRequest(V1, 2, 4)) == sent(B, (2, b"cccc"), last=2)
    assert provider().receive(B, StateRequest(V1, 3, 4)) == []


def test_a_request_is_answered_with_no_more_than_a_window() -> None:
    alone = provider(bytes(100))
    effects = alone.receive(B, StateRequest(V1, 3, 0xFFFF))
    assert effects == sent(B, *((index, bytes(4)) for index in (3, 4, 5, 6)))


def test_a_request_that_comes_again_is_answered_again() -> None:
    alone = provider()
    for _ in range(3):
        assert alone.receive(B, StateRequest(V1, 0, 4)) == sent(B, *ALL_TWELVE, last=2)


def test_an_empty_state_is_one_empty_chunk_that_is_the_last() -> None:
    alone = provider(b"")
    assert alone.receive(B, StateRequest(V1, 0, 4)) == sent(B, (0, b""), last=0)
    receiving = joiner()
    assert receiving.receive(A, StateChunk(V1, 0, True, b"")) == [StateReceived(V1, b"", True, True), done(1)]
    assert not receiving.machine.is_waiting


def test_a_request_waits_until_its_chunks_exist() -> None:
    alone = provider(None)
    assert alone.receive(B, StateRequest(V1, 0, 4)) == []
    assert alone.supply(b"aaaab", is_last=False) == sent(B, (0, b"aaaa"))
    assert alone.supply(b"bb", is_last=False) == []
    assert alone.supply(b"", is_last=False) == []
    assert alone.supply(b"bccc", is_last=False) == sent(B, (1, b"bbbb"))
    assert alone.supply(b"c") == sent(B, (2, b"cccc"), last=2)


def test_a_full_chunk_waits_for_more_because_it_may_be_the_last() -> None:
    alone = provider(None)
    assert alone.receive(B, StateRequest(V1, 0, 4)) == []
    assert alone.supply(b"aaaa", is_last=False) == []
    assert alone.supply(b"") == sent(B, (0, b"aaaa"), last=0)


def test_of_a_request_that_is_partly_served_only_the_rest_is_sent_later() -> None:
    alone = provider(None)
    assert alone.supply(b"aaaabbbbc", is_last=False) == []
    assert alone.receive(B, StateRequest(V1, 0, 4)) == sent(B, (0, b"aaaa"), (1, b"bbbb"))
    assert alone.supply(b"cccddddeeee", is_last=False) == sent(B, (2, b"cccc"), (3, b"dddd"))
    assert alone.supply(b"ffff") == []


def test_asking_ahead_does_not_replace_what_waits_already() -> None:
    alone = provider(None)
    assert alone.supply(b"aaaabbbbc", is_last=False) == []
    assert alone.receive(B, StateRequest(V1, 0, 4)) == sent(B, (0, b"aaaa"), (1, b"bbbb"))
    assert alone.receive(B, StateRequest(V1, 4, 2)) == []
    assert alone.receive(B, StateRequest(V1, 1, 2)) == sent(B, (1, b"bbbb"))  # an older one, late
    expected = sent(B, (2, b"cccc"), (3, b"dddd"), (4, b"eeee"), (5, b"ffff"))
    assert alone.supply(b"cccddddeeeeffffgggg") == expected


def test_what_waits_is_never_more_than_a_window() -> None:
    alone = provider(None)
    assert alone.receive(B, StateRequest(V1, 4, 4)) == []
    effects = alone.supply(bytes(100))
    assert effects == sent(B, *((index, bytes(4)) for index in range(4)))


def test_every_joiner_has_a_request_of_its_own() -> None:
    alone = provider(None, B, C, D)
    assert alone.receive(C, StateRequest(V1, 0, 1)) == []
    assert alone.receive(B, StateRequest(V1, 0, 4)) == []
    effects = alone.supply(TWELVE)
    assert effects == sent(B, *ALL_TWELVE, last=2) + sent(C, (0, b"aaaa"))
    assert alone.receive(D, StateRequest(V1, 2, 4)) == sent(D, (2, b"cccc"), last=2)


def test_the_snapshot_is_dropped_when_the_last_joiner_is_done() -> None:
    alone = provider(TWELVE, B, C)
    assert alone.receive(B, StateRequest(V1, 3, 0)) == []
    assert alone.receive(C, StateRequest(V1, 0, 1)) == sent(C, (0, b"aaaa"))
    assert held_by(alone) == 3
    assert alone.receive(C, StateRequest(V1, 3, 0)) == []
    assert held_by(alone) == 0
    assert alone.counters == {}


def held_by(alone: Alone) -> int:
    giving = alone.machine._giving
    assert giving is not None
    return len(giving.chunks)


def test_a_request_of_one_that_is_done_came_late() -> None:
    alone = provider(TWELVE, B, C)
    alone.receive(B, StateRequest(V1, 3, 0))
    assert alone.receive(B, StateRequest(V1, 0, 4)) == []
    assert alone.receive(B, StateRequest(V1, 3, 0)) == []
    assert alone.counters == {Count.FRAME_DUPLICATE: 2}
    assert alone.receive(C, StateRequest(V1, 0, 4)) == sent(C, *ALL_TWELVE, last=2)


@pytest.mark.parametrize("first", [0, 2, 4])
def test_done_with_a_wrong_number_of_chunks_is_not_believed(first: int) -> None:
    alone = provider()
    assert alone.receive(B, StateRequest(V1, first, 0)) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 1}
    assert held_by(alone) == 3


def test_nobody_is_done_before_the_state_is_complete() -> None:
    alone = provider(None)
    alone.supply(b"aaaabbbbc", is_last=False)
    assert alone.receive(B, StateRequest(V1, 2, 0)) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 1}
    assert alone.receive(B, StateRequest(V1, 0, 1)) == sent(B, (0, b"aaaa"))


@pytest.mark.parametrize(
    ("source", "frame"),
    [
        (B, StateRequest(V2, 0, 4)),
        (B, StateRequest(ViewId(1, 2), 0, 4)),
        (G, StateRequest(V1, 0, 4)),
        (C, StateRequest(V1, 0, 4)),
        (A, StateRequest(V1, 0, 4)),
        (B, StateRequest(V1, 8, 1)),
        (B, StateRequest(V1, (1 << 64) - 1, 0xFFFF)),
        (B, chunk(0)),
        (B, StateRefusal(V1, "no")),
    ],
    ids=[
        *("of a later view", "of another view", "of a stranger", "of one who lacks nothing", "of ourselves"),
        *("beyond all that could be asked", "far beyond", "a chunk", "a refusal"),
    ],
)
def test_nonsense_changes_nothing_at_a_provider(source: Address, frame: StateFrame) -> None:
    alone = Alone(A)
    alone.begin(view(V1, A, C, B), lacking(B))
    alone.supply(TWELVE)
    assert alone.receive(source, frame) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 1}
    assert alone.receive(B, StateRequest(V1, 0, 4)) == sent(B, *ALL_TWELVE, last=2)


def test_a_request_to_one_that_is_not_the_provider_is_misplaced() -> None:
    alone = Alone(B)
    alone.begin(view(V1, A, B, C), lacking(C))
    assert alone.receive(C, StateRequest(V1, 0, 4)) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 1}


@pytest.mark.parametrize("frame", [StateRequest(V1, 0, 4), chunk(0), StateRefusal(V1, "no")])
def test_before_the_first_view_every_frame_is_misplaced(frame: StateFrame) -> None:
    alone = Alone(A)
    assert alone.receive(B, frame) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 1}
    assert (alone.tick(START), alone.machine.next_deadline()) == ([], None)


# What the application of the provider may say, and when


@pytest.mark.parametrize("without", [None, (), lacking(A)], ids=["no view", "nobody lacks it", "we lack it"])
def test_a_state_that_nobody_asked_for_is_misuse(without: tuple[int, ...] | None) -> None:
    alone = Alone(A)
    if without is not None:
        alone.begin(view(V1, A, B), without)
    with pytest.raises(MisuseError, match="wait for ProvideState"):
        alone.supply(b"aaaa")
    with pytest.raises(MisuseError, match="wait for ProvideState"):
        alone.refuse("no")


def test_a_state_for_a_view_that_has_not_begun_is_misuse() -> None:
    with pytest.raises(MisuseError, match="wait for ProvideState"):
        provider(None).supply(b"aaaa", view=V2)


def test_nothing_follows_the_last_piece() -> None:
    alone = provider()
    with pytest.raises(MisuseError, match="complete"):
        alone.supply(b"more")
    with pytest.raises(MisuseError, match="complete"):
        alone.refuse("too late")
    assert alone.receive(B, StateRequest(V1, 0, 4)) == sent(B, *ALL_TWELVE, last=2)


def test_nothing_follows_a_snapshot_that_was_dropped() -> None:
    alone = provider()
    alone.receive(B, StateRequest(V1, 3, 0))
    with pytest.raises(MisuseError, match="complete"):
        alone.supply(b"more")


def test_nothing_follows_a_refusal() -> None:
    alone = provider(None)
    alone.refuse("no")
    with pytest.raises(MisuseError, match="refused"):
        alone.supply(b"aaaa")
    with pytest.raises(MisuseError, match="refused"):
        alone.refuse("no")


def test_what_is_said_of_a_view_that_is_over_is_ignored() -> None:
    alone = provider(None)
    alone.supply(b"aaaab", is_last=False)
    assert alone.begin(view(V2, A, B), lacking(B)) == [ProvideState(V2)]
    assert alone.supply(b"bbb") == []
    assert alone.refuse("too late") == []
    assert alone.supply(b"new!", view=V2) == []
    expected = [Transmit(B, StateChunk(V2, 0, True, b"new!"))]
    assert alone.receive(B, StateRequest(V2, 0, 4)) == expected


# Refusal


def test_whoever_asks_is_told_of_a_refusal() -> None:
    alone = provider(None, B, C, D)
    assert alone.receive(D, StateRequest(V1, 0, 4)) == []
    assert alone.receive(B, StateRequest(V1, 0, 4)) == []
    refusal = StateRefusal(V1, "disk on fire")
    told = [StateRefused(V1, A, "disk on fire"), Transmit(B, refusal), Transmit(D, refusal)]
    assert alone.refuse("disk on fire") == told
    assert alone.receive(C, StateRequest(V1, 0, 4)) == [Transmit(C, refusal)]
    assert alone.receive(B, StateRequest(V1, 0, 4)) == [Transmit(B, refusal)]


def test_an_application_may_fail_in_the_middle_of_its_state() -> None:
    alone = provider(None)
    alone.receive(B, StateRequest(V1, 0, 4))
    assert alone.supply(b"aaaab", is_last=False) == sent(B, (0, b"aaaa"))
    assert alone.refuse("no more") == [StateRefused(V1, A, "no more"), Transmit(B, StateRefusal(V1, "no more"))]
    assert held_by(alone) == 0


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("x" * 255, "x" * 255),
        ("x" * 256, "x" * 255),
        ("x" * 254 + "é", "x" * 254),
        ("x" * 253 + "é", "x" * 253 + "é"),
        ("€" * 100, "€" * 85),
        ("x" * 252 + "🎵", "x" * 252),
        ("", ""),
        ("no file \udcff", "no file ?"),
    ],
)
def test_a_reason_is_cut_to_what_travels_without_breaking_a_character(reason: str, expected: str) -> None:
    alone = provider(None)
    alone.receive(B, StateRequest(V1, 0, 4))
    assert alone.refuse(reason) == [StateRefused(V1, A, expected), Transmit(B, StateRefusal(V1, expected))]
    decoded = decode(1, encode(1, 1, 2, StateRefusal(V1, expected)))
    assert isinstance(decoded, DecodedDatagram)
    assert decoded.frame == StateRefusal(V1, expected)


def test_a_refusal_is_told_once_and_the_joiner_stops_asking_but_still_waits() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(0)) == [got(0)]
    assert alone.receive(A, chunk(2)) == []
    refused, failed = StateRefused(V1, A, "no"), StateFailed(V1, "A: no", is_final=True)
    assert alone.receive(A, StateRefusal(V1, "no")) == [refused, failed]
    assert alone.receive(A, StateRefusal(V1, "no")) == []
    assert alone.receive(A, chunk(1)) == []
    assert alone.counters == {Count.FRAME_DUPLICATE: 1, Count.FRAME_MISPLACED: 1}
    assert (alone.machine.next_deadline(), alone.tick(START + SECOND)) == (None, [])
    assert (alone.machine.is_waiting, alone.machine.need) == (True, StateNeed.LACKING)


def test_after_a_refusal_the_next_view_begins_anew() -> None:
    alone = joiner()
    alone.receive(A, StateRefusal(V1, "no"))
    assert alone.begin(view(V2, A, B), lacking(B)) == [ask(0, 4, view=V2)]
    assert alone.receive(A, chunk(0, True, V2)) == [got(0, True, V2), done(1, view=V2)]


def test_only_the_provider_can_refuse() -> None:
    alone = Alone(C)
    alone.begin(view(V1, A, B, C), lacking(B, C))
    assert alone.receive(B, StateRefusal(V1, "no")) == []
    assert alone.receive(A, StateRefusal(V2, "no")) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 2}
    assert alone.machine.next_deadline() is not None


# The joiner


def test_chunks_are_handed_up_in_order_whatever_the_order_of_arrival() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(2, is_last=True)) == []
    assert alone.receive(A, chunk(1)) == []
    assert alone.receive(A, chunk(0)) == [got(0), got(1), got(2, is_last=True), done(3)]
    assert (alone.machine.is_waiting, alone.machine.need) == (False, StateNeed.HELD)
    assert (alone.machine.next_deadline(), alone.tick(START + SECOND)) == (None, [])
    assert alone.counters == {}


def test_the_next_half_is_asked_for_when_half_the_window_is_consumed() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(0)) == [got(0)]
    assert alone.receive(A, chunk(1)) == [got(1), ask(4, 2)]
    assert alone.receive(A, chunk(2)) == [got(2)]
    assert alone.receive(A, chunk(3)) == [got(3), ask(6, 2)]
    assert alone.receive(A, chunk(5)) == []
    assert alone.receive(A, chunk(6)) == []
    assert alone.receive(A, chunk(4)) == [got(4), got(5), got(6), ask(8, 3)]


@pytest.mark.parametrize(
    ("window", "requests"),
    [
        (1, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 0)]),
        (2, [(0, 2), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (6, 0)]),
        (3, [(0, 3), (3, 2), (5, 2), (6, 0)]),
        (16, [(0, 16), (6, 0)]),
    ],
)
def test_every_window_comes_to_the_end_without_a_retry(window: int, requests: list[tuple[int, int]]) -> None:
    alone = Alone(B, TransferConfig(wants_state=True, window=window))
    effects = alone.begin(view(V1, A, B), lacking(B))
    for index in range(6):
        effects += alone.receive(A, chunk(index, is_last=index == 5))
    assert [effect for effect in effects if isinstance(effect, Transmit)] == [ask(*request) for request in requests]


def test_nothing_is_asked_beyond_an_end_that_is_known() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(3, is_last=True)) == []
    assert alone.receive(A, chunk(0)) == [got(0)]
    assert alone.receive(A, chunk(1)) == [got(1)]
    assert alone.tick(START + RETRY_NS) == [ask(2, 2)]
    assert alone.receive(A, chunk(2)) == [got(2), got(3, is_last=True), done(4)]


def test_without_progress_the_window_is_asked_for_again_from_the_first_missing_chunk() -> None:
    alone = joiner()
    for attempt in range(1, 4):
        due = START + attempt * RETRY_NS
        assert alone.machine.next_deadline() == due
        assert alone.tick(due - 1) == []
        assert alone.tick(due) == [ask(0, 4)]
        assert alone.tick(due) == []
    now = START + 4 * RETRY_NS - 1
    assert alone.receive(A, chunk(0), now) == [got(0)]
    assert alone.receive(A, chunk(2), now) == []
    assert alone.tick(now + RETRY_NS - 1) == []
    assert alone.tick(now + RETRY_NS) == [ask(1, 4)]


def test_a_chunk_that_fills_no_gap_is_no_progress() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(1), START + RETRY_NS - 1) == []
    assert alone.tick(START + RETRY_NS) == [ask(0, 4)]


def test_after_a_retry_asking_ahead_goes_on_where_the_retry_ended() -> None:
    alone = joiner()
    alone.receive(A, chunk(0))
    assert alone.tick(START + RETRY_NS) == [ask(1, 4)]
    assert alone.receive(A, chunk(1)) == [got(1)]
    assert alone.receive(A, chunk(2)) == [got(2), ask(5, 2)]


def test_a_chunk_that_comes_again_is_counted_and_dropped() -> None:
    alone = joiner()
    alone.receive(A, chunk(0))
    alone.receive(A, chunk(2))
    assert alone.receive(A, chunk(0)) == []
    assert alone.receive(A, chunk(2)) == []
    assert alone.counters == {Count.FRAME_DUPLICATE: 2}
    assert alone.receive(A, chunk(1)) == [got(1), got(2), ask(4, 3)]


def test_done_is_said_again_for_every_chunk_that_comes_again() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(0, is_last=True)) == [got(0, is_last=True), done(1)]
    assert alone.receive(A, chunk(0, is_last=True)) == [done(1)]
    assert alone.receive(A, chunk(0, is_last=True)) == [done(1)]
    assert alone.counters == {Count.FRAME_DUPLICATE: 2}
    assert alone.machine.next_deadline() is None


def test_a_joiner_keeps_its_window_and_nothing_above_it() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(3)) == []
    assert alone.receive(A, chunk(4)) == []
    assert alone.receive(A, chunk((1 << 64) - 1)) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 2}
    alone.receive(A, chunk(0))
    assert alone.receive(A, chunk(4)) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 2}
    alone.receive(A, chunk(1))
    assert alone.receive(A, chunk(2)) == [got(2), got(3), got(4), ask(6, 3)]


def test_what_came_without_being_asked_for_is_not_asked_for_afterwards() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(0)) == [got(0)]
    for index in (2, 3, 4):  # asked for were 0 to 3
        assert alone.receive(A, chunk(index)) == []
    assert alone.receive(A, chunk(1)) == [got(1), got(2), got(3), got(4), ask(5, 4)]


def test_what_a_provider_sends_beyond_its_last_chunk_is_void() -> None:
    alone = joiner()
    assert alone.receive(A, chunk(2)) == []
    assert alone.receive(A, chunk(1, is_last=True)) == []
    assert alone.receive(A, chunk(0)) == [got(0), got(1, is_last=True), done(2)]
    assert alone.receive(A, chunk(2)) == []
    assert alone.receive(A, StateRefusal(V1, "no")) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 2}
    assert not alone.machine.is_waiting


@pytest.mark.parametrize(
    ("source", "frame"),
    [
        (A, chunk(0, view=V2)),
        (A, chunk(0, view=ViewId(1, 2))),
        (G, chunk(0)),
        (C, chunk(0)),
        (B, chunk(0)),
        (A, StateRequest(V1, 0, 4)),
        (C, StateRefusal(V1, "no")),
    ],
    ids=[
        *("of a later view", "of another view", "of a stranger", "of one who is not the provider", "of ourselves"),
        *("a request", "a refusal of one who is not the provider"),
    ],
)
def test_nonsense_changes_nothing_at_a_joiner(source: Address, frame: StateFrame) -> None:
    alone = Alone(B)
    alone.begin(view(V1, A, C, B), lacking(B))
    assert alone.receive(source, frame) == []
    assert alone.counters == {Count.FRAME_MISPLACED: 1}
    assert alone.receive(A, chunk(0)) == [got(0)]


# From view to view


def test_a_joiner_that_was_not_done_starts_over_in_the_next_view() -> None:
    alone = joiner()
    alone.receive(A, chunk(0))
    alone.receive(A, chunk(2))
    later = START + SECOND
    assert alone.begin(view(V2, C, B), lacking(B), later) == [ask(0, 4, to=C, view=V2)]
    assert alone.machine.next_deadline() == later + RETRY_NS
    assert alone.receive(A, chunk(1), later) == []  # of the view before, late
    assert alone.counters == {Count.FRAME_MISPLACED: 1}
    assert alone.receive(C, chunk(1, True, V2), later) == []
    expected = [got(0, view=V2), got(1, True, V2), done(2, to=C, view=V2)]
    assert alone.receive(C, chunk(0, view=V2), later) == expected


def test_a_joiner_that_is_done_and_named_no_more_has_the_state_in_the_next_view() -> None:
    alone = joiner()
    alone.receive(A, chunk(0, is_last=True))
    assert alone.begin(view(V2, A, B)) == []
    assert (alone.machine.need, alone.machine.next_deadline()) == (StateNeed.HELD, None)


def test_a_member_that_got_its_state_in_one_view_provides_it_in_the_next() -> None:
    alone = joiner()
    alone.receive(A, chunk(0, is_last=True))
    assert alone.begin(view(V2, B, C), lacking(C)) == [ProvideState(V2)]
    assert alone.supply(b"<0>", view=V2) == []
    assert alone.receive(C, StateRequest(V2, 0, 4)) == [Transmit(C, StateChunk(V2, 0, True, b"<0>"))]


def test_a_provider_may_lack_the_state_in_a_later_view() -> None:
    alone = provider()
    assert alone.begin(view(V2, C, A), lacking(A)) == [ask(0, 4, to=C, view=V2)]
    assert alone.machine.need is StateNeed.LACKING
    assert alone.receive(C, chunk(0, True, V2)) == [got(0, True, V2), done(1, to=C, view=V2)]


def test_when_all_who_had_the_state_are_gone_the_half_of_one_is_void() -> None:
    alone = joiner()
    alone.receive(A, chunk(0))
    assert alone.begin(view(V2, D, B), lacking(B)) == [ask(0, 4, to=D, view=V2)]  # and nothing arrives of this one
    failed, lost = alone.begin(view(V3, B, C), lacking(B, C))
    assert isinstance(failed, StateFailed)
    assert (failed.view, failed.is_final, lost) == (V3, False, StateLost(view(V3, B, C)))
    assert alone.machine.need is StateNeed.LACKING
    assert alone.begin(view(ViewId(4, 1), B), lacking(B)) == [StateLost(view(ViewId(4, 1), B))]


def test_one_that_received_nothing_yet_has_nothing_to_void() -> None:
    alone = joiner()
    alone.receive(A, chunk(1))
    assert alone.begin(view(V2, B, C), lacking(B, C)) == [StateLost(view(V2, B, C))]


# Settings

LIMITS = {
    "chunk_bytes": (1, MOST_CHUNK_BYTES),
    "window": (1, 0xFFFF),
    "retry_ns": (MILLISECOND, 60 * SECOND),
}


def with_setting(name: str, value: int) -> TransferConfig:
    return TransferConfig(**{name: value})  # type: ignore[arg-type]


def test_every_setting_that_is_a_number_has_its_limits_here() -> None:
    assert {setting.name for setting in fields(TransferConfig)} == {"wants_state", "needs_state", *LIMITS}


@pytest.mark.parametrize(("name", "least", "most"), [(name, *limits) for name, limits in LIMITS.items()])
def test_a_setting_outside_its_limits_is_named(name: str, least: int, most: int) -> None:
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=f"^{name} = {value} .*: {least} to {most}$"):
            with_setting(name, value)
    for value in (least, most):
        assert getattr(with_setting(name, value), name) == value


def test_the_largest_chunk_and_the_largest_request_can_travel() -> None:
    largest = StateChunk(V1, MOST_COUNT, True, bytes(MOST_CHUNK_BYTES))
    assert len(encode(1, 1, 2, largest)) <= MAX_DATAGRAM_BYTES
    assert isinstance(decode(1, encode(1, 1, 2, largest)), DecodedDatagram)
    (effect,) = Alone(B, TransferConfig(wants_state=True, window=0xFFFF)).begin(view(V1, A, B), lacking(B))
    assert isinstance(effect, Transmit)
    assert isinstance(decode(1, encode(1, 2, 1, effect.frame)), DecodedDatagram)


# A group on a link

LATENCY_NS = MILLISECOND
MOST_STEPS = 100_000  # of one run; more means that time stands still
Fate = Sequence[int]  # the extra delay of each copy of a frame; no copy means lost


@dataclass(frozen=True, slots=True)
class Flight:
    source: Address
    to: Address
    frame: StateFrame


class Group:
    """Machines, a link that treats its first frames as told and all others well, and applications that take notes."""

    def __init__(self, members: Iterable[Address], config: TransferConfig, fates: Iterable[Fate] = ()) -> None:
        self.now = START
        self.config = config
        self.log: list[Flight] = []
        self.counters = {member: Counters() for member in members}
        self.machines = {member: StateTransfer(member, config, counters) for member, counters in self.counters.items()}
        self.states: dict[Address, list[StateReceived]] = defaultdict(list)  # since the last is_first
        self.told: dict[Address, list[Effect]] = defaultdict(list)  # what is neither a frame nor a piece of the state
        self._fates = iter(fates)
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    def at(self, when: int, action: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._agenda, (when, self._order, action))

    def begin(self, view: View, without: tuple[int, ...], skews: Sequence[int] = ()) -> None:
        """Members install a view at moments of their own."""
        for number, member in enumerate(view.members):
            skew = skews[number % len(skews)] if skews else 0
            self.at(self.now + skew, lambda member=member: self._begin(member, view, without))  # type: ignore[misc]

    def supply_later(self, member: Address, view: ViewId, pieces: Sequence[bytes], pause_ns: int) -> None:
        for number, piece in enumerate(pieces, start=1):
            is_last = number == len(pieces)
            when = self.now + number * pause_ns
            self.at(when, lambda piece=piece, is_last=is_last: self._supply(member, view, piece, is_last))  # type: ignore[misc]

    def crash(self, member: Address) -> None:
        del self.machines[member]

    def run(self, until: int | None = None) -> None:
        """Until nothing is under way and nobody has a deadline, or until then."""
        for _ in range(MOST_STEPS):
            moments = [machine.next_deadline() for machine in self.machines.values()]
            moments += [when for when, _, _ in self._agenda[:1]]
            moment = min((moment for moment in moments if moment is not None), default=None)
            if moment is None or (until is not None and moment > until):
                self.now = self.now if until is None else until
                return
            self._step(moment)
        raise AssertionError(f"{MOST_STEPS} steps and still not quiet")

    def state(self, member: Address) -> bytes:
        return b"".join(piece.data for piece in self.states[member])

    def frames(self, source: Address) -> list[StateFrame]:
        return [flight.frame for flight in self.log if flight.source == source]

    def _step(self, moment: int) -> None:
        self.now = max(self.now, moment)
        while self._agenda and self._agenda[0][0] <= self.now:
            heappop(self._agenda)[2]()
        for member, machine in self.machines.items():
            deadline = machine.next_deadline()
            if deadline is not None and deadline <= self.now:
                self._perform(member, machine.tick(self.now))

    def _begin(self, member: Address, view: View, without: tuple[int, ...]) -> None:
        if member in self.machines:
            self._perform(member, self.machines[member].begin_view(view, without, self.now))

    def _supply(self, member: Address, view: ViewId, piece: bytes, is_last: bool) -> None:
        if member in self.machines:
            self._perform(member, self.machines[member].supply(view, piece, is_last, self.now))

    def _arrive(self, flight: Flight) -> None:
        if flight.to in self.machines:
            effects = self.machines[flight.to].receive(flight.source, flight.frame, self.now)
            assert sum(isinstance(effect, Transmit) for effect in effects) <= self.config.window
            self._perform(flight.to, effects)

    def _perform(self, member: Address, effects: list[Effect]) -> None:
        self.machines[member]._check()
        for effect in effects:
            match effect:
                case Transmit(to, StateRequest() | StateChunk() | StateRefusal() as frame):
                    self._transmit(Flight(member, to, frame))
                case StateReceived():
                    self._note(member, effect)
                case _:
                    self.told[member].append(effect)

    def _transmit(self, flight: Flight) -> None:
        self.log.append(flight)
        for extra_ns in next(self._fates, (0,)):
            self.at(self.now + LATENCY_NS + extra_ns, lambda: self._arrive(flight))

    def _note(self, member: Address, piece: StateReceived) -> None:
        pieces = self.states[member]
        if piece.is_first:
            pieces.clear()
        assert bool(pieces) != piece.is_first, "a state that does not begin with its first piece"
        assert not any(earlier.is_last for earlier in pieces), "something came after the last piece"
        assert all(earlier.view == piece.view for earlier in pieces), "a state out of two views"
        pieces.append(piece)


def splits_of(state: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Cut as the sizes say, some of them zero; the rest is one piece."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(state[at : at + size])
        at += size
    return [*pieces, state[at:]]


def assert_has_all(group: Group, member: Address, state: bytes) -> None:
    """Once, in order, in chunks that depend on nothing but the state."""
    size = group.config.chunk_bytes
    assert not group.machines[member].is_waiting
    assert group.state(member) == state
    assert len(group.states[member]) == max(1, ceil(len(state) / size))
    assert all(len(piece.data) == size for piece in group.states[member][:-1])
    assert group.states[member][-1].is_last


def test_a_link_without_faults_carries_every_chunk_once_and_asks_once_per_half_window() -> None:
    group = Group((A, B), TransferConfig(wants_state=True, chunk_bytes=10, window=16))
    state = bytes(index % 251 for index in range(400))
    group.begin(view(V1, A, B), lacking(B))
    group.run(START)
    group.supply_later(A, V1, [state], pause_ns=0)
    group.run()
    assert_has_all(group, B, state)
    assert group.frames(B) == [StateRequest(V1, first, count) for first, count in FORTY_CHUNKS]
    assert [frame.index for frame in group.frames(A) if isinstance(frame, StateChunk)] == list(range(40))
    assert group.now < START + RETRY_NS
    assert group.counters == {A: Counters(), B: Counters()}


FORTY_CHUNKS = ((0, 16), (16, 8), (24, 8), (32, 8), (40, 8), (40, 0))


def test_a_state_that_is_supplied_slowly_reaches_joiners_that_wait_all_the_while() -> None:
    group = Group((A, B, C), CONFIG)
    state = b"slow, but all of it arrives in the end"
    group.begin(view(V1, A, B, C), lacking(B, C))
    group.run(START)
    group.supply_later(A, V1, splits_of(state, [3] * 9), pause_ns=220 * MILLISECOND)  # no retry crosses a chunk
    group.run()
    for member in (B, C):
        assert_has_all(group, member, state)
    chunks = [frame for frame in group.frames(A) if isinstance(frame, StateChunk)]
    assert len(chunks) == 2 * 10, "a chunk was sent twice on a link that loses nothing"


def test_a_state_goes_from_member_to_member_through_three_views() -> None:
    group = Group((A, B, C), CONFIG)
    group.begin(view(V1, A, B), lacking(B))
    group.run(START)
    group.supply_later(A, V1, [TWELVE], pause_ns=1)
    group.run()
    group.crash(A)
    group.begin(view(V2, B, C), lacking(C))
    group.run(group.now)
    group.supply_later(B, V2, [group.state(B) + b" and more"], pause_ns=1)
    group.run()
    assert_has_all(group, C, b"aaaabbbbcccc and more")
    assert group.told == {A: [ProvideState(V1)], B: [ProvideState(V2)]}


def test_a_joiner_hears_of_a_refusal_even_if_the_first_one_is_lost() -> None:
    group = Group((A, B), CONFIG, fates=[(0,), ()])
    group.begin(view(V1, A, B), lacking(B))
    group.run(START + 2 * LATENCY_NS)
    group._perform(A, group.machines[A].refuse(V1, "no", group.now))
    group.run()
    assert group.told[B] == [StateRefused(V1, A, "no"), StateFailed(V1, "A: no", is_final=True)]
    assert group.machines[B].is_waiting


DELAYS = st.integers(0, 120).map(lambda count: count * MILLISECOND)
FATES = st.lists(st.one_of(st.just([0]), st.lists(DELAYS, max_size=3)), max_size=80)
STATES = st.binary(max_size=300)
SIZES = st.lists(st.integers(0, 40), max_size=12)
SKEWS = st.lists(DELAYS, min_size=1, max_size=4)
CONFIGS = st.builds(
    TransferConfig,
    wants_state=st.just(True),
    needs_state=st.just(True),
    chunk_bytes=st.integers(1, 30),
    window=st.integers(1, 9),
    retry_ns=st.sampled_from([MILLISECOND, 3 * MILLISECOND, 50 * MILLISECOND]),
)


@settings(max_examples=300)
@given(
    config=CONFIGS,
    fates=FATES,
    state=STATES,
    sizes=SIZES,
    pause_ns=DELAYS,
    skews=SKEWS,
    joiners=st.sampled_from([(B,), (B, C), (B, C, D)]),
)
def test_whatever_the_link_does_every_joiner_gets_the_state_once_and_in_order(
    config: TransferConfig,
    fates: list[Fate],
    state: bytes,
    sizes: list[int],
    pause_ns: int,
    skews: list[int],
    joiners: tuple[Address, ...],
) -> None:
    group = Group((A, *joiners), config, fates)
    group.begin(view(V1, A, *joiners), lacking(*joiners), (0, *skews))
    group.run(START)
    group.supply_later(A, V1, splits_of(state, sizes), pause_ns)
    group.run()
    for member in joiners:
        assert_has_all(group, member, state)
    assert group.told == {A: [ProvideState(V1)]}


@settings(max_examples=300)
@given(
    config=CONFIGS,
    fates=FATES,
    states=st.tuples(STATES, STATES),
    sizes=st.tuples(SIZES, SIZES),
    pause_ns=DELAYS,
    skews=SKEWS,
    dies_after_ns=st.integers(0, 400).map(lambda count: count * MILLISECOND),
)
def test_when_the_provider_dies_the_joiner_starts_over_and_ends_with_the_second_state(
    config: TransferConfig,
    fates: list[Fate],
    states: tuple[bytes, bytes],
    sizes: tuple[list[int], list[int]],
    pause_ns: int,
    skews: list[int],
    dies_after_ns: int,
) -> None:
    group = Group((A, B, C, D), config, fates)
    group.begin(view(V1, A, B, C, D), lacking(C, D))
    group.run(START)
    group.supply_later(A, V1, splits_of(states[0], sizes[0]), pause_ns)
    group.run(START + dies_after_ns)
    group.crash(A)
    without = lacking(*(member for member in (C, D) if group.machines[member].need is StateNeed.LACKING))
    group.begin(view(V2, B, C, D), without, (0, *skews))
    group.run(group.now)
    if group.told[B]:
        group.supply_later(B, V2, splits_of(states[1], sizes[1]), pause_ns)
    group.run()
    for member in (C, D):
        assert_has_all(group, member, states[member.incarnation in without])
    assert group.told[B] == ([ProvideState(V2)] if without else [])


FRAMES: st.SearchStrategy[StateFrame] = st.one_of(
    st.builds(StateRequest, st.sampled_from([V1, V2]), st.integers(0, 12), st.integers(0, 9)),
    st.builds(StateChunk, st.sampled_from([V1, V2]), st.integers(0, 12), st.booleans(), st.binary(max_size=3)),
    st.builds(StateRefusal, st.sampled_from([V1, V2]), st.just("no")),
)


@settings(max_examples=300)
@given(
    local=st.sampled_from([A, B]),
    window=st.integers(1, 5),
    inputs=st.lists(st.tuples(st.sampled_from([A, B, C, G]), FRAMES, st.integers(0, 60)), max_size=40),
)
def test_no_frame_can_break_an_invariant_or_hand_up_a_state_out_of_order(
    local: Address, window: int, inputs: list[tuple[Address, StateFrame, int]]
) -> None:
    config = TransferConfig(wants_state=True, chunk_bytes=4, window=window)
    alone, notes, now = Alone(local, config), Group((), config), START
    alone.begin(view(V1, A, B, C), lacking(B, C))
    if local is A:
        alone.supply(bytes(30))
    for source, frame, pause in inputs:
        now += pause * MILLISECOND
        effects = alone.tick(now) + alone.receive(source, frame, now)
        assert len(effects) <= window + 3
        for effect in effects:
            if isinstance(effect, StateReceived):
                notes._note(local, effect)
