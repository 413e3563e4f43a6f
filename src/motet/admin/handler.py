"""One request of the admin interface: read it within limits, authorize it, answer it."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from motet.admin.authorizer import AccessRefusal
from motet.admin.metrics import CONTENT_TYPE, exposition
from motet.admin.operations import check_arguments, fault_presets
from motet.errors import MotetError
from motet.log.service.validated_json import from_json, to_json

if TYPE_CHECKING:
    import socket

    from motet.admin.server import HttpServer

LOG = logging.getLogger("motet.admin")
PAGE = {
    "/": ("dashboard.html", "text/html; charset=utf-8"),
    "/dashboard.js": ("dashboard.js", "text/javascript; charset=utf-8"),
    "/dashboard.css": ("dashboard.css", "text/css; charset=utf-8"),
}
MOST_HEADER_BYTES = 65_536  # without the body
TOO_MANY = "too many connections to this admin port; only /health and /metrics are served now"
NOTHING_ELSE = "there are /, /stats, /metrics, /health, /overview, /history, /events, and POST /operate/NAME"
SAFE_HEADERS = {
    # Only files of this server run or are shown, and no page of another site may frame this one.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class TimedReader(io.RawIOBase):
    """Reads from a socket until a fixed deadline, which a client that sends a byte now and then cannot extend.

    A request also has a limit in bytes, against a client that sends header after header.
    """

    def __init__(self, connection: socket.socket, deadline: float, most_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left_bytes = most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0 or self._left_bytes <= 0:
            raise TimeoutError("the request took too long, or is too long")
        self._connection.settimeout(left)
        got = self._connection.recv_into(buffer)
        self._left_bytes -= got
        return got


class AdminHandler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"
    server_version = "motet"
    sys_version = ""
    default_request_version = "HTTP/1.0"  # a request line without one gets a status line all the same
    error_content_type = "application/json"

    def setup(self) -> None:
        super().setup()
        config = self.server.config
        most_bytes = MOST_HEADER_BYTES + config.most_body_bytes
        self.rfile = io.BufferedReader(TimedReader(self.connection, time.monotonic() + config.request_s, most_bytes))

    def handle(self) -> None:
        """Serve one request per connection, so that idle connections cannot use up the slots."""
        self.close_connection = True
        self._has_begun = False
        try:
            self.handle_one_request()
        except OSError:
            raise
        except MotetError as error:
            self._fail(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception:
            LOG.exception("a request of %s failed", self.client_address[0])
            if not self._has_begun:
                self._fail(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug in Motet; the member's log has the details")

    # Requests

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not self.server.may_serve(path):
            self._fail(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY)
        elif path in PAGE and self.server.config.dashboard:
            self._page(path)
        elif path == "/health":
            self._health()
        elif path in self._read_paths():
            refusal = self.server.authorizer.refuse_read(self._plain_headers())
            if refusal is not None:
                self._refuse(refusal)
            else:
                self._read_paths()[path]()
        else:
            self._fail(HTTPStatus.NOT_FOUND, f"there is no such path; {NOTHING_ELSE}")

    def do_POST(self) -> None:
        prefix, _, name = self.path.partition("?")[0].rpartition("/")
        refusal = self.server.authorizer.refuse_write(self._plain_headers())
        if refusal is not None:
            self._refuse(refusal)
        elif prefix != "/operate":
            self._fail(HTTPStatus.NOT_FOUND, f"nothing is here to post to; {NOTHING_ELSE}")
        else:
            with self.server.operating():
                self._operate(name)

    def _read_paths(self) -> dict[str, Callable[[], None]]:
        return {
            "/stats": lambda: self._json(HTTPStatus.OK, self.server.stats()),
            "/overview": lambda: self._json(HTTPStatus.OK, self._overview()),
            "/metrics": lambda: self._answer(HTTPStatus.OK, CONTENT_TYPE, exposition(self.server.registry)),
            "/history": lambda: self._json(HTTPStatus.OK, {"samples": self.server.poller.history()}),
            "/events": self._events,
        }

    def _page(self, path: str) -> None:
        """Holds no secret, so it needs no token; but it is shown under our own names only."""
        refusal = self.server.authorizer.refuse_host(self._plain_headers())
        if refusal is not None:
            self._refuse(refusal)
            return
        name, kind = PAGE[path]
        self._answer(HTTPStatus.OK, kind, files("motet.admin").joinpath(name).read_bytes())

    def _health(self) -> None:
        """Whether we are well may be asked by anybody, such as an orchestrator; the reasons are for readers."""
        _, health = self.server.poller.health()
        may_read = self.server.authorizer.refuse_read(self._plain_headers()) is None
        said = health.as_dict() if may_read else {"level": health.level, "well": health.is_well}
        self._json(HTTPStatus.OK if health.is_well else HTTPStatus.SERVICE_UNAVAILABLE, said)

    def _overview(self) -> dict[str, object]:
        return {
            **self.server.poller.overview(),
            "needs_token": self.server.config.token is not None,
            "fault_presets": fault_presets(),
            "interval_s": self.server.config.interval_s,
        }

    def _events(self) -> None:
        if not self.server.listeners.acquire(blocking=False):
            most = self.server.config.most_listeners
            self._fail(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{most} pages are open on this member already; close one, or open the dashboard of another member",
            )
            return
        try:
            self._stream()
        finally:
            self.server.listeners.release()

    def _stream(self) -> None:
        self.connection.settimeout(self.server.config.answer_s)
        self._begin(HTTPStatus.OK, "text/event-stream; charset=utf-8", {"X-Accel-Buffering": "no"})
        while not self.server.stopping.is_set():
            self.wfile.write(b"data: " + to_json(self._overview()) + b"\n\n")
            self.server.stopping.wait(self.server.config.interval_s)

    def _operate(self, name: str) -> None:
        arguments = self._body()
        if arguments is None:
            return
        if not self.server.may_serve(self.path):
            self._fail(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY)
            return
        try:
            checked = check_arguments(name, arguments)
        except ValueError as error:
            self._fail(HTTPStatus.BAD_REQUEST, str(error))
            return
        try:
            answer = self.server.operate(name, checked)
        except MotetError as error:
            self._json(
                HTTPStatus.CONFLICT,
                {"error": str(error), "kind": type(error).__name__, "retryable": error.retryable},
            )
            return
        LOG.info("operated from %s: %s %s", self.client_address[0], name, checked)
        self._json(HTTPStatus.OK, answer)

    def _body(self) -> dict[str, Any] | None:
        most = self.server.config.most_body_bytes
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal() or "Transfer-Encoding" in self.headers:
            self._fail(HTTPStatus.LENGTH_REQUIRED, "send the length of the body in Content-Length")
            return None
        if len(length) > 10 or int(length) > most:
            self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have {most} bytes at most")
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):  # the connection broke, so the request may be incomplete
            self._fail(HTTPStatus.BAD_REQUEST, f"the body ended after {len(body)} of {length} bytes")
            return None
        try:
            value = from_json(body or b"{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self._fail(HTTPStatus.BAD_REQUEST, "the body must be one JSON object, such as {}")
            return None
        return value

    # Answers

    def _plain_headers(self) -> dict[str, str]:
        """The headers that the authorizer reads. Repeated headers are joined: a proxy and this server might otherwise
        use different ones."""
        names = ("Host", "Origin", "Sec-Fetch-Site", "Content-Type", "Authorization")
        return {name: ", ".join(found) for name in names if (found := self.headers.get_all(name))}

    def _refuse(self, refusal: AccessRefusal) -> None:
        more = {"WWW-Authenticate": 'Bearer realm="motet"'} if refusal.status is HTTPStatus.UNAUTHORIZED else {}
        self._answer(refusal.status, "application/json", to_json({"error": refusal.text}), more)

    def _fail(self, status: HTTPStatus, text: str) -> None:
        self._json(status, {"error": text})

    def _json(self, status: HTTPStatus, value: object) -> None:
        self._answer(status, "application/json", to_json(value))

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self.connection.settimeout(self.server.config.answer_s)
        self._begin(status, kind, {"Content-Length": str(len(body)), **(more or {})})
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self._has_begun = True
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Connection": "close", **SAFE_HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Report errors that the standard library finds in the same JSON form as all others."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, f"only GET and POST are understood; {NOTHING_ELSE}"
        self._fail(status, message or status.phrase)

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug("%s %s", self.address_string(), format % args)
