"""Every answer of a merge belongs to one view and one round; what comes late is refused, and no older view follows.

The issue behind it: a MERGE_REQ was delayed for seconds. Meanwhile the part that it asked had gone on from view 10 to
view 13. It prepared itself for the same merge a second time, was then handed the plan that was made from its first
answer, and installed view 11 after view 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import NO_VIEW, Ballot, View, ViewId, ViewSummary
from motet.protocol.membership.coordinator import IN_DOUBT_ANSWERS
from motet.protocol.membership.engine import EngineConfig, MergeFailed, ViewEngine, ViewInstalled
from motet.protocol.membership.participant import Cuts
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.window.digest import DigestEntry
from motet.protocol.wire.frames import (
    AgreedNumbers,
    Commit,
    CutTo,
    Decision,
    LogCheckpoint,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeRequest,
    MergeResponse,
    MergeView,
    Nack,
    Prepare,
    Ready,
)
from tests.protocol.membership.people import A, B, C

CONFIG = EngineConfig(retry_ns=50 * MILLISECOND, answer_ns=500 * MILLISECOND, answer_max_ns=5 * SECOND)
LEADERS_VIEW = ViewId(9, B.incarnation)
MERGE = Ballot(1, B.incarnation)


class Channel:
    """Nothing was ever sent, so every cut is held."""

    position, is_caught_up = 0, True

    def __init__(self, members: tuple[Address, ...]) -> None:
        self._members = members

    def freeze(self) -> tuple[dict[Address, DigestEntry], AgreedNumbers]:
        return {member: DigestEntry(0, 0, 0) for member in self._members}, ()

    def fetch(self, cut: Cuts, now: int) -> list[Effect]:
        return []

    def is_complete(self, cut: Cuts) -> bool:
        return True

    def is_within(self, cut: Cuts) -> bool:
        return True

    def thaw(self, now: int) -> list[Effect]:
        return []

    def log_after(self, cut: Cuts, agreed: AgreedNumbers, *, log_continues: bool) -> LogCheckpoint:
        return LogCheckpoint()

    def end_view(self, cut: Cuts, agreed: AgreedNumbers, *, log_continues: bool) -> list[Effect]:
        return []

    def begin_view(
        self, view: View, digest: Mapping[Address, int], log: LogCheckpoint | None, now: int
    ) -> list[Effect]:
        self._members = view.members
        return []


class Part:
    """An engine whose frames are looked at, and a clock."""

    def __init__(self, local: Address = A, number: int = 10, others: tuple[Address, ...] = ()) -> None:
        members = (local, *others)
        self.counters = Counters()
        self.now = 0
        self.views: list[int] = []  # that it installed
        self.failed: list[MergeFailed] = []
        view = View(ViewId(number, local.incarnation), members, is_primary=False)
        self.engine = ViewEngine(local, view, Channel(members), CONFIG, self.counters, PrimaryRecord())

    def receive(self, source: Address, frame: Frame) -> list[Frame]:
        return self.sent(self.engine.receive(source, frame, self.now))

    def sent(self, effects: list[Effect]) -> list[Frame]:
        self.engine._check()
        self.views += [effect.view.id.number for effect in effects if isinstance(effect, ViewInstalled)]
        self.failed += [effect for effect in effects if isinstance(effect, MergeFailed)]
        return [effect.frame for effect in effects if isinstance(effect, Transmit)]

    def change_view(self) -> None:
        before = self.engine.view.id.number
        self.sent(self.engine.found(self.now))
        assert self.engine.view.id.number > before

    def run(self, until: int) -> list[Frame]:
        frames: list[Frame] = []
        while (due := self.engine.next_deadline()) is not None and due <= until:
            self.now = due
            frames += self.sent(self.engine.tick(due))
        self.now = until
        return frames

    @property
    def misplaced(self) -> int:
        return self.counters[Count.FRAME_MISPLACED]


def request(part: ViewId, merge: Ballot = MERGE, answer_ns: int = 0) -> MergeRequest:
    return MergeRequest(merge, LEADERS_VIEW, part, answer_ns)


def plan_for(response: MergeResponse, number: int = 11) -> MergeView:
    """What the leader makes of the answer."""
    following = View(ViewId(number, B.incarnation), (B, *response.staying), is_primary=False)
    digest = tuple((member.incarnation, 0) for member in following.members)
    subviews = (View(LEADERS_VIEW, (B,), is_primary=False), response.view)
    made_for = (response.merge, response.view.id, response.ballot)
    return MergeView(*made_for, following, digest, subviews, (), NO_VIEW, None, ())


def answered(part: Part) -> MergeResponse:
    (response,) = part.receive(B, request(part.engine.view.id))
    assert isinstance(response, MergeResponse)
    return response


# A part


def test_a_merge_goes_through() -> None:
    part = Part()
    response = answered(part)
    assert (response.view.id, response.ballot) == (ViewId(10, A.incarnation), Ballot(1, A.incarnation))
    assert part.receive(B, plan_for(response)) == [MergeReady(MERGE, response.ballot)]
    part.receive(B, MergeCommit(MERGE, ViewId(11, B.incarnation)))
    assert part.views == [11]
    assert part.misplaced == 0


def test_a_request_that_comes_when_its_view_is_over_is_refused_and_no_older_view_follows() -> None:
    part = Part()
    late = request(part.engine.view.id)
    old_answer = answered(part)  # under way for so long that the part goes on without the leader
    part.run(2 * IN_DOUBT_ANSWERS * CONFIG.answer_ns)
    assert part.engine.is_idle
    for _ in range(3):
        part.change_view()
    assert part.views == [11, 12, 13]
    assert part.receive(B, late) == [MergeRefusal(MERGE, "that view is over")]
    assert part.engine.is_idle
    assert part.misplaced == 1
    assert part.receive(B, plan_for(old_answer)) == [MergeRefusal(MERGE, "that round is over")]
    assert part.receive(B, MergeCommit(MERGE, ViewId(11, B.incarnation))) == []
    assert part.misplaced == 2
    assert part.views == [11, 12, 13]


def test_a_request_for_a_view_that_is_not_ours_yet_is_refused() -> None:
    part = Part()
    assert part.receive(B, request(ViewId(11, A.incarnation))) == [MergeRefusal(MERGE, "that view is over")]
    assert part.engine.is_idle


def test_a_repeated_request_of_a_merge_that_is_over_for_this_part_is_refused() -> None:
    part = Part()
    answered(part)
    part.receive(B, MergeCancel(MERGE, is_off=True))
    assert part.engine.is_idle
    again = request(part.engine.view.id)
    assert part.receive(B, again) == [MergeRefusal(MERGE, "that merge is over for this part")]
    assert part.engine.is_idle
    assert part.misplaced == 1


def test_the_next_merge_of_the_same_leader_is_welcome_and_an_earlier_one_is_not() -> None:
    part = Part()
    third = request(part.engine.view.id, Ballot(3, B.incarnation))
    assert isinstance(part.receive(B, third)[0], MergeResponse)
    part.receive(B, MergeCancel(third.merge, is_off=True))
    earlier = Ballot(2, B.incarnation)
    refused = [MergeRefusal(earlier, "that merge is over for this part")]
    assert part.receive(B, request(part.engine.view.id, earlier)) == refused
    fourth = request(part.engine.view.id, Ballot(4, B.incarnation))
    assert isinstance(part.receive(B, fourth)[0], MergeResponse)


def test_a_request_that_is_repeated_while_we_are_at_it_is_no_news() -> None:
    part = Part()
    answered(part)
    assert part.receive(B, request(part.engine.view.id)) == []
    assert part.misplaced == 0


@pytest.mark.parametrize(
    ("view", "ballot"),
    [
        (ViewId(9, A.incarnation), Ballot(1, A.incarnation)),
        (ViewId(10, C.incarnation), Ballot(1, A.incarnation)),
        (ViewId(10, A.incarnation), Ballot(2, A.incarnation)),
        (ViewId(10, A.incarnation), Ballot(1, B.incarnation)),
    ],
)
def test_a_plan_for_another_view_or_round_is_refused(view: ViewId, ballot: Ballot) -> None:
    part = Part()
    plan = plan_for(response := answered(part))
    assert (plan.part, plan.ballot) == (ViewId(10, A.incarnation), Ballot(1, A.incarnation))
    refusal = MergeRefusal(MERGE, "that round is over")
    assert part.receive(B, replace(plan, part=view, ballot=ballot)) == [refusal]
    assert part.misplaced == 1
    assert part.receive(B, plan) == [MergeReady(MERGE, response.ballot)]  # the right one still counts


def test_a_plan_of_another_leader_is_refused() -> None:
    part = Part()
    response = answered(part)
    assert part.receive(C, plan_for(response)) == [MergeRefusal(MERGE, "that round is over")]


@pytest.mark.parametrize("number", [9, 10])
def test_a_plan_that_is_not_above_our_view_is_not_followed(number: int) -> None:
    part = Part()
    assert part.receive(B, plan_for(answered(part), number)) == []
    part.receive(B, MergeCommit(MERGE, ViewId(number, B.incarnation)))
    assert part.views == []


@pytest.mark.parametrize(
    ("asked_ns", "waits_ns"),
    [
        (0, CONFIG.answer_ns),
        (2 * SECOND, 2 * SECOND),
        (CONFIG.answer_max_ns, CONFIG.answer_max_ns),
        (3600 * SECOND, CONFIG.answer_max_ns),
    ],
)
def test_a_part_waits_as_long_as_the_leader_says_within_its_own_bound(asked_ns: int, waits_ns: int) -> None:
    part = Part()
    part.receive(B, request(part.engine.view.id, answer_ns=asked_ns))
    part.run(IN_DOUBT_ANSWERS * waits_ns - 1)
    assert not part.engine.is_idle
    part.run(IN_DOUBT_ANSWERS * waits_ns + CONFIG.retry_ns)
    assert part.engine.is_idle


# COMMIT and CUT


def decided(number: int) -> Decision:
    following = View(ViewId(number, B.incarnation), (B, A), is_primary=False)
    return Decision((), following, tuple((member.incarnation, 0) for member in following.members))


def frozen_by_b() -> tuple[Part, Ballot]:
    """A follows B's ballot in the view 10 of both."""
    part = Part(A, 10, (B,))
    ballot = Ballot(1, B.incarnation)
    part.receive(B, Prepare(part.engine.view.id, ballot, (A, B)))
    assert part.engine.is_frozen
    return part, ballot


