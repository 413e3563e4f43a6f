"""Members with journals, over real sockets: what they keep, what they fetch, what survives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import motet
from motet.api.group import Group
from motet.errors import ConfigError, GroupFailedError, JournalError, JournalLockedError
from motet.log.journal.reader import JournalReader
from motet.log.service.client import LogClient
from tests.runtime.cluster import join, run, take

DURABLE = motet.Config.local(journal_fsync="always")


def rows(
    directory: Path, columns: Sequence[str] = ("position", "sender", "seqno", "payload")
) -> list[dict[str, object]]:
    reader = JournalReader(directory)
    bounds = reader.bounds()
    batches = list(reader.read(bounds.first, bounds.last))
    return pa.Table.from_batches(batches).select(list(columns)).to_pylist() if batches else []


async def start(name: str, others: list[Group], home: Path, **options: Any) -> Group:
    return await join(name, others, journal=home / name, **{"config": DURABLE, **options})


def test_journals_of_all_members_hold_the_same_log(tmp_path: Path) -> None:
    async def test() -> None:
        a = await start("a", [], tmp_path)
        b = await start("b", [a], tmp_path)
        for number in range(20):
            receipt = await (a, b)[number % 2].multicast(b"%d" % number)
        await receipt.stable()
        await take(b, 20)
        await b.leave()
        await a.leave()

    run(test)
    log = rows(tmp_path / "a")
    assert [row["position"] for row in log] == list(range(1, 21))
    assert log == rows(tmp_path / "b")


def test_a_member_that_was_away_fetches_what_it_missed_and_its_application_gets_it(tmp_path: Path) -> None:
    async def test() -> None:
        a = await start("a", [], tmp_path)
        b = await start("b", [a], tmp_path)
        await (await a.multicast(b"before")).stable()
        await take(b, 1)
        while b.stable_position < 1:  # what it does not know to be stable is taken back and fetched again
            await asyncio.sleep(0.005)
        await b.close()  # as a crash is: nobody is told
        await (await a.multicast(bytes(200_000))).delivered()  # in fragments
        await a.multicast(b"meanwhile", key=b"k")
        b = await start("b", [a], tmp_path)
        await a.multicast(b"after")
        missed = await take(b, 3)
        assert [(m.position, len(m.payload), m.key) for m in missed] == [(2, 200_000, None), (3, 9, b"k"), (4, 5, None)]
        await b.leave()
        await a.leave()

    run(test)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_a_whole_group_that_restarts_goes_on_with_its_log(tmp_path: Path) -> None:
    async def life(number: int, names: str) -> None:
        groups: list[Group] = []
        for name in names:
            wait = name == names[-1] or number == 0
            groups.append(await start(name, groups, tmp_path, wait=wait))
        for group in groups:
            await group.until(lambda view: len(view.members) == 3 and view.is_primary)
        receipts = [await group.multicast(b"%d %s" % (number, group.address.name.encode())) for group in groups]
        for receipt in receipts:
            await receipt.stable()
        await asyncio.gather(*(group.close() for group in groups))  # all at once, without a word

    run(lambda: life(0, "abc"))
    run(lambda: life(1, "bca"))
    run(lambda: life(2, "cab"))
    logs = [rows(tmp_path / name) for name in "abc"]
    assert [row["position"] for row in logs[0]] == list(range(1, 10))
    assert logs[0] == logs[1] == logs[2]
    assert sorted(str(row["payload"])[2] for row in logs[0]) == ["0"] * 3 + ["1"] * 3 + ["2"] * 3


def test_an_application_can_have_its_log_replayed(tmp_path: Path) -> None:
    async def test() -> None:
        a = await start("a", [], tmp_path)
        await (await a.multicast_many([b"1", b"2", b"3"])).stable()
        await a.leave()
        a = await start("a", [], tmp_path, replay_from=2)
        await a.multicast(b"4")
        assert [(m.position, m.payload) for m in await take(a, 3)] == [(2, b"2"), (3, b"3"), (4, b"4")]
        await a.leave()

    run(test)


def test_two_processes_cannot_have_one_journal(tmp_path: Path) -> None:
    async def test() -> None:
        a = await start("a", [], tmp_path)
        with pytest.raises(JournalLockedError):
            await start("a", [a], tmp_path)
        await a.leave()

    run(test)


def test_a_member_whose_disk_fails_stops_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        a = await join("a", [])
        b = await start("b", [a], tmp_path)
        journal_writer = b._driver.journal_writer
        assert journal_writer is not None

        def full(entries: object) -> None:
            raise JournalError("no space left on the disk")

        monkeypatch.setattr(journal_writer.journal, "append", full)  # type: ignore[attr-defined]
        receipt = await a.multicast(b"too much")
        with pytest.raises(GroupFailedError, match="no space left"):
            await take(b, 1)
        await a.until(lambda view: len(view.members) == 1)
        await receipt.stable()
        await b.close()
        await a.leave()

    run(test)


def test_the_log_is_served_and_a_client_fails_over(tmp_path: Path) -> None:
    async def test() -> None:
        serving = motet.Config.local(log_bind="127.0.0.1:0")
        a = await start("a", [], tmp_path, config=serving)
        b = await start("b", [a], tmp_path, config=serving)
        await (await a.multicast_many([b"%d" % number for number in range(100)])).stable()
        members = [b.services()["log"], a.services()["log"]]
        first = await asyncio.to_thread(_read, members, 1, 60)
        await b.leave()
        rest = await asyncio.to_thread(_read, members, 61, 100)
        assert first + rest == [b"%d" % number for number in range(100)]
        appended = await asyncio.to_thread(_append_twice, members)
        assert appended == [(101, 102), (0, 0)]
        await a.leave()

    run(test)


def _read(members: list[str], first: int, last: int) -> list[bytes]:
    client = LogClient(members)
    try:
        return [payload for batch in client.read(first, last) for payload in batch.column("payload").to_pylist()]
    finally:
        client.close()


def _append_twice(members: list[str]) -> list[tuple[int, int]]:
    client = LogClient(members)
    try:
        twice = [client.append([b"x", b"y"], producer=5, sequence=1) for _ in range(2)]
        return [(one.first, one.last) for one in twice]
    finally:
        client.close()


def test_the_log_cannot_be_served_without_a_journal() -> None:
    async def test() -> None:
        with pytest.raises(ConfigError, match="give the member a journal"):
            await motet.join("test", config=motet.Config.local(log_bind="127.0.0.1:0"))

    run(test)


def test_a_journal_that_began_after_a_loss_bootstraps_nothing_in_any_incarnation(tmp_path: Path) -> None:
    """It was told once that it must not; without the word in its journal, the next life made a second group."""

    async def life(*, may_bootstrap: bool) -> bool:
        alone = await start("a", [], tmp_path, config=motet.Config.local(may_bootstrap=may_bootstrap), wait=False)
        may_found = alone._driver.member.membership.counts_for_bootstrap
        await alone.close()
        return may_found

    wanted = (True, False, True)
    assert [run(partial(life, may_bootstrap=may)) for may in wanted] == [True, False, False]
