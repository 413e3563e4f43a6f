"""The admin face over real sockets on loopback: what it answers, whom it refuses, and that nobody can hold it up."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from motet.admin.authorizer import Authorizer, read_token
from motet.admin.operations import FAULT_PRESETS, FaultPreset
from motet.admin.server import AdminConfig, AdminServer, Observed
from motet.errors import ConfigError
from motet.protocol.core.counters import Count
from motet.runtime.faults import parse_fault
from tests.admin.fakes import FakeMember, stats_of

TOKEN = "a-token-of-the-tests"
JSON = {"Content-Type": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Client:
    def __init__(self, server: AdminServer) -> None:
        self.endpoint = server.endpoint

    def __call__(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.endpoint, timeout=10)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        status, _, body = self("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})
        return status, json.loads(body)

    def post(self, path: str, value: object = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        status, _, body = self("POST", path, json.dumps(value or {}).encode(), {**JSON, **(headers or {})})
        return status, json.loads(body)


@pytest.fixture
def member() -> FakeMember:
    return FakeMember()


@pytest.fixture
def server(member: FakeMember) -> Iterator[AdminServer]:
    with AdminServer(member, AdminConfig(token=TOKEN, request_s=0.3, interval_s=0.02)) as server:
        yield server


@pytest.fixture
def ask(server: AdminServer) -> Client:
    return Client(server)


# Looking


def test_stats_are_what_the_member_says(ask: Client, member: FakeMember) -> None:
    assert ask.get("/stats") == (200, member.figures)


def test_stats_hold_no_nan_whatever_was_measured(ask: Client, member: FakeMember) -> None:
    member.change(latency={"median_us": float("nan"), "p99_us": float("inf")})
    assert ask.get("/stats")[1]["latency"] == {"median_us": None, "p99_us": None}


def test_every_counter_is_a_metric_with_its_meaning(ask: Client) -> None:
    status, headers, body = ask("GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    for place, count in enumerate(Count):
        family = families[f"motet_{count}"]
        assert family.type == "counter"
        assert count.meaning in family.documentation
        (sample,) = family.samples
        assert sample.value == 10 * place
        assert sample.labels == {"group": "orders", "member": "alto"}


def test_metrics_tell_view_log_and_latency(ask: Client, member: FakeMember) -> None:
    member.change(latency={"median_us": 850.0, "p99_us": None})
    body = ask("GET", "/metrics")[2].decode()
    at = '{group="orders",member="alto"'
    assert f"motet_view_primary{at}}} 1.0" in body
    assert f"motet_view_coordinator{at}}} 1.0" in body
    assert f"motet_log_position{at}}} 120500.0" in body
    assert f'motet_delivery_latency_seconds{at},quantile="0.5"}} 0.00085' in body
    assert 'quantile="0.99"' not in body, "what was never measured is not zero"
    assert f'motet_peer_behind_positions{at},peer="bass"}} 10.0' in body
    assert f'motet_unicast_connections{at},state="OPEN"}} 4.0' in body
    assert f"motet_healthy{at}}} 1.0" in body


def test_metrics_bear_names_of_any_letters(ask: Client, member: FakeMember) -> None:
    member.change(name='a"b\\c\n<script>')
    families = list(text_string_to_metric_families(ask("GET", "/metrics")[2].decode()))
    assert {sample.labels["member"] for family in families for sample in family.samples} == {'a"b\\c\n<script>'}


def test_metrics_of_a_member_that_says_nothing_are_zeros(ask: Client, member: FakeMember) -> None:
    member.figures = {"group": "g"}
    status, _, body = ask("GET", "/metrics")
    assert status == 200
    assert 'motet_log_position{group="g",member=""} 0.0' in body.decode()


def test_health_is_200_in_a_primary_view(ask: Client) -> None:
    status, said = ask.get("/health")
    assert status == 200
    assert said["well"] is True
    assert "All is well" in said["remarks"][0]["text"]


def test_health_is_503_with_words_when_not_primary(ask: Client, member: FakeMember) -> None:
    member.change(view={"primary": False})
    status, said = ask.get("/health")
    assert status == 503
    assert "not primary" in said["remarks"][0]["text"]
    assert "repair" in said["remarks"][0]["advice"]


def test_events_come_one_after_the_other(ask: Client, server: AdminServer, member: FakeMember) -> None:
    connection = http.client.HTTPConnection(*server.endpoint, timeout=10)
    connection.request("GET", "/events")
    response = connection.getresponse()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    first = _next_event(response)
    member.change(log={"position": 999_999})
    while _own(_next_event(response))["position"] != 999_999:
        pass
    assert first["group"] == "orders"
    assert _own(first)["position"] == 120_500
    response.close()
    connection.close()


def _next_event(response: http.client.HTTPResponse) -> dict[str, Any]:
    line = response.readline()
    while not line.startswith(b"data: "):
        assert line, "the stream ended"
        line = response.readline()
    found: dict[str, Any] = json.loads(line[6:])
    return found


def _own(overview: dict[str, Any]) -> dict[str, Any]:
    (own,) = [entry for entry in overview["members"] if entry["member"] == overview["self"]]
    assert isinstance(own, dict)
    return own


def test_an_unknown_path_says_what_there_is(ask: Client) -> None:
    status, said = ask.get("/nowhere")
    assert status == 404
    assert "/metrics" in said["error"]


def test_an_unknown_method_is_refused_in_words(ask: Client) -> None:
    status, _, body = ask("DELETE", "/stats")
    assert status == 405
    assert "only GET and POST" in json.loads(body)["error"]


def test_no_cross_origin_preflight_is_answered(ask: Client) -> None:
    status, headers, _ = ask("OPTIONS", "/operate/leave", None, {"Origin": "http://evil.example"})
    assert status == 405
    assert not [name for name in headers if name.startswith("access-control")]


def test_the_page_is_served_with_a_strict_policy(ask: Client) -> None:
    for path, kind in (("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css")):
        status, headers, body = ask("GET", path)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b""), "no outside hosts"
        assert b"https://" not in body


def test_without_a_dashboard_there_is_no_page(member: FakeMember) -> None:
    with AdminServer(member, AdminConfig(dashboard=False)) as server:
        assert Client(server).get("/")[0] == 404


# Operating


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sync", {"member": "bass"}), ("snapshot", {}), ("leave", {}), ("fault", {"rule": "drop=0.2@bass"})],
)
def test_operations_reach_the_member(ask: Client, member: FakeMember, name: str, arguments: dict[str, str]) -> None:
    assert ask.post(f"/operate/{name}", arguments, bearer(TOKEN)) == (200, {"done": name})
    assert member.operated == [(name, arguments)]


def test_what_the_member_refuses_is_told_in_its_words(ask: Client) -> None:
    status, said = ask.post("/operate/sync", {"member": "nobody"}, bearer(TOKEN))
    assert status == 409
    assert said == {
        "error": "nobody is not in the view; probe without an operation to see who is",
        "kind": "PeerUnreachableError",
        "retryable": False,
    }


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("/operate/explode", {}, "there is no operation 'explode'; there are: sync, snapshot, leave, fault"),
        ("/operate/sync", {}, "takes 'member'"),
        ("/operate/leave", {"now": "x"}, "takes no arguments"),
        ("/operate/fault", {"rule": 7}, "must be a text"),
        ("/operate/fault", {"rule": "x" * 2000}, "must be a text of 1 to 1000"),
    ],
)
def test_wrong_arguments_are_explained(ask: Client, member: FakeMember, path: str, value: object, said: str) -> None:
    status, answer = ask.post(path, value, bearer(TOKEN))
    assert status == 400
    assert said in answer["error"]
    assert not member.operated


@pytest.mark.parametrize(
    "headers", [{}, bearer("wrong-token-here"), {"Authorization": f"Basic {TOKEN}"}, bearer(read_token(TOKEN))]
)
def test_operating_needs_the_token_even_on_loopback(ask: Client, member: FakeMember, headers: dict[str, str]) -> None:
    status, said = ask.post("/operate/leave", {}, headers)
    assert status == 401
    assert "Authorization: Bearer" in said["error"]
    assert not member.operated


def test_without_a_token_loopback_may_operate(member: FakeMember) -> None:
    with AdminServer(member) as server:
        assert Client(server).post("/operate/snapshot")[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
    ],
)
def test_a_rebound_name_reads_nothing(ask: Client, headers: dict[str, str], status: int) -> None:
    for path in ("/stats", "/metrics", "/overview", "/"):
        assert ask("GET", path, None, headers)[0] == status
    said = json.loads(ask("GET", "/health", None, headers)[2])
    assert ("remarks" in said) == (status == 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[broken"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),  # another server of this machine
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
    ],
)
def test_a_page_of_another_site_operates_nothing(
    ask: Client, member: FakeMember, headers: dict[str, str], status: int
) -> None:
    assert ask.post("/operate/leave", {}, {**bearer(TOKEN), **headers})[0] == status
    assert not member.operated


def test_our_own_page_may_operate(ask: Client, server: AdminServer) -> None:
    own = {"Origin": server.url.rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert ask.post("/operate/snapshot", {}, {**bearer(TOKEN), **own})[0] == 200


def test_a_proxy_is_named_once(member: FakeMember) -> None:
    proxied = {"Host": "ops.example.org", "Origin": "https://ops.example.org"}
    with AdminServer(member, AdminConfig(hosts=("ops.example.org",))) as server:
        assert Client(server).post("/operate/snapshot", {}, proxied)[0] == 200
        assert Client(server).get("/stats", Host="ops.example.org")[0] == 200
        assert Client(server).post("/operate/snapshot", {}, {"Origin": "https://ops.example.org"})[0] == 200


# Off loopback


@pytest.mark.parametrize("bind", ["0.0.0.0:9001", "192.0.2.1:0", "[::]:0", "member.example:0"])
def test_off_loopback_a_token_is_demanded(bind: str) -> None:
    with pytest.raises(ConfigError, match="without a token; give one"):
        AdminConfig(bind=bind)


@pytest.mark.parametrize("token", ["", "with space in it....", "mit-ümlaut-und-mehr", "line\nbreak-in-it-and-more"])
def test_a_token_that_no_header_carries_is_named(token: str) -> None:
    with pytest.raises(ConfigError, match="at least 1 printable ASCII"):
        AdminConfig(token=token)


def test_off_loopback_a_token_cannot_be_guessed() -> None:
    AdminConfig(token="short")
    with pytest.raises(ConfigError, match="at least 16 printable ASCII"):
        AdminConfig(bind="0.0.0.0:0", token="short")


def test_insecure_is_a_choice_and_still_no_page_of_a_stranger_gets_in(member: FakeMember) -> None:
    with AdminServer(member, AdminConfig(bind="0.0.0.0:0", insecure=True)) as server:
        client = Client(server)
        client.endpoint = client.endpoint._replace(host="127.0.0.1")
        assert client.get("/stats")[0] == 200
        assert client.get("/stats", Host="192.0.2.7:9001")[0] == 200
        assert client.get("/stats", Host="evil.example")[0] == 403
        assert client.post("/operate/leave", {}, {"Origin": "http://evil.example"})[0] == 403
        assert not member.operated


def test_off_loopback_even_looking_needs_a_token(member: FakeMember) -> None:
    with AdminServer(member, AdminConfig(bind="0.0.0.0:0", token=TOKEN)) as server:
        client = Client(server)
        client.endpoint = client.endpoint._replace(host="127.0.0.1")
        assert client("GET", "/stats")[0] == 401
        assert client("GET", "/metrics", None, bearer("wrong-token-here"))[0] == 401
        assert client("GET", "/metrics", None, bearer(read_token(TOKEN)))[0] == 200
        assert client("GET", "/stats", None, bearer(TOKEN))[0] == 200
        assert client.get("/health") == (200, {"level": "good", "well": True}), "whether, but not why"
        assert client("GET", "/")[0] == 200, "the page itself holds nothing"


def test_the_guard_takes_a_token_of_any_case_of_scheme() -> None:
    authorizer = Authorizer("10.0.0.1", TOKEN)
    assert authorizer.refuse_read({"Authorization": f"bearer {TOKEN}"}) is None
    assert authorizer.refuse_read({"Authorization": f"Bearer {TOKEN}x"}) is not None
    assert authorizer.refuse_read({"Authorization": "Bearer ümlaut"}) is not None


# Slow and hostile clients


def test_a_request_that_dribbles_in_is_cut_off(server: AdminServer) -> None:
    with socket.create_connection(server.endpoint, timeout=10) as client:
        client.sendall(b"GET /stats HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert client.recv(1000) == b""


def test_headers_without_end_are_cut_off(server: AdminServer) -> None:
    with socket.create_connection(server.endpoint, timeout=10) as client, suppress(OSError):
        client.sendall(b"GET /stats HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"x" * 60_000 + b"\r\n")
        while True:
            client.sendall(b"X: " + b"x" * 60_000 + b"\r\n")  # ends when the server has had enough
    assert Client(server).get("/stats")[0] == 200


def test_a_body_that_never_comes_is_cut_off(server: AdminServer, member: FakeMember) -> None:
    head = f"POST /operate/leave HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    with socket.create_connection(server.endpoint, timeout=10) as client:
        client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{{".encode())
        assert client.recv(1000) == b""
    assert not member.operated


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Length": "999999999"}, 413),
        ({"Content-Length": "1" * 100}, 413),
        ({"Content-Length": "-1"}, 411),
        ({"Content-Length": "x"}, 411),
        ({"Content-Length": "2", "Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_bodies_are_limited(ask: Client, headers: dict[str, str], status: int) -> None:
    assert ask("POST", "/operate/leave", b"", {**JSON, **bearer(TOKEN), **headers})[0] == status


@pytest.mark.parametrize("body", [b"[]", b"not json", b"\xff\xfe", b"[" * 20_000, b"7"])
def test_a_body_that_is_no_object_is_explained(ask: Client, body: bytes) -> None:
    status, _, answer = ask("POST", "/operate/leave", body, {**JSON, **bearer(TOKEN)})
    assert status == 400
    assert "one JSON object" in json.loads(answer)["error"]


@pytest.mark.parametrize(
    "garbage",
    [b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET /" + b"x" * 70_000, b"A" * 100 + b"\r\n\r\n"],
)
def test_garbage_harms_nobody(server: AdminServer, ask: Client, garbage: bytes) -> None:
    with socket.create_connection(server.endpoint, timeout=10) as client:
        client.sendall(garbage)
        client.shutdown(socket.SHUT_WR)
        _drain(client)
    assert ask.get("/health")[0] == 200


def _drain(client: socket.socket) -> bytes:
    found = b""
    try:
        while piece := client.recv(65536):
            found += piece
    except ConnectionError:
        pass  # cut in the middle of its garbage
    return found


def test_the_oldest_client_that_does_not_ask_makes_place_for_one_that_does(member: FakeMember) -> None:
    config = AdminConfig(most_connections=3, most_listeners=1, request_s=60)
    with AdminServer(member, config) as server:
        idle = [socket.create_connection(server.endpoint, timeout=10) for _ in range(3)]
        assert Client(server).get("/stats")[0] == 200
        assert b"503 Service Unavailable" in _drain(idle[0])
        for client in idle:
            client.close()


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_a_hundred_clients_that_dribble_do_not_keep_out_a_probe(member: FakeMember, path: str) -> None:
    with AdminServer(member, AdminConfig(request_s=60)) as server:
        slow = [socket.create_connection(server.endpoint, timeout=10) for _ in range(100)]
        for client in slow:
            with suppress(OSError):  # some are evicted already
                client.sendall(b"GET /stats HTTP/1.1\r\nHost: local")
        assert [Client(server)("GET", path)[0] for _ in range(20)] == [200] * 20
        for client in slow:
            client.close()


class StuckMember(FakeMember):
    """Its operations do not end before the test says so: each keeps its connection."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.end = threading.Event()

    def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.begun.release()
        self.end.wait(60)
        return {}


