"""What the codec's tests draw from: every kind of frame, with fields all over their range."""

from typing import TypeVar

from hypothesis import strategies as st

from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MOST_COUNT
from motet.protocol.core.view import Ballot, View, ViewId, ViewSummary
from motet.protocol.wire import frames
from motet.protocol.wire.body import FRAGMENT, FRAGMENT_HEADER, MAX_MESSAGE_BYTES, pack
from motet.protocol.wire.codec import MAX_RANGES, encode
from motet.protocol.wire.frames import (
    Abort,
    AreYouAlive,
    Busy,
    Close,
    Commit,
    CutTo,
    Decision,
    Heartbeat,
    Hello,
    HelloBack,
    Highest,
    IAmAlive,
    IndirectProbe,
    Installed,
    LeaveRequest,
    MemberReport,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeRequest,
    MergeResponse,
    MergeView,
    MulticastAck,
    MulticastData,
    MulticastXmitRequest,
    Nack,
    OrderAck,
    OrderData,
    OrderSeq,
    OrderSeqAck,
    Prepare,
    Prepared,
    Progress,
    ProposalRequest,
    Proposals,
    Purged,
    Ready,
    Stable,
    StateChunk,
    StateNeed,
    StateRefusal,
    StateRequest,
    Suspicion,
    Sync,
    SyncAck,
    SyncOk,
    UnicastAck,
    UnicastData,
    UnicastPurged,
    UnicastXmitRequest,
    Vouched,
)

GROUP = 0x11223344
CONN_IDS = st.integers(0, (1 << 32) - 1)
INCARNATIONS = st.integers(0, (1 << 64) - 1)
SEQNOS = st.integers(0, MOST_COUNT)
SPANS = st.integers(0, 1 << 53)
BEAT = (st.integers(0, 1 << 62), st.integers(0, 1 << 62), SPANS, st.integers(0, 1_000))


def frame_classes() -> set[type[Frame]]:
    """Every kind that the wire package knows."""
    found = [entry for entry in vars(frames).values() if isinstance(entry, type) and issubclass(entry, Frame)]
    return set(found) - {Frame}


