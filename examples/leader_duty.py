"""One member has a duty, and when it leaves or crashes, the next one continues where it stopped.

    python examples/leader_duty.py

The duty here: write one report after the other, each once. The leader is the oldest member of the view: all see the
same view, so there is nothing to elect. What is done stands in the log, so whoever takes over knows where to go on. A
leader that lost the group without knowing it cannot do harm: without a majority nothing that it sends is ordered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

import motet


class Worker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.done: list[tuple[int, str]] = []  # (report, who wrote it), as the log says
        self._duty: asyncio.Task[None] | None = None

    async def start(self, seeds: list[str]) -> None:
        """Join; a new member receives the reports that are done already."""
        self.group = await motet.join(
            "duty",
            name=self.name,
            seeds=seeds or None,
            state_provider=lambda: json.dumps(self.done).encode(),
            state_receiver=self._take_over,
        )
        self._task = asyncio.create_task(self._run())

    def _take_over(self, state: bytes) -> None:
        self.done = [(report, writer) for report, writer in json.loads(state)]

    async def stop(self) -> None:
        await self.group.leave()
        await self._task

    async def crash(self) -> None:
        """Crash as by kill -9: the others suspect it when its heartbeats stop."""
        await self.group.close()
        await self._task

    async def _run(self) -> None:
        async for event in self.group:
            if isinstance(event, motet.ViewInstalled):
                self._enter(event.view)
            elif isinstance(event, motet.Message):
                report = int(event.payload)
                if report == len(self.done) + 1:  # a report in flight when its leader crashed may arrive twice
                    self.done.append((report, event.sender.name))
        self._stop_duty()

    def _enter(self, view: motet.View) -> None:
        is_leader = view.is_primary and view.members[0] == self.group.address
        if is_leader and self._duty is None:
            self._duty = asyncio.create_task(self._do_duty())
        elif not is_leader:
            self._stop_duty()

    def _stop_duty(self) -> None:
        if self._duty is not None:
            self._duty.cancel()
            self._duty = None

    async def _do_duty(self) -> None:
        with contextlib.suppress(motet.MotetError):  # this member has left or is partitioned: another one continues
            while True:
                receipt = await self.group.multicast(b"%d" % (len(self.done) + 1))
                await receipt.delivered()
                await asyncio.sleep(0.01)


async def until_more(worker: Worker) -> None:
    """Until ten more reports are in the log."""
    aim = len(worker.done) + 10
    while len(worker.done) < aim:
        await asyncio.sleep(0.005)


async def main() -> None:
    ann, bob, cleo, dan = workers = [Worker(name) for name in ("ann", "bob", "cleo", "dan")]
    for number, worker in enumerate(workers):
        await worker.start([str(other.group.address.endpoint) for other in workers[:number]])

    await until_more(dan)
    print(f"ann leads, {len(dan.done)} reports are written; now it leaves")
    await ann.stop()
    await until_more(dan)
    print(f"bob leads, {len(dan.done)} reports are written; now it dies")
    await bob.crash()
    await until_more(dan)
    print(f"cleo leads, for two of three are a majority; {len(dan.done)} reports are written")
    await cleo.stop()
    await dan.stop()

    for name in ("ann", "bob", "cleo"):
        mine = [report for report, writer in dan.done if writer == name]
        print(f"{name:5} wrote reports {mine[0]} to {mine[-1]}")
    assert [report for report, _ in dan.done] == list(range(1, len(dan.done) + 1))
    print("Every report was written once.")


if __name__ == "__main__":
    asyncio.run(main())