def _post(server: AdminServer) -> socket.socket:
    client = socket.create_connection(server.endpoint, timeout=10)
    head = b"POST /operate/snapshot HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client.sendall(head + b"Content-Length: 2\r\n\r\n{}")
    return client


def test_when_all_connections_are_being_answered_a_probe_is_served_from_the_reserve_and_nothing_else() -> None:
    member = StuckMember()
    with AdminServer(member, AdminConfig(most_connections=3, most_listeners=1)) as server:
        busy = [_post(server) for _ in range(3)]
        for _ in busy:
            assert member.begun.acquire(timeout=10)
        assert [Client(server)("GET", path)[0] for path in ("/health", "/metrics") for _ in range(20)] == [200] * 40
        status, said = Client(server).get("/stats")
        assert status == 503
        assert "only /health and /metrics" in said["error"]
        member.end.set()
        assert all(b"200 OK" in _drain(client) for client in busy), "what is being answered is not evicted"
        while Client(server)("GET", "/stats")[0] == 503:
            pass
        for client in busy:
            client.close()


def test_slow_clients_in_the_reserve_do_not_keep_out_a_probe() -> None:
    member = StuckMember()
    with AdminServer(member, AdminConfig(most_connections=3, most_listeners=1, request_s=60)) as server:
        busy = [_post(server) for _ in range(3)]
        for _ in busy:
            assert member.begun.acquire(timeout=10)
        busy += [socket.create_connection(server.endpoint, timeout=10) for _ in range(20)]
        assert [Client(server)("GET", "/health")[0] for _ in range(20)] == [200] * 20
        member.end.set()
        for client in busy:
            client.close()


