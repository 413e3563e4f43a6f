"""What one message costs that meets an idle group: processor time, and calls of functions. All members are in this
process, on one loop, and wait for each message before the next is sent.

    python benchmarks/single_message.py [--json]

Calls of functions do not depend on the machine, and a group that sleeps between two messages pays for each of them with
code that has to be fetched from memory again. Times stand beside those of plain sockets that pass on as many datagrams
on the same loop, in rounds that take turns; the best round of each counts.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass

import motet
from motet.api.events import Batch, BatchEvent
from motet.api.group import Group, Order

MESSAGE = bytes(100)
ROUNDS = 15
MESSAGES = 300  # in a round
TimedOperation = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class OperationCost:
    what: str
    members: int
    message_delays: int  # of datagrams, that one follows from the other
    calls: float  # of functions, for one message, at all members together
    microseconds: float
    plain_microseconds: float  # plain sockets, as many datagrams one after the other


async def joined(members: int) -> list[Group]:
    groups: list[Group] = []
    for name in "abc"[:members]:
        seeds = [str(groups[0].address.endpoint)] if groups else []
        joining = motet.join(
            "single", name=name, seeds=seeds, config=motet.Config.local(), thread=False, on_call=lambda _, asked: asked
        )
        groups.append(await joining)
    for group in groups:
        await group.until(lambda view: len(view.members) == members)
    await asyncio.sleep(1)  # the last words of joining
    return groups


async def taken(events: AsyncIterator[BatchEvent]) -> None:
    while not isinstance(await anext(events), Batch):
        pass


def multicast(groups: list[Group], order: Order) -> TimedOperation:
    streams = [group.batches() for group in groups]

    async def operation() -> None:
        await groups[1].multicast(MESSAGE, order=order)
        for stream in streams:
            await taken(stream)

    return operation


def call(groups: list[Group]) -> TimedOperation:
    async def operation() -> None:
        await groups[1].call(groups[0].address, MESSAGE)

    return operation


def plain(message_delays: int) -> TimedOperation:
    """A datagram to and fro between two sockets."""
    loop, ends = asyncio.get_running_loop(), [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for end in ends:
        end.bind(("127.0.0.1", 0))
        end.setblocking(False)
    places = [end.getsockname() for end in ends]
    left, arrived = 0, loop.create_future()

    def pass_on(index: int) -> None:
        nonlocal left
        datagram = ends[index].recv(65_535)
        left -= 1
        if left:
            ends[index].sendto(datagram, places[1 - index])
        else:
            arrived.set_result(None)

    for index, end in enumerate(ends):
        loop.add_reader(end.fileno(), pass_on, index)

    async def operation() -> None:
        nonlocal left, arrived
        left, arrived = message_delays, loop.create_future()
        ends[0].sendto(MESSAGE, places[1])
        await arrived

    return operation


async def spent(operation: TimedOperation) -> float:
    """Microseconds of processor time for one."""
    begin = time.process_time()
    for _ in range(MESSAGES):
        await operation()
    return (time.process_time() - begin) / MESSAGES * 1e6


async def calls(operation: TimedOperation) -> float:
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(MESSAGES):
        await operation()
    profile.disable()
    return float(pstats.Stats(profile).total_calls) / MESSAGES  # type: ignore[attr-defined]


async def measure(what: str, members: int, message_delays: int, datagrams: int) -> OperationCost:
    groups = await joined(members)
    operation = call(groups) if what == "call" else multicast(groups, "total" if what == "total" else "fifo")
    beside = plain(datagrams)
    await spent(operation)  # warm
    rounds = [(await spent(operation), await spent(beside)) for _ in range(ROUNDS)]
    cost = OperationCost(
        what, members, message_delays, await calls(operation), min(r[0] for r in rounds), min(r[1] for r in rounds)
    )
    for group in reversed(groups):
        await group.leave()
    return cost


async def main() -> None:
    costs = [await measure("fifo", 3, 1, 2), await measure("total", 3, 2, 6), await measure("call", 2, 2, 2)]
    if "--json" in sys.argv[1:]:
        print(json.dumps([asdict(cost) for cost in costs], indent=2))
        return
    print("| one message | members | journeys | calls of functions | µs | plain sockets, µs | ratio |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for cost in costs:
        figures = f"{cost.calls:.0f} | {cost.microseconds:.0f} | {cost.plain_microseconds:.0f}"
        ratio = cost.microseconds / cost.plain_microseconds
        print(f"| {cost.what} | {cost.members} | {cost.message_delays} | {figures} | {ratio:.1f} |")


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
