"""The UDP sockets of one member. Nothing here interprets a datagram.

A datagram that the operating system does not accept at once waits in a bounded queue. Beyond the bound it is dropped,
and the protocols retransmit it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.errors import BindError
from motet.protocol.core.identity import Endpoint
from motet.runtime.names import is_address, look_up

MOST_DATAGRAM = 65_535
MOST_ROUTES = 10_000
MOST_WAITING = 4_096  # datagrams that wait for the system to take them
UDP_SEGMENT = 103  # Linux's number of the option, which the socket module does not have
MOST_SEGMENTS = 64  # in one call; every kernel that has the option takes so many
MOST_SEGMENTED_BYTES = 65_000
RUN = 16  # so many segments count as one datagram against the limit of datagrams per wake-up
# A wake-up that follows another within this time reads several datagrams. Otherwise one is usual, and the further read
# that finds nothing would cost more than the wake-up that it saves.
BUSY_S = 0.0002
logger = logging.getLogger("motet")

Received = Callable[[list[bytes], list[Endpoint] | None], None]


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """How datagrams travel."""

    socket_buffer_bytes: int = 8 << 20  # a few windows of the largest frames, which arrive while the process is busy
    batch: int = 32  # datagrams per wake-up, so that timers and commands get their turn
    multicast: Endpoint | None = None  # IP multicast for what goes to the whole group; None: one datagram per member
    multicast_ttl: int = 1  # stays on the local network
    interface: str = ""  # the address of the interface for IP multicast; "" leaves it to the system


class UdpTransport:
    def __init__(self, bind: Endpoint, config: TransportConfig) -> None:
        self._config = config
        self._socket = _bound(bind)
        self.endpoint = Endpoint(*self._socket.getsockname()[:2])
        self.group = config.multicast
        self._group_socket: socket.socket | None = None
        self._waiting: deque[tuple[bytes, Endpoint]] = deque()
        self._routes: dict[Endpoint, Endpoint] = {}  # resolved address of each endpoint
        self._looked_up: set[Endpoint] = set()  # names that are being looked up
        self._loop: asyncio.AbstractEventLoop | None = None
        self._received: Received | None = None
        self.wants_sources = False  # fault injection needs the source of each datagram
        self._can_segment = sys.platform.startswith("linux")
        self.expects_runs = False
        self.lost = 0  # datagrams that the operating system did not accept
        self._woken_at = 0.0
        self._grow_buffers()

    def start(self, loop: asyncio.AbstractEventLoop, received: Received) -> None:
        self._loop, self._received = loop, received
        loop.add_reader(self._socket.fileno(), self._on_readable, self._socket)
        if self._config.multicast is not None:
            self.listen_to(self._config.multicast)

    def listen_to(self, group: Endpoint) -> None:
        """Take part in an IP multicast group."""
        assert self._loop is not None
        if self._group_socket is not None:
            return
        self._group_socket = _joined(group, self._config)
        _ignore_own(self._group_socket, self.endpoint)
        _prepare_for_multicast(self._socket, self._config)
        self._loop.add_reader(self._group_socket.fileno(), self._on_readable, self._group_socket)

    def close(self) -> None:
        for sock in (self._socket, self._group_socket):
            if sock is not None:
                if self._loop is not None:
                    self._loop.remove_reader(sock.fileno())
                    self._loop.remove_writer(sock.fileno())
                sock.close()

    def send(self, data: bytes, to: Endpoint, tail: bytes = b"") -> None:
        place = self._routes.get(to) or self._route(to)
        if place is None:
            self.lost += 1
        else:
            self._send(data, tail, place)

    def send_all(self, datagrams: Sequence[bytes], to: Endpoint) -> None:
        """Several, in order; all but the last one have the same length, so that the system can cut them from one."""
        place = self._routes.get(to) or self._route(to)
        if place is None:
            self.lost += len(datagrams)
            return
        most = min(MOST_SEGMENTS, MOST_SEGMENTED_BYTES // len(datagrams[0])) if self._can_segment else 1
        for start in range(0, len(datagrams), max(1, most)):
            run = datagrams[start : start + most]
            if len(run) == 1 or self._waiting or not self._send_run(run, place):
                for datagram in run:
                    self._send(datagram, b"", place)

    def _send_run(self, run: Sequence[bytes], to: Endpoint) -> bool:
        """In one call, where the kernel has UDP segmentation offload; False: it did not take them."""
        segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", len(run[0])))
        try:
            self._socket.sendmsg(run, (segment,), 0, to)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._can_segment = False  # an old kernel, or a device that cannot: one call for each, from now on
            return False
        return True

    def packet_bytes(self, to: Endpoint) -> int:
        """What the system knows of the path: the MTU of the device, or less where a router has said so."""
        place = self._routes.get(to) or self._route(to)
        if place is None or not sys.platform.startswith("linux"):
            return 0
        is_v6 = self._socket.family == socket.AF_INET6
        level, option, headers = (socket.IPPROTO_IPV6, 24, 48) if is_v6 else (socket.IPPROTO_IP, 14, 28)
        try:
            with socket.socket(self._socket.family, socket.SOCK_DGRAM) as probe:
                probe.connect(place)  # nothing is sent
                return probe.getsockopt(level, option) - headers  # IPV6_MTU or IP_MTU
        except OSError:
            return 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def place(self, to: Endpoint) -> Endpoint | None:
        """The resolved address of `to`; None while its name is being looked up."""
        return self._routes.get(to) or self._route(to)

    def _route(self, to: Endpoint) -> Endpoint | None:
        """Resolve a name in a thread; datagrams to it are dropped until it is known."""
        if len(self._routes) >= MOST_ROUTES:
            self._routes.clear()
        if is_address(to.host):
            self._routes[to] = to
        elif to not in self._looked_up and self._loop is not None:
            self._looked_up.add(to)
            self._loop.run_in_executor(None, look_up, to).add_done_callback(lambda found: self._found(to, found))
        return self._routes.get(to)

    def _found(self, to: Endpoint, found: asyncio.Future[Endpoint | None]) -> None:
        self._looked_up.discard(to)
        if not found.cancelled() and (place := found.result()) is not None:
            self._routes[to] = place

    def _send(self, data: bytes, tail: bytes, to: Endpoint) -> None:
        if self._waiting:
            self._wait(b"".join((data, tail)), to)
            return
        try:
            if tail:
                self._socket.sendmsg((data, tail), (), 0, to)
            else:
                self._socket.sendto(data, to)
        except (BlockingIOError, InterruptedError):
            self._wait(b"".join((data, tail)), to)
        except OSError:  # unreachable, or refused by a firewall: the protocols retransmit it
            self.lost += 1

    def _wait(self, data: bytes, to: Endpoint) -> None:
        if len(self._waiting) >= MOST_WAITING or self._loop is None:
            self.lost += 1
            return
        if not self._waiting:
            self._loop.add_writer(self._socket.fileno(), self._on_writable)
        self._waiting.append((data, to))

    def _on_writable(self) -> None:
        while self._waiting:
            data, to = self._waiting[0]
            try:
                self._socket.sendto(data, to)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.lost += 1
            self._waiting.popleft()
        assert self._loop is not None
        self._loop.remove_writer(self._socket.fileno())

    def _on_readable(self, sock: socket.socket) -> None:
        assert self._received is not None
        datagrams: list[bytes] = []
        sources: list[Endpoint] | None = [] if self.wants_sources else None
        before, self._woken_at = self._woken_at, time.monotonic()
        is_busy = self._woken_at - before < BUSY_S
        most = self._config.batch * (RUN if self.expects_runs else 1) if is_busy or self.expects_runs else 1
        try:
            for _ in range(most):
                if sources is None:
                    datagrams.append(sock.recv(MOST_DATAGRAM))
                else:
                    data, source = sock.recvfrom(MOST_DATAGRAM)
                    datagrams.append(data)
                    sources.append(Endpoint(*source[:2]))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:  # ICMP refused an earlier datagram; the failure detector notices that peer anyway
            pass
        if datagrams:
            self._received(datagrams, sources)

    def _grow_buffers(self) -> None:
        wanted = self._config.socket_buffer_bytes
        self.receive_bytes = _grow(self._socket, socket.SO_RCVBUF, wanted)
        got = min(self.receive_bytes, _grow(self._socket, socket.SO_SNDBUF, wanted))
        if got < wanted:
            logger.warning(
                "socket buffers have %d KiB instead of %d: bursts may be lost and sent again, which costs speed. "
                "As root: sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d",
                got >> 10,
                wanted >> 10,
                wanted,
                wanted,
            )


def _grow(sock: socket.socket, option: int, wanted: int) -> int:
    forced = {socket.SO_RCVBUF: "SO_RCVBUFFORCE", socket.SO_SNDBUF: "SO_SNDBUFFORCE"}[option]
    numbers = {"SO_RCVBUFFORCE": 33, "SO_SNDBUFFORCE": 32}  # Linux; root may go beyond the system's limit
    for choice in (option, numbers[forced]):
        try:
            sock.setsockopt(socket.SOL_SOCKET, choice, wanted)
        except OSError:
            continue
        got = sock.getsockopt(socket.SOL_SOCKET, option)
        if got >= wanted:
            break
    return sock.getsockopt(socket.SOL_SOCKET, option)


def _bound(bind: Endpoint) -> socket.socket:
    try:
        family = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_DGRAM)[0][0]
        sock = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        raise BindError(f"cannot listen on {bind}: {error}. Give a host and port of this machine") from None
    try:
        sock.bind((bind.host, bind.port))
    except OSError as error:
        sock.close()
        raise BindError(
            f"cannot listen on {bind}: {error.strerror or error}. Is another process on that port? "
            "Choose another one, or port 0 for any that is free"
        ) from None
    sock.setblocking(False)
    return sock


def _joined(group: Endpoint, config: TransportConfig) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((group.host, group.port))
        interface = socket.inet_aton(config.interface) if config.interface else struct.pack("=I", socket.INADDR_ANY)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group.host) + interface)
    except OSError as error:
        sock.close()
        raise BindError(
            f"cannot take part in IP multicast at {group}: {error.strerror or error}. "
            "Does the network allow it? The default, one datagram per member, works everywhere"
        ) from None
    _grow(sock, socket.SO_RCVBUF, config.socket_buffer_bytes)
    sock.setblocking(False)
    return sock


def _ignore_own(sock: socket.socket, own: Endpoint) -> None:
    """Let the kernel drop our own datagrams, which IP multicast loops back. Where it cannot, the driver drops them
    after a needless copy."""
    if not sys.platform.startswith("linux") or own.host in ("", "0.0.0.0"):
        return
    address = struct.unpack("!I", socket.inet_aton(own.host))[0]
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (0x28, 0, 0, 0),  # the source port, at the beginning of the UDP header
            (0x15, 0, 3, own.port),  # ours, or else: take it
            (0x20, 0, 0, 0xFFF0_000C),  # the source address in the IP header
            (0x15, 0, 1, address),
            (0x06, 0, 0, 0),  # drop
            (0x06, 0, 0, 0xFFFF_FFFF),  # take all of it
        )
    )
    kept = ctypes.create_string_buffer(program, len(program))
    attach_filter = 26  # SO_ATTACH_FILTER
    try:
        sock.setsockopt(socket.SOL_SOCKET, attach_filter, struct.pack("HP", len(program) // 8, ctypes.addressof(kept)))
    except OSError:  # some sandboxes refuse
        logger.debug("no packet filter: own multicasts are dropped one step later")


def _prepare_for_multicast(sock: socket.socket, config: TransportConfig) -> None:
    """Choose the interface for IP multicast, and loop datagrams back for other members of this machine."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, config.multicast_ttl)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    if config.interface:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(config.interface))