def test_a_body_that_ends_early_is_not_taken_for_the_whole(server: AdminServer, member: FakeMember) -> None:
    head = f"POST /operate/leave HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    with socket.create_connection(server.endpoint, timeout=10) as client:
        client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{{}}".encode())
        client.shutdown(socket.SHUT_WR)
        assert b"the body ended after 2 of 50 bytes" in _drain(client)
    assert not member.operated


def test_pages_are_bounded_and_do_not_keep_operators_out(member: FakeMember) -> None:
    with AdminServer(member, AdminConfig(most_connections=4, most_listeners=1, interval_s=0.01)) as server:
        page = socket.create_connection(server.endpoint, timeout=10)
        page.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert page.recv(12) == b"HTTP/1.1 200"
        status, said = Client(server).get("/events")
        assert status == 503
        assert "pages are open" in said["error"]
        assert Client(server).get("/stats")[0] == 200
        page.close()
        while (status := _first_status(server)) == 503:
            pass
        assert status == 200, "the place is free again"


def _first_status(server: AdminServer) -> int:
    connection = http.client.HTTPConnection(*server.endpoint, timeout=10)
    connection.request("GET", "/events")
    status = connection.getresponse().status
    connection.close()
    return status


# Its own life


def test_it_closes_under_open_pages_and_leaves_no_thread(member: FakeMember) -> None:
    before = set(threading.enumerate())
    server = AdminServer(member, AdminConfig(interval_s=30)).start()
    page = socket.create_connection(server.endpoint, timeout=10)
    page.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    silent = socket.create_connection(server.endpoint, timeout=10)
    assert page.recv(12) == b"HTTP/1.1 200"
    endpoint = server.endpoint
    server.close()
    server.close()
    assert set(threading.enumerate()) <= before
    page.close()
    silent.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(endpoint, timeout=10)


