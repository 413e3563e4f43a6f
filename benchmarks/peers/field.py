"""The peers: what each of them guarantees, what it needs, and which rows it is asked to do."""

from __future__ import annotations

import os
import shutil
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path

from motet.harness.bench.peer import Peer

ROOT = "MOTET_PEERS"  # a directory into which Debian packages were unpacked; see benchmarks/fetch_peers.sh


PEERS = (
    Peer(
        "zmq",
        "zmq_pubsub",
        "pyzmq PUB/SUB over TCP: no membership, no view, nothing is repaired; what plain sockets can do",
        ("zmq",),
        orders=("fifo",),
    ),
    Peer("nats", "nats_core", "NATS core: a broker, at most once", ("nats",), ("nats-server",), orders=("fifo",)),
    Peer(
        "jetstream",
        "jetstream",
        "NATS JetStream: a broker, one stream in memory, publishes acknowledged",
        ("nats",),
        ("nats-server",),
        orders=("total",),
    ),
    Peer(
        "redis",
        "redis_streams",
        "Redis Streams: a server, one stream in memory, pipelined XADD, XREAD",
        ("redis",),
        ("redis-server",),
        orders=("total",),
    ),
    Peer(
        "pysyncobj",
        "syncobj",
        "PySyncObj: Raft among the members, in Python; a batch is one entry",
        ("pysyncobj",),
        orders=("total",),
    ),
    Peer(
        "corosync",
        "corosync_cpg",
        "Corosync CPG: virtual synchrony and total order by a daemon; three clients of one daemon",
        programs=("corosync",),
        libraries=("cpg",),
        orders=("total",),
    ),
    Peer(
        "norm",
        "norm_stream",
        "NORM: reliable IP multicast by its C library, receivers that are known acknowledge; no membership, no view",
        libraries=("norm",),
        orders=("fifo",),
    ),
    Peer(
        "jgroups",
        "jgroups_java",
        "JGroups 2.12 of 2011, from Debian, in Java: views, and total order by SEQUENCER",
        programs=("java", "javac"),
        jars=("jgroups",),
        kinds=("rate", "latency", "calls"),
        orders=("fifo", "total", "direct"),
        warm_up=8.0,  # a JVM compiles while it runs: the rate still grew after five seconds
    ),
)


def why_not(peer: Peer) -> str:
    """What is missing here to measure it; empty when nothing is."""
    if peer.why_not:
        return peer.why_not
    lacks = [f"Python module {name}" for name in peer.modules if find_spec(name) is None]
    lacks += [f"program {name}" for name in peer.programs if program(name) is None]
    lacks += [f"library {name}" for name in peer.libraries if library(name) is None]
    lacks += [f"Java library {name}.jar" for name in peer.jars if jar(name) is None]
    return f"not installed: {', '.join(lacks)}" if lacks else ""


def program(name: str) -> str | None:
    root = os.environ.get(ROOT)
    places = [f"{root}/usr/bin", f"{root}/usr/sbin"] if root else []
    return shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", ""), "/usr/sbin"]))


def library(name: str) -> str | None:
    root = os.environ.get(ROOT)
    found = sorted(Path(root).glob(f"usr/lib/*/lib{name}.so.*")) if root else []
    return str(found[0]) if found else find_library(name)


def jar(name: str) -> str | None:
    places = (Path(root, "usr/share/java", f"{name}.jar") for root in (os.environ.get(ROOT), "/") if root)
    return next((str(place) for place in places if place.exists()), None)


def environment() -> dict[str, str]:
    """For programs that were unpacked and not installed: where their libraries are."""
    root = os.environ.get(ROOT)
    places = (
        [str(path) for under in ("usr/lib", "lib") for path in Path(root).glob(f"{under}/*-linux-gnu")] if root else []
    )
    known = os.environ.get("LD_LIBRARY_PATH")
    return dict(os.environ) | {"LD_LIBRARY_PATH": os.pathsep.join([*places, *([known] if known else [])])}
