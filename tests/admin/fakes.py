"""A member that only pretends: the figures of a group in any state, without a group."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from motet.errors import MotetError, PeerUnreachableError
from motet.protocol.core.counters import Count

NAMES = ("alto", "bass", "cello", "drum", "erhu")


def member_of(name: str) -> str:
    return f"{name}#{NAMES.index(name) + 10 if name in NAMES else 99:04x}"


def stats_of(
    name: str = "alto",
    view: Iterable[str] = NAMES,
    *,
    number: int = 7,
    primary: bool = True,
    position: int = 120_500,
    stable: int | None = None,
    coordinator: str | None = None,
) -> dict[str, Any]:
    """A member of a group that is well, unless a test changes something."""
    names = list(view)
    others = [other for other in names if other != name]
    return {
        "group": "orders",
        "member": member_of(name),
        "name": name,
        "incarnation": "00000000deadbeef",
        "endpoint": f"127.0.0.1:{7800 + NAMES.index(name) if name in NAMES else 7800}",
        "uptime_s": 321.5,
        "version": "0.1.0",
        "view": {
            "id": f"{number}@000a",
            "number": number,
            "primary": primary,
            "coordinator": member_of(coordinator or names[0]),
            "members": [
                {"name": n, "member": member_of(n), "endpoint": f"127.0.0.1:{7800 + i}"} for i, n in enumerate(names)
            ],
        },
        "log": {
            "position": position,
            "stable": position - 40 if stable is None else stable,
            "epoch": number,
            "first": 1,
            "holdback": 0,
            "in_flight": 0,
        },
        "frames": {
            "bytes": 32_000,
            "path_bytes": 1_472,
            "segment_bytes": 0,
            "segments": "whole",
            "lost_share": 0.0,
            "resent_share": 0.01,
        },
        "multicast": {
            "low": 900,
            "delivered": 930,
            "high": 940,
            "capacity": 256,
            "waiting_bytes": 0,
            "receivers": [
                {"member": member_of(other), "low": 10, "delivered": 20, "high": 20, "capacity": 256, "missing": 0}
                for other in others
            ],
        },
        "unicast": [
            {"peer": member_of(other), "state": "OPEN", "low": 3, "high": 3, "waiting_bytes": 0} for other in others
        ],
        "queue": {"messages": 12, "bytes": 1200, "limit": 1 << 20, "paused": False},
        "rates": {"sent_per_s": 4000.0, "delivered_per_s": 12000.0, "bytes_per_s": 1.2e6},
        "latency": {"median_us": 850.0, "p99_us": 2400.0},
        "counters": {str(count): 10 * place for place, count in enumerate(Count)},
        "suspects": [],
        "faults": [],
        "views": [
            {"at": time.time() - 300, "id": f"{number}@000a", "members": names, "primary": primary, "merged_from": []}
        ],
        "events": [{"at": time.time() - 300, "kind": "view", "text": f"view {number}@000a of {len(names)} members"}],
        "peers": [
            {"member": member_of(other), "admin": None, "position": position - 10, "stable": position - 40}
            for other in others
        ],
        "memory_bytes": 48 << 20,
        "cpu_s": 4.25,
    }


class FakeMember:
    """`Observed`, with figures that a test may change at any time."""

    def __init__(self, figures: dict[str, Any] | None = None) -> None:
        self.figures = figures or stats_of()
        self.operated: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None  # what both of its faces raise
        self.grows: dict[str, int] = {}  # counters, by how much with each look
        self.moves = 0  # positions of the log, with each look
        self._lock = threading.Lock()

    def stats(self) -> Mapping[str, Any]:
        with self._lock:
            if self.error is not None:
                raise self.error
            for name, more in self.grows.items():
                self.figures["counters"][name] += more
            for name in ("position", "stable") if self.moves else ():
                self.figures["log"][name] += self.moves
            return copy.deepcopy(self.figures)

    def change(self, **sections: Mapping[str, Any] | list[Any] | str | float) -> None:
        """`change(log={"holdback": 3})` changes one field of a section, or replaces what is no mapping."""
        with self._lock:
            for name, value in sections.items():
                if isinstance(value, Mapping):
                    self.figures[name] = {**self.figures[name], **value}
                else:
                    self.figures[name] = value

    def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        if arguments.get("member") == "nobody":
            raise PeerUnreachableError("nobody is not in the view; probe without an operation to see who is")
        if arguments.get("rule") == "nonsense":
            raise MotetError("'nonsense' is no fault; write drop=0.2, delay=50ms, cut@NAME or clear")
        with self._lock:
            self.operated.append((name, arguments))
        return {"done": name}
