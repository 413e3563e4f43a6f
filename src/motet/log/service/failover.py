"""The failover policy: try the member that served last, then the others; a failed member is avoided for a while.

A call tries the members until one serves it. It starts further rounds, with increasing pauses, while some failure is
retryable (a member that is down, busy or behind) and the timeout has not passed. Otherwise it fails after one round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from motet.errors import (
    LogBehindError,
    LogPositionError,
    LogTrimmedError,
    LogUnavailableError,
    MotetError,
    NotPrimaryError,
)
from motet.log.service.link import LogLink

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Candidates:
    """The members in the order in which they are tried."""

    def __init__(self, links: Sequence[LogLink], avoid_s: float) -> None:
        self.links = tuple(links)
        self._avoid_s = avoid_s
        self._lock = threading.Lock()
        self._current = self.links[0]
        self._avoided_until = dict.fromkeys(links, 0.0)

    def order(self) -> list[LogLink]:
        """The current member first, so that a client stays with it; failed members come last for a while."""
        now = time.monotonic()
        with self._lock:
            turn = self.links.index(self._current)
            ring = self.links[turn:] + self.links[:turn]
            return sorted(ring, key=lambda link: max(now, self._avoided_until[link]))

    def prefer(self, link: LogLink) -> None:
        with self._lock:
            self._current = link
            self._avoided_until[link] = 0.0

    def avoid(self, link: LogLink) -> None:
        with self._lock:
            self._avoided_until[link] = time.monotonic() + self._avoid_s

    def others(self) -> list[LogLink]:
        """The members besides the current one that have not failed recently."""
        now = time.monotonic()
        with self._lock:
            return [link for link in self.links if link is not self._current and self._avoided_until[link] <= now]


class Failover:
    """The failover of one call. Its timeout counts the time without any progress."""

    def __init__(self, candidates: Candidates, what: str, timeout_s: float, is_closed: threading.Event) -> None:
        self._candidates = candidates
        self._what = what
        self._timeout_s = timeout_s
        self._is_closed = is_closed
        self._faults: dict[str, MotetError] = {}
        self.progressed()

    def progressed(self) -> None:
        """Restart the timeout and the round, because the call made progress."""
        self._tried: set[LogLink] = set()
        self._pause_s = FIRST_PAUSE_S
        self._ends_at = time.monotonic() + self._timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def next(self) -> LogLink:
        """The member to try now; raises the combined error when a further attempt is pointless."""
        if self._is_closed.is_set():
            raise LogUnavailableError(f"{self._what}: this client is closed")
        if len(self._tried) == len(self._candidates.links):
            self._end_round()
        link = next(link for link in self._candidates.order() if link not in self._tried)
        self._tried.add(link)
        return link

    def failed(self, link: LogLink, fault: MotetError) -> None:
        self._faults[link.endpoint] = fault
        self._candidates.avoid(link)

    def _end_round(self) -> None:
        may_pass = any(fault.retryable or isinstance(fault, NotPrimaryError) for fault in self._faults.values())
        if not may_pass or not self.left_s:
            self._give_up()
        self._is_closed.wait(min(self._pause_s, self.left_s))
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._tried.clear()

    def _give_up(self) -> NoReturn:
        raise combined_error(self._what, self._faults)


def combined_error(what: str, faults: dict[str, MotetError]) -> MotetError:
    """One error for the failures of all members: of their common class, else of the most informative one."""
    reasons = "; ".join(f"{endpoint}: {fault}" for endpoint, fault in faults.items())
    text = f"{what} failed at each of {len(faults)} members. {reasons}" if len(faults) > 1 else f"{what}: {reasons}"
    errors = list(faults.values())
    trimmed = [fault for fault in errors if isinstance(fault, LogTrimmedError)]
    behind = [fault for fault in errors if isinstance(fault, LogBehindError)]
    if trimmed:
        return _with_positions(LogTrimmedError, text, min(trimmed, key=lambda fault: fault.first))
    if behind:
        return _with_positions(LogBehindError, text, max(behind, key=lambda fault: fault.stable))
    kinds = {type(fault) for fault in errors}
    if len(kinds) != 1:
        return LogUnavailableError(text)
    kind = kinds.pop()
    return kind.__new__(kind, text)  # the constructors of some errors take other arguments


def _with_positions(kind: type[LogPositionError], text: str, best: LogPositionError) -> LogPositionError:
    return kind(text, asked=best.asked, first=best.first, last=best.last, stable=best.stable)
