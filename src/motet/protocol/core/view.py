"""Views: who is in, oldest first, under an id that no two different views share and that only grows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from motet.errors import MisuseError
from motet.protocol.core.identity import Address


@dataclass(frozen=True, slots=True, order=True)
class ViewId:
    """`creator` is the incarnation of the coordinator that made it: two of them may use one number at once."""

    number: int
    creator: int

    @property
    def tag(self) -> int:
        """A short name for frames: two views that meet have different ones, as good as certainly."""
        return (self.number * 0x9E3779B97F4A7C15 ^ self.creator) & ((1 << 62) - 1)

    def __str__(self) -> str:
        return f"{self.number}@{self.creator >> 48:04x}"


NO_VIEW = ViewId(0, 0)


@dataclass(frozen=True, slots=True, order=True)
class Ballot:
    """Names one attempt to end a view; a later round wins, and of two in one round the higher proposer."""

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
            raise MisuseError("a view without members is nobody's view")
        if len(set(self.members)) != len(self.members):
            raise MisuseError("a member stands twice in one view")

    @property
    def coordinator(self) -> Address:
        return self.members[0]

    @property
    def summary(self) -> ViewSummary:
        return ViewSummary(self.id, self.coordinator, self.is_primary, len(self.members))

    def __contains__(self, member: Address) -> bool:
        return member in self.members

    def acting_coordinator(self, suspects: Iterable[Address]) -> Address | None:
        """The most senior member that nobody suspects; None when all are suspected."""
        suspected = set(suspects)
        return next((member for member in self.members if member not in suspected), None)

    def next_members(self, leavers: Iterable[Address], joiners: Iterable[Address]) -> tuple[Address, ...]:
        """Seniority is kept; those who join come last, in an order that everybody computes alike."""
        gone = set(leavers)
        stay = tuple(member for member in self.members if member not in gone)
        return stay + tuple(sorted(set(joiners) - set(stay) - gone))

    def __str__(self) -> str:
        kind = "primary" if self.is_primary else "not primary"
        return f"{self.id} {{{', '.join(map(str, self.members))}}} ({kind})"


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """What a stranger is told of a view: enough to decide who of two coordinators leads a merge."""

    id: ViewId
    coordinator: Address
    is_primary: bool
    size: int
