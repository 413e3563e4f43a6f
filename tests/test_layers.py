"""Imports between layers point downwards, and the sans-IO layers reach for nothing but their arguments.

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
MACHINES = tuple(f"protocol.{name}" for name in ("unicast", "multicast", "membership", "ordering", "snapshot"))
CORE = ("protocol.wire", "protocol.window", "protocol.core")

LEVELS = (  # top to bottom; a layer is a package, and imports itself and whatever stands on a lower line
    ("__main__",),
    ("cli",),
    ("harness",),
    (FACADE, "testing"),
    ("api",),
    ("runtime", "sim", "audit"),
    ("admin", "spark"),
    ("log.service", "config"),
    ("log.journal", "protocol.member"),
    MACHINES,
    ("protocol.wire", "protocol.window"),
    ("protocol.core",),
    ("log", "protocol"),  # their __init__ has a docstring and nothing else
    (ERRORS,),
)
DEPTH = {layer: depth for depth, layers in enumerate(LEVELS) for layer in layers}

# Some layers may import less than their line allows: data and the words for it, never protocol machines.
MAY_IMPORT_ONLY = {
    "spark": frozenset({"log.journal", "log.service", ERRORS}),
    "audit": frozenset({"spark", "log.journal", "log.service", ERRORS}),
    "log.service": frozenset({"log.journal", *CORE, ERRORS}),
    "admin": frozenset({"log.service", "log.journal", *CORE, ERRORS}),
}
CAMPAIGN_WORKER = PurePosixPath("audit/campaign_worker.py")  # the one file of the audit that runs simulations

SANS_IO = frozenset({"protocol", "protocol.member", *MACHINES, *CORE})
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
    layer = _layer_of(file)
    if layer not in DEPTH:
        return [
            f"{path}: '{layer}' is not a layer that this test knows; move the file into a package of the table, "
            f"or give the new package its line in LEVELS in tests/test_layers.py and say in docs/design/ what it is for"
        ]
    tree = ast.parse(source, filename=path)
    found = [(line, fault) for line, module in _imports(tree, file) if (fault := _judge(file, layer, module))]
    if layer in SANS_IO:
        found += _random_faults(tree, layer)
    return [f"{path}:{line}: {fault}" for line, fault in sorted(found)]


def _layer_of(file: PurePosixPath) -> str:
    if len(file.parts) > 1:
        return _layer_named(".".join(file.with_suffix("").parts))
    return FACADE if file.stem == "__init__" else file.stem


def _layer_named(dotted: str) -> str:
    """The layer of a module whose name begins behind `motet.`: its first two names if both are in the table."""
    names = dotted.split(".")
    two = ".".join(names[:2])
    return two if two in DEPTH else names[0]


def _imports(tree: ast.AST, file: PurePosixPath) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute module name) for each import.

    `from motet import x` counts as motet.x, and so does a name that is imported from a package with layers below it.
    """
    package = ("motet", *file.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, node.module) if node.module else base)
            is_split = module in ("motet", "motet.protocol", "motet.log")
            names = [f"{module}.{alias.name}" for alias in node.names] if is_split else [module]
            yield from ((node.lineno, name) for name in names)


def _judge(file: PurePosixPath, layer: str, module: str) -> str | None:
    top, _, rest = module.partition(".")
    if top != "motet":
        return None if top == SANS_IO_MAY_IMPORT.get(file) else _judge_outside(layer, top)
    target = _layer_named(rest)
    if target not in DEPTH:
        target = FACADE  # a name such as motet.__version__; a file of an unknown layer is reported by itself
    if _may_import(file, layer, target):
        return None
    return f"'{layer}' may not import '{target}'; imports go down only, see LEVELS in tests/test_layers.py"


def _may_import(file: PurePosixPath, layer: str, target: str) -> bool:
    if target == layer or (target == "sim" and file == CAMPAIGN_WORKER):
        return True
    if layer in MAY_IMPORT_ONLY:
        return target in MAY_IMPORT_ONLY[layer]
    return DEPTH[target] > DEPTH[layer]


def _judge_outside(layer: str, top: str) -> str | None:
    if layer not in SANS_IO:
        return None
    if top not in sys.stdlib_module_names:
        return f"'{layer}' may import the standard library only, not '{top}'"
    if top in IMPURE:
        return f"'{layer}' is sans-IO and may not import '{top}'; take the time or the value as an argument"
    return None


