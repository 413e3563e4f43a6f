"""The liveness process of one member. `liveness.py` runs this file as a script, and it imports nothing of Motet, so
that it starts in milliseconds and stays small.

The member's driver renews a time in shared memory while it runs. When that time is overdue although the member's
process is neither stopped nor dead, this process sends the BUSY datagrams that the driver has prepared, to the peers
that it has named, from the member's own socket. A member that is stopped or dead stays silent and is suspected.

It ends with the member: the member holds the only other end of the pipe that is stdin here, and where a child of the
member has inherited that end, the next poll notices that the id of the parent has changed.
"""

from __future__ import annotations

import marshal
import mmap
import os
import select
import socket
import sys
import time
from struct import Struct

SOCKET_FD = 3
MEMORY_FD = 4
HEADER = Struct("<QQQ")  # when the driver last ran in ns, the number of the latest stock or 0, whether to be silent
USED_AT, USED = HEADER.size, Struct("<Q")  # datagrams of the stock that were sent; written here, reset by the driver
STOCK_AT, STOCK_BYTES, SIZE = 4096, 1 << 20, Struct("<I")  # two places; stock number n is in place n % 2
MEMORY_BYTES = STOCK_AT + 2 * STOCK_BYTES
OVERDUE_INTERVALS = 2  # a driver that is late by less may merely have much to do
NOT_RUNNING = b"TtZXx"  # stopped, traced, or dead: the states of /proc/PID/stat in which a process does nothing

Stock = tuple[list[tuple[str, int]], list[bytes], bool]  # peers, datagrams, whether each may be sent more than once


class BusySender:
    def __init__(self, memory: mmap.mmap, sender: socket.socket, member: int, interval_ns: int) -> None:
        self._memory = memory
        self._sender = sender
        self._member = member
        self._overdue_ns = OVERDUE_INTERVALS * interval_ns
        self._number = 0
        self._stock: Stock = ([], [], False)
        self._used = 0

    def poll(self, now: int) -> None:
        """Send one BUSY to every peer if the member needs it."""
        ran_at, number, is_muted = HEADER.unpack_from(self._memory)
        if not number or is_muted or now - ran_at < self._overdue_ns or not is_running(self._member):
            return
        if number != self._number:
            self._load(number)
        self._send_busy()

    def _load(self, number: int) -> None:
        """Read the stock; one that the driver replaced meanwhile is read again at the next poll."""
        at = STOCK_AT + number % 2 * STOCK_BYTES
        (size,) = SIZE.unpack_from(self._memory, at)
        data = self._memory[at + SIZE.size : at + SIZE.size + size]
        if HEADER.unpack_from(self._memory)[1] == number:
            self._number, self._stock, self._used = number, marshal.loads(data), 0

    def _send_busy(self) -> None:
        peers, datagrams, is_reusable = self._stock
        if not datagrams or (self._used >= len(datagrams) and not is_reusable):
            return
        datagram = datagrams[self._used % len(datagrams)]
        self._used += 1
        USED.pack_into(self._memory, USED_AT, self._used)
        for peer in peers:
            try:
                self._sender.sendto(datagram, peer)
            except OSError:  # unreachable, or the buffer is full: lost like any other datagram
                continue


def is_running(process: int) -> bool:
    """Whether the operating system would run it; what it waits for does not matter."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 (pathlib costs memory here)
            state = file.read(1024).rpartition(b") ")[2][:1]
    except OSError:
        return False
    return state not in NOT_RUNNING


def main(member: int, interval_ns: int) -> None:
    os.closerange(MEMORY_FD + 1, 1 << 16)  # descriptors that the member leaves open for its children
    os.chdir("/")
    memory = mmap.mmap(MEMORY_FD, MEMORY_BYTES)
    busy_sender = BusySender(memory, socket.socket(fileno=SOCKET_FD), member, interval_ns)
    end = select.poll()
    end.register(0, select.POLLIN)
    while not end.poll(interval_ns / 1e6) and os.getppid() == member:
        busy_sender.poll(time.monotonic_ns())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