@pytest.mark.parametrize("number", [3, 10])
def test_a_cut_to_a_view_that_is_not_above_ours_is_refused(number: int) -> None:
    part, ballot = frozen_by_b()
    cut = CutTo(part.engine.view.id, ballot, decided(number), None, ())
    assert part.receive(B, cut) == []
    assert part.misplaced == 1
    higher = CutTo(part.engine.view.id, ballot, decided(11), None, ())
    assert part.receive(B, higher) == [Ready(part.engine.view.id, ballot)]


@pytest.mark.parametrize("number", [3, 10])
def test_a_commit_of_a_view_that_is_not_above_ours_is_refused(number: int) -> None:
    part, ballot = frozen_by_b()
    assert part.receive(B, Commit(part.engine.view.id, ballot, decided(number))) == []
    assert part.misplaced == 1
    assert part.views == []
    assert part.engine.is_frozen


def test_a_commit_above_ours_that_was_prepared_is_installed() -> None:
    part, ballot = frozen_by_b()
    part.receive(B, CutTo(part.engine.view.id, ballot, decided(11), None, ()))
    part.receive(B, Commit(part.engine.view.id, ballot, decided(11)))
    assert part.views == [11]


def test_a_commit_of_a_lower_ballot_and_an_older_view_is_answered_with_what_was_promised() -> None:
    part, ballot = frozen_by_b()
    old = Ballot(0, B.incarnation)
    assert part.receive(B, Commit(part.engine.view.id, old, decided(3))) == [Nack(part.engine.view.id, old, ballot)]


