"""Views: the members, oldest first, under an id that is unique to the view and only grows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from motet.errors import MisuseError
from motet.protocol.core.identity import Address


@dataclass(frozen=True, slots=True, order=True)
class ViewId:
    """`creator` is the incarnation of the coordinator that made the view: two coordinators may pick the same number."""

    number: int
    creator: int

    @property
    def tag(self) -> int:
        """A 62-bit hash of the id for frames. Two views that coexist have different tags with near certainty."""
        return (self.number * 0x9E3779B97F4A7C15 ^ self.creator) & ((1 << 62) - 1)

    def __str__(self) -> str:
        return f"{self.number}@{self.creator >> 48:04x}"


NO_VIEW = ViewId(0, 0)


@dataclass(frozen=True, slots=True, order=True)
class Ballot:
    """Names one attempt to end a view. A later round wins; within a round, the higher proposer wins."""

    round: int
    proposer: int  # incarnation

    def __str__(self) -> str:
        return f"{self.round}/{self.proposer >> 48:04x}"


NO_BALLOT = Ballot(0, 0)


@dataclass(frozen=True, slots=True)
class View:
    """Who is in the group, oldest first, and whether this part of it may order messages."""

    id: ViewId
    members: tuple[Address, ...]  # oldest first
    is_primary: bool

    def __post_init__(self) -> None:
        if not self.members:
            raise MisuseError("a view needs at least one member")
        if len(set(self.members)) != len(self.members):
            raise MisuseError("a view lists a member twice; every member may occur once")

    @property
    def coordinator(self) -> Address:
        return self.members[0]

    @property
    def summary(self) -> ViewSummary:
        return ViewSummary(self.id, self.coordinator, self.is_primary, len(self.members))

    def __contains__(self, member: Address) -> bool:
        return member in self.members

    def acting_coordinator(self, suspects: Iterable[Address]) -> Address | None:
        """The most senior member that is not suspected; None when all are."""
        suspected = set(suspects)
        return next((member for member in self.members if member not in suspected), None)

    def next_members(self, leavers: Iterable[Address], joiners: Iterable[Address]) -> tuple[Address, ...]:
        """Members keep their seniority; joiners come last, sorted, so that all members compute the same order."""
        gone = set(leavers)
        stay = tuple(member for member in self.members if member not in gone)
        return stay + tuple(sorted(set(joiners) - set(stay) - gone))

    def __str__(self) -> str:
        kind = "primary" if self.is_primary else "not primary"
        return f"{self.id} {{{', '.join(map(str, self.members))}}} ({kind})"


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """What discovery announces of a view: enough to decide which of two coordinators leads a merge."""

    id: ViewId
    coordinator: Address
    is_primary: bool
    size: int
