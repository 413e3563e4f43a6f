"""The public group over real sockets on loopback."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Any

import pytest

import motet
from motet.api.send_queues import SEND_QUEUE_BYTES
from motet.errors import (
    BindError,
    CallTimeoutError,
    ConfigError,
    JoinError,
    LeftGroupError,
    MisuseError,
    NotPrimaryError,
    PeerUnreachableError,
    RemoteError,
    SnapshotError,
)
from tests.runtime.cluster import cluster, join, run, take


def test_all_members_deliver_the_same_sequence() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c") as groups:
            for index, group in enumerate(groups):
                for number in range(50):
                    await group.multicast(b"%d/%d" % (index, number))
            logs = [await take(group, 150) for group in groups]
            assert [message.position for message in logs[0]] == list(range(1, 151))
            assert logs[0] == logs[1] == logs[2]
            for index in range(3):
                mine = [m.payload for m in logs[0] if m.sender.name == "abc"[index]]
                assert mine == [b"%d/%d" % (index, number) for number in range(50)]

    run(test)


def test_a_receipt_tells_the_position_and_when_it_is_stable() -> None:
    async def test() -> None:
        async with cluster("a", "b") as (a, b):
            first = await a.multicast(b"one")
            many = await b.multicast_many([b"two", b"three"])
            positions = {await first.delivered(), await many.delivered()}
            assert await first.stable() in positions
            assert await many.stable() in positions
            assert a.stable_position >= first.position  # type: ignore[operator]
            log = await take(a, 3)
            assert log[first.position - 1].payload == b"one"  # type: ignore[operator]
            assert log[many.position - 1].payload == b"three"  # type: ignore[operator]

    run(test)


def test_fifo_direct_and_keyed_messages_say_what_they_are() -> None:
    async def test() -> None:
        async with cluster("a", "b") as (a, b):
            await a.multicast(b"tick", order="fifo")
            (tick,) = await take(b, 1)
            assert (tick.payload, tick.order, tick.position) == (b"tick", "fifo", None)
            await a.send(b.address, b"only you")
            (direct,) = await take(b, 1)
            assert (direct.payload, direct.order, direct.sender) == (b"only you", "direct", a.address)
            await a.multicast(b"value", key=b"name")
            (keyed,) = await take(b, 1)
            assert (keyed.key, keyed.payload, keyed.order, keyed.position) == (b"name", b"value", "total", 1)
            # What is ordered may be delivered by b before a, so what a sends to itself could still overtake it.
            assert [m.payload for m in await take(a, 2)] == [b"tick", b"value"]
            await a.send(a.address, b"to myself")
            assert [m.payload for m in await take(a, 1)] == [b"to myself"]

    run(test)


def test_waiting_for_the_position_of_a_fifo_message_is_refused() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            receipt = await a.multicast(b"tick", order="fifo")
            with pytest.raises(MisuseError, match="do not wait"):
                await receipt.delivered()
            with pytest.raises(MisuseError, match="do not wait"):
                await receipt.stable()

    run(test)


def test_a_large_message_arrives_whole() -> None:
    async def test() -> None:
        async with cluster("a", "b") as (a, b):
            large = bytes(range(256)) * 20_000
            await a.multicast(large)
            await a.multicast(b"after")
            first, second = await take(b, 2)
            assert first.payload == large
            assert (first.position, second.position) == (1, 2)

    run(test)


def test_calls_are_answered_by_one_or_by_all() -> None:
    async def test() -> None:
        async def slow(sender: motet.Address, payload: bytes) -> bytes:
            await asyncio.sleep(0)
            return sender.name.encode() + b" asked " + payload

        def broken(sender: motet.Address, payload: bytes) -> bytes:
            raise ValueError("not today")

        async with cluster("a", "b", "c") as (a, b, c):
            b.on_call(slow)
            c.on_call(broken)
            assert await a.call(b.address, b"why") == b"a asked why"
            with pytest.raises(RemoteError, match="not today"):
                await a.call(c.address, b"why")
            with pytest.raises(RemoteError, match="no handler"):
                await b.call(a.address, b"why")
            answers = await a.call_all(b"?")
            assert answers[b.address] == b"a asked ?"
            assert isinstance(answers[c.address], RemoteError)

    run(test)


def test_a_call_that_is_not_answered_ends_by_its_timeout() -> None:
    async def test() -> None:
        async def never(sender: motet.Address, payload: bytes) -> bytes:
            await asyncio.Event().wait()
            return b""

        async with cluster("a", "b") as (a, b):
            b.on_call(never)
            with pytest.raises(CallTimeoutError, match="did not answer"):
                await a.call(b.address, b"?", timeout=0.05)

    run(test)


def test_a_call_to_a_member_that_leaves_ends_with_an_error() -> None:
    async def test() -> None:
        async def never(sender: motet.Address, payload: bytes) -> bytes:
            await asyncio.Event().wait()
            return b""

        async with cluster("a") as (a,):
            b = await join("b", [a])
            await a.until(lambda view: len(view.members) == 2)
            b.on_call(never)
            call = asyncio.create_task(a.call(b.address, b"?", timeout=None))
            await asyncio.sleep(0.05)
            await b.leave()
            with pytest.raises((PeerUnreachableError, RemoteError)):
                await call

    run(test)


def test_batches_are_the_same_messages_and_one_consumer_is_enough() -> None:
    async def test() -> None:
        async with cluster("a", "b") as (a, b):
            await a.multicast_many([b"%d" % number for number in range(1000)])
            seen: list[bytes] = []
            async for event in b.batches():
                if isinstance(event, motet.Batch):
                    assert event.position == len(seen) + 1
                    seen += event.payloads
                if len(seen) == 1000:
                    break
            assert seen == [b"%d" % number for number in range(1000)]
            first = asyncio.create_task(take(b, 1))
            await asyncio.sleep(0)
            with pytest.raises(MisuseError, match="somebody iterates"):
                await take(b, 1)
            await a.multicast(b"last")
            assert [message.payload for message in await first] == [b"last"]

    run(test)


def test_iterating_can_be_broken_off_and_taken_up_again() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            await a.multicast_many([b"%d" % number for number in range(10)])
            assert [m.payload for m in await take(a, 3)] == [b"0", b"1", b"2"]
            batch = await anext(aiter(a.batches()))
            assert isinstance(batch, motet.Batch)
            assert (batch.payloads, batch.position) == (tuple(b"%d" % number for number in range(3, 10)), 4)

    run(test)


def test_a_slow_consumer_makes_senders_wait_and_nobody_is_expelled() -> None:
    async def test() -> None:
        config = motet.Config.local(queue_bytes="256KiB", window_frames=4, order_window_frames=4, frame_bytes=8_000)
        async with cluster("a", "b", config=config) as (a, b):
            sent = 0

            async def send() -> None:
                nonlocal sent
                for _ in range(60):
                    await a.multicast_many([bytes(1000)] * 400)
                    sent += 400

            sender = asyncio.create_task(send())
            eater = asyncio.create_task(take(a, 24_000))
            while not b._queue.is_paused:  # b takes nothing: its queue fills, then the windows, then the sender waits
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            assert not sender.done()
            assert b._queue.weight < 2 << 20
            assert len(a.view.members) == len(b.view.members) == 2
            assert len(await take(b, 24_000)) == 24_000
            await sender
            await eater

    run(test)


def test_user_code_that_blocks_its_loop_stays_in_the_view_and_loses_nothing() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            other = await asyncio.to_thread(
                lambda: motet.join_sync("test", name="b", bind="127.0.0.1:0", seeds=[str(a.address.endpoint)])
            )
            await a.until(lambda view: len(view.members) == 2)
            view = a.view
            config = motet.Config.local()
            time.sleep(3 * (config.suspect_ns + config.verify_ns) / 1e9)
            position = await asyncio.to_thread(other.multicast, b"still there?")
            assert position == 1
            assert a.view == view
            assert [message.payload for message in await take(a, 1)] == [b"still there?"]
            await asyncio.to_thread(other.leave)

    run(test)


def test_a_joiner_gets_the_state_and_then_exactly_what_follows() -> None:
    async def test() -> None:
        counted: dict[str, int] = {}

        async with cluster("a", state_provider=lambda: b"%d" % counted["a"]) as (a,):
            counted["a"] = 0
            for number in range(20):
                await a.multicast(b"%d" % number)
            async for event in a:
                counted["a"] += isinstance(event, motet.Message)
                if counted["a"] == 20:
                    break
            received: list[bytes] = []
            providing = asyncio.create_task(take(a, 1))  # the state is asked for where the events stand
            b = await join("b", [a], state_receiver=received.append)
            await a.multicast(b"20")
            (after,) = await take(b, 1)
            assert received == [b"20"]
            assert (after.payload, after.position) == (b"20", 21)
            await providing
            await b.leave()

    run(test)


def test_leaving_ends_waiting_sends_and_later_ones_with_a_clear_error() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            pass
        with pytest.raises(LeftGroupError, match="has left the group"):
            await a.multicast(b"too late")
        with pytest.raises(LeftGroupError):
            await a.call(a.address, b"too late")

    run(test)


def test_events_end_when_the_member_leaves() -> None:
    async def test() -> None:
        async with cluster("a", "b") as (a, b):
            events = asyncio.create_task(_all_events(b))
            await b.leave()
            assert any(isinstance(event, motet.ViewInstalled) for event in await events)
            await a.until(lambda view: len(view.members) == 1)

    run(test)


async def _all_events(group: motet.Group) -> list[object]:
    return [event async for event in group]


def test_several_groups_live_in_one_process() -> None:
    async def test() -> None:
        async with cluster("a", "b", group="one") as (a, b), cluster("a", "b", group="two") as (c, d):
            await a.multicast(b"one")
            await c.multicast(b"two")
            assert [m.payload for m in await take(b, 1)] == [b"one"]
            assert [m.payload for m in await take(d, 1)] == [b"two"]

    run(test)


def test_without_a_primary_view_ordered_sends_wait_or_say_so() -> None:
    async def test() -> None:
        seeds = ["127.0.0.1:9", "127.0.0.1:10"]  # nobody is there, and this one is no seed: it cannot found a group
        group = await motet.join("test", seeds=seeds, wait=False)
        with pytest.raises(NotPrimaryError, match="not primary"):
            await group.multicast(b"now", wait=False)
        receipt = await group.multicast(b"later")
        assert not receipt.is_delivered
        await group.multicast(b"fifo goes on", order="fifo")
        assert [m.payload for m in await take(group, 1)] == [b"fifo goes on"]
        await group.close()
        with pytest.raises(LeftGroupError):
            await receipt.delivered()

    run(test)


def test_a_member_that_finds_nobody_says_what_it_tried() -> None:
    async def test() -> None:
        with pytest.raises(JoinError, match=r"Looked at: 127\.0\.0\.1:9\. Nobody answered"):
            await motet.join("test", seeds=["127.0.0.1:9"], timeout=0.2)

    run(test)


def test_a_join_that_is_cancelled_leaves_nothing_behind() -> None:
    async def test() -> None:
        joining = asyncio.ensure_future(motet.join("test", seeds=["127.0.0.1:9"])._join())
        await asyncio.sleep(0.05)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining

    run(test)


def test_a_send_that_is_cancelled_while_it_waits_does_no_harm() -> None:
    async def test() -> None:
        seeds = ["127.0.0.1:9", "127.0.0.1:10"]
        group = await motet.join("test", seeds=seeds, wait=False)
        for _ in range(SEND_QUEUE_BYTES >> 20):
            await group.multicast(bytes(1 << 20))
        waiting = asyncio.create_task(group.multicast(b"no space"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await group.close()

    run(test)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"bind": "nowhere"}, ConfigError, "allowed is HOST:PORT"),
        ({"bind": "127.0.0.1:99999"}, ConfigError, "allowed is HOST:PORT"),
        ({"bind": "203.0.113.7:0", "config": motet.Config.local(insecure=True)}, BindError, "cannot listen"),
        ({"bind": "0.0.0.0:0"}, ConfigError, "no key"),
        ({"seeds": ["nonsense"]}, ConfigError, "seeds"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], error: type[Exception], says: str) -> None:
    async def test() -> None:
        with pytest.raises(error, match=says):
            await motet.join("test", **options)

    run(test)


def test_a_port_in_use_is_named() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            with pytest.raises(BindError, match="another process on that port"):
                await motet.join("test", bind=str(a.address.endpoint))

    run(test)


def test_text_is_refused_with_what_to_do() -> None:
    async def test() -> None:
        async with cluster("a") as (a,):
            with pytest.raises(MisuseError, match=r"encode it first: .*\.encode\(\)"):
                await a.multicast("text")  # type: ignore[arg-type]
            with pytest.raises(MisuseError, match="is no member"):
                await a.send("b", b"x")  # type: ignore[arg-type]

    run(test)


def test_in_the_applications_own_loop_it_does_the_same() -> None:
    async def test() -> None:
        async with cluster("a", "b", thread=False) as (a, b):
            receipt = await a.multicast(b"in the loop")
            assert await receipt.stable() == 1
            b.on_call(lambda sender, payload: payload.upper())
            assert await a.call(b.address, b"loud") == b"LOUD"
            assert [m.payload for m in await take(b, 1)] == [b"in the loop"]

    run(test)


@pytest.mark.parametrize("thread", [True, False])
def test_deliveries_resume_however_soon_the_consumer_is_back(thread: bool) -> None:
    """On the application's loop resume took effect at once, and pause was posted: so pause came last, and stayed."""

    async def test() -> None:
        async with cluster("a", thread=thread, config=motet.Config.local(queue_bytes="4KiB")) as (a,):
            for weight in (5_000, 0):  # the first applies back-pressure
                a._queue.put(motet.Batch(a.address, (b"old",), None, "fifo"), weight)
            assert [m.payload for m in await take(a, 2)] == [b"old"] * 2
            await a.multicast(b"new", order="fifo")
            assert [m.payload for m in await take(a, 1)] == [b"new"]

    run(test)


