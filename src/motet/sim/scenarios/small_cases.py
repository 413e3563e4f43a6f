"""The cases of the scenario `small-world`: every kind of change, with every fault at every step of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations

from motet.sim.world.network import Link

NAMES = "abcd"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change of the group that begins at rest. If there are several parts, their partition heals."""

    name: str
    parts: tuple[str, ...]  # the members of each view before the change
    starts: str = ""
    leaves: str = ""
    crashes: str = ""


CHANGES = (
    GroupChange("join of d", ("abc",), starts="d"),
    GroupChange("leave of d", ("abcd",), leaves="d"),
    GroupChange("leave of the coordinator a", ("abcd",), leaves="a"),
    GroupChange("crash of d", ("abcd",), crashes="d"),
    GroupChange("crash of the coordinator a", ("abcd",), crashes="a"),
    GroupChange("merge of 2 and 2", ("ab", "cd")),
    GroupChange("merge of 3 and 1", ("abc", "d")),
    GroupChange("merge of 1 and 3", ("a", "bcd")),
    GroupChange("cold start of 4", (), starts=NAMES),
)


@dataclass(frozen=True, slots=True)
class InjectedFault:
    crash: str = ""  # the process that crashes; or else:
    links: tuple[Link, ...] = ()  # the links that are cut

    def __str__(self) -> str:
        if self.crash:
            return f"{self.crash} crashes"
        (one, other), *back = self.links
        return f"{one} and {other} are cut off from each other" if back else f"{one} does not reach {other}"


@dataclass(frozen=True, slots=True)
class SmallWorldCase:
    number: int
    change: GroupChange
    step: int
    fault: InjectedFault

    def __str__(self) -> str:
        return f"{self.change.name}, step {self.step}, {self.fault}"


@cache
def faults_of(change: GroupChange) -> tuple[InjectedFault, ...]:
    """All faults among the members that the change itself does not crash."""
    names = [name for name in NAMES if name not in change.crashes]
    one_way = [InjectedFault(links=(link,)) for link in permutations(names, 2)]
    both_ways = [InjectedFault(links=((one, other), (other, one))) for one, other in combinations(names, 2)]
    return (*(InjectedFault(crash=name) for name in names), *one_way, *both_ways)
