"""What a process that restarts still knows, because its journal kept it."""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.protocol.core.view import NO_VIEW, ViewId
from motet.protocol.membership.primary import PrimaryRecord


@dataclass(frozen=True, slots=True)
class DurableState:
    """The default is that of a process that starts for the first time."""

    record: PrimaryRecord = field(default_factory=PrimaryRecord)
    epoch: ViewId = NO_VIEW  # the last primary view whose log it shares
    position: int = 0  # how far it has delivered that log
    stable: int = 0  # how much of that is known to be everywhere
    earlier_incarnations: tuple[int, ...] = ()  # earlier incarnations of this process, for which it stands
    producers: tuple[tuple[int, int], ...] = ()  # of appends that can be repeated: the highest sequence of each
    may_bootstrap: bool = (
        True  # False: it began when the memory of a group had been lost, so it does not say what was before
    )
