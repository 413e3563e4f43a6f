"""Groups for the dashboard to show, in the four states that a person should know by sight."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from motet.admin.server import AdminConfig, AdminServer
from motet.log.service.validated_json import integer
from tests.admin.fakes import NAMES, FakeMember, member_of, stats_of

Figures = list[dict[str, Any]]
MAJOR, MINOR = NAMES[:3], NAMES[3:]


def healthy() -> Figures:
    group = [stats_of(name, position=120_500 - 7 * place, stable=120_460) for place, name in enumerate(NAMES)]
    for place, stats in enumerate(group):
        stats["rates"] = {
            "sent_per_s": 4000.0 if place < 3 else 0.0,
            "delivered_per_s": 12_000.0 - 40 * place,
            "bytes_per_s": 1.2e6,
        }
        stats["latency"] = {"median_us": 820.0 + 60 * place, "p99_us": 2300.0 + 150 * place}
    return group


def loss() -> Figures:
    group = healthy()
    for place, stats in enumerate(group):
        stats["rates"] = {
            "sent_per_s": 2100.0 if place < 3 else 0.0,
            "delivered_per_s": 6300.0 - 90 * place,
            "bytes_per_s": 6e5,
        }
        stats["latency"] = {"median_us": 3100.0 + 400 * place, "p99_us": 19_000.0 + 2500 * place}
        stats["log"]["holdback"] = 14 + 5 * place
        stats["multicast"]["low"] = 740 - 20 * place
    group[0]["faults"] = ["drop=0.2"]
    group[1]["multicast"]["receivers"][0]["missing"] = 3
    group[3]["multicast"]["receivers"][0]["missing"] = 5
    group[4]["multicast"]["receivers"][2]["missing"] = 1
    group[0]["events"] += [_event(40, "fault", "drop=0.2: a fifth of what this member sends is dropped on purpose")]
    return group


def partition() -> Figures:
    major = [stats_of(name, MAJOR, number=8, position=131_200 - 5 * place) for place, name in enumerate(MAJOR)]
    minor = [stats_of(name, MINOR, number=9, primary=False, position=124_870, stable=124_870) for name in MINOR]
    for stats in minor:
        stats["rates"] = {"sent_per_s": 0.0, "delivered_per_s": 0.0, "bytes_per_s": 0.0}
        stats["latency"] = {"median_us": None, "p99_us": None}
        stats["log"]["in_flight"] = 12
    major[0]["faults"] = ["cut@drum", "cut@erhu"]
    major[0]["views"] = [_view(300, "7@000a", NAMES), _view(14, "8@000a", MAJOR)]
    major[0]["events"] = [
        _event(300, "view", "view 7@000a of 5 members, primary"),
        _event(21, "fault", "cut@drum, cut@erhu: nothing goes to them or comes from them, on purpose"),
        _event(20, "suspect", "drum#000d has not been heard of for 2 s"),
        _event(20, "suspect", "erhu#000e has not been heard of for 2 s"),
        _event(14, "view", "view 8@000a of 3 members, primary"),
    ]
    return major + minor


def merged() -> Figures:
    group = [
        stats_of(name, number=10, position=142_310 - 6 * place, stable=142_240) for place, name in enumerate(NAMES)
    ]
    group[0]["views"] = [
        _view(300, "7@000a", NAMES),
        _view(75, "8@000a", MAJOR),
        _view(9, "10@000a", NAMES, merged_from=["8@000a", "9@000d"]),
    ]
    group[0]["events"] = [
        _event(300, "view", "view 7@000a of 5 members, primary"),
        _event(80, "suspect", "drum#000d has not been heard of for 2 s"),
        _event(75, "view", "view 8@000a of 3 members, primary"),
        _event(9, "merge", "views 8@000a and 9@000d became 10@000a"),
        _event(8, "transfer", "drum#000d and erhu#000e fetched 6,330 positions that they had missed"),
    ]
    return group


SCENES: dict[str, Callable[[], Figures]] = {"healthy": healthy, "loss": loss, "partition": partition, "merged": merged}


def _view(ago: float, view: str, members: tuple[str, ...], merged_from: list[str] | None = None) -> dict[str, Any]:
    return {
        "at": time.time() - ago,
        "id": view,
        "members": list(members),
        "primary": True,
        "merged_from": merged_from or [],
    }


def _event(ago: float, kind: str, text: str) -> dict[str, Any]:
    return {"at": time.time() - ago, "kind": kind, "text": text}


@contextmanager
def served(figures: Figures, config: AdminConfig | None = None) -> Iterator[tuple[AdminServer, list[FakeMember]]]:
    """An admin face per member; look at the first. All know one another's addresses, whatever the view."""
    members = [FakeMember(stats) for stats in figures]
    with ExitStack() as stack:
        servers = [stack.enter_context(AdminServer(member, config)) for member in members]
        for member in members:
            member.figures["peers"] = [
                {
                    "member": other.figures["member"],
                    "admin": str(server.endpoint),
                    "position": integer(other.figures, "log", "position"),
                    "stable": integer(other.figures, "log", "stable"),
                }
                for other, server in zip(members, servers, strict=True)
                if other is not member
            ]
        yield servers[0], members


def past(scene: str, seconds: int = 118) -> list[dict[str, Any]]:
    """Two minutes as a page would have seen them, so that a picture of the plots has something to show."""
    return [{"at": time.time() - ago, "members": _sample(scene, ago)} for ago in range(seconds, 0, -1)]


def _sample(scene: str, ago: int) -> dict[str, dict[str, Any]]:
    return {member_of(name): _plotted(scene, ago, place) for place, name in enumerate(NAMES)}


def _plotted(scene: str, ago: int, place: int) -> dict[str, Any]:
    sway = math.sin(ago / 7 + place) + 0.5 * math.sin(ago * 1.7 + 2 * place)
    state = _state_then(scene, ago)
    if state == "cut" and NAMES[place] in MINOR:
        return {"delivered": 0, "median": None, "p99": None, "repairs": 0, "holdback": 0}
    if state == "loss":
        median, repairs = 3100 + 400 * place + 500 * sway, 0.18 + 0.012 * sway if place == 0 else 0.004
        return _point(6300 - 90 * place + 420 * sway, median, 6.2 * median, repairs, 20 + 8 * sway)
    median = 820 + 60 * place + 70 * sway
    return _point(12_000 - 40 * place + 350 * sway, median, 2.8 * median, 0.0, 2 + 2 * sway)


def _point(delivered: float, median: float, p99: float, repairs: float, holdback: float) -> dict[str, Any]:
    return {"delivered": delivered, "median": median, "p99": p99, "repairs": repairs, "holdback": max(0.0, holdback)}


def _state_then(scene: str, ago: int) -> str:
    if scene == "loss":
        return "loss" if ago < 40 else "well"
    if scene == "partition":
        return "cut" if ago < 17 else "well"
    return "cut" if scene == "merged" and 9 < ago < 78 else "well"
