"""Callers that wait for the end of a SYNC. Runs on the driver's loop; the futures may be awaited on any other.

wait    -> a future; several may wait for one peer, and a SYNC that ends is the end for all of them
ended   -> `SyncCompleted` is the result, the error of `SyncFailed` is raised
close   -> the member stops, so nobody would notify those who still wait
"""

from __future__ import annotations

from concurrent.futures import Future

from motet.protocol.core.effects import SyncCompleted, SyncFailed
from motet.protocol.core.identity import Address


class Resyncs:
    def __init__(self) -> None:
        self._waiting: dict[Address, list[Future[None]]] = {}

    def wait(self, peer: Address) -> Future[None]:
        future: Future[None] = Future()
        self._waiting.setdefault(peer, []).append(future)
        return future

    def ended(self, effect: SyncCompleted | SyncFailed) -> None:
        self._end(effect.peer, effect.error if isinstance(effect, SyncFailed) else None)

    def close(self, error: Exception) -> None:
        for peer in list(self._waiting):
            self._end(peer, error)

    def _end(self, peer: Address, error: Exception | None) -> None:
        for future in self._waiting.pop(peer, ()):
            if not future.set_running_or_notify_cancel():  # whoever waited was cancelled
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
