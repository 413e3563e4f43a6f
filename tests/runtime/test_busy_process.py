"""The liveness process as an object: when it speaks, and what of its stock it uses."""

from __future__ import annotations

import marshal
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from motet.runtime.busy_process import (
    HEADER,
    MEMORY_BYTES,
    SIZE,
    STOCK_AT,
    STOCK_BYTES,
    USED,
    USED_AT,
    BusySender,
    is_running,
)

INTERVAL_NS = 100
OVERDUE = 2 * INTERVAL_NS


class Bench:
    """A busy_sender for this very process, and the socket of the one peer that it tells."""

    def __init__(self, member: int) -> None:
        self.memory = mmap.mmap(-1, MEMORY_BYTES)
        self.sender, self.peer = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self.peer.bind(("127.0.0.1", 0))
        self.peer.setblocking(False)
        self.busy_sender = BusySender(self.memory, self.sender, member, INTERVAL_NS)

    def write(self, number: int, *datagrams: bytes, is_reusable: bool = False, is_muted: bool = False) -> None:
        data = marshal.dumps(([self.peer.getsockname()], list(datagrams), is_reusable))
        at = STOCK_AT + number % 2 * STOCK_BYTES
        SIZE.pack_into(self.memory, at, len(data))
        self.memory[at + SIZE.size : at + SIZE.size + len(data)] = data
        HEADER.pack_into(self.memory, 0, 0, number, is_muted)

    def poll(self, now: int) -> bytes | None:
        self.busy_sender.poll(now)
        try:
            return self.peer.recv(100)
        except BlockingIOError:
            return None

    def close(self) -> None:
        self.sender.close()
        self.peer.close()
        self.memory.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(os.getpid())
    yield made
    made.close()


def test_it_is_silent_while_the_driver_runs_and_before_it_has_a_stock(bench: Bench) -> None:
    assert bench.poll(OVERDUE) is None
    bench.write(1, b"busy", is_reusable=True)
    assert bench.poll(OVERDUE - 1) is None
    assert bench.poll(OVERDUE) == b"busy"


def test_a_sealed_datagram_is_sent_once_and_a_used_stock_is_not_begun_again(bench: Bench) -> None:
    bench.write(1, b"one", b"two")
    assert [bench.poll(OVERDUE) for _ in range(3)] == [b"one", b"two", None]
    assert USED.unpack_from(bench.memory, USED_AT) == (2,)
    bench.write(2, b"three")
    assert [bench.poll(OVERDUE) for _ in range(2)] == [b"three", None]


def test_a_plain_datagram_is_sent_as_often_as_needed(bench: Bench) -> None:
    bench.write(1, b"busy", is_reusable=True)
    assert [bench.poll(OVERDUE) for _ in range(3)] == [b"busy"] * 3


def test_it_is_silent_while_faults_are_injected(bench: Bench) -> None:
    bench.write(1, b"busy", is_reusable=True, is_muted=True)
    assert bench.poll(OVERDUE) is None


def test_a_process_that_is_stopped_or_dead_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert is_running(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert not is_running(child.pid)
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_running(child.pid)  # a zombie
        child.communicate()
    assert not is_running(child.pid)
