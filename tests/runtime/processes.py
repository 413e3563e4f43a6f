"""The test's end of `process.py`: start, command, kill, and wait for what a process says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

CHILD = Path(__file__).with_name("process.py")
TIMEOUT_S = 120.0  # a bound for a test that hangs, not a measure of anything


class MemberProcess:
    def __init__(
        self, name: str, seeds: list[str], bind: str = "127.0.0.1:0", *, prefix: Sequence[str] = (), **options: Any
    ) -> None:
        """`prefix` is a command that runs another one, such as `ip netns exec`."""
        self.name = name
        self.words: list[dict[str, Any]] = []
        arguments = [name, bind, json.dumps(seeds), json.dumps(options)]
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(CHILD), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._heard = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        started = self.expect(lambda word: "started" in word)
        self.endpoint: str = started["started"]
        self.services: dict[str, str] = started["services"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self.words.append(json.loads(line))
                self._heard.notify_all()
        with self._heard:
            self._is_over = True
            self._heard.notify_all()

    def expect(self, is_wanted: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """The first word from number `since` on that is wanted."""
        deadline = time.monotonic() + TIMEOUT_S
        with self._heard:
            while True:
                for word in self.words[since:]:
                    if is_wanted(word):
                        return word
                if self._is_over or not self._heard.wait(max(0, deadline - time.monotonic())):
                    raise AssertionError(f"{self.name} never said what was expected; its words: {self.words[-5:]}")

    def say(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def ask(self, answer: str, **command: Any) -> dict[str, Any]:
        since = len(self.words)
        self.say(**command)
        return self.expect(lambda word: answer in word, since)

    def report(self) -> dict[str, Any]:
        return self.ask("log", do="report")

    def stats(self) -> dict[str, Any]:
        told: dict[str, Any] = self.ask("stats", do="stats")["stats"]
        return told

    def send(self, count: int, prefix: str) -> None:
        self.say(do="send", count=count, prefix=prefix)

    def fault(self, rule: str) -> None:
        self.ask("fault", do="fault", rule=rule)

    def until_view(self, names: set[str], since: int = 0) -> None:
        self.expect(lambda word: set(word.get("view", ())) == names, since)

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._end()

    def leave(self) -> None:
        self.say(do="leave")
        self._end()

    def _end(self) -> None:
        self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> MemberProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.kill()


def until_all_have(processes: list[MemberProcess], count: int) -> list[list[Any]]:
    """Their logs, when each has at least so many entries."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        logs = [process.report()["log"] for process in processes]
        if all(len(log) >= count for log in logs):
            return logs
        assert time.monotonic() < deadline, f"they have {[len(log) for log in logs]} of {count} messages"
        time.sleep(0.05)
