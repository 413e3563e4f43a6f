"""Members with journals that lose a tenth of all datagrams: they are killed, restarted, stopped; the log must go on.

python -m tests.runtime.stalls --rounds 20 --seed 1 [--competitors 2]

A round: one member sends thousands of messages, another is killed and comes back with its journal, any are stopped for
a while. When nothing is done to them any more, a message of every member must become stable at all of them.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from motet.log.journal.reader import JournalReader
from motet.log.journal.verify import verify
from tests.runtime.processes import MemberProcess

TIMEOUT_S = 60.0


class Trial:
    def __init__(self, home: Path, stack: ExitStack, seed: int, drop: float, names: str) -> None:
        self._home = home
        self._stack = stack
        self._rng = Random(seed)
        self._drop = drop
        self._members: dict[str, MemberProcess] = {}
        self._endpoints: dict[str, str] = {}
        self._since: dict[str, int] = {}  # words of each that were said in earlier rounds
        self._round = 0
        self._sent = 0
        for name in names:
            self._start(name)

    def _start(self, name: str) -> None:
        seeds = [place for other, place in self._endpoints.items() if other != name]
        bind = self._endpoints.get(name, "127.0.0.1:0")
        member = self._stack.enter_context(MemberProcess(name, seeds, bind, journal=str(self._home / name)))
        member.fault(f"drop={self._drop}")
        self._members[name] = member
        self._since[name] = 0
        self._endpoints[name] = member.endpoint

    def play(self, rows: int) -> None:
        """One round of trouble."""
        self._round += 1
        self._since = {name: len(member.words) for name, member in self._members.items()}
        *others, sender = self._members
        self._sent += rows
        self._members[sender].send(rows, f"{self._round}-" + "x" * 80)
        victim = self._rng.choice(others)
        for _ in range(self._rng.randrange(3)):
            self._stop_for_a_while()
        self._members[victim].kill()
        verify(self._home / victim)
        self._start(victim)
        for _ in range(self._rng.randrange(3)):
            self._stop_for_a_while()

    def _stop_for_a_while(self) -> None:
        process = self._rng.choice(list(self._members.values()))
        process.signal(signal.SIGSTOP)
        time.sleep(self._rng.choice((0.1, 0.5, 1.0, 3.0)) * self._rng.random())
        process.signal(signal.SIGCONT)

    def settle(self) -> int:
        """A message of every member gets through to all, and all agree on how far the log is; so do their journals."""
        for name, member in self._members.items():
            member.say(do="prove", text=f"{name}-{self._round}")
        began, logs = time.monotonic(), []
        for member in self._members.values():
            try:
                member.expect(lambda word: "stable" in word, self._since[member.name])
            except AssertionError as error:
                raise AssertionError(f"the log stands still for {member.name}\n{self._look()}") from error
        while time.monotonic() < began + TIMEOUT_S:
            logs = [member.stats()["log"] for member in self._members.values()]
            positions = {log["position"] for log in logs} | self._in_journals()
            if len(positions) == 1 and all(log["stable"] == log["position"] for log in logs):
                self._check_nothing_is_lost(position := int(positions.pop()))
                return position
            time.sleep(0.1)
        raise AssertionError(f"the members do not agree: {logs} {self._in_journals()}\n{self._look()}")

    def _in_journals(self) -> set[int]:
        return {JournalReader(self._home / name).bounds().last for name in self._members}

    def _check_nothing_is_lost(self, position: int) -> None:
        """What is not in the log was said to have failed."""
        told = f"{self._sent} were sent, {self.failed} failed, the log ends at {position}"
        assert position + self.failed >= self._sent, told

    @property
    def failed(self) -> int:
        sender = list(self._members.values())[-1]
        return sum(word["failed"] for word in sender.words if "failed" in word)

    def _look(self) -> str:
        return "\n".join(json.dumps(member.stats(), indent=1) for member in self._members.values())


def run(rounds: int, rows: int, seed: int, *, drop: float = 0.1, names: str = "abc", tells: bool = False) -> int:
    position = 0
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        trial = Trial(Path(home), stack, seed, drop, names)
        for number in range(rounds):
            trial.play(rows)
            began = time.monotonic()
            position = trial.settle()
            if tells:
                took = time.monotonic() - began
                text = f"round {number + 1} of {rounds}: the log is at {position}, settled in {took:.1f} s"
                sys.stderr.write(f"{text}; {trial.failed} failed so far\n")
    return position


def compete(stack: ExitStack, count: int) -> None:
    for _ in range(count):
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        stack.callback(lambda busy=busy: (busy.kill(), busy.wait()))  # type: ignore[misc]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=7_500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--members", default="abc")
    parser.add_argument("--competitors", type=int, default=0, help="processes that only burn time")
    arguments = parser.parse_args()
    with ExitStack() as everything:
        compete(everything, arguments.competitors)
        end = run(
            arguments.rounds, arguments.rows, arguments.seed, drop=arguments.drop, names=arguments.members, tells=True
        )
    sys.stdout.write(f"{arguments.rounds} rounds, the log went on to {end}\n")
