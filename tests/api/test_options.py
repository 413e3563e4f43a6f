"""What an application may hand over, and what it is told when it hands over something else."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.errors import ConfigError, MisuseError, RemoteError
from motet.testing import SimNetwork, simulated
from tests.runtime.cluster import cluster, run, take

# Options


@pytest.mark.parametrize("seeds", ["{0}", " {0} , ", "127.0.0.1:9,{0}", ["127.0.0.1:9", "{0}"], ("{0}",)])
def test_seeds_may_be_a_text_or_a_list(seeds: str | list[str]) -> None:
    async def test() -> None:
        async with motet.join("test", name="a") as a:
            there = str(a.address.endpoint)
            given = seeds.format(there) if isinstance(seeds, str) else [seed.format(there) for seed in seeds]
            async with motet.join("test", name="b", seeds=given) as b:
                assert [member.name for member in b.view.members] == ["a", "b"]

    run(test)


def test_the_blocking_twin_and_the_testing_twin_take_a_text_as_well() -> None:
    with motet.join_sync("test", name="a") as a, motet.join_sync("test", seeds=str(a.address.endpoint)) as b:
        assert len(b.view.members) == 2

    @simulated()
    async def test(network: SimNetwork) -> None:
        a = await network.join("test", name="a")
        b = await network.join("test", name="b", seeds=str(a.address.endpoint))
        assert len(b.view.members) == 2

    test()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"config": {}}, r"config is a motet.Config, and this is dict: \{\}; write config=motet.Config.local"),
        ({"config": "local"}, "config is a motet.Config, and this is str"),
        ({"seeds": 7800}, "seeds = 7800 cannot be read; allowed is 'HOST:PORT,HOST:PORT'"),
        ({"seeds": [("127.0.0.1", 7800)]}, r"seeds = \[\('127.0.0.1', 7800\)\] cannot be read"),
        ({"seeds": "nonsense"}, "seeds = 'nonsense' is no endpoint"),
        ({"bind": 7800}, "bind = 7800 is not allowed for motet.join; it is a text"),
        ({"name": b"a"}, "name = b'a' is not allowed for motet.join; it is a text, or None"),
        ({"thread": "no"}, "thread = 'no' is not allowed for motet.join; it is True or False"),
        ({"on_call": "answer"}, "on_call = 'answer' is not allowed for motet.join; it is a function, or None"),
        ({"timeout": "5s"}, "timeout = '5s' is not allowed for motet.join; it is a number of seconds, or None"),
        ({"replay_from": "first"}, "replay_from = 'first' is not allowed for motet.join; it is a position, or None"),
        ({"journal": 1}, "journal = 1 is not allowed for motet.join; it is a directory, or None"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(options: dict[str, Any], says: str) -> None:
    async def test() -> None:
        with pytest.raises(ConfigError, match=says):
            await motet.join("test", **options)

    run(test)
    with pytest.raises(ConfigError, match=says):
        motet.join_sync("test", **options)


def test_a_group_has_a_name() -> None:
    with pytest.raises(ConfigError, match=r"group = '' is not allowed for motet\.join; it is the name of a group"):
        motet.join("")


# Payloads


def test_whatever_is_bytes_is_sent_as_it_was() -> None:
    """The owner of a bytearray may go on changing it."""

    async def test() -> None:
        async with cluster("a", on_call=lambda sender, question: bytearray(question)) as (a,):
            mutable = bytearray(b"one")
            await a.multicast(mutable)
            mutable[:] = b"???"
            await a.multicast(memoryview(b"-two-")[1:4], key=bytearray(b"k"))
            await a.multicast_many([b"three", bytearray(b"four")])
            await a.multicast_many(payload for payload in (b"five", memoryview(b"six")))
            await a.send(a.address, bytearray(b"seven"))
            payloads = {(message.payload, message.key) for message in await take(a, 7)}
            words = (b"one", b"three", b"four", b"five", b"six", b"seven")
            assert payloads == {(word, None) for word in words} | {(b"two", b"k")}
            assert await a.call(a.address, bytearray(b"eight")) == b"eight"

    run(test)


Send = Callable[[motet.Group, Any], Any]
SENDS: dict[str, Send] = {
    "multicast": lambda group, payload: group.multicast(payload),
    "fifo": lambda group, payload: group.multicast(payload, order="fifo"),
    "many": lambda group, payload: group.multicast_many([b"fine", payload]),
    "key": lambda group, payload: group.multicast(b"fine", key=payload),
    "send": lambda group, payload: group.send(group.address, payload),
    "send_many": lambda group, payload: group.send_many(group.address, [payload]),
    "call": lambda group, payload: group.call(group.address, payload),
    "append": lambda group, payload: group.append([payload], producer=1, sequence=1),
    "block": lambda group, payload: group.multicast_block("own", payload),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_what_is_no_bytes_is_refused_with_what_to_do(send: Send) -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            with pytest.raises(MisuseError, match=r"is bytes, and this is a str; encode it first: 'text'\.encode\(\)"):
                await send(a, "text")
            with pytest.raises(MisuseError, match="is bytes, and this is int: 5"):
                await send(a, 5)

    run(test)


def test_many_is_a_list() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            for payloads in ("text", b"bytes"):
                with pytest.raises(MisuseError, match="a list of messages is wanted, and this is one"):
                    await a.multicast_many(payloads)  # type: ignore[arg-type]
            with pytest.raises(MisuseError, match="a list of messages is wanted, and this is 5"):
                await a.multicast_many(5)  # type: ignore[arg-type]
            with pytest.raises(MisuseError, match="order='totl' is unknown"):
                await a.multicast(b"x", order="totl")  # type: ignore[arg-type]

    run(test)


def test_a_handler_that_answers_with_text_is_told_to_the_caller() -> None:
    async def test() -> None:
        async def later(sender: motet.Address, question: bytes) -> Any:
            return "text"

        for handler in (lambda sender, question: "text", later):
            async with cluster("a", on_call=handler) as (a,):
                with pytest.raises(RemoteError, match="an answer is bytes, and this is a str; encode it first"):
                    await a.call(a.address, b"?")

    run(test)


# Events


def test_a_view_says_who_came_and_who_went_without_incarnations() -> None:
    async def test() -> list[motet.ViewInstalled]:
        views = []
        async with cluster("a") as (a,):
            async with motet.join("test", name="b", seeds=str(a.address.endpoint)) as b:
                there = b.address
            async for event in a:
                assert isinstance(event, motet.ViewInstalled)
                views.append(event)
                if there in event.left:
                    return views
        return views

    *_, joined, left = run(test)
    assert (joined.names, [one.name for one in joined.joined], joined.left) == (("a", "b"), ["b"], ())
    assert (left.names, left.joined, [one.name for one in left.left]) == (("a",), (), ["b"])
    assert joined.is_primary
    assert joined.coordinator == joined.members[0] == joined.view.coordinator
    assert repr(joined) == "ViewInstalled(a, b; primary; joined b; position=0)"
    assert repr(left) == "ViewInstalled(a; primary; left b; position=0)"


def test_a_message_can_be_read_by_people() -> None:
    sender = motet.Address("ann", "127.0.0.1", 7800, 1 << 60)
    assert repr(motet.Message(sender, b"x", 3, "total")) == "Message(ann: b'x', position=3, order='total')"
    assert repr(motet.Message(sender, b"x", None, "fifo", b"k")) == "Message(ann: b'x', order='fifo', key=b'k')"


def test_what_is_stable_comes_as_an_event_to_those_who_want_it() -> None:
    async def test() -> None:
        async with cluster("a", "b", stable_events=True) as (a, b):
            await a.multicast_many([b"1", b"2", b"3"])
            seen: list[motet.Event] = []
            async for event in b:
                seen.append(event)
                if event == motet.StableAdvanced(3):
                    break
            delivered = [place for place, event in enumerate(seen) if isinstance(event, motet.Message)]
            assert len(delivered) == 3
            assert max(delivered) < seen.index(motet.StableAdvanced(3))
        async with cluster("c") as (c,):
            await (await c.multicast(b"1")).stable()
            await c.leave()
            assert not [event async for event in c if isinstance(event, motet.StableAdvanced)]

    run(test)


# Groups that nobody leaves

FORGETFUL = """
import asyncio, motet

