"""The ack table: the highest ack of each member of the view. Everything up to its minimum may be purged.

Invariant: `minimum` is the smallest entry and never decreases while the members stay the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from motet.errors import MisuseError

M = TypeVar("M", bound=Hashable)


class AckTable(Generic[M]):
    def __init__(self, entries: Mapping[M, int]) -> None:
        if not entries:
            raise MisuseError("an ack table without members has no minimum; start it with the member itself")
        self._acks = dict(entries)
        self.minimum = min(self._acks.values())

    def __contains__(self, member: M) -> bool:
        return member in self._acks

    def __getitem__(self, member: M) -> int:
        return self._acks[member]

    def ack(self, member: M, seqno: int) -> tuple[int, int]:
        """Record an ack and return the minimum before and after it. A late or repeated ack changes nothing."""
        before = self.minimum
        was = self._acks[member]
        if seqno > was:
            self._acks[member] = seqno
            if was == before:
                self.minimum = min(self._acks.values())
        return before, self.minimum

    def retain(self, members: Iterable[M], joined_at: int) -> None:
        """Keep exactly `members`; new ones start with `joined_at` acked."""
        kept = {member: self._acks.get(member, joined_at) for member in members}
        if not kept:
            raise MisuseError("an ack table without members has no minimum; keep at least the member itself")
        self._acks = kept
        self.minimum = min(self._acks.values())
