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

from motet.api.events import Batch
from motet.api.group import Group
from motet.api.joining import Joining
from motet.api.receipts import Receipt
from motet.config import Config
from motet.errors import MotetError, SnapshotError
from motet.harness.demo.consistent_cut import balance
from motet.harness.demo.plan import GROUP, RATE, SETTINGS
from motet.harness.demo.tether import say
from motet.protocol.core.view import View
from motet.protocol.membership.engine import ViewInstalled
from motet.protocol.ordering import RolledBack
from motet.protocol.snapshot.export import write_files

TICK_S = 0.2
REPORT_EVERY_S = 0.4
ITEMS = (b"viol", b"lute", b"oboe", b"drum")


@dataclass(frozen=True, slots=True)
class MemberArguments:
    """What the director tells a member before it starts."""

    name: str
    incarnation: int
    bind: str
    seeds: tuple[str, ...]
    journal: str
    log_bind: str
    admin_bind: str
    parent: int

    def as_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class SentMessages:
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


class MemberProcess:
    def __init__(self, part: MemberArguments) -> None:
        self._arguments = part
        self._group: Group | None = None
        self._sent = SentMessages()
        self._received: dict[str, int] = {}  # incarnation of a sender -> highest n
        self._rolled_back = 0
        self._is_sending = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        async with self._joining() as group:
            self._group = group
            say(started=str(group.address.endpoint), services=group.services())
            chores = [asyncio.create_task(chore) for chore in (self._consume(), self._send_steadily(), self._report())]
            try:
                await self._execute_commands()
                await group.leave()
            finally:
                for chore in chores:
                    chore.cancel()
                await asyncio.gather(*chores, return_exceptions=True)
        say(left=True)

    def _joining(self) -> Joining:
        part = self._arguments
        config = Config.local(log_bind=part.log_bind, admin_bind=part.admin_bind, **SETTINGS)
        return Joining(
            GROUP,
            name=part.name,
            bind=part.bind,
            seeds=part.seeds,
            config=config,
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

    async def _consume(self) -> None:
        async for event in self.group.batches():
            if isinstance(event, Batch):
                self._on_message(event)
            elif isinstance(event, RolledBack):
                self._rolled_back += event.last - event.first + 1
            elif isinstance(event, ViewInstalled):
                say(view=_view(event.view))

    def _on_message(self, batch: Batch) -> None:
        last = json.loads(batch.payloads[-1])["n"]
        sender = f"{batch.sender.incarnation:016x}"
        self._received[sender] = max(last, self._received.get(sender, 0))

    # Speaking

    async def _send_steadily(self) -> None:
        while True:
            await self._is_sending.wait()
            await self._send(max(1, round(RATE * TICK_S)))
            await asyncio.sleep(TICK_S)

    async def _send(self, count: int) -> None:
        first = self._sent.sent + 1
        numbers = range(first, first + count)
        payloads = [self._payload(n) for n in numbers]
        receipt = await self.group.multicast_many(payloads, keys=[ITEMS[n % len(ITEMS)] for n in numbers])
        self._sent.sent += count
        settling = asyncio.create_task(self._sent.settle(receipt, first, numbers[-1]))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)

    def _payload(self, n: int) -> bytes:
        order = {"from": self._arguments.name, "incarnation": self._arguments.incarnation, "n": n, "pieces": n % 7 + 1}
        return json.dumps(order).encode()

    # Telling

    async def _report(self) -> None:
        while True:
            say(stats=self._stats())
            await asyncio.sleep(REPORT_EVERY_S)

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
            "rolled_back": self._rolled_back,
            **asdict(self._sent),
        }

    # Obeying

    async def _execute_commands(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command = json.loads(line)
            match command["do"]:
                case "start_sending":
                    self._is_sending.set()
                case "stop_sending":
                    self._is_sending.clear()
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
        state = {"sent": self._sent.sent, "received": self._received, "failed": bool(self._sent.failed)}
        return json.dumps(state).encode()


def _view(view: View) -> dict[str, Any]:
    names = [member.name for member in view.members]
    return {"number": view.id.number, "members": names, "primary": view.is_primary}


def play(given: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(MemberProcess(MemberArguments(**given)).run())
