"""Hand-made histories of accusations: each rule catches unjustified ones and accepts justified ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.membership import DetectorConfig
from motet.sim.checkers.accusations import check_accusations
from motet.sim.world.history import Accusation, AccusationKind, BeganChange, BeganMerge, EnteredView, History, Outage

A = Address("a", "127.0.0.1", 7800, 1 << 48)
B = Address("b", "127.0.0.1", 7801, 2 << 48)
C = Address("c", "127.0.0.1", 7802, 3 << 48)
ABC = View(ViewId(2, A.incarnation), (A, B, C), is_primary=True)
BC = View(ViewId(3, B.incarnation), (B, C), is_primary=True)
DETECTOR = DetectorConfig()  # a question every 125 ms, four of them
LAST_ASKED_NS = 125 * MILLISECOND
ACCUSED_AT = 10 * SECOND
BEGAN_AT = ACCUSED_AT - 500 * MILLISECOND


class Story:
    """Three members of one view, in which a process is accused at the end."""

    def __init__(self) -> None:
        self.history = History()
        self.entered(0, ABC, A, B, C)

    def entered(self, at: int, view: View, *members: Address) -> Story:
        self.history.events += [EnteredView(at, member, view, ()) for member in members]
        return self

    def out(self, what: Address | tuple[Address, Address], begin: int, end: int | None) -> Story:
        """A process that stood still, or one direction of a link that was cut."""
        key = what if isinstance(what, Address) else (what[0].name, what[1].name)
        self.history.outages.setdefault(key, []).append(Outage(begin, end))
        return self

    def began_change(self, *asked: Address) -> Story:
        self.history.events.append(BeganChange(BEGAN_AT, asked[0], ABC.id, asked))
        return self

    def began_merge(self, leader: Address) -> Story:
        self.history.events.append(BeganMerge(BEGAN_AT, leader))
        return self

    def broken(self, by: Address, what: AccusationKind, whom: Address) -> list[str]:
        self.history.events.append(Accusation(ACCUSED_AT, by, whom, what))
        return [violation.rule for violation in check_accusations(self.history, DETECTOR)]


def test_an_empty_history_has_no_violation() -> None:
    assert check_accusations(Story().history, DETECTOR) == []


# Suspicions


def test_a_peer_that_could_answer_the_last_probe_must_not_be_suspected() -> None:
    assert Story().broken(A, AccusationKind.SUSPECTED, B) == ["verified"]


@pytest.mark.parametrize("what", [A, B, (A, B), (B, A)], ids=["asker", "asked", "question", "answer"])
def test_a_suspicion_is_justified_when_the_last_probe_could_not_be_answered(
    what: Address | tuple[Address, Address],
) -> None:
    asked_at = ACCUSED_AT - LAST_ASKED_NS
    assert Story().out(what, SECOND, asked_at + MILLISECOND).broken(A, AccusationKind.SUSPECTED, B) == []
    assert Story().out(what, ACCUSED_AT - MILLISECOND, None).broken(A, AccusationKind.SUSPECTED, B) == []
    assert Story().out(what, SECOND, asked_at - 5 * MILLISECOND).broken(A, AccusationKind.SUSPECTED, B) == ["verified"]


def test_links_of_others_do_not_excuse_a_suspicion() -> None:
    assert Story().out((A, C), 0, None).out(C, 0, None).broken(A, AccusationKind.SUSPECTED, B) == ["verified"]


def test_an_earlier_incarnation_and_a_new_one_may_be_suspected() -> None:
    again = replace(B, incarnation=B.incarnation + 1)
    assert Story().broken(A, AccusationKind.SUSPECTED, again) == []  # it never started
    story = Story().entered(ACCUSED_AT - MILLISECOND, View(ViewId(1, again.incarnation), (again,), False), again)
    assert story.broken(A, AccusationKind.SUSPECTED, again) == []


# Accusations


def test_a_reachable_participant_must_not_time_out_in_a_flush() -> None:
    assert Story().began_change(A, B, C).broken(A, AccusationKind.FLUSH_TIMEOUT, C) == ["answered"]


def test_a_participant_that_installed_the_next_view_must_not_time_out() -> None:
    story = Story().entered(BEGAN_AT - SECOND, BC, B).began_change(A, B, C)
    assert story.broken(A, AccusationKind.FLUSH_TIMEOUT, B) == ["answered"]


@pytest.mark.parametrize("what", [B, C, (A, C), (C, A), (B, C), (C, B)])
def test_an_accusation_is_justified_when_a_participant_was_out(what: Address | tuple[Address, Address]) -> None:
    """B holds what C needs: what lies between these two matters to A, who accuses C."""
    story = Story().out(what, BEGAN_AT + MILLISECOND, BEGAN_AT + 2 * MILLISECOND).began_change(A, B, C)
    assert story.broken(A, AccusationKind.FLUSH_TIMEOUT, C) == []


def test_who_was_not_asked_does_not_excuse_an_accusation() -> None:
    assert Story().out(B, 0, None).began_change(A, C).broken(A, AccusationKind.FLUSH_TIMEOUT, C) == ["answered"]


def test_who_goes_through_another_view_meanwhile_may_be_accused() -> None:
    alone, further = View(ViewId(3, C.incarnation), (C,), False), View(ViewId(4, C.incarnation), (C, B), False)
    for story in (
        Story().began_change(A, B, C).entered(BEGAN_AT + MILLISECOND, BC, C),  # it had answered, and went elsewhere
        Story().entered(SECOND, alone, C).began_change(A, B, C),  # it left by itself, and knows of no decision
        Story().entered(SECOND, BC, C).entered(2 * SECOND, further, C).began_change(A, B, C),  # two views further
    ):
        assert story.broken(A, AccusationKind.FLUSH_TIMEOUT, C) == []


def test_a_senior_member_may_be_accused() -> None:
    assert Story().began_change(B, A, C).broken(B, AccusationKind.FLUSH_TIMEOUT, A) == []
    assert (
        Story().broken(A, AccusationKind.FLUSH_TIMEOUT, C) == []
    )  # and whoever began no change accuses for another reason
    assert Story().began_change(A, B, C).entered(ACCUSED_AT, BC, A).broken(A, AccusationKind.FLUSH_TIMEOUT, C) == []


# Merges


def test_a_coordinator_answers_the_leader_of_a_merge() -> None:
    assert Story().began_merge(A).broken(A, AccusationKind.MERGE_UNANSWERED, C) == ["merged"]


@pytest.mark.parametrize("what", [A, C, (A, C), (C, A)])
def test_a_coordinator_that_was_out_during_the_merge_may_be_silent(what: Address | tuple[Address, Address]) -> None:
    def story() -> Story:
        return Story().began_merge(A)

    assert (
        story()
        .out(what, BEGAN_AT + MILLISECOND, BEGAN_AT + 2 * MILLISECOND)
        .broken(A, AccusationKind.MERGE_UNANSWERED, C)
        == []
    )
    assert story().out(what, SECOND, 2 * SECOND).broken(A, AccusationKind.MERGE_UNANSWERED, C) == ["merged"]
    assert story().out((A, B), 0, None).broken(A, AccusationKind.MERGE_UNANSWERED, C) == ["merged"]


def test_a_merge_without_a_recorded_beginning_is_not_checked() -> None:
    assert Story().broken(A, AccusationKind.MERGE_UNANSWERED, C) == []
