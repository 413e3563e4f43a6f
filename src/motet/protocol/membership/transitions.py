"""State machines as tables: on which input a role does what in which state, and which state follows.

Each role of the view change (participant, coordinator, commit announcer, part of a merge, merge leader) is a
`StateMachine`: an enum of states, an enum of inputs, and one `TABLE` from each pair that means something to an action
and the next state. A role first *classifies* what arrives (this PREPARE has a higher ballot than the one promised) and
then *fires* the input. All conditions stand in the classification, so a pair of state and input has one outcome.

    a pair that stands in the table      its action runs, after the next state was entered
    any other pair                       ignored, and counted as `frame_misplaced`

`docs/design/membership.md` shows these tables; `tests/docs/membership_tables.py` writes them from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Generic, TypeVar, cast

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Effect

StateT = TypeVar("StateT", bound=Enum)
InputT = TypeVar("InputT", bound=Enum)
Action = Callable[..., list[Effect]]


@dataclass(frozen=True, slots=True)
class Transition:
    action: Action  # its docstring is what the documentation says that is done
    next: Enum | None = None  # None: the state stays, unless the action itself fires another input


Table = Mapping[tuple[Enum, Enum], Transition]
Rows = Mapping[Enum, Transition]  # of a state, by input


class StateMachine(Generic[StateT, InputT]):
    TABLE: ClassVar[Table]  # a class variable cannot name type variables, so its keys are of the enums' base type

    def __init__(self, initial: StateT, counters: Counters) -> None:
        self.state = initial
        self._counters = counters

    def fire(self, occurred: InputT, *arguments: object) -> list[Effect]:
        """The one place where a role changes its state."""
        transition = self.TABLE.get((self.state, occurred))
        if transition is None:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        if transition.next is not None:
            self.state = cast(StateT, transition.next)
        return transition.action(self, *arguments)


def repeated(machine: object, *arguments: object) -> list[Effect]:
    """nothing: a repetition, or about what is over, as the network makes them"""
    return []


def in_states(states: Iterable[Enum], rows: Rows) -> dict[tuple[Enum, Enum], Transition]:
    """The same rows for each of these states."""
    return {(state, occurred): transition for state in states for occurred, transition in rows.items()}
