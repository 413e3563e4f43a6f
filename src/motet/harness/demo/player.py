"""One member of the demo, in a process of its own: it speaks at a steady rate, listens, and tells how it fares.

Commands come on stdin and words go to stdout, a JSON object per line. What a speaker sent is told apart by `n`, which
counts from 1 in each life of the process; a message is *settled* when its sender knows what became of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from motet.api.events import Batch, RolledBack, ViewInstalled
from motet.api.group import Group
from motet.api.joining import Joining
from motet.api.receipts import Receipt
from motet.config import Config, Settings
from motet.errors import MotetError, SnapshotError
from motet.harness.child_link import say
from motet.harness.demo.cut import balance
from motet.harness.demo.plan import GROUP, RATE, SETTINGS
from motet.protocol.core.view import View
from motet.protocol.snapshot.export import write_files

TICK_S = 0.2
TELL_EVERY_S = 0.4
ITEMS = (b"viol", b"lute", b"oboe", b"drum")


@dataclass(frozen=True, slots=True)
class Part:
    """What the director tells a member before it starts."""

    name: str
    life: int
    bind: str
    seeds: tuple[str, ...]
    journal: str
    log_bind: str
    admin_bind: str
    parent: int

    def as_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Diary:
    """What became of the messages that this member sent."""

    sent: int = 0
    settled_to: int = 0  # the highest that is known to be stable
    open: int = 0  # sent, and its sender does not know yet
    failed: list[tuple[int, int]] = field(default_factory=list)  # its sender was told that they may not be in the log

    async def settle(self, receipt: Receipt, first: int, last: int) -> None:
        self.open += last - first + 1
        try:
            await receipt.stable()
            self.settled_to = max(self.settled_to, last)
        except MotetError:
            self.failed.append((first, last))
        finally:
            self.open -= last - first + 1


class Player:
    def __init__(self, part: Part) -> None:
        self._part = part
        self._group: Group | None = None
        self._diary = Diary()
        self._heard: dict[str, int] = {}  # incarnation of a sender -> highest n
        self._taken_back = 0
        self._speaks = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        async with self._joining() as group:
            self._group = group
            say(started=str(group.address.endpoint), services=group.services())
            chores = [asyncio.create_task(chore) for chore in (self._listen(), self._speak(), self._tell())]
            try:
                await self._obey()
                await group.leave()
            finally:
                for chore in chores:
                    chore.cancel()
                await asyncio.gather(*chores, return_exceptions=True)
        say(left=True)

    def _joining(self) -> Joining:
        part = self._part
        settings: Settings = {**SETTINGS, "log_bind": part.log_bind, "admin_bind": part.admin_bind}
        return Joining(
            GROUP,
            name=part.name,
            bind=part.bind,
            seeds=part.seeds,
            config=Config.local(**settings),
            journal=part.journal,
            replay_from=1,
            state_provider=self._state,
            wait=False,
        )

    @property
    def group(self) -> Group:
        assert self._group is not None
        return self._group

    # Listening

    async def _listen(self) -> None:
        async for event in self.group.batches():
            if isinstance(event, Batch):
                self._hear(event)
            elif isinstance(event, RolledBack):
                self._taken_back += event.last - event.first + 1
            elif isinstance(event, ViewInstalled):
                say(view=_view(event.view))

    def _hear(self, batch: Batch) -> None:
        last = json.loads(batch.payloads[-1])["n"]
        sender = f"{batch.sender.incarnation:016x}"
        self._heard[sender] = max(last, self._heard.get(sender, 0))

    # Speaking

    async def _speak(self) -> None:
        while True:
            await self._speaks.wait()
            await self._send(max(1, round(RATE * TICK_S)))
            await asyncio.sleep(TICK_S)

    async def _send(self, count: int) -> None:
        first = self._diary.sent + 1
        numbers = range(first, first + count)
        payloads = [self._payload(n) for n in numbers]
        receipt = await self.group.multicast_many(payloads, keys=[ITEMS[n % len(ITEMS)] for n in numbers])
        self._diary.sent += count
        settling = asyncio.create_task(self._diary.settle(receipt, first, numbers[-1]))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)

    def _payload(self, n: int) -> bytes:
        order = {"from": self._part.name, "life": self._part.life, "n": n, "pieces": n % 7 + 1}
        return json.dumps(order).encode()

    # Telling

    async def _tell(self) -> None:
        while True:
            say(stats=self._stats())
            await asyncio.sleep(TELL_EVERY_S)

    def _stats(self) -> dict[str, Any]:
        stats = self.group.stats()
        counters = stats["counters"]
        return {
            "view": _view(self.group.view),
            "position": stats["log"]["position"],
            "stable": stats["log"]["stable"],
            "resent": counters["frame_resent"],
            "dropped": counters["fault_dropped"],
            "faults": stats["faults"],
            "taken_back": self._taken_back,
            **asdict(self._diary),
        }

    # Obeying

    async def _obey(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command = json.loads(line)
            match command["do"]:
                case "speak":
                    self._speaks.set()
                case "hush":
                    self._speaks.clear()
                case "snapshot":
                    await self._take_snapshot(command["directory"])
                case "leave":
                    return

    async def _take_snapshot(self, directory: str) -> None:
        try:
            result = await self.group.snapshot()
        except SnapshotError as error:
            say(snapshot={"error": str(error)})
            return
        files = await asyncio.to_thread(write_files, result, directory)
        say(snapshot=result.summary() | balance(result) | {"file": str(files[0])})

    def _state(self) -> bytes:
        """What a snapshot records of this member: how much it said, and how much it heard of everybody."""
        state = {"sent": self._diary.sent, "heard": self._heard, "failed": bool(self._diary.failed)}
        return json.dumps(state).encode()


def _view(view: View) -> dict[str, Any]:
    names = [member.name for member in view.members]
    return {"number": view.id.number, "members": names, "primary": view.is_primary}


def play(given: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Player(Part(**given)).run())
