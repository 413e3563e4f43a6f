"""A log in memory that a test can grow, trim and hold back; and an appender that drops repeats as a group does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from motet.errors import MotetError
from motet.log.journal.reader import Bounds
from motet.log.journal.schema import LOG_SCHEMA
from motet.log.service.client import LogClient
from motet.log.service.flight import LogService

VIEW = "3@00000000000000aa"
SENDER = "ann#00000000000000aa"


def rows(first: int, last: int, payloads: list[bytes] | None = None, keys: list[bytes] | None = None) -> pa.RecordBatch:
    """AppendRows as a journal would give them; the payload says the position unless it is given."""
    positions = range(first, last + 1)
    count = len(positions)
    times = pa.array([1_700_000_000_000_000 + position for position in positions], LOG_SCHEMA.field("sent_at").type)
    columns = [
        pa.array(positions, pa.int64()),
        pa.array([3] * count, pa.int64()),
        pa.array([VIEW] * count),
        pa.array([SENDER] * count),
        pa.array([position // 4 for position in positions], pa.int64()),
        times,
        times,
        pa.nulls(count, pa.binary()) if keys is None else pa.array(keys, pa.binary()),
        pa.array([b"row %d" % position for position in positions] if payloads is None else payloads, pa.binary()),
    ]
    return pa.record_batch(columns, schema=LOG_SCHEMA)


class MemorySource:
    """Positions `first` to `last`; `stable` follows `last` unless it is held."""

    def __init__(self, last: int = 0, first: int = 1, stable: int | None = None) -> None:
        self._changed = threading.Condition()
        self._first = first
        self._rows = rows(1, last)
        self._stable = last if stable is None else stable

    def bounds(self) -> Bounds:
        with self._changed:
            return Bounds(self._first, self._rows.num_rows, self._stable, 3)

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with self._changed:
            wanted = self._rows.slice(first - 1, last - first + 1)
        for offset in range(0, wanted.num_rows, batch_rows):
            yield wanted.slice(offset, batch_rows)

    def wait_stable(self, beyond: int, timeout_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._stable > beyond, timeout_s)
            return self._stable

    def add(self, payloads: list[bytes], keys: list[bytes] | None = None, *, is_stable: bool = True) -> tuple[int, int]:
        with self._changed:
            first, last = self._rows.num_rows + 1, self._rows.num_rows + len(payloads)
            self._rows = pa.concat_batches([self._rows, rows(first, last, payloads, keys)])
            if is_stable:
                self._stable = last
                self._changed.notify_all()
            return first, last

    def grow(self, count: int, *, is_stable: bool = True) -> None:
        last = self.bounds().last
        self.add([b"row %d" % position for position in range(last + 1, last + count + 1)], is_stable=is_stable)

    def set_stable(self, stable: int) -> None:
        with self._changed:
            self._stable = stable
            self._changed.notify_all()

    def trim(self, first: int) -> None:
        with self._changed:
            self._first = first


class FakeGroup:
    """Appends to a log that several members share, and drops a unit whose sequence is not higher, as a group does."""

    def __init__(self, source: MemorySource, most_bytes: int = 1000) -> None:
        self.source = source
        self.most_bytes = most_bytes
        self.units: list[tuple[int, int]] = []  # (producer, sequence) as they got a position
        self.calls = 0
        self._highest: dict[int, int] = {}
        self._lock = threading.Lock()

    def append(self, payloads: list[bytes], keys: list[bytes] | None, producer: int, sequence: int) -> tuple[int, int]:
        with self._lock:
            self.calls += 1
            if sequence <= self._highest.get(producer, -1):
                return 0, 0
            self._highest[producer] = sequence
            self.units.append((producer, sequence))
            return self.source.add(payloads, keys)


class FailingDoor:
    """A member's way into the group that fails at given calls, before the unit got in or after it."""

    def __init__(
        self,
        group: FakeGroup,
        fault: MotetError,
        *,
        before: frozenset[int] = frozenset(),
        after: frozenset[int] = frozenset(),
    ) -> None:
        self._group = group
        self._fault = fault
        self._before = before
        self._after = after
        self.most_bytes = group.most_bytes
        self.calls = 0

    def append(self, payloads: list[bytes], keys: list[bytes] | None, producer: int, sequence: int) -> tuple[int, int]:
        self.calls += 1
        if self.calls in self._before:
            raise self._fault
        positions = self._group.append(payloads, keys, producer, sequence)
        if self.calls in self._after:
            raise self._fault
        return positions


def positions_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [position for batch in batches for position in batch.column("position").to_pylist()]


def payloads_of(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


@contextmanager
def client_of(*services: LogService | str, **options: object) -> Iterator[LogClient]:
    members = [service if isinstance(service, str) else service.endpoint for service in services]
    with LogClient(members, **{"timeout_s": 5.0, "avoid_s": 0.2, **options}) as client:  # type: ignore[arg-type]
        yield client


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Until `condition()` holds; that it comes at all is what a test asserts, not how soon."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "it never came"
        time.sleep(0.005)
