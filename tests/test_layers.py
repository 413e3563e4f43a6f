"""Imports between rooms point downwards, and the sans-IO rooms reach for nothing but their arguments.

The tables below are the rule. `faults` judges one file given as text, so the tests can also show it files that break
the rule. Imports are read from the syntax tree, wherever they stand: inside a function or under TYPE_CHECKING too.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "motet"

FACADE = "motet"  # src/motet/__init__.py itself
ERRORS = "errors"  # the leaf that everyone may import
PROTOCOLS = ("unicast", "multicast", "membership", "ordering", "snapshot")

LEVELS = (  # top to bottom; a room imports itself and whatever stands on a lower line
    ("__main__",),
    ("cli",),
    ("bench", "demo", "runs"),
    (FACADE, "testing"),
    ("blocks",),
    ("spark", "aio", "sim"),
    ("serve", "config"),
    ("stack", "journal"),
    PROTOCOLS,
    ("wire", "window"),
    ("core",),
    (ERRORS,),
)
DEPTH = {room: depth for depth, rooms in enumerate(LEVELS) for room in rooms}

SPARK_MAY_IMPORT = frozenset({"journal", "serve", ERRORS})  # data, never protocol machines
SERVE_MAY_IMPORT = frozenset({"journal", "wire", "window", "core", ERRORS})  # the log and the words, never machines
SPARK_WORKER = PurePosixPath("audit/campaign_worker.py")  # the campaign's worker is the one file that runs simulations

SANS_IO = frozenset({"stack", *PROTOCOLS, "wire", "window", "core"})
SANS_IO_MAY_IMPORT = {
    PurePosixPath("protocol/wire/seal.py"): "cryptography",  # arithmetic that nobody should write by hand
    PurePosixPath("protocol/snapshot/export.py"): "pyarrow",  # results as files; no machine imports it
}
IMPURE = frozenset(
    {
        *("time", "datetime", "sched"),  # clocks
        *("socket", "_socket", "socketserver", "ssl", "select", "selectors", "signal", "subprocess"),
        *("threading", "_thread", "multiprocessing", "concurrent", "queue", "asyncio"),
        *("logging", "os", "secrets", "uuid"),  # the last three lend the process's own entropy
        "importlib",  # would import what this test cannot see
    }
)


def faults(source: str, path: str) -> list[str]:
    """Say what is wrong with the imports of one file; `path` is relative to src/motet."""
    file = PurePosixPath(path)
    room = _room_of(file)
    if room not in DEPTH:
        return [
            f"{path}: '{room}' is not a room that this test knows; move the file into a room, "
            f"or give the new room its line in LEVELS in tests/test_layers.py and say in docs/design/ what it is for"
        ]
    tree = ast.parse(source, filename=path)
    found = [(line, fault) for line, module in _imports(tree, file) if (fault := _judge(file, room, module))]
    if room in SANS_IO:
        found += _random_faults(tree, room)
    return [f"{path}:{line}: {fault}" for line, fault in sorted(found)]


def _room_of(file: PurePosixPath) -> str:
    if len(file.parts) > 1:
        return file.parts[0]
    return FACADE if file.stem == "__init__" else file.stem


def _imports(tree: ast.AST, file: PurePosixPath) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute module name) for each import; `from motet import x` counts as motet.x."""
    package = ("motet", *file.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, node.module) if node.module else base)
            names = [f"motet.{alias.name}" for alias in node.names] if module == "motet" else [module]
            yield from ((node.lineno, name) for name in names)


def _judge(file: PurePosixPath, room: str, module: str) -> str | None:
    top, _, rest = module.partition(".")
    if top != "motet":
        return None if top == SANS_IO_MAY_IMPORT.get(file) else _judge_outside(room, top)
    target = rest.partition(".")[0]
    if target not in DEPTH:
        target = FACADE  # a name such as motet.__version__; a file of an unknown room is reported by itself
    if _may_import(file, room, target):
        return None
    return f"'{room}' may not import '{target}'; imports go down only, see LEVELS in tests/test_layers.py"


