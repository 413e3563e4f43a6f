"""`motet node`: lines in, deliveries out, views, a graceful end; and every mistake is answered in words."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.nodes import NodeProcess
from tests.cli.shell import Shell


def test_lines_of_all_members_come_out_of_all_in_one_order() -> None:
    with NodeProcess("--group", "chat", "--name", "a") as a:
        with NodeProcess("--group", "chat", "--name", "b", "--seeds", a.endpoint) as b:
            for node in (a, b):
                node.expect(lambda line: line.startswith("view ") and line.endswith((" primary a b", " primary b a")))
            a.say("one", "two")
            b.say("ünï", "")
            a.say("three")
            for node in (a, b):
                node.expect(lambda line: line.startswith("5 "))
            logs = [[line for line in node.out if line[0].isdigit()] for node in (a, b)]
            assert logs[0] == logs[1]
            assert [line.split(" ", 1)[0] for line in logs[0]] == ["1", "2", "3", "4", "5"]
            said = [line.split(" ", 1)[1] for line in logs[0]]
            assert [line for line in said if line.startswith("a ")] == ["a one", "a two", "a three"]
            assert [line for line in said if line.startswith("b ")] == ["b ünï", "b "]
            assert b.interrupt() == 0
            assert b.out[-1].startswith("left member=b#")
        a.expect(lambda line: line.startswith("view ") and line.endswith(" primary a"))
        assert a.interrupt(signal.SIGTERM) == 0
        assert a.errors == [] == b.errors


def test_programs_get_one_object_per_line() -> None:
    with NodeProcess("--group", "chat", "--name", "a", "--json", "--leave-at-end") as a:
        started = a.expect_event(lambda event: event["event"] == "started")
        assert started["member"].startswith("a#")
        a.say("hello")
        view = a.expect_event(lambda event: event["event"] == "view" and event["primary"])
        assert [member["name"] for member in view["members"]] == ["a"]
        message = a.expect_event(lambda event: event["event"] == "message")
        assert message == {"event": "message", "position": 1, "sender": "a", "order": "total", "payload": "hello"}
        a.end_of_input()
        assert a.wait() == 0
        assert json.loads(a.out[-1])["event"] == "left"


def test_a_file_is_sent_to_its_end_and_then_it_leaves(tmp_path: Path) -> None:
    lines = [b"line %d" % number for number in range(3_000)] + [b"\xff\x00 not text", b"no newline at the end"]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    arguments = ("--group", "chat", "--name", "a", "--leave-at-end")
    with (tmp_path / "lines").open("rb") as file, NodeProcess(*arguments, stdin=file) as node:
        assert node.wait() == 0
    delivered = [line for line in node.out if line[0].isdigit()]
    assert len(delivered) == 3_002
    assert delivered[0] == "1 a line 0"
    assert delivered[-2:] == ["3001 a \\xff\x00 not text", "3002 a no newline at the end"]


def test_dev_null_is_the_end_of_input_as_services_are_started() -> None:
    with Path(os.devnull).open("rb") as nothing, NodeProcess("--group", "chat", "--name", "a", stdin=nothing) as a:
        a.expect(lambda line: line.startswith("view "))
        assert a.interrupt(signal.SIGTERM) == 0
        assert a.errors == []
    with Path(os.devnull).open("rb") as nothing:
        arguments = ("--group", "chat", "--name", "a", "--leave-at-end")
        with NodeProcess(*arguments, stdin=nothing) as a:
            assert a.wait() == 0
            assert a.errors == []


def test_a_terminal_that_reads_late_gets_every_line(tmp_path: Path) -> None:
    """Whoever reads the terminal from an event loop makes it non-blocking, for the output of the same process, too."""
    count = 5_000
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % number for number in range(count)))
    master, terminal = os.openpty()
    command = [sys.executable, "-m", "motet", "node", "--group", "chat", "--name", "a"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as a:
        os.close(terminal)
        screen = b""
        while not (started := re.search(rb"endpoint=(\S+)", screen)) or b"\nview " not in screen:
            screen += os.read(master, 4096)
        arguments = ("--group", "chat", "--name", "b", "--leave-at-end", "--seeds", started[1].decode())
        with (tmp_path / "lines").open("rb") as file, NodeProcess(*arguments, stdin=file) as b:
            assert b.wait() == 0  # all are stable, and nobody has looked at the terminal since
        while f"\n{count} b {count - 1}\r" not in screen.decode():
            screen += os.read(master, 65536)
        a.send_signal(signal.SIGINT)
        while a.poll() is None:
            with contextlib.suppress(OSError):  # the terminal's other side is closed
                screen += os.read(master, 65536)
        os.close(master)
    assert a.returncode == 0
    assert [int(number) for number in re.findall(r"^\d+ b (\d+)\r$", screen.decode(), re.M)] == list(range(count))


def test_without_order_there_is_no_position() -> None:
    with NodeProcess("--group", "chat", "--name", "a", "--order", "fifo") as a:
        a.say("tick")
        a.expect_line("- a tick")
        assert a.interrupt() == 0


def test_unreachable_seeds_are_told_in_words() -> None:
    with NodeProcess("--group", "chat", "--name", "a", "--seeds", "127.0.0.1:9") as a:
        warning = a.expect(lambda line: "still waits for group 'chat'" in line, in_errors=True)
        assert "Looked at: 127.0.0.1:9. Nobody answered." in warning
        assert "Are the others started" in warning
        assert a.interrupt() == 0


def test_a_seed_may_be_a_name() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bind, seeds = f"127.0.0.1:{port}", f"localhost:{port}"
    with NodeProcess("--group", "chat", "--name", "a", "--bind", bind, "--seeds", seeds) as a:
        a.expect(lambda line: line.startswith("view ") and line.endswith(" primary a"))
        assert a.interrupt() == 0


def test_a_port_in_use_is_told(motet_command: Shell) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        answer = motet_command("node", "--group", "x", "--bind", f"127.0.0.1:{other.getsockname()[1]}")
    assert answer.code == 2
    assert "Is another process on that port? Choose another one, or port 0 for any that is free" in answer.said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bind", "nonsense"], "'nonsense' is no endpoint; allowed is HOST:PORT"),
        (["--bind", "127.0.0.1:99999"], "is no endpoint; allowed is HOST:PORT with a port of 0 to 65535"),
        (["--bind", "192.0.2.7:7800"], "there is no key: anybody could send to the group"),
        (["--bind", "192.0.2.7:7800", "--set", "insecure=true"], "cannot listen on 192.0.2.7:7800"),
        (["--admin", "0.0.0.0:0"], "there is no token: anybody could use it"),
        (["--serve", "0.0.0.0:0"], "there is no token: anybody could use it"),
        (["--serve", "127.0.0.1:0"], "give the member a journal directory"),
        (["--seeds", "nonsense"], "seeds = 'nonsense' is no endpoint"),
        (["--fault", "drop=5"], "the probability '5' is not in 0 to 1"),
        (["--fault", "explode"], "allowed are drop=P"),
        (["--set", "heartbet=100ms"], "there is no setting heartbet; did you mean heartbeat?"),
        (["--set", "heartbeat=fast"], "heartbeat"),
        (["--set", "heartbeat"], "--set heartbeat is not a setting; write NAME=VALUE"),
        (["--preset", "moon"], "preset = 'moon' is outside what is allowed: local, lan, wan"),
        (["--order", "chaos"], "--order chaos is unknown; allowed are total and fifo"),
        (["--config", "/does/not/exist.toml"], "the config file /does/not/exist.toml cannot be read"),
        (["--set", "keys=short"], "key number 1 (5 characters) is no key"),
    ],
)
def test_a_mistake_is_answered_in_words(motet_command: Shell, arguments: list[str], words: str) -> None:
    """Nobody has heard of the member by then."""
    answer = motet_command("node", "--group", "x", *arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("motet: ")
    assert words in answer.said


def test_a_line_without_end_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "line").write_bytes(bytes(70_000_000))
    with (tmp_path / "line").open("rb") as file, NodeProcess("--group", "chat", "--name", "a", stdin=file) as node:
        assert node.wait() != 0
    assert any("a line on stdin has more than" in line for line in node.errors), node.errors
    assert not any("Traceback" in line for line in node.errors)
