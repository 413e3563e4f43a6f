"""The interfaces through which a log service reads the log and appends to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from motet.log.journal.reader import Bounds


class LogSource(Protocol):
    """A log that may grow, and be trimmed at its beginning, while it is read. Called from several threads at once."""

    def bounds(self) -> Bounds:
        """The log has `first` to `last`, of which those up to `stable` are final; an empty log has last = first - 1."""
        ...

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `last`, both included, in batches of at most `batch_rows`."""
        ...

    def wait_stable(self, beyond: int, timeout_s: float) -> int:
        """Block until the stable position is above `beyond`, or the timeout passes; return the stable position."""
        ...


class Appender(Protocol):
    """Appends batches of messages to the group. Called from several threads at once."""

    @property
    def most_bytes(self) -> int:
        """Maximum of an append batch, as `append_batches.size_of` counts it."""
        ...

    def append(self, payloads: list[bytes], keys: list[bytes] | None, producer: int, sequence: int) -> tuple[int, int]:
        """Multicast one append batch and block until it is stable; return its first and last position.

        Stable, not merely delivered: an unstable position may be rolled back, and then an answered append would be
        lost. The group drops a batch whose sequence is not above the producer's last one, because the log already has
        it: the answer is then (0, 0), or the positions if they are still known. Raises typed errors.
        """
        ...