def _may_import(file: PurePosixPath, room: str, target: str) -> bool:
    if target == room:
        return True
    if room == "spark":
        return target in SPARK_MAY_IMPORT or (target == "sim" and file == SPARK_WORKER)
    if room == "serve":
        return target in SERVE_MAY_IMPORT
    return DEPTH[target] > DEPTH[room]


def _judge_outside(room: str, top: str) -> str | None:
    if room not in SANS_IO:
        return None
    if top not in sys.stdlib_module_names:
        return f"'{room}' may import the standard library only, not '{top}'"
    if top in IMPURE:
        return f"'{room}' is sans-IO and may not import '{top}'; take the time or the value as an argument"
    return None


def _random_faults(tree: ast.AST, room: str) -> list[tuple[int, str]]:
    """Of the module `random` only the class Random may be used: the rest draws from a generator shared by all."""
    fault = f"'{room}' may use only random.Random; take a generator as an argument (and name it rng, not random)"
    nodes = list(ast.walk(tree))
    names = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "random"
    }
    allowed = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "Random"}
    uses = [n.lineno for n in nodes if isinstance(n, ast.Name) and n.id in names and id(n) not in allowed]
    froms = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "random"
        if any(alias.name != "Random" for alias in node.names)
    ]
    return [(line, fault) for line in uses + froms]


def test_every_file_keeps_the_directions() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no source found under {PACKAGE}"
    found = [
        fault
        for file in files
        for fault in faults(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE).as_posix())
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("cli/app.py", "import typer\nfrom motet import __version__\nfrom motet.sim import world"),
        ("__init__.py", "from motet.api.group import Group\nfrom .errors import MotetError"),
        (
            "runtime/driver.py",
            "import asyncio\nfrom motet.protocol.member.member import Member\nfrom motet.protocol.wire import codec",
        ),
        (
            "protocol/member/member.py",
            "from motet.protocol.unicast import sender\nfrom motet.protocol.multicast import sender as multicast_sender",
        ),
        (
            "protocol/unicast/sender.py",
            "from . import receiver\nfrom ..core.effects import Transmit\nfrom .. import window",
        ),
        ("protocol/unicast/sender.py", "from __future__ import annotations\nimport struct\nfrom motet import errors"),
        ("protocol/unicast/sender.py", "import random\ndef f(rng: random.Random) -> random.Random: return rng"),
        ("protocol/unicast/sender.py", "import random as r\ndef f(random: r.Random) -> float: return random.random()"),
        ("ordering/queue.py", "from random import Random"),
        ("protocol/wire/seal.py", "from cryptography.exceptions import InvalidTag"),
        ("protocol/core/effects.py", "from motet.errors import MotetError"),
        ("errors.py", "from enum import Enum"),
        (
            "spark/source.py",
            "import pyspark\nfrom motet.log.journal import reader\nfrom motet.log.service import client",
        ),
        (
            "log/service/flight.py",
            "import threading\nfrom motet.log.journal import reader\nfrom motet.protocol.core import identity",
        ),
        ("audit/campaign_worker.py", "from motet.sim import world"),
        ("sim/world.py", "import time, random\nrandom.random()"),
    ],
)
def test_allowed(path: str, source: str) -> None:
    assert faults(source, path) == []


