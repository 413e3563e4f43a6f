"""Seals and opens datagrams for the driver. One that does not authenticate is dropped and counted, and logged once."""

from __future__ import annotations

import logging
import secrets

from motet.protocol.core.counters import Counters
from motet.protocol.wire.seal import SALT_BITS, Keyring, Opener, Sealer, SealReject

logger = logging.getLogger("motet")


class SealedEnvelope:
    def __init__(self, keyring: Keyring, incarnation: int, counters: Counters, *, window: int = 1_024) -> None:
        self._sealer = Sealer(keyring, incarnation, secrets.randbits(SALT_BITS))
        self._opener = Opener(keyring, window=window)
        self._counters = counters
        self._logged: set[str] = set()

    def rekey(self, keyring: Keyring) -> None:
        """Accept the keys of this ring and seal with its current one."""
        self._sealer.rekey(keyring)
        self._opener.rekey(keyring)

    def seal(self, datagram: bytes) -> bytes:
        return self._sealer.seal(datagram)

    def open(self, sealed: bytes) -> bytes | None:
        opened = self._opener.open(sealed)
        if isinstance(opened, SealReject):
            self._reject(opened)
            return None
        return opened

    def _reject(self, reject: SealReject) -> None:
        self._counters[reject.fault.count] += 1
        if reject.fault.name not in self._logged:
            self._logged.add(reject.fault.name)
            logger.warning("a datagram was dropped: %s. Further ones of this kind are counted, not logged", reject)
