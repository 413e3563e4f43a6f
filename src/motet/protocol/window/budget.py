"""The repair budget: a small request must not make a member send megabytes again and again (amplification).

Each peer has a token bucket of bytes. It starts with `burst` bytes, gains `rate` bytes a second while it is below
`burst`, and gains EARNED bytes for every byte that is sent or received for the first time, up to the size of a window.
At 50 % loss a frame is resent once on average, so a link that loses half of everything never exhausts its bucket. A
second bucket is shared by all peers, because whoever can forge the address of one peer can forge those of all.

Invariant: in any time t one peer causes at most window + burst + rate * t + EARNED * (new bytes in t) of repairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from motet.protocol.core.units import SECOND

Peer = TypeVar("Peer")
EARNED = 4  # Bytes of repair that each new byte allows.
SHARED = 4  # The shared bucket has the burst and the rate of this many peers.


@dataclass(slots=True)
class _Account:
    left: float
    earned: int  # The budget's `_earned` at the last refill.
    at: int


class RepairBudget(Generic[Peer]):
    def __init__(self, window_bytes: int, burst: int, rate: int) -> None:
        self._window_bytes = max(window_bytes, burst)
        self._burst = burst
        self._rate = rate
        self._earned = 0
        self._accounts: dict[Peer, _Account] = {}
        self._shared = _Account(SHARED * burst, 0, 0)
        self._peers = 1

    def earn(self, size: int) -> None:
        """Account for `size` bytes that were sent or received for the first time."""
        self._earned += EARNED * size

    def retain(self, peers: set[Peer]) -> None:
        """Drop the buckets of all other peers, at a view change."""
        self._peers = max(1, len(peers))
        self._accounts = {peer: account for peer, account in self._accounts.items() if peer in peers}

    def spend(self, peer: Peer, size: int, now: int, copies: int = 1) -> bool:
        """Whether `size` bytes may be sent to `peer`, in `copies` datagrams; if so, take them from both buckets."""
        account = self._accounts.get(peer)
        if account is None:
            account = self._accounts[peer] = _Account(self._burst, self._earned, now)
        self._refill(account, 1, 1, now)
        self._refill(self._shared, SHARED, self._peers, now)
        if account.left <= 0 or self._shared.left <= 0:
            return False
        account.left -= size
        self._shared.left -= size * copies
        return True

    def _refill(self, account: _Account, times: int, peers: int, now: int) -> None:
        burst = times * self._burst
        if account.left < burst:
            account.left = min(burst, account.left + times * self._rate * max(0, now - account.at) / SECOND)
        if account.earned < self._earned:
            most = max(burst, peers * self._window_bytes)
            account.left = max(account.left, min(most, account.left + peers * (self._earned - account.earned)))
        account.earned, account.at = self._earned, now
