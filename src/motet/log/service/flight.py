"""The log service of a member: its log over Arrow Flight, for any Flight client.

    list_flights, get_flight_info     group, schema, bounds; endpoints with ready tickets
    do_get(ticket)                    a range of rows, or rows as they come (see requests.py)
    do_put(descriptor)                append: each record batch is one append batch, answered with its positions
    do_action                         "offsets", "health"

The server has threads of its own; a handler may block, and what blocks is bounded in number. Every error that leaves
a handler is a Flight error that carries one of motet.errors (flight_errors.py).
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import flight

from motet.errors import (
    ConfigError,
    LogReadOnlyError,
    LogRequestError,
    LogUnavailableError,
    MessageTooLargeError,
    TokenError,
)
from motet.log.journal.schema import LOG_SCHEMA
from motet.log.service.append_batches import check_schema, in_one_line, rows_of_batch, size_of
from motet.log.service.connections import drop_connections
from motet.log.service.flight_errors import flight_errors, to_flight
from motet.log.service.requests import (
    MOST_REQUEST_BYTES,
    AppendRequest,
    ReadRequest,
    encode,
    parse_append,
    parse_offsets,
    parse_read,
)
from motet.log.service.source import Appender, LogSource
from motet.log.service.streams import Item, LogStream, Slots
from motet.log.service.tokens import Tls, TokenCheck, check_token, location_of
from motet.protocol.core.identity import Endpoint, parse_endpoint

ACTIONS = {
    "offsets": 'first, last and stable position and the epoch; body {} or {"until": POSITION, "wait_s": SECONDS}',
    "health": "whether the service serves, and how much it has to do",
}


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Bounds of concurrent calls, each of which occupies a thread; beyond a bound they raise LogBusyError."""

    followers: int = 64
    reads: int = 64
    appends: int = 64
    grace_s: float = 2.0  # how long calls may continue when the service closes, before their connections are dropped

    def __post_init__(self) -> None:
        if min(self.followers, self.reads, self.appends) < 1 or self.grace_s < 0:
            raise ConfigError("a log service allows at least one call of each kind, and a grace of at least 0 s")


class LogService:
    """Serves one log from its construction until `close`. Without an appender it is read-only."""

    def __init__(
        self,
        source: LogSource,
        appender: Appender | None = None,
        bind: str = "127.0.0.1:0",
        token: str | None = None,
        tls: Tls | None = None,
        *,
        group: str = "log",
        limits: ServiceLimits | None = None,
    ) -> None:
        place = parse_endpoint(bind)
        check_token(token, place.host)
        self._host = place.host
        self._limits = limits or ServiceLimits()
        self._calls = _LogCalls(source, appender, group, self._limits)
        self._server = _start(self._calls, place, token, tls)
        self._lock = threading.Lock()
        self._is_closed = False
        # A process that ends without closing would wait at its exit for followers that never end; of two finalizers
        # the younger runs first, so this one is before Flight's own.
        self._finalizer = weakref.finalize(self, _end_calls, self._calls.is_closing, self.port)

    @property
    def port(self) -> int:
        return int(self._server.port)

    @property
    def endpoint(self) -> str:
        """The address that a LogClient takes as a member."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    def health(self) -> dict[str, Any]:
        return self._calls.health()

    def close(self) -> None:
        """End waiting calls at once and give others `grace_s`; when this returns, no call is running."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._calls.is_closing.set()
            port = self.port
            stopping = threading.Thread(target=self._server.shutdown, name="motet-log-service-stop", daemon=True)
            stopping.start()
            stopping.join(self._limits.grace_s)
            self._finalizer.detach()
            while stopping.is_alive():  # a client that does not read would keep its call open for ever
                drop_connections(port)
                stopping.join(0.1)

    def __enter__(self) -> LogService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end_calls(is_closing: threading.Event, port: int) -> None:
    is_closing.set()
    drop_connections(port)


