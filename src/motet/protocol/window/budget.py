"""What retransmissions may cost: a few bytes that ask for them must not make a member send megabytes, again and again.

Each peer has an account of bytes. It begins with `burst` bytes, gets `rate` bytes a second as long as it holds less
than that, and every byte that we send or receive for the first time adds EARNED bytes, up to what a window holds: at
50 % loss a frame is resent once on average, so a link that loses half of everything never finds its account empty. A
second account is common to all peers, since whoever can speak in the name of one can speak in the name of all.

Invariant: in any time t one peer costs at most window + burst + rate * t + EARNED * (bytes that were new in t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from motet.protocol.core.units import SECOND

Peer = TypeVar("Peer")
EARNED = 4  # bytes of retransmission for each new one
SHARED = 4  # the account of all peers together has so many times the burst and the rate of one


@dataclass(slots=True)
class _Account:
    left: float
    earned: int  # of the budget, when we last looked
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
        """So many bytes were sent, or received, for the first time."""
        self._earned += EARNED * size

    def retain(self, peers: set[Peer]) -> None:
        """Only these may ask from now on."""
        self._peers = max(1, len(peers))
        self._accounts = {peer: account for peer, account in self._accounts.items() if peer in peers}

    def spend(self, peer: Peer, size: int, now: int, copies: int = 1) -> bool:
        """Whether `size` bytes may be sent to `peer`, in so many copies; if so they are taken from the accounts."""
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
