"""One member of the demo in its own process: it sends at a steady rate, delivers, and reports its status.

Commands arrive on stdin and messages go to stdout, one JSON object per line. The messages of a sender are numbered by
`n` from 1 in each incarnation. A message is *settled* when its sender knows that it is stable or that it failed.
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
from motet.harness.demo.consistent_cut import balance
from motet.harness.demo.plan import GROUP, RATE, SETTINGS
from motet.protocol.core.view import View
from motet.protocol.snapshot.export import write_files

TICK_S = 0.2
REPORT_EVERY_S = 0.4
ITEMS = (b"viol", b"lute", b"oboe", b"drum")


@dataclass(frozen=True, slots=True)
class MemberArguments:
    """The arguments of a member, which the director passes on the command line."""

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
    """The fate of the messages that this member sent."""

    sent: int = 0
    settled_to: int = 0  # the highest number that is known to be stable
    open: int = 0  # messages that are sent and not settled
    # Ranges reported as failed, which may be missing in the log.
    failed: list[tuple[int, int]] = field(default_factory=list)

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
    def __init__(self, arguments: MemberArguments) -> None:
        self._arguments = arguments
        self._group: Group | None = None
        self._sent = SentMessages()
        self._received: dict[str, int] = {}  # the highest n by incarnation of the sender
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
        given = self._arguments
        settings: Settings = {**SETTINGS, "log_bind": given.log_bind, "admin_bind": given.admin_bind}
        return Joining(
            GROUP,
            name=given.name,
            bind=given.bind,
            seeds=given.seeds,
            config=Config.local(**settings),
            journal=given.journal,
            replay_from=1,
            state_provider=self._state,
            wait=False,
        )

    @property
    def group(self) -> Group:
        assert self._group is not None
        return self._group

    # Delivery

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

    # Sending

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

    # Reports

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

    # Commands

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
        """The state for a snapshot: how many messages it sent, and the highest received number of each sender."""
        state = {"sent": self._sent.sent, "received": self._received, "failed": bool(self._sent.failed)}
        return json.dumps(state).encode()


def _view(view: View) -> dict[str, Any]:
    names = [member.name for member in view.members]
    return {"number": view.id.number, "members": names, "primary": view.is_primary}


def run_member(given: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(MemberProcess(MemberArguments(**given)).run())
