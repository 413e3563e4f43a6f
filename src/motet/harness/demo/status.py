"""The status of all processes, updated by their messages and shown by the display."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.errors import MotetError
from motet.harness.demo.plan import NAMES

POLL_EVERY_S = 0.05
TRAIL = 10  # reports, about four seconds


class DemoError(MotetError):
    """The demo cannot continue. The text gives the reason, and `log` is the log file of the cause."""

    def __init__(self, text: str, log: Path | None = None) -> None:
        super().__init__(text)
        self.log = log


@dataclass(frozen=True, slots=True)
class Wait:
    """A condition that an act waits for, named in the error if its deadline passes."""

    until: str
    process: str  # the process whose log may show the reason; empty: any


@dataclass(slots=True)
class MemberLine:
    """The status of one member by its latest messages."""

    name: str
    state: str = "not started"
    incarnation: int = 1
    view: int = 0
    members: tuple[str, ...] = ()
    is_primary: bool = False
    is_alive: bool = False
    reports: int = 0  # number of status reports received
    trail: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=TRAIL))  # (when, position)
    figures: dict[str, Any] = field(default_factory=dict)

    def on_message(self, message: Mapping[str, Any]) -> None:
        stats = message.get("stats", {})
        self.figures |= stats
        self.reports += bool(stats)
        if stats:
            self.trail.append((time.monotonic(), self.position))
        view = message.get("view") or stats.get("view")
        if view:
            self.view, self.members, self.is_primary = view["number"], tuple(view["members"]), view["primary"]

    def begin_incarnation(self) -> None:
        """Reset the status for a new incarnation."""
        self.incarnation += 1
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
class DemoStatus:
    lines: dict[str, MemberLine] = field(default_factory=lambda: {name: MemberLine(name) for name in NAMES})
    stream: StreamLine = field(default_factory=StreamLine)
    began: float = field(default_factory=time.monotonic)
    act: str = ""
    waits: list[Wait] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def __getitem__(self, name: str) -> MemberLine:
        return self.lines[name]

    @property
    def position(self) -> int:
        """The highest position of any member."""
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
        before = {name: self.lines[name].reports for name in names}
        await self.until(
            lambda: all(self.lines[name].reports >= before[name] + 2 for name in names),
            f"{', '.join(names)} have reported their status",
        )

    async def until(self, is_so: Callable[[], bool], what: str, process: str = "") -> float:
        """Wait, for as long as the act's deadline allows; the answer is how many seconds it took."""
        begun = time.monotonic()
        with self.waiting(what, process):
            while not is_so():
                await asyncio.sleep(POLL_EVERY_S)
        return time.monotonic() - begun

    @contextmanager
    def waiting(self, until: str, process: str = "") -> Iterator[None]:
        wait = Wait(until, process)
        self.waits.append(wait)
        try:
            yield
        finally:
            self.waits.remove(wait)

    def in_words(self) -> str:
        parts = [
            f"{line.name} {line.state} at {line.position:,} (stable {line.stable:,}) in view {line.view} of "
            f"{len(line.members)}{'' if line.is_primary else ', not primary'}"
            if line.is_alive
            else f"{line.name} {line.state}"
            for line in self.lines.values()
        ]
        return "; ".join(parts)
