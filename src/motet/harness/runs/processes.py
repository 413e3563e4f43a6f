"""The members of a run, seen from whoever started them: commands go in, words come out, and none outlives the run.

Each runs in a session of its own, so that Ctrl-C on the terminal reaches the run alone, which then ends them all; and
each ends by itself when the run is gone (tether.py). What a member writes to its error stream goes into a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from motet.errors import MotetError
from motet.harness.runs.member_process import FAILED
from motet.harness.runs.work import START_S, RunPlan, Work, name_of

MOST_LINE = 16 << 20
LAST_LINES = 10
ProcessMessage = dict[str, Any]


class RunFailedError(MotetError):
    """A run could not be brought to its end."""


class RunMember:
    """One process."""

    def __init__(self, work: Work, log: Path, changed: asyncio.Event) -> None:
        self.index = work.index
        self.name = name_of(work.index)
        self.messages: ProcessMessage = {}  # the last one of each kind
        self.was_killed = False  # on purpose
        self._work = work
        self._log = log
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "motet.harness.runs", str(os.getpid()), self._work.to_json()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                limit=MOST_LINE,
            )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with contextlib.suppress(ValueError):  # whatever a library prints is not for us
                self.messages |= json.loads(line)
            self._changed.set()
        await self._process.wait()
        self._changed.set()

    @property
    def status(self) -> ProcessMessage:
        return dict(self.messages.get("status", {}))

    @property
    def end(self) -> str | None:
        """How it ended, if it was not meant to; None while it lives."""
        code = self._process.returncode if self._process is not None else None
        if "error" in self.messages:
            return f"{self.name} stopped: {self.messages['error']}"
        if code is None or self.was_killed:
            return None
        if code < 0:
            return f"{self.name} died of {signal.Signals(-code).name}"
        return f"{self.name} ended with exit code {code}" + (" and said nothing" if code == FAILED else "")

    def say(self, **command: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # its end is noticed where its words are read
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    def kill(self) -> None:
        """As `kill -9` does, and on purpose."""
        self.was_killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def finish(self, *, at_once: bool) -> None:
        """The end of its input is the end of a member; if that takes too long, or there is no time, it is killed."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not at_once:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()
        if self._reading is not None:
            await self._reading

    def last_lines(self) -> list[str]:
        """What it wrote to its error stream."""
        with contextlib.suppress(OSError):
            return self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return []


class RunProcesses:
    """All processes of one run, in a directory that is gone afterwards unless somebody keeps it."""

    def __init__(self, plan: RunPlan, journals: Path | None = None, *, keeps_journals: bool = False) -> None:
        self.plan = plan
        self.directory = Path(tempfile.mkdtemp(prefix="motet-run-"))
        self.members: list[RunMember] = []
        self.keeps = False  # the directory stays: something is to be looked into
        self.journals = journals or (self.directory if keeps_journals else None)
        self._changed = asyncio.Event()
        self._is_over = False

    async def __aenter__(self) -> RunProcesses:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever happens, even a second interruption, no process and no directory is left."""
        ending = asyncio.ensure_future(self._end(at_once=kind is not None))
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)

    async def _end(self, *, at_once: bool) -> None:
        await asyncio.gather(*(member.finish(at_once=at_once) for member in self.members), return_exceptions=True)
        if not self.keeps:
            shutil.rmtree(self.directory, ignore_errors=True)

    # The beginning

    async def gather(self) -> None:
        """Start all of them, and wait until they are in one view."""
        await self._start(0, ())
        await self.until(lambda: "endpoint" in self.members[0].messages, START_S, "its first member to start")
        seeds = (str(self.members[0].messages["endpoint"]),)
        await asyncio.gather(*(self._start(index, seeds) for index in range(1, self.plan.members)))
        limit = START_S + 2 * self.plan.members
        await self.until(lambda: all("ready" in one.messages for one in self.members), limit, "all members in one view")

    async def _start(self, index: int, seeds: Sequence[str]) -> None:
        plan = self.plan
        work = Work(
            index,
            plan.members,
            plan.share_of(index),
            plan.size,
            plan.order,
            str(self.directory),
            tuple(seeds),
            plan.settings,
            str(self.journals / f"member-{index}") if self.journals is not None else None,
            plan.snapshot_after if index == 0 else 0,
        )
        member = RunMember(work, self.directory / f"{name_of(index)}.log", self._changed)
        self.members.append(member)
        self.members.sort(key=lambda one: one.index)
        await member.start()

    # Words

    @property
    def alive(self) -> list[RunMember]:
        return [member for member in self.members if not member.was_killed and member.end is None]

    def send(self, members: Sequence[RunMember], **command: Any) -> None:
        for member in members:
            member.say(**command)

    async def inject(self, members: Sequence[RunMember], *rules: str) -> None:
        for rule in rules:
            self.send(members, do="inject", rule=rule)
            injected = lambda rule=rule: all(one.messages.get("injected") == rule for one in members)  # noqa: E731
            await self.until(injected, START_S, f"the fault {rule}")

    async def until(
        self, is_so: Callable[[], bool], seconds: float | None, what: str, *, fails_on_exit: bool = True
    ) -> None:
        """Wait for something that members say; one that ends unasked ends the run, unless told otherwise."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._changed.clear()
                    if fails_on_exit:
                        self.check()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineError(f"the run waited {seconds:.0f} s for {what}, in vain") from None

    def ends(self) -> list[str]:
        """How those ended that were not meant to."""
        return [end for member in self.members if (end := member.end) is not None]

    def check(self) -> None:
        if ends := self.ends():
            raise RunFailedError("; ".join(ends))


class DeadlineError(RunFailedError):
    """What the run waited for did not come in time."""