class _LogCalls:
    """The operations of the log service, independent of Flight."""

    def __init__(self, source: LogSource, appender: Appender | None, group: str, limits: ServiceLimits) -> None:
        self.source = source
        self.appender = appender
        self.group = group
        self.is_closing = threading.Event()
        self.followers = Slots("followers", limits.followers)
        self.reads = Slots("reads", limits.reads)
        self.appends = Slots("appends", limits.appends)

    def offsets(self, raw: bytes) -> dict[str, Any]:
        request = parse_offsets(raw)
        if request.wait_s and self.source.bounds().stable < request.until:
            with self.reads.taken():
                self._wait_until(request.until, request.wait_s)
        most_bytes = None if self.appender is None else self.appender.most_bytes
        return {**asdict(self.source.bounds()), "group": self.group, "most_bytes": most_bytes}

    def _wait_until(self, position: int, wait_s: float) -> None:
        slices = max(1, round(wait_s / 0.25))
        for _ in range(slices):
            if self.is_closing.is_set() or self.source.wait_stable(position - 1, wait_s / slices) >= position:
                return

    def health(self) -> dict[str, Any]:
        calls = {"followers": self.followers.used, "reads": self.reads.used, "appends": self.appends.used}
        status = "closing" if self.is_closing.is_set() else "serving"
        return {"status": status, "is_read_only": self.appender is None, "calls": calls, **self.offsets(b"")}

    def info(self, request: ReadRequest | None, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """The ticket for the range in the descriptor, or for everything that is stable now."""
        bounds = self.source.bounds()
        ticket = request or ReadRequest(first=bounds.first, last=bounds.stable)
        rows = -1 if ticket.is_follow else max(0, (ticket.last or bounds.stable) - (ticket.first or bounds.first) + 1)
        endpoints = [flight.FlightEndpoint(encode(ticket), [])]
        metadata = json.dumps(self.offsets(b""))
        return flight.FlightInfo(LOG_SCHEMA, descriptor, endpoints, rows, -1, True, metadata)

    def items(self, request: ReadRequest, is_gone: Callable[[], bool]) -> Iterator[Item]:
        """Check the request now, so that errors come before the first row; the rows are read lazily."""
        self._refuse_closing()
        stream = LogStream(self.source, request, self.is_closing, is_gone)
        return _items_of(stream, self.followers if request.is_follow else self.reads)

    def _refuse_closing(self) -> None:
        if self.is_closing.is_set():
            raise LogUnavailableError("this member's log service is closing; ask another member")

    def act(self, name: str, body: bytes) -> dict[str, Any]:
        if name == "offsets":
            return self.offsets(body)
        if name == "health":
            return self.health()
        raise LogRequestError(f"there is no action {name[:40]!r}; there are {', '.join(ACTIONS)}")

    def append(self, request: AppendRequest, batch: pa.RecordBatch) -> dict[str, int]:
        self._refuse_closing()
        if self.appender is None:
            raise LogReadOnlyError("this log service is read-only: its member was started without an appender")
        rows = rows_of_batch(batch, self.appender.most_bytes)
        if not len(rows):
            raise LogRequestError("this append has no rows; omit it")
        if (size := size_of(rows)) > self.appender.most_bytes:
            raise MessageTooLargeError(
                f"this append batch takes {size} bytes; the maximum is {self.appender.most_bytes}: split it into "
                "several"
            )
        keys = None if rows.keys is None else rows.keys.to_pylist()
        first, last = self.appender.append(rows.payloads.to_pylist(), keys, request.producer, request.sequence)
        return {"first": first, "last": last, "sequence": request.sequence}


def _items_of(stream: LogStream, slots: Slots) -> Iterator[Item]:
    """Take the slot with the first row: a generator that is never started would never free it."""
    with flight_errors("reading the log"), slots.taken():
        yield from stream.items()


class _TokenMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Rejects calls without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._check = TokenCheck(token)

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str | bytes]]) -> None:
        try:
            self._check.check(headers)
        except TokenError as error:
            raise to_flight(error) from None


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    """Flight's methods, each delegating to `_LogCalls`."""

    def __init__(self, calls: _LogCalls, location: flight.Location, **options: Any) -> None:
        self._calls = calls
        super().__init__(location, **options)

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> list[flight.FlightInfo]:
        with flight_errors("listing the log"):
            return [self._calls.info(None, flight.FlightDescriptor.for_path(self._calls.group))]

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with flight_errors("describing the log"):
            return self._calls.info(self._asked(descriptor), descriptor)

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        return flight.SchemaResult(LOG_SCHEMA)

    def _asked(self, descriptor: flight.FlightDescriptor) -> ReadRequest | None:
        if descriptor.descriptor_type == flight.DescriptorType.CMD:
            return parse_read(descriptor.command)
        if descriptor.path != [self._calls.group.encode()]:
            raise LogRequestError(f"there is one log here, {self._calls.group!r}, and none at {descriptor.path}")
        return None

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.GeneratorStream:
        with flight_errors("reading the log"):
            request = parse_read(ticket.ticket)
            options = pa.ipc.IpcWriteOptions(compression=request.compression)
            return flight.GeneratorStream(LOG_SCHEMA, self._calls.items(request, context.is_cancelled), options)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with flight_errors("appending"), self._calls.appends.taken():
            request = parse_append(descriptor.command or b"")
            for number, batch in enumerate(_batches(reader)):
                unit = replace(request, sequence=request.sequence + number)
                writer.write(json.dumps(self._calls.append(unit, batch)).encode())

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        with flight_errors("an exchange"):
            raise LogRequestError("there is no exchange here; read with do_get, and append with do_put")

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return list(ACTIONS.items())

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        with flight_errors("an action"):
            if (size := action.body.size) > MOST_REQUEST_BYTES:  # checked before the body is copied
                raise LogRequestError(f"this body has {size} bytes; more than {MOST_REQUEST_BYTES} are not read")
            return [json.dumps(self._calls.act(_name_of(action), action.body.to_pybytes())).encode()]


def _name_of(action: flight.Action) -> str:
    try:
        return str(action.type)
    except UnicodeDecodeError as error:
        raise LogRequestError(f"the name of an action is UTF-8; there are {', '.join(ACTIONS)}") from error


def _batches(reader: flight.MetadataRecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The record batches of a client. The schema is checked before the first one is decoded."""
    try:
        check_schema(reader.schema)
        while True:
            chunk = reader.read_chunk()
            if chunk.data is not None:
                yield chunk.data
    except StopIteration:
        return
    except flight.FlightError:
        raise
    except (
        pa.ArrowException,
        OSError,
        UnicodeDecodeError,
    ) as error:  # OSError: not an Arrow message; UnicodeDecodeError: a column name that is not UTF-8
        raise LogRequestError(f"the rows to append cannot be read: {in_one_line(error)}") from error


def _start(calls: _LogCalls, place: Endpoint, token: str | None, tls: Tls | None) -> _Server:
    options: dict[str, Any] = {"middleware": {"token": _TokenMiddleware(token)} if token else None}
    if tls is not None:
        options["tls_certificates"] = [(tls.cert, tls.key)]
    try:
        return _Server(calls, location_of(place, has_tls=tls is not None), **options)
    except pa.ArrowException as error:
        reason = "and that certificate and key belong together" if tls else "and that the address is this machine's"
        raise ConfigError(f"cannot serve at {place}; check that the port is free, {reason} ({error})") from error
