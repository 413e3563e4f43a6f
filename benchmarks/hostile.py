"""An attacker sends datagrams to a member's port while the group works: does it keep serving, and at what cost?

    python benchmarks/hostile.py                         a million at a sealed group, a million at one without a key
    python benchmarks/hostile.py --datagrams 20000       a small form, which the tests run

Two members in processes of their own; the friend multicasts numbered messages all the time, the target is shot at. Each
shot is drawn anew: random bytes, a cut piece of a genuine datagram, a genuine one again, one that claims another
sender, and at a sealed group also one with a flipped bit, one with a counter far ahead, one sealed with another key and
one without a seal. The shooter waits for the target now and then, so that shots are taken in and not lost in a full
socket buffer. The failure detector is patient here: a busy machine must not change the view, only a shot could.

The exit code is 1 if anything was delivered that the friend did not send, if anything was lost, if a view changed, or
if the target grew by more than MOST_GROWTH_MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import motet
from motet.protocol.core.identity import Endpoint
from motet.protocol.wire.seal import MAGIC, Keyring, Sealer

KEY, FOREIGN_KEY = f"7:{'11' * 32}", f"7:{'22' * 32}"
MOST_GROWTH_MB = 64.0
TIMEOUT_S = 300.0
BURST = 200  # datagrams between two checks of the target's socket
REPORT_EVERY = 50  # bursts
MOST_QUEUED_BYTES = 512 << 10  # what may wait in the target's socket buffer before the attacker waits
RECORDED = 2_000  # genuine datagrams recorded for replay and mutation
REJECTED = ("datagram_rejected", "source_unknown", "not_for_us", "frame_misplaced", "frame_duplicate")


@dataclass(frozen=True, slots=True)
class AttackResult:
    group: str
    datagrams_sent: int
    refused: int  # as the target counts; of those that come again without a seal some are answered instead
    overflowed: int  # dropped by a full socket buffer
    genuine: int  # delivered at the target during the attack
    forged: int  # messages delivered that were never sent
    is_complete: bool  # all messages of the friend were delivered, in order, once
    views_changed: int
    seconds: float
    memory_before_mb: float
    memory_most_mb: float

    @property
    def is_good(self) -> bool:
        growth = self.memory_most_mb - self.memory_before_mb
        return not self.forged and self.is_complete and not self.views_changed and growth < MOST_GROWTH_MB


# A member


class AttackedMember:
    """One member in its process, which executes commands from a pipe."""

    def __init__(self, group: motet.Group) -> None:
        self.group = group
        self.seen = self.forged = self.sent = 0
        self.recorded: list[bytes] = []
        self.is_sending = False

    async def watch(self) -> None:
        async for event in self.group:
            if isinstance(event, motet.Message):
                if event.payload == b"genuine %d" % self.seen:
                    self.seen += 1
                else:
                    self.forged += 1

    async def send(self) -> None:
        while True:
            if self.is_sending:
                await self.group.multicast(b"genuine %d" % self.sent)
                self.sent += 1
            await asyncio.sleep(0.005)

    def record(self) -> None:
        """What this member puts on the network from now on."""
        transport = self.group._driver.transport
        send = transport.send

        def both(data: bytes, to: Endpoint, tail: bytes = b"") -> None:
            if len(self.recorded) < RECORDED:
                self.recorded.append(b"".join((data, tail)))
            send(data, to, tail)

        transport.send = both  # type: ignore[method-assign]

    def report(self) -> dict[str, Any]:
        stats = self.group.stats()
        figures = {
            "seen": self.seen,
            "forged": self.forged,
            "sent": self.sent,
            "memory_mb": stats["memory_bytes"] / 1e6,
        }
        return figures | {"counters": stats["counters"], "view": stats["view"]["number"]}

    def execute(self, word: str) -> Any:
        match word:
            case "report":
                return self.report()
            case "record":
                self.record()
            case "recorded":
                return self.recorded
            case "send" | "stop":
                self.is_sending = word == "send"
        return None


def member_process(name: str, seeds: list[str], keys: tuple[str, ...], pipe: Connection) -> None:
    asyncio.run(member(name, seeds, keys, pipe))


async def member(name: str, seeds: list[str], keys: tuple[str, ...], pipe: Connection) -> None:
    config = motet.Config.local(keys=list(keys), suspect="30s", verify="10s")
    async with motet.join("target", name=name, seeds=seeds or None, config=config) as group:
        one = AttackedMember(group)
        tasks = [asyncio.create_task(one.watch()), asyncio.create_task(one.send())]
        pipe.send((str(group.address.endpoint), group.address.incarnation))
        while (word := await asyncio.to_thread(pipe.recv)) != "leave":
            pipe.send(one.execute(word))
        tasks[1].cancel()
        await group.leave()
        await tasks[0]


class MemberHandle:
    """The attacker's end of the pipe to a member."""

    def __init__(self, name: str, seeds: list[str], keys: tuple[str, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=member_process, args=(name, seeds, keys, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.endpoint, self.incarnation = self._receive()

    def ask(self, word: str) -> Any:
        self._pipe.send(word)
        return self._receive()

    def _receive(self) -> Any:
        if not self._pipe.poll(TIMEOUT_S):
            raise SystemExit("a member does not answer any more")
        return self._pipe.recv()

    def until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_wanted(report := self.ask("report")):
            if time.monotonic() > deadline:
                raise SystemExit(f"this never came true; the last report: {report}")
            time.sleep(0.02)
        return dict(report)

    def leave(self) -> None:
        self._pipe.send("leave")
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()


# The shooter


class Attacker:
    def __init__(self, rng: Random, genuine: list[bytes], friend: int, *, is_sealed: bool) -> None:
        self._rng = rng
        self._genuine = genuine
        self._friend = friend
        self._foreign = Keyring.of([FOREIGN_KEY])
        self._kinds = [self.random, self.cut, self.again, self.other_sender]
        if is_sealed:
            self._kinds += [self.flipped, self.foreign_key, self.unsealed, self.later]

    def datagram(self) -> bytes:
        return self._rng.choice(self._kinds)()

    def random(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(1, 400))

    def cut(self) -> bytes:
        data = self._some()
        return data[: self._rng.randrange(1, len(data))]

    def again(self) -> bytes:
        return self._some()

    def other_sender(self) -> bytes:
        """Well-formed, of somebody whom nobody has introduced: a new one each time."""
        data, at = self._some(), 4 if self._some()[:2] == MAGIC else 8
        return data[:at] + self._rng.randbytes(8) + data[at + 8 :]

    def flipped(self) -> bytes:
        data = bytearray(self._some())
        data[self._rng.randrange(20, len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(data)

    def foreign_key(self) -> bytes:
        """In the friend's name, or in that of a new one."""
        who = self._friend if self._rng.random() < 0.5 else self._rng.getrandbits(64) or 1
        return Sealer(self._foreign, who, 1).seal(self._some())

    def unsealed(self) -> bytes:
        return b"mT" + self._rng.randbytes(self._rng.randrange(10, 200))

    def later(self) -> bytes:
        """Genuine but for its counter, which is far ahead: were it believed, the friend's own would be too old."""
        data = self._some()
        return data[:12] + (self._rng.getrandbits(62)).to_bytes(8, "little") + data[20:]

    def _some(self) -> bytes:
        return self._rng.choice(self._genuine)


def rejected_traffic(report: dict[str, Any]) -> int:
    counters = report["counters"]
    return sum(count for name, count in counters.items() if name.startswith("seal_") or name in REJECTED)


def attack(datagrams_sent: int, seed: int, *, is_sealed: bool) -> AttackResult:
    keys = (KEY,) if is_sealed else ()
    target = MemberHandle("target", [], keys)
    friend = MemberHandle("friend", [target.endpoint], keys)
    friend.ask("record")
    friend.ask("send")
    friend.until(lambda report: report["sent"] > 40)
    before = target.ask("report")
    attacker = Attacker(Random(seed), friend.ask("recorded"), friend.incarnation, is_sealed=is_sealed)
    begun, most_mb = time.monotonic(), before["memory_mb"]
    for report in shoot(attacker, datagrams_sent, target):
        most_mb = max(most_mb, report["memory_mb"])
    seconds = time.monotonic() - begun
    friend.ask("stop")
    time.sleep(0.1)  # one more may be on its way out
    sent = friend.ask("report")["sent"]
    after = target.until(lambda report: report["seen"] + report["forged"] >= sent)
    result = AttackResult(
        "sealed" if is_sealed else "without a key",
        datagrams_sent,
        rejected_traffic(after) - rejected_traffic(before),
        queue_of(int(target.endpoint.rpartition(":")[2])).dropped,
        after["seen"] - before["seen"],
        after["forged"],
        after["seen"] == sent,
        after["view"] - before["view"],
        round(seconds, 1),
        round(before["memory_mb"], 1),
        round(max(most_mb, after["memory_mb"]), 1),
    )
    friend.leave()
    target.leave()
    return result


def shoot(attacker: Attacker, datagrams_sent: int, target: MemberHandle) -> Iterator[dict[str, Any]]:
    """Yields what the target reports now and then."""
    host, _, port = target.endpoint.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for fired in range(0, datagrams_sent, BURST):
            for _ in range(min(BURST, datagrams_sent - fired)):
                stranger.sendto(attacker.datagram(), (host, int(port)))
            while queue_of(int(port)).waiting > MOST_QUEUED_BYTES:
                time.sleep(0.001)
            if fired // BURST % REPORT_EVERY == 0:
                yield target.ask("report")


class Queue(NamedTuple):
    waiting: int = 0  # bytes
    dropped: int = 0  # datagrams that found it full


def queue_of(port: int) -> Queue:
    """The receive buffer of the UDP socket at a port, as Linux tells; elsewhere nobody knows, and nobody waits."""
    try:
        lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    except OSError:
        return Queue()
    for fields in map(str.split, lines):
        if int(fields[1].rpartition(":")[2], 16) == port:
            return Queue(int(fields[4].rpartition(":")[2], 16), int(fields[-1]))
    return Queue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datagrams", type=int, default=1_000_000, help="per group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="for a program to read")
    options = parser.parse_args()
    results = [attack(options.datagrams, options.seed, is_sealed=is_sealed) for is_sealed in (True, False)]
    if options.json:
        print(json.dumps([asdict(result) | {"is_good": result.is_good} for result in results], indent=2))
    else:
        for result in results:
            print(
                f"{result.group}: {result.datagrams_sent:,} hostile datagrams in {result.seconds:.0f} s, "
                f"{result.refused:,} refused and counted, {result.overflowed:,} lost in the socket buffer, "
                f"{result.forged} delivered; meanwhile {result.genuine:,} genuine messages, "
                f"complete: {result.is_complete}, views changed: {result.views_changed}; memory "
                f"{result.memory_before_mb} MB before, {result.memory_most_mb} MB at most"
            )
        print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    sys.exit(0 if all(result.is_good for result in results) else 1)


if __name__ == "__main__":
    main()
