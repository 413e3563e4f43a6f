"""A client of several members' log services, which works as long as one of them serves.

Every member holds the same log, so a call that fails at one member continues at the next one, at the exact position.
The client checks that positions are consecutive, so it returns no row twice and skips none.

Offsets never decrease, and never exceed what the next member can serve. The client stays with one member. On a failover
the new member must first report as stable what was already returned; it soon does, because every member of the view has
a stable position. Otherwise the next member is tried. The client also leaves a member whose log does not grow while
another's does, because a member on the minority side of a partition still answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from motet.errors import ConfigError, LogBehindError, LogReadOnlyError, LogRequestError, LogUnavailableError, MotetError
from motet.log.service.append_batches import APPEND_BATCHES_PER_ID, AppendRows, Column, first_sequence, rows_of, split
from motet.log.service.failover import Candidates, Failover
from motet.log.service.link import Appended, LogLink, Offsets, connector
from motet.log.service.requests import DEFAULT_BATCH_ROWS, AppendRequest, ReadRequest
from motet.log.service.watchdog import Watchdog

EDGE_WAIT_S = 5.0  # how long a member may take to learn that a position is stable that another reported as stable
APPEND_BATCHES_PER_CALL = 64  # so that one append call ends in bounded time


class LogClient:
    """Reads, follows and appends at any member that serves. Thread-safe; a forked process must make its own."""

    def __init__(
        self,
        members: Sequence[str],
        token: str | None = None,
        tls_roots: bytes | str | Path | None = None,  # PEM, or the path of a PEM file; given, TLS is spoken
        *,
        tls_hostname: str | None = None,  # the name in the members' certificate, where it is not their address
        timeout_s: float = 30.0,  # without any progress at any member
        avoid_s: float = 5.0,  # how long a failed member is tried only after all others
        silence_s: float = 15.0,  # a stream without rows or heartbeats for so long is dead
        stale_s: float = 5.0,  # after so long without growth the client asks other members whether their log grows
        append_batch_bytes: int
        | None = None,  # maximum of an append batch in append_all; None: the first answering member's
    ) -> None:
        if not members or isinstance(members, str):
            raise ConfigError("a log client needs at least one member; write members=['host:port', ...]")
        if timeout_s < 0 or min(silence_s, stale_s) <= 0:
            raise ConfigError("timeout_s may be 0 (one round over the members); silence_s and stale_s are above 0")
        self._watchdog = Watchdog(silence_s)
        link = connector(token, tls_roots, tls_hostname, self._watchdog)
        self._candidates = Candidates([link(member) for member in dict.fromkeys(members)], avoid_s)
        self._timeout_s = timeout_s
        self._heartbeat_s = min(1.0, silence_s / 4, stale_s / 2)
        self._stale_s = stale_s
        self._append_batch_bytes = append_batch_bytes
        self._is_closed = threading.Event()
        self._lock = threading.Lock()
        self._stable = 0  # the highest stable position and epoch that this client has returned
        self._epoch = 0
        self._moved_at = time.monotonic()  # when `_stable` last grew, or the others were last asked

    def __enter__(self) -> LogClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Open streams end; calls that wait raise LogUnavailableError. May be called from any thread, and twice."""
        self._is_closed.set()
        self._watchdog.close()
        for link in self._candidates.links:
            link.close()

    def offsets(self) -> Offsets:
        """The bounds of the log at the next member that serves; stable and epoch never decrease."""
        if self._is_stale():
            self._prefer_further(self._stable)
        failover = self._failover("asking for offsets")
        while True:
            link = failover.next()
            try:
                offsets = self._offsets_at(link, min(EDGE_WAIT_S, failover.left_s))
            except MotetError as fault:
                failover.failed(link, fault)
            else:
                self._candidates.prefer(link)
                return offsets

    def survey(self) -> dict[str, Offsets | MotetError]:
        """The answer of each member, without failover, for people who want to know which members serve."""
        return {link.endpoint: _offsets_or_fault(link) for link in self._candidates.links}

    def read(self, first: int, last: int, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `last`, both included. Waits for rows that are not stable yet, within the timeout."""
        if first > last:
            return
        request = ReadRequest(first=first, last=last, batch_rows=batch_rows, heartbeat_s=self._heartbeat_s)
        failover = self._failover(f"reading positions {first} to {last}")
        yield from self._stream(request, failover)

    def follow(self, first: int, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Stable rows from `first` on as they come; ends when this client is closed."""
        request = ReadRequest(follow_from=first, batch_rows=batch_rows, heartbeat_s=self._heartbeat_s)
        try:
            yield from self._stream(request, self._failover(f"following the log from {first}"))
        except LogUnavailableError:
            if not self._is_closed.is_set():
                raise

    def append(self, payloads: Column, keys: Column | None = None, *, producer: int, sequence: int) -> Appended:
        """Append one batch and return its positions once they are stable. A repeated sequence adds nothing.

        Sequences of a producer must increase, and the next append may start once this one is answered.
        """
        return self._append([rows_of(payloads, keys)], producer, sequence)[0]

    def append_all(
        self, payloads: Column, keys: Column | None = None, *, producer: int, batch_id: int
    ) -> list[Appended]:
        """Append any number of rows, in order, as append batches. A retry, also in another process, adds nothing twice.

        That requires increasing batch ids per producer and the same split on a retry. All members of a group have one
        frame size; where it may change between two attempts, give `append_batch_bytes` to the client.
        """
        rows = rows_of(payloads, keys)
        if not len(rows):
            return []
        batches = split(rows, self._largest_append_batch())
        if len(batches) > APPEND_BATCHES_PER_ID:
            raise LogRequestError(
                f"{len(batches)} append batches under one batch id; the maximum is {APPEND_BATCHES_PER_ID}: use "
                "several ids"
            )
        return self._append(batches, producer, first_sequence(batch_id))

    def _append(self, batches: Sequence[AppendRows], producer: int, sequence: int) -> list[Appended]:
        failover = self._failover(f"appending {len(batches)} batches of producer {producer}")
        done: list[Appended] = []
        while len(done) < len(batches):
            link = failover.next()
            request = AppendRequest(producer, sequence + len(done))
            try:
                for appended in link.put(
                    request, batches[len(done) :][:APPEND_BATCHES_PER_CALL], max(1.0, failover.left_s)
                ):
                    done.append(appended)
                    failover.progressed()
                self._candidates.prefer(link)
            except MotetError as fault:
                failover.failed(link, fault)
        return done

    def _largest_append_batch(self) -> int:
        failover = self._failover("asking how much can be appended at once")
        while self._append_batch_bytes is None:
            link = failover.next()
            try:
                self._append_batch_bytes = link.most_bytes()
                if self._append_batch_bytes is None:
                    failover.failed(link, LogReadOnlyError("this log service is read-only"))
            except MotetError as fault:
                failover.failed(link, fault)
        return self._append_batch_bytes

    def _stream(self, request: ReadRequest, failover: Failover) -> Iterator[pa.RecordBatch]:
        """The rows of a range, or without end, with failover from one member to the next."""
        position = request.follow_from or request.first or 1
        while request.last is None or position <= request.last:
            link = failover.next()
            try:
                with closing(link.rows(self._remaining(request, position, failover))) as batches:
                    for batch in self._while_it_grows(batches, request.is_follow, failover):
                        position += batch.num_rows
                        self._note_stable(link, position - 1)
                        yield batch
                        failover.progressed()  # after the yield, so that the consumer's time does not count as silence
            except MotetError as fault:
                failover.failed(link, fault)

    def _remaining(self, request: ReadRequest, position: int, failover: Failover) -> ReadRequest:
        if request.is_follow:
            return replace(request, follow_from=position)
        return replace(request, first=position, wait_s=min(EDGE_WAIT_S, failover.left_s))

    def _while_it_grows(
        self, batches: Iterator[pa.RecordBatch], is_follow: bool, failover: Failover
    ) -> Iterator[pa.RecordBatch]:
        """Batches with rows. A follower stops here when no rows come while another member has more stable ones."""
        idle_since = time.monotonic()
        for batch in batches:
            if batch.num_rows:
                yield batch
                idle_since = time.monotonic()
            elif is_follow:
                failover.progressed()
                if time.monotonic() - idle_since > self._stale_s:
                    if self._prefer_further(self._stable):
                        return
                    idle_since = time.monotonic()

    def _failover(self, what: str) -> Failover:
        return Failover(self._candidates, what, self._timeout_s, self._is_closed)

    def _note_stable(self, link: LogLink, stable: int) -> None:
        self._candidates.prefer(link)
        with self._lock:
            if stable > self._stable:
                self._stable = stable
                self._moved_at = time.monotonic()

    def _offsets_at(self, link: LogLink, wait_s: float) -> Offsets:
        promised = self._stable
        offsets = link.offsets(promised, wait_s)
        if offsets.stable < promised:
            raise LogBehindError(
                f"stable only to {offsets.stable}, while another member reported {promised}: it lags or is partitioned",
                asked=promised,
                first=offsets.first,
                last=offsets.last,
                stable=offsets.stable,
            )
        self._note_stable(link, offsets.stable)
        with self._lock:
            self._epoch = max(self._epoch, offsets.epoch)
            return offsets._replace(epoch=self._epoch)

    def _is_stale(self) -> bool:
        with self._lock:
            return time.monotonic() - self._moved_at > self._stale_s

    def _prefer_further(self, stable: int) -> bool:
        """Prefer the member with the highest stable position, if one is above `stable`."""
        with self._lock:
            self._moved_at = time.monotonic()
        answers = {link: _offsets_or_fault(link) for link in self._candidates.others()}
        further = {link: offsets.stable for link, offsets in answers.items() if isinstance(offsets, Offsets)}
        for link in answers.keys() - further.keys():
            self._candidates.avoid(link)
        best = max(further, key=further.__getitem__, default=None)
        if best is None or further[best] <= stable:
            return False
        self._candidates.prefer(best)
        return True


def _offsets_or_fault(link: LogLink) -> Offsets | MotetError:
    try:
        return link.offsets()
    except MotetError as fault:
        return fault
