"""When a lone member bootstraps a group: after silence that means something, and never beside a group that answers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import NOBODY
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.member import Datagram, Member, MemberConfig
from motet.protocol.membership import DnsName, MembershipConfig
from motet.protocol.membership.discovery import FRESH_PROBES, Source
from motet.protocol.wire.codec import DecodedDatagram, decode, encode, group_id
from motet.protocol.wire.frames import Hello, HelloBack
from tests.protocol.membership.people import A, B, C

GROUP, START = "test", 7 * SECOND
DNS = DnsName("motet.example", 7000)
LAN = MembershipConfig.lan()
OTHERS = View(ViewId(5, C.incarnation), (C, B), is_primary=True)  # B is not its coordinator, so nothing is merged yet


class Lone:
    """The member A, its clock, and the nonce of its last question."""

    def __init__(self, config: MembershipConfig) -> None:
        self.member = Member(A, GROUP, MemberConfig(membership=config), Random(1))
        self.now = START
        self.nonce = 0
        self.note(self.member.start(self.now))

    @property
    def is_primary(self) -> bool:
        return self.member.view.is_primary

    def note(self, effects: list[Effect]) -> None:
        for effect in effects:
            envelope = decode(group_id(GROUP), effect.data) if isinstance(effect, Datagram) else None
            if isinstance(envelope, DecodedDatagram) and isinstance(envelope.frame, Hello):
                self.nonce = envelope.frame.nonce

    def run(self, duration_ns: int) -> None:
        end = self.now + duration_ns
        while (due := self.member.next_deadline()) is not None and due <= end:
            self.now = max(due, self.now)
            self.note(self.member.tick(self.now))
        self.now = end

    def hear_answer(self, nonce: int | None = None) -> None:
        frame = HelloBack(B, OTHERS.summary, self.nonce if nonce is None else nonce)
        data = encode(group_id(GROUP), B.incarnation, NOBODY, frame)
        self.note(self.member.receive([data], self.now, [B.endpoint]))

    def hear_of_its_past(self) -> None:
        data = encode(group_id(GROUP), B.incarnation, A.incarnation + 1, HelloBack(B, OTHERS.summary, 1))
        self.note(self.member.receive([data], self.now, [B.endpoint]))


def looking_at(*sources: Source, without_lookup: bool = False) -> MembershipConfig:
    discovery = replace(LAN.discovery, sources=sources)
    return replace(LAN, discovery=discovery, bootstrap_without_lookup=without_lookup)


def test_silence_is_enough_without_look_ups() -> None:
    lone = Lone(looking_at())
    lone.run(LAN.bootstrap_after_ns - 1)
    assert not lone.is_primary
    lone.run(1)
    assert lone.is_primary


def test_silence_counts_from_the_look_up_that_succeeded() -> None:
    lone = Lone(looking_at(DNS))
    lone.run(10 * LAN.bootstrap_after_ns)
    lone.note(lone.member.not_found(DNS, lone.now))
    assert not lone.is_primary
    lone.note(lone.member.found(DNS, [], lone.now))
    lone.run(LAN.bootstrap_after_ns - 1)
    assert not lone.is_primary
    lone.run(1)
    assert lone.is_primary


def test_a_look_up_that_fails_in_between_begins_the_silence_anew() -> None:
    lone = Lone(looking_at(DNS))
    lone.note(lone.member.found(DNS, [], lone.now))
    lone.run(LAN.bootstrap_after_ns - 1)
    lone.note(lone.member.not_found(DNS, lone.now))
    lone.run(10 * LAN.bootstrap_after_ns)
    assert not lone.is_primary


def test_by_permission_silence_is_enough_though_look_ups_fail() -> None:
    lone = Lone(looking_at(DNS, without_lookup=True))
    lone.note(lone.member.not_found(DNS, lone.now))
    lone.run(LAN.bootstrap_after_ns)
    assert lone.is_primary


def test_a_datagram_for_an_earlier_incarnation_alone_changes_nothing() -> None:
    lone = Lone(LAN.with_seeds(A.endpoint))
    for _ in range(12):
        lone.run(100 * MILLISECOND)
        lone.hear_of_its_past()
    assert lone.nonce  # whoever spoke was asked, and nobody answered
    lone.run(LAN.bootstrap_after_ns - 1_200 * MILLISECOND)
    assert lone.is_primary


def test_an_answer_to_another_question_changes_nothing() -> None:
    lone = Lone(LAN.with_seeds(A.endpoint))
    lone.hear_of_its_past()
    lone.run(LAN.bootstrap_after_ns - 1)
    lone.hear_answer(nonce=lone.nonce ^ 1)
    lone.run(1)
    assert lone.is_primary


def test_a_group_that_answers_is_not_taken_for_gone_when_a_few_answers_are_lost() -> None:
    lone = Lone(LAN.with_seeds(A.endpoint))
    lone.hear_of_its_past()
    lone.hear_answer()
    lone.run(FRESH_PROBES * LAN.discovery.probe_ns - 1)
    assert not lone.is_primary
    lone.run(1)
    assert lone.is_primary
