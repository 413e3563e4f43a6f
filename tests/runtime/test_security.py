"""Who is let in at all: binds without a key, services without a token, and what a stranger's knocking leaves behind."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.api.group import Group
from motet.errors import ConfigError, JoinError
from tests.runtime.cluster import cluster, run, take

KEY, OTHER = "11" * 32, "22" * 32


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "192.0.2.1:7800", "example.invalid:7800"])
def test_a_member_that_others_can_reach_needs_a_key(bind: str) -> None:
    async def test() -> None:
        with pytest.raises(ConfigError, match=r"there is no key: anybody could send to the group"):
            await motet.join("test", bind=bind)

    run(test)


def test_with_a_key_or_on_demand_it_binds_everywhere() -> None:
    async def test() -> None:
        for config in (motet.Config.local(keys=[KEY]), motet.Config.local(insecure=True)):
            async with motet.join("test", bind="0.0.0.0:0", advertise="127.0.0.1", config=config) as group:
                assert group.view.is_primary

    run(test)


@pytest.mark.parametrize("service", ["admin_bind", "log_bind"])
def test_a_service_that_others_can_reach_needs_a_token(service: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {service: "0.0.0.0:0"}

    async def test() -> None:
        with pytest.raises(ConfigError, match=r"there is no token: anybody could use it"):
            motet.Config.local(**settings)
        config = motet.Config.local(**settings, token="a-long-enough-token-for-a-test")
        async with motet.join("test", config=config, journal=tmp_path / "journal") as group:
            assert list(group.services()) == ["admin" if service == "admin_bind" else "log"]

    run(test)


def test_one_with_another_key_is_not_let_in_and_says_what_it_tried() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=motet.Config.local(keys=[KEY])) as (a, _):
            view = a.view
            for keys in ([OTHER], []):
                seeds = [str(a.address.endpoint)]
                with pytest.raises(JoinError, match=r"Nobody answered.* do all have the same key"):
                    await motet.join("test", seeds=seeds, config=motet.Config.local(keys=keys), timeout=0.5)
            assert a.view == view

    run(test)


def test_each_kind_of_refusal_is_told_once_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with motet.join("test", name="a", config=motet.Config.local(keys=[KEY])) as a:
            shots = [b"nonsense", b"mS", b"mS\x09" + bytes(60), b"mS\x02\x00" + bytes(60)] * 25
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for shot in shots:
                    stranger.sendto(shot, a.address.endpoint)
            while refused(a) < len(shots):
                await asyncio.sleep(0.01)
            await a.multicast(b"still here")
            assert [message.payload for message in await take(a, 1)] == [b"still here"]

    with caplog.at_level(logging.WARNING, logger="motet"):
        run(test)
    told = [line for line in caplog.messages if "a datagram was dropped" in line]
    assert len(told) == len(set(told)) == 4


def refused(group: Group) -> int:
    counters = group.stats()["counters"]
    return sum(count for name, count in counters.items() if name.startswith("seal_"))