def test_the_synchronous_face() -> None:
    with motet.join_sync("test", name="a") as a:
        with motet.join_sync("test", name="b", seeds=[str(a.address.endpoint)]) as b:
            assert a.multicast(b"one") == 1
            assert b.multicast_many([b"two", b"three"]) == 3
            log: list[bytes] = []
            for event in b.events(timeout=30):
                if isinstance(event, motet.Message):
                    log.append(event.payload)
                if len(log) == 3:
                    break
            assert log == [b"one", b"two", b"three"]
        assert a.multicast(b"four") == 4


def test_figures_of_a_member_can_be_had() -> None:
    async def test() -> None:
        async with cluster("a", "b") as (a, b):
            await (await a.multicast(b"x")).stable()
            stats = a.stats()
            assert stats["view"]["primary"]
            assert [member["name"] for member in stats["view"]["members"]] == ["a", "b"]
            assert stats["log"]["position"] == stats["log"]["stable"] == 1
            assert stats["counters"]["frame_ordered"] == 1
            assert b.stats()["log"]["position"] == 1

    run(test)


def test_a_fault_can_name_a_member() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c") as (a, b, c):
            a.inject("cut@c")
            b.inject("cut@c")
            await a.until(lambda view: [member.name for member in view.members] == ["a", "b"])
            await c.until(lambda view: [member.name for member in view.members] == ["c"])
            a.inject("clear")
            b.inject("clear@c")
            await c.until(lambda view: len(view.members) == 3)

    run(test)