# The leader


def alone(member: Address) -> ViewSummary:
    return View(ViewId(10, member.incarnation), (member,), is_primary=False).summary


def leading() -> tuple[Part, Ballot, MergeResponse]:
    """B leads a merge with A's view 10, and has its own answer; the response is the one that A would give."""
    leader = Part(B, 9)
    summary = alone(A)
    (asked,) = leader.sent(leader.engine.lead_merge([summary], 0))
    assert isinstance(asked, MergeRequest)
    assert asked.part == summary.id
    (response,) = Part().receive(B, asked)
    assert isinstance(response, MergeResponse)
    return leader, asked.merge, response


def later(response: MergeResponse) -> MergeResponse:
    """What A answers after it began again."""
    return replace(response, ballot=Ballot(response.ballot.round + 1, response.ballot.proposer))


def test_the_request_says_which_view_is_meant_and_how_long_the_leader_waits() -> None:
    leader = Part(B, 9)
    summary = alone(A)
    expected = [MergeRequest(MERGE, LEADERS_VIEW, ViewId(10, A.incarnation), CONFIG.answer_ns)]
    assert leader.sent(leader.engine.lead_merge([summary], 0)) == expected


def test_the_plan_names_the_view_and_the_round_of_the_answer() -> None:
    leader, _, response = leading()
    (plan,) = leader.receive(A, response)
    assert isinstance(plan, MergeView)
    assert (plan.part, plan.ballot) == (response.view.id, response.ballot)


