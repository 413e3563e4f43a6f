"""Strangers fire at a member's port while the group works. The small form; `make campaign` runs a million at each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile.py"


def test_a_member_that_is_shot_at_keeps_serving_and_believes_nothing() -> None:
    command = [sys.executable, str(SCRIPT), "--datagrams", "20000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    sealed, plain = json.loads(done.stdout)
    for verdict in (sealed, plain):
        assert verdict["is_good"]
        assert verdict["forged"] == 0
        assert verdict["is_complete"]
        assert verdict["genuine"] > 0
        assert verdict["views_changed"] == 0
        assert verdict["refused"] + verdict["overflowed"] > 10_000
    assert sealed["refused"] + sealed["overflowed"] >= 20_000
    told = [line for line in done.stderr.splitlines() if "a datagram was dropped" in line]
    kinds = {line.partition(" under key ")[2].partition(" ")[2] or line for line in told}
    assert 0 < len(told) == len(kinds)  # each kind once, whatever number of them came
