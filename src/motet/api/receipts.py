"""What became of a message that was sent: delivered at which position, stable, or failed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from motet.errors import MisuseError, RepeatedAppendError
from motet.protocol.ordering import AppendRepeated


class Receipt:
    """Of one ordered multicast, which may be many messages. Nothing is kept for those who never ask."""

    position: int | None = None  # of the last message in the log, once it was delivered here
    _error: Exception | None = None
    _seen = 0  # rollbacks that came before it was delivered
    _waiters: list[asyncio.Future[None]] | None = None

    def __init__(self, tracker: ReceiptTracker, last: int, count: int) -> None:
        """Set as little as possible: there is one for every message, and few are ever asked."""
        self._tracker = tracker
        self.last = last  # number of the last message among all that this member sent in order
        self.count = count

    @property
    def is_delivered(self) -> bool:
        """Whether this member has delivered the message."""
        return self.position is not None

    async def delivered(self) -> int:
        """The position of the (last) message, as soon as this member has delivered it."""
        while self.position is None:
            if self._error is not None:
                raise self._error
            future = asyncio.get_running_loop().create_future()
            self._waiters = [*(self._waiters or ()), future]
            await future
        return self.position

    async def stable(self) -> int:
        """The same, as soon as every member of the primary view has delivered it: it is never rolled back."""
        try:
            position = await self.delivered()
        except RepeatedAppendError as repeat:  # what it repeats may still be rolled back
            await self._tracker.until_stable(self, repeat.position)
            raise
        await self._tracker.until_stable(self, position)
        return position

    def _settle(self, position: int | None, error: Exception | None) -> None:
        self.position, self._error = position, error
        self._seen = len(self._tracker.rollbacks)
        waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(None)


class ReceiptTracker:
    """All receipts of one member, in the order of sending."""

    def __init__(self) -> None:
        self.stable = 0
        self.rollbacks: list[tuple[int, Exception]] = []  # one for each time that the group went on without us
        self._sent = 0
        self._settled = 0  # all up to this number were delivered or have failed
        self._failed: dict[int, int] = {}  # first and last of those behind it that have failed
        self._open: deque[Receipt] = deque()
        self.unordered = Receipt(self, 0, 0)  # whoever waits for its position would wait for ever, and is told so
        self.unordered._settle(
            None, MisuseError('only messages with order="total" have a position; do not wait for this one')
        )
        self._waiting: list[tuple[int, Receipt, asyncio.Future[None]]] = []

    def issue(self, count: int) -> Receipt:
        self._sent += count
        receipt = Receipt(self, self._sent, count)
        self._open.append(receipt)
        return receipt

    def deliver(self, count: int, position: int) -> None:
        """`count` messages of ours were delivered, the first of them at `position`."""
        begin = self._settled
        self._settled += count
        while self._open and self._open[0].last <= self._settled:
            receipt = self._open.popleft()
            receipt._settle(position + receipt.last - begin - 1, None)
        self._pass_over_failed()

    def skip(self, repeated: AppendRepeated) -> None:
        """Messages of ours that were repetitions: the log has them already, somewhere up to a position."""
        first = repeated.last - repeated.count + 1
        self.fail(first, repeated.last, RepeatedAppendError(repeated.position))

    def fail(self, first: int, last: int, error: Exception) -> None:
        kept: deque[Receipt] = deque()
        for receipt in self._open:
            if receipt.last < first or receipt.last - receipt.count + 1 > last:
                kept.append(receipt)
            else:
                receipt._settle(None, error)
        self._open = kept
        self._failed[first] = last
        self._pass_over_failed()

    def _pass_over_failed(self) -> None:
        """A failure may be told before the delivery of an earlier message, which waits for a state or a journal."""
        while (last := self._failed.pop(self._settled + 1, None)) is not None:
            self._settled = last

    def advance_stable(self, position: int) -> None:
        self.stable = max(self.stable, position)
        self._wake(lambda waiting: waiting <= self.stable, None)

    def roll_back(self, first: int, error: Exception) -> None:
        """What was delivered at or after this position is not the group's any more."""
        self.rollbacks.append((first, error))
        self._wake(lambda waiting: waiting >= first, error)

    def close(self, error: Exception) -> None:
        self.fail(1, self._sent, error)
        self._wake(lambda waiting: True, error)

    async def until_stable(self, receipt: Receipt, position: int) -> None:
        for first, error in self.rollbacks[receipt._seen :]:
            if position >= first:
                raise error
        if position <= self.stable:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((position, receipt, future))
        await future

    def _wake(self, is_due: Callable[[int], bool], error: Exception | None) -> None:
        due = [future for position, _, future in self._waiting if is_due(position)]
        if not due:
            return
        self._waiting = [entry for entry in self._waiting if not is_due(entry[0])]
        for future in due:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
