"""Pipeline, campaign and the live audit: each does only what is new, and goes on where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from motet.audit.campaign import ORDER_BROKEN, Campaign
from motet.audit.follow import AuditRound, LiveAudit
from motet.audit.pipeline import Pipeline
from motet.audit.verdict import AuditFinding
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.synthetic import write_journal
from motet.spark.ending import raise_failure, stop_between_batches
from tests.spark import forge

ROWS, STABLE = 9_000, 5_000
CONFIG = JournalConfig(fsync=Fsync.NEVER, segment_bytes=96 << 10)


@pytest.fixture
def journals(tmp_path: Path) -> list[Path]:
    """Three members, of whose rows only the first ones are stable yet."""
    paths = [tmp_path / name for name in ("alice", "bob", "carol")]
    for member, path in enumerate(paths):
        sizes = {"payload_bytes": 24, "frame_bytes": 512}
        write_journal(path, "g", ROWS, member=member, stable=STABLE, config=CONFIG, **sizes)
    return paths


def settle(journals: list[Path]) -> None:
    for path in journals:
        with Journal.open(path, "g", CONFIG) as journal:
            journal.mark_stable(ROWS)


@contextmanager
def stopping(queries: list[StreamingQuery]) -> Iterator[None]:
    """Whatever happens inside: a query that is left behind would disturb all tests that follow."""
    try:
        yield
    finally:
        stop_between_batches(queries)
    raise_failure(queries)


def wait(event: threading.Event, query: StreamingQuery) -> None:
    while not event.wait(0.2):
        raise_failure([query])


def test_the_pipeline_runs_again_with_nothing_twice(spark: SparkSession, journals: list[Path], tmp_path: Path) -> None:
    """First it follows, until it is told to stop; then it does what is new, and no more."""
    lake = tmp_path / "lake"
    where = [str(path) for path in journals[:2]]
    work = Pipeline(spark, where, lake)
    queries = work.follow(1)
    with stopping(queries):
        sums = [lake / "gold_parts" / f"member={name}" / "batch=0" / "_SUCCESS" for name in ("alice", "bob")]
        while not all(path.exists() for path in (*sums, lake / "gold" / "views" / "_SUCCESS")):
            raise_failure(queries)
            time.sleep(0.1)
    first = work.outcome()
    assert (first.bronze, first.silver) == ({"alice": STABLE, "bob": STABLE}, STABLE)
    settle(journals)
    second = Pipeline(spark, where, lake).run()
    assert (second.silver, second.conflicts, second.last) == (ROWS - STABLE, 0, ROWS)
    silver = spark.read.parquet(str(lake / "silver"))
    asked = ("count(*)", "count(DISTINCT position)", "min(copies)", "bool_and(agreed)")
    assert silver.selectExpr(*asked).first() == (ROWS, ROWS, 2, True)
    bronze = spark.read.parquet(str(lake / "bronze")).groupBy("member").count().collect()
    assert {row["member"]: row["count"] for row in bronze} == {"alice": ROWS, "bob": ROWS}
    rates = spark.read.parquet(str(lake / "gold" / "rates"))
    assert rates.selectExpr("sum(rows)").first() == (2 * ROWS,)
    assert spark.read.parquet(str(lake / "gold" / "views")).count() == 4


def test_the_live_audit_goes_on_after_a_restart_and_raises_the_alarm(
    spark: SparkSession, journals: list[Path], tmp_path: Path
) -> None:
    where = [str(path) for path in journals]
    alarms: list[AuditFinding] = []
    assert LiveAudit(spark, where, tmp_path / "state", alarms.extend).run_round() == ()
    settle(journals)
    forgery = forge.Forgery(journals[1])
    place, index = forgery.frame_of(6_000)
    position = place[index].head.position
    forge.change_byte(journals[1], position)
    LiveAudit(spark, where, tmp_path / "state", alarms.extend).run_round()
    assert {(one.check, one.member, one.position) for one in alarms} >= {("integrity", "bob", position)}
    assert {one.member for one in alarms if one.kind != "nobody sent it"} == {"bob"}


def test_the_live_audit_follows_journals_that_grow_and_does_not_wait_for_a_complete_range(
    spark: SparkSession, journals: list[Path], tmp_path: Path
) -> None:
    """All that is stable is looked at, and a change in the last, incomplete range raises an alarm."""
    rounds: list[AuditRound] = []
    seen, raised = threading.Event(), threading.Event()
    alarms: list[AuditFinding] = []

    def tell(run_round: AuditRound) -> None:
        rounds.append(run_round)
        seen.set()

    def alarm(findings: Sequence[AuditFinding]) -> None:
        alarms.extend(findings)
        raised.set()

    live = LiveAudit(spark, [str(path) for path in journals], tmp_path / "state", alarm, tell)
    query = live.start(1)
    with stopping([query]):
        wait(seen, query)
        assert (rounds[0].checked, set(rounds[0].stable.values())) == (STABLE, {STABLE})
        segment, place = forge.Forgery(journals[2]).frame_of(ROWS - 100)
        forge.change_byte(journals[2], segment[place].head.position)
        settle(journals)
        wait(raised, query)
        live.stop()
    assert ("integrity", "carol", segment[place].head.position) in {(o.check, o.member, o.position) for o in alarms}


def test_a_campaign_runs_only_the_seeds_that_have_no_outcome(spark: SparkSession, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    for seeds in (range(3), range(5)):
        summary = Campaign(spark, "channels", seeds, tmp_path, with_traces=True).run(lambda *one: told.append(one))
    assert (summary.wanted, summary.found_done, summary.ran, summary.failures) == (5, 3, 2, [])
    assert told[-1] == (5, 5)
    assert spark.read.parquet(str(tmp_path / "outcomes")).select("seed").distinct().count() == 5
    assert spark.read.parquet(str(tmp_path / "traces")).select("seed").distinct().count() == 5


def test_the_audit_of_traces_finds_a_position_that_is_two_messages(spark: SparkSession) -> None:
    look_at(spark, ("a", "delivered", "x"), ("b", "delivered", "y"), ("a", "stable", "-"), ("b", "stable", "-"))
    (row,) = spark.sql(ORDER_BROKEN).collect()
    assert (row["seed"], row["position"], [entry["peer"] for entry in row["entries"]]) == (4, 7, ["x", "y"])


def test_what_was_rolled_back_and_came_with_a_state_breaks_no_order(spark: SparkSession) -> None:
    events = [("a", "delivered", "x"), ("b", "delivered", "y"), ("a", "stable", "-"), ("b", "stable", "-")]
    look_at(spark, *events[:2], ("b", "rolled_back", "-"), *events[2:])
    assert spark.sql(ORDER_BROKEN).collect() == []
    look_at(spark, events[0], ("b", "rolled_back", "-"), *events[1:])  # the delivery came after it
    assert len(spark.sql(ORDER_BROKEN).collect()) == 1


def look_at(spark: SparkSession, *events: tuple[str, str, str]) -> None:
    """Member, kind and peer of each event, at position 7."""
    struct = "named_struct('n', {}L, 'member', '{}', 'kind', '{}', 'peer', '{}', 'channel', 'total', 'position', 7L, "
    struct += "'last', 8L, 'count', 2L, 'size', 9L) AS event"
    selects = [
        f"SELECT 'total-order' AS scenario, 4L AS seed, true AS has_one_log, {struct.format(n, *one)}"
        for n, one in enumerate(events)
    ]
    spark.sql(" UNION ALL ".join(selects)).createOrReplaceTempView("events")
