"""What the director knows of everybody, as the words of the processes come in; the display shows it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from motet.demo.plan import NAMES
from motet.errors import MotetError

PATIENCE_S = 600.0  # the bound for something that hangs; on a machine with much else to do everything takes its time
LOOK_EVERY_S = 0.05
TRAIL = 10  # tellings, some four seconds


class DemoError(MotetError):
    """The demo could not go on; the text says what happened, and where to look."""


@dataclass(slots=True)
class MemberLine:
    """One member, by its latest words."""

    name: str
    state: str = "not started"
    life: int = 1
    view: int = 0
    members: tuple[str, ...] = ()
    is_primary: bool = False
    is_alive: bool = False
    tellings: int = 0  # how often it told its figures
    trail: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=TRAIL))  # (when, position)
    figures: dict[str, Any] = field(default_factory=dict)

    def hear(self, word: Mapping[str, Any]) -> None:
        stats = word.get("stats", {})
        self.figures |= stats
        self.tellings += bool(stats)
        if stats:
            self.trail.append((time.monotonic(), self.position))
        view = word.get("view") or stats.get("view")
        if view:
            self.view, self.members, self.is_primary = view["number"], tuple(view["members"]), view["primary"]

    def begin_anew(self) -> None:
        """A new process takes this one's place."""
        self.life += 1
        self.figures.clear()
        self.trail.clear()

    def figure(self, name: str) -> int:
        return int(self.figures.get(name, 0))

    @property
    def position(self) -> int:
        return self.figure("position")

    @property
    def rate(self) -> float:
        """Messages per second, over the last few seconds."""
        if len(self.trail) < 2 or not self.is_alive:
            return 0.0
        (begin, low), (end, high) = self.trail[0], self.trail[-1]
        return max(0, high - low) / (end - begin) if end > begin else 0.0

    @property
    def stable(self) -> int:
        return self.figure("stable")


@dataclass(slots=True)
class StreamLine:
    """The Spark query."""

    state: str = "not started"
    position: int = 0
    batches: int = 0
    restarts: int = 0


@dataclass(slots=True)
class Board:
    lines: dict[str, MemberLine] = field(default_factory=lambda: {name: MemberLine(name) for name in NAMES})
    stream: StreamLine = field(default_factory=StreamLine)
    began: float = field(default_factory=time.monotonic)
    act: str = ""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def __getitem__(self, name: str) -> MemberLine:
        return self.lines[name]

    @property
    def position(self) -> int:
        """Of whoever is furthest."""
        return max(line.position for line in self.lines.values())

    def total(self, figure: str) -> int:
        return sum(line.figure(figure) for line in self.lines.values())

    def agree_on(self, names: tuple[str, ...], *, primary: bool | None = None) -> bool:
        """All of these are in one view, which has them and nobody else."""
        lines = [self.lines[name] for name in names]
        return (
            all(set(line.members) == set(names) for line in lines)
            and len({line.view for line in lines}) == 1
            and (primary is None or all(line.is_primary is primary for line in lines))
        )

    async def fresh(self, names: tuple[str, ...]) -> None:
        """Figures that were taken after this call: the second ones from now on, for the next may be on their way."""
        before = {name: self.lines[name].tellings for name in names}
        await self.until(
            lambda: all(self.lines[name].tellings >= before[name] + 2 for name in names),
            f"{', '.join(names)} tell how far they are",
        )

    async def until(self, is_so: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> float:
        """Wait; the answer is how many seconds it took."""
        begun = time.monotonic()
        while not is_so():
            if time.monotonic() - begun > patience_s:
                raise DemoError(f"waited {patience_s:.0f} s in vain until {what}; {self.in_words()}")
            await asyncio.sleep(LOOK_EVERY_S)
        return time.monotonic() - begun

    def in_words(self) -> str:
        parts = [
            f"{line.name} {line.state} at {line.position:,} (stable {line.stable:,}) in view {line.view} of "
            f"{len(line.members)}{'' if line.is_primary else ', not primary'}"
            for line in self.lines.values()
        ]
        return "; ".join(parts)
