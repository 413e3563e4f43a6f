"""The plan of the demo: its members, the duration of each act, and the places of its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from motet.config import Settings

NAMES = ("ada", "ben", "cleo", "dan", "eve")
SENDERS = ("ada", "ben", "cleo")
VICTIM = "ada"  # the oldest member, so it coordinates; it sends; and Spark tries it first
MAJORITY = ("ada", "ben", "dan")
MINORITY = ("cleo", "eve")  # one of them is a sender, whose messages must wait
ASKED_BY_SPARK = (VICTIM, "ben", "dan", "cleo", "eve")

GROUP = "demo"
RATE = 200  # messages per second of each sender
LOSS = 0.1  # share of all datagrams
LOSSY = f"drop={LOSS}@*:in"  # at the receiver, so that each datagram is drawn for once
QUICK_S = 6.0
SECONDS = 48.0
DEADLINE_S = 300.0  # far more than an act takes, for a loaded machine

SETTINGS: Settings = {  # tolerates a member without a processor for a second while a laptop starts a JVM
    "heartbeat": "200ms",
    "suspect": "2s",
    "verify": "500ms",
    "view_answer": "1s",
}


@dataclass(frozen=True, slots=True)
class DemoPlan:
    out: Path
    seconds: float = SECONDS  # of traffic in total, without the times of waiting
    with_spark: bool = True
    no_spark_because: str = ""
    deadline_s: float = DEADLINE_S  # for one act, beyond its traffic

    def share(self, part: float) -> float:
        """The seconds of traffic of an act."""
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
        """The directory of the stderr of each process."""
        return self.out / "logs"

    def log_of(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    @property
    def scratch(self) -> Path:
        """Temporary files of all processes; always removed at the end of the demo."""
        return self.out / "scratch"
