"""A child process of the demo: commands go to its stdin, and messages come from its stdout, one JSON object per line.

Each child runs in its own session, so that Ctrl-C on the terminal reaches only the director, which then ends all of
them. A child also ends by itself when the director is gone (child_link.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from motet.harness.demo.status import DemoError

ProcessMessage = dict[str, Any]
MOST_LINE = 16 << 20
LAST_LINES = 8
GRACE_S = 30.0


class ChildProcess:
    def __init__(
        self, name: str, log: Path, on_message: Callable[[ProcessMessage], None], on_death: Callable[[DemoError], None]
    ) -> None:
        self.name = name
        self.may_end = False  # its end is intended: it was asked to leave, or killed on purpose
        self._log = log
        self._on_message = on_message
        self._on_death = on_death
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: list[tuple[str, asyncio.Future[ProcessMessage]]] = []
        self._reason = ""  # the reason of its failure, if it reported one

    async def start(self, role: str, argument: str, environment: dict[str, str]) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "motet.harness.demo", role, argument),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                limit=MOST_LINE,
            )
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with contextlib.suppress(ValueError):  # other output, as of a library, is ignored
                self._dispatch(json.loads(line))
        with contextlib.suppress(TimeoutError):  # its stdout is closed, so it is about to exit
            async with asyncio.timeout(GRACE_S):
                await self._process.wait()
        death = DemoError(self.last_lines(), self._log)
        if not self.may_end:
            self._on_death(death)
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(death)

    def _dispatch(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        self._on_message(message)
        self._reason = message.get("failed", self._reason)
        for key, future in self._waiting:
            if key in message and not future.done():
                future.set_result(message)
        self._waiting = [(key, future) for key, future in self._waiting if not future.done()]

    # Commands

    def say(self, **command: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # the reading task handles its exit
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def receive(self, answer: str) -> ProcessMessage:
        """The next message that has this field. The deadline of the act bounds the wait."""
        future: asyncio.Future[ProcessMessage] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, future))
        return await future

    async def ask(self, answer: str, **command: Any) -> ProcessMessage:
        self.say(**command)
        return await self.receive(answer)

    # Termination

    def kill(self) -> None:
        """Send SIGKILL to the process and to all processes in its session."""
        self.may_end = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Wait for the process to exit; kill it if it does not exit within GRACE_S."""
        if self._process is None or self._reading is None:
            return
        try:
            async with asyncio.timeout(GRACE_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._reading

    def last_lines(self) -> str:
        if self._reason:
            return f"{self.name} gave up: {self._reason}"
        code = self._process.returncode if self._process is not None else None
        try:
            lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        except OSError:
            lines = []
        said = "\n  ".join(["", *lines]) if lines else " It wrote nothing."
        return f"{self.name} ended unexpectedly (exit code {code}). Its last lines:{said}"
