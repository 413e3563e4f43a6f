"""How many messages a second one core takes through a channel, beside the plain cost of copying their bytes.

Two things are measured, in rounds that alternate with rounds of copying, so that all of them see the same machine:

    path      pack -> encode -> decode -> window -> split, called by hand, with no protocol around it
    machines  two members, one multicasting to the other, acks included; each half is timed by itself

The copy joins the messages of each frame and copies the joined bytes once more: a channel cannot do with less. It
makes no single messages again at the end, which the path does. What is delivered or copied is dropped at once, as by
an application that keeps nothing. Nothing here touches a socket. Seconds are seconds of processor time, so that other
programs take none of them away; what they do to the caches and the clock rate still shows, as spread between rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from statistics import median
from time import perf_counter_ns, thread_time_ns

from rich.console import Console
from rich.table import Table

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.member import Datagram, Delivered, Member, MemberConfig
from motet.protocol.window.ring import RingWindow
from motet.protocol.wire.backlog import Backlog
from motet.protocol.wire.codec import DecodedDatagram, decode, encode, group_id
from motet.protocol.wire.frames import MulticastData
from motet.protocol.wire.reassembler import Reassembler

ROUNDS = 9  # of each kind; odd, so that the median is one of them
FRAMES_PER_PASS = 64  # a quarter of the default window: what one ack of a fast receiver covers
FRAMES_PER_WAKE_UP = 16  # datagrams that a driver reads before it calls the member
GROUP = "bench"

Handler = Callable[[tuple[bytes, ...]], object]  # what the application does with messages that are delivered together


@dataclass(frozen=True, slots=True)
class MessageShape:
    """What the messages of one row look like."""

    name: str  # the length in bytes, as people write it
    least: int
    most: int

    def messages(self, total_bytes: int, rng: Random) -> list[bytes]:
        """About `total_bytes` of messages, all different, so that no cache flatters the result."""
        count = total_bytes * 2 // (self.least + self.most)
        return [rng.randbytes(rng.randint(self.least, self.most)) for _ in range(count)]


SHAPES = (
    MessageShape("100", 100, 100),
    MessageShape("1000", 1000, 1000),
    MessageShape("1 to 199", 1, 199),
    MessageShape("1 to 1999", 1, 1999),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second over the rounds."""

    best: float
    median: float
    worst: float

    @classmethod
    def of(cls, rates: Sequence[float]) -> Rate:
        return cls(max(rates), median(rates), min(rates))


@dataclass(frozen=True, slots=True)
class PathRow:
    """One line of a table: several things measured over the same messages."""

    shape: str
    message_bytes: float  # the mean
    messages_per_frame: float
    rates: dict[str, Rate]


# What is measured


class Path:
    """One frame after another through every function between a message at the sender and a message at the receiver."""

    def __init__(self, messages: Sequence[bytes], config: MemberConfig) -> None:
        self._messages = messages
        self._group = group_id(GROUP)
        self._backlog = Backlog(config.multicast_sized.body_bytes)
        self._sent: RingWindow[bytes] = RingWindow(config.multicast.capacity)
        self._received: RingWindow[bytes] = RingWindow(config.multicast.capacity)
        self._reassembler = Reassembler()

    def run(self, handle: Handler) -> None:
        """All messages once."""
        self._backlog.extend(self._messages)
        while self._backlog:
            self._carry(handle)

    def _carry(self, handle: Handler) -> None:
        """As many frames as one wake-up brings, delivered together and acked together."""
        for _ in range(FRAMES_PER_WAKE_UP):
            if not self._backlog:
                break
            body, _ = self._backlog.take()
            seqno = self._sent.append(body)
            datagram = encode(self._group, 1, NOBODY, MulticastData(1, seqno, self._sent.low, body))
            envelope = decode(self._group, datagram)
            assert isinstance(envelope, DecodedDatagram)
            frame = envelope.frame
            assert isinstance(frame, MulticastData)
            self._received.purge(frame.stable)
            self._received.offer(frame.seqno, frame.body)
        for received in self._received.take():
            handle(self._reassembler.feed(received))
        self._sent.advance(self._received.delivered)


class Machines:
    """Two members in one view. The first multicasts; the second delivers, and its acks go back to the first."""

    def __init__(self, messages: Sequence[bytes], config: MemberConfig) -> None:
        rng = Random(2)
        addresses = [Address.draw(name, "127.0.0.1", port, rng) for name, port in (("a", 7800), ("b", 7801))]
        self._messages = messages
        self._sender, self._receiver = (Member(address, GROUP, config, rng) for address in addresses)
        self._now = 0
        for member in (self._sender, self._receiver):
            member.install_view(addresses, dict.fromkeys(addresses, 0), self._now)

    def run(self, handle: Handler, spent: dict[str, int]) -> None:
        """All messages once, the nanoseconds of each half added to `spent`."""
        self._now += MILLISECOND
        to_send = _timed(spent, "sender", partial(self._sender.multicast_messages, self._messages, self._now))
        while datagrams := [effect.data for effect in to_send if isinstance(effect, Datagram)]:
            to_send = []
            for start in range(0, len(datagrams), FRAMES_PER_WAKE_UP):
                wake_up = datagrams[start : start + FRAMES_PER_WAKE_UP]
                effects = _timed(spent, "receiver", partial(self._receiver.receive, wake_up, self._now))
                for effect in effects:
                    if isinstance(effect, Delivered):
                        handle(tuple(effect.messages))
                if acks := [effect.data for effect in effects if isinstance(effect, Datagram)]:
                    to_send += _timed(spent, "sender", partial(self._sender.receive, acks, self._now))