def test_readiness_of_another_round_does_not_count() -> None:
    leader, merge, response = leading()
    leader.receive(A, response)
    assert leader.receive(A, MergeReady(merge, Ballot(7, A.incarnation))) == []
    assert leader.views == []
    leader.receive(A, MergeReady(merge, response.ballot))
    assert leader.views == [11]


def test_a_newer_answer_ends_the_merge_whose_plan_was_made_from_an_older_one() -> None:
    leader, merge, response = leading()
    leader.receive(A, response)
    assert leader.receive(A, later(response)) == [MergeCancel(merge, is_off=True)]
    assert leader.failed == [MergeFailed(())]
    assert leader.counters[Count.MERGE_CANCELLED] == 1
    assert leader.engine.is_idle
    assert leader.receive(A, MergeReady(merge, response.ballot)) == [MergeCancel(merge, is_off=True)]
    assert leader.views == []


def test_the_answer_that_the_plan_was_made_from_may_come_again() -> None:
    leader, merge, response = leading()
    leader.receive(A, response)
    assert leader.receive(A, response) == []
    leader.receive(A, MergeReady(merge, response.ballot))
    assert leader.views == [11]


def test_of_two_answers_the_later_one_counts_and_a_delayed_one_does_not_replace_it() -> None:
    leader = Part(B, 9)
    leader.sent(leader.engine.lead_merge([alone(A), alone(C)], 0))
    (first,) = Part(A).receive(B, request(ViewId(10, A.incarnation)))
    (last,) = Part(C).receive(B, request(ViewId(10, C.incarnation)))
    assert isinstance(first, MergeResponse)
    assert leader.receive(A, later(first)) == leader.receive(A, first) == []
    plans = leader.receive(C, last)
    ballots = [plan.ballot for plan in plans if isinstance(plan, MergeView) and plan.part.creator == A.incarnation]
    assert ballots == [later(first).ballot]


# In doubt: a part that said READY cannot know whether the others went on


def ready_part() -> Part:
    part = Part()
    assert part.receive(B, plan_for(answered(part)))
    return part


def test_a_part_in_doubt_ends_its_view_instead_of_resuming_it() -> None:
    """The others may be in the merged view: whatever is ordered in the old one would contradict them."""
    part = ready_part()
    part.run(5 * CONFIG.answer_ns)
    assert part.engine.view.members == (A,)
    assert [number > 10 for number in part.views] == [True]
    assert part.engine.is_idle


def test_a_part_that_is_told_that_the_merge_is_off_resumes_its_view() -> None:
    part = ready_part()
    part.receive(B, MergeCancel(MERGE, is_off=True))
    part.run(5 * CONFIG.answer_ns)
    assert part.views == []
    assert part.engine.is_idle


def test_a_leader_that_does_not_know_any_more_leaves_the_part_in_doubt() -> None:
    part = ready_part()
    part.receive(B, MergeCancel(MERGE, is_off=False))
    assert len(part.views) == 1
    assert part.engine.is_idle


def test_a_part_that_has_not_said_ready_is_not_in_doubt_whatever_the_leader_says() -> None:
    part = Part()
    answered(part)
    part.receive(B, MergeCancel(MERGE, is_off=False))
    assert part.views == []
    assert part.engine.is_idle
