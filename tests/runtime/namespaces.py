"""Machines made of network namespaces: a bridge in one, a member's place in each of the others, cables in between.

Nothing of it touches the network of the machine itself, and everything is gone when the `with` block ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest


def command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Place:
    """Where one member lives."""

    namespace: str
    host: str
    cable: str  # its end at the bridge
    hub: str

    def inside(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *words]

    def unplug(self) -> None:
        command("ip", "-n", self.hub, "link", "set", self.cable, "down")

    def plug_in(self) -> None:
        command("ip", "-n", self.hub, "link", "set", self.cable, "up")


@contextmanager
def places(names: Sequence[str]) -> Iterator[list[Place]]:
    """One place per name, all on one bridge; skips the test where that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command, so no network namespaces")
    with ExitStack() as undo:
        hub = f"motet-{os.getpid()}-hub"
        try:
            _namespace(hub, undo)
            command("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
            command("ip", "-n", hub, "link", "set", "bridge", "up")
        except RuntimeError as error:
            pytest.skip(f"network namespaces are not permitted here: {error}")
        yield [_place(hub, name, f"10.77.0.{number}", undo) for number, name in enumerate(names, start=1)]


def _namespace(name: str, undo: ExitStack) -> None:
    command("ip", "netns", "add", name)
    undo.callback(command, "ip", "netns", "del", name)  # takes its ends of cables, and so the cables, with it


def _place(hub: str, name: str, host: str, undo: ExitStack) -> Place:
    place = Place(f"motet-{os.getpid()}-{name}", host, f"to-{name}", hub)
    _namespace(place.namespace, undo)
    command("ip", "-n", hub, "link", "add", place.cable, "type", "veth", "peer", "name", "eth0")
    command("ip", "-n", hub, "link", "set", "eth0", "netns", place.namespace)
    command("ip", "-n", hub, "link", "set", place.cable, "master", "bridge", "up")
    command("ip", "-n", place.namespace, "address", "add", f"{host}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        command("ip", "-n", place.namespace, "link", "set", device, "up")
    return place


def lose_packets(where: Sequence[Place], percent: int) -> None:
    """At each place this share of what arrives is lost, before IP puts fragments together; skips where that cannot be.

    Offload that hands on many packets as one is switched off, or one draw would lose them all.
    """
    if shutil.which("nft") is None:
        pytest.skip("there is no `nft` command, so no fragments can be lost")
    chain = "add table netdev m; add chain netdev m in { type filter hook ingress device eth0 priority 0; }; "
    rule = f"add rule netdev m in ether type ip numgen random mod 100 < {percent} counter drop"
    try:
        for place in where:
            command("ip", "-n", place.namespace, "link", "set", "eth0", "gso_max_segs", "1")
            command(*place.inside("nft", chain + rule))
    except RuntimeError as error:
        pytest.skip(f"packets cannot be lost here: {error}")


def packets_lost(place: Place) -> int:
    shown = command(*place.inside("nft", "list", "table", "netdev", "m")).split()
    return int(shown[shown.index("packets") + 1])


class Loss:
    """Real packet loss on every cable, by what the machine has: netem, nftables, or a bottleneck that overflows."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self.kind = next((kind for kind in ("netem", "nft", "tbf") if self._try(kind)), "")

    def _try(self, kind: str) -> bool:
        try:
            for place in self._places:
                getattr(self, f"_{kind}")(place)
        except (RuntimeError, FileNotFoundError):
            return False
        return True

    def _netem(self, place: Place) -> None:
        command(*place.inside("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", "10%"))

    def _nft(self, place: Place) -> None:
        rules = "add table inet m; add chain inet m out { type filter hook output priority 0; }; "
        rule = "add rule inet m out meta l4proto udp numgen random mod 10 == 0 counter drop"
        command(*place.inside("nft", rules + rule))

    def _tbf(self, place: Place) -> None:
        """What comes in a burst does not all fit into a queue of 6 kB."""
        shape = ("rate", "20mbit", "burst", "3000", "limit", "6000")
        command(*place.inside("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *shape))

    def lost(self) -> int:
        """Packets that were dropped so far."""
        return sum(map(self._lost_at, self._places))

    def _lost_at(self, place: Place) -> int:
        if self.kind == "nft":
            shown = command(*place.inside("nft", "list", "chain", "inet", "m", "out")).split()
            return int(shown[shown.index("packets") + 1])
        shown = command(*place.inside("tc", "-s", "qdisc", "show", "dev", "eth0")).replace(",", " ").split()
        return int(shown[shown.index("(dropped") + 1])
