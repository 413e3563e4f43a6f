"""Corosync CPG, through its C library: three clients of one daemon. A batch is one message of the group, as with us."""

from __future__ import annotations

import asyncio
import ctypes
from collections import deque
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from benchmarks.peers.field import library
from motet.errors import MotetError
from motet.harness.bench.job import Job
from motet.harness.bench.system_under_test import PlainSystem
from motet.protocol.wire.body import pack, split

OK, TRY_AGAIN = 1, 6
AGREED = 2  # total order
DISPATCH_ALL = 2
NAME = b"bench"
PAUSE_S = 0.0005  # the daemon's queue is full
NEEDED = ("libqb.so.100", "libcorosync_common.so.4")  # where nothing is installed, nobody else finds them


class _Name(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("value", c_char * 128))


class _Part(ctypes.Structure):
    _fields_ = (("base", c_char_p), ("length", c_size_t))


_Deliver = ctypes.CFUNCTYPE(None, c_uint64, POINTER(_Name), c_uint32, c_uint32, c_void_p, c_size_t)
_Change = ctypes.CFUNCTYPE(None, c_uint64, POINTER(_Name), c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t)


class _Callbacks(ctypes.Structure):
    _fields_ = (("deliver", _Deliver), ("change", _Change))


class CorosyncSystem(PlainSystem):
    def __init__(self) -> None:
        self._library = _load()
        self._batches: deque[bytes] = deque()
        self._callbacks = _Callbacks(_Deliver(self._delivered), _Change(lambda *_: None))
        self._handle = c_uint64()
        self._woken = asyncio.Event()
        self._require(self._library.cpg_initialize(ctypes.byref(self._handle), ctypes.byref(self._callbacks)))
        name = _Name(len(NAME), NAME)
        self._require(self._library.cpg_join(self._handle, ctypes.byref(name)))
        self._descriptor = c_int()
        self._require(self._library.cpg_fd_get(self._handle, ctypes.byref(self._descriptor)))
        asyncio.get_running_loop().add_reader(self._descriptor.value, self._dispatch)

    async def send(self, messages: list[bytes]) -> None:
        body = pack(messages)
        part = _Part(body, len(body))
        while (answer := self._library.cpg_mcast_joined(self._handle, AGREED, ctypes.byref(part), 1)) == TRY_AGAIN:
            await asyncio.sleep(PAUSE_S)
        self._require(answer)
        await asyncio.sleep(0)

    async def receive(self) -> Sequence[bytes]:
        while not self._batches:
            self._woken.clear()
            await self._woken.wait()
        return split(self._batches.popleft())

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor.value)
        self._library.cpg_finalize(self._handle)

    def _dispatch(self) -> None:
        self._library.cpg_dispatch(self._handle, DISPATCH_ALL)

    def _delivered(self, handle: int, group: Any, node: int, process: int, data: int, length: int) -> None:
        self._batches.append(ctypes.string_at(data, length))
        self._woken.set()

    def _require(self, answer: int) -> None:
        if answer != OK:
            raise MotetError(f"Corosync answers with error {answer}; its log is in the directory of the measurement")


def _load() -> ctypes.CDLL:
    path = library("cpg")
    assert path is not None
    for name in NEEDED:
        if (beside := Path(path).with_name(name)).exists():
            ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(path)


async def open_system(job: Job) -> CorosyncSystem:
    return CorosyncSystem()
