"""The peers: what each of them guarantees, what it needs, and which rows it is asked to do."""

from __future__ import annotations

import os
import shutil
from ctypes.util import find_library
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from motet.bench.rows import Row

ROOT = "MOTET_PEERS"  # a directory into which Debian packages were unpacked; see benchmarks/fetch_peers.sh


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    about: str  # what it guarantees, so that a figure can be read
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    orders: tuple[str, ...] = ("fifo", "total")

    def does(self, row: Row) -> bool:
        return row.load.order in self.orders


PEERS = (
    Peer(
        "zmq",
        "pyzmq PUB/SUB over TCP: no membership, no order across senders, drops for slow ones",
        ("zmq",),
        orders=("fifo",),
    ),
    Peer("nats", "NATS core: a broker, at most once", ("nats",), ("nats-server",), orders=("fifo",)),
    Peer(
        "jetstream",
        "NATS JetStream: a broker, one stream, acknowledged, in memory",
        ("nats",),
        ("nats-server",),
        orders=("total",),
    ),
    Peer(
        "redis",
        "Redis Streams: a server, one stream, pipelined XADD, XREAD",
        ("redis",),
        ("redis-server",),
        orders=("total",),
    ),
    Peer("pysyncobj", "PySyncObj: Raft in Python, no broker, total order", ("pysyncobj",), orders=("total",)),
)


def why_not(peer: Peer) -> str:
    """What is missing here to measure it; empty when nothing is."""
    modules = [name for name in peer.modules if find_spec(name) is None]
    programs = [name for name in peer.programs if program(name) is None]
    libraries = [name for name in peer.libraries if library(name) is None]
    lacks = ", ".join(
        [
            *(f"Python module {n}" for n in modules),
            *(f"program {n}" for n in programs),
            *(f"library {n}" for n in libraries),
        ]
    )
    return f"not installed: {lacks}" if lacks else ""


def program(name: str) -> str | None:
    root = os.environ.get(ROOT)
    places = [f"{root}/usr/bin", f"{root}/usr/sbin"] if root else []
    return shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", ""), "/usr/sbin"]))


def library(name: str) -> str | None:
    root = os.environ.get(ROOT)
    found = sorted(Path(root).glob(f"usr/lib/*/lib{name}.so.*")) if root else []
    return str(found[0]) if found else find_library(name)
