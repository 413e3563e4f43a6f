"""The digest: what one observer knows of each member's stream. Merging two takes the maximum (seed `merge.txt`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


@dataclass(frozen=True, slots=True)
class DigestEntry:
    low: int
    delivered: int
    received: int

    def __str__(self) -> str:
        return f"{self.low} {self.delivered} ({self.received})"


def merge_digests(ours: Mapping[M, DigestEntry], theirs: Mapping[M, DigestEntry]) -> dict[M, DigestEntry]:
    """Both digests as one. Of an entry that both have, the maximum of each seqno: a sender that is slow to deliver its
    own stream has sent more than the one who is ahead of it in delivering knows of."""
    merged = dict(ours)
    for member, entry in theirs.items():
        known = merged.get(member, entry)
        merged[member] = DigestEntry(
            max(known.low, entry.low), max(known.delivered, entry.delivered), max(known.received, entry.received)
        )
    return merged


@dataclass(frozen=True, slots=True)
class Cut(Generic[M]):
    """Where one stream ends in a view: everybody who goes on delivers it up to `seqno`, and no further."""

    seqno: int
    holder: M  # one who has all of it that anybody still needs
    stable: int  # everybody has delivered up to here, so nobody needs to keep it


def cut_of(digests: Mapping[M, Mapping[M, DigestEntry]]) -> dict[M, Cut[M]]:
    """The cut that these survivors can all reach, each of them knowing its own state at first hand."""
    cut: dict[M, Cut[M]] = {}
    for survivor, digest in digests.items():
        for sender, entry in digest.items():
            so_far = cut.get(sender, Cut(-1, survivor, 0))
            holder = survivor if entry.received > so_far.seqno else so_far.holder
            cut[sender] = Cut(max(so_far.seqno, entry.received), holder, max(so_far.stable, entry.low))
    return cut
