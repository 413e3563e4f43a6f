"""The frames: one frozen class per kind. docs/design/wire.md has the same list with who sends each and why.

`sender` fields are incarnations, as they travel; the member that reads them knows whose they are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.record import record
from motet.protocol.core.view import NO_VIEW, Ballot, View, ViewId, ViewSummary

Ranges = tuple[tuple[int, int], ...]  # (first, last), both included, ascending, disjoint


@record
class UnicastData(Frame):
    conn_id: int
    first: bool  # the first frame of its connection: a receiver without a window may open one
    seqno: int
    body: bytes


@record
class UnicastAck(Frame):
    conn_id: int
    seqno: int  # everything up to it was delivered


@record
class UnicastXmitRequest(Frame):
    conn_id: int
    ranges: Ranges


@record
class UnicastPurged(Frame):
    """The answer to a request for what was acked: a receiver that still misses it is out of step."""

    conn_id: int
    low: int  # everything up to it was acked


@record
class Close(Frame):
    conn_id: int


@record
class Sync(Frame):
    conn_id: int  # the one that the receiver saw, or holds, and cannot go on with
    sync_id: int  # names this attempt; the answer repeats it, so that a late answer to an earlier one is recognised


@record
class SyncOk(Frame):
    conn_id: int  # the new one
    sync_id: int
    low: int  # the sender's highest acked seqno


@record
class SyncAck(Frame):
    conn_id: int


@record
class MulticastData(Frame):
    sender: int  # differs from the datagram's source when a survivor hands on what a crashed sender sent
    seqno: int
    stable: int  # every member of the sender's view has delivered up to here
    body: bytes
    view: int = 0  # names the view that it was sent in: in another one it is not delivered, nor is `stable` believed


@record
class MulticastAck(Frame):
    seqno: int


@record
class MulticastXmitRequest(Frame):
    sender: int
    ranges: Ranges


@record
class Highest(Frame):
    """The tail notice: "this is the highest I sent, and this much of it is stable"."""

    seqno: int
    stable: int
    view: int = 0


@record
class Purged(Frame):
    """The answer to a request for what is gone."""

    sender: int
    low: int  # everything up to it is purged


@record
class Heartbeat(Frame):
    """A sign of life, and the view that its sender is in. Like probes and their answers it measures the link."""

    view: ViewId = NO_VIEW
    beat: int = 0  # counts what measures this link, in this direction; 0 in a frame that does not
    echo: int = 0  # the highest beat that came from the receiver
    echo_delay_ns: int = 0  # how long ago that was
    loss: int = 0  # thousandths of the receiver's beats that were lost or overtaken on their way here


@record
class AreYouAlive(Frame):
    """A probe: a question to one who was silent for too long, before anybody acts on it."""

    beat: int = 0  # these as in a heartbeat
    echo: int = 0
    echo_delay_ns: int = 0
    loss: int = 0


@record
class IAmAlive(Frame):
    view: ViewId = NO_VIEW
    beat: int = 0  # these as in a heartbeat
    echo: int = 0
    echo_delay_ns: int = 0
    loss: int = 0


@record
class Busy(Frame):
    """Sent on behalf of a member whose process is alive while its driver does not run. It is prepared while the driver
    runs, so it says nothing else."""

    view: ViewId


@record
class IndirectProbe(Frame):
    """A member asks another one to probe a third, whom it cannot hear itself."""

    view: ViewId
    target: int


@record
class Vouched(Frame):
    """The answer to an indirect probe: the target was heard by the one who was asked."""

    view: ViewId
    target: int


Pairs = tuple[tuple[int, int], ...]
Quads = tuple[tuple[int, int, int, int], ...]
AgreedNumbers = tuple[
    tuple[int, int, Pairs], ...
]  # (sender, id of the first, final numbers of it and those that follow it)


class LogCheckpoint(NamedTuple):
    """Where a log stands, and what those who come to it from outside need to go on with it."""

    position: int = 0
    producers: Pairs = ()  # of appends that can be repeated: (producer, highest sequence), the least recent first


class StateNeed(IntEnum):
    """How a member stands to the application's state."""

    UNWANTED = 0  # its application takes no state
    HELD = 1
    LACKING = 2  # it came in and is still getting it; where nobody has it, it waits
    SPARE = 3  # it is still getting it, but its application has every message of the log that came before this view
    DISPENSABLE = 4  # it is still getting it, and goes on without it where nobody has it


