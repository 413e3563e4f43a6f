"""Agreed sequence numbers in a view change: merges what several members report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, takewhile

from motet.protocol.wire.frames import AgreedNumbers


def combined_agreed(reports: Iterable[AgreedNumbers]) -> AgreedNumbers:
    """Merge reports, each of which has runs of consecutive ids per sender.

    Every member has the numbers between two runs already, from the streams.
    """
    known: dict[int, dict[int, tuple[int, int]]] = {}
    for report in reports:
        for sender, first, numbers in report:
            known.setdefault(sender, {}).update(zip(count(first), numbers, strict=False))
    return tuple(run for sender, numbers in sorted(known.items()) for run in _runs(sender, numbers))


def _runs(sender: int, numbers: dict[int, tuple[int, int]]) -> Iterator[tuple[int, int, tuple[tuple[int, int], ...]]]:
    for first in sorted(at for at in numbers if at - 1 not in numbers):
        yield sender, first, tuple(numbers[at] for at in takewhile(numbers.__contains__, count(first)))
