"""The admin interface of a member: figures, health, metrics, a live page, and a few operations, over HTTP.

    GET  /            the dashboard            GET  /health    200 when well, else 503, with remarks
    GET  /stats       all figures, JSON        GET  /events    the group's overview once per second, by SSE
    GET  /metrics     for Prometheus           GET  /overview   the same, once
                                               GET  /history   two minutes of samples, for the plots
    POST /operate/NAME    sync, snapshot, leave, fault; JSON in and out

One thread accepts, one thread serves each connection, and a connection carries one request. Bounds: connections,
listeners of /events, the time for sending a request, its size. It listens on loopback unless it has a token.

Slow clients do not keep out a probe: when all connections are in use, the oldest one whose request is not complete is
evicted; when all are being answered, some more are accepted for /health and /metrics only, and the oldest of these is
evicted whatever it does: such an answer takes milliseconds, unless its client does not read it.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol, Self

from motet.admin.authorizer import Authorizer, host_name, read_token
from motet.admin.client import parse_endpoint
from motet.admin.handler import AdminHandler
from motet.admin.metrics import registry_of
from motet.admin.poller import Poller
from motet.errors import ConfigError, MotetError
from motet.protocol.core.identity import Endpoint, is_loopback

LOG = logging.getLogger("motet.admin")
LEAST_TOKEN = 16  # off loopback: shorter ones can be guessed by trying
CLOSE_S = 2.0  # longest time that open requests may take when the server closes
RESERVE = 8  # connections beyond `most_connections`, on which only PROBED is served
PROBED = ("/health", "/metrics")
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    b'{"error":"too many connections to this admin port; close some, or ask again in a moment"}'
)


class Observed(Protocol):
    """The member as the admin server sees it. Both methods are thread-safe."""

    def stats(self) -> Mapping[str, Any]: ...

    def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Blocks until done; raises MotetError with a text for people."""
        ...


@dataclass(frozen=True, slots=True)
class AdminConfig:
    bind: str = "127.0.0.1:0"  # port 0: any free one; see `AdminServer.endpoint`
    token: str | None = None  # needed to operate; beyond loopback also to read
    insecure: bool = False  # anybody who can reach the port may operate the member
    hosts: tuple[str, ...] = ()  # names under which a reverse proxy publishes this server
    dashboard: bool = True
    most_connections: int = 64
    most_listeners: int = 16  # open dashboards; each occupies one connection
    request_s: float = 5.0  # longest time for sending a request
    answer_s: float = 10.0  # longest time for receiving an answer
    most_body_bytes: int = 65_536
    interval_s: float = 1.0  # interval between two overviews on /events

    def __post_init__(self) -> None:
        endpoint = parse_endpoint(self.bind)
        if self.token is not None:
            _check_token(self.token, 1 if is_loopback(endpoint.host) else LEAST_TOKEN)
        elif not (self.insecure or is_loopback(endpoint.host)):
            raise ConfigError(
                f"the admin port would listen on {endpoint.host}, where others can reach it, without a token; give one "
                "(the setting token, or MOTET_TOKEN), bind it to 127.0.0.1 and reach it through a proxy or a tunnel, "
                "or set insecure = true"
            )
        if not 0 < self.most_listeners < self.most_connections:
            raise ConfigError(
                f"most_listeners {self.most_listeners} must be at least 1 and below most_connections "
                f"({self.most_connections}), so that pages cannot keep operators out"
            )


def _check_token(token: str, least: int) -> None:
    if len(token) < least or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token must have at least {least} printable ASCII characters, and no spaces; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(24))'"
        )


class AdminServer:
    """`start` binds and serves in the background; `close` ends every thread that it started."""

    def __init__(self, observed: Observed, config: AdminConfig | None = None) -> None:
        self._observed = observed
        self._config = config or AdminConfig()
        self._server: HttpServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        if self._server is None:
            self._server = HttpServer(self._observed, self._config)
            self._thread = threading.Thread(target=self._server.serve, name="motet-admin", daemon=True)
            self._thread.start()
        return self

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens, with the port that it really got."""
        if self._server is None:
            raise ConfigError("the admin server is not started")
        host, port = self._server.server_address[:2]
        return Endpoint(str(host), port)

    @property
    def url(self) -> str:
        host, port = self.endpoint
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def close(self) -> None:
        """Stop serving. A running operation is not interrupted: it may be the `leave` that closes this server."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        server.stop()
        self._thread.join(CLOSE_S)
        server.end_connections(CLOSE_S)
        server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(slots=True)
class Connection:
    socket: socket.socket
    in_reserve: bool
    is_reading: bool = True  # its request is not complete yet
    is_evicted: bool = False


