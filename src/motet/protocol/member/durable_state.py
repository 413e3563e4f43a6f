"""The durable state of a member: what its journal preserves over a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.protocol.core.view import NO_VIEW, ViewId
from motet.protocol.membership.primary import PrimaryRecord


@dataclass(frozen=True, slots=True)
class DurableState:
    """The default is that of a process that starts for the first time."""

    record: PrimaryRecord = field(default_factory=PrimaryRecord)
    epoch: ViewId = NO_VIEW  # The last primary view whose log this process shares.
    position: int = 0  # The position up to which it has delivered that log.
    stable: int = 0  # The stable position of that log.
    earlier_incarnations: tuple[
        int, ...
    ] = ()  # The incarnation chain of this process, for which it counts as one member.
    producers: tuple[tuple[int, int], ...] = ()  # The highest sequence of each producer of idempotent appends.
    # False if the journal was created to replace a lost one: such a process cannot know whether a group existed before,
    # so it must not count towards bootstrapping one.
    may_bootstrap: bool = True
