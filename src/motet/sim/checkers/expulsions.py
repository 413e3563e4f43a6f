"""Who lived and was expelled all the same: members that a primary view left out, and when they were back.

A history knows who died and who asked to leave; all others had a right to stay. Primary views are one line by id, so a
member is out from the moment at which somebody installs a primary view without it until it installs a later one itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.sim.world.history import EnteredView, History


@dataclass(slots=True)
class Expulsion:
    member: Address
    view: View  # the first primary view without it
    begin: int
    end: int  # when it was back, or the history ends


def expulsions_of(history: History, end: int) -> list[Expulsion]:
    """In the order in which they began; `end` is when the history ends."""
    excused = history.dead | history.leavers
    last: View | None = None
    expulsions: list[Expulsion] = []
    out: dict[Address, Expulsion] = {}
    for event in history.events:
        if not isinstance(event, EnteredView) or not event.view.is_primary:
            continue
        if event.member in out and event.view.id > out[event.member].view.id:
            out.pop(event.member).end = event.at
        if last is None or event.view.id > last.id:
            for member in last.members if last is not None else ():
                if member not in event.view and member not in out and member not in excused:
                    out[member] = Expulsion(member, event.view, event.at, end)
                    expulsions.append(out[member])
            last = event.view
    return expulsions
