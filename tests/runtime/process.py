"""A member in a process of its own, for tests: commands come on stdin, answers go to stdout, a JSON object per line.

{"do": "send", "count": 5, "prefix": "x"}   {"do": "fault", "rule": "drop=0.2"}   {"do": "leave"}
{"do": "report"}   {"do": "stats"}   {"do": "prove", "text": "x"}   {"do": "hold", "seconds": 5}

The option `slow_state` makes the state provider hold the GIL for so many seconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
from functools import partial
from typing import Any

import motet
from motet.api.group import Group
from motet.config import Config
from motet.errors import SendFailedError


def say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def hold_the_gil(seconds: float) -> None:
    """As one long C call does: no other thread of this process runs meanwhile."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def slow_state(seconds: float) -> bytes:
    say(provides=True)
    hold_the_gil(seconds)
    say(provided=True)
    return b"state"


class Process:
    def __init__(self, group: Group) -> None:
        self.group = group
        self.log: list[tuple[int, str]] = []

    async def watch(self) -> None:
        async for event in self.group:
            if isinstance(event, motet.Message) and event.position is not None:
                self.log.append((event.position, event.payload.decode()))
            elif isinstance(event, motet.RolledBack):
                self.log = [entry for entry in self.log if entry[0] < event.first]
                say(rolled_back=[event.first, event.last])
            elif isinstance(event, motet.SendFailed):
                say(failed=event.last - event.first + 1)
            elif isinstance(event, motet.ViewInstalled):
                say(view=[member.name for member in event.view.members], primary=event.view.is_primary)

    async def prove(self, text: bytes) -> int:
        """Whoever loses touch with the group while it sends is told so, and tries again."""
        while True:
            try:
                return await (await self.group.multicast(text)).stable()
            except SendFailedError:
                continue

    async def obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "send":
                for number in range(command["count"]):
                    await self.group.multicast(f"{command['prefix']}{number}".encode())
                say(sent=command["count"])
            case "fault":
                self.group.inject(command["rule"])
                say(fault=command["rule"])
            case "report":
                stats = self.group.stats()
                say(log=self.log, stats={"log": stats["log"], "memory": stats["memory_bytes"], "cpu": stats["cpu_s"]})
            case "prove":
                say(stable=await self.prove(command["text"].encode()))
            case "hold":
                say(holds=True)
                hold_the_gil(command["seconds"])
                say(held=True)
            case "stats":
                say(stats=self.group.stats())
            case "leave":
                await self.group.leave()


async def main(name: str, bind: str, seeds: list[str], options: dict[str, Any]) -> None:
    config = Config.load(None, {}, **{"preset": "local", **options.pop("config", {})})
    if seconds := options.pop("slow_state", None):
        options |= {
            "state_provider": partial(slow_state, seconds),
            "state_receiver": lambda state: say(state=len(state)),
        }
    async with motet.join("test", name=name, bind=bind, seeds=seeds, config=config, wait=False, **options) as group:
        process = Process(group)
        say(started=str(group.address.endpoint), services=group.services())
        watching = asyncio.create_task(process.watch())
        reader = asyncio.StreamReader(limit=1 << 24)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while (line := await reader.readline()) and not group.is_closed:
            await process.obey(json.loads(line))
        await group.leave()
        await watching
        say(left=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])))