def test_members_on_ipv6_find_each_other() -> None:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"there is no IPv6 here: {error}")

    async def test() -> None:
        a = await motet.join("test", bind="[::1]:0")
        b = await motet.join("test", bind="[::1]:0", seeds=[str(a.address.endpoint)])
        assert await (await b.multicast(b"x")).stable() == 1
        assert len(a.view.members) == 2
        for group in (a, b):
            await group.leave()

    run(test)


def test_members_can_join_at_once() -> None:
    async def test() -> None:
        first = await motet.join("test", name="a")
        seeds = [str(first.address.endpoint)]
        others = await asyncio.gather(*(motet.join("test", name=name, seeds=seeds) for name in "bc"))
        await first.until(lambda view: len(view.members) == 3)
        for group in (first, *others):
            await group.leave()

    run(test)


def test_faults_on_purpose_are_survived_and_shown() -> None:
    async def test() -> None:
        async with cluster("a", "b", "c") as groups:
            for group in groups:
                group.inject("drop=0.2")
            for number in range(40):
                await groups[number % 3].multicast(b"%d" % number)
            logs = [await take(group, 40) for group in groups]
            assert logs[0] == logs[1] == logs[2]
            assert groups[0].stats()["faults"] == ["drop=0.2"]
            assert sum(group.stats()["counters"]["fault_dropped"] for group in groups) > 0
            for group in groups:
                group.inject("clear")
            assert groups[0].stats()["faults"] == []

    run(test)


