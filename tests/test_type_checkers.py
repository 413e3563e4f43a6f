"""A misspelt option fails in a type checker, before the program runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRONG = {  # each is refused, at its line
    'motet.join("g", sedes=["x"])': "sedes",
    'motet.join("g", "127.0.0.1:0")': "join",
    'motet.join("g", timeout="1s")': "timeout",
    'motet.join_sync("g", sedes=["x"])': "sedes",
    'motet.Config.local(hartbeat="1s")': "hartbeat",
    'motet.Config.wan(strategy="pigeon")': "strategy",
    'motet.Config.load(None, None, presett="lan")': "presett",
    "motet.Mesage": "Mesage",
    "motet.ViewInstalled.sublews": "sublews",
}
RIGHT = """
import motet
from motet.testing import SimNetwork


class Register:
    def apply(self, position: int, sender: motet.Address, request: int, operation: bytes) -> int:
        return position

    def on_view(self, view: motet.View) -> None: ...

    def snapshot(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None: ...


async def right(network: SimNetwork) -> None:
    settings: motet.Settings = {"heartbeat": "100ms", "frame_bytes": 9000}
    config = motet.Config.local(**settings)
    async with motet.join("g", seeds="127.0.0.1:7800", config=config, journal="data") as group:
        receipt = await group.multicast(b"x", key=b"k")
        position: int = await receipt.stable()
        await group.multicast(bytearray(b"x"))
        state = motet.ReplicatedState(group, "own", Register())
        register: Register = state.machine
        async for event in group:
            match event:
                case motet.Message():
                    payload: bytes = event.payload
                case motet.ViewInstalled():
                    names: tuple[str, ...] = event.names
                case motet.SendFailed() | motet.BlockFailed():
                    error: Exception = event.error
                case motet.StableAdvanced():
                    position = event.position
                case _:
                    pass
    joining: motet.Joining = network.join("g", name="a")
    await joining
    with motet.join_sync("g", timeout=1.5) as twin:
        twin.multicast(b"x")
"""


def snippet(directory: Path) -> tuple[Path, dict[int, str]]:
    """A file of right and wrong lines, and the line of each wrong one."""
    text = f"{RIGHT}\n\ndef wrong() -> None:\n"
    begin = text.count("\n") + 1
    file = directory / "snippet.py"
    file.write_text(text + "".join(f"    print({line})\n" for line in WRONG), encoding="utf-8")
    return file, {begin + number: word for number, word in enumerate(WRONG.values())}


def check(told: dict[int, str], expected: dict[int, str]) -> None:
    assert told.keys() == expected.keys(), told
    assert all(word in told[line] for line, word in expected.items()), told


def test_mypy_refuses_what_is_misspelt(tmp_path: Path) -> None:
    file, expected = snippet(tmp_path)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary", "--output=json"]
    options = ["--follow-imports=silent", "--ignore-missing-imports", f"--cache-dir={ROOT / '.mypy_cache' / 'snippet'}"]
    environment = {"MYPYPATH": str(ROOT / "src"), "PATH": ""}
    done = subprocess.run(
        [*command, *options, str(file)], capture_output=True, text=True, env=environment, timeout=300, cwd=tmp_path
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    check({error["line"]: error["message"] for error in found if error["severity"] == "error"}, expected)


def test_pyright_refuses_what_is_misspelt(tmp_path: Path) -> None:
    pyright = shutil.which("pyright") or shutil.which("pyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("pyright is not installed; `pip install pyright` and run this test again")
    file, expected = snippet(tmp_path)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "include": [str(file)]}
    # These follow from the errors that are looked for.
    unknown = (
        "reportUnknownMemberType",
        "reportUnknownArgumentType",
        "reportUnusedVariable",
    )
    quiet = dict.fromkeys(unknown, "none")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings | quiet), encoding="utf-8")
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    found = json.loads(done.stdout)["generalDiagnostics"]
    told: dict[int, str] = {}
    for one in found:
        line = one["range"]["start"]["line"] + 1
        if one["severity"] == "error":
            told[line] = f"{told.get(line, '')} {one['message']}"
    expected[min(line for line, word in expected.items() if word == "join")] = "positional"
    check(told, expected)
