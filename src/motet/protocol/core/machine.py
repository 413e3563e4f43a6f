"""The contract of every protocol machine.

A machine is a plain class. Its inputs are method calls that take `now`; its output is one ordered list of effects;
`next_deadline` says when it wants its next `tick`, or None when it wants nothing. The same state and the same input
give the same effects. A machine contains no clock, socket, thread, task, logging or global randomness. Misuse by the
caller raises a typed error and changes nothing; invalid input from a peer is dropped and counted. Everything that
grows has a bound.
"""

from __future__ import annotations

from typing import Protocol

from motet.protocol.core.effects import Effect


class ProtocolMachine(Protocol):
    def tick(self, now: int) -> list[Effect]:
        """Do what is due at `now`. Calling it early, late or twice is harmless."""

    def next_deadline(self) -> int | None:
        """When `tick` must be called next, or None if no timer is pending."""
