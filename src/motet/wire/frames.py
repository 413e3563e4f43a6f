"""The frames: one frozen class per kind. docs/design/wire.md has the same list with who sends each and why.

`sender` fields are incarnations, as they travel; the member that reads them knows whose they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.effects import Frame
from motet.core.identity import Address
from motet.core.view import Ballot, View, ViewId

Ranges = tuple[tuple[int, int], ...]  # (first, last), both included, ascending, disjoint


@dataclass(frozen=True, slots=True)
class UnicastData(Frame):
    conn_id: int
    first: bool  # the first frame of its connection: a receiver without a window may open one
    seqno: int
    body: bytes


@dataclass(frozen=True, slots=True)
class UnicastAck(Frame):
    conn_id: int
    seqno: int  # everything up to it was delivered


@dataclass(frozen=True, slots=True)
class UnicastXmitRequest(Frame):
    conn_id: int
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class UnicastPurged(Frame):
    """The answer to a request for what was acked: a receiver that still misses it is out of step."""

    conn_id: int
    low: int  # everything up to it was acked


@dataclass(frozen=True, slots=True)
class Close(Frame):
    conn_id: int


@dataclass(frozen=True, slots=True)
class Sync(Frame):
    conn_id: int  # the one that the receiver saw, or holds, and cannot go on with
    sync_id: int  # names this attempt; the answer repeats it, so that a late answer to an earlier one is recognised


@dataclass(frozen=True, slots=True)
class SyncOk(Frame):
    conn_id: int  # the new one
    sync_id: int
    low: int  # the sender's highest acked seqno


@dataclass(frozen=True, slots=True)
class SyncAck(Frame):
    conn_id: int


@dataclass(frozen=True, slots=True)
class MulticastData(Frame):
    sender: int  # differs from the datagram's source when a survivor hands on what a crashed sender sent
    seqno: int
    stable: int  # every member of the sender's view has delivered up to here
    body: bytes


@dataclass(frozen=True, slots=True)
class MulticastAck(Frame):
    seqno: int


@dataclass(frozen=True, slots=True)
class MulticastXmitRequest(Frame):
    sender: int
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Highest(Frame):
    """The tail notice: "this is the highest I sent, and this much of it is stable"."""

    seqno: int
    stable: int


@dataclass(frozen=True, slots=True)
class Purged(Frame):
    """The answer to a request for what is gone."""

    sender: int
    low: int  # everything up to it is purged


@dataclass(frozen=True, slots=True)
class Heartbeat(Frame):
    """A sign of life of a member that has nothing else to say."""


@dataclass(frozen=True, slots=True)
class AreYouAlive(Frame):
    """A question to one who was silent for too long, before anybody acts on it."""


@dataclass(frozen=True, slots=True)
class IAmAlive(Frame):
    pass


Quads = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Prepare(Frame):
    """The acting coordinator begins to end a view."""

    view: ViewId
    ballot: Ballot
    participants: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Prepared(Frame):
    """A participant's own state, and nothing that it heard of others."""

    view: ViewId
    ballot: Ballot
    digest: Quads  # (sender, low, delivered, received) per stream
    last: View | None  # its last primary view
    attempts: tuple[View, ...]  # primary views attempted since
    decided: View | None  # it has seen the COMMIT that ends this view with that one
    decided_cut: Quads


@dataclass(frozen=True, slots=True)
class CutTo(Frame):
    view: ViewId
    ballot: Ballot
    cut: Quads  # (sender, seqno, holder, stable) per stream
    following: View


@dataclass(frozen=True, slots=True)
class Ready(Frame):
    view: ViewId
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Commit(Frame):
    view: ViewId
    ballot: Ballot
    cut: Quads
    following: View


@dataclass(frozen=True, slots=True)
class Installed(Frame):
    view: ViewId


@dataclass(frozen=True, slots=True)
class Abort(Frame):
    """The proposer of this ballot will never commit it."""

    view: ViewId
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Nack(Frame):
    """A later ballot was promised."""

    view: ViewId
    ballot: Ballot
    promised: Ballot


@dataclass(frozen=True, slots=True)
class LeaveRequest(Frame):
    """A member asks the coordinator to let it go."""

    view: ViewId
