"""Write the state tables of docs/design/membership.md from the code: `python -m tests.docs.membership_tables`."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from typing import Any

from motet.protocol.membership.announcer import AnnouncerInput, AnnouncerState, CommitAnnouncer
from motet.protocol.membership.coordinator import Coordinator, CoordinatorInput, CoordinatorState
from motet.protocol.membership.merge_leader import LeaderInput, LeaderState, MergeLeader
from motet.protocol.membership.merge_part import MergePart, PartInput, PartState
from motet.protocol.membership.participant import Participant, ParticipantInput, ParticipantState
from motet.protocol.membership.transitions import StateMachine, Transition
from tests.docs.pages import DOCS

PAGE = DOCS / "design" / "membership.md"
Machines = dict[str, tuple[type[StateMachine[Any, Any]], type[Enum], type[Enum]]]
MACHINES: Machines = {
    "participant": (Participant, ParticipantState, ParticipantInput),
    "coordinator": (Coordinator, CoordinatorState, CoordinatorInput),
    "announcer": (CommitAnnouncer, AnnouncerState, AnnouncerInput),
    "part": (MergePart, PartState, PartInput),
    "leader": (MergeLeader, LeaderState, LeaderInput),
}


def table(name: str) -> str:
    """One row for each input and outcome; states with the same outcome stand in one row."""
    machine, states, inputs = MACHINES[name]
    lines = ["| state | input | what it does | next |", "|---|---|---|---|"]
    for occurred in inputs:
        outcomes: dict[Transition, list[Enum]] = {}
        for state in states:
            if (transition := machine.TABLE.get((state, occurred))) is not None:
                outcomes.setdefault(transition, []).append(state)
        for transition, where in outcomes.items():
            named = "any" if len(where) == len(states) else ", ".join(str(state.value) for state in where)
            following = "same" if transition.next is None else transition.next.value
            lines.append(f"| {named} | {occurred.value} | {said_of(transition)} | {following} |")
    return "\n".join(lines)


def said_of(transition: Transition) -> str:
    text = inspect.getdoc(transition.action)
    assert text is not None, f"{transition.action.__name__} says nothing about what it does"
    return " ".join(text.split("\n\n")[0].split())


def written(page: str) -> str:
    """The page with every table between its markers as the code has it now."""
    for name in MACHINES:
        begin, end = f"<!-- table: {name} -->", f"<!-- end of table: {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        assert len(pattern.findall(page)) == 1, f"docs/design/membership.md has not one {begin} ... {end}"
        page = pattern.sub(lambda _, name=name, b=begin, e=end: f"{b}\n{table(name)}\n{e}", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
