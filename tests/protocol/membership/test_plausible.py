"""How far one frame may move what a member knows."""

from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MOST_COUNT, MOST_POSITION_JUMP, MOST_ROUND_JUMP, MOST_VIEW_JUMP
from motet.protocol.core.view import NO_VIEW, Ballot, View, ViewId
from motet.protocol.membership.plausible import Known, is_entered, is_plausible
from motet.protocol.wire.frames import Commit, Decision, MergeReady, Nack, Prepare

A, B = (Address(name, "127.0.0.1", 7800 + number, number + 1) for number, name in enumerate("ab"))
KNOWN = Known(view=10, round=3, position=100)
HERE = ViewId(10, 1)


def commit(number: int, position: int = 0) -> Commit:
    following = View(ViewId(number, 2), (A, B), is_primary=True)
    return Commit(HERE, Ballot(1, 2), Decision((), following, ((2, 0),), (), (), NO_VIEW, position, (), ()))


def test_numbers_near_what_is_known_pass_and_those_far_away_do_not() -> None:
    near = [
        *(commit(10 + MOST_VIEW_JUMP), commit(11, 100 + MOST_POSITION_JUMP)),
        Prepare(HERE, Ballot(3 + MOST_ROUND_JUMP, 2), (A, B), False),
        MergeReady(Ballot(1, 2), Ballot(1, 2), 100 + MOST_POSITION_JUMP, ()),
    ]
    far = [
        *(commit(11 + MOST_VIEW_JUMP), commit(11, 101 + MOST_POSITION_JUMP)),
        Prepare(HERE, Ballot(4 + MOST_ROUND_JUMP, 2), (A, B), False),
        Nack(HERE, Ballot(1, 1), Ballot(4 + MOST_ROUND_JUMP, 2)),
        MergeReady(Ballot(1, 2), Ballot(1, 2), 101 + MOST_POSITION_JUMP, ()),
    ]
    assert all(is_plausible(frame, KNOWN, is_new=False) for frame in near)
    assert not any(is_plausible(frame, KNOWN, is_new=False) for frame in far)


def test_who_knows_nothing_yet_accepts_all_but_the_last_jump() -> None:
    assert is_plausible(commit(MOST_COUNT - MOST_VIEW_JUMP), Known(), is_new=True)
    assert not is_plausible(commit(MOST_COUNT - MOST_VIEW_JUMP + 1), Known(), is_new=True)


def test_a_view_whose_new_members_have_no_digest_cannot_be_entered() -> None:
    assert is_entered(commit(11), (A,))
    assert not is_entered(commit(11), (B,))
