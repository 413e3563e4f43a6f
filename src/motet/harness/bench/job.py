"""Jobs and results: plain data that is passed between the parent and its worker processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MeasurementKind = Literal["rate", "latency", "calls", "kill", "heal"]
Order = Literal["fifo", "total", "direct"]
MOTET = "motet"


@dataclass(frozen=True, slots=True)
class Load:
    """The workload of one measurement."""

    members: int = 3
    senders: int = 1  # the last members send; the first one is the coordinator and sends only if all do
    size: int = 100
    order: Order = "fifo"
    api: Literal["batch", "message"] = "batch"
    rate: int = 0  # messages per second of each sender; 0: unlimited
    callers: int = 1  # concurrent calls
    drop: float = 0.0  # share of received datagrams that every member drops
    is_sealed: bool = False
    is_journaled: bool = False
    has_thread: bool = True  # False: the protocols run on the application's loop
    slow_ms: float = 0.0  # how long the first member sleeps after each batch
    victim: int = -1  # the index of the member that is killed
    settings: tuple[tuple[str, str | int], ...] = ()  # settings in addition to the preset `local`

    def sends(self, index: int) -> bool:
        return index >= self.members - self.senders


@dataclass(frozen=True, slots=True)
class Job:
    """One process of one measurement."""

    system: str
    kind: MeasurementKind
    load: Load
    index: int
    seconds: float
    warm_up: float
    seeds: tuple[str, ...] = ()
    directory: str = ""


class Sample(NamedTuple):
    """One sample of a process."""

    at: float  # the monotonic clock, which all processes of a machine share
    delivered: int
    cpu_s: float
    rss_bytes: int


@dataclass(slots=True)
class WorkerOutcome:
    """The result of one process of one measurement."""

    index: int
    samples: list[Sample] = field(default_factory=list)
    sent: int = 0
    missing: int = 0  # expected messages that did not arrive in time
    latencies_ns: list[int] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        first, last = self.samples[0], self.samples[-1]
        return (last.delivered - first.delivered) / (last.at - first.at)

    @property
    def cpu_share(self) -> float:
        """The share of one core."""
        first, last = self.samples[0], self.samples[-1]
        return (last.cpu_s - first.cpu_s) / (last.at - first.at)

    @property
    def rss_bytes(self) -> int:
        return max(sample.rss_bytes for sample in self.samples)


@dataclass(slots=True)
class Run:
    """One measurement of one row, over all its processes."""

    value: float  # in the unit of the row
    p99: float | None = None
    low: float | None = None  # the rate in the slowest tenth of the time, which shows a collapse that the mean hides
    cpu: list[float] = field(default_factory=list)  # per member, cores
    rss_mb: list[float] = field(default_factory=list)
    cpu_us_per_message: float | None = None  # CPU time of all members, per message delivered at each
    missing: int = 0
    calls_per_s: float | None = None
    memory_mb: list[list[float]] = field(default_factory=list)  # over time, of a soak
    counters: dict[str, int] = field(default_factory=dict)
