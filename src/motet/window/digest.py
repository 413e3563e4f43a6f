"""The digest: what one observer knows of each member's stream. Merging two takes the maximum (seed `merge.txt`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

M = TypeVar("M", bound=Hashable)


@dataclass(frozen=True, slots=True)
class DigestEntry:
    low: int
    delivered: int
    received: int

    def __str__(self) -> str:
        return f"{self.low} {self.delivered} ({self.received})"


def merge_digests(ours: Mapping[M, DigestEntry], theirs: Mapping[M, DigestEntry]) -> dict[M, DigestEntry]:
    """Both digests as one; of an entry that both have, the larger stays: by what was delivered, then received."""
    merged = dict(ours)
    for member, entry in theirs.items():
        if member not in merged or _progress(entry) > _progress(merged[member]):
            merged[member] = entry
    return merged


def _progress(entry: DigestEntry) -> tuple[int, int, int]:
    return (entry.delivered, entry.received, entry.low)
