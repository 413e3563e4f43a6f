"""`motet node` as its users meet it: a process with lines in and lines out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

TIMEOUT_S = 120.0  # a bound for a test that hangs, not a measure of anything


class NodeProcess:
    def __init__(self, *arguments: str, stdin: IO[bytes] | None = None) -> None:
        self.out: list[str] = []
        self.errors: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "motet", "node", *arguments],
            stdin=subprocess.PIPE if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._heard = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, lines), daemon=True)
            for pipe, lines in ((self._process.stdout, self.out), (self._process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], lines: list[str]) -> None:
        for line in pipe:
            with self._heard:
                lines.append(line.rstrip("\n"))
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def expect(self, is_wanted: Callable[[str], bool], *, in_errors: bool = False) -> str:
        """The first line that is wanted, as soon as it was said."""
        lines = self.errors if in_errors else self.out
        deadline = time.monotonic() + TIMEOUT_S
        with self._heard:
            while True:
                for line in lines:
                    if is_wanted(line):
                        return line
                is_over = time.monotonic() > deadline or not any(reader.is_alive() for reader in self._readers)
                assert not is_over, f"this was never said; the last words: {self.out[-5:]}, {self.errors[-5:]}"
                self._heard.wait(1)

    def expect_line(self, line: str) -> None:
        self.expect(lambda said: said == line)

    def expect_event(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.expect(lambda line: is_wanted(json.loads(line))))
        return found

    @property
    def endpoint(self) -> str:
        return self._place("endpoint")

    @property
    def admin(self) -> str:
        return self._place("admin")

    def _place(self, name: str) -> str:
        line = self.expect(lambda said: said.startswith("started "))
        return line.rpartition(f"{name}=")[2].split()[0]

    def say(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()

    def end_of_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait(TIMEOUT_S)
        for reader in self._readers:
            reader.join(TIMEOUT_S)
        return code

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
