"""Finds expulsions: live members that a primary view excluded, and when they returned.

A history records which processes died and which asked to leave; every other member must not be excluded. Primary views
are totally ordered by id. So a member is excluded from the moment at which any process installs a primary view without
it until it installs a later primary view itself.
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
    end: int  # when it returned, or the end of the history


def expulsions_of(history: History, end: int) -> list[Expulsion]:
    """All expulsions in the order in which they began; `end` is the time at which the history ends."""
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