def test_a_member_may_close_it_while_it_leaves() -> None:
    """`leave` ends the driver, which closes the server that serves the very request."""

    class Leaver(FakeMember):
        server: AdminServer

        def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            closer = threading.Thread(target=self.server.close)
            closer.start()
            closer.join()
            return {"left": True}

    leaver = Leaver()
    leaver.server = AdminServer(leaver).start()
    assert Client(leaver.server).post("/operate/leave") == (200, {"left": True})


def test_an_answer_is_sent_although_the_server_closes_meanwhile() -> None:
    """The member has left, and closes the server between the end of the operation and its answer."""

    class Leaver(FakeMember):
        server: AdminServer

        def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return Closing(self.server)

    class Closing(dict[str, Any]):
        """An answer that closes the server when it is written out."""

        def __init__(self, server: AdminServer) -> None:
            super().__init__(left=True)
            self._server = server

        def items(self) -> Any:
            closer = threading.Thread(target=self._server.close)
            closer.start()
            closer.join()
            return super().items()

    leaver = Leaver()
    leaver.server = AdminServer(leaver).start()
    assert Client(leaver.server).post("/operate/leave") == (200, {"left": True})
    assert leaver.server._server is None, "it was closed"


def test_a_port_in_use_is_told(server: AdminServer, member: FakeMember) -> None:
    with pytest.raises(ConfigError, match=r"cannot be opened .*choose another"):
        AdminServer(member, AdminConfig(bind=str(server.endpoint))).start()


