"""Members with journals are killed at random moments under load; afterwards every journal holds the same log.

python -m tests.runtime.kills --kills 50        the long form; `make test` runs a short one
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from motet.log.journal.reader import JournalReader
from motet.log.journal.verify import verify
from tests.runtime.processes import MemberProcess

CONFIG = {"journal_fsync": "always", "journal_segment_bytes": "256KiB"}
TIMEOUT_S = 300.0


class KillCampaign:
    def __init__(self, home: Path, stack: ExitStack, seed: int) -> None:
        self._home = home
        self._stack = stack
        self._rng = Random(seed)
        self._round = 0
        self._members: dict[str, MemberProcess] = {}
        self._endpoints: dict[str, str] = {}
        self._least = 0  # positions that the log has at least when it has settled
        self._stable: list[dict[str, Any]] = []  # every row that was ever stable

    def start(self, name: str) -> None:
        seeds = [place for other, place in self._endpoints.items() if other != name]
        options: dict[str, Any] = {"journal": str(self._home / name), "config": CONFIG}
        bind = self._endpoints.get(name, "127.0.0.1:0")
        member = self._stack.enter_context(MemberProcess(name, seeds, bind, **options))
        self._members[name] = member
        self._endpoints[name] = member.endpoint

    def kill_one(self) -> str:
        """Somebody dies in the middle of the others' sending, and comes back."""
        name = self._rng.choice(sorted(self._members))
        self._round += 1
        for other, member in self._members.items():
            member.send(self._rng.randrange(20, 200), f"{other}-{self._round}-")
        time.sleep(self._rng.random() * 0.3)  # the random moment
        self._members[name].kill()
        self._least = len(self._stable) + 1  # what those who live have sent is not lost, however late they get to it
        self._check(name)
        self.start(name)
        return name

    def _check(self, name: str) -> None:
        """Its journal as the crash has left it: whole but for a torn tail, and every stable row as it was."""
        verdict = verify(self._home / name)
        assert verdict.flaw is None or verdict.flaw.is_torn_tail, verdict
        self._compare(rows_of(self._home / name))

    def _compare(self, rows: list[dict[str, Any]]) -> None:
        known = {row["position"]: row for row in self._stable}
        for row in rows:
            assert known.get(row["position"], row) == row, f"a stable position changed: {row}"

    def settle(self) -> int:
        """All that was sent and can be is in all journals alike; the answer is how far the log is."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            logs = [member.report()["stats"]["log"] for member in self._members.values()]
            positions = {log["position"] for log in logs}
            is_stable = len(positions) == 1 and all(log["stable"] == log["position"] for log in logs)
            is_stable = is_stable and min(positions) >= self._least
            if is_stable and positions == {self._members_rows()}:
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"the members do not settle: {logs}")
        for name in self._members:
            assert verify(self._home / name).is_good
        rows = [rows_of(self._home / name) for name in self._members]
        assert all(other == rows[0] for other in rows[1:]), "the journals differ"
        self._compare(rows[0])
        assert len(rows[0]) >= len(self._stable), "stable positions were lost"
        self._stable = rows[0]
        self._least = len(rows[0])
        return len(rows[0])

    def _members_rows(self) -> int:
        return min(JournalReader(self._home / name).bounds().last for name in self._members)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    reader = JournalReader(directory)
    bounds = reader.bounds()
    batches = list(reader.read(bounds.first, bounds.last)) if bounds.last >= bounds.first else []
    columns = ["position", "sender", "seqno", "payload"]
    return pa.Table.from_batches(batches).select(columns).to_pylist() if batches else []


def run(kills: int, seed: int, *, tells: bool = False) -> int:
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        campaign = KillCampaign(Path(home), stack, seed)
        for name in "abc":
            campaign.start(name)
        for number in range(kills):
            name = campaign.kill_one()
            rows = campaign.settle()
            if tells:
                sys.stderr.write(f"kill {number + 1} of {kills}: {name} came back, {rows} rows in all three journals\n")
        return campaign.settle()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = run(arguments.kills, arguments.seed, tells=True)
    sys.stdout.write(
        f"{arguments.kills} kills, {rows} rows, every journal verified and equal, no stable position lost or changed\n"
    )
