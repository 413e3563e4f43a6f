"""Discovery: alone with a virtual clock, on a fake link, and against a dumb model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.errors import ConfigError, MisuseError
from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View, ViewId, ViewSummary
from motet.protocol.membership.discovery import (
    RESIDENT_ROUNDS,
    Announce,
    Consult,
    Contact,
    Discovery,
    DiscoveryConfig,
    DnsName,
    IpMulticast,
    SharedDirectory,
    Source,
    StaticSeeds,
)
from motet.protocol.wire.frames import Hello, HelloBack
from tests.protocol.membership.people import A, B, C, D, E, F, G

START = 7 * SECOND  # a clock does not begin at zero
EAGER, PROBE, FORMER = 100 * MILLISECOND, SECOND, 600 * SECOND
DNS, DIRECTORY, GROUP = DnsName("motet.example", 7000), SharedDirectory("/shared/motet"), IpMulticast()
STRANGER_NONCE = 4711
ALONE = View(ViewId(1, A.incarnation), (A,), is_primary=True)


def seeds(*people: Address) -> StaticSeeds:
    return StaticSeeds(tuple(person.endpoint for person in people))


def reborn(person: Address, life: int = 1) -> Address:
    return replace(person, incarnation=person.incarnation + 100 * life)


def view_of(*members: Address, number: int = 1) -> View:
    return View(ViewId(number, members[0].incarnation), members, is_primary=True)


def somewhere(number: int) -> Endpoint:
    return Endpoint("10.0.0.1", number)


class Lone:
    """The machine of A with what it sends written short; every round that it begins is noted."""

    def __init__(self, *sources: Source, view: View | None = ALONE, **settings: int) -> None:
        self.machine = Discovery(A, DiscoveryConfig(sources=sources, **settings), Random(1))
        self.view = ALONE
        self.nonces: list[int] = []  # of all HELLOs, in order, each once
        if view is not None:
            self.begin(view, START)

    def begin(self, view: View, now: int) -> None:
        self.view = view
        self.machine.begin(view, now)

    def hello(self, sender: Address, now: int = START, view: View | None = None) -> list[Endpoint]:
        """Whom it asks in return; that it answers is checked here."""
        effects = self.machine.hello(Hello(sender, (view or view_of(sender)).summary, STRANGER_NONCE), now)
        assert effects[0] == Contact(sender.endpoint, HelloBack(A, self.view.summary, STRANGER_NONCE))
        return self.asked(effects[1:])

    def answer(
        self, sender: Address, now: int = START, *, view: View | None = None, nonce: int | None = None
    ) -> list[Endpoint]:
        nonce = self.nonces[-1] if nonce is None else nonce
        return self.asked(self.machine.hello_back(HelloBack(sender, (view or view_of(sender)).summary, nonce), now))

    def tick(self, now: int) -> list[Endpoint]:
        return self.asked(self.machine.tick(now))

    def asked(self, effects: Iterable[Effect]) -> list[Endpoint]:
        asked = []
        for effect in effects:
            assert isinstance(effect, Contact)
            self.note(effect.frame)
            asked.append(effect.to)
        assert len(set(asked)) == len(asked)
        assert A.endpoint not in asked
        self.machine._check()
        return asked

    def note(self, frame: Frame) -> None:
        assert isinstance(frame, Hello)
        assert (frame.sender, frame.view) == (A, self.view.summary)
        if frame.nonce not in self.nonces:
            self.nonces.append(frame.nonce)

    def rounds(self, number: int) -> list[list[Endpoint]]:
        """That many rounds, each at its deadline."""
        asked = []
        for _ in range(number):
            deadline = self.machine.next_deadline()
            assert deadline is not None
            asked.append(self.tick(deadline))
        return asked

    def foreign(self, now: int = START) -> list[Address]:
        return [summary.coordinator for summary in self.machine.foreign(now)]

    def replaced(self) -> tuple[Address, ...]:
        return self.machine.replaced

    def heard_foreign_at(self) -> int | None:
        return self.machine.heard_foreign_at


# Rounds


def test_the_first_view_asks_the_seeds_at_once() -> None:
    lone = Lone(seeds(B, C))
    assert lone.machine.next_deadline() == START
    nonce = Random(1)
    nonce.getrandbits(64)  # the one for asking before the first round
    hello = Hello(A, ALONE.summary, nonce.getrandbits(64))
    assert lone.machine.tick(START - 1) == []
    assert lone.machine.tick(START) == [Contact(B.endpoint, hello), Contact(C.endpoint, hello)]
    assert lone.machine.tick(START) == []


def test_the_wait_between_rounds_doubles_up_to_the_probe_interval() -> None:
    lone = Lone(seeds(B))
    due = START
    for wait_ms in (100, 200, 400, 800, 1000, 1000):
        assert lone.machine.next_deadline() == due
        assert lone.tick(due - 1) == []
        assert lone.tick(due) == [B.endpoint]
        due += wait_ms * MILLISECOND


def test_a_later_view_asks_one_eager_interval_after_it_began_and_eagerly_again() -> None:
    lone = Lone(seeds(B))
    lone.rounds(6)
    began = START + 60 * SECOND
    lone.begin(view_of(A, C, number=2), began)
    dues = []
    for _ in range(4):
        dues.append((lone.machine.next_deadline() or 0) - began)
        assert lone.rounds(1) == [[B.endpoint]]
    assert dues == [EAGER, 2 * EAGER, 4 * EAGER, 8 * EAGER]


def test_a_late_tick_is_one_round_and_the_next_comes_a_whole_wait_later() -> None:
    lone = Lone(seeds(B))
    late = START + 60 * SECOND
    assert lone.tick(late) == [B.endpoint]
    assert lone.machine.next_deadline() == late + EAGER


def test_each_round_draws_another_nonce() -> None:
    lone = Lone(seeds(B))
    lone.rounds(5)
    assert len(lone.nonces) == 5


@pytest.mark.parametrize("sources", [(), (StaticSeeds(()),), (seeds(A),)])
def test_with_nobody_to_ask_nothing_is_due(sources: tuple[Source, ...]) -> None:
    lone = Lone(*sources)
    assert lone.machine.next_deadline() is None
    assert lone.machine.tick(START + SECOND) == []


@pytest.mark.parametrize("source", [seeds(B), GROUP, DNS, DIRECTORY])
def test_without_a_view_nothing_is_due_asked_or_answered(source: Source) -> None:
    lone = Lone(source, view=None)
    lone.machine.activate(START)
    assert lone.machine.next_deadline() is None
    assert lone.machine.tick(START) == []
    assert lone.machine.hello(Hello(B, view_of(B).summary, 1), START) == []
    assert lone.machine.notice(B, START) == []
    lone.begin(ALONE, START + 1)
    assert lone.machine.next_deadline() == START + 1


def test_a_view_that_it_is_not_in_is_misuse_and_changes_nothing() -> None:
    lone = Lone(seeds(B))
    with pytest.raises(MisuseError, match="begin only a view"):
        lone.machine.begin(view_of(B, C, number=2), START + SECOND)
    assert lone.machine.next_deadline() == START
    assert lone.tick(START) == [B.endpoint]


def test_the_same_inputs_give_the_same_effects() -> None:
    one, other = Lone(seeds(*(B, C, D)), GROUP, DNS), Lone(seeds(*(B, C, D)), GROUP, DNS)
    for now in range(START, START + 10 * SECOND, EAGER):
        assert one.machine.tick(now) == other.machine.tick(now)
        sender = reborn(E, now // EAGER)
        hello = Hello(sender, view_of(sender).summary, now)
        assert one.machine.hello(hello, now) == other.machine.hello(hello, now)


# Whom a round asks


def test_each_endpoint_is_asked_once_a_round_however_many_name_it_and_never_our_own() -> None:
    lone = Lone(seeds(B, A, B, C), seeds(C, D), DNS)
    lone.machine.found(DNS, [D.endpoint, A.endpoint, E.endpoint, E.endpoint], START)
    assert lone.asked(lone.machine.tick(START)[:-1]) == [B.endpoint, C.endpoint, D.endpoint, E.endpoint]


def test_sources_are_consulted_in_every_round_after_the_contacts_and_in_their_order() -> None:
    lone = Lone(DIRECTORY, GROUP, seeds(B), DNS)
    for _ in range(3):
        now = lone.machine.next_deadline()
        assert now is not None
        contact, *others = lone.machine.tick(now)
        assert isinstance(contact, Contact)
        assert others == [Consult(DIRECTORY), Announce(GROUP, contact.frame), Consult(DNS)]


@pytest.mark.parametrize("source", [GROUP, DNS, DIRECTORY])
def test_a_source_alone_makes_rounds_due(source: IpMulticast | DnsName | SharedDirectory) -> None:
    lone = Lone(source)
    (effect,) = lone.machine.tick(START)
    assert isinstance(effect, Announce | Consult)
    assert effect.source == source


def test_a_seed_where_a_member_lives_is_asked_in_every_eighth_round_only() -> None:
    lone = Lone(seeds(B, C), view=view_of(A, B))
    asked = lone.rounds(24)
    assert RESIDENT_ROUNDS == 8
    assert [number for number, round in enumerate(asked, 1) if B.endpoint in round] == [8, 16, 24]
    assert all(C.endpoint in round for round in asked)


def test_views_that_change_often_do_not_put_off_the_eighth_round() -> None:
    lone = Lone(seeds(B), view=view_of(A, B))
    asked = []
    for number in range(2, 18):
        lone.begin(view_of(A, B, number=number), START + number * SECOND)
        asked += lone.rounds(1)
    assert [number for number, round in enumerate(asked, 1) if round] == [8, 16]


def test_the_endpoint_of_a_member_that_no_source_names_is_never_asked() -> None:
    lone = Lone(seeds(C), view=view_of(A, B))
    assert all(round == [C.endpoint] for round in lone.rounds(30))


def test_what_a_source_found_where_a_member_lives_is_treated_like_a_seed() -> None:
    lone = Lone(DIRECTORY, view=view_of(A, B))
    assert lone.machine.found(DIRECTORY, [B.endpoint], START) == []
    asked = [
        B.endpoint in [effect.to for effect in effects if isinstance(effect, Contact)] for effects in ticks(lone, 16)
    ]
    assert [number for number, is_asked in enumerate(asked, 1) if is_asked] == [8, 16]


def ticks(lone: Lone, number: int) -> list[list[Effect]]:
    return [lone.machine.tick(START + at * SECOND) for at in range(number)]


def test_too_many_endpoints_take_turns_and_nobody_has_two_before_all_had_one() -> None:
    lone = Lone(StaticSeeds(tuple(somewhere(number) for number in range(1, 201))), most_contacts=64)
    turns: Counter[Endpoint] = Counter()
    for round in lone.rounds(50):
        assert len(round) == 64
        turns.update(round)
        assert max(turns.values()) - min(turns.get(somewhere(number), 0) for number in range(1, 201)) <= 1
    assert sum(turns.values()) == 50 * 64


def test_turns_are_fair_to_those_who_stay_though_others_come_and_go() -> None:
    lone = Lone(seeds(B), DIRECTORY, most_contacts=4)
    rng, turns = Random(2), Counter[Endpoint]()
    stay = [somewhere(number) for number in range(100, 2_000, 100)]
    for number in range(200):
        passing = [somewhere(rng.randrange(3_000)) for _ in range(5)]
        lone.machine.found(DIRECTORY, [*stay, *passing], START)
        effects = lone.machine.tick(START + number * SECOND)
        turns.update(effect.to for effect in effects if isinstance(effect, Contact))
    assert min(turns[at] for at in stay) >= 200 * 4 // (len(stay) + 1 + 5) - 1


def test_members_behind_seeds_have_their_turns_though_strangers_fill_every_round() -> None:
    members = [replace(B, name=f"m{number}", port=number, incarnation=1_000 + number) for number in range(1, 7)]
    strangers = StaticSeeds(tuple(somewhere(number) for number in range(1, 33)))
    lone = Lone(strangers, seeds(*members), view=view_of(A, *members), most_contacts=4)
    turns: Counter[Endpoint] = Counter()
    for round in lone.rounds(8 * 12):
        assert len(round) == 4
        turns.update(round)
    assert {turns[member.endpoint] for member in members} == {12 * 4 // 6}
    asked_strangers = [turns[at] for at in strangers.endpoints]
    assert max(asked_strangers) - min(asked_strangers) <= 1


# Former members


def test_former_members_are_asked_for_a_while() -> None:
    lone = Lone(view=view_of(A, B, C))
    assert lone.machine.next_deadline() is None
    lone.begin(view_of(A, B, number=2), START)
    assert lone.machine.next_deadline() == START + EAGER
    assert lone.tick(START + EAGER) == [C.endpoint]
    assert lone.tick(START + FORMER) == [C.endpoint]
    assert lone.tick(START + FORMER + PROBE) == []
    assert lone.machine.next_deadline() is None


def test_a_former_member_that_is_back_in_any_incarnation_is_no_longer_asked() -> None:
    for back in (C, reborn(C)):
        lone = Lone(view=view_of(A, B, C))
        lone.begin(view_of(A, B, number=2), START)
        lone.begin(view_of(A, B, back, number=3), START)
        assert lone.machine.next_deadline() is None


def test_a_member_that_is_replaced_by_its_next_life_in_one_step_is_not_asked() -> None:
    lone = Lone(view=view_of(A, B))
    lone.begin(view_of(A, reborn(B), number=2), START)
    assert lone.machine.next_deadline() is None


def test_of_too_many_former_members_the_newest_are_asked() -> None:
    people = [replace(B, port=number, incarnation=1_000 + number) for number in range(1, 21)]
    lone = Lone(view=view_of(A, *people), most_contacts=8, most_known=8)
    for number, _ in enumerate(people, 1):
        lone.begin(view_of(A, *people[number:], number=number + 1), START + number)
    assert lone.tick(START + SECOND) == [person.endpoint for person in people[-8:]]


# Only one of a view probes


def test_one_who_is_not_active_asks_nobody_and_still_answers() -> None:
    lone = Lone(seeds(B), DNS)
    lone.machine.tick(START)
    lone.machine.deactivate()
    assert not lone.machine.is_active
    assert lone.machine.next_deadline() is None
    assert lone.machine.tick(START + SECOND) == []
    assert lone.hello(C) == []
    assert lone.machine.found(DNS, [D.endpoint], START) == []
    assert lone.machine.notice(E, START) == []


def test_one_who_becomes_active_again_asks_at_once_what_was_found_meanwhile() -> None:
    lone = Lone(seeds(B), DNS)
    lone.machine.tick(START)
    lone.machine.deactivate()
    lone.machine.found(DNS, [D.endpoint], START)
    lone.machine.activate(START + 5 * MILLISECOND)
    assert lone.machine.is_active
    assert lone.machine.next_deadline() == START + 5 * MILLISECOND
    assert lone.asked(lone.machine.tick(START + 5 * MILLISECOND)[:-1]) == [B.endpoint, D.endpoint]


def test_activating_one_who_is_active_changes_nothing() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    lone.machine.activate(START + 1)
    assert lone.machine.next_deadline() == START + EAGER


# What a source found


def test_new_endpoints_are_asked_at_once_and_in_every_round_after() -> None:
    lone = Lone(DNS)
    assert lone.machine.tick(START) == [Consult(DNS)]
    assert lone.asked(lone.machine.found(DNS, [C.endpoint, B.endpoint], START + 1)) == [C.endpoint, B.endpoint]
    assert lone.asked(lone.machine.found(DNS, [C.endpoint, B.endpoint], START + 2)) == []
    assert lone.asked(lone.machine.tick(START + EAGER)[:-1]) == [C.endpoint, B.endpoint]
    assert lone.asked(lone.machine.found(DNS, [C.endpoint, D.endpoint], START + SECOND)) == [D.endpoint]


def test_what_a_source_found_replaces_what_it_found_before_and_nothing_else() -> None:
    lone = Lone(DNS, DIRECTORY, seeds(B))
    lone.machine.found(DNS, [C.endpoint, D.endpoint], START)
    lone.machine.found(DIRECTORY, [E.endpoint], START)
    lone.machine.found(DNS, [D.endpoint, F.endpoint], START)
    asked = lone.asked(lone.machine.tick(START)[:-2])
    assert asked == [D.endpoint, F.endpoint, E.endpoint, B.endpoint]


def test_what_is_new_is_asked_with_the_nonce_of_the_round() -> None:
    lone = Lone(DNS, seeds(B))
    lone.asked(lone.machine.tick(START)[:-1])
    lone.asked(lone.machine.found(DNS, [C.endpoint], START))
    assert len(lone.nonces) == 1
    lone.answer(C)
    assert lone.foreign() == [C]


def test_of_very_many_that_are_found_some_are_asked_at_once_and_the_others_in_turn() -> None:
    lone = Lone(DNS, most_contacts=10, most_known=30)
    lone.machine.tick(START)
    effects = lone.machine.found(DNS, [somewhere(number) for number in range(1, 10_000)], START)
    assert lone.asked(effects) == [somewhere(number) for number in range(1, 11)]
    later = [lone.asked(lone.machine.tick(START + number * SECOND)[:-1]) for number in range(1, 7)]
    assert Counter(at for round in later for at in round) == {somewhere(number): 2 for number in range(1, 31)}


def test_a_source_that_was_never_configured_is_misuse() -> None:
    with pytest.raises(MisuseError, match=r"DiscoveryConfig\.sources"):
        Lone(DNS).machine.found(DIRECTORY, [], START)


# HELLO


def test_a_stranger_is_answered_and_asked_in_return_once_a_round() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    assert lone.hello(C) == [C.endpoint]
    assert lone.hello(C) == []
    assert lone.hello(B) == []  # asked by the round
    assert len(lone.nonces) == 1
    lone.tick(START + EAGER)
    assert lone.hello(C) == [C.endpoint]


def test_a_stranger_is_asked_in_return_also_before_the_first_round() -> None:
    lone = Lone()
    assert lone.hello(C) == [C.endpoint]
    lone.answer(C)
    assert lone.foreign() == [C]


def test_a_member_is_answered_and_not_asked() -> None:
    lone = Lone(view=view_of(A, B))
    assert lone.hello(B) == []
    assert lone.machine.known(B.incarnation) == B
    assert lone.heard_foreign_at() is None


def test_another_life_of_a_member_is_a_stranger() -> None:
    lone = Lone(view=view_of(A, B))
    assert lone.hello(reborn(B)) == [B.endpoint]
    assert lone.replaced() == ()  # a HELLO proves nothing: it may have been on its way for long


@pytest.mark.parametrize("sender", [A, reborn(A)])
def test_a_hello_of_ourselves_in_any_incarnation_is_ignored(sender: Address) -> None:
    lone = Lone(GROUP)
    assert lone.machine.hello(Hello(sender, ALONE.summary, 1), START) == []
    assert lone.machine.known(sender.incarnation) is None
    assert lone.heard_foreign_at() is None


def test_a_former_member_is_still_known() -> None:
    """Seed 60 of the scenario `torn`: who did not know that it was let go asked those who did not know it any more."""
    lone = Lone(view=view_of(A, B, C))
    lone.machine.begin(view_of(A, C, number=3), START)
    assert lone.machine.known(B.incarnation) == B


def test_strangers_are_known_by_their_incarnation() -> None:
    lone = Lone()
    assert lone.machine.known(B.incarnation) is None
    lone.hello(B)
    assert lone.machine.known(B.incarnation) == B
    lone.answer(C)
    assert lone.machine.known(C.incarnation) == C


def test_a_hello_alone_makes_no_acquaintance() -> None:
    lone = Lone()
    lone.hello(B)
    assert lone.foreign() == []
    assert lone.machine.next_deadline() is None


# HELLO_BACK and its nonce


def test_an_answer_to_this_round_or_the_one_before_is_accepted() -> None:
    lone = Lone(seeds(B))
    lone.rounds(3)
    for nonce in lone.nonces[1:]:
        lone.answer(B, nonce=nonce)
        assert lone.foreign() == [B]
        lone.machine.forget(B)


def test_a_late_answer_of_an_earlier_life_is_ignored() -> None:
    lone = Lone(seeds(B))
    lone.rounds(3)
    for nonce in (lone.nonces[0], lone.nonces[2] ^ 1, 0):
        assert lone.answer(B, view=view_of(C, B), nonce=nonce) == []
    assert lone.foreign() == []
    assert lone.machine.known(B.incarnation) is None
    assert lone.heard_foreign_at() is None


def test_two_discoveries_do_not_accept_answers_to_each_other() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    assert lone.answer(B, nonce=STRANGER_NONCE) == []
    assert lone.foreign() == []


def test_an_answer_from_our_own_endpoint_is_nonsense() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    lone.answer(reborn(A))
    assert lone.foreign() == []
    assert lone.replaced() == ()


def test_one_who_answers_is_asked_in_every_round_after_until_it_was_silent_for_long() -> None:
    lone = Lone(GROUP)
    (announce,) = lone.machine.tick(START)
    assert isinstance(announce, Announce)
    lone.note(announce.frame)
    lone.answer(C, START)
    assert lone.asked(lone.machine.tick(START + FORMER)[:-1]) == [C.endpoint]
    assert lone.machine.tick(START + FORMER + PROBE)[:-1] == []


def test_the_coordinator_of_one_who_answers_is_asked_at_once_and_once_a_round() -> None:
    lone = Lone(seeds(B, C))
    lone.tick(START)
    assert lone.answer(B, view=view_of(D, B, C)) == [D.endpoint]
    assert lone.answer(C, view=view_of(D, B, C)) == []
    assert len(lone.nonces) == 1
    lone.tick(START + EAGER)
    assert lone.answer(C, view=view_of(D, B, C)) == [D.endpoint]


@pytest.mark.parametrize(
    ("sender", "view"),
    [
        (D, view_of(D, C)),  # the sender itself, which may have answered from an endpoint that we know by another name
        (C, view_of(A, C)),  # us
        (C, view_of(B, C)),  # a member of ours
        (B, view_of(A, B)),  # a member of ours, and us
        (C, View(ViewId(9, 9), (reborn(A), C), is_primary=False)),  # an earlier life of ours
    ],
)
def test_a_coordinator_that_need_not_be_asked_is_not(sender: Address, view: View) -> None:
    lone = Lone(seeds(C), view=view_of(A, B, number=5))
    lone.tick(START)
    assert lone.answer(sender, view=view) == []


def test_a_member_that_follows_another_coordinator_leads_us_to_it() -> None:
    lone = Lone(seeds(B), view=view_of(A, B))
    lone.rounds(8)
    assert lone.answer(B, view=view_of(D, B, number=4)) == [D.endpoint]
    assert lone.foreign() == []


# Foreign views


def test_foreign_views_are_told_by_their_coordinators_and_sorted() -> None:
    lone = Lone(seeds(B, C, D, E))
    lone.tick(START)
    lone.answer(D, view=view_of(D, number=1))
    lone.answer(C, view=view_of(C, number=3))
    lone.answer(B, view=(view := view_of(B, F, number=2)))
    lone.answer(E, view=view_of(G, E, number=2))  # not from G itself
    assert lone.foreign() == [D, B, C]
    assert lone.machine.foreign(START)[1] == view.summary == ViewSummary(ViewId(2, B.incarnation), B, True, 2)


def test_a_foreign_view_is_gone_when_its_coordinator_did_not_answer_for_three_probes() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    lone.answer(B, START)
    assert lone.foreign(START + 3 * PROBE) == [B]
    assert lone.foreign(START + 3 * PROBE + 1) == []


def test_our_own_view_is_not_foreign() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    lone.answer(B, view=View(ALONE.id, (B,), is_primary=True))
    assert lone.foreign() == []


def test_the_last_answer_of_an_endpoint_counts() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    lone.answer(B, view=view_of(B, number=3))
    lone.answer(B, view=(later := view_of(B, C, number=4)))
    assert lone.machine.foreign(START) == (later.summary,)
    lone.answer(B, view=view_of(C, B, number=5))
    assert lone.foreign() == []
    lone.answer(reborn(B))
    assert lone.foreign() == [reborn(B)]


def test_those_who_come_into_our_view_are_acquaintances_no_more() -> None:
    lone = Lone(seeds(B, C))
    lone.tick(START)
    lone.answer(B)
    lone.answer(C)
    lone.begin(view_of(A, B, number=2), START)
    assert lone.foreign() == [C]
    assert lone.tick(START + EAGER) == [C.endpoint]
    lone.begin(view_of(A, number=3), START + EAGER)
    assert lone.foreign(START + EAGER) == [C]  # what B told is past


def test_a_forgotten_view_is_foreign_again_when_its_coordinator_answers_again() -> None:
    lone = Lone(GROUP)
    lone.hello(B)
    lone.answer(B)
    lone.machine.forget(reborn(B))
    assert lone.foreign() == [B]
    lone.machine.forget(B)
    lone.machine.forget(B)
    assert lone.foreign() == []
    assert lone.asked(lone.machine.tick(START + EAGER)[:-1]) == [B.endpoint]  # both may have forgotten the other
    lone.answer(B)
    assert lone.foreign() == [B]


def test_a_forgotten_view_is_not_asked_longer_than_others() -> None:
    lone = Lone()
    lone.hello(B)
    lone.answer(B)
    lone.machine.forget(B)
    assert lone.tick(START + FORMER) == [B.endpoint]
    assert lone.tick(START + FORMER + PROBE) == []


def test_when_strangers_were_heard_last() -> None:
    lone = Lone(seeds(B), view=view_of(A, B))
    lone.rounds(8)
    assert lone.heard_foreign_at() is None
    lone.hello(B, START + 1)
    lone.answer(B, START + 1)
    assert lone.heard_foreign_at() is None
    lone.hello(C, START + 2)
    assert lone.heard_foreign_at() is None  # it may be a replay of an earlier time
    lone.answer(C, START + 2, nonce=STRANGER_NONCE)
    assert lone.heard_foreign_at() is None  # and so may an answer to another question
    lone.answer(C, START + 3)
    assert lone.heard_foreign_at() == START + 3


def test_when_a_primary_view_of_others_was_heard_last() -> None:
    lone = Lone(seeds(C))
    lone.rounds(1)
    lone.answer(C, START + 1, view=View(ViewId(1, C.incarnation), (C,), is_primary=False))
    assert (lone.heard_foreign_at(), lone.machine.heard_primary_at) == (START + 1, None)
    lone.answer(C, START + 2)
    lone.answer(C, START + 3, view=View(ViewId(1, C.incarnation), (C,), is_primary=False))
    assert (lone.heard_foreign_at(), lone.machine.heard_primary_at) == (START + 3, START + 2)


def test_who_speaks_to_an_earlier_incarnation_is_asked_once_in_a_round() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    assert lone.asked(lone.machine.misaddressed(C.endpoint, START)) == [C.endpoint]
    assert lone.asked(lone.machine.misaddressed(C.endpoint, START)) == []
    assert lone.asked(lone.machine.misaddressed(A.endpoint, START)) == []
    assert lone.heard_foreign_at() is None
    lone.answer(C, START + 1)
    assert lone.heard_foreign_at() == START + 1


def test_look_ups_count_from_the_first_success_after_the_last_failure() -> None:
    lone = Lone(DNS, DIRECTORY, GROUP, seeds(B))
    since = [lone.machine.looked_up_at]
    order: list[DnsName | SharedDirectory] = [DNS, DIRECTORY, DNS]
    for at, source in enumerate(order, 1):
        lone.machine.found(source, [], START + at)
        since.append(lone.machine.looked_up_at)
    assert since == [None, None, START + 2, START + 2]
    lone.machine.not_found(DIRECTORY)
    since.append(lone.machine.looked_up_at)
    lone.machine.found(DIRECTORY, [], START + 5)
    assert [*since[4:], lone.machine.looked_up_at] == [None, START + 5]


def test_a_failed_look_up_leaves_what_it_named_before() -> None:
    lone = Lone(DNS)
    lone.asked(lone.machine.found(DNS, [C.endpoint], START))
    lone.machine.not_found(DNS)
    assert lone.asked(lone.machine.tick(START)[:-1]) == [C.endpoint]


def test_without_look_ups_there_is_nothing_to_wait_for() -> None:
    assert Lone(seeds(B), GROUP).machine.looked_up_at == 0


def test_a_failed_look_up_of_a_stranger_is_refused() -> None:
    with pytest.raises(MisuseError, match="no source of ours"):
        Lone(DNS).machine.not_found(DIRECTORY)


# Restarts


def test_a_member_whose_endpoint_answers_in_another_life_was_replaced() -> None:
    lone = Lone(seeds(B, C), view=view_of(A, B, C, D))
    lone.rounds(8)
    lone.answer(C)
    assert lone.replaced() == ()
    lone.answer(reborn(D))
    lone.answer(reborn(B))
    lone.answer(reborn(B, 2))
    assert lone.replaced() == (B, D)
    assert lone.foreign() == [reborn(D), reborn(B, 2)]


def test_a_restart_is_proved_by_asking_whoever_says_hello_from_there() -> None:
    lone = Lone(view=view_of(A, B))
    assert lone.hello(reborn(B)) == [B.endpoint]
    lone.answer(reborn(B), START + 1)
    lone.tick(START + 1)
    assert lone.hello(reborn(B)) == []  # the round asked it: an acquaintance lives there now
    lone.answer(reborn(B), START + 2)
    assert lone.replaced() == (B,)


def test_an_answer_with_a_nonce_that_is_not_ours_replaces_nobody() -> None:
    lone = Lone(seeds(B), view=view_of(A, B))
    lone.rounds(8)
    lone.answer(reborn(B), nonce=STRANGER_NONCE)
    assert lone.replaced() == ()


def test_who_was_replaced_is_counted_anew_in_each_view() -> None:
    lone = Lone(seeds(B), view=view_of(A, B))
    lone.rounds(8)
    lone.answer(reborn(B))
    lone.begin(view_of(A, B, C, number=2), START)
    assert lone.replaced() == ()


def test_an_answer_to_an_earlier_view_says_nothing_about_who_lives_in_this_one() -> None:
    lone = Lone(seeds(B), view=view_of(A, C))
    lone.tick(START)
    lone.begin(view_of(A, reborn(B), number=2), START + 1)
    lone.answer(B, START + 2)  # sent before B restarted, was found by C and came in
    assert lone.replaced() == ()


def test_one_who_was_replaced_and_leaves_the_view_does_not_hide_its_next_life() -> None:
    lone = Lone(seeds(B), view=view_of(A, B))
    lone.rounds(8)
    lone.answer(reborn(B))
    lone.begin(view_of(A, number=2), START)
    assert lone.foreign() == [reborn(B)]


def test_a_member_that_answers_where_an_earlier_life_was_known_is_asked_no_more() -> None:
    lone = Lone(GROUP)
    lone.hello(B)
    lone.answer(B)
    lone.begin(view_of(A, reborn(B), number=2), START)
    assert lone.asked(lone.machine.tick(START + EAGER)[:-1]) == [B.endpoint]  # which life is the later one?
    lone.answer(reborn(B))
    assert lone.foreign() == []
    assert lone.machine.tick(START + SECOND)[:-1] == []


# Other traffic


def test_a_stranger_that_was_noticed_is_asked_once_a_round() -> None:
    lone = Lone(seeds(B), view=view_of(A, C))
    lone.tick(START)
    assert lone.asked(lone.machine.notice(D, START)) == [D.endpoint]
    assert lone.machine.notice(D, START) == []
    assert lone.machine.notice(B, START) == []
    assert lone.machine.notice(C, START) == []
    assert lone.machine.notice(A, START) == []
    assert lone.asked(lone.machine.notice(reborn(C), START)) == [C.endpoint]
    assert len(lone.nonces) == 1


# Bounds


def test_ten_thousand_strangers_leave_a_bounded_trace() -> None:
    lone = Lone(seeds(B))
    lone.tick(START)
    people = [Address("stranger", f"10.0.{n >> 8}.{n & 255}", 7000, 1_000 + n) for n in range(10_000)]
    followers = [replace(person, port=7001, incarnation=20_000 + person.incarnation) for person in people]
    asked = 0
    for person, follower in zip(people, followers, strict=True):
        asked += len(lone.machine.hello(Hello(follower, view_of(person, follower).summary, 1), START)) - 1
        asked += len(
            lone.machine.hello_back(HelloBack(follower, view_of(person, follower).summary, lone.nonces[0]), START)
        )
        asked += len(
            lone.machine.hello_back(HelloBack(person, view_of(person, follower).summary, lone.nonces[0]), START)
        )
    lone.machine._check()
    assert asked == 1_023  # and B: 1 024 in one round
    assert lone.foreign() == people[-512:]
    assert lone.machine.known(followers[-512].incarnation) == followers[-512]
    assert lone.machine.known(people[-513].incarnation) is None
    assert [len(round) for round in lone.rounds(30)] == [64] * 30
    assert lone.hello(C) == [C.endpoint]


def test_one_who_is_heard_again_is_not_the_oldest_any_more() -> None:
    lone = Lone(seeds(G), most_contacts=2, most_known=2)
    for person in (B, C, B, D):
        lone.hello(person)
        lone.answer(person)
    assert lone.machine.known(B.incarnation) == B
    assert lone.machine.known(C.incarnation) is None
    assert lone.foreign() == [B, D]


LIMITS = {
    "eager_ns": (MILLISECOND, 60 * SECOND),
    "probe_ns": (EAGER, 3_600 * SECOND),
    "former_ns": (PROBE, 86_400 * SECOND),
    "most_contacts": (1, 65_536),
    "most_known": (64, 1_048_576),
}


def test_every_number_of_the_config_has_limits() -> None:
    assert [*LIMITS] == [one.name for one in fields(DiscoveryConfig) if one.name != "sources"]


@pytest.mark.parametrize("name", LIMITS)
def test_a_value_outside_its_limits_is_refused_in_words(name: str) -> None:
    least, most = LIMITS[name]
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=f"{name} = {value} .*{least} to {most}"):
            DiscoveryConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits_themselves_are_allowed(name: str) -> None:
    others = {"probe_ns": 3_600 * SECOND, "former_ns": 86_400 * SECOND} if name in ("eager_ns", "probe_ns") else {}
    others |= {"most_known": 65_536} if name == "most_contacts" else {}
    for value in LIMITS[name]:
        assert getattr(DiscoveryConfig(**{**others, name: value}), name) == value  # type: ignore[arg-type]


# On a fake link


class Town:
    """Members, each alone in its view, on a link that loses and delays, with a directory that all can read."""

    def __init__(self, rng: Random, *, loss: float = 0.0) -> None:
        self._rng, self._loss = rng, loss
        self._flights: list[tuple[int, int, Endpoint, Frame]] = []
        self._numbers = count()
        self._directory: dict[Endpoint, None] = {}
        self.machines: dict[Endpoint, Discovery] = {}
        self.now = START
        self.sent = 0

    def start(self, member: Address, *sources: Source, view: View | None = None) -> Discovery:
        machine = Discovery(member, DiscoveryConfig(sources=sources), self._rng)
        machine.begin(view or view_of(member), self.now)
        self.machines[member.endpoint] = machine
        return machine

    def run(self, duration_ns: int) -> None:
        until = self.now + duration_ns
        while (moment := self._next()) <= until:
            self.now = moment
            while self._flights and self._flights[0][0] <= moment:
                self._arrive(*heappop(self._flights)[2:])
            for at, machine in self.machines.items():
                self._perform(at, machine.tick(moment))
                machine._check()
        self.now = until

    def _next(self) -> int:
        deadlines = [machine.next_deadline() for machine in self.machines.values()]
        flights = [flight[0] for flight in self._flights[:1]]
        return min([START << 8, *flights, *(deadline for deadline in deadlines if deadline is not None)])

    def _arrive(self, to: Endpoint, frame: Frame) -> None:
        if to not in self.machines:
            return
        if isinstance(frame, Hello):
            self._perform(to, self.machines[to].hello(frame, self.now))
        else:
            assert isinstance(frame, HelloBack)
            self._perform(to, self.machines[to].hello_back(frame, self.now))

    def _perform(self, at: Endpoint, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Contact):
                self._send(effect.to, effect.frame)
            elif isinstance(effect, Announce):
                for to in self.machines:
                    self._send(to, effect.frame)
            else:
                assert isinstance(effect, Consult)
                self._directory[at] = None
                self._perform(at, self.machines[at].found(effect.source, [*self._directory], self.now))

    def _send(self, to: Endpoint, frame: Frame) -> None:
        self.sent += 1
        if self._rng.random() >= self._loss:
            arrival = self.now + self._rng.randrange(MILLISECOND, 10 * MILLISECOND)
            heappush(self._flights, (arrival, next(self._numbers), to, frame))

    def sees(self, machine: Discovery) -> set[Address]:
        return {summary.coordinator for summary in machine.foreign(self.now)}


def test_two_find_each_other_when_one_is_the_seed_of_the_other() -> None:
    town = Town(Random(3))
    a, b = town.start(A, seeds(B)), town.start(B)
    town.run(50 * MILLISECOND)
    assert (town.sees(a), town.sees(b)) == ({B}, {A})
    town.run(60 * SECOND)
    assert (town.sees(a), town.sees(b)) == ({B}, {A})


def test_of_three_with_one_seed_the_seed_knows_both_others() -> None:
    town = Town(Random(3))
    a, b, c = (town.start(member, seeds(B)) for member in (A, B, C))
    town.run(50 * MILLISECOND)
    assert (town.sees(a), town.sees(b), town.sees(c)) == ({B}, {A, C}, {B})


def test_any_member_leads_to_the_coordinator_of_its_view() -> None:
    town = Town(Random(3))
    both = view_of(C, B)
    town.start(B, seeds(B), view=both).deactivate()
    town.start(C, seeds(B), view=both)
    newcomer = town.start(A, seeds(B))
    town.run(50 * MILLISECOND)
    assert newcomer.foreign(town.now) == (both.summary,)


@pytest.mark.parametrize("source", [GROUP, DNS, DIRECTORY])
def test_all_find_all_without_seeds(source: Source) -> None:
    town = Town(Random(3))
    people = {member: town.start(member, source) for member in (A, B, C, D, E)}
    town.run(SECOND)
    for member, machine in people.items():
        assert town.sees(machine) == people.keys() - {member}


def test_a_member_that_restarts_behind_the_only_seed_is_noticed() -> None:
    town = Town(Random(3))
    both = view_of(A, B)
    a = town.start(A, seeds(B), view=both)
    town.start(B, seeds(B), view=both).deactivate()
    town.run(20 * SECOND)
    assert list(a.replaced) == []
    town.start(reborn(B), seeds(B))
    town.run(10 * SECOND)
    assert list(a.replaced) == [B]
    assert town.sees(a) == {reborn(B)}


def test_two_halves_find_each_other_after_a_partition_without_any_source() -> None:
    town = Town(Random(3))
    a, b = town.start(A, view=view_of(A, B)), town.start(B, view=view_of(A, B))
    a.begin(view_of(A, number=2), town.now)
    b.begin(view_of(B, number=2), town.now)
    apart, town.machines = town.machines, {A.endpoint: a}
    town.run(300 * SECOND)
    town.machines = apart
    town.run(2 * SECOND)
    assert (town.sees(a), town.sees(b)) == ({B}, {A})


@pytest.mark.parametrize(("loss", "within_ns"), [(0.0, SECOND), (0.3, 10 * SECOND)])
def test_twenty_that_start_at_once_are_all_known_to_the_three_seeds(loss: float, within_ns: int) -> None:
    people = [Address(f"m{number}", "10.0.0.1", number, 1_000 + number) for number in range(1, 21)]
    town = Town(Random(4), loss=loss)
    machines = [town.start(person, seeds(*people[:3])) for person in people]
    town.run(within_ns)
    for number, seed in enumerate(machines[:3]):
        others = {*people} - {people[number]}
        assert {person for person in others if seed.known(person.incarnation) == person} == others
        assert loss or town.sees(seed) == others
    rounds = 4 + within_ns // SECOND
    assert town.sent <= rounds * 3 * len(people) * 4  # HELLO and its answer, and both once more in return


# Against a dumb model: it keeps a log of all that happened and looks everything up in it

LIVES = [person if life == 0 else reborn(person, life) for person in (B, C, D) for life in range(2)]
MODEL_FORMER = 3 * SECOND


@dataclass(frozen=True, slots=True)
class Began:
    view: View


@dataclass(frozen=True, slots=True)
class Answered:
    frame: HelloBack


@dataclass(frozen=True, slots=True)
class Forgot:
    coordinator: Address


@dataclass(frozen=True, slots=True)
class Asked:
    nonce: int  # of a new round


Logged = tuple[int, Began | Answered | Forgot | Asked]


@dataclass(slots=True)
class Model:
    log: list[Logged] = field(default_factory=list)
    seeds: tuple[Endpoint, ...] = (B.endpoint,)

    def view(self) -> View:
        return [entry.view for _, entry in self.log if isinstance(entry, Began)][-1]

    def rounds(self) -> list[tuple[int, View]]:
        """The nonce of each round, and the view that it asked in."""
        views, rounds = [ALONE], []
        for _, entry in self.log:
            if isinstance(entry, Began):
                views.append(entry.view)
            elif isinstance(entry, Asked):
                rounds.append((entry.nonce, views[-1]))
        return rounds

    def story(self, at: Endpoint) -> tuple[int, HelloBack | None] | None:
        """When somebody outside the view was last known at this endpoint, and what it answered."""
        story: tuple[int, HelloBack | None] | None = None
        view = ALONE
        for now, entry in self.log:
            answer = story[1] if story else None
            if isinstance(entry, Answered) and entry.frame.sender.endpoint == at:
                story = None if entry.frame.sender in view else (now, entry.frame)
            elif isinstance(entry, Forgot) and story and answer and answer.sender == entry.coordinator:
                story = (story[0], None)
            elif isinstance(entry, Asked) and story and now - story[0] > MODEL_FORMER:
                story = None
            elif isinstance(entry, Began):
                homes = [member.endpoint for member in entry.view.members]
                story = None if (answer.sender in entry.view if answer else at in homes) else story
                if story is None and at not in homes and at in [member.endpoint for member in view.members]:
                    story = (now, None)
                view = entry.view
        return story

    def worth_asking(self) -> set[Endpoint]:
        homes = {member.endpoint for member in self.view().members}
        strangers = {life.endpoint for life in LIVES if self.story(life.endpoint)}
        is_eighth = len(self.rounds()) % 8 == 0
        return strangers | {seed for seed in self.seeds if is_eighth or seed not in homes}

    def foreign(self, now: int) -> set[ViewSummary]:
        stories = [self.story(at) for at in sorted({life.endpoint for life in LIVES})]
        told = [story[1] for story in stories if story and now - story[0] <= 3 * SECOND and story[1]]
        return {answer.view for answer in told if answer.sender == answer.view.coordinator} - {self.view().summary}

    def replaced(self) -> list[Address]:
        began = max(number for number, (_, entry) in enumerate(self.log) if isinstance(entry, Began))
        in_this_view = [nonce for nonce, view in self.rounds() if view == self.view()]
        answers = [entry.frame for _, entry in self.log[began:] if isinstance(entry, Answered)]
        lives = [answer.sender for answer in answers if answer.nonce in in_this_view]
        return [one for one in self.view().members if any(one.endpoint == x.endpoint and one != x for x in lives)]


class Both:
    """The machine and the model, given the same inputs."""

    def __init__(self) -> None:
        self.lone = Lone(StaticSeeds((B.endpoint,)), former_ns=MODEL_FORMER)
        self.model = Model([(START, Began(ALONE))])
        self.now = START
        self.asked: set[Endpoint] = set()  # in this round

    def begin(self, members: Sequence[Address]) -> None:
        view = view_of(A, *members, number=self.lone.view.id.number + 1)
        self.lone.begin(view, self.now)
        self.model.log.append((self.now, Began(view)))

    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds * MILLISECOND
        deadline = self.lone.machine.next_deadline()
        effects = self.lone.machine.tick(self.now)
        if deadline is None or deadline > self.now:
            assert effects == []
            return
        self.asked = set(self.lone.asked(effects))
        self.model.log.append((self.now, Asked(self.lone.machine._round.nonce)))
        assert self.asked == self.model.worth_asking()

    def hello(self, sender: Address) -> None:
        self.expect(self.lone.hello(sender, self.now), sender)

    def notice(self, sender: Address) -> None:
        self.expect(self.lone.asked(self.lone.machine.notice(sender, self.now)), sender)

    def answer(self, sender: Address, others: Sequence[Address], rounds_ago: int) -> None:
        nonces = [nonce for nonce, _ in self.model.rounds()]
        nonce = nonces[-1 - rounds_ago] if rounds_ago < len(nonces) else STRANGER_NONCE
        view = view_of(*dict.fromkeys([*others, sender]))
        frame = HelloBack(sender, view.summary, nonce)
        asked = self.lone.asked(self.lone.machine.hello_back(frame, self.now))
        if nonce not in nonces[-2:]:
            assert asked == []
            return
        self.model.log.append((self.now, Answered(frame)))
        assert self.lone.machine.known(sender.incarnation) == sender
        self.expect(asked, *(others[:1] if others[:1] != [sender] else []))

    def forget(self, coordinator: Address) -> None:
        self.lone.machine.forget(coordinator)
        self.model.log.append((self.now, Forgot(coordinator)))

    def expect(self, asked: list[Endpoint], *strangers: Address) -> None:
        """Each that is no member and was not asked in this round is asked."""
        view = self.model.view()
        assert asked == [one.endpoint for one in strangers if one not in view and one.endpoint not in self.asked]
        self.asked.update(asked)

    def compare(self) -> None:
        machine = self.lone.machine
        assert set(machine.foreign(self.now)) == self.model.foreign(self.now)
        assert list(machine.replaced) == self.model.replaced()


PEOPLE = st.sampled_from(LIVES)
ACTIONS = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 1_500)),
    st.tuples(st.just("wait"), st.integers(90, 110)),
    st.tuples(st.just("begin"), st.lists(PEOPLE, max_size=3, unique=True)),
    st.tuples(st.just("hello"), PEOPLE),
    st.tuples(st.just("notice"), PEOPLE),
    st.tuples(st.just("answer"), PEOPLE, st.lists(PEOPLE, max_size=1), st.integers(0, 3)),
    st.tuples(st.just("answer"), PEOPLE, st.just([]), st.just(0)),
    st.tuples(st.just("forget"), PEOPLE),
)


@settings(max_examples=500)
@given(actions=st.lists(ACTIONS, max_size=60))
def test_discovery_agrees_with_a_dumb_model(actions: list[tuple[str, object]]) -> None:
    both = Both()
    for name, *arguments in actions:
        getattr(both, name)(*arguments)
        both.lone.machine._check()
        both.compare()
