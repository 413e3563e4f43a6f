"""A bound for loops that run until nothing changes: an endless one raises an error instead of hanging the driver."""

from __future__ import annotations

from collections.abc import Iterator

from motet.errors import UnsettledError

MOST_STEPS = 10_000  # Rounds of one settle loop; a view change of the largest group takes some hundred.
MOST_SENDS = 1 << 22  # Rounds of a loop that sends a backlog: several for each frame of the largest one.


def steps(what: str, most: int = MOST_STEPS) -> Iterator[int]:
    """Count the rounds of a settle loop: `for _ in steps("the engine"): ...`, ended by `break` or `return`."""
    yield from range(most)
    raise UnsettledError(f"{what} did not settle within {most} steps; report this as a bug")
