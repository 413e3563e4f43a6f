"""A client of several members' log services that is served as long as one of them serves.

Every member holds the same log, so a call that fails at one member goes on at the next one, at the exact position; the
client checks by itself that positions are consecutive, and so hands out no row twice and skips none.

Offsets never go back, and never promise more than the member can give that is asked next: the client stays with one
member; when it has to change, the new member must first know as stable what was already promised (it soon does, for a
stable position is one that every member of the view has), or the one after it is asked. It leaves a member whose log
stands still while another's grows, for a member on the minority side of a partition answers all the same.
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

EDGE_WAIT_S = 5.0  # how long one member is given to learn that a position is stable which was so elsewhere
APPEND_BATCHES_PER_CALL = 64  # so that one append call ends in bounded time


class LogClient:
    """Reads, follows and appends at whichever member serves. Threads may share it; a forked process must not."""

    def __init__(
        self,
        members: Sequence[str],
        token: str | None = None,
        tls_roots: bytes | str | Path | None = None,  # PEM, or the path of a PEM file; given, TLS is spoken
        *,
        tls_hostname: str | None = None,  # the name in the members' certificate, where it is not their address
        timeout_s: float = 30.0,  # without any progress at any member
        avoid_s: float = 5.0,  # how long a member that failed is asked only after all others
        silence_s: float = 15.0,  # a stream on which nothing comes, not even a heartbeat, is dead
        stale_s: float = 5.0,  # a log that stands still for so long makes the client ask others whether theirs grows
        append_batch_bytes: int | None = None,  # how append_all cuts; None: what the first member that answers can take
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
        self._stable = 0  # the highest stable position and epoch that this client has told anybody
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
        """Bounds of the log, as the member has them that serves next; stable and epoch never go back."""
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
        """What each member answers by itself: for people who want to know which are well."""
        return {link.endpoint: _offsets_or_fault(link) for link in self._candidates.links}

    def read(self, first: int, last: int, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `last`, both included. What is not stable yet is waited for, within patience."""
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
        """One unit into the group; its positions, once they are stable. The same producer and sequence again: a repeat.

        Sequences of a producer only grow, and the next one is sent when this one is answered.
        """
        return self._append([rows_of(payloads, keys)], producer, sequence)[0]

    def append_all(
        self, payloads: Column, keys: Column | None = None, *, producer: int, batch_id: int
    ) -> list[Appended]:
        """Any number of rows, in order, as units; trying the whole batch again, also in another process, adds nothing.

        That holds while batches of a producer have growing ids and the cut is the same: members of a group have one
        frame size; where that may change between two tries, give `append_batch_bytes` to the client.
        """
        rows = rows_of(payloads, keys)
        if not len(rows):
            return []
        units = split(rows, self._largest_append_batch())
        if len(units) > APPEND_BATCHES_PER_ID:
            raise LogRequestError(
                f"{len(units)} units in one batch; at most {APPEND_BATCHES_PER_ID} can be numbered: split it"
            )
        return self._append(units, producer, first_sequence(batch_id))

    def _append(self, units: Sequence[AppendRows], producer: int, sequence: int) -> list[Appended]:
        failover = self._failover(f"appending {len(units)} units of producer {producer}")
        done: list[Appended] = []
        while len(done) < len(units):
            link = failover.next()
            request = AppendRequest(producer, sequence + len(done))
            try:
                for appended in link.put(
                    request, units[len(done) :][:APPEND_BATCHES_PER_CALL], max(1.0, failover.left_s)
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
        """The rows of a range or without end, from one member after the other."""
        position = request.follow_from or request.first or 1
        while request.last is None or position <= request.last:
            link = failover.next()
            try:
                with closing(link.rows(self._remaining(request, position, failover))) as batches:
                    for batch in self._while_it_grows(batches, request.is_follow, failover):
                        position += batch.num_rows
                        self._note_stable(link, position - 1)
                        yield batch
                        failover.progressed()  # after the consumer had it: its time is not ours to count
            except MotetError as fault:
                failover.failed(link, fault)

    def _remaining(self, request: ReadRequest, position: int, failover: Failover) -> ReadRequest:
        if request.is_follow:
            return replace(request, follow_from=position)
        return replace(request, first=position, wait_s=min(EDGE_WAIT_S, failover.left_s))

    def _while_it_grows(
        self, batches: Iterator[pa.RecordBatch], is_follow: bool, failover: Failover
    ) -> Iterator[pa.RecordBatch]:
        """Batches with rows; a follower leaves when nothing comes here while more is stable at another member."""
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
                f"stable to {offsets.stable} only, while {promised} was stable elsewhere: it lags, or is cut off",
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
        """Ask the others whether more is stable there; if so, the furthest of them is asked next."""
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
