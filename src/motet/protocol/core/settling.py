"""A bound for loops that go on until nothing changes: one that would never end is an error, and not a hang."""

from __future__ import annotations

from collections.abc import Iterator

from motet.errors import UnsettledError

MOST_STEPS = 10_000  # of one settle loop for one input; a view change of the largest group takes some hundred
MOST_SENDS = 1 << 22  # of a loop that sends what waits: several for each frame of the largest backlog


def steps(what: str, most: int = MOST_STEPS) -> Iterator[int]:
    """Count the rounds of a settle loop: `for _ in steps("the engine"): ...`, left by `break` or `return`."""
    yield from range(most)
    raise UnsettledError(f"{what} did not settle within {most} steps; report this as a bug")
