"""The member's side of its liveness process (busy_process.py). While the driver runs, it gives that process what it
needs to send BUSY for the member when the driver does not run, because code holds the GIL or a disk does not answer.

The driver's loop renews a time in shared memory four times per `suspect_ns`. The same memory has the peers and a stock
of BUSY datagrams, sealed if there is a key. The liveness process gets no key. The stock is sealed under an incarnation
of its own, because the counters of the member's own envelope have moved on when the stock is used: nonces never repeat,
and replay windows keep the two apart.

Without Linux's /proc, memfd and posix_spawn, or where Python is not a program that can run a script, there is no such
process, and a member that holds the GIL for too long is suspected. While faults are injected the process is silent: it
would send datagrams that the faults should delay or drop.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import marshal
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

from motet.config import Config
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import View
from motet.protocol.wire.codec import encode, group_id
from motet.protocol.wire.frames import Busy
from motet.protocol.wire.seal import SALT_BITS, Keyring, Sealer
from motet.runtime import busy_process
from motet.runtime.busy_process import HEADER, MEMORY_BYTES, SIZE, STOCK_AT, STOCK_BYTES, USED, USED_AT
from motet.runtime.transport import UdpTransport

POLLS_PER_SUSPICION = 4  # BUSY must come well before suspect_ns is over, and one may be lost
MOST_DATAGRAMS = 5_000  # of a stock: 10 minutes of preset `local`
FREE_FD = 10  # file descriptors above those that the process expects
logger = logging.getLogger("motet")


class LivenessProcess:
    def __init__(
        self, group: str, local: Address, transport: UdpTransport, config: Config, is_muted: Callable[[], bool]
    ) -> None:
        self._group = group_id(group)
        self._local = local
        self._transport = transport
        self._is_muted = is_muted
        self._interval_ns = min(config.heartbeat_ns, config.suspect_ns // POLLS_PER_SUSPICION)
        self._stock_size = min(config.busy_max_ns // self._interval_ns + 1, MOST_DATAGRAMS)
        keyring = config.keyring()
        self._sealer = (
            Sealer(keyring, SystemRandom().getrandbits(64), SystemRandom().getrandbits(SALT_BITS))
            if keyring is not None
            else None
        )
        self._view: View | None = None
        self._number = 0  # of the latest stock
        self._names_all_peers = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._memory: mmap.mmap | None = None
        self._pipe = -1
        self._was_tried = False
        self.process: int | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called on the driver's loop. The process itself is started with the first view that has another member."""
        self._loop = loop

    def follow(self, view: View) -> None:
        """Called when a view was installed."""
        self._view = view
        if len(view.members) > 1 and not self._was_tried:
            self._was_tried = True
            self._try_to_run()
        if self._memory is not None:
            self._prepare(self._memory, view)

    def refresh(self) -> None:
        """Record that the driver runs, and whether faults are injected."""
        if self._memory is not None:
            HEADER.pack_into(self._memory, 0, time.monotonic_ns(), self._number, self._is_muted())

    def rekey(self, keyring: Keyring) -> None:
        if self._sealer is not None:
            self._sealer.rekey(keyring)
        if self._memory is not None and self._view is not None:
            self._prepare(self._memory, self._view)

    def close(self) -> None:
        """The process has ended when this returns, so the port is free."""
        if self._timer is not None:
            self._timer.cancel()
        if self.process is not None:
            _end(self.process)
            os.close(self._pipe)
        if self._memory is not None:
            self._memory.close()
        self.process = self._memory = self._timer = None

    # The process

    def _try_to_run(self) -> None:
        try:
            _require_support()
            self._run()
        except (OSError, NotImplementedError) as error:
            logger.info(
                "no liveness process (%s): if code in this process holds the GIL for longer than the suspicion time, "
                "the others remove this member",
                error,
            )

    def _run(self) -> None:
        shared = os.memfd_create("motet liveness")
        read_end, write_end = os.pipe()
        try:
            os.ftruncate(shared, MEMORY_BYTES)
            memory = mmap.mmap(shared, MEMORY_BYTES)
            self.process = _spawn(read_end, self._transport.fileno(), shared, self._interval_ns)
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(shared)
            os.close(read_end)
        self._memory, self._pipe = memory, write_end
        self._renew()

    # Shared memory

    def _renew(self) -> None:
        assert self._loop is not None
        if self._memory is None:
            return
        self.refresh()
        is_used = USED.unpack_from(self._memory, USED_AT)[0] > 0
        if self._view is not None and (is_used or not self._names_all_peers):
            self._prepare(self._memory, self._view)
        self._timer = self._loop.call_later(self._interval_ns / SECOND, self._renew)

    def _prepare(self, memory: mmap.mmap, view: View) -> None:
        """Write a new stock beside the one that the process may be reading, and publish its number afterwards."""
        others = [member.endpoint for member in view.members if member != self._local]
        places = [place for other in others if (place := self._transport.place(other)) is not None]
        self._names_all_peers = len(places) == len(others)
        data = marshal.dumps(([tuple(place) for place in places], self._datagrams(view), self._sealer is None))
        if len(data) > STOCK_BYTES - SIZE.size:
            return
        self._number += 1
        at = STOCK_AT + self._number % 2 * STOCK_BYTES
        SIZE.pack_into(memory, at, len(data))
        memory[at + SIZE.size : at + SIZE.size + len(data)] = data
        self.refresh()
        USED.pack_into(memory, USED_AT, 0)

    def _datagrams(self, view: View) -> list[bytes]:
        plain = encode(self._group, self._local.incarnation, NOBODY, Busy(view.id))
        if self._sealer is None:
            return [plain]
        return [self._sealer.seal(plain) for _ in range(self._stock_size)]


def _require_support() -> None:
    if not (sys.platform == "linux" and Path(f"/proc/{os.getpid()}/stat").exists()):
        raise NotImplementedError("it needs Linux with /proc")
    if getattr(sys, "frozen", False) or not Path(sys.executable or "").name.startswith("python"):
        raise NotImplementedError(f"{sys.executable!r} is not a Python that runs scripts")
    if not Path(busy_process.__file__).is_file():
        raise NotImplementedError("Motet is not installed as files")


def _spawn(pipe: int, sock: int, shared: int, interval_ns: int) -> int:
    """Start the process without a fork and without our stdout: a reader of our output must not wait for the child."""
    wanted = {0: pipe, busy_process.SOCKET_FD: sock, busy_process.MEMORY_FD: shared}
    moved = {place: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE_FD) for place, fd in wanted.items()}
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    inherited = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in moved.items()]
    command = [sys.executable, "-I", "-S", busy_process.__file__, str(os.getpid()), str(interval_ns)]
    try:
        return os.posix_spawn(
            sys.executable,
            command,
            os.environ,
            file_actions=[*null, *inherited],
            setsigmask=[signal.SIGINT],  # Ctrl-C is for the member, which may take a while to leave
            setsigdef=[signal.SIGTERM],
        )
    finally:
        for fd in moved.values():
            os.close(fd)


def _end(process: int) -> None:
    """Kill the process. If another part of the application has reaped it, its id may belong to a stranger by now."""
    try:
        if os.waitpid(process, os.WNOHANG) == (0, 0):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    except ChildProcessError:
        pass
