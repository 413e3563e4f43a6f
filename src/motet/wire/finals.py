"""Final numbers of ordered frames, as a view change carries them: what several know, as one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, takewhile

from motet.wire.frames import Finals


def combined_finals(reports: Iterable[Finals]) -> Finals:
    """Each report has, per sender, an unbroken run; together they make one run. What breaks off it is nonsense."""
    known: dict[int, dict[int, tuple[int, int]]] = {}
    for report in reports:
        for sender, first, numbers in report:
            known.setdefault(sender, {}).update(zip(count(first), numbers, strict=False))
    return tuple(_run(sender, numbers) for sender, numbers in sorted(known.items()) if numbers)


def _run(sender: int, numbers: dict[int, tuple[int, int]]) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    first = min(numbers)
    return sender, first, tuple(numbers[at] for at in takewhile(numbers.__contains__, count(first)))