@st.composite
def ranges(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """Ascending and disjoint; two may touch."""
    ends = draw(st.lists(st.integers(1, MOST_COUNT), min_size=2, max_size=40, unique=True).map(sorted))
    return tuple(zip(ends[0::2], ends[1::2], strict=False))[:MAX_RANGES]


@st.composite
def fragments(draw: st.DrawFn) -> bytes:
    is_last = draw(st.booleans())
    chunk = draw(st.binary(min_size=1 if is_last else 52, max_size=90))
    total = draw(st.integers(len(chunk), MAX_MESSAGE_BYTES))
    offset = total - len(chunk) if is_last else draw(st.integers(0, total - len(chunk)))
    return FRAGMENT_HEADER.pack(FRAGMENT, 0, total, offset) + chunk


BODIES = st.one_of(st.lists(st.binary(max_size=20), max_size=10).map(pack), fragments())

T = TypeVar("T")


def tuples(items: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=3).map(tuple)


TEXTS = st.text(max_size=20)
LIVES = st.integers(1, (1 << 64) - 1)
ADDRESS = st.builds(Address, st.text(min_size=1, max_size=20), TEXTS, st.integers(0, 0xFFFF), LIVES)
ADDRESSES = tuples(ADDRESS)
VIEW_IDS = st.builds(ViewId, SEQNOS, INCARNATIONS)
BALLOTS = st.builds(Ballot, SEQNOS, INCARNATIONS)
MEMBERS = st.lists(ADDRESS, min_size=1, max_size=3, unique_by=lambda address: address.incarnation).map(tuple)
VIEWS = st.builds(View, VIEW_IDS, MEMBERS, st.booleans())
PAIRS = tuples(st.tuples(INCARNATIONS, SEQNOS))
SUMMARIES = st.builds(ViewSummary, VIEW_IDS, ADDRESS, st.booleans(), st.integers(0, 0xFFFF))
DIGESTS = tuples(st.tuples(INCARNATIONS, SEQNOS, SEQNOS, SEQNOS))
CUTS = tuples(st.tuples(INCARNATIONS, SEQNOS, INCARNATIONS, SEQNOS))
AGREED = tuples(st.tuples(LIVES, SEQNOS, tuples(st.tuples(SEQNOS, st.integers(0, (1 << 32) - 1)))))
DECISIONS = st.builds(Decision, CUTS, VIEWS, PAIRS, tuples(VIEWS), tuples(LIVES), VIEW_IDS, SEQNOS, PAIRS, AGREED)
RECORD = (st.none() | VIEWS, tuples(VIEWS))
REPORTS = st.builds(MemberReport, DIGESTS, *RECORD, VIEW_IDS, SEQNOS, tuples(LIVES), st.booleans())
NEEDS = st.sampled_from(StateNeed)

FRAMES: dict[type[Frame], st.SearchStrategy[Frame]] = {
    UnicastData: st.builds(UnicastData, CONN_IDS, st.booleans(), SEQNOS, BODIES),
    UnicastAck: st.builds(UnicastAck, CONN_IDS, SEQNOS),
    UnicastXmitRequest: st.builds(UnicastXmitRequest, CONN_IDS, ranges()),
    UnicastPurged: st.builds(UnicastPurged, CONN_IDS, SEQNOS),
    Close: st.builds(Close, CONN_IDS),
    Sync: st.builds(Sync, CONN_IDS, CONN_IDS),
    SyncOk: st.builds(SyncOk, CONN_IDS, CONN_IDS, SEQNOS),
    SyncAck: st.builds(SyncAck, CONN_IDS),
    MulticastData: st.builds(MulticastData, INCARNATIONS, SEQNOS, SEQNOS, BODIES, SEQNOS),
    MulticastAck: st.builds(MulticastAck, SEQNOS),
    MulticastXmitRequest: st.builds(MulticastXmitRequest, INCARNATIONS, ranges()),
    Highest: st.builds(Highest, SEQNOS, SEQNOS, SEQNOS),
    Purged: st.builds(Purged, INCARNATIONS, SEQNOS),
    Heartbeat: st.builds(Heartbeat, VIEW_IDS, *BEAT),
    AreYouAlive: st.builds(AreYouAlive, *BEAT),
    IAmAlive: st.builds(IAmAlive, VIEW_IDS, *BEAT),
    IndirectProbe: st.builds(IndirectProbe, VIEW_IDS, LIVES),
    Vouched: st.builds(Vouched, VIEW_IDS, LIVES),
    Busy: st.builds(Busy, VIEW_IDS),
    Prepare: st.builds(Prepare, VIEW_IDS, BALLOTS, ADDRESSES, st.booleans()),
    Prepared: st.builds(
        Prepared,
        VIEW_IDS,
        BALLOTS,
        REPORTS,
        NEEDS,
        st.booleans(),
        st.none() | DECISIONS,
        AGREED,
    ),
    CutTo: st.builds(CutTo, VIEW_IDS, BALLOTS, DECISIONS, *RECORD),
    Ready: st.builds(Ready, VIEW_IDS, BALLOTS, SEQNOS, PAIRS),
    Commit: st.builds(Commit, VIEW_IDS, BALLOTS, DECISIONS),
    Installed: st.builds(Installed, VIEW_IDS),
    Abort: st.builds(Abort, VIEW_IDS, BALLOTS, st.booleans()),
    Nack: st.builds(Nack, VIEW_IDS, BALLOTS, BALLOTS),
    LeaveRequest: st.builds(LeaveRequest, VIEW_IDS),
    Suspicion: st.builds(Suspicion, VIEW_IDS, INCARNATIONS, tuples(INCARNATIONS)),
    Hello: st.builds(Hello, ADDRESS, SUMMARIES, INCARNATIONS),
    HelloBack: st.builds(HelloBack, ADDRESS, SUMMARIES, INCARNATIONS),
    MergeRequest: st.builds(MergeRequest, BALLOTS, VIEW_IDS, VIEW_IDS, SPANS),
    MergeRefusal: st.builds(MergeRefusal, BALLOTS, TEXTS),
    MergeResponse: st.builds(
        MergeResponse,
        BALLOTS,
        VIEWS,
        BALLOTS,
        REPORTS,
        ADDRESSES,
        ADDRESSES,
        tuples(LIVES),
        tuples(LIVES),
        tuples(LIVES),
    ),
    MergeView: st.builds(
        MergeView, BALLOTS, VIEW_IDS, BALLOTS, VIEWS, PAIRS, tuples(VIEWS), tuples(LIVES), VIEW_IDS, *RECORD
    ),
    MergeReady: st.builds(MergeReady, BALLOTS, BALLOTS, SEQNOS, PAIRS),
    MergeCommit: st.builds(MergeCommit, BALLOTS, VIEW_IDS, SEQNOS, PAIRS),
    MergeCancel: st.builds(MergeCancel, BALLOTS, st.booleans()),
    StateRequest: st.builds(StateRequest, VIEW_IDS, SEQNOS, st.integers(0, 0xFFFF)),
    StateChunk: st.builds(StateChunk, VIEW_IDS, SEQNOS, st.booleans(), st.binary(max_size=50)),
    StateRefusal: st.builds(StateRefusal, VIEW_IDS, TEXTS),
    Proposals: st.builds(Proposals, VIEW_IDS, tuples(st.tuples(SEQNOS, SEQNOS, SEQNOS))),
    ProposalRequest: st.builds(ProposalRequest, VIEW_IDS, SEQNOS, SEQNOS),
    Progress: st.builds(Progress, VIEW_IDS, SEQNOS),
    Stable: st.builds(Stable, VIEW_IDS, SEQNOS),
    OrderData: st.builds(OrderData, VIEW_IDS, SEQNOS, SEQNOS, SEQNOS, BODIES),
    OrderAck: st.builds(OrderAck, VIEW_IDS, SEQNOS, SEQNOS),
    OrderSeq: st.builds(OrderSeq, VIEW_IDS, SEQNOS, SEQNOS, SEQNOS, st.integers(0, (1 << 32) - 1)),
    OrderSeqAck: st.builds(OrderSeqAck, VIEW_IDS, SEQNOS),
}

ANY_FRAME = st.one_of(*FRAMES.values())
DATAGRAMS = st.builds(encode, st.just(GROUP), INCARNATIONS, INCARNATIONS, ANY_FRAME)
