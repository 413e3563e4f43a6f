"""Journals that look like those of real groups, made in a moment: for tests, examples and measurements.

The same arguments give the same bytes. Several senders take turns; the view changes now and then; frames are full, as
they are under load. All members of one group get the same log, so journals written for different `member`s agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from motet.log.journal.config import Fsync, JournalConfig
from motet.log.journal.records import Entry
from motet.log.journal.writer import Journal
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MICROSECOND, SECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.wire.body import FRAGMENT_HEADER, HEADER, Port, fragment, pack

NAMES = ("alice", "bob", "carol", "dave", "eve", "frank", "grace", "heidi")
START = 1_767_225_600 * SECOND  # 2026-01-01 00:00 UTC
_BATCH = 64  # frames of one append
_VARIETY = 1 << 20  # texts to fill payloads with, so that files of neighbours do not shrink as no real ones would
_STRIDE = 7_919
_LETTERS = bytes(97 + byte % 26 for byte in range(256))


def members_of(count: int, seed: int = 0) -> tuple[Address, ...]:
    rng = Random(seed)
    names = [NAMES[at % len(NAMES)] + (str(at // len(NAMES)) if at >= len(NAMES) else "") for at in range(count)]
    return tuple(Address.draw(name, "127.0.0.1", 7800 + at, rng) for at, name in enumerate(names))


def write_journal(
    directory: str | Path,
    group: str,
    rows: int,
    *,
    payload_bytes: int | tuple[int, int] = 100,
    keys: int = 0,
    senders: int = 3,
    views: int = 2,
    frame_bytes: int = 60_000,
    large_messages: int = 0,
    member: int = 0,
    seed: int = 0,
    stable: int | None = None,
    rows_per_second: int = 1_000_000,
    config: JournalConfig | None = None,
) -> Journal:
    """Write `rows` messages into a new journal and close it; what comes back tells its position, chain and so on.

    A payload begins with its position, in 8 digits; text follows that no neighbour has. `payload_bytes` is a length, or
    the smallest and the largest. With `keys` messages have one of so many keys. `large_messages` of them need several
    frames. `stable` is the stable position; without it, all is.
    """
    journal = Journal.open(directory, group, config or JournalConfig(fsync=Fsync.NEVER))
    world = _World(members_of(senders, seed), payload_bytes, keys, frame_bytes, seed, SECOND // rows_per_second)
    with journal:
        journal.begin(world.members[member])
        large = {rows * (at + 1) // (large_messages + 1) for at in range(large_messages)}
        for number, count in enumerate(_shares(rows, views), start=1):
            _enter(journal, world, number, member)
            for batch in world.frames(journal.position, count, large, member):
                journal.append(batch)
        journal.mark_stable(journal.position if stable is None else stable)
    return journal


def _shares(rows: int, views: int) -> list[int]:
    return [rows // views + (1 if at < rows % views else 0) for at in range(views)]


def _enter(journal: Journal, world: _World, number: int, member: int) -> None:
    """Every other view misses its last member, if there are enough: somebody left, and came back."""
    members = world.members if number % 2 or len(world.members) < 3 else world.members[:-1]
    view = View(ViewId(number, members[0].incarnation), members, is_primary=True)
    journal.remember(PrimaryRecord(view))
    world.view, world.seqnos = view, {}
    journal.enter_view(view, view.id, journal.position, (), world.clock(journal.position, member))


class _World:
    def __init__(
        self,
        members: tuple[Address, ...],
        payload_bytes: int | tuple[int, int],
        keys: int,
        frame_bytes: int,
        seed: int,
        ns_per_row: int,
    ) -> None:
        self.members = members
        self.view: View | None = None
        self.seqnos: dict[Address, int] = {}
        self._smallest, self._largest = (
            payload_bytes if isinstance(payload_bytes, tuple) else (payload_bytes, payload_bytes)
        )
        self._keys = [b"key-%d" % at for at in range(keys)]
        self._frame_bytes = frame_bytes
        self._rng = Random(seed + 1)
        self._filling = self._rng.randbytes(self._largest + _VARIETY).translate(_LETTERS)
        self._ns_per_row = ns_per_row

    def clock(self, row: int, member: int) -> int:
        """When a row was delivered at a member; each is a little later than the one before it in the view."""
        return START + row * self._ns_per_row + member * 40 * MICROSECOND

    def frames(self, position: int, rows: int, large: set[int], member: int) -> Iterator[list[Entry]]:
        batch: list[Entry] = []
        end = position + rows
        while position < end:
            sender = self._sender(position)
            ahead = min((row - 1 - position for row in large if row > position + 1), default=rows)
            count = min(end - position, ahead, max(1, self._per_frame()))
            if position + 1 in large:
                batch += self._large(sender, position + 1, member)
                count = 1
            else:
                messages = self._messages(position, count)
                body = pack(messages, Port.KEYED if self._keys else Port.APP)
                batch.append(self._entry(sender, position + 1, count, body, member))
            position += count
            if len(batch) >= _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def _sender(self, position: int) -> Address:
        assert self.view is not None
        return self.view.members[self._rng.randrange(len(self.view.members))]

    def _per_frame(self) -> int:
        size = 4 + (self._smallest + self._largest) // 2 + (len(self._keys[0]) + 2 if self._keys else 0)
        full = (self._frame_bytes - HEADER.size) // size
        return full if self._rng.random() < 0.9 else self._rng.randint(1, max(1, full))

    def _messages(self, position: int, count: int) -> list[bytes]:
        if self._smallest == self._largest:
            sizes = [self._largest] * count
        else:
            sizes = self._rng.choices(range(self._smallest, self._largest + 1), k=count)
        filling, first = self._filling, position + 1
        plain = [
            (b"%08d" % row + filling[(start := row * _STRIDE % _VARIETY) : start + size])[:size]
            for row, size in enumerate(sizes, first)
        ]
        if not self._keys:
            return plain
        prefixes = [len(key).to_bytes(2, "little") + key for key in self._keys]
        return [prefix + text for prefix, text in zip(self._rng.choices(prefixes, k=count), plain, strict=True)]

    def _large(self, sender: Address, position: int, member: int) -> list[Entry]:
        message = (b"%08d" % position) + self._filling[:1] * (3 * self._frame_bytes)
        if self._keys:
            message = len(self._keys[0]).to_bytes(2, "little") + self._keys[0] + message
        chunk = self._frame_bytes - FRAGMENT_HEADER.size
        starts = range(0, len(message), chunk)
        port = Port.KEYED if self._keys else Port.APP
        bodies = [fragment(message, start, chunk, port) for start in starts]
        return [self._entry(sender, position, int(body is bodies[-1]), body, member) for body in bodies]

    def _entry(self, sender: Address, position: int, count: int, body: bytes, member: int) -> Entry:
        assert self.view is not None
        self.seqnos[sender] = seqno = self.seqnos.get(sender, 0) + 1
        sent_at = START + position * self._ns_per_row - 300 * MICROSECOND
        delivered_at = self.clock(position, member)
        return Entry(position, count, sender, seqno, sent_at, delivered_at, self.view.id, None, body)
