"""The merge leader by itself: whose log the others follow."""

from __future__ import annotations

from dataclasses import replace

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.identity import Address
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.membership.merge import MergeLeader
from motet.protocol.membership.overlap import overlaps
from motet.protocol.wire.frames import MergeResponse

A, B, C = (Address(name, "127.0.0.1", 7800 + at, at + 1) for at, name in enumerate("ABC"))
MERGE = Ballot(1, A.incarnation)
ROUND = Ballot(3, 1)


def alone(member: Address, epoch: int, position: int, *, is_caught_up: bool = True) -> MergeResponse:
    view = View(ViewId(9, member.incarnation), (member,), is_primary=False)
    digest = ((member.incarnation, 0, 0, 0),)
    known = (ViewId(epoch, A.incarnation), position, None, (), ())
    return MergeResponse(MERGE, view, ROUND, (member,), (), digest, (), (), (), *known, is_caught_up=is_caught_up)


def followed(*responses: MergeResponse) -> list[Address]:
    """The members of the merged view: those of the part that the others follow come first."""
    parts = {response.staying[0]: response.view.id for response in responses}
    leader = MergeLeader(MERGE, A, ViewId(9, A.incarnation), parts)
    for response in responses:
        leader.respond(response.staying[0], response)
    leader.agree(ViewId(10, A.incarnation), True, Counters())
    assert leader.plan is not None
    return list(leader.plan.following.members)


def test_the_latest_primary_view_is_followed_then_the_longest_log() -> None:
    assert followed(alone(A, 4, 90), alone(B, 5, 80), alone(C, 5, 85)) == [C, B, A]


def test_who_only_knows_how_long_the_log_was_is_not_followed_by_one_who_has_it() -> None:
    """B came to somebody of view 5 outside the primary component, and lost it again before it had fetched the log.

    It would have brought a position that nobody has the messages of: every journal would have waited for them.
    """
    assert followed(alone(A, 5, 90), alone(B, 5, 100, is_caught_up=False)) == [A, B]


def test_a_later_primary_view_is_followed_even_by_its_word_alone() -> None:
    """What was stable in it may be missing at the others; numbers must not be used twice."""
    assert followed(alone(A, 4, 90), alone(B, 5, 80, is_caught_up=False)) == [B, A]


def also_reporting(response: MergeResponse, member: Address, *seqnos: int) -> MergeResponse:
    low, delivered, received = seqnos
    return replace(response, digest=(*response.digest, (member.incarnation, low, delivered, received)))


def test_parts_that_are_disjoint_do_not_overlap() -> None:
    assert overlaps([alone(A, 5, 90), alone(B, 5, 80), alone(C, 5, 85)]) == []


def test_an_overlap_is_reported_with_both_entries_and_their_views() -> None:
    """The design note's example: "A: 7 20 (20)" and "A: 2 10 (10)"."""
    ours = replace(alone(A, 5, 90), digest=((A.incarnation, 7, 20, 20),))
    theirs = also_reporting(alone(B, 5, 80), A, 2, 10, 10)
    (found,) = overlaps([ours, theirs])
    assert (found.member, found.first.view, found.second.view) == (A, ours.view, theirs.view)
    assert str(found).startswith(
        f"two views of a merge both report the stream of {A}: 7 20 (20) in {ours.view} and 2 10 (10) in {theirs.view};"
    )
    assert "The higher received seqno, 20, is used" in str(found)


def test_each_further_part_is_reported_beside_the_highest_before_it_and_as_often_as_it_is_counted() -> None:
    counters = Counters()
    responses = [
        alone(A, 5, 90),
        also_reporting(alone(B, 5, 90), A, 0, 8, 9),
        also_reporting(alone(C, 5, 90), A, 1, 2, 3),
    ]
    parts = {member: response.view.id for member, response in zip((A, B, C), responses, strict=True)}
    leader = MergeLeader(MERGE, A, ViewId(9, A.incarnation), parts)
    for member, response in zip((A, B, C), responses, strict=True):
        leader.respond(member, response)
    leader.agree(ViewId(10, A.incarnation), True, counters)
    found = leader.overlaps
    assert [(one.first.entry.received, one.second.entry.received) for one in found] == [(0, 9), (9, 3)]
    assert counters[Count.DIGEST_OVERLAP] == len(found)
    assert leader.plan is not None
    assert dict(leader.plan.digest)[A.incarnation] == 9


def test_a_stream_of_nobody_in_these_views_is_no_concern() -> None:
    stranger = Address("D", "127.0.0.1", 7899, 99)
    responses = [also_reporting(alone(A, 5, 90), stranger, 0, 1, 1), also_reporting(alone(B, 5, 80), stranger, 0, 2, 2)]
    assert overlaps(responses) == []
