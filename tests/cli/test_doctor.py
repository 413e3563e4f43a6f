"""`motet doctor`: each check on a machine that is fit and on one that is not, and the command around them."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from motet.cli import checkup
from motet.cli.app import main
from motet.cli.checkup import CHECKS, CheckResult, CheckVerdict, Examination, examine
from motet.config import Config
from motet.protocol.core.identity import Endpoint

LOOPBACK = Endpoint("127.0.0.1", 0)


def asked(bind: Endpoint = LOOPBACK, journal: str | None = None, **settings: Any) -> Examination:
    return Examination(bind, journal, Config.load(None, {}, preset="local", **settings))


def test_every_check_gives_a_finding_under_its_own_name() -> None:
    found = examine(asked())
    assert [finding.name for finding in found] == [name for name, _ in CHECKS]
    assert all(finding.text for finding in found)


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(examination: Examination) -> CheckResult:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(checkup, "CHECKS", (("odd", broken),))
    (finding,) = examine(asked())
    assert finding.verdict is CheckVerdict.WARN
    assert "by nought" in finding.text


def test_a_datagram_comes_back() -> None:
    assert checkup.check_sockets(asked()).verdict is CheckVerdict.OK


def test_a_port_in_use_says_how_to_find_another() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        finding = checkup.check_sockets(asked(Endpoint("127.0.0.1", taken.getsockname()[1])))
    assert finding.verdict is CheckVerdict.FAIL
    assert "in use" in finding.text
    assert "ss -lun" in finding.remedy


def test_a_frame_that_the_system_does_not_carry_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS refuses datagrams of more than 9 216 bytes unless it is told otherwise."""

    def too_long(bind: Endpoint) -> socket.socket:
        raise OSError(errno.EMSGSIZE, "Message too long")

    monkeypatch.setattr(checkup, "_udp", too_long)
    finding = checkup.check_sockets(asked())
    assert finding.verdict is CheckVerdict.FAIL
    assert "frame_bytes" in finding.remedy


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_told(host: str) -> None:
    finding = checkup.check_sockets(asked(Endpoint(host, 0)))
    assert finding.verdict is CheckVerdict.FAIL
    assert "an address of this machine" in finding.remedy


def test_buffers_that_are_granted() -> None:
    assert checkup.check_buffers(asked(socket_buffer_bytes=65_536)).verdict is CheckVerdict.OK


def test_buffers_that_the_system_limits_come_with_the_line_that_raises_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(checkup, "_grown", lambda sock, option, wanted: 212_992)
    finding = checkup.check_buffers(asked(socket_buffer_bytes=1 << 30))
    assert finding.verdict is CheckVerdict.WARN
    assert "0.2 MiB of 1024.0 MiB" in finding.text
    assert "sysctl -w net.core.rmem_max=1073741824 net.core.wmem_max=1073741824" in finding.remedy


def test_multicast_that_is_not_there_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: str, host: str) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(checkup, "_receive_own_multicast", refuse)
    finding = checkup.check_multicast(asked())
    assert finding.verdict is CheckVerdict.NOTE
    assert "unicast is the default" in finding.text


def test_a_journal_directory_is_made_tried_and_left_empty(tmp_path: Path) -> None:
    finding = checkup.check_journal(asked(journal=str(tmp_path / "a" / "b")))
    assert finding.verdict in (CheckVerdict.OK, CheckVerdict.WARN)
    assert "fsync takes" in finding.text
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_journal_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    finding = checkup.check_journal(asked(journal=str(tmp_path / "file" / "journal")))
    assert finding.verdict is CheckVerdict.FAIL
    assert "may write to" in finding.remedy


def test_a_disk_without_fsync_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    assert checkup.check_journal(asked(journal=str(tmp_path))).verdict is CheckVerdict.FAIL


@pytest.mark.parametrize(
    ("synced_s", "free", "said"), [(0.2, 10 << 30, "slow disk"), (0.001, 1 << 20, "free some space")]
)
def test_a_poor_disk_is_advised(synced_s: float, free: int, said: str) -> None:
    finding = checkup._evaluate_disk(Path("data"), synced_s, free)
    assert finding.verdict is CheckVerdict.WARN
    assert said in finding.remedy


def test_few_open_files_are_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 4096))
    finding = checkup.check_files(asked())
    assert finding.verdict is CheckVerdict.WARN
    assert "ulimit -n 1024" in finding.remedy


@pytest.mark.parametrize(
    ("state", "verdict"), [(True, CheckVerdict.OK), (None, CheckVerdict.OK), (False, CheckVerdict.WARN)]
)
def test_the_clock(monkeypatch: pytest.MonkeyPatch, state: bool | None, verdict: CheckVerdict) -> None:
    monkeypatch.setattr(checkup, "_clock_is_synchronised", lambda: state)
    assert checkup.check_clock(asked()).verdict is verdict


def test_without_java_and_spark_the_pipeline_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("motet.spark.java.find_spec", lambda name: None)
    monkeypatch.setattr(checkup, "find_spec", lambda name: None)
    java, spark, loop = (check(asked()) for check in (checkup.check_java, checkup.check_spark, checkup.check_loop))
    assert {java.verdict, spark.verdict, loop.verdict} == {CheckVerdict.NOTE}
    assert "apt install openjdk" in java.remedy
    assert "motet[spark]" in spark.remedy


# The command


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> list[CheckResult]:
    """What the examination will find."""
    found = [
        CheckResult("sockets", CheckVerdict.OK, "fine"),
        CheckResult("UDP buffers", CheckVerdict.WARN, "small", "sysctl -w x=1"),
    ]
    monkeypatch.setattr("motet.cli.doctor.examine", lambda examination: found)
    return found


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["motet", "doctor", *arguments])
    with pytest.raises(SystemExit) as exit_info:
        main()
    return int(exit_info.value.code or 0)


def test_advice_is_no_failure(
    fit: list[CheckResult], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch) == 0
    out = capsys.readouterr().out
    assert "warn  UDP buffers: small What to do: sysctl -w x=1" in out
    assert "A member will run here; one thing could be improved." in out


def test_a_failure_is_exit_code_1(
    fit: list[CheckResult], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit.append(CheckResult("journal", CheckVerdict.FAIL, "read-only", "remount it"))
    assert command(monkeypatch, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["fit"] is False
    assert said["findings"][-1] == {"name": "journal", "verdict": "fail", "text": "read-only", "remedy": "remount it"}


def test_this_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command(monkeypatch, "--journal", str(tmp_path)) == 0
    assert "sockets: a datagram of" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--bind", "nowhere"), ("--config", "no-such-file.toml")])
def test_asked_wrongly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert command(monkeypatch, *arguments) == 2
    assert "motet: " in capsys.readouterr().err
