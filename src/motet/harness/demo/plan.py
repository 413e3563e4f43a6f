"""Who takes part in the demo, for how long each act goes on, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAMES = ("ada", "ben", "cleo", "dan", "eve")
SENDERS = ("ada", "ben", "cleo")
VICTIM = "ada"  # the oldest, so it coordinates; it speaks; and Spark asks it first
MAJORITY = ("ada", "ben", "dan")
MINORITY = ("cleo", "eve")  # one of them speaks: it must wait
ASKED_BY_SPARK = (VICTIM, "ben", "dan", "cleo", "eve")

GROUP = "demo"
RATE = 200  # messages per second of each speaker
LOSS = 0.1  # of all datagrams
LOSSY = f"drop={LOSS}@*:in"  # at the member that they reach, so that each is drawn for once
QUICK_S = 6.0
SECONDS = 48.0
DEADLINE_S = 300.0  # far beyond what an act takes, for a machine may have much else to do

SETTINGS = {  # a laptop that starts a JVM beside five members may leave one without a processor for a second
    "heartbeat": "200ms",
    "suspect": "2s",
    "verify": "500ms",
    "view_answer": "1s",
}


@dataclass(frozen=True, slots=True)
class DemoPlan:
    out: Path
    seconds: float = SECONDS  # of traffic in all; what must be waited for comes on top
    with_spark: bool = True
    no_spark_because: str = ""
    deadline_s: float = DEADLINE_S  # for one act, beyond its traffic

    def share(self, part: float) -> float:
        """An act's part of the time."""
        return self.seconds * part

    @property
    def journals(self) -> Path:
        return self.out / "journals"

    @property
    def table(self) -> Path:
        return self.out / "table"

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint"

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    @property
    def snapshots(self) -> Path:
        return self.out / "snapshot"

    @property
    def logs(self) -> Path:
        """What each process wrote on its error stream."""
        return self.out / "logs"

    def log_of(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    @property
    def scratch(self) -> Path:
        """Temporary files of all processes; gone when the demo ends, however it ends."""
        return self.out / "scratch"
