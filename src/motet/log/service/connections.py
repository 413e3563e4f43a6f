"""Drop the connections of a Flight server whose handlers do not end.

gRPC ends a call when its handler ends, but a handler that writes to a client that does not read never ends, and pyarrow
offers no way to cancel it. So this module shuts down the connected sockets of this process whose local port is the
server's.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

DESCRIPTORS = Path("/dev/fd")  # there on Linux, macOS and the BSDs


def drop_connections(port: int) -> int:
    """Drop all connections to the server at `port` of this process; return their number."""
    return sum(_drop(descriptor, port) for descriptor in _descriptors())


def _descriptors() -> Iterator[int]:
    try:
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208 (iterdir would hold one descriptor open meanwhile, and list it)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _drop(descriptor: int, port: int) -> bool:
    connection = _connection(descriptor)
    if connection is None:
        return False
    with connection:
        try:
            if connection.type != socket.SOCK_STREAM or connection.getsockname()[1] != port:
                return False
            connection.getpeername()  # raises for the listening socket, which shutdown closes by itself
            connection.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError):
            return False
    return True


def _connection(descriptor: int) -> socket.socket | None:
    """A second handle on the socket, so that closing ours leaves the server's alone; None for anything else."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        return None  # closed meanwhile
    if stat.S_ISSOCK(os.fstat(copy).st_mode):
        return socket.socket(fileno=copy)
    os.close(copy)
    return None
