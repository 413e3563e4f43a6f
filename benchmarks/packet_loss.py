"""What the loss of IP packets costs: three members, each in a network namespace of its own, on a bridge with MTU 1500.

    python benchmarks/packet_loss.py                               loss of 0, 1, 3, 5 and 10 %
    python benchmarks/packet_loss.py --loss 0 10 --seconds 5
    python benchmarks/packet_loss.py --config frame_bytes=1350     with settings of your own

Preset `lan`, sealed, total order: one member sends messages of 1 000 bytes as fast as it may. Told is how many of them
the slowest member delivers per second. Every packet that arrives anywhere is lost with the given probability, before
IP puts fragments together: a datagram of n packets arrives with the n-th power of what one packet arrives with.

Needs root, `ip` and `nft`. The namespaces are made and removed here; the machine's own network is not touched.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import motet

MEMBERS = "abc"
KEY = "1:" + "5a" * 32  # of a group that exists for a measurement only
PORT = 7800
MESSAGES = [os.urandom(1_000) for _ in range(50)]
TIMEOUT_S = 60.0


# Namespaces


@contextmanager
def network(mtu: int) -> Iterator[list[str]]:
    """A namespace for each member, with cables to a bridge in one more; all are gone afterwards."""
    with ExitStack() as undo:
        hub = f"motet-{os.getpid()}-hub"
        _namespace(hub, undo)
        _run("ip", "-n", hub, "link", "add", "bridge", "mtu", str(mtu), "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        yield [_place(hub, name, number, mtu, undo) for number, name in enumerate(MEMBERS, start=1)]


def _namespace(name: str, undo: ExitStack) -> None:
    _run("ip", "netns", "add", name)
    undo.callback(_run, "ip", "netns", "del", name)


def _place(hub: str, name: str, number: int, mtu: int, undo: ExitStack) -> str:
    space, cable = f"motet-{os.getpid()}-{name}", f"to-{name}"
    _namespace(space, undo)
    single = ("gso_max_segs", "1")  # else segmentation offload hands on many packets as one, and one draw loses all
    peer = ("peer", "name", "eth0", "mtu", str(mtu), "netns", space)
    _run("ip", "-n", hub, "link", "add", cable, "mtu", str(mtu), "type", "veth", *peer)
    _run("ip", "-n", hub, "link", "set", cable, "master", "bridge", "up")
    _run("ip", "-n", space, "address", "add", f"{host_of(number)}/24", "dev", "eth0")
    _run("ip", "-n", hub, "link", "set", cable, *single)
    _run("ip", "-n", space, "link", "set", "eth0", *single)
    for device in ("lo", "eth0"):
        _run("ip", "-n", space, "link", "set", device, "up")
    return space


def host_of(number: int) -> str:
    return f"10.78.0.{number}"


def lose(space: str, percent: float) -> None:
    """At the device's ingress: there IP has not put fragments together yet."""
    rules = "add table netdev loss; flush table netdev loss; "
    if percent:
        rules += (
            "add chain netdev loss in { type filter hook ingress device eth0 priority 0; }; "
            f"add rule netdev loss in ether type ip numgen random mod 1000 < {round(percent * 10)} counter drop"
        )
    _run("ip", "netns", "exec", space, "nft", rules)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")


# A member, in a process of its own: a word on stdin, an answer on stdout


async def be_member(name: str, bind: str, seeds: list[str], settings: dict[str, Any]) -> None:
    config = motet.Config.load(environ={}, keys=[KEY], **settings)
    async with motet.join("loss", name=name, bind=bind, seeds=seeds, config=config) as group:
        counted = [0]
        tasks = [asyncio.create_task(_count(group, counted))]
        await group.until(lambda view: len(view.members) == len(MEMBERS))
        _say("ready")
        while (word := (await asyncio.to_thread(sys.stdin.readline)).strip()) != "":
            if word == "send":
                tasks.append(asyncio.create_task(_send(group)))
                _say("sends")
            else:
                stats = group.stats() if word == "stats" else {}
                _say({"at": time.monotonic(), "cpu_s": time.process_time(), "delivered": counted[0], "stats": stats})
        os._exit(0)  # what is under way is of no interest, and leaving in order may take a while under loss


async def _count(group: motet.Group, counted: list[int]) -> None:
    async for event in group.batches():
        if isinstance(event, motet.Batch):
            counted[0] += len(event.payloads)


async def _send(group: motet.Group) -> None:
    while True:
        await group.multicast_many(MESSAGES)


def _say(word: Any) -> None:
    print(json.dumps(word), flush=True)


# The measurement


@dataclass(frozen=True, slots=True)
class Row:
    loss_percent: float
    messages_per_s: float
    messages_per_cpu_s: float  # of processor time of all three processes: on a busy machine the better figure
    segments: str  # how large datagrams left at the end
    resent_share: float


class Child:
    def __init__(self, space: str, number: int, settings: Sequence[str]) -> None:
        words = ["ip", "netns", "exec", space, sys.executable, str(Path(__file__)), *settings, "--member", str(number)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a member of the measurement has died; look above for what it said")
        return json.loads(line)

    def ask(self, word: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(spaces: Sequence[str], percent: float, warm_up: float, seconds: float, settings: Sequence[str]) -> Row:
    for space in spaces:
        lose(space, 0)
    with ExitStack() as undo:
        children = [Child(space, number, settings) for number, space in enumerate(spaces, start=1)]
        for child in children:
            undo.callback(child.end)
        for child in children:
            assert child.hear() == "ready"
        for space in spaces:
            lose(space, percent)
        children[0].ask("send")
        time.sleep(warm_up)
        before = [child.ask("count") for child in children]
        time.sleep(seconds)
        after = [child.ask("count") for child in children]
        stats = children[0].ask("stats")["stats"]
    rates = [(b["delivered"] - a["delivered"]) / (b["at"] - a["at"]) for a, b in zip(before, after, strict=True)]
    cpu_s = sum(b["cpu_s"] - a["cpu_s"] for a, b in zip(before, after, strict=True))
    delivered = min(b["delivered"] - a["delivered"] for a, b in zip(before, after, strict=True))
    sent, resent = stats["counters"]["frame_sent"], stats["counters"]["frame_resent"]
    segments = stats.get("frames", {}).get("segments", "")
    per_cpu_s = round(delivered / cpu_s, 1)
    return Row(percent, round(min(rates), 1), per_cpu_s, segments, round(resent / (sent + resent), 3))


def _settings(words: Sequence[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 1, 3, 5, 10], help="per cent of all packets")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--config", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--member", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        seeds = [] if options.member == 1 else [f"{host_of(1)}:{PORT}"]
        name, bind = MEMBERS[options.member - 1], f"{host_of(options.member)}:{PORT}"
        asyncio.run(be_member(name, bind, seeds, _settings(options.config)))
        return
    passed_on = [word for setting in options.config for word in ("--config", setting)]
    with network(options.mtu) as spaces:
        for percent in options.loss:
            row = measure(spaces, percent, options.warm_up, options.seconds, passed_on)
            if options.json:
                print(json.dumps(asdict(row)), flush=True)
            else:
                size = f"segments: {row.segments}" if row.segments else ""
                rates = f"{row.messages_per_s:9,.0f} messages/s  {row.messages_per_cpu_s:9,.0f} per CPU second"
                print(f"{percent:5.1f} %  {rates}  {row.resent_share:6.1%} resent  {size}", flush=True)


if __name__ == "__main__":
    main()
