"""Lives of a journal drawn from a seed, against a list in memory.

Whatever happens, it is a prefix of what was appended, holds all that was reported, and forgets no attempted view.
"""

from pathlib import Path
from random import Random

import pytest

from motet.errors import JournalError
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.reader import JournalReader
from motet.log.journal.verify import verify
from motet.protocol.membership.primary import PrimaryRecord
from motet.sim.world.disk import SimDisk
from tests.log.journal.factory import GROUP, A, B, C, Scribe, begun, view_of

HERE = Path("/journal")
STEPS = 40


class Life:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.config = JournalConfig(
            fsync=Fsync.ALWAYS,
            segment_bytes=4096,
            index_bytes=1024,
            retention_bytes=self.rng.choice([0, 0, 12_000]),
        )
        self.disk = SimDisk()
        self.journal, self.scribe = begun(HERE, self.config, self.disk)
        self.rows: dict[int, bytes] = {}  # what is at each position, as of the last append there
        self.base = 0  # the log begins behind it
        self.reported = 0
        self.number = 1
        self.record = self.journal.record

    def run(self) -> None:
        acts = [self.append] * 6 + [self.large, self.enter, self.sync, self.sync, self.stable, self.truncate]
        acts += [
            self.crash,
            self.power_cut,
            self.bad_power_cut,
            self.reopen,
            self.remember,
            self.restart_at,
            self.check,
        ]
        for _ in range(STEPS):
            self.rng.choice(acts)()
        self.check()
        self.journal.close()
        assert verify(HERE, self.disk).is_good

    # Acts

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            messages = [self.rng.randbytes(self.rng.randrange(60)) for _ in range(self.rng.randrange(1, 8))]
            entry = self.scribe.packed(*messages, sender=self.rng.choice(self.scribe.view.members), tag=self._tag())
            self.journal.append([entry])
            self._note(entry.position, messages)

    def large(self) -> None:
        message = self.rng.randbytes(self.rng.randrange(100, 3000))
        sender = self.rng.choice(self.scribe.view.members)
        entries = [self.scribe.fragment(message, at, 400, sender) for at in range(0, len(message), 400)]
        cut = self.rng.choice([len(entries), len(entries), len(entries) - 1])
        if cut < len(entries):
            self.scribe.position -= 1  # the last fragment never comes; a view follows
        self.journal.append(entries[:cut])
        if cut < len(entries):
            self.enter()
        else:
            self._note(entries[-1].position, [message])

    def enter(self) -> None:
        self.number += 1
        self.scribe.enter(self.journal, view_of(self.number, *self.rng.sample([A, B, C], self.rng.randint(1, 3))))

    def sync(self) -> None:
        self.reported = self.journal.sync()
        assert self.reported == self.journal.position

    def stable(self) -> None:
        self.journal.mark_stable(self.rng.randint(0, self.reported))

    def truncate(self) -> None:
        position, stable = self.rng.randint(0, self.journal.position + 2), self.journal.stable
        if position < stable:
            with pytest.raises(JournalError, match="never rolled back"):
                self.journal.truncate(position)
            return
        end = self.journal.truncate(position)
        assert stable <= end == self.journal.position
        self.reported = min(self.reported, end)
        self._resume()

    def restart_at(self) -> None:
        if self.rng.random() < 0.7:
            return
        self.base = self.journal.position + self.rng.randrange(1000)
        self.journal.restart_at(self.base, self.rng.randbytes(16))
        self.reported = self.base
        self._resume()

    def remember(self) -> None:
        self.record = PrimaryRecord(attempts=(view_of(self.rng.randrange(1, 1000)),))
        self.journal.remember(self.record)

    def crash(self) -> None:
        self._restart(self.disk.after_crash())

    def power_cut(self) -> None:
        self._restart(self.disk.after_power_cut(self.rng.randint(0, self.disk.pending_steps)))

    def bad_power_cut(self) -> None:
        self._restart(self.disk.after_bad_power_cut(self.rng))

    def reopen(self) -> None:
        self.journal.close()
        position, chain = self.journal.position, self.journal.chain
        self._restart(self.disk)
        assert (self.journal.position, self.journal.chain) == (position, chain)
        assert not self.journal.recovery.truncated_bytes

    def check(self) -> None:
        reader = JournalReader(HERE, self.disk)
        bounds = reader.bounds()
        journal = self.journal
        assert (bounds.first, bounds.last, bounds.stable) == (journal.first, journal.position, journal.stable)
        first = self.rng.randint(bounds.first, max(bounds.first, bounds.last))
        rows = [row for batch in reader.read(first, bounds.last, 9) for row in batch.column("payload").to_pylist()]
        assert rows == [self.rows[position] for position in range(first, bounds.last + 1)]
        assert journal.chain_at(journal.position) == journal.chain

    # Inside

    def _note(self, position: int, messages: list[bytes]) -> None:
        for offset, message in enumerate(messages):
            self.rows[position + offset] = message

    def _tag(self) -> tuple[int, int] | None:
        return (self.rng.randrange(5), self.scribe.position) if self.rng.random() < 0.2 else None

    def _restart(self, disk: SimDisk) -> None:
        self.disk = disk
        self.journal = Journal.open(HERE, GROUP, self.config, disk)
        assert self.journal.position >= self.reported
        assert self.journal.record == self.record
        self.reported = self.journal.position
        self._resume()

    def _resume(self) -> None:
        view = self.journal.view
        self.scribe = Scribe(self.journal.position, view if view is not None else self.scribe.view)
        self.number = max(self.number, self.journal.epoch.number)
        if view is None:
            self.enter()


@pytest.mark.parametrize("seed", range(60))
def test_a_life_drawn_from_a_seed(seed: int) -> None:
    Life(seed).run()