@record
class Decision:
    """How a view ends and what comes after it. Not a frame of its own; several carry it."""

    cut: Quads  # (sender, seqno, holder, stable) per stream of the view that ends
    following: View
    digest: Pairs  # (member, seqno): where the stream of each member of the following view begins in it
    subviews: tuple[View, ...] = ()  # the views that were merged; none where a single one was changed
    lacking: tuple[int, ...] = ()  # who does not have the application's state when the following view begins
    epoch: ViewId = NO_VIEW  # the last primary view of those whom the others follow
    position: int = 0  # where their log stands when the following view begins; known when all are ready
    producers: Pairs = ()  # and the appends that it knows; see LogEnd
    agreed: AgreedNumbers = ()  # of the ordered frames of the view that ends: what any participant knew


@record
class Prepare(Frame):
    """The acting coordinator begins to end a view."""

    view: ViewId
    ballot: Ballot
    participants: tuple[Address, ...]
    voids: bool = False  # what its sender planned before in this view was installed by nobody, and will not be


@record
class Prepared(Frame):
    """A participant's own state, and nothing that it heard of others."""

    view: ViewId
    ballot: Ballot
    digest: Quads  # (sender, low, delivered, received) per stream
    last: View | None  # the last primary view that it knows of
    attempts: tuple[View, ...]  # primary views attempted since
    state: StateNeed
    may_bootstrap: bool  # it counts when the group is founded: it has not lost a memory of a group
    epoch: ViewId  # the last primary view that it was in, or whose log and state it took over
    position: int  # how far it has delivered that log
    decided: Decision | None  # it has seen the COMMIT that ended this view so
    agreed: AgreedNumbers = ()  # numbers of ordered frames that it knows and others may not
    earlier_incarnations: tuple[int, ...] = ()  # earlier incarnations whose memory it holds, and for which it stands
    is_caught_up: bool = True  # it has what it should keep of that log, and the state that goes with it


@record
class CutTo(Frame):
    view: ViewId
    ballot: Ballot
    decision: Decision
    last: View | None  # what the decision counted: every participant records it before it says READY
    attempts: tuple[View, ...]


@record
class Ready(Frame):
    """The cut is held, and the attempt is recorded."""

    view: ViewId
    ballot: Ballot
    position: int = 0  # where its log will stand when the view has ended so
    producers: Pairs = ()


@record
class Commit(Frame):
    view: ViewId
    ballot: Ballot
    decision: Decision


@record
class Installed(Frame):
    view: ViewId


@record
class Abort(Frame):
    """The proposer of this ballot will never commit it."""

    view: ViewId
    ballot: Ballot
    is_off: bool  # nobody can have installed what was planned; otherwise another part of a merge may have


@record
class Nack(Frame):
    """A later ballot was promised, or: how did this view end?"""

    view: ViewId
    ballot: Ballot
    promised: Ballot


@record
class LeaveRequest(Frame):
    """A member asks the coordinator to let it go."""

    view: ViewId


@record
class Suspicion(Frame):
    """A member cannot hear others of its view; the coordinator, which may hear them, is told."""

    view: ViewId
    reporter: int
    suspects: tuple[int, ...]


@record
class Hello(Frame):
    """To an endpoint, whoever lives there: who I am and what view I am in; and you?"""

    sender: Address
    view: ViewSummary
    nonce: int  # the answer repeats it, so that it proves that both directions work now


@record
class HelloBack(Frame):
    sender: Address
    view: ViewSummary
    nonce: int


@record
class MergeRequest(Frame):
    """The merge leader asks a coordinator to prepare its part. A merge is named like a ballot: round and leader."""

    merge: Ballot
    view: ViewId  # the leader's
    part: ViewId  # the view of the coordinator that is asked, as the leader knows it: no later view answers
    answer_ns: int = 0  # how long the leader waits for an answer; the parts know less of its network, and wait as long