class HttpServer(ThreadingHTTPServer):
    allow_reuse_address = True
    request_queue_size = 64
    daemon_threads = True
    block_on_close = False  # we join ourselves, with a limit

    def __init__(self, observed: Observed, config: AdminConfig) -> None:
        self.observed = observed
        self.config = config
        endpoint = parse_endpoint(config.bind)
        hosts = frozenset(host_name(host) for host in config.hosts)
        self.authorizer = Authorizer(endpoint.host, config.token, hosts)
        reading = None if config.token is None else read_token(config.token)
        self.poller = Poller(self.stats, read_token=reading, interval_s=config.interval_s)
        self.registry = registry_of(self.stats, lambda stats: self.poller.evaluate(stats).is_well)
        self.stopping = threading.Event()
        self._silent_until = 0.0
        self.listeners = threading.BoundedSemaphore(config.most_listeners)
        self._open: dict[threading.Thread, Connection] = {}  # the oldest first
        self._operating: set[threading.Thread] = set()
        self._open_lock = threading.Lock()
        self._waker, self._wakes = socket.socketpair()
        if ":" in endpoint.host:
            self.address_family = socket.AF_INET6
        self._bind(endpoint)

    def _bind(self, endpoint: Endpoint) -> None:
        try:
            super().__init__((endpoint.host, endpoint.port), AdminHandler)
        except OSError as error:
            self._waker.close()
            self._wakes.close()
            raise ConfigError(
                f"the admin port {endpoint} cannot be opened ({error.strerror or error}); choose another, or 0 for any"
            ) from error
        self.socket.setblocking(False)

    def server_bind(self) -> None:
        """Bind without the reverse look-up of the host name that the standard library does, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    # The loop

    def serve(self) -> None:
        """Accept connections until `stop` is called. It blocks in between, so an idle port costs nothing."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._wakes, selectors.EVENT_READ)
            while not self.stopping.is_set():
                selector.select()
                if not self.stopping.is_set():
                    self._accept()

    def _accept(self) -> None:
        try:
            connection, address = self.get_request()
        except BlockingIOError:
            return
        except OSError as error:  # for example out of file descriptors: without a pause this loop would spin
            self._complain(error)
            self.stopping.wait(0.1)
            return
        connection.setblocking(True)
        self.process_request(connection, address)

    def _complain(self, error: OSError) -> None:
        """Log at most once a minute: running out of descriptors would otherwise fill the log, too."""
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + 60
            LOG.warning("the admin port cannot accept connections: %s", error)

    def stop(self) -> None:
        self.stopping.set()
        self._waker.send(b"x")

    # Connections

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), name="motet-admin-http", daemon=True
        )
        with self._open_lock:
            in_reserve = self._find_slot()
            if in_reserve is not None:
                self._open[thread] = Connection(request, in_reserve)
        if in_reserve is None:
            self._refuse(request)
            return
        try:
            thread.start()
        except RuntimeError:  # no more threads in this process
            self._forget_connection(thread)
            self._refuse(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget_connection(threading.current_thread())

    def _forget_connection(self, thread: threading.Thread) -> None:
        with self._open_lock:
            self._open.pop(thread, None)

    def _find_slot(self) -> bool | None:
        """Whether the next connection belongs to the reserve; None if no slot is free."""
        for in_reserve, most in ((False, self.config.most_connections), (True, RESERVE)):
            open_ones = [one for one in self._open.values() if one.in_reserve == in_reserve and not one.is_evicted]
            if len(open_ones) < most:
                return in_reserve
            slow = next((one for one in open_ones if one.is_reading or in_reserve), None)
            # An evicted connection's thread ends at once, but not before this one begins: these are bounded, too.
            if slow is not None and len(self._open) < 2 * (self.config.most_connections + RESERVE):
                _evict(slow)
                return in_reserve
        return None

    def may_serve(self, path: str) -> bool:
        """Called from a connection's thread when its request is complete: from now on it is not evicted."""
        with self._open_lock:
            connection = self._open.get(threading.current_thread())
            if connection is None:
                return True
            connection.is_reading = False
            return not connection.is_evicted and (not connection.in_reserve or path in PROBED)

    def _refuse(self, request: socket.socket) -> None:
        _send_busy(request)
        self.shutdown_request(request)

    # The member

    def stats(self) -> Mapping[str, Any]:
        """Convert a timeout of the member, which would otherwise pass for a timeout of the client."""
        try:
            return self.observed.stats()
        except TimeoutError as error:
            raise MotetError(
                "the member did not report its figures in time; its protocol thread hangs or is ending"
            ) from error

    def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.observed.operate(name, arguments)
        except TimeoutError as error:
            raise MotetError(
                f"{name} was started and has not finished yet; check its result before you repeat it"
            ) from error

    @contextmanager
    def operating(self) -> Iterator[None]:
        """Mark this thread until its answer is sent: a `close` that the operation itself causes must not end it."""
        thread = threading.current_thread()
        with self._open_lock:
            self._operating.add(thread)
        try:
            yield
        finally:
            with self._open_lock:
                self._operating.discard(thread)

    def end_connections(self, within_s: float) -> None:
        """Close open connections and wait for their threads, except those of operations and the calling thread."""
        deadline = time.monotonic() + within_s
        with self._open_lock:
            excluded = {*self._operating, threading.current_thread()}
            ending = {thread: one.socket for thread, one in self._open.items() if thread not in excluded}
        for request in ending.values():
            _close(request)
        for thread in ending:
            thread.join(max(0.0, deadline - time.monotonic()))

    def server_close(self) -> None:
        super().server_close()
        self.poller.close()
        self._waker.close()
        self._wakes.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log quietly: clients may disconnect at any time, and the handler has already reported bugs."""
        LOG.debug("a connection of %s ended early", client_address, exc_info=True)


def _send_busy(connection: socket.socket) -> None:
    """Send without blocking, or not at all: the accepting thread must not wait for a client."""
    with suppress(OSError):
        connection.send(BUSY, socket.MSG_DONTWAIT)


def _evict(connection: Connection) -> None:
    connection.is_evicted = True
    if connection.is_reading:
        _send_busy(connection.socket)
    _close(connection.socket)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):  # it may be closed already
        connection.shutdown(socket.SHUT_RDWR)
