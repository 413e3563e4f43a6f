"""`motet log` as its users meet it, against a service in this process."""

from __future__ import annotations

import io
import json
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from motet.cli.app import main
from motet.cli.log import _readable
from motet.log.service.flight import LogService
from tests.log.service.memory import FakeGroup, MemorySource

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def source() -> MemorySource:
    return MemorySource(20)


@pytest.fixture
def member(source: MemorySource) -> Iterator[str]:
    with LogService(source, FakeGroup(source), token="open-sesame") as service:
        yield service.endpoint


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("MOTET_TOKEN", "open-sesame")

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["motet", "log", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return int(exit_info.value.code or 0), captured.out, captured.err

    return run


def test_offsets(run: Run, member: str) -> None:
    code, out, _ = run("offsets", member, "--json")
    assert (code, json.loads(out)) == (0, {member: {"first": 1, "last": 20, "stable": 20, "epoch": 3}})
    code, out, _ = run("offsets", member)
    assert code == 0
    assert "20" in out


def test_offsets_of_a_member_that_is_down(run: Run, member: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"127.0.0.1:{listener.getsockname()[1]}"
    code, out, _ = run("offsets", member, nobody, "--json")
    assert code == 1
    assert json.loads(out)[nobody]["error"] == "LogUnavailableError"
    assert json.loads(out)[member]["stable"] == 20


def test_read(run: Run, member: str) -> None:
    code, out, _ = run("read", member, "--from", "18")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [[str(n), "ann", "row", str(n)] for n in (18, 19, 20)]
    code, out, _ = run("read", member, "--from", "3", "--to", "4", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["position"], row["payload"], row["key"]) for row in rows] == [(3, "row 3", None), (4, "row 4", None)]


def test_payloads_that_are_no_text(run: Run, source: MemorySource, member: str) -> None:
    source.add([b"\xff\x00", b"red \x1b[31m"], [b"k", b"\xfe"])
    code, out, _ = run("read", member, "--from", "21", "--json")
    one, two = map(json.loads, out.splitlines())
    assert (code, one["payload_base64"], one["key"], two["key_base64"]) == (0, "/wA=", "k", "/g==")
    _, out, _ = run("read", member, "--from", "21")
    assert "\x1b" not in out
    assert _readable(b"red \x1b[31m") == "red \\x1b[31m"


def test_what_is_not_there_is_one_sentence_and_exit_code_2(run: Run, source: MemorySource, member: str) -> None:
    source.trim(10)
    code, _, err = run("read", member, "--from", "5")
    assert code == 2
    assert "position 5 was deleted by retention" in err
    code, _, err = run("read", member, "--token", "wrong")
    assert code == 2
    assert "the token is not the one" in err


def test_follow_until_a_count(run: Run, member: str) -> None:
    code, out, _ = run("follow", member, "--from", "15", "--count", "3", "--json")
    assert code == 0
    assert [json.loads(line)["position"] for line in out.splitlines()] == [15, 16, 17]


def test_append_lines(run: Run, source: MemorySource, member: str) -> None:
    arguments = ("append", member, "--producer", "5", "--json")
    code, out, _ = run(*arguments, stdin="one\ntwo\nthree")
    assert (code, json.loads(out)) == (0, {"rows": 3, "first": 21, "last": 23, "producer": 5})
    _, out, _ = run("append", member, stdin="")
    assert "nothing appended" in out
    _, out, _ = run("read", member, "--from", "21")
    assert [line.split()[-1] for line in out.splitlines()] == ["one", "two", "three"]


def test_append_lines_with_keys(run: Run, member: str) -> None:
    code, out, _ = run("append", member, "--key-separator", ",", stdin="a,1\nb,2,3\n")
    assert code == 0
    assert "2 rows appended, at positions 21 to 22" in out
    _, out, _ = run("read", member, "--from", "21", "--json")
    assert [(row["key"], row["payload"]) for row in map(json.loads, out.splitlines())] == [("a", "1"), ("b", "2,3")]
    code, _, err = run("append", member, "--key-separator", ",", stdin="no key here\n")
    assert code == 2
    assert "has no ','" in err


@pytest.mark.parametrize("command", ["offsets", "read", "follow", "append"])
def test_each_command_has_an_example(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"motet log {command}" in out