def test_members_know_where_the_others_serve_their_figures() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=motet.Config.local(admin_bind="127.0.0.1:0")) as (a, b):
            while a.stats()["peers"][0]["admin"] is None:
                await asyncio.sleep(0.01)
            (peer,) = a.stats()["peers"]
            assert (peer["member"], peer["admin"]) == (str(b.address), b.services()["admin"])

    run(test)


def test_a_snapshot_holds_every_members_state_and_one_that_cannot_be_taken_says_so_at_once() -> None:
    async def test() -> None:
        async with cluster("a", "b", state_provider=lambda: b"state", consume=False) as (a, b):
            await (await a.multicast(b"x")).stable()
            taken = await a.snapshot()
            assert taken.summary()["members"] == 2
            assert taken.state_of(b.address)
            first, second = await asyncio.gather(b.snapshot(), a.snapshot())
            assert first.summary()["members"] == second.summary()["members"] == 2

    run(test)


def test_a_member_without_events_says_so_instead_of_waiting_for_ever() -> None:
    async def test() -> None:
        async with cluster("a", consume=False) as (a,):
            with pytest.raises(MisuseError, match="consume=False"):
                a.__aiter__()
            with pytest.raises(MisuseError, match="consume=False"):
                a.batches()

    run(test)


def test_a_snapshot_waits_for_a_member_that_lacks_its_state() -> None:
    async def test() -> None:
        async with cluster("a", state_provider=lambda: b"state") as (a,):
            c = await join("c", [a], consume=False)
            eaten = asyncio.create_task(take(a, 1))
            await c.multicast(b"c has the state")
            await eaten
            d = await join("d", [a], consume=False)
            taking = asyncio.create_task(c.snapshot())
            while not a.stats()["counters"]["snapshot_abandoned"]:  # d has refused, and c has told the others
                await asyncio.sleep(0.01)
            assert not taking.done()
            eating = asyncio.create_task(take(a, 1))  # now a's application comes to giving the state
            assert (await taking).summary()["members"] == 3
            await a.multicast(b"enough")
            await eating
            await d.leave()
            await c.leave()

    run(test)


def test_a_snapshot_fails_at_once_where_a_state_provider_raises(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        def broken() -> bytes:
            raise RuntimeError("no disk")

        async with cluster("a", state_provider=lambda: b"state", consume=False) as (a,):
            b = await join("b", [a], state_provider=broken, consume=False)
            await a.until(lambda view: len(view.members) == 2)
            with pytest.raises(SnapshotError, match="the state provider raised RuntimeError: no disk"):
                await a.snapshot()
            await b.leave()

    with caplog.at_level(logging.ERROR, logger="motet"):
        run(test)
    assert "raised" in caplog.text