@record
class MergeRefusal(Frame):
    """This part does not take part now. Never by silence."""

    merge: Ballot
    reason: str


@record
class MergeResponse(Frame):
    """The aggregated answers of one part, given for this view in this round and for no other."""

    merge: Ballot
    view: View
    ballot: Ballot  # of the part's round
    staying: tuple[Address, ...]  # who goes on; each has answered for itself
    leaving: tuple[Address, ...]  # who leaves gracefully with this change
    digest: Quads  # (sender, low, delivered, received) per stream of the part
    wanting: tuple[int, ...]  # who wants the application's state if it does not have it
    lacking: tuple[int, ...]  # who of them has not got it yet
    bootstrap_voters: tuple[int, ...]  # who counts when the group is founded
    epoch: ViewId  # the last primary view of this part, and how far its log was delivered
    position: int
    last: View | None
    attempts: tuple[View, ...]
    earlier_incarnations: tuple[int, ...] = ()  # earlier incarnations that those who go on stand for
    is_caught_up: bool = True  # one of those who go on has all of the log and the state; the others may still fetch it


@record
class MergeView(Frame):
    """What all parts are to install. Each part gets it with the view and the round that its answer was given for."""

    merge: Ballot
    part: ViewId
    ballot: Ballot
    following: View
    digest: Pairs
    subviews: tuple[View, ...]
    lacking: tuple[int, ...]
    epoch: ViewId
    last: View | None
    attempts: tuple[View, ...]


@record
class MergeReady(Frame):
    """All members of this part hold their cut and have recorded the attempt."""

    merge: Ballot
    ballot: Ballot  # of the part's round
    position: int = 0
    producers: Pairs = ()


@record
class MergeCommit(Frame):
    """All parts are ready: install it."""

    merge: Ballot
    view: ViewId  # the merged one; the coordinator answers with INSTALLED
    position: int = 0
    producers: Pairs = ()


@record
class MergeCancel(Frame):
    merge: Ballot
    is_off: bool  # no part was told to install it


@record
class StateRequest(Frame):
    """One who came in asks for the application's state as it was when this view began."""

    view: ViewId
    first: int  # index of the first chunk wanted
    count: int


@record
class StateChunk(Frame):
    view: ViewId
    index: int
    is_last: bool
    data: bytes


@record
class StateRefusal(Frame):
    """The provider's application could not give its state."""

    view: ViewId
    reason: str


Triples = tuple[tuple[int, int, int], ...]


@record
class Proposals(Frame):
    """One member's proposals for many frames of one sender (the seed's AckMessage, gathered)."""

    view: ViewId
    runs: Triples  # (first id, count, first number): both grow by one within a run
    sender: int = 0  # whose frames, where all are told; 0: those of the one it is sent to


@record
class ProposalRequest(Frame):
    """A sender still waits for these."""

    view: ViewId
    first: int
    last: int


@record
class Progress(Frame):
    """How far its sender has delivered the log; to the coordinator."""

    view: ViewId
    position: int


@record
class Stable(Frame):
    """Every member of the view has delivered the log up to here."""

    view: ViewId
    position: int


@record
class OrderData(Frame):
    """The seed's DataMessage on a datagram of its own; its sender is the datagram's source."""

    view: ViewId
    id: int  # counted by its sender from 1 in this view
    settled: int  # all members have the final numbers of its sender's frames up to here
    after: int  # seqno of the last plain multicast that its sender sent before it
    body: bytes  # an ordered one, without numbers


@record
class OrderAck(Frame):
    """The seed's AckMessage: this frame of yours is here, and this is the number that I propose for it."""

    view: ViewId
    id: int
    number: int


@record
class OrderSeq(Frame):
    """The seed's SeqMessage: the final number of a frame of mine."""

    view: ViewId
    id: int
    settled: int
    number: int
    proposer: int  # rank in the view


@record
class OrderSeqAck(Frame):
    """The seed's SeqAckMessage."""

    view: ViewId
    id: int
