"""Look-ups of where members may be: a DNS name that has an address for each, or a directory with a file for each.

`look_up` blocks and is called beside the loop; the rest is called on the loop. A file that is no endpoint (of an
editor, of NFS, of a person) is skipped and named in the log once, because one stray name must not hide the members.
Everything else that goes wrong fails the whole look-up: its result would be incomplete, and a member that believed it
could bootstrap a second group.
"""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path

from motet.errors import ConfigError
from motet.protocol.core.identity import Endpoint, parse_endpoint
from motet.protocol.membership.discovery import DnsName, SharedDirectory

ENTRY_LASTS_S = 600  # a member touches its file in every round; one that is older is of a member that is gone
MOST_NAMED = 32  # stray files that are logged
logger = logging.getLogger("motet")


class Lookups:
    def __init__(self, own: Endpoint) -> None:
        self._own = own
        self._named: set[str] = set()  # stray files
        self.failures: dict[DnsName | SharedDirectory, str] = {}  # those whose last look-up failed, and why

    def look_up(self, source: DnsName | SharedDirectory) -> list[Endpoint]:
        return self._resolve(source) if isinstance(source, DnsName) else self._list(Path(source.path))

    def failed(self, source: DnsName | SharedDirectory, error: BaseException) -> None:
        if self.failures.get(source) != str(error):
            self.failures[source] = str(error)
            logger.warning(
                "the look-up of %s failed: %s. It is repeated; until it succeeds this member bootstraps no group",
                _place(source),
                error,
            )

    def succeeded(self, source: DnsName | SharedDirectory) -> None:
        if self.failures.pop(source, None) is not None:
            logger.info("the look-up of %s succeeds again", _place(source))

    def describe_failures(self) -> str:
        """The look-ups that keep failing, for a person who waits for the join; empty if none does."""
        return "; ".join(f"the look-up of {_place(source)} fails: {why}" for source, why in self.failures.items())

    def _resolve(self, source: DnsName) -> list[Endpoint]:
        found = socket.getaddrinfo(source.name, source.port, type=socket.SOCK_DGRAM)
        return sorted({Endpoint(str(entry[4][0]), int(entry[4][1])) for entry in found})

    def _list(self, directory: Path) -> list[Endpoint]:
        """A file per member, named like its endpoint; its time says when it was last there.

        Our own file is written before the others are read: of two that start together at least one sees the other.
        """
        directory.mkdir(parents=True, exist_ok=True)
        (directory / str(self._own)).touch()
        recent = time.time() - ENTRY_LASTS_S
        entries = (self._entry(file) for file in sorted(directory.iterdir()) if _changed_at(file) > recent)
        return [entry for entry in entries if entry is not None]

    def _entry(self, file: Path) -> Endpoint | None:
        try:
            return parse_endpoint(file.name)
        except ConfigError:
            self._skip(file)
            return None

    def _skip(self, file: Path) -> None:
        if file.name not in self._named and len(self._named) < MOST_NAMED:
            self._named.add(file.name)
            logger.warning(
                "discovery_directory %s: the file %r is no endpoint, HOST:PORT, and is skipped; remove it",
                file.parent,
                file.name[:80],
            )


def _changed_at(file: Path) -> float:
    """0 for a file that has gone meanwhile: whoever removed it does not want to be found there."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0


def _place(source: DnsName | SharedDirectory) -> str:
    if isinstance(source, DnsName):
        return f"discovery_dns = {source.name}:{source.port}"
    return f"discovery_directory = {source.path}"
