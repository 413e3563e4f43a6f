"""`motet campaign`: thousands of simulated worlds over Spark's executors, a few seeds in each task.

Seeds run in waves. After each wave its outcomes and traces are appended to the tables `outcomes/` and `traces/`, so an
interrupted campaign resumes: seeds that have an outcome are not run again. The order of the log is audited a second
time over the traces, in SQL, independently of the simulator's checkers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from motet.audit.campaign_worker import OUTCOMES_DDL, run_some, scenarios
from motet.audit.jobs import in_tasks
from motet.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS_PER_TASK = 8
TASKS_PER_CORE = 16  # in one wave
POLL_EVERY_S = 1.0

# A stable position is the same message at every member. Deliveries that were rolled back do not count: the process
# delivered the position again, or received a state that contains it.
ORDER_BROKEN = """
    WITH delivered AS (
        SELECT scenario, seed, event.* FROM events
        WHERE has_one_log AND event.kind = 'delivered' AND event.channel = 'total' AND event.count > 0
    ), forgotten AS (
        SELECT scenario, seed, event.* FROM events WHERE event.kind = 'rolled_back'
    ), log AS (
        SELECT scenario, seed, member, position, max_by(struct(peer, count, size), n) AS entry
        FROM delivered d LEFT ANTI JOIN forgotten f
            ON d.scenario = f.scenario AND d.seed = f.seed AND d.member = f.member
            AND d.n < f.n AND d.position BETWEEN f.position AND f.last
        GROUP BY scenario, seed, member, position
    ), stable AS (
        SELECT scenario, seed, event.member AS member, max(event.position) AS stable
        FROM events WHERE event.kind = 'stable' GROUP BY scenario, seed, event.member
    )
    SELECT scenario, seed, position, sort_array(collect_set(entry)) AS entries
    FROM log JOIN stable USING (scenario, seed, member) WHERE position <= stable
    GROUP BY scenario, seed, position HAVING size(entries) > 1 ORDER BY seed, position LIMIT 100
"""


@dataclass(frozen=True, slots=True)
class FailedSeed:
    scenario: str
    seed: int
    violations: tuple[str, ...]

    @property
    def replay(self) -> str:
        return f"motet sim --scenario {self.scenario} --seed {self.seed} --transcript"


@dataclass(slots=True)
class Summary:
    wanted: int
    found_done: int  # seeds that an earlier run finished
    ran: int = 0
    seconds: float = 0.0
    failures: list[FailedSeed] = field(default_factory=list)
    audited: int = 0  # seeds whose traces were audited in this run


Progress = Callable[[int, int], None]  # seeds done, of how many


class Campaign:
    def __init__(self, spark: SparkSession, scenario: str, seeds: range, out: Path, *, with_traces: bool) -> None:
        if scenario not in scenarios():
            raise ConfigError(f"there is no scenario {scenario!r}; there are: {', '.join(scenarios())}")
        self._spark = spark
        self._scenario = scenario
        self._seeds = seeds
        self._out = out
        self._with_traces = with_traces

    def run(self, progress: Progress) -> Summary:
        began = time.perf_counter()
        done = self._done()
        todo = [seed for seed in self._seeds if seed not in done]
        summary = Summary(len(self._seeds), len(self._seeds) - len(todo))
        for wave in self._waves(todo):
            self._run_wave(wave, summary, progress)
        summary.seconds = time.perf_counter() - began
        summary.failures = self._failures()
        return summary

    def _waves(self, seeds: Sequence[int]) -> Iterator[Sequence[int]]:
        size = self._spark.sparkContext.defaultParallelism * TASKS_PER_CORE * SEEDS_PER_TASK
        yield from (seeds[start : start + size] for start in range(0, len(seeds), size))

    def _run_wave(self, seeds: Sequence[int], summary: Summary, progress: Progress) -> None:
        before = summary.found_done + summary.ran
        outcomes = self._outcomes(seeds).persist()
        try:
            with _TaskCounter(self._spark, lambda tasks: progress(before + tasks * SEEDS_PER_TASK, summary.wanted)):
                outcomes.count()
            self._keep(outcomes, summary)
        finally:
            outcomes.unpersist()
        summary.ran += len(seeds)
        progress(before + len(seeds), summary.wanted)

    def _outcomes(self, seeds: Sequence[int]) -> DataFrame:
        shares = [seeds[start : start + SEEDS_PER_TASK] for start in range(0, len(seeds), SEEDS_PER_TASK)]
        scenario, with_traces = self._scenario, self._with_traces

        def work(number: int) -> Iterator[pa.RecordBatch]:
            return run_some(scenario, shares[number], with_traces)

        return in_tasks(self._spark, len(shares), work, OUTCOMES_DDL)

    def _keep(self, outcomes: DataFrame, summary: Summary) -> None:
        """Append traces before outcomes: a seed counts as finished when its outcome is in the table."""
        broken: dict[int, str] = {}
        if self._with_traces:
            events = outcomes.selectExpr("scenario", "seed", "has_one_log", "explode(events) AS event")
            events.createOrReplaceTempView("events")
            broken = {row["seed"]: _in_words(row) for row in reversed(self._spark.sql(ORDER_BROKEN).collect())}
            summary.audited += outcomes.where("has_one_log").count()
            traces = events.selectExpr("scenario", "seed", "event.*").coalesce(self._files())
            traces.write.mode("append").option("compression", "zstd").parquet(str(self._out / "traces"))
        found = self._spark.createDataFrame(list(broken.items()), "seed BIGINT, found STRING")
        kept = outcomes.drop("events").join(found, "seed", "left").selectExpr(
            "scenario", "seed", "is_ok AND found IS NULL AS is_ok",
            "IF(found IS NULL, violations, array_append(violations, found)) AS violations",
            "stats", "fingerprint", "seconds", "has_one_log",
        )  # fmt: skip
        kept.coalesce(1).write.mode("append").option("compression", "zstd").parquet(str(self._out / "outcomes"))

    def _files(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def _done(self) -> set[int]:
        table = self._table()
        if table is None:
            return set()
        return {row["seed"] for row in table.select("seed").distinct().collect()}

    def _failures(self) -> list[FailedSeed]:
        table = self._table()
        if table is None:
            return []
        rows = table.where("NOT is_ok").orderBy("seed").collect()
        wanted = [row for row in rows if row["seed"] in self._seeds]
        return [FailedSeed(self._scenario, row["seed"], tuple(row["violations"])) for row in wanted]

    def _table(self) -> DataFrame | None:
        if not (self._out / "outcomes").exists():
            return None
        return self._spark.read.parquet(str(self._out / "outcomes")).where(f"scenario = '{self._scenario}'")


def _in_words(row: object) -> str:
    entries = "; ".join(f"{one['count']} messages of {one['peer']}" for one in row["entries"])  # type: ignore[index]
    return f"order in the traces: stable position {row['position']} is {entries}"  # type: ignore[index]


class _TaskCounter:
    """Reports the number of finished tasks while a job runs in the calling thread."""

    def __init__(self, spark: SparkSession, tell: Callable[[int], None]) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._tell = tell
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._is_over.wait(POLL_EVERY_S):
            stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
            self._tell(sum(stage.numCompletedTasks for stage in stages if stage is not None))
