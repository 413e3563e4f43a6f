"""The processes of a run: commands go to their stdin, messages come from their stdout, and none outlives the run.

Each process runs in its own session, so that Ctrl-C on the terminal reaches only the run, which then ends all of them.
A process also ends by itself when the run is gone (child_link.py). Its stderr goes to a file.
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
    """A run could not be completed."""


class RunMember:
    """One member process of a run."""

    def __init__(self, work: Work, log: Path, changed: asyncio.Event) -> None:
        self.index = work.index
        self.name = name_of(work.index)
        self.messages: ProcessMessage = {}  # the last message of each kind
        self.was_killed = False  # whether it was killed on purpose
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
            with contextlib.suppress(ValueError):  # other output, as of a library, is ignored
                self.messages |= json.loads(line)
            self._changed.set()
        await self._process.wait()
        self._changed.set()

    @property
    def status(self) -> ProcessMessage:
        return dict(self.messages.get("status", {}))

    @property
    def end(self) -> str | None:
        """How it ended unexpectedly; None while it runs, or if its end was intended."""
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
        with contextlib.suppress(ConnectionError):  # the reading task handles its exit
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    def kill(self) -> None:
        """Kill the process on purpose, as `kill -9` does."""
        self.was_killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def finish(self, *, at_once: bool) -> None:
        """Close its stdin, which ends the process; kill it after 10 s, or at once."""
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
        """The last lines of its stderr."""
        with contextlib.suppress(OSError):
            return self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return []


class RunProcesses:
    """All processes of one run, with a temporary directory that is removed unless `keeps` is set."""

    def __init__(self, plan: RunPlan, journals: Path | None = None, *, keeps_journals: bool = False) -> None:
        self.plan = plan
        self.directory = Path(tempfile.mkdtemp(prefix="motet-run-"))
        self.members: list[RunMember] = []
        self.keeps = False  # keep the directory for the analysis of a failure
        self.journals = journals or (self.directory if keeps_journals else None)
        self._changed = asyncio.Event()
        self._is_over = False

    async def __aenter__(self) -> RunProcesses:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave no process and no directory behind, even if the clean-up is interrupted again."""
        ending = asyncio.ensure_future(self._end(at_once=kind is not None))
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)

    async def _end(self, *, at_once: bool) -> None:
        await asyncio.gather(*(member.finish(at_once=at_once) for member in self.members), return_exceptions=True)
        if not self.keeps:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Start

    async def gather(self) -> None:
        """Start all members and wait until they are in one view."""
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

    # Messages

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
        """Wait for a condition on the messages. With `fails_on_exit`, an unexpected exit of a member fails the run."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._changed.clear()
                    if fails_on_exit:
                        self.check()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineError(f"the run waited {seconds:.0f} s for {what}, which did not happen") from None

    def ends(self) -> list[str]:
        """How members ended unexpectedly."""
        return [end for member in self.members if (end := member.end) is not None]

    def check(self) -> None:
        if ends := self.ends():
            raise RunFailedError("; ".join(ends))


class DeadlineError(RunFailedError):
    """A condition that the run waited for was not met in time."""
