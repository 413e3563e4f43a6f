"""Look-ups of a directory and of DNS: what is skipped, what fails, and that a failure never makes a second group."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.api.group import Group
from motet.errors import JoinError
from motet.protocol.core.identity import Endpoint
from motet.protocol.core.view import View
from motet.protocol.membership import DnsName, SharedDirectory
from motet.runtime.lookups import ENTRY_LASTS_S, MOST_NAMED, Lookups
from tests.runtime.cluster import run

OWN = Endpoint("127.0.0.1", 7800)
STRAY = ".nfs000000000123abcd00000001"
DNS = "members.invalid:7800"


def is_primary(view: View) -> bool:
    return view.is_primary


async def until_failed(group: Group) -> None:
    while not group.failing_lookups:
        await asyncio.sleep(0.005)


@pytest.fixture
def no_resolver(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A resolver that fails until `works` is set; then it knows nobody but this machine."""
    state: dict[str, Any] = {"works": False}

    really = socket.getaddrinfo

    def resolve(host: str, port: int, **options: Any) -> list[Any]:
        if host != DNS.partition(":")[0]:
            return really(host, port, **options)
        if not state["works"]:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", 9))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return state


# The directory


def test_a_file_that_is_no_endpoint_is_skipped_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / STRAY).touch()
    (tmp_path / "127.0.0.1:7801").touch()
    (tmp_path / "a directory").mkdir()
    found = Lookups(OWN)
    with caplog.at_level(logging.WARNING, logger="motet"):
        for _ in range(3):
            assert found.look_up(SharedDirectory(str(tmp_path))) == [OWN, Endpoint("127.0.0.1", 7801)]
    assert len(caplog.messages) == 2
    assert STRAY in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_the_log_names_a_bounded_number_of_stray_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3 * MOST_NAMED):
        (tmp_path / f"stray {number}").touch()
    assert Lookups(OWN).look_up(SharedDirectory(str(tmp_path))) == [OWN]
    assert len(caplog.messages) == MOST_NAMED


def test_an_old_file_is_of_a_member_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "127.0.0.1:7801"
    gone.touch()
    os.utime(gone, (0, gone.stat().st_mtime - 2 * ENTRY_LASTS_S))
    assert Lookups(OWN).look_up(SharedDirectory(str(tmp_path))) == [OWN]


def test_a_file_that_goes_while_it_is_looked_at_is_no_failure(tmp_path: Path) -> None:
    """A broken link is a name whose file is not there, like a file that was removed a moment ago."""
    (tmp_path / "127.0.0.1:7801").symlink_to(tmp_path / "nothing")
    assert Lookups(OWN).look_up(SharedDirectory(str(tmp_path))) == [OWN]


def test_each_failure_is_told_once_and_forgotten_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    source, found = DnsName("motet.invalid", 7800), Lookups(OWN)
    for _ in range(3):
        found.failed(source, OSError("unknown name"))
    assert len(caplog.messages) == 1
    assert found.describe_failures() == "the look-up of discovery_dns = motet.invalid:7800 fails: unknown name"
    found.succeeded(source)
    assert found.describe_failures() == ""


# Groups


def test_one_stray_file_name_makes_no_second_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / STRAY).touch()
    config = motet.Config.local(discovery_directory=str(tmp_path))

    async def test() -> None:
        async with (
            motet.join("test", name="a", config=config) as a,
            motet.join("test", name="b", config=config) as b,
        ):
            assert a.address in b.view  # its first primary view is that of the group
            assert (await a.until(lambda view: len(view.members) == 2)).id == b.view.id

    with caplog.at_level(logging.WARNING, logger="motet"):
        run(test)
    assert STRAY in caplog.text


def test_no_group_is_bootstrapped_while_the_directory_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "members"
    place.write_text("not a directory")
    config = motet.Config.local(discovery_directory=str(place), bootstrap_after="0s")

    async def test() -> None:
        group = await motet.join("test", config=config, wait=False)
        await until_failed(group)
        assert not group.view.is_primary  # without a look-up it would be, at once
        assert str(place) in group.failing_lookups
        place.unlink()
        await group.until(is_primary)
        await group.leave()

    with caplog.at_level(logging.WARNING, logger="motet"):
        run(test)
    assert "until it succeeds this member bootstraps no group" in caplog.text


def test_no_group_is_bootstrapped_while_dns_fails(no_resolver: dict[str, Any]) -> None:
    config = motet.Config.local(discovery_dns=DNS, bootstrap_after="0s")

    async def test() -> None:
        group = await motet.join("test", config=config, wait=False)
        await until_failed(group)
        assert not group.view.is_primary
        no_resolver["works"] = True
        await group.until(is_primary)
        await group.leave()

    run(test)


def test_a_join_that_waits_for_a_look_up_says_so(no_resolver: dict[str, Any]) -> None:
    async def test() -> None:
        config = motet.Config.local(discovery_dns=DNS)
        with pytest.raises(JoinError, match=r"the look-up of discovery_dns = members.invalid:7800 fails: .*Temporary"):
            await motet.join("test", config=config, timeout=1)

    run(test)


def test_by_permission_a_group_is_bootstrapped_without_a_look_up(no_resolver: dict[str, Any]) -> None:
    async def test() -> None:
        config = motet.Config.local(discovery_dns=DNS, bootstrap_without_lookup=True)
        async with motet.join("test", config=config) as group:
            assert group.view.is_primary

    run(test)


def test_a_quorum_is_permission_enough(no_resolver: dict[str, Any]) -> None:
    async def test() -> None:
        config = motet.Config.local(discovery_dns=DNS, static_quorum=1)
        async with motet.join("test", config=config) as group:
            assert group.view.is_primary

    run(test)
