"""How far one frame of a peer may move what we know of view numbers, ballot rounds and positions.

Every number on the wire has a bound that leaves space for arithmetic. That alone is not enough: a member that believed
the largest number could never use the next one, and the number is persisted. So a number must also be near what we
know. A process that knows nothing yet has nothing to compare with: it accepts all but the last jump below the bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MOST_COUNT, MOST_POSITION_JUMP, MOST_ROUND_JUMP, MOST_VIEW_JUMP
from motet.protocol.core.view import View
from motet.protocol.wire.frames import (
    Commit,
    CutTo,
    Decision,
    MergeCommit,
    MergeReady,
    MergeResponse,
    MergeView,
    Nack,
    Pairs,
    Prepare,
    Prepared,
    Ready,
)


def is_entered(frame: Frame, members: Collection[Address]) -> bool:
    """Whether the view that a frame decides on can be entered from one of these members: of each member that is new
    there, the digest must say where its stream begins."""
    match frame:
        case CutTo() | Commit():
            return _has_all(frame.decision.following, frame.decision.digest, members)
        case Prepared() if frame.decided is not None:
            return _has_all(frame.decided.following, frame.decided.digest, members)
        case MergeView():
            return _has_all(frame.following, frame.digest, members)
    return True


def _has_all(following: View, digest: Pairs, members: Collection[Address]) -> bool:
    begun = {incarnation for incarnation, _ in digest}
    return all(member in members or member.incarnation in begun for member in following.members)


class Known(NamedTuple):
    """The highest numbers that a member knows, or that a frame names."""

    view: int = 0
    round: int = 0
    position: int = 0


def is_plausible(frame: Frame, known: Known, *, is_new: bool) -> bool:
    """`is_new`: we were in no view but our own, and our journal names no other."""
    named = named_by(frame)
    view = MOST_COUNT - MOST_VIEW_JUMP if is_new else known.view + MOST_VIEW_JUMP
    position = MOST_COUNT - MOST_POSITION_JUMP if is_new else known.position + MOST_POSITION_JUMP
    return named.view <= view and named.round <= known.round + MOST_ROUND_JUMP and named.position <= position


def named_by(frame: Frame) -> Known:
    """Of a frame of the view-change engine; what leads to no arithmetic is left out."""
    match frame:
        case Prepare():
            return Known(round=frame.ballot.round)
        case Nack():
            return Known(round=frame.promised.round)
        case Prepared():
            decided = _of_decision(frame.decided)
            report = frame.report
            number = _highest(report.last, report.attempts, decided.view)
            return Known(number, 0, max(report.position, decided.position))
        case CutTo():
            decided = _of_decision(frame.decision)
            return Known(_highest(frame.last, frame.attempts, decided.view), 0, decided.position)
        case Commit():
            return _of_decision(frame.decision)
        case Ready() | MergeReady():
            return Known(position=frame.position)
        case MergeCommit():
            return Known(frame.view.number, 0, frame.position)
        case MergeResponse():
            report = frame.report
            return Known(_highest(report.last, report.attempts, frame.view.id.number), 0, report.position)
        case MergeView():
            return Known(_highest(frame.last, frame.attempts, frame.following.id.number))
    return Known()


def _of_decision(decision: Decision | None) -> Known:
    return Known(decision.following.id.number, 0, decision.position) if decision is not None else Known()


def _highest(last: View | None, attempts: Iterable[View], number: int) -> int:
    return max([number, *(view.id.number for view in (last, *attempts) if view is not None)])
