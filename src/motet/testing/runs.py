"""Run a test in virtual time, for one seed or for many."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from motet.sim.world.network import NetworkProfile
from motet.testing.clock import VirtualLoop
from motet.testing.network import SimNetwork

T = TypeVar("T")
WITHIN_S = 600.0


def run(
    test: Callable[[SimNetwork], Awaitable[T]],
    *,
    seed: int = 0,
    profile: NetworkProfile | None = None,
    loss: float = 0.0,
    within: float = WITHIN_S,
) -> T:
    """Run `test(network)`, and return what it returns. It must be over `within` seconds of virtual time."""

    async def bounded() -> T:
        try:
            async with asyncio.timeout(within) as bound:
                return await test(SimNetwork(seed, profile, loss=loss))
        except TimeoutError:
            if not bound.expired():
                raise
            raise TimeoutError(f"the test was not over after {within} s of virtual time") from None

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            return runner.run(bounded())
        except BaseException as error:
            error.add_note(f"This was seed {seed}; the same seed does the same again.")
            raise


def simulated(
    *,
    seeds: Iterable[int] = (0,),
    profile: NetworkProfile | None = None,
    loss: float = 0.0,
    within: float = WITHIN_S,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a plain test out of an async one, whose first parameter is the network; it runs once per seed.

    Works with pytest without any plugin: the other parameters are fixtures, as always.
    """
    all_seeds = tuple(seeds)

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def plain(*args: Any, **kwargs: Any) -> None:
            for seed in all_seeds:
                run(
                    lambda network: test(network, *args, **kwargs), seed=seed, profile=profile, loss=loss, within=within
                )

        del plain.__wrapped__  # or pytest would take the network for a fixture
        _, *others = inspect.signature(test).parameters.values()
        plain.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return plain

    return decorate
