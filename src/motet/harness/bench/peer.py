"""Systems that `motet bench --peers` measures beside Motet.

What drives them (clients, C libraries, a Java program) is not for users, so it stands in benchmarks/peers of the
repository and not in the wheel. Here is what both sides know: what a peer is, and how its module is found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import motet
from motet.errors import ConfigError
from motet.harness.bench.job import MeasurementKind
from motet.harness.bench.rows import Row

Server = Callable[[str], AbstractContextManager[str]]  # given a directory for its files, yields where it listens


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    module: str  # in benchmarks/peers; it has `open_system`, or `work` if its processes are not driven from Python
    about: str  # what it guarantees, so that a figure can be read
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    kinds: tuple[MeasurementKind, ...] = ("rate", "latency")
    orders: tuple[str, ...] = ("fifo", "total")
    warm_up: float = 0.0  # seconds that it needs at least, where ours are too few
    why_not: str = ""  # why it cannot be measured anywhere

    def does(self, row: Row) -> bool:
        return row.kind in self.kinds and row.load.order in self.orders and row.load.api == "batch"


def checkout() -> Path:
    """The repository whose code this is; there is none around an installed wheel."""
    return Path(motet.__file__).parents[2]


def load(name: str) -> ModuleType:
    """A module of benchmarks/peers."""
    root = checkout()
    if not (root / "benchmarks" / "peers" / "field.py").is_file():
        raise ConfigError(
            "the peers of the benchmark are part of the repository and not of the installed package; clone the "
            "repository, run `make venv` there, and then `.venv/bin/motet bench --peers`"
        )
    if str(root) not in sys.path:
        sys.path.append(str(root))  # processes that are started from here look there, too
    return import_module(f"benchmarks.peers.{name}")


def all_peers() -> tuple[Peer, ...]:
    peers: tuple[Peer, ...] = load("field").PEERS
    return peers


def module_of(system: str) -> ModuleType:
    return load(next(peer.module for peer in all_peers() if peer.name == system))


def absences(peers: Sequence[Peer]) -> dict[str, str]:
    """By name: what is missing here to measure a peer; empty when nothing is."""
    why_not: Callable[[Peer], str] = load("field").why_not
    return {peer.name: why_not(peer) for peer in peers}


def server_of(system: str) -> Server | None:
    """What a peer needs beside its members."""
    servers: dict[str, Server] = load("servers").SERVERS
    return servers.get(system)
