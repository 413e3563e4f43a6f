"""The task of a campaign: runs seeds of the simulator and returns outcomes and trace events as columns.

No other module of this package may import the simulator.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from motet.sim.runner import SCENARIOS, run_seed
from motet.sim.scenarios.total_order import draw_ordered_plan

LEFT_OUT = ("datagram_sent", "datagram_received", "datagram_dropped")  # nine tenths of a trace; a replay shows them
_TEXTS = ("member", "kind", "peer", "channel", "view", "detail")
_NUMBERS = ("at_ns", "position", "last", "count", "size")
OUTCOMES_DDL = (
    "scenario STRING, seed BIGINT, is_ok BOOLEAN, violations ARRAY<STRING>, stats STRING, fingerprint STRING, "
    "seconds DOUBLE, has_one_log BOOLEAN, events ARRAY<STRUCT<n: BIGINT, member: STRING, kind: STRING, peer: STRING, "
    "channel: STRING, view: STRING, detail: STRING, at_ns: BIGINT, position: BIGINT, last: BIGINT, count: BIGINT, "
    "size: BIGINT>>"
)
_EVENT = pa.struct(
    [("n", pa.int64()), *((name, pa.string()) for name in _TEXTS), *((name, pa.int64()) for name in _NUMBERS)]
)
_OUTCOMES = pa.schema(
    [
        ("scenario", pa.string()),
        ("seed", pa.int64()),
        ("is_ok", pa.bool_()),
        ("violations", pa.list_(pa.string())),
        ("stats", pa.string()),
        ("fingerprint", pa.string()),
        ("seconds", pa.float64()),
        ("has_one_log", pa.bool_()),
        ("events", pa.list_(_EVENT)),
    ]
)


def scenarios() -> list[str]:
    return sorted(SCENARIOS)


def run_some(scenario: str, seeds: Iterable[int], with_traces: bool) -> Iterator[pa.RecordBatch]:
    """One batch per seed, so that a killed task loses at most the work of one seed."""
    for seed in seeds:
        yield pa.RecordBatch.from_pylist([_line(scenario, seed, with_traces)], schema=_OUTCOMES)


def _line(scenario: str, seed: int, with_traces: bool) -> dict[str, Any]:
    events: list[dict[str, Any]] = []

    def note(event: Any) -> None:
        if event.kind not in LEFT_OUT:
            events.append(event.as_dict() | {"n": len(events), "kind": str(event.kind)})

    began = time.perf_counter()
    outcome = run_seed(scenario, seed, trace=note if with_traces and scenario not in _UNTRACED else None)
    return {
        "scenario": scenario,
        "seed": seed,
        "is_ok": outcome.is_ok,
        "violations": [str(violation) for violation in outcome.violations],
        "stats": json.dumps(outcome.stats),
        "fingerprint": outcome.fingerprint,
        "seconds": time.perf_counter() - began,
        "has_one_log": _has_one_log(scenario, seed),
        "events": events,
    }


_UNTRACED = frozenset({"small-world"})


def _has_one_log(scenario: str, seed: int) -> bool:
    """Whether the world of this seed has a single log under all of its faults."""
    if scenario != "total-order":
        return scenario == "presets"
    plan = draw_ordered_plan(seed)
    return plan.is_one_primary and not (plan.membership.engine.static_quorum > 0 and plan.is_durable_state_lost)
