"""The merge leader by itself: whose log the others follow."""

from __future__ import annotations

from motet.core.counters import Counters
from motet.core.identity import Address
from motet.core.view import Ballot, View, ViewId
from motet.membership.merge import MergeLeader
from motet.wire.frames import MergeResponse

A, B, C = (Address(name, "127.0.0.1", 7800 + at, at + 1) for at, name in enumerate("ABC"))
MERGE = Ballot(1, A.incarnation)
ROUND = Ballot(3, 1)


def alone(member: Address, epoch: int, position: int, *, is_whole: bool = True) -> MergeResponse:
    view = View(ViewId(9, member.incarnation), (member,), is_primary=False)
    digest = ((member.incarnation, 0, 0, 0),)
    known = (ViewId(epoch, A.incarnation), position, None, (), ())
    return MergeResponse(MERGE, view, ROUND, (member,), (), digest, (), (), (), *known, is_whole=is_whole)


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
    assert followed(alone(A, 5, 90), alone(B, 5, 100, is_whole=False)) == [A, B]


def test_a_later_primary_view_is_followed_even_by_its_word_alone() -> None:
    """What was stable in it may be missing at the others; numbers must not be used twice."""
    assert followed(alone(A, 4, 90), alone(B, 5, 80, is_whole=False)) == [B, A]
