"""Taking a snapshot again, in virtual time."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from motet.api.snapshots import SnapshotTaker
from motet.errors import SnapshotError
from motet.protocol.snapshot import SnapshotFailed
from motet.protocol.wire.snapshot import SnapshotId
from motet.testing.clock import VirtualLoop


class Hindered:
    """A member whose snapshots fail, in turn as told; the last one again and again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *ends: tuple[str, bool]) -> None:
        self.taker = SnapshotTaker(loop, self.start)
        self.started_at: list[float] = []
        self._loop = loop
        self._ends = list(ends)

    def start(self) -> Future[SnapshotId]:
        self.started_at.append(self._loop.time())
        snapshot = SnapshotId(1, len(self.started_at))
        reason, is_transient = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        self.taker.ended(SnapshotFailed(snapshot, reason, is_transient))  # before its name is known
        answer: Future[SnapshotId] = Future()
        answer.set_result(snapshot)
        return answer


def taken(*ends: tuple[str, bool], timeout_s: float = 30.0) -> tuple[str, list[float]]:
    """What the application hears in the end, and when snapshots were started."""
    loop = VirtualLoop()
    try:
        member, begun = Hindered(loop, *ends), loop.time()
        with pytest.raises(SnapshotError) as error:
            loop.run_until_complete(member.taker.take(timeout_s))
        assert not list(member.taker.waiting)
        return str(error.value), [round(at - begun, 2) for at in member.started_at]
    finally:
        loop.close()


def test_what_passes_is_tried_again_and_less_and_less_often() -> None:
    text, started = taken(("b lacks its state", True), timeout_s=4)
    assert text == "no snapshot was complete within 4 s: b lacks its state; take it again"
    assert started == [0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55, 3.55]


def test_what_does_not_pass_is_an_error_at_once() -> None:
    text, started = taken(("view 1 ended", True), ("b has no disk", False))
    assert text == "the snapshot failed: b has no disk; take it again"
    assert started == [0, 0.05]
