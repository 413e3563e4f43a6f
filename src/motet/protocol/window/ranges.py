"""Ranges of seqnos, missing or requested: a tuple of (first, last), both inclusive, ascending and disjoint."""

from __future__ import annotations

Ranges = tuple[tuple[int, int], ...]


def size(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def limited(ranges: Ranges, most: int) -> Ranges:
    """The first `most` seqnos of `ranges`."""
    kept: list[tuple[int, int]] = []
    for first, last in ranges:
        if most <= 0:
            break
        kept.append((first, min(last, first + most - 1)))
        most -= last - first + 1
    return tuple(kept)


def parts(ranges: Ranges, seqnos: int, spans: int) -> list[Ranges]:
    """Divide `ranges` into parts of at most `seqnos` seqnos and `spans` ranges each."""
    divided: list[Ranges] = []
    part: list[tuple[int, int]] = []
    space = seqnos
    for first, last in ranges:
        while first <= last:
            until = min(last, first + space - 1)
            part.append((first, until))
            space -= until - first + 1
            first = until + 1
            if space == 0 or len(part) == spans:
                divided.append(tuple(part))
                part, space = [], seqnos
    if part:
        divided.append(tuple(part))
    return divided
