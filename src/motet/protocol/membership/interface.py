"""What the view-change engine is given (a channel, answers, settings), and the effects that it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from motet.errors import ConfigError
from motet.protocol.core.checks import require_between
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import View
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.wire.frames import AgreedNumbers, LogCheckpoint, StateNeed

Cuts = Mapping[Address, Cut[Address]]


class FlushTarget(Protocol):
    """The channel whose messages must be the same for all who survive the view. Reliable multicast is one."""

    def freeze(self) -> tuple[dict[Address, DigestEntry], AgreedNumbers]:
        """Stop. Returns what we hold of each stream, and agreed sequence numbers that others may not know."""

    def fetch(self, cut: Cuts, now: int) -> list[Effect]: ...
    def is_complete(self, cut: Cuts) -> bool: ...
    def is_within(self, cut: Cuts) -> bool:
        """Nothing beyond the cut was delivered here, or sent by us."""

    def thaw(self, now: int) -> list[Effect]: ...

    @property
    def position(self) -> int:
        """How far the log is delivered."""

    @property
    def is_caught_up(self) -> bool:
        """Whether we have what lies before that, as far as we keep it."""

    def log_after(self, cut: Cuts, agreed: AgreedNumbers, *, log_continues: bool) -> LogCheckpoint:
        """Where the log will stand when the view has ended with this cut, which is held, and these numbers."""

    def end_view(self, cut: Cuts, agreed: AgreedNumbers, *, log_continues: bool) -> list[Effect]:
        """Deliver the rest; of the log only if it continues in the view that follows."""

    def take_over(self, log: LogCheckpoint) -> list[Effect]:
        """Continue the log of the members that we join from outside there; what we delivered otherwise is rolled back.

        Called between `end_view` and `begin_view`. Its effects come before the view is installed, because a journal
        has to be cut before the view is written to it.
        """

    def begin_view(self, view: View, digest: Mapping[Address, int], now: int) -> list[Effect]: ...


class MembershipCallbacks:
    """What the engine asks of the rest of membership. By default anybody may bootstrap, and nobody wants a state."""

    def may_bootstrap(self, members: Sequence[Address]) -> bool:
        """Whether these, who all say that they count, may bootstrap the group."""
        return True

    @property
    def counts_for_bootstrap(self) -> bool:
        """Whether we count when the group is bootstrapped."""
        return True

    def is_backed_off(self, coordinator: Address) -> bool:
        """Whether a merge that this coordinator leads is refused for now."""
        return False

    @property
    def state_need(self) -> StateNeed:
        return StateNeed.UNWANTED

    def was_alive(self, member: Address, since: int) -> bool:
        """Whether anything of this member has arrived since then."""
        return False

    def is_busy(self, member: Address, now: int) -> bool:
        """Whether this member's process is alive while its driver does not run, so that it cannot answer."""
        return False

    def answer_ns(self, config: EngineConfig) -> int:
        """How long a question that is repeated may go unanswered on the network as it is now."""
        return config.answer_ns


@dataclass(frozen=True, slots=True)
class EngineConfig:
    retry_ns: int = 50 * MILLISECOND  # what was not answered is sent again; a few round trips of a LAN
    answer_ns: int = 500 * MILLISECOND  # on a good network, whoever has not answered by then is suspected: ten retries
    answer_max_ns: int = 20 * SECOND  # the same on the worst one
    static_quorum: int = 0  # a view of at least so many members is primary; 0 counts majorities of earlier views
    partitions: str = "primary"  # at most one side continues; "all": every side does, and there is no single log

    def __post_init__(self) -> None:
        require_between("retry_ns", self.retry_ns, MILLISECOND, 10 * SECOND)
        require_between("answer_ns", self.answer_ns, 2 * self.retry_ns, 600 * SECOND)
        require_between("answer_max_ns", self.answer_max_ns, 1, 3600 * SECOND)
        require_between("static_quorum", self.static_quorum, 0, 1 << 16)
        if self.partitions not in ("primary", "all"):
            raise ConfigError(f"partitions is {self.partitions!r}; allowed are 'primary' and 'all'")


@dataclass(frozen=True, slots=True)
class ViewInstalled(Effect):
    view: View
    subviews: tuple[View, ...] = ()  # the views that were merged into it, the one that others follow first
    lacking: tuple[int, ...] = ()  # who does not have the application's state yet
    position: int = field(default=0, compare=False)  # where the log stands when it begins


@dataclass(frozen=True, slots=True)
class Left(Effect):
    """Our own graceful leave is complete; the others have a view without us."""


@dataclass(frozen=True, slots=True)
class FlushTimedOut(Effect):
    """A member did not do its part in a view change in time; it is treated as suspected until the next view."""

    member: Address


@dataclass(frozen=True, slots=True)
class MergeFailed(Effect):
    """The merge that we led did not complete; these coordinators were silent, refused, or could not continue."""

    coordinators: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class MergeUnanswered(Effect):
    """These coordinators sent nothing in a merge that we led, not even a refusal: they crashed, or are cut off."""

    coordinators: tuple[Address, ...]