def _random_faults(tree: ast.AST, layer: str) -> list[tuple[int, str]]:
    """Of the module `random` only the class Random may be used: the rest draws from a generator shared by all."""
    fault = f"'{layer}' may use only random.Random; take a generator as an argument (and name it rng, not random)"
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
            "from motet.protocol.unicast import sender\nfrom motet.protocol.multicast import receiver",
        ),
        (
            "protocol/unicast/sender.py",
            "from . import receiver\nfrom ..core.effects import Transmit\nfrom .. import window",
        ),
        ("protocol/unicast/sender.py", "from __future__ import annotations\nimport struct\nfrom motet import errors"),
        ("protocol/unicast/sender.py", "import random\ndef f(rng: random.Random) -> random.Random: return rng"),
        ("protocol/unicast/sender.py", "import random as r\ndef f(random: r.Random) -> float: return random.random()"),
        ("protocol/ordering/queue.py", "from random import Random"),
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
        (
            "protocol/core/effects.py",
            "import motet.protocol.wire.codec",
            "protocol.core -> protocol.wire",
        ),
        (
            "protocol/wire/codec.py",
            "from motet.protocol.window import ring",
            "protocol.wire -> protocol.window",
        ),
        (
            "protocol/window/ring.py",
            "from motet.protocol import wire",
            "protocol.window -> protocol.wire",
        ),
        (
            "protocol/unicast/sender.py",
            "from motet.protocol.multicast.sender import Sender",
            "protocol.unicast -> protocol.multicast",
        ),
        (
            "protocol/unicast/sender.py",
            "from ..member import member",
            "protocol.unicast -> protocol.member",
        ),
        (
            "protocol/unicast/sender.py",
            "from .. import ordering",
            "protocol.unicast -> protocol.ordering",
        ),
        (
            "protocol/unicast/deep/part.py",
            "from ...snapshot import marker",
            "protocol.unicast -> protocol.snapshot",
        ),
        (
            "protocol/unicast/sender.py",
            "def f():\n    from motet.sim import world",
            "protocol.unicast -> sim",
        ),
        ("protocol/unicast/sender.py", "from motet import __version__", "protocol.unicast -> motet"),
        (
            "log/journal/log.py",
            "from motet.protocol.member import member",
            "log.journal -> protocol.member",
        ),
        ("runtime/driver.py", "from motet.sim import world", "runtime -> sim"),
        ("sim/world.py", "from motet.cli import app", "sim -> cli"),
        ("errors.py", "from motet.protocol.core import effects", "errors -> protocol.core"),
        ("errors.py", "from .protocol import core", "errors -> protocol.core"),
        ("__init__.py", "from motet.cli.app import main", "motet -> cli"),
        ("spark/source.py", "from motet.sim import world", "spark -> sim"),
        ("spark/deep/worker.py", "from motet.sim import world", "spark -> sim"),
        (
            "audit/campaign_worker.py",
            "from motet.protocol.member import member",
            "audit -> protocol.member",
        ),
        ("audit/audit.py", "from motet.protocol.ordering import queue", "audit -> protocol.ordering"),
        (
            "log/service/flight.py",
            "from motet.protocol.member import member",
            "log.service -> protocol.member",
        ),
        (
            "log/service/flight.py",
            "from motet.protocol.membership import machine",
            "log.service -> protocol.membership",
        ),
        ("protocol/snapshot/machine.py", "import pyarrow as pa", "standard library only, not 'pyarrow'"),
        ("protocol/snapshot/export.py", "import numpy as np", "standard library only, not 'numpy'"),
        ("protocol/core/time.py", "import numpy as np", "standard library only, not 'numpy'"),
        ("protocol/wire/codec.py", "from rich.console import Console", "standard library only, not 'rich'"),
        ("protocol/wire/codec.py", "import cryptography", "standard library only, not 'cryptography'"),
        ("protocol/unicast/sender.py", "import time", "may not import 'time'"),
        ("protocol/membership/view.py", "from asyncio import sleep", "may not import 'asyncio'"),
        ("protocol/snapshot/marker.py", "import logging.handlers", "may not import 'logging'"),
        ("protocol/window/ring.py", "import threading", "may not import 'threading'"),
        ("protocol/wire/codec.py", "import socket", "may not import 'socket'"),
        ("protocol/ordering/queue.py", "import random\nrandom.random()", "only random.Random"),
        ("protocol/ordering/queue.py", "import random as r\nr.seed(1)", "only random.Random"),
        ("protocol/ordering/queue.py", "import random\nrng = random", "only random.Random"),
        ("protocol/ordering/queue.py", "from random import Random, shuffle", "only random.Random"),
        ("protocol/ordering/queue.py", "from random import *", "only random.Random"),
    ],
)
def test_forbidden(path: str, source: str, reason: str) -> None:
    (fault,) = faults(source, path)
    assert fault.startswith(f"{path}:{source.count(chr(10)) + 1}: ")
    assert _in_words(reason) in fault


def _in_words(reason: str) -> str:
    layer, arrow, target = reason.partition(" -> ")
    return f"'{layer}' may not import '{target}'" if arrow else reason


@pytest.mark.parametrize("path", ["utils/text.py", "helpers.py"])
def test_an_unknown_layer_says_what_to_do(path: str) -> None:
    (fault,) = faults("", path)
    assert "is not a layer that this test knows; move the file into a package" in fault
    assert "LEVELS in tests/test_layers.py" in fault


def test_every_fault_of_a_file_is_reported_in_order_of_lines() -> None:
    source = "import time\nimport random\nfrom motet import api, sim\nrandom.random()\n"
    assert [fault.split(":")[1] for fault in faults(source, "protocol/core/effects.py")] == ["1", "3", "3", "4"]
