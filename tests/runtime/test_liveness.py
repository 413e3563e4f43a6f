"""Members whose driver does not run although their process is alive; and those who are stopped or dead."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from motet.runtime import liveness
from tests.runtime.cluster import cluster, run, take
from tests.runtime.processes import TIMEOUT_S, MemberProcess

KEY = "11" * 32
LONGEST = {"busy_max": "10min"}  # whoever is kept because of BUSY is kept for longer than a test waits
Members = dict[str, MemberProcess]


@contextmanager
def members(config: dict[str, Any] | None = None, **options: Any) -> Iterator[Members]:
    """a, b and c, in one view."""
    with ExitStack() as stack:
        started: Members = {}
        for name in "abc":
            seeds = [started["a"].endpoint] if started else []
            given = {**options, "config": dict(config or {})}
            started[name] = stack.enter_context(MemberProcess(name, seeds, **given))
        for member in started.values():
            member.expect(lambda word: set(word.get("view", ())) == set("abc") and word["primary"])
        yield started


def liveness_process_of(member: MemberProcess) -> int:
    """The child that runs busy_process.py."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/{member.pid}/task").glob("*/children")
        for child in " ".join(file.read_text() for file in children).split():
            if "busy_process" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
        time.sleep(0.01)
    raise AssertionError(f"{member.name} never started its liveness process")


def until_gone(process: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline, "the liveness process outlives its member"
        time.sleep(0.01)


def views_since(member: MemberProcess, mark: int) -> list[dict[str, Any]]:
    return [word for word in member.words[mark:] if "view" in word]


@pytest.mark.parametrize("keys", [[], [KEY]], ids=["plain", "sealed"])
@pytest.mark.parametrize("busy", ["a", "c"])
def test_a_member_that_holds_the_gil_for_many_times_the_suspicion_time_stays_in_the_view(
    busy: str, keys: list[str]
) -> None:
    """Its own datagrams before that have moved its seal's counter far beyond the replay window."""
    with members({"keys": keys, "replay_window": 64}) as group:
        group[busy].send(2_000, "x")
        group[busy].expect(lambda word: "sent" in word)
        marks = {name: len(member.words) for name, member in group.items()}
        group[busy].ask("held", do="hold", seconds=4)
        for member in group.values():
            member.ask("stable", do="prove", text=member.name)
        assert [views_since(group[name], mark) for name, mark in marks.items()] == [[], [], []]
        for name, member in group.items():
            noted = [event["kind"] for event in member.stats()["events"] if event["kind"] in ("busy", "responsive")]
            assert noted == ([] if name == busy else ["busy", "responsive"])


def test_a_state_provider_that_holds_the_gil_for_seconds_expels_nobody() -> None:
    with ExitStack() as stack:
        a = stack.enter_context(MemberProcess("a", [], slow_state=5))
        a.expect(lambda word: word.get("primary", False))
        b = stack.enter_context(MemberProcess("b", [a.endpoint], slow_state=5))
        b.expect(lambda word: "state" in word)
        marks = {member: len(member.words) for member in (a, b)}
        c = stack.enter_context(MemberProcess("c", [a.endpoint], slow_state=5))
        c.expect(lambda word: "state" in word)
        for member in (a, b, c):
            member.ask("stable", do="prove", text=member.name)
        sizes = {
            member.name: [len(word["view"]) for word in views_since(member, mark)] for member, mark in marks.items()
        }
        assert all(views and set(views) == {3} for views in sizes.values()), sizes


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "while it is busy"])
def test_a_member_that_is_stopped_is_removed(is_busy: bool) -> None:
    with members(LONGEST) as group:
        if is_busy:
            group["b"].say(do="hold", seconds=3_600)
            group["a"].expect(
                lambda word: "b" in str(word["stats"]["busy"]) if "stats" in word else is_notified(group["a"])
            )
        group["b"].signal(signal.SIGSTOP)
        group["a"].until_view(set("ac"))
        group["c"].until_view(set("ac"))


def is_notified(member: MemberProcess) -> bool:
    """Ask again: the answer is one of the words that `expect` goes through."""
    member.say(do="stats")
    return False


def test_a_member_that_is_killed_while_it_is_busy_is_removed_and_its_liveness_process_ends() -> None:
    with members(LONGEST) as group:
        child = liveness_process_of(group["b"])
        group["b"].say(do="hold", seconds=3_600)
        group["b"].expect(lambda word: "holds" in word)
        group["b"].kill()
        until_gone(child)
        group["a"].until_view(set("ac"))


def test_a_member_that_leaves_ends_its_liveness_process_and_frees_its_port() -> None:
    with members() as group:
        child = liveness_process_of(group["b"])
        group["b"].say(do="leave")
        until_gone(child)
        with MemberProcess("b", [group["a"].endpoint], group["b"].endpoint) as again:
            again.until_view(set("abc"))


def test_a_member_that_is_busy_for_longer_than_the_limit_is_removed() -> None:
    with members({"busy_max": "2s"}) as group:
        group["b"].say(do="hold", seconds=3_600)
        group["a"].until_view(set("ac"))


def test_faults_on_purpose_are_not_evaded_by_the_liveness_process() -> None:
    with members(LONGEST) as group:
        group["b"].fault("duplicate=0.01")
        group["b"].say(do="hold", seconds=3_600)
        group["a"].until_view(set("ac"))


def test_where_there_is_no_liveness_process_the_log_says_so_and_all_else_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise NotImplementedError("it needs Linux with /proc")

    async def test() -> None:
        async with cluster("a", "b") as groups:
            await groups[0].multicast(b"x")
            assert [(await take(group, 1))[0].payload for group in groups] == [b"x", b"x"]

    monkeypatch.setattr(liveness, "_require_support", refuse)
    with caplog.at_level(logging.INFO, "motet"):
        run(test)
    assert sum("no liveness process (it needs Linux with /proc)" in line for line in caplog.messages) == 2
