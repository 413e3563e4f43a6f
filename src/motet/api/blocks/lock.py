"""A lock that one caller in the whole group holds at a time. First come, first served; a member that leaves the view
releases it.

    acquire   ->  free: held by the caller, with the operation's position as its token; else it waits in the line
    release   ->  of the holder: the next in the line holds it; of one who waits: it leaves the line
    a view    ->  who is not in it any more holds nothing and waits for nothing

Tokens only grow, from holder to holder: the line is in the order of the log. Hand the token to whatever the lock
protects, and let that refuse smaller ones than it has seen. Only that is safe against a holder that sleeps for a while
and does not know yet that the others have gone on without it. A member that finds itself without a majority counts its
lock as lost.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from types import TracebackType

from motet.api.blocks.base import Block, OrderedLog, Refused
from motet.errors import LockLostError, MisuseError, MotetError
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

MOST_WAITING = 4_096
ACQUIRE, RELEASE = b"A", b"R"
REQUEST = Struct("<Q")  # follows RELEASE: which claim of the sender is given back


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody who holds the lock, or waits for it."""

    member: Address
    request: int
    token: int  # position at which it was asked for


class LockMachine:
    """Invariants: claims stand in the order of their tokens, the first one holds the lock, none stands twice."""

    def __init__(self) -> None:
        self.applied = 0
        self._line: dict[tuple[Address, int], Claim] = {}  # in the order of coming

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(self._line.values())

    @property
    def holder(self) -> Claim | None:
        return next(iter(self._line.values()), None)

    @property
    def length(self) -> int:
        return len(self._line)

    def apply(self, position: int, sender: Address, request: int, operation: bytes) -> int | bool | Refused:
        """The result: the token of an ACQUIRE, whether or not it is its turn yet; whether a RELEASE found its claim."""
        self.applied = position
        if operation == ACQUIRE:
            return self._acquire(Claim(sender, request, position))
        if operation[:1] == RELEASE and len(operation) == len(RELEASE) + REQUEST.size:
            return self._release(sender, *REQUEST.unpack_from(operation, len(RELEASE)))
        return Refused(f"{operation[:20]!r} is no operation of a lock")

    def on_view(self, view: View) -> None:
        self._line = {key: claim for key, claim in self._line.items() if claim.member in view}

    def snapshot(self) -> bytes:
        claims = [_as_list(claim) for claim in self.claims]
        return json.dumps({"applied": self.applied, "claims": claims}, separators=(",", ":")).encode()

    def restore(self, data: bytes) -> None:
        state = json.loads(data)
        self.applied = int(state["applied"])
        claims = [
            Claim(Address(name, host, port, incarnation), request, token)
            for name, host, port, incarnation, request, token in state["claims"]
        ]
        self._line = {(claim.member, claim.request): claim for claim in claims}

    def has(self, member: Address, request: int) -> bool:
        return (member, request) in self._line

    def _acquire(self, claim: Claim) -> int | Refused:
        if self.has(claim.member, claim.request):
            return Refused("this was asked for before")
        if self.length > MOST_WAITING:
            return Refused(f"{MOST_WAITING} wait for it already")
        self._line[claim.member, claim.request] = claim
        return claim.token

    def _release(self, member: Address, request: int) -> bool:
        return self._line.pop((member, request), None) is not None

    def _check(self) -> None:
        tokens = [claim.token for claim in self.claims]
        assert tokens == sorted(set(tokens))
        assert all(key == (claim.member, claim.request) for key, claim in self._line.items())
        assert self.length <= MOST_WAITING + 1


class Lock(Block):
    """`async with lock as token:`. One object may be used by many tasks; each takes its place in the line."""

    kind = "lock"

    def __init__(self, log: OrderedLog, name: str = "lock") -> None:
        self._lock = LockMachine()
        self._turns: dict[int, asyncio.Future[int | None]] = {}  # of our claims that wait; None: the claim is gone
        self._claimed: set[int] = set()  # those of them that stand in the line
        self._held: int | None = None  # our claim that holds the lock, as far as we were told
        self._is_lost = False  # since we were told, others may have held it
        self._releases: set[asyncio.Task[None]] = set()
        super().__init__(log, name, self._lock)

    @property
    def holder(self) -> Address | None:
        """Who holds it, as this member knows."""
        return None if self._lock.holder is None else self._lock.holder.member

    @property
    def is_mine(self) -> bool:
        """Whether a caller at this member holds it, as this member knows."""
        return self._held is not None and not self._is_lost

    @property
    def waiting(self) -> int:
        """How many stand in the line behind the holder."""
        return max(0, self._lock.length - 1)

    async def acquire(self, timeout: float | None = None) -> int:
        """Wait for our turn, and return the token. TimeoutError after `timeout` seconds, with no claim left behind."""
        async with asyncio.timeout(timeout):
            while True:
                token = await self._claim(next(self._numbers))
                if token is not None:
                    return token

    async def release(self) -> None:
        """LockLostError if it was lost meanwhile: somebody else may have held it already."""
        request, was_lost = self._held, self._is_lost
        if request is None:
            raise MisuseError(f"lock {self.name!r} is not held here; acquire it first")
        released = self._give_back(request)
        if was_lost:
            raise LockLostError(
                f"lock {self.name!r} was lost while it was held: this member was out of the group's primary view; "
                f"what was done since may have met what others did, unless tokens were compared"
            )
        await asyncio.shield(released)  # a cancellation here does not stop the release, which was already sent

    async def __aenter__(self) -> int:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockLostError:
            if error is None:  # an error of the body itself says more
                raise

    async def _claim(self, request: int) -> int | None:
        """The token, or None when the claim was dropped: this member was away, and must take its place anew."""
        turn: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._turns[request] = turn
        try:
            await self._ask(ACQUIRE, request)
            return await turn
        except BaseException:  # a timeout, or a task that was cancelled: the claim must not stay
            self._give_back(request)
            raise
        finally:
            del self._turns[request]
            self._claimed.discard(request)

    def _give_back(self, request: int) -> asyncio.Task[None]:
        """Also a claim that is still on its way: what one member sends is ordered as it was sent."""
        if self._held == request:
            self._held, self._is_lost = None, False
        task = asyncio.ensure_future(self._release(request))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        return task

    async def _release(self, request: int) -> None:
        with suppress(MotetError):  # who has left the group holds nothing any more
            await self._ask(RELEASE + REQUEST.pack(request))

    # What the log and the views bring

    def _settle(self, request: int, result: object) -> None:
        if request in self._turns and isinstance(result, int):
            self._claimed.add(request)
        super()._settle(request, result)

    def _on_view(self, view: View) -> None:
        if not view.is_primary:
            self._is_lost = self._held is not None
        super()._on_view(view)

    def _changed(self) -> None:
        """Our turn may have come, or a claim of ours may be gone without our doing."""
        holder = self._lock.holder
        if self._held is not None and not self._lock.has(self._log.address, self._held):
            self._is_lost = True
        if holder is not None and holder.member == self._log.address and self._tell(holder.request, holder.token):
            self._held, self._is_lost = holder.request, False
        for request in sorted(self._claimed):
            if not self._lock.has(self._log.address, request):
                self._tell(request, None)

    def _tell(self, request: int, token: int | None) -> bool:
        turn = self._turns.get(request)
        if turn is None or turn.done():
            return False
        turn.set_result(token)
        return True


def _as_list(claim: Claim) -> list[object]:
    member = claim.member
    return [member.name, member.host, member.port, member.incarnation, claim.request, claim.token]
