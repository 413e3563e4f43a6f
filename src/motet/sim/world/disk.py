"""A simulated disk with the failures of real ones: torn writes, power cuts, lying syncs, a full disk, flipped bits.

A write is visible to readers at once, as in the page cache of an operating system, but it is durable only after a sync.
Until then it is pending. After a power cut a part of the pending changes is on the disk: either a prefix of them in
the order in which they were made (`after_power_cut`), or any subset of their sectors (`after_bad_power_cut`).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from motet.errors import JournalLockedError
from motet.log.journal.disk import Buffer

SECTOR_BYTES = 512  # the unit that a disk writes atomically


class PowerCut(BaseException):
    """The simulated machine has lost power. Not an Exception, so that no handler of the code under test swallows it."""


class _Node:
    """The content of a file, independent of the names that refer to it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.safe = bytearray()


@dataclass(frozen=True, slots=True)
class _DataWrite:
    node: _Node
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Truncation:
    node: _Node
    size: int


@dataclass(frozen=True, slots=True)
class _NameChange:
    """A directory entry was added (with a node) or removed (without one)."""

    path: Path
    node: _Node | None


_Pending = _DataWrite | _Truncation | _NameChange


class SimDisk:
    def __init__(self, capacity: int = 1 << 40, *, syncs_lie: bool = False) -> None:
        self.capacity = capacity
        self.syncs_lie = syncs_lie
        self.is_read_only = False
        self.writes = 0
        self.syncs = 0
        self.cut_power_at_write: int | None = None  # counted from 1; the power cut replaces that write
        self._names: dict[Path, _Node] = {}
        self._safe_names: dict[Path, _Node] = {}
        self._pending: list[_Pending] = []
        self._locked: set[Path] = set()

    # The interface that the journal uses

    def make_directory(self, directory: Path) -> None:
        self._require_writable()

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self._names if path.parent == directory)

    def open(self, path: Path, *, is_new: bool = False) -> SimFile:
        if is_new:
            self._change()
            self._names[path] = _Node()
            self._pending.append(_NameChange(path, self._names[path]))
        return self.open_to_read(path)

    def open_to_read(self, path: Path) -> SimFile:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return SimFile(self, self._names[path])

    def rename(self, path: Path, to: Path) -> None:
        self._change()
        node = self._names.pop(path)
        self._names[to] = node
        self._pending += [_NameChange(to, node), _NameChange(path, None)]

    def remove(self, path: Path) -> None:
        self._change()
        del self._names[path]
        self._pending.append(_NameChange(path, None))

    def sync_directory(self, directory: Path) -> None:
        self.syncs += 1
        if self.syncs_lie:
            return
        self._safe_names = dict(self._names)
        self._pending = [one for one in self._pending if not isinstance(one, _NameChange)]

    def lock(self, path: Path) -> SimLock:
        if path in self._locked:
            raise JournalLockedError(f"{path.parent} is in use: one journal has one writer")
        self._locked.add(path)
        return SimLock(self._locked, path)

    # The interface that tests use

    @property
    def pending_steps(self) -> int:
        """How many distinct states a power cut can leave: one per pending byte and per pending metadata change."""
        return sum(len(one.data) if isinstance(one, _DataWrite) else 1 for one in self._pending)

    def after_power_cut(self, units: int) -> SimDisk:
        """The disk after a restart that found only the first `units` of the pending changes."""
        disk, nodes = self._safe_copy()
        for one in self._pending:
            size = len(one.data) if isinstance(one, _DataWrite) else 1
            disk._settle(one, nodes, min(units, size))
            units -= min(units, size)
        return disk._restarted()

    def after_bad_power_cut(self, rng: Random) -> SimDisk:
        """The disk after a restart that found any subset of the pending sectors; directory changes survive as a
        prefix.
        """
        disk, nodes = self._safe_copy()
        kept_names = rng.randint(0, sum(isinstance(one, _NameChange) for one in self._pending))
        for one in self._pending:
            if isinstance(one, _DataWrite):
                disk._settle_sectors(one, nodes, rng)
            elif isinstance(one, _NameChange):
                disk._settle(one, nodes, int(kept_names > 0))
                kept_names -= 1
            else:
                disk._settle(one, nodes, rng.randint(0, 1))
        return disk._restarted()

    def after_crash(self) -> SimDisk:
        """The disk after the process crashed alone: the operating system still holds every pending write."""
        return self.after_power_cut(self.pending_steps)

    def flip(self, path: Path, bit: int) -> None:
        """Flip one bit of a file, in its durable and in its visible content."""
        for data in (self._names[path].data, self._names[path].safe):
            if bit >> 3 < len(data):
                data[bit >> 3] ^= 1 << (bit & 7)

    def size_of(self, path: Path) -> int:
        return len(self._names[path].data)

    # Implementation

    def _change(self) -> None:
        self._require_writable()
        self.writes += 1
        if self.writes == self.cut_power_at_write:
            raise PowerCut

    def _require_writable(self) -> None:
        if self.is_read_only:
            raise OSError(errno.EROFS, "Read-only file system")

    def _write(self, node: _Node, data: bytes) -> None:
        self._change()
        space = max(0, self.capacity - sum(len(one.data) for one in self._names.values()))
        self._pending.append(_DataWrite(node, len(node.data), data[:space]))
        node.data += data[:space]
        if space < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def _cut(self, node: _Node, size: int) -> None:
        self._change()
        self._pending.append(_Truncation(node, size))
        del node.data[size:]

    def _sync(self, node: _Node) -> None:
        self.syncs += 1
        if self.syncs_lie:
            return
        node.safe = bytearray(node.data)
        self._pending = [one for one in self._pending if isinstance(one, _NameChange) or one.node is not node]

    def _safe_copy(self) -> tuple[SimDisk, dict[_Node, _Node]]:
        disk = SimDisk(self.capacity)
        nodes: dict[_Node, _Node] = {}
        named = (one.node for one in self._pending if one.node is not None) if self._pending else ()
        for node in (*self._safe_names.values(), *named):
            if node not in nodes:
                nodes[node] = copy = _Node()
                copy.safe = bytearray(node.safe)
        disk._safe_names = {path: nodes[node] for path, node in self._safe_names.items()}
        return disk, nodes

    def _settle(self, one: _Pending, nodes: dict[_Node, _Node], units: int) -> None:
        if not units:
            return
        match one:
            case _DataWrite():
                _put(nodes[one.node].safe, one.offset, one.data[:units])
            case _Truncation():
                del nodes[one.node].safe[one.size :]
            case _NameChange():
                self._safe_names.pop(one.path, None)
                if one.node is not None:
                    self._safe_names[one.path] = nodes[one.node]

    def _settle_sectors(self, write: _DataWrite, nodes: dict[_Node, _Node], rng: Random) -> None:
        start = write.offset
        while start < write.offset + len(write.data):
            end = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, write.offset + len(write.data))
            if rng.random() < 0.7:
                _put(nodes[write.node].safe, start, write.data[start - write.offset : end - write.offset])
            start = end

    def _restarted(self) -> SimDisk:
        self._names = dict(self._safe_names)
        for node in self._names.values():
            node.data = bytearray(node.safe)
        return self


def _put(data: bytearray, offset: int, part: bytes) -> None:
    data.extend(bytes(max(0, offset - len(data))))
    data[offset : offset + len(part)] = part


class SimFile:
    def __init__(self, disk: SimDisk, node: _Node) -> None:
        self._disk = disk
        self._node = node

    def write(self, buffers: Sequence[Buffer]) -> None:
        self._disk._write(self._node, b"".join(buffers))

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self._node.data[offset : offset + count])

    def size(self) -> int:
        return len(self._node.data)

    def sync(self) -> None:
        self._disk._sync(self._node)

    def truncate(self, size: int) -> None:
        self._disk._cut(self._node, size)

    def close(self) -> None:
        """Closing neither discards pending writes nor makes them durable."""


class SimLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)
