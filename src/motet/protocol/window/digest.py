"""The digest: what one observer knows of each member's stream. Merging two takes the maximum (JGroups note MERGE)."""

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
    """Merge two digests: of an entry that both have, take the maximum of each seqno.

    Each field is maximized by itself, because a sender that delivers its own stream slowly has still sent more than a
    receiver knows which is ahead of it in delivering.
    """
    merged = dict(ours)
    for member, entry in theirs.items():
        known = merged.get(member, entry)
        merged[member] = DigestEntry(
            max(known.low, entry.low), max(known.delivered, entry.delivered), max(known.received, entry.received)
        )
    return merged


@dataclass(frozen=True, slots=True)
class Cut(Generic[M]):
    """Where one stream ends in a view: every survivor delivers it up to `seqno` and no further."""

    seqno: int
    holder: M  # A survivor that has every frame up to `seqno` which another survivor may miss.
    stable: int  # Every survivor has delivered up to here, so the frames need not be kept.


def cut_of(digests: Mapping[M, Mapping[M, DigestEntry]]) -> dict[M, Cut[M]]:
    """The cut that all survivors can reach. Each digest must come from the survivor itself, not from hearsay."""
    cut: dict[M, Cut[M]] = {}
    for survivor, digest in digests.items():
        for sender, entry in digest.items():
            so_far = cut.get(sender, Cut(-1, survivor, 0))
            holder = survivor if entry.received > so_far.seqno else so_far.holder
            cut[sender] = Cut(max(so_far.seqno, entry.received), holder, max(so_far.stable, entry.low))
    return cut
