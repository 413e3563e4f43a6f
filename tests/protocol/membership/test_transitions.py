"""Every pair of state and input of every role: what it sends and which state follows, or ignored and counted.

A role is brought into a state by real frames, and is then given the input itself, with what comes with it. For each
pair of the tables `EXPECTED` says what is sent and what follows; no other pair may do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from motet.protocol.core.effects import Effect, Frame, Transmit
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.membership.announcer import AnnouncerInput, AnnouncerState, CommitAnnouncement
from motet.protocol.membership.coordinator import CoordinatorInput, CoordinatorState
from motet.protocol.membership.merge_leader import LeaderInput, LeaderState
from motet.protocol.membership.merge_part import PartInput, PartState
from motet.protocol.membership.participant import ParticipantInput, ParticipantState
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.membership.transitions import StateMachine
from motet.protocol.wire.frames import (
    Abort,
    Commit,
    CutTo,
    Decision,
    MemberReport,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeResponse,
    MergeView,
    Nack,
    Prepare,
    Prepared,
    Ready,
    StateNeed,
)
from tests.docs.membership_tables import MACHINES
from tests.protocol.membership.expected_transitions import EXPECTED
from tests.protocol.membership.people import A, B, C
from tests.protocol.membership.test_merge_guards import MERGE, Part, alone, plan_for, request

Inputs = dict[Any, Callable[[], tuple[object, ...]]]  # what comes with an input, made when the state is reached
NOW = 7


@dataclass
class Case:
    part: Part
    machine: StateMachine[Any, Any]
    arguments: Inputs


def ballot_of(part: Part) -> Ballot:
    assert part.engine.coordinator.round is not None
    return part.engine.coordinator.round.ballot


def prepared(part: Part, decided: Decision | None = None) -> Prepared:
    """What another member answers to the round of this one."""
    report = MemberReport((), None, (), ViewId(0, 0), 0)
    return Prepared(part.engine.view.id, ballot_of(part), report, StateNeed.UNWANTED, True, decided)


def decision(number: int, *members: Any) -> Decision:
    following = View(ViewId(number, B.incarnation), members, is_primary=False)
    return Decision((), following, tuple((member.incarnation, 0) for member in following.members))


# Participant: A, in a view with B, which proposes


def participant(state: ParticipantState) -> Case:
    part = Part(A, 10, (B,))
    view, ballot = part.engine.view.id, Ballot(3, B.incarnation)
    cut = CutTo(view, ballot, decision(11, B, A), None, ())
    commit = Commit(view, ballot, cut.decision)
    channel = part.engine._context.channel
    if state is ParticipantState.LEFT:
        part.sent(part.engine.leave(0))
        part.receive(B, Prepare(view, ballot, (A, B)))
        part.receive(B, Commit(view, ballot, decision(11, B)))
    elif state is not ParticipantState.STEADY:
        part.receive(B, Prepare(view, ballot, (A, B)))
    if state is ParticipantState.FETCHING:
        channel.is_complete = lambda cut: False  # type: ignore[method-assign]
    if state in (ParticipantState.FETCHING, ParticipantState.READY):
        part.receive(B, cut)
    prepare = (B, Prepare(view, Ballot(4, B.incarnation), (A, B)), NOW)
    arguments: Inputs = {
        **{one: lambda: prepare for one in ParticipantInput if one.name.startswith("PREPARE")},
        **{one: lambda: (B, cut, NOW) for one in ParticipantInput if one.name.startswith("CUT")},
        **{one: lambda: (B, commit, NOW) for one in ParticipantInput if one.name.startswith("COMMIT")},
        **{one: lambda: (Abort(view, ballot, True), NOW) for one in ParticipantInput if one.name.startswith("ABORT")},
        ParticipantInput.CUT_HELD: lambda: (cut, NOW),
        ParticipantInput.ANSWER_OVERDUE: lambda: (),
        ParticipantInput.PROPOSER_SILENT: lambda: (NOW,),
        ParticipantInput.SEPARATE: lambda: (NOW,),
        ParticipantInput.LAST_LEAVES: lambda: (),
    }
    return Case(part, part.engine.participant, arguments)


# Coordinator: A, in a view with B and C, of which C is suspected; or with C alone, for a merge that B leads


FOR_MERGE = {one for one in CoordinatorInput if "MERGE" in one.name} | {CoordinatorInput.PART_TIMEOUT}


def coordinator(state: CoordinatorState, occurred: CoordinatorInput) -> Case:
    is_merge = occurred in FOR_MERGE
    other = C if is_merge else B
    part = Part(A, 10, (C,) if is_merge else (B, C))
    if state is not CoordinatorState.IDLE:
        part.sent(part.engine.form_again(0) if not is_merge else [])
        if is_merge:
            part.receive(B, request(part.engine.view.id))
    if state is CoordinatorState.CUTTING:
        for member in part.engine.view.members[1:]:
            part.receive(member, prepared(part))
        if is_merge:
            part.receive(B, plan_of(part))
    if state is CoordinatorState.STANDING_BACK:
        later = Ballot(9, B.incarnation)
        part.receive(other, Nack(part.engine.view.id, ballot_of(part), later))
    view = part.engine.view.id
    old = Nack(view, Ballot(1, A.incarnation), Ballot(9, B.incarnation))
    round_of = part.engine.coordinator.round
    own = round_of.ballot if round_of is not None else Ballot(1, A.incarnation)
    answer = Prepared(view, own, MemberReport((), None, (), ViewId(0, 0), 0), StateNeed.UNWANTED, True, decision(11, A))
    names = CoordinatorInput
    if occurred is names.PREPARED_BY_ALL and round_of is not None:
        part.receive(B, prepared(part))  # so that C is the last one
    part.engine._context.ended = Commit(ViewId(9, A.incarnation), own, decision(10, A, B))
    if occurred is names.STILL_LATE:
        part.engine._context.suspects = set()
    arguments: Inputs = {
        **{one: lambda: (other, answer, NOW) for one in names if one.name.startswith("PREPARED")},
        **{one: lambda: (other, Ready(view, own), NOW) for one in names if one.name.startswith("READY")},
        **{one: lambda: (other, old, NOW) for one in names if one.name.startswith("NACK")},
        names.CHANGE_NEEDED: lambda: ((A, B), (), NOW),
        names.CHANGE_NOT_NEEDED: lambda: (),
        names.MERGE_PLANNED: lambda: (decision(11, A, B), PrimaryRecord(), NOW),
        names.MERGE_COMMITTED: lambda: (decision(11, A, B), NOW),
        names.MERGE_CANCELLED: lambda: (True, NOW),
        names.LEAVE_REQUEST: lambda: (other, NOW),
        names.LEAVE_STALE: lambda: (other, NOW),
        names.SUPERSEDED: lambda: ("another coordinator is changing this part",),
        names.VIEW_ENDED: lambda: ("the view ended otherwise",),
        **{one: lambda: (NOW,) for one in (names.SILENCE, names.PART_TIMEOUT, names.STILL_LATE, names.STAND_BACK_OVER)},
    }
    return Case(part, part.engine.coordinator, arguments)


# Announcer: A, whose COMMIT B and C have to install


def announcer(state: AnnouncerState) -> Case:
    part = Part(A, 10, (B, C))
    commit = Commit(part.engine.view.id, Ballot(1, A.incarnation), decision(11, A, B))
    current = CommitAnnouncement(commit, [B, C], NOW)
    machine = part.engine.announcer
    if state is AnnouncerState.ANNOUNCING:
        machine.announce(commit, current.pending, NOW)
    assert machine.announcement is None or machine.announcement.pending == [B, C]
    arguments: Inputs = {one: lambda: () for one in AnnouncerInput}
    arguments[AnnouncerInput.COMMITTED] = lambda: (current,)
    arguments[AnnouncerInput.INSTALLED] = lambda: (machine.announcement, B)
    return Case(part, machine, arguments)


# Part of a merge: A, in a view with C, for the leader B


def plan_of(part: Part) -> MergeView:
    view = part.engine.view
    report = MemberReport((), None, (), ViewId(0, 0), 0)
    return plan_for(MergeResponse(MERGE, view, ballot_of(part), report, view.members, (), (), (), ()))


def merge_part(state: PartState) -> Case:
    part = Part(A, 10, (C,))
    reached = list(PartState).index(state)
    view = part.engine.view.id
    if reached >= 1:
        part.receive(B, request(view))
    if reached >= 2:
        part.receive(C, prepared(part))
    plan = plan_of(part) if reached >= 1 else None
    if reached >= 3 and plan is not None:
        part.receive(B, plan)
    if reached >= 4:
        part.receive(C, Ready(view, ballot_of(part)))
    current = part.engine.coordinator.round
    commit = MergeCommit(MERGE, ViewId(11, B.incarnation))
    arguments: Inputs = {
        **{one: lambda: (B, request(view), "no") for one in PartInput if one.name.startswith("REQUEST")},
        PartInput.REQUEST: lambda: (B, request(view), NOW),
        **{one: lambda: (current,) for one in (PartInput.ALL_ANSWERED, PartInput.ALL_READY, PartInput.RETRY)},
        PartInput.PLAN: lambda: (current, plan, NOW),
        PartInput.PLAN_NOT_ABOVE: lambda: (),
        PartInput.PLAN_STALE: lambda: (B, MergeCancel(MERGE, True), "no"),
        PartInput.COMMIT: lambda: (B, commit, decision(11, B, A), NOW),
        PartInput.COMMIT_AGAIN: lambda: (B, commit),
        PartInput.COMMIT_STALE: lambda: (),
        PartInput.CANCEL: lambda: (NOW,),
        PartInput.CANCEL_IN_DOUBT: lambda: (NOW,),
        PartInput.CANCEL_STALE: lambda: (),
        PartInput.ROUND_LOST: lambda: ("a member of this part is silent",),
        PartInput.ROUND_OVER: lambda: (),
    }
    return Case(part, part.engine.part, arguments)


# Merge leader: B, for itself, A and C


def merge_leader(state: LeaderState, occurred: LeaderInput) -> Case:
    leader = Part(B, 9)
    responses: dict[Any, MergeResponse] = {}
    reached = list(LeaderState).index(state)
    if reached >= 1:
        leader.sent(leader.engine.lead_merge([alone(A), alone(C)], 0))
    for member in (A, C):
        (answer,) = Part(member).receive(B, request(ViewId(10, member.incarnation)))
        assert isinstance(answer, MergeResponse)
        responses[member] = answer
        if reached >= 2 or (occurred is LeaderInput.ALL_RESPONDED and reached == 1):
            if reached == 1:
                assert leader.engine.leader.attempt is not None
                leader.engine.leader.attempt.parts[member].response = answer
            else:
                leader.receive(member, answer)
    for member in (A, C):
        if reached >= 3:
            leader.receive(member, MergeReady(MERGE, responses[member].ballot))
    ready = MergeReady(MERGE, responses[A].ballot)
    if occurred is LeaderInput.READY_OF_ALL and reached == 2:
        leader.receive(C, MergeReady(MERGE, responses[C].ballot))
    arguments: Inputs = {
        **{one: lambda: (A, responses[A], NOW) for one in LeaderInput if one.name.startswith("RESPONSE")},
        LeaderInput.LEAD: lambda: ([alone(A), alone(C)], NOW),
        LeaderInput.RESPONSE_OF_STRANGER: lambda: (A, responses[A]),
        LeaderInput.ALL_RESPONDED: lambda: (NOW,),
        LeaderInput.DIGEST_MISSING: lambda: (),
        **{one: lambda: (A, NOW) for one in (LeaderInput.REFUSAL, LeaderInput.REFUSAL_FATAL)},
        LeaderInput.REFUSAL_STALE: lambda: (),
        **{one: lambda: (A, ready, NOW) for one in LeaderInput if one.name.startswith("READY")},
        LeaderInput.OLD_MERGE: lambda: (A, Ballot(99, B.incarnation)),
        LeaderInput.INSTALLED: lambda: (A,),
        LeaderInput.INSTALLED_BY_ALL: lambda: (A,),
        LeaderInput.INSTALLED_STALE: lambda: (),
        LeaderInput.RETRY: lambda: (),
        LeaderInput.TIMEOUT: lambda: ([A, C],),
        LeaderInput.OWN_PART_LOST: lambda: (),
    }
    return Case(leader, leader.engine.leader, arguments)


def case(role: str, state: Enum, occurred: Enum) -> Case:
    match role:
        case "participant":
            return participant(ParticipantState(state))
        case "coordinator":
            return coordinator(CoordinatorState(state), CoordinatorInput(occurred))
        case "announcer":
            return announcer(AnnouncerState(state))
        case "part":
            return merge_part(PartState(state))
    return merge_leader(LeaderState(state), LeaderInput(occurred))


def sent(part: Part, effects: list[Effect]) -> list[str]:
    """Kinds of frames and effects, in their order; what went to ourselves comes last."""
    out = [type(effect.frame).__name__ if isinstance(effect, Transmit) else type(effect).__name__ for effect in effects]
    to_self: list[Frame] = part.engine._context.to_self
    return out + [f"{type(frame).__name__} to self" for frame in to_self]


PAIRS = [
    (role, state, occurred) for role, (_, states, inputs) in MACHINES.items() for state in states for occurred in inputs
]


@pytest.mark.parametrize(("role", "state", "occurred"), PAIRS, ids=lambda one: getattr(one, "name", one))
def test_a_pair_of_state_and_input(role: str, state: Enum, occurred: Enum) -> None:
    reached = case(role, state, occurred)
    machine, part = reached.machine, reached.part
    assert machine.state is state
    assert not part.engine._context.to_self
    misplaced = part.misplaced
    effects = machine.fire(occurred, *reached.arguments[occurred]())
    outcome = f"{', '.join(sent(part, effects)) or '-'} > {machine.state.value}"
    if (state, occurred) in machine.TABLE:
        assert outcome == EXPECTED[role, state.name, occurred.name]
    else:
        assert (outcome, part.misplaced) == (f"- > {state.value}", misplaced + 1)


def test_expectations_are_of_pairs_that_exist() -> None:
    in_tables = {
        (role, state.name, occurred.name)
        for role, (machine, _, _) in MACHINES.items()
        for state, occurred in machine.TABLE
    }
    assert EXPECTED.keys() == in_tables
