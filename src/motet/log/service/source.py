"""What a member offers to its log service: a log to read, and a way into the group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from motet.log.journal.reader import Bounds


class LogSource(Protocol):
    """A log that may grow, and be trimmed at its beginning, while it is read. Called from several threads at once."""

    def bounds(self) -> Bounds:
        """Positions `first` to `last` are here, up to `stable` for good; an empty log has last = first - 1."""
        ...

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `last`, both included, in batches of at most `batch_rows`."""
        ...

    def wait_stable(self, beyond: int, timeout_s: float) -> int:
        """Block until the stable position is higher than `beyond`, or the time is over; the stable position."""
        ...


class Appender(Protocol):
    """The way of a unit of messages into the group. Called from several threads at once."""

    @property
    def most_bytes(self) -> int:
        """How large one unit may be, as `units.size_of` counts it."""
        ...

    def append(self, payloads: list[bytes], keys: list[bytes] | None, producer: int, sequence: int) -> tuple[int, int]:
        """Multicast one unit and block until it is stable; its first and last position.

        Stable, not merely delivered: an unstable position may be rolled back, and then an answered append would be
        lost. A unit whose sequence is not higher than the producer's last one is in the log already and is dropped by
        the group: the answer is then (0, 0), or the positions where they are still known. Raises typed errors.
        """
        ...
