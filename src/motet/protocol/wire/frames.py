"""The frames: one frozen class per kind. docs/design/wire.md has the same list with who sends each and why.

`sender` fields are incarnations; the receiving member maps them to addresses.
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
    """The answer to a request for acked frames: a receiver that still misses them needs a SYNC."""

    conn_id: int
    low: int  # everything up to it was acked


@record
class Close(Frame):
    conn_id: int


@record
class Sync(Frame):
    conn_id: int  # The connection id that the receiver saw and has no window for, or whose window is wrong.
    sync_id: int  # Names this attempt. The answer repeats it, so that a late answer to an earlier one is recognised.


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
    sender: int  # Differs from the datagram's source when a survivor repairs frames of a crashed sender.
    seqno: int
    stable: int  # Every member of the sender's view has delivered up to here.
    body: bytes
    view: int = 0  # The tag of the view in which it was sent. In a different view, body and `stable` are ignored.


@record
class MulticastAck(Frame):
    seqno: int


@record
class MulticastXmitRequest(Frame):
    sender: int
    ranges: Ranges


@record
class Highest(Frame):
    """The last-seqno announcement: the highest seqno that its sender has sent, and how much of it is stable."""

    seqno: int
    stable: int
    view: int = 0


@record
class Purged(Frame):
    """The answer to a request for purged frames."""

    sender: int
    low: int  # everything up to it is purged


@record
class Heartbeat(Frame):
    """A sign of life with the view of its sender. Like probes and their answers, it measures the link."""

    view: ViewId = NO_VIEW
    beat: int = 0  # Counts measuring frames on this link in this direction; 0 in a frame that does not measure.
    echo: int = 0  # The highest beat received from the receiver of this frame.
    echo_delay_ns: int = 0  # How long ago that beat was received, which is not part of the round trip.
    loss: int = 0  # Thousandths of the receiver's beats that were lost or reordered.


@record
class AreYouAlive(Frame):
    """A probe to a member that was silent for too long, before it is suspected."""

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
    """Sent on behalf of a member whose process is alive but whose driver does not run.

    It has no other content because it is prepared while the driver still runs.
    """

    view: ViewId


@record
class IndirectProbe(Frame):
    """Asks a member to probe a third one, which the sender cannot reach itself."""

    view: ViewId
    target: int


@record
class Vouched(Frame):
    """The answer to an indirect probe: the target is alive."""

    view: ViewId
    target: int


Pairs = tuple[tuple[int, int], ...]
Quads = tuple[tuple[int, int, int, int], ...]
AgreedNumbers = tuple[
    tuple[int, int, Pairs], ...
]  # (sender, first id, agreed sequence numbers of that frame and the following ones)


class LogCheckpoint(NamedTuple):
    """The end of a log, and the producer table that a joiner needs to continue it."""

    position: int = 0
    producers: Pairs = ()  # of appends that can be repeated: (producer, highest sequence), the least recent first


class StateNeed(IntEnum):
    """Whether a member has, needs, or can do without the application's state."""

    UNWANTED = 0  # The application takes no state.
    HELD = 1  # The member has the state.
    LACKING = 2  # The transfer is not complete; if no member has the state, the member waits for one that does.
    SPARE = 3  # The transfer is not complete, but the application has every earlier message of the log.
    DISPENSABLE = 4  # The transfer is not complete; if no member has the state, the member continues without it.


@record
class Decision:
    """How a view ends and which view follows. Not a frame of its own; several frames contain it."""

    cut: Quads  # (sender, seqno, holder, stable) per stream of the view that ends.
    following: View
    digest: Pairs  # (member, seqno): where each member's stream begins in the following view.
    subviews: tuple[View, ...] = ()  # The merged views; none if a single view was changed.
    lacking: tuple[int, ...] = ()  # Members without the application's state when the following view begins.
    epoch: ViewId = NO_VIEW  # The last primary view of the members whose log is continued.
    position: int = 0  # The end of that log when the following view begins; known once all are ready.
    producers: Pairs = ()  # The producer table of that log; see LogCheckpoint.
    agreed: AgreedNumbers = ()  # Agreed sequence numbers of the view that ends, known to any participant.


@record
class Prepare(Frame):
    """The acting coordinator starts a flush."""

    view: ViewId
    ballot: Ballot
    participants: tuple[Address, ...]
    voids: bool = False  # No earlier decision of its sender in this view was or will be installed by anybody.


@record
class MemberReport:
    """What one member has and knows when its view ends; of a part of a merge, what its members have together.

    It is no frame of its own: PREPARED carries the report of a participant, MERGE_RSP that of a part.
    """

    digest: Quads  # (sender, low, delivered, received) per stream.
    last: View | None  # The last primary view that it knows of.
    attempts: tuple[View, ...]  # Primary views attempted since.
    epoch: ViewId  # The last primary view that it was in, or whose log and state it took over.
    position: int  # How far it has delivered that log; of a part: how far the member that is furthest has.
    chain: tuple[int, ...] = ()  # The incarnation chain: earlier incarnations whose durable state it has.
    is_complete: bool = True  # It has all of the log that it should keep, and the state; of a part: one survivor has.


@record
class Prepared(Frame):
    """A participant's own state, without hearsay about others."""

    view: ViewId
    ballot: Ballot
    report: MemberReport
    state: StateNeed
    bootstraps: bool  # Whether it counts towards bootstrapping a group: it has not lost the journal of one.
    decided: Decision | None = None  # The decision of a COMMIT for this view that it has received.
    agreed: AgreedNumbers = ()  # Agreed sequence numbers that others may not know.