def _timed(spent: dict[str, int], half: str, call: Callable[[], list[Effect]]) -> list[Effect]:
    started = thread_time_ns()
    effects = call()
    spent[half] += thread_time_ns() - started
    return effects


def _copy(frames: Sequence[Sequence[bytes]]) -> None:
    """The bytes of each frame, gathered and copied once; `bytes` of a `bytes` would copy nothing."""
    for messages in frames:
        bytes(memoryview(b"".join(messages)))


# How it is measured


def measure_path(shape: MessageShape, seconds: float) -> PathRow:
    config = MemberConfig()
    messages = _messages_of(shape, config)
    path = Path(messages, config)
    frames = _checked(path.run, messages)
    slice_ns = int(seconds * SECOND / ROUNDS / 2)
    rates: dict[str, list[float]] = {"path": [], "copy": []}
    for _ in range(ROUNDS):
        rates["path"].append(_rate(partial(path.run, len), len(messages), slice_ns))
        rates["copy"].append(_rate(partial(_copy, frames), len(messages), slice_ns))
    return _row(shape, messages, frames, rates)


def measure_machines(shape: MessageShape, seconds: float) -> PathRow:
    config = MemberConfig()
    messages = _messages_of(shape, config)
    frames = _checked(Path(messages, config).run, messages)
    machines = Machines(messages, config)
    _checked(partial(machines.run, spent={"sender": 0, "receiver": 0}), messages)
    slice_ns = int(seconds * SECOND / ROUNDS / 2)
    rates: dict[str, list[float]] = {"sender": [], "receiver": [], "both": [], "copy": []}
    for _ in range(ROUNDS):
        for half, rate in _half_rates(machines, len(messages), slice_ns).items():
            rates[half].append(rate)
        rates["copy"].append(_rate(partial(_copy, frames), len(messages), slice_ns))
    return _row(shape, messages, frames, rates)


def _messages_of(shape: MessageShape, config: MemberConfig) -> list[bytes]:
    return shape.messages(FRAMES_PER_PASS * config.frame_bytes, Random(1))


def _checked(run: Callable[[Handler], None], messages: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """What one run delivers, which must be what went in: a fast path that loses messages would be no measurement."""
    out: list[tuple[bytes, ...]] = []
    run(out.append)
    if [message for frame in out for message in frame] != messages:
        raise SystemExit("what came out is not what went in; nothing was measured")
    return out


def _rate(run: Callable[[], object], count: int, slice_ns: int) -> float:
    """Messages per second of `run`, which handles `count` of them, repeated for `slice_ns`."""
    passes, started = 0, thread_time_ns()
    while (elapsed := thread_time_ns() - started) < slice_ns or not passes:
        run()
        passes += 1
    return passes * count / elapsed * SECOND


def _half_rates(machines: Machines, count: int, slice_ns: int) -> dict[str, float]:
    passes, spent = 0, {"sender": 0, "receiver": 0}
    while sum(spent.values()) < slice_ns:
        machines.run(len, spent)
        passes += 1
    spent["both"] = sum(spent.values())
    return {half: passes * count / elapsed * SECOND for half, elapsed in spent.items()}


def _row(
    shape: MessageShape, messages: Sequence[bytes], frames: Sequence[Sequence[bytes]], rates: dict[str, list[float]]
) -> PathRow:
    mean = sum(map(len, messages)) / len(messages)
    return PathRow(shape.name, mean, len(messages) / len(frames), {name: Rate.of(each) for name, each in rates.items()})


# How it is shown


def _table(title: str, rows: Sequence[PathRow]) -> Table:
    table = Table(title=title, caption=f"million messages per second of processor time, {ROUNDS} rounds")
    for heading in ("bytes", "per frame", "part"):
        table.add_column(heading, justify="right" if heading == "per frame" else "left")
    for heading in ("best", "median", "worst", "MB/s", "to copy"):
        table.add_column(heading, justify="right")
    for row in rows:
        for position, part in enumerate(row.rates):
            table.add_row(*(("", "") if position else (row.shape, f"{row.messages_per_frame:.0f}")), *_cells(row, part))
        table.add_section()
    return table


def _cells(row: PathRow, part: str) -> tuple[str, ...]:
    """The figures of one part; the last two are of the median."""
    rate = row.rates[part]
    figures = (f"{each / 1e6:.2f}" for each in (rate.best, rate.median, rate.worst))
    times = "" if part == "copy" else f"1 : {row.rates['copy'].median / rate.median:.1f}"
    return (part, *figures, f"{rate.median * row.message_bytes / 1e6:,.0f}", times)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the path of a message through a channel, on one core.")
    parser.add_argument("--seconds", type=float, default=4.0, help="time spent on each kind of messages (default: 4)")
    parser.add_argument("--json", action="store_true", help="print the figures for a program to read")
    arguments = parser.parse_args()
    if not arguments.seconds > 0:
        parser.error("--seconds must be above 0")
    started, spent = perf_counter_ns(), thread_time_ns()
    path = [measure_path(shape, arguments.seconds) for shape in SHAPES]
    machines = [measure_machines(shape, arguments.seconds) for shape in SHAPES]
    share = (thread_time_ns() - spent) / (perf_counter_ns() - started)
    if arguments.json:
        report = {"path": list(map(asdict, path)), "machines": list(map(asdict, machines)), "processor_share": share}
        print(json.dumps(report, indent=2))
        return
    console = Console()
    console.print(_table("The path by hand", path))
    console.print(_table("Two members, acks included", machines))
    console.print(f"This run had {share:.0%} of one core; well below 100% means that the machine was busy.")


if __name__ == "__main__":
    main()
