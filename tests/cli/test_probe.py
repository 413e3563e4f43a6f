"""`motet probe` against admin faces of members that only pretend."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO

import pytest
from rich.console import Console

from motet.admin.health import health
from motet.admin.server import AdminConfig, AdminServer
from motet.cli.app import main
from motet.cli.probe_report import render, sections
from motet.errors import ConfigError
from motet.runtime.faults import parse_fault
from tests.admin.fakes import FakeMember, stats_of

TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    code: int
    out: str
    err: str


class Probe:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.address = address

    def __call__(self, *arguments: str, at: str | None = None) -> ProbeAnswer:
        self._monkeypatch.setattr(sys, "argv", ["motet", "probe", at or self.address, *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = self._capsys.readouterr()
        code = exit_info.value.code
        said = re.sub(r"\x1b\[[0-9;]*m", "", captured.err)
        return ProbeAnswer(code if isinstance(code, int) else 0, captured.out, " ".join(said.split()))


@pytest.fixture
def member() -> FakeMember:
    return FakeMember()


@pytest.fixture
def server(member: FakeMember) -> Iterator[AdminServer]:
    with AdminServer(member, AdminConfig(token=TOKEN)) as server:
        yield server


@pytest.fixture
def probe(server: AdminServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Probe:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("MOTET_TOKEN", raising=False)
    return Probe(monkeypatch, capsys, str(server.endpoint))


def test_a_look_in_plain_lines(probe: Probe) -> None:
    answer = probe()
    assert answer.code == 0
    assert "health [good]: All is well" in answer.out
    assert re.search(r"view: alto#000a +127.0.0.1:7800 +coordinator this one +120,500 +0", answer.out)
    assert "log: position       120,500 (40 of them not stable yet), in the journal from 1" in answer.out
    assert re.search(r"counters: frame_resent +\d+ +repair +Frames retransmitted; normal where", answer.out)
    assert "datagram_rejected" not in answer.out, "what is zero is not worth a line"


def test_a_look_on_a_terminal() -> None:
    screen = StringIO()
    stats = stats_of()
    found = sections(stats, health({**stats, "faults": ["drop=0.2@bass"]}).as_dict())
    Console(file=screen, force_terminal=True, width=140, color_system=None).print(render(found))
    assert "● All is well" in screen.getvalue()
    assert "● Faults are injected at this member: drop=0.2@bass." in screen.getvalue()
    assert "median 0.85 ms, p99 2.40 ms" in screen.getvalue()


def test_a_look_for_programs(probe: Probe, member: FakeMember) -> None:
    answer = probe("--json")
    found = json.loads(answer.out)
    assert found["stats"] == member.figures
    assert found["health"]["well"] is True


def test_a_member_that_is_not_well_is_exit_code_1(probe: Probe, member: FakeMember) -> None:
    member.change(view={"primary": False})
    answer = probe()
    assert answer.code == 1
    assert "health [bad]: The view of 5 members is not primary" in answer.out
    assert "log: view           7@000a, NOT primary" in answer.out


def test_a_hostile_name_paints_nothing_on_the_terminal(probe: Probe, member: FakeMember) -> None:
    member.change(
        name="\x1b[2Jowned", member="\x1b[2Jowned\n#1", events=[{"at": 1, "kind": "\x1b]0;x\x07", "text": "[bold]"}]
    )
    answer = probe()
    assert "\x1b" not in answer.out
    assert "?[2Jowned?#1" in answer.out
    assert "[bold]" in answer.out


@pytest.mark.parametrize(
    ("arguments", "name", "given"),
    [
        (("sync", "bass"), "sync", {"member": "bass"}),
        (("snapshot",), "snapshot", {}),
        (("leave",), "leave", {}),
        (("fault", "drop=0.2@b"), "fault", {"rule": "drop=0.2@b"}),
    ],
)
def test_operations(probe: Probe, member: FakeMember, arguments: tuple[str, ...], name: str, given: object) -> None:
    answer = probe(*arguments, "--token", TOKEN)
    assert (answer.code, answer.out) == (0, f"done: {' '.join(arguments)}\n  done: {name}\n")
    assert member.operated == [(name, given)]


def test_an_operation_for_programs(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_TOKEN", TOKEN)
    assert json.loads(probe("snapshot", "--json").out) == {"done": "snapshot"}


@pytest.mark.parametrize("token", [(), ("--token", "not-this-one")])
def test_without_the_token_nothing_is_operated(probe: Probe, member: FakeMember, token: tuple[str, ...]) -> None:
    answer = probe("leave", *token)
    assert answer.code == 4
    assert "refused: " in answer.err
    assert "--token" in answer.err
    assert not member.operated


def test_what_the_member_refuses_is_exit_code_6(probe: Probe) -> None:
    answer = probe("fault", "nonsense", "--token", TOKEN)
    assert answer.code == 6
    assert "'nonsense' is no fault; write drop=0.2" in answer.err


def test_all_sentences_of_an_error_are_printed(probe: Probe, member: FakeMember) -> None:
    """The forms of a fault alone are longer than the texts that a dashboard shows."""
    with pytest.raises(ConfigError) as refused:
        parse_fault("drop=2")
    member.error = refused.value
    answer = probe("fault", "drop=2", "--token", TOKEN)
    assert answer.code == 6
    assert answer.err.endswith("for example drop=0.2@b:in")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explode",), "there is no operation 'explode'. There are: sync b: resync"),
        (("sync",), "sync takes one argument, the member; for example: motet probe HOST:PORT sync b"),
        (("leave", "now"), "leave takes no arguments"),
        (("fault", ""), "rule must be a text"),
        (("leave", "--watch"), "--watch and an operation exclude each other"),
        (("--token", "mit-ümlaut"), "printable ASCII"),
    ],
)
def test_asked_wrongly(probe: Probe, arguments: tuple[str, ...], said: str) -> None:
    answer = probe(*arguments)
    assert answer.code == 2
    assert said in answer.err


@pytest.mark.parametrize("address", ["9001", "localhost", "localhost:http", "localhost:99999"])
def test_an_address_that_is_none(probe: Probe, address: str) -> None:
    answer = probe(at=address)
    assert answer.code == 2
    assert f"{address!r} is not an address; write HOST:PORT" in answer.err


def test_an_address_as_the_browser_shows_it(probe: Probe) -> None:
    assert probe(at=f"http://{probe.address}/").code == 0


def test_nobody_listens(probe: Probe, server: AdminServer) -> None:
    server.close()
    answer = probe()
    assert answer.code == 3
    assert "nothing listens on 127.0.0.1:" in answer.err
    assert "was it started with an admin port?" in answer.err


def test_a_name_that_nobody_knows(probe: Probe) -> None:
    answer = probe(at="no-such-host.invalid:9001")
    assert answer.code == 3


def test_somebody_who_never_answers(probe: Probe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer = probe("--timeout", "0.1", at=f"127.0.0.1:{silent.getsockname()[1]}")
    assert answer.code == 3
    assert "did not answer within 0.1 s" in answer.err


class Website(BaseHTTPRequestHandler):
    body = b"<html>hello</html>"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1, 2]", b'{"some": "json"}', b"x" * (5 << 20)])
def test_somebody_else_listens(probe: Probe, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(Website, "body", body)
    with HTTPServer(("127.0.0.1", 0), Website) as website:
        thread = threading.Thread(target=website.handle_request)
        thread.start()
        answer = probe(at=f"127.0.0.1:{website.server_port}")
        thread.join()
    assert answer.code == 5
    assert "Motet member" in answer.err


def test_something_that_speaks_no_http(probe: Probe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        answer = probe(at=f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert answer.code == 5
    assert "does not speak HTTP" in answer.err


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_watching_prints_a_line_per_look(
    probe: Probe, member: FakeMember, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    naps = iter([None, None, KeyboardInterrupt()])

    def nap(seconds: float) -> None:
        assert seconds == 0.5
        member.change(log={"position": member.figures["log"]["position"] + 1})
        woken = next(naps)
        if woken is not None:
            raise woken

    monkeypatch.setattr("motet.cli.probe.time.sleep", nap)
    answer = probe("--watch", "--every", "0.5", *options)
    lines = answer.out.splitlines()
    assert answer.code == 0
    assert len(lines) == 3
    assert "120501" in lines[1]
    if not options:
        assert "view 7@000a (5, primary) position 120501" in lines[1]
        assert "[good] All is well" in lines[1]