@record
class CutTo(Frame):
    view: ViewId
    ballot: Ballot
    decision: Decision
    last: View | None  # The views that the decision counted; every participant records them before READY.
    attempts: tuple[View, ...]


@record
class Ready(Frame):
    """The participant has all frames up to the cut, and has recorded the attempt."""

    view: ViewId
    ballot: Ballot
    position: int = 0  # The end of its log after this decision.
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
    """The proposer of this ballot will not commit it."""

    view: ViewId
    ballot: Ballot
    is_off: bool  # No member can have installed the decision; if False, another part of a merge may have.


@record
class Nack(Frame):
    """A later ballot was promised; also asks how the view ended."""

    view: ViewId
    ballot: Ballot
    promised: Ballot


@record
class LeaveRequest(Frame):
    """A member asks the coordinator to remove it from the view."""

    view: ViewId


@record
class Suspicion(Frame):
    """A member reports suspects to the coordinator, which may still receive from them."""

    view: ViewId
    reporter: int
    suspects: tuple[int, ...]


@record
class Hello(Frame):
    """A discovery request to an endpoint, whichever process runs there: the sender and its view."""

    sender: Address
    view: ViewSummary
    nonce: int  # The answer repeats it, which proves that both directions work now.


@record
class HelloBack(Frame):
    sender: Address
    view: ViewSummary
    nonce: int


@record
class MergeRequest(Frame):
    """The merge leader asks a coordinator to flush its part. A merge is named like a ballot: round and leader."""

    merge: Ballot
    view: ViewId  # The leader's view.
    part: ViewId  # The view of the coordinator as the leader knows it; a later view does not answer.
    answer_ns: int = 0  # How long the leader waits. The parts wait as long, for they know less of its network.


@record
class MergeRefusal(Frame):
    """This part cannot merge now. Refusals are explicit, so that the leader need not wait for a timeout."""

    merge: Ballot
    reason: str


@record
class MergeResponse(Frame):
    """The aggregated answers of one part, valid for this view and this round only."""

    merge: Ballot
    view: View
    ballot: Ballot  # The ballot of the part's round.
    report: MemberReport
    staying: tuple[Address, ...]  # The survivors; each has answered for itself.
    leaving: tuple[Address, ...]  # Members that leave gracefully with this change.
    wanting: tuple[int, ...]  # Members whose application takes state.
    lacking: tuple[int, ...]  # Those of them that do not have it yet.
    bootstrapping: tuple[int, ...]  # Members that count towards bootstrapping a group.


@record
class MergeView(Frame):
    """The view that all parts shall install, sent to each part with the view and the ballot of its answer."""

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
    """All members of this part have all frames up to their cut, and have recorded the attempt."""

    merge: Ballot
    ballot: Ballot  # The ballot of the part's round.
    position: int = 0
    producers: Pairs = ()


@record
class MergeCommit(Frame):
    """All parts are ready: install it."""

    merge: Ballot
    view: ViewId  # The merged view; the coordinator answers with INSTALLED.
    position: int = 0
    producers: Pairs = ()


@record
class MergeCancel(Frame):
    merge: Ballot
    is_off: bool  # No part was asked to install the merged view.


@record
class StateRequest(Frame):
    """A joiner requests the application's state as of the beginning of this view."""

    view: ViewId
    first: int  # The index of the first chunk requested.
    count: int


@record
class StateChunk(Frame):
    view: ViewId
    index: int
    is_last: bool
    data: bytes


@record
class StateRefusal(Frame):
    """The provider's application could not supply its state."""

    view: ViewId
    reason: str


Triples = tuple[tuple[int, int, int], ...]


@record
class Proposals(Frame):
    """One member's proposals for many frames of one sender (AckMessage of the ISIS document, batched)."""

    view: ViewId
    runs: Triples  # (first id, count, first number): ids and numbers both grow by one within a run.
    sender: int = 0  # On the fast path, whose frames the proposals are for; 0 means those of the receiver.


@record
class ProposalRequest(Frame):
    """A sender requests the receiver's proposals for its frames `first` to `last`, both inclusive."""

    view: ViewId
    first: int
    last: int


@record
class Progress(Frame):
    """Reports to the coordinator how far its sender has delivered the log."""

    view: ViewId
    position: int


@record
class Stable(Frame):
    """The coordinator announces that every member of the view has delivered the log up to `position`."""

    view: ViewId
    position: int


@record
class OrderData(Frame):
    """DataMessage of the ISIS document, in the continuous strategy; its sender is the datagram's source."""

    view: ViewId
    id: int  # Counted by its sender from 1 in this view.
    settled: int  # All members have the agreed numbers of its sender's frames up to this id.
    after: int  # Seqno of the last plain multicast that its sender sent before it.
    body: bytes  # An ordered body without piggybacked numbers.


@record
class OrderAck(Frame):
    """AckMessage of the ISIS document: the frame was received, and `number` is proposed for it."""

    view: ViewId
    id: int
    number: int


@record
class OrderSeq(Frame):
    """SeqMessage of the ISIS document: the agreed sequence number of a frame of its sender."""

    view: ViewId
    id: int
    settled: int
    number: int
    proposer: int  # Rank in the view.


@record
class OrderSeqAck(Frame):
    """SeqAckMessage of the ISIS document: acknowledges an OrderSeq."""

    view: ViewId
    id: int
