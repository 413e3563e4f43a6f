"""Filters pushed down by Spark: bounds on the position narrow the range, equality on a column drops rows in the task.

Spark does not apply accepted filters again, so a filter is accepted only if it is applied exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

ALWAYS_THERE = frozenset({"position", "epoch", "view", "sender", "seqno", "sent_at", "delivered_at", "payload"})
COMPARED = frozenset({"epoch", "view", "sender", "seqno"})
HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows to read: positions `low` to `high`, restricted to rows whose columns have the given values."""

    low: int = 1
    high: int = HIGHEST
    equal: tuple[tuple[str, Any], ...] = ()

    def within(self, low: int, high: int) -> Wanted:
        return Wanted(max(self.low, low), min(self.high, high), self.equal)

    def pick(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for column, value in self.equal:
            batch = batch.filter(pc.equal(batch.column(column), value))
        return batch


def push(filters: Iterable[Filter], wanted: Wanted) -> tuple[Wanted, list[Filter]]:
    """The narrowed rows, and the filters that Spark must still apply."""
    left: list[Filter] = []
    for filter in filters:
        narrowed = _narrowed(filter, wanted)
        if narrowed is None:
            left.append(filter)
        else:
            wanted = narrowed
    return wanted, left


def _narrowed(filter: Filter, wanted: Wanted) -> Wanted | None:
    match filter:
        case IsNotNull((column,)) if column in ALWAYS_THERE:
            return wanted
        case EqualTo(("position",), int(value)):
            return wanted.within(value, value)
        case GreaterThan(("position",), int(value)):
            return wanted.within(value + 1, HIGHEST)
        case GreaterThanOrEqual(("position",), int(value)):
            return wanted.within(value, HIGHEST)
        case LessThan(("position",), int(value)):
            return wanted.within(1, value - 1)
        case LessThanOrEqual(("position",), int(value)):
            return wanted.within(1, value)
        case EqualTo((column,), value) if column in COMPARED:
            return Wanted(wanted.low, wanted.high, (*wanted.equal, (column, value)))
    return None


def bounds_of_in(filters: Iterable[Filter], wanted: Wanted) -> Wanted:
    """Narrow the range to the bounds of a list of positions; Spark must still apply the list itself."""
    for filter in filters:
        match filter:
            case In(("position",), values) if values and all(isinstance(value, int) for value in values):
                wanted = wanted.within(min(values), max(values))
    return wanted
