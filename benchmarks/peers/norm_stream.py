"""NORM (RFC 5740), through its C library: one stream from each sender to an IP multicast group on loopback.

ZeroMQ's transport `norm://` would be less to write. But in the version that Debian has, 4.3.4, it needs seconds to find
out how short the way is, delivers nothing above 2 kB, loses messages at the rate that it then reaches, and can abort by
an assertion. So here is the library itself. Its receivers are known, so they acknowledge, and that is the flow control.
A batch is one write and one datagram, as with us.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import deque
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_uint, c_uint8, c_uint16, c_uint32, c_void_p
from struct import Struct
from typing import Any

from benchmarks.peers.field import library
from benchmarks.peers.servers import free_port
from motet.errors import MotetError
from motet.harness.bench.job import Job
from motet.harness.bench.system_under_test import PlainSystem
from motet.protocol.wire.body import pack, split

GROUP, INTERFACE = b"239.77.7.8", b"lo"
SEGMENT = 60_000  # bytes of a datagram: a batch is one
BLOCK, PARITY = 64, 4  # segments that are repaired together
BUFFER = 16 << 20  # of the stream, at each end: all that is under way can be repaired from it
SOCKET_BUFFER = 4 << 20
UNDER_WAY = 100  # segments that not all have acknowledged; with more of them sockets drop, and repair costs the most
RATE = 4e9  # bits per second: more than comes about, but what goes out at once is not more than sockets take
ROUND_TRIP_S = 0.001
AT_ONCE = 1 << 20  # bytes to read
EVENTS = 256  # to look at before others have their turn
LENGTH = Struct("<I")

SYNC_STREAM = 1  # from the first byte that the sender still has
FLUSH_PASSIVE = 1
ANY_NODE = 0xFFFFFFFF
ACKED = 3
VACANCY, EMPTY, WATERMARK = 1, 2, 4
NEW, UPDATED = 17, 19


class _Event(ctypes.Structure):
    _fields_ = (("type", c_int), ("session", c_void_p), ("sender", c_void_p), ("object", c_void_p))


_SIGNATURES: dict[str, tuple[Any, ...]] = {  # what it returns, what it takes
    "NormCreateInstance": (c_void_p, c_bool),
    "NormDestroyInstance": (None, c_void_p),
    "NormGetDescriptor": (c_int, c_void_p),
    "NormGetNextEvent": (c_bool, c_void_p, POINTER(_Event), c_bool),
    "NormCreateSession": (c_void_p, c_void_p, c_char_p, c_uint16, c_uint32),
    "NormSetRxPortReuse": (None, c_void_p, c_bool, c_char_p, c_char_p, c_uint16),
    "NormSetMulticastInterface": (c_bool, c_void_p, c_char_p),
    "NormSetLoopback": (c_bool, c_void_p, c_bool),
    "NormSetTTL": (c_bool, c_void_p, c_uint8),
    "NormSetDefaultSyncPolicy": (None, c_void_p, c_int),
    "NormStartReceiver": (c_bool, c_void_p, c_uint32),
    "NormSetRxSocketBuffer": (c_bool, c_void_p, c_uint),
    "NormStartSender": (c_bool, c_void_p, c_uint16, c_uint32, c_uint16, c_uint16, c_uint16, c_uint8),
    "NormSetTxSocketBuffer": (c_bool, c_void_p, c_uint),
    "NormSetTxRate": (None, c_void_p, c_double),
    "NormSetFlowControl": (None, c_void_p, c_double),
    "NormSetGrttEstimate": (None, c_void_p, c_double),
    "NormSetBackoffFactor": (None, c_void_p, c_double),
    "NormAddAckingNode": (c_bool, c_void_p, c_uint32),
    "NormSetWatermark": (c_bool, c_void_p, c_void_p, c_bool),
    "NormResetWatermark": (c_bool, c_void_p),
    "NormGetAckingStatus": (c_int, c_void_p, c_uint32),
    "NormStreamOpen": (c_void_p, c_void_p, c_uint32, c_char_p, c_uint),
    "NormStreamWrite": (c_uint, c_void_p, c_char_p, c_uint),
    "NormStreamSetAutoFlush": (None, c_void_p, c_int),
    "NormStreamRead": (c_bool, c_void_p, c_void_p, POINTER(c_uint)),
}


class NormSystem(PlainSystem):
    def __init__(self, job: Job) -> None:
        self._library = _load()
        self._job = job
        self.address = job.seeds[0] if job.seeds else str(free_port())
        self._woken, self._space = asyncio.Event(), asyncio.Event()
        self._batches: deque[Sequence[bytes]] = deque()
        self._parts: dict[int, bytearray] = {}  # of each stream: what is not a whole batch yet
        self._chunk = ctypes.create_string_buffer(AT_ONCE)
        self._stream: int | None = None
        self._unacked = self._marked = 0  # segments; those below the watermark that is out
        self._instance = self._library.NormCreateInstance(False)
        self._session = self._listening(self._library)
        self._descriptor = int(self._library.NormGetDescriptor(self._instance))
        asyncio.get_running_loop().add_reader(self._descriptor, self._dispatch)

    def _listening(self, norm: ctypes.CDLL) -> int:
        session = norm.NormCreateSession(self._instance, GROUP, int(self.address), _node(self._job.index))
        norm.NormSetRxPortReuse(session, True, None, None, 0)
        norm.NormSetMulticastInterface(session, INTERFACE)
        norm.NormSetLoopback(session, True)  # the sender hears itself, as a member does
        norm.NormSetTTL(session, 0)
        norm.NormSetDefaultSyncPolicy(session, SYNC_STREAM)
        if not norm.NormStartReceiver(session, BUFFER):
            raise MotetError("NORM cannot receive from an IP multicast group on loopback")
        norm.NormSetRxSocketBuffer(session, SOCKET_BUFFER)
        return int(session)

    async def connect(self, addresses: Sequence[str]) -> None:
        """All receive; now those who will send begin a stream."""
        norm, session = self._library, self._session
        if not self._job.load.sends(self._job.index):
            return
        norm.NormSetGrttEstimate(session, ROUND_TRIP_S)
        norm.NormSetBackoffFactor(session, 0.0)  # a few receivers: none has to hold back for the others
        if not norm.NormStartSender(session, _node(self._job.index), BUFFER, SEGMENT, BLOCK, PARITY, 0):
            raise MotetError("NORM cannot send to an IP multicast group on loopback")
        norm.NormSetTxSocketBuffer(session, SOCKET_BUFFER)
        norm.NormSetTxRate(session, RATE)
        norm.NormSetFlowControl(session, 0.0)  # by time; ours is by acknowledgement
        for index in range(self._job.load.members):
            if index != self._job.index:
                norm.NormAddAckingNode(session, _node(index))
        self._stream = norm.NormStreamOpen(session, BUFFER, None, 0)
        norm.NormStreamSetAutoFlush(self._stream, FLUSH_PASSIVE)  # a write is sent, also if no datagram is full

    # To all

    async def send(self, messages: list[bytes]) -> None:
        rest = written(messages)
        segments = -(-len(rest) // SEGMENT)
        while self._unacked + segments > UNDER_WAY:
            await self._more_space()
        while rest := rest[self._library.NormStreamWrite(self._stream, rest, len(rest)) :]:
            await self._more_space()
        self._unacked += segments
        self._mark()
        await asyncio.sleep(0)

    async def _more_space(self) -> None:
        self._space.clear()
        await self._space.wait()

    def _mark(self) -> None:
        """Ask all receivers whether they have everything up to here; one such question is out at a time."""
        if not self._marked and self._unacked > UNDER_WAY // 4:
            self._marked = self._unacked
            self._library.NormSetWatermark(self._session, self._stream, True)

    def _acked(self) -> None:
        if self._library.NormGetAckingStatus(self._session, ANY_NODE) != ACKED:
            self._library.NormResetWatermark(self._session)  # somebody is late
            return
        self._unacked, self._marked = self._unacked - self._marked, 0
        self._mark()

    # From all

    async def receive(self) -> Sequence[bytes]:
        while not self._batches:
            self._woken.clear()
            await self._woken.wait()
        return self._batches.popleft()

    def _dispatch(self) -> None:
        event = _Event()
        for _ in range(EVENTS):
            if not self._library.NormGetNextEvent(self._instance, ctypes.byref(event), False):
                return
            if event.type in (NEW, UPDATED):
                self._read(event.object)
            elif event.type == WATERMARK:
                self._acked()
            if event.type in (VACANCY, EMPTY, WATERMARK):
                self._space.set()

    def _read(self, stream: int) -> None:
        length, parts = c_uint(AT_ONCE), self._parts.setdefault(stream, bytearray())
        while length.value == AT_ONCE:
            if not self._library.NormStreamRead(stream, self._chunk, ctypes.byref(length)):
                parts.clear()  # a gap that was given up, and is counted as lost; the next segment begins with a batch
                return
            parts += memoryview(self._chunk)[: length.value]
        self._batches += cut(parts)
        self._woken.set()

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._library.NormDestroyInstance(self._instance)


def written(messages: list[bytes]) -> bytes:
    """A batch as it stands in the stream."""
    body = pack(messages)
    return LENGTH.pack(len(body)) + body


def cut(parts: bytearray) -> list[Sequence[bytes]]:
    """Take the batches that are whole from the front."""
    batches: list[Sequence[bytes]] = []
    at = 0
    while at + LENGTH.size <= len(parts):
        end = at + LENGTH.size + LENGTH.unpack_from(parts, at)[0]
        if end > len(parts):
            break
        batches.append(split(bytes(parts[at + LENGTH.size : end])))
        at = end
    del parts[:at]
    return batches


def _node(index: int) -> int:
    return index + 1  # 0 means nobody


def _load() -> ctypes.CDLL:
    path = library("norm")
    assert path is not None
    norm = ctypes.CDLL(path)
    for name, (returns, *takes) in _SIGNATURES.items():
        function = getattr(norm, name)
        function.restype, function.argtypes = returns, takes
    return norm


async def open_system(job: Job) -> NormSystem:
    return NormSystem(job)
