"""Resolve host names to addresses. Members are identified by address, so a seed that is a name would match none.

Names are resolved in a thread, because the system's resolver may take seconds. An unknown name is retried for a while:
where members are started together, the names of some appear a moment later.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address

from motet.protocol.core.identity import Endpoint

TIMEOUT_S = 5.0
AGAIN_S = 0.25


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def look_up(endpoint: Endpoint, *, wants_ipv6: bool = False) -> Endpoint | None:
    """Ask the system's resolver, which may block. None if the name is unknown."""
    wanted = socket.AF_INET6 if wants_ipv6 else socket.AF_INET
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    best = next((entry for entry in found if entry[0] == wanted), found[0])
    return Endpoint(str(best[4][0]), endpoint.port)


async def resolved(
    endpoints: Sequence[Endpoint], *, wants_ipv6: bool = False, timeout_s: float = TIMEOUT_S
) -> list[Endpoint]:
    """The endpoints with their names resolved; a name that stays unknown is returned as it is."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    known = {endpoint: endpoint for endpoint in endpoints if is_address(endpoint.host)}
    while missing := [endpoint for endpoint in endpoints if endpoint not in known]:
        for endpoint in missing:
            found = await loop.run_in_executor(None, partial(look_up, endpoint, wants_ipv6=wants_ipv6))
            if found is not None:
                known[endpoint] = found
        if loop.time() >= deadline:
            break
        if any(endpoint not in known for endpoint in missing):
            await asyncio.sleep(AGAIN_S)
    return [known.get(endpoint, endpoint) for endpoint in endpoints]