@pytest.mark.parametrize(
    ("path", "source", "reason"),
    [
        ("protocol/core/effects.py", "import motet.protocol.wire.codec", "'core' may not import 'wire'"),
        ("protocol/wire/codec.py", "from motet.protocol.window import ring", "'wire' may not import 'window'"),
        ("protocol/window/ring.py", "from motet import wire", "'window' may not import 'wire'"),
        (
            "protocol/unicast/sender.py",
            "from motet.protocol.multicast.sender import Sender",
            "'unicast' may not import 'multicast'",
        ),
        ("protocol/unicast/sender.py", "from ..stack import member", "'unicast' may not import 'stack'"),
        ("protocol/unicast/sender.py", "from .. import ordering", "'unicast' may not import 'ordering'"),
        ("unicast/deep/part.py", "from ...snapshot import marker", "'unicast' may not import 'snapshot'"),
        ("protocol/unicast/sender.py", "def f():\n    from motet.sim import world", "'unicast' may not import 'sim'"),
        ("protocol/unicast/sender.py", "from motet import __version__", "'unicast' may not import 'motet'"),
        ("journal/log.py", "from motet.protocol.member import member", "'journal' may not import 'stack'"),
        ("runtime/driver.py", "from motet.sim import world", "'aio' may not import 'sim'"),
        ("sim/world.py", "from motet.cli import app", "'sim' may not import 'cli'"),
        ("errors.py", "from motet.protocol.core import effects", "'errors' may not import 'core'"),
        ("errors.py", "from . import core", "'errors' may not import 'core'"),
        ("__init__.py", "from motet.cli.app import main", "'motet' may not import 'cli'"),
        ("spark/source.py", "from motet.sim import world", "'spark' may not import 'sim'"),
        ("spark/deep/worker.py", "from motet.sim import world", "'spark' may not import 'sim'"),
        ("audit/campaign_worker.py", "from motet.protocol.member import member", "'spark' may not import 'stack'"),
        ("audit/audit.py", "from motet.protocol.ordering import queue", "'spark' may not import 'ordering'"),
        ("log/service/flight.py", "from motet.protocol.member import member", "'serve' may not import 'stack'"),
        (
            "log/service/flight.py",
            "from motet.protocol.membership import machine",
            "'serve' may not import 'membership'",
        ),
        ("protocol/snapshot/machine.py", "import pyarrow as pa", "standard library only, not 'pyarrow'"),
        ("protocol/snapshot/export.py", "import numpy as np", "standard library only, not 'numpy'"),
        ("core/time.py", "import numpy as np", "standard library only, not 'numpy'"),
        ("protocol/wire/codec.py", "from rich.console import Console", "standard library only, not 'rich'"),
        ("protocol/wire/codec.py", "import cryptography", "standard library only, not 'cryptography'"),
        ("protocol/unicast/sender.py", "import time", "may not import 'time'"),
        ("membership/view.py", "from asyncio import sleep", "may not import 'asyncio'"),
        ("snapshot/marker.py", "import logging.handlers", "may not import 'logging'"),
        ("protocol/window/ring.py", "import threading", "may not import 'threading'"),
        ("protocol/wire/codec.py", "import socket", "may not import 'socket'"),
        ("ordering/queue.py", "import random\nrandom.random()", "only random.Random"),
        ("ordering/queue.py", "import random as r\nr.seed(1)", "only random.Random"),
        ("ordering/queue.py", "import random\nrng = random", "only random.Random"),
        ("ordering/queue.py", "from random import Random, shuffle", "only random.Random"),
        ("ordering/queue.py", "from random import *", "only random.Random"),
    ],
)
def test_forbidden(path: str, source: str, reason: str) -> None:
    (fault,) = faults(source, path)
    assert fault.startswith(f"{path}:{source.count(chr(10)) + 1}: ")
    assert reason in fault


@pytest.mark.parametrize("path", ["utils/text.py", "helpers.py"])
def test_an_unknown_room_says_what_to_do(path: str) -> None:
    (fault,) = faults("", path)
    assert "is not a room that this test knows; move the file into a room" in fault
    assert "LEVELS in tests/test_layers.py" in fault


def test_every_fault_of_a_file_is_reported_in_order_of_lines() -> None:
    source = "import time\nimport random\nfrom motet import protocol, sim\nrandom.random()\n"
    assert [fault.split(":")[1] for fault in faults(source, "protocol/core/effects.py")] == ["1", "3", "3", "4"]