async def main():
    {body}

asyncio.run(main())
"""


def warned(body: str) -> list[str]:
    """What a program says when it ends."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", FORGETFUL.format(body=body)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "ResourceWarning" in line and "never taken out" in line]


@pytest.mark.parametrize("options", ["", ", thread=False", ", wait=False"])
def test_a_group_that_was_never_left_is_told_once(options: str) -> None:
    (line,) = warned(f"group = await motet.join('g', name='a'{options})")
    assert "was never taken out of group 'g'; use `async with motet.join(...)`, or await group.leave()" in line


@pytest.mark.parametrize("end", ["leave", "close"])
def test_a_group_that_was_left_or_closed_is_not(end: str) -> None:
    assert warned(f"group = await motet.join('g', name='a'); await group.{end}()") == []


def test_the_warning_comes_when_the_group_is_collected_and_the_loop_is_left_alone() -> None:
    async def test() -> None:
        group = await motet.join("test", name="a", thread=False)
        await group.close()
        loop, group._loop = group._loop, None  # type: ignore[assignment]  # whoever touched it would fail
        group._opened()
        with pytest.warns(ResourceWarning, match=r"^a#[0-9a-f]{4} was never taken out of group 'test'"):
            group.__del__()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            group.__del__()
        group._loop = loop
        del group
        gc.collect()

    run(test)


def test_a_join_that_fails_leaves_nothing_to_warn_of(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(motet.JoinError):
            await motet.join("test", seeds="127.0.0.1:9", timeout=0.1, journal=tmp_path / "journal")
        gc.collect()
        await asyncio.sleep(0)

    run(test)