def test_it_speaks_ipv6(member: FakeMember) -> None:
    try:
        server = AdminServer(member, AdminConfig(bind="[::1]:0")).start()
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with server:
        assert server.url.startswith("http://[::1]:")
        assert Client(server).get("/stats")[0] == 200


def test_a_member_that_hangs_is_told(server: AdminServer, ask: Client, member: FakeMember) -> None:
    member.error = TimeoutError()
    for path in ("/stats", "/metrics", "/health", "/overview"):
        status, said = ask.get(path)
        assert status == 503
        assert "did not report its figures in time" in said["error"]
    status, said = ask.post("/operate/snapshot", {}, bearer(TOKEN))
    assert status == 409
    assert "has not finished yet" in said["error"]


def test_a_bug_of_ours_is_logged_and_ends_only_its_request(
    server: AdminServer, ask: Client, member: FakeMember, caplog: pytest.LogCaptureFixture
) -> None:
    member.error = ZeroDivisionError("a planted bug")
    for path in ("/stats", "/metrics", "/health", "/overview"):
        status, said = ask.get(path)
        assert status == 500
        assert "a bug in Motet" in said["error"]
    assert ask("GET", "/dashboard.css")[0] == 200
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("preset", FAULT_PRESETS, ids=lambda preset: preset.label)
def test_the_faults_on_offer_are_faults_that_the_driver_makes(preset: FaultPreset) -> None:
    rule = preset.rule.replace("PEER", "bass")
    assert str(parse_fault(rule)) == rule
    if rule != "clear" and not preset.needs_peer:
        assert str(parse_fault(f"{rule}@bass")) == f"{rule}@bass"


def test_a_fake_is_what_a_driver_must_be() -> None:
    observed: Observed = FakeMember(stats_of("bass"))
    assert observed.stats()["name"] == "bass"
