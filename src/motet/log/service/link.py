"""The connection of a client to one member's log service. Every failure is a typed error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import flight

from motet.errors import LogBrokenError, LogUnavailableError
from motet.log.journal.schema import LOG_SCHEMA
from motet.log.service.append_batches import APPEND_SCHEMA, AppendRows, in_one_line
from motet.log.service.flight_errors import from_flight
from motet.log.service.requests import AppendRequest, OffsetsRequest, ReadRequest, encode
from motet.log.service.tokens import headers_of, location_of, read_pem
from motet.log.service.validated_json import from_json
from motet.log.service.watchdog import Watchdog, WatchedStream
from motet.protocol.core.identity import parse_endpoint

ANSWER_S = 5.0  # timeout of short requests

_CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # otherwise all clients of a process would share one connection per member
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # otherwise a restarted member would not be tried for up to two minutes
]


class Offsets(NamedTuple):
    """Positions `first` to `stable` can be read; `last` is the end of the unstable tail."""

    first: int
    last: int
    stable: int
    epoch: int


class Appended(NamedTuple):
    """Positions of one append batch; (0, 0) if the log already had it at positions that are no longer known."""

    first: int
    last: int

    @property
    def is_repeat(self) -> bool:
        return self.first == 0


class LogLink:
    def __init__(self, endpoint: str, client: flight.FlightClient, token: str | None, watchdog: Watchdog) -> None:
        self.endpoint = endpoint
        self._client = client
        self._headers = headers_of(token)
        self._watchdog = watchdog

    def close(self) -> None:
        self._client.close()

    def offsets(self, until: int = 0, wait_s: float = 0.0) -> Offsets:
        document = self.ask("offsets", encode(OffsetsRequest(until, wait_s)), ANSWER_S + wait_s)
        return _offsets_of(document)

    def most_bytes(self) -> int | None:
        """The maximum of an append batch at this member; None if its service is read-only."""
        limit = self.ask("offsets", b"", ANSWER_S).get("most_bytes")
        return limit if isinstance(limit, int) else None

    def ask(self, action: str, body: bytes, timeout_s: float) -> dict[str, Any]:
        with _typed():
            results = list(self._client.do_action((action, body), self._options(timeout_s)))
        try:
            document = from_json(results[0].body.to_pybytes())
        except (ValueError, IndexError) as error:
            raise LogBrokenError(f"the answer to {action} is not JSON; is a Motet log service there?") from error
        if not isinstance(document, dict):
            raise LogBrokenError(f"the answer to {action} is not an object; is a Motet log service there?")
        return document

    def rows(self, request: ReadRequest) -> Generator[pa.RecordBatch, None, None]:
        """Batches with checked, consecutive positions; an empty batch is a heartbeat."""
        position = request.follow_from or request.first or 0
        for batch in self._batches(request):
            check_positions(batch, position)
            position += batch.num_rows
            yield batch

    def _batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        self.ask(
            "offsets", b"", ANSWER_S
        )  # do_get has no timeout, so this request detects an unreachable member in bounded time
        with _typed():
            reader = self._client.do_get(flight.Ticket(encode(request)), self._options())
            watched = self._watchdog.watch(reader.cancel)
            try:
                _check_schema(_watched(watched, lambda: reader.schema))
                while (chunk := _watched(watched, lambda: next(reader, None))) is not None:
                    if chunk.data is not None:
                        yield _validated(chunk.data)
            finally:
                self._watchdog.unwatch(watched)
                reader.cancel()  # a consumer that stops early must not leave the service writing to nobody

    def put(self, request: AppendRequest, batches: Sequence[AppendRows], timeout_s: float) -> Iterator[Appended]:
        """Send append batches in order; each is answered before the next one is sent."""
        command = flight.FlightDescriptor.for_command(encode(request))
        with _typed():
            writer, answers = self._client.do_put(command, APPEND_SCHEMA, self._options(timeout_s))
            try:
                yield from _one_by_one(batches, writer, answers)
            finally:
                writer.close()  # raises the error of the service

    def _options(self, timeout_s: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)


def connector(
    token: str | None, tls_roots: bytes | str | Path | None, tls_hostname: str | None, watchdog: Watchdog
) -> Callable[[str], LogLink]:
    """A factory of links, which connect with their first request."""
    roots = read_pem(tls_roots) if isinstance(tls_roots, str | Path) else tls_roots

    def link(endpoint: str) -> LogLink:
        location = location_of(parse_endpoint(endpoint), has_tls=roots is not None)
        options = {"tls_root_certs": roots, "override_hostname": tls_hostname, "generic_options": _CHANNEL}
        return LogLink(endpoint, flight.FlightClient(location, **options), token, watchdog)

    return link


def check_positions(batch: pa.RecordBatch, position: int) -> None:
    """Refuse rows that do not follow on from `position`."""
    if not batch.num_rows:
        return
    positions = batch.column(0).to_numpy()
    if positions[0] != position or not bool((np.diff(positions) == 1).all()):
        raise LogBrokenError(
            f"rows {positions[0]} to {positions[-1]} came where {batch.num_rows} rows from {position} on belong; "
            "this member's log has gaps or repeats: check its journal with motet journal verify"
        )


def _check_schema(schema: pa.Schema) -> None:
    if schema.names != LOG_SCHEMA.names or schema.types != LOG_SCHEMA.types:
        raise LogBrokenError(
            f"the rows have columns {schema.names}, which are not those of a log; is this a log service?"
        )


def _watched(watched: WatchedStream, wait: Callable[[], Any]) -> Any:
    watched.waits_since = time.monotonic()
    try:
        return wait()
    except flight.FlightCancelledError as error:
        if watched.was_cancelled:
            raise LogUnavailableError("the stream was silent for too long, or this client was closed") from error
        raise
    finally:
        watched.waits_since = None


def _one_by_one(
    batches: Sequence[AppendRows], writer: flight.FlightStreamWriter, answers: flight.FlightMetadataReader
) -> Iterator[Appended]:
    """Send one batch at a time: if some were sent ahead, a failing call would lose their answers."""
    for batch in batches:
        writer.write_batch(batch.batch())
        if (answer := answers.read()) is None:
            return  # the service ended the call; closing the writer raises its error
        yield _appended(answer.to_pybytes())
    writer.done_writing()


def _appended(raw: bytes) -> Appended:
    try:
        document = json.loads(raw)
        return Appended(int(document["first"]), int(document["last"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise LogBrokenError("the answer to an append has no positions; is a Motet log service there?") from error


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Validate rows, because a member is another process and Arrow trusts offsets."""
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise LogBrokenError(f"rows came that are no valid Arrow data: {in_one_line(error)}") from error
    if batch.column(0).null_count:
        raise LogBrokenError("rows came without a position; is a Motet log service there?")
    return batch


def _offsets_of(document: dict[str, Any]) -> Offsets:
    try:
        return Offsets(*(int(document[name]) for name in Offsets._fields))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LogBrokenError(f"offsets without one of {', '.join(Offsets._fields)}; is this a log service?") from error


@contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise from_flight(error) from error
